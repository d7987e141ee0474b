//! Plain threads, outside of any runtime and inside of one which they block.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use tenure_driver::blocking::{Ctx, Lease, Tenure};
use tenure_driver::core::{Overlap, Restart, Token};
use tenure_driver::store_contract::{RunOutcome, RunState};
use tenure_driver::{Builder, LostReason, NotDrained, Runtime, StartError, WorkerStatus};
use tenure_memory::MemoryStore;

use crate::api::GENEROUS;
use crate::host::Host;
use crate::on_threads::Watchdog;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(3600);

/// Another process over this store.
pub fn start(runtime: &impl Runtime, store: &MemoryStore) -> Tenure {
    Builder::new(runtime.clone()).store(store.handle()).start_blocking().unwrap()
}

/// Waits until the condition holds; looks again every few milliseconds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = tenure_driver::clock::now() + GENEROUS;
    while !condition() {
        assert!(tenure_driver::clock::now() < end, "still not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Calls it on a thread that is in no runtime, and on one that is in that of the host.
pub(crate) fn everywhere<H: Host>(test: impl Fn(&H::Runtime)) {
    let host = H::new();
    let _watched = Watchdog::new();
    test(&host.runtime());
    host.block_on(async { test(&host.runtime()) });
}

/// Calls once whatever waits.
pub fn use_all(tenure: &Tenure) {
    let lease = tenure.acquire("a").wait_at_most(GENEROUS).wait().unwrap();
    assert!(lease.lost_timeout(SHORT).is_err());
    assert!(lease.stopping_timeout(SHORT).is_err());
    assert!(lease.run(|signal| signal.stopped_timeout(SHORT)).unwrap().is_err());
    assert!(tenure.try_acquire("a").wait().is_err());
    assert!(tenure.inspect("a").unwrap().is_some());
    tenure.sleep(SHORT);

    let worker = tenure
        .worker("w", |ctx: Ctx| {
            ctx.lost();
        })
        .start()
        .unwrap();
    until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));
    assert!(worker.ended_timeout(SHORT).is_err());
    worker.stop().unwrap();
    worker.ended_timeout(GENEROUS).unwrap();

    tenure.join_timeout(GENEROUS).unwrap().unwrap();
    assert_eq!(tenure.members().unwrap().len(), 1);
    let shared = tenure.coordinate(["x"], |ctx: Ctx| ctx.stopping()).start().unwrap();
    until("it works", || {
        shared.mine().iter().any(|share| matches!(share.status, WorkerStatus::Working { .. }))
    });
    assert!(shared.add("y").unwrap());
    shared.stop().unwrap();
    shared.ended_timeout(GENEROUS).unwrap();

    let mut timer = tenure.timer("t", SHORT).start().unwrap();
    timer.next_timeout(GENEROUS).unwrap().unwrap().unwrap();
    timer.next().unwrap().unwrap();
    drop(timer);
    let job = tenure.periodic("p", SHORT, |_| Ok::<_, String>(())).start().unwrap();
    until("it has run", || tenure.jobs().history("p").unwrap().len() > 1);
    job.drain().unwrap();
    job.ended_timeout(GENEROUS).unwrap().unwrap();
    assert!(tenure.forget_timer("t").unwrap());
    tenure.jobs().begin("j").start().unwrap().succeed().unwrap();
    assert_eq!(tenure.jobs().all().unwrap().len(), 2);

    assert!(tenure.draining_timeout(SHORT).is_err());
    drop(lease);
    tenure.drain().unwrap();
    tenure.drained_timeout(GENEROUS).unwrap();
    tenure.resume();
    tenure.resumed_timeout(GENEROUS).unwrap();
    tenure.acquire("a").wait().unwrap().release().unwrap();
}

/// Whatever waits can be called anywhere.
pub fn everything_can_be_called_anywhere<H: Host>() {
    everywhere::<H>(|runtime| start(runtime, &MemoryStore::new()).scope(|tenure| use_all(&tenure)));
}

/// Guards and handles can be dropped anywhere: what is held is given back then, without anybody's help.
pub fn what_is_dropped_anywhere_is_given_back<H: Host>() {
    everywhere::<H>(|runtime| {
        let store = MemoryStore::new();
        let other = start(runtime, &store);
        // Its TTL outlasts the test: it passes on only if it is given back.
        let take = |name: &str| start(runtime, &store).acquire(name).ttl(LONG).wait().unwrap();
        let next = |name: &str, before: Token| {
            let lease = other.acquire(name).wait_at_most(GENEROUS).wait().unwrap();
            assert!(lease.token() > before);
        };
        // Here, with the last handle gone before.
        let lease = take("here");
        let token = lease.token();
        drop(lease);
        next("here", token);
        // On another thread, and by a panic.
        let lease = take("panic");
        let token = lease.token();
        let panicked = thread::spawn(move || {
            let _lease: Lease = lease;
            panic!("as it does");
        });
        assert!(panicked.join().is_err());
        next("panic", token);
        // By a thread that ends, as one of its own.
        thread_local!(static KEPT: std::cell::RefCell<Option<Lease>> = const { std::cell::RefCell::new(None) });
        let lease = take("thread");
        let token = lease.token();
        thread::spawn(move || KEPT.set(Some(lease))).join().unwrap();
        next("thread", token);
        other.shutdown().unwrap();
    });
}

/// A run whose thread goes on is no run that has ended, whatever happens to its lease.
pub fn nothing_passes_on_before_the_thread_has_ended<H: Host>() {
    everywhere::<H>(|runtime| {
        let store = MemoryStore::new();
        let (one, other) = (start(runtime, &store), start(runtime, &store));
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let worker = one
            .worker("w", move |ctx: Ctx| {
                tell.send(ctx.lost()).unwrap();
                ends.recv().unwrap();
            })
            .drain_timeout(SHORT)
            .start()
            .unwrap();
        until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));
        let stuck = one.drain().unwrap_err();
        assert!(matches!(&stuck, NotDrained::Stuck(stuck) if stuck.leases.len() == 1), "{stuck:?}");
        assert!(matches!(told.recv_timeout(GENEROUS), Ok(LostReason::Stopped(_))));
        until("it is named", || matches!(worker.status(), WorkerStatus::Stuck { .. }));
        assert!(other.try_acquire("w").wait().is_err());
        end.send(()).unwrap();
        one.drained_timeout(GENEROUS).unwrap();
        drop(other.try_acquire("w").wait().unwrap());
        one.shutdown().unwrap();
        other.shutdown().unwrap();
    });
}

/// A panic is a failed run, and no more.
pub fn a_panic_is_a_failed_run<H: Host>() {
    everywhere::<H>(|runtime| {
        let tenure = start(runtime, &MemoryStore::new());
        let mut runs = 0;
        let worker = tenure
            .worker("w", move |_| {
                runs += 1;
                assert!(runs > 2, "of the work");
            })
            .restart(Restart::OnFailure)
            .restart_delays(SHORT, SHORT)
            .start()
            .unwrap();
        worker.ended_timeout(GENEROUS).unwrap();
        assert_eq!((tenure.stats().runs, tenure.stats().failed_runs), (3, 2));
        let job = tenure.periodic("p", SHORT, |ctx: Ctx| panic!("at {:?}", ctx.tick())).start().unwrap();
        let failed =
            |run: &tenure_driver::store_contract::RunRecord| run.state == RunState::Ended(RunOutcome::Failed);
        until("two have failed", || {
            tenure.jobs().history("p").unwrap().iter().filter(|run| failed(run)).count() > 1
        });
        job.drain().unwrap();
        tenure.shutdown().unwrap();
    });
}

/// Runs go on side by side where they may.
pub fn runs_go_on_side_by_side<H: Host>() {
    everywhere::<H>(|runtime| {
        let tenure = start(runtime, &MemoryStore::new());
        let (tell, told) = std::sync::mpsc::channel();
        let job = tenure
            .periodic("p", SHORT, move |ctx: Ctx| {
                tell.send(ctx.tick().map(|due| due.tick.n)).unwrap();
                ctx.draining();
            })
            .overlap(Overlap::Allow)
            .start()
            .unwrap();
        let ticks: BTreeSet<_> = (0..3).map(|_| told.recv_timeout(GENEROUS).unwrap()).collect();
        assert_eq!(ticks.len(), 3, "none of them has ended yet");
        job.drain().unwrap();
        tenure.shutdown().unwrap();
    });
}

/// Neither threads nor descriptors pile up. For a process of its own, in which nothing else comes or goes.
#[cfg(target_os = "linux")]
pub fn cycles_leave_nothing<H: Host>() {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).map_or(0, Iterator::count);
    let counts = || (count("task"), count("fd"));
    everywhere::<H>(|runtime| {
        // What is started once for the process is there from here on.
        start(runtime, &MemoryStore::new()).scope(|tenure| use_all(&tenure));
        let store = MemoryStore::new();
        let tenure = start(runtime, &store);
        drop(tenure.acquire("a").wait().unwrap());
        until("at rest", || tenure.stats().open == 0);
        let before = counts();
        for n in 0..1000 {
            let lease = tenure.acquire((n % 7).to_string()).wait_at_most(GENEROUS).wait().unwrap();
            assert!(lease.lost_timeout(Duration::ZERO).is_err());
            if n % 2 == 0 {
                drop(lease);
            } else {
                lease.release().unwrap();
            }
        }
        for n in 0..200 {
            let worker = tenure
                .worker((n % 7).to_string(), |ctx: Ctx| {
                    ctx.draining();
                })
                .start()
                .unwrap();
            if n % 3 > 0 {
                until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));
            }
            worker.drain().unwrap();
        }
        for _ in 0..20 {
            let more = start(runtime, &store);
            drop(more.acquire("more").wait().unwrap());
            more.shutdown().unwrap();
            start(runtime, &store).scope(|more| drop(more.acquire("more").wait().unwrap()));
        }
        until("all is given back", || tenure.stats().open == 0);
        until("nothing is left", || counts() <= before);
        assert!(tenure.stats().acquired > 1000 && tenure.stats().runs > 100, "{:?}", tenure.stats());
        assert_eq!(tenure.leases().unwrap(), []);
        tenure.shutdown().unwrap();
    });
}

/// A run for which the operating system gives no thread is a failed one, and the next one has its turn. Leases without a
/// thread are not started. For a process of its own, in which no thread has ended before: its stack would be used again.
#[cfg(target_os = "linux")]
pub fn a_run_without_a_thread_is_a_failed_one<H: Host>() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let host = H::new();
    let tenure = start(&host.runtime(), &MemoryStore::new());
    drop(tenure.acquire("a").wait().unwrap());
    let before = getrlimit(Resource::As);
    let scarce = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        // Enough for anything but a stack.
        let enough = pages * rustix::param::page_size() as u64 + (1 << 20);
        setrlimit(Resource::As, Rlimit { current: Some(enough), ..before }).unwrap();
    };
    scarce();
    assert!(thread::Builder::new().spawn(|| ()).is_err(), "the system gives threads all the same");
    // Without one for the leases nothing is started that could only say that it has ended.
    let refused = Builder::new(host.runtime()).store(MemoryStore::new()).start_blocking();
    assert!(matches!(refused, Err(StartError::Thread(_))), "{refused:?}");
    let setup = tenure.worker("w", |_| ()).restart(Restart::OnFailure).restart_delays(SHORT, SHORT);
    let worker = setup.start().unwrap();
    until("a run has failed", || worker.last_error().is_some());
    let error = worker.last_error().unwrap_or_default();
    assert!(error.contains("no thread"), "{error}");
    assert!(tenure.stats().failed_runs > 0 && worker.ended_timeout(Duration::ZERO).is_err());
    setrlimit(Resource::As, before).unwrap();
    worker.ended_timeout(GENEROUS).unwrap();
    assert_eq!(worker.last_error(), None, "the next one came to its end");
    scarce();
    assert_eq!(tenure.scope(|_| 7), 7, "only the signals need one");
    setrlimit(Resource::As, before).unwrap();
}
