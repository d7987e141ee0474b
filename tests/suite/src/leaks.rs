//! What is left behind, counted. It counts for the whole process: nothing else may open or close anything meanwhile.

use std::fs;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tenure_driver::core::{Jitter, LeaseConfig, SplitMix};
use tenure_driver::store_contract::Store;
use tenure_driver::{AcquireError, Builder, Ctx, RequestError, Runtime, Tenure, WorkerStatus, blocking};
use tenure_memory::MemoryStore;
use tenure_sqlite::SqliteStore;

use crate::Host;
use crate::counted::{Counted, Counts};
use crate::waiting::{at_most, at_most_woken, once, pause, until};

const SEED: u64 = 20_251_130;
/// Tasks that acquire and release side by side, so that many cycles wait for each other.
const SIDE_BY_SIDE: u64 = 8;
/// After each of them all is at rest, and counted.
const PHASES: u64 = 5;
/// How much memory may come with the cycles after the first fifth, in KiB: less than 20 bytes for each of 80,000. The
/// store's records of runs, which it keeps, come to some 300 KiB. A table that grows, grows by leaps, so that no
/// shorter time would show it.
const GROWTH: u64 = 1536;

/// What waits for the end of a lease would go by itself, if the lease were short.
const TTL: Duration = Duration::from_secs(3600);

/// What a process has of the system. All zero where that can't be told.
#[derive(Clone, Copy, Debug)]
struct System {
    descriptors: usize,
    threads: usize,
}

impl System {
    fn now() -> Self {
        let count = |folder| fs::read_dir(folder).map_or(0, Iterator::count);
        Self { descriptors: count("/proc/self/fd"), threads: count("/proc/self/task") }
    }

    fn is_within(self, other: Self) -> bool {
        self.descriptors <= other.descriptors && self.threads <= other.threads
    }
}

/// The memory of this process that is in use, in KiB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    resident.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// After 100,000 cycles with the store in memory nothing is left, though half of them are dropped at some point.
pub fn memory_cycles_leave_nothing<H: Host>() {
    cycles::<H, _>(MemoryStore::new(), 100_000, Some(GROWTH));
}

/// The same after 10,000 cycles with SQLite.
///
/// # Panics
/// If there is no folder for a database, too.
pub fn sqlite_cycles_leave_nothing<H: Host>() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let store = SqliteStore::open(folder.path().join("leaks.db")).expect("the path can name a file");
    cycles::<H, _>(store, 10_000, None);
}

fn cycles<H: Host, S: Store>(store: S, count: u64, growth: Option<u64>) {
    println!("seed {SEED}");
    let host = H::new();
    // What the runtime makes once, and keeps.
    host.block_on(async {
        host.runtime().sleep_until(host.runtime().now() + Duration::from_millis(1)).await
    });
    let before = System::now();
    let tasks = host.tasks().unwrap_or_default();
    host.block_on(async {
        let runtime = Counted::new(host.runtime());
        let counts = runtime.counts();
        let tenure = Builder::new(runtime).lease(LeaseConfig::new(TTL)).store(store).start();
        let tenure = tenure.expect("it can be started");
        let done = Arc::new(AtomicU64::new(0));
        let mut grown = Vec::new();
        let mut resting = System::now();
        for phase in 0..PHASES {
            let loops = (0..SIDE_BY_SIDE).map(|n| {
                let random = SplitMix::new(SEED ^ (phase << 32) ^ n);
                let cycles = count / PHASES / SIDE_BY_SIDE;
                let (tenure, done) = (tenure.clone(), Arc::clone(&done));
                let (task, ended) = async move {
                    let mut random = random;
                    for _ in 0..cycles {
                        one_of_many(&tenure, &mut random, &done).await;
                    }
                }
                .remote_handle();
                host.spawn(task);
                ended
            });
            join_all(loops).await;
            at_rest(&host, &tenure, &counts, tasks).await;
            if phase == 0 {
                // Threads and descriptors that a store makes with the first request.
                resting = System::now();
            }
            until(&host.runtime(), "no more descriptors and threads", || System::now().is_within(resting))
                .await;
            grown.push(memory());
        }
        let stats = tenure.stats();
        println!("{} cycles, memory after each fifth {grown:?} KiB, {stats:?}", done.load(Ordering::Relaxed));
        assert_eq!(done.load(Ordering::Relaxed), count / PHASES / SIDE_BY_SIDE * PHASES * SIDE_BY_SIDE);
        assert!(stats.acquired > count / 3 && stats.runs > count / 1000, "{stats:?}");
        assert!(stats.ticks > 0 && stats.claims > 0, "{stats:?}");
        if let (Some(growth), [first, .., last]) = (growth, &grown[..]) {
            assert!(*last <= first + growth, "the memory grows with the cycles: {grown:?} KiB");
        }
        forgotten(&tenure).await;
        tenure.shutdown().await.expect("nothing is held");
        let runtime = host.runtime();
        until(&runtime, "no task of it is left", || counts.tasks() == 0).await;
        assert_eq!((counts.sleeps(), counts.alarms()), (0, 0));
        drop(tenure);
        until(&runtime, "no task is left", || host.tasks().unwrap_or_default() <= tasks).await;
        until(&runtime, "no descriptor and no thread is left", || System::now().is_within(before)).await;
    });
    host.shut_down();
}

/// Waits until nothing but the driver is there.
async fn at_rest<H: Host>(host: &H, tenure: &Tenure, counts: &Counts, tasks: usize) {
    let runtime = host.runtime();
    // A coordinator has made it a member, which stays one until the shutdown.
    until(&runtime, "all is given back", || tenure.stats().open <= usize::from(tenure.view().is_some()))
        .await;
    until(&runtime, "nothing is under way", || tenure.stats().in_flight == 0).await;
    until(&runtime, "no run is recorded any more", || tenure.stats().recording == 0).await;
    until(&runtime, "only the driver is a task", || {
        counts.tasks() == 1 && host.tasks().is_none_or(|now| now <= tasks + 1)
    })
    .await;
    let stats = tenure.stats();
    assert_eq!(
        [stats.held, stats.workers, stats.timers, stats.periodics, stats.coordinators],
        [0; 5],
        "{stats:?}"
    );
    assert_eq!((counts.sleeps(), counts.alarms()), (0, 1));
    assert_eq!(tenure.leases().await.expect("the store answers"), []);
}

/// Looks whether the store has nothing but what it is to keep, which is then removed.
async fn forgotten(tenure: &Tenure) {
    for entry in tenure.timers().await.expect("the store answers") {
        // What was given back unbegun stays, a few ticks of it, for another to run.
        assert!(entry.record.claims.iter().all(|claim| claim.ttl.is_zero()), "a claim is left: {entry:?}");
        tenure.forget_timer(entry.name.as_str()).await.expect("the store answers");
    }
    let jobs = tenure.jobs();
    for record in jobs.all().await.expect("the store answers") {
        jobs.forget(record.name.as_str()).await.expect("the store answers");
    }
    let members = tenure.members().await.expect("the store answers");
    assert!(members.iter().all(|entry| entry.member.identity == *tenure.identity()), "{members:?}");
}

/// A cycle: in half of the cases to its end, in the others to a point that chance chooses.
async fn one_of_many(tenure: &Tenure, random: &mut SplitMix, done: &AtomicU64) {
    let name = match random.below(4) {
        // Nobody has ever had it.
        0 => format!("of its own {}", done.load(Ordering::Relaxed)),
        _ => random.below(5).to_string(),
    };
    let (how, polls) = (random.below(1 << 20), random.below(14));
    let mut cycle = pin!(cycle(tenure, &name, how));
    match random.below(4) {
        0 | 1 => cycle.await,
        2 => {
            at_most(polls, cycle.as_mut()).await;
        }
        _ => {
            at_most_woken(polls / 2, cycle.as_mut()).await;
        }
    }
    if random.below(50) == 0 {
        // Polled for longer, since it takes more turns to get anywhere.
        let (kind, how, polls) = (random.below(9), random.below(1 << 20), random.below(40));
        let mut beside = pin!(beside(tenure, kind, how));
        match random.below(4) {
            0 | 1 => beside.await,
            2 => {
                at_most(polls, beside.as_mut()).await;
            }
            _ => {
                at_most_woken(polls / 2, beside.as_mut()).await;
            }
        }
    }
    done.fetch_add(1, Ordering::Relaxed);
}

/// Acquires a lease, does something with it, and releases it.
async fn cycle(tenure: &Tenure, name: &str, how: u64) {
    let acquire = match how % 5 {
        0 => tenure.try_acquire(name),
        1 => tenure.acquire(name).wait_at_most(Duration::from_millis(1)),
        2 => tenure.acquire(name).on_progress(drop),
        _ => tenure.acquire(name),
    };
    let lease = match acquire.await {
        Ok(lease) => lease,
        // In so little time not even the first try may come to its end.
        Err(AcquireError::Busy { .. } | AcquireError::Unreachable { .. }) if how % 5 < 2 => return,
        Err(error) => panic!("{error}"),
    };
    match how / 5 % 8 {
        0 => return drop(lease),
        1 => {
            let mut lost = pin!(lease.lost());
            assert!(once(lost.as_mut()).await.is_pending());
            drop(lease);
            lost.await;
            return;
        }
        2 => {
            lease.run(pause()).await.expect("it is held");
        }
        3 => {
            let mut renewals = lease.renewals();
            let mut next = pin!(renewals.next());
            assert!(once(next.as_mut()).await.is_pending());
        }
        4 => {
            let signal = lease.signal();
            let mut stopped = pin!(signal.stopped());
            assert!(once(stopped.as_mut()).await.is_pending());
            drop(lease);
            stopped.await;
            return;
        }
        5 => {
            let (mut stopping, mut lost) = (pin!(lease.stopping()), pin!(lease.lost()));
            assert!(once(stopping.as_mut()).await.is_pending());
            assert!(once(lost.as_mut()).await.is_pending());
        }
        _ => {}
    }
    lease.release().await.expect("there is a driver");
}

/// Something else that comes and goes; ended whenever it is dropped, if that is left to chance.
async fn beside(tenure: &Tenure, kind: u64, how: u64) {
    let work = move |ctx: Ctx| async move {
        match how % 4 {
            0 => Ok(()),
            1 => Err("no luck"),
            2 => std::future::pending().await,
            _ => {
                ctx.draining().await;
                Ok(())
            }
        }
    };
    let name = format!("beside {}", how / 4 % 7);
    let soon = Duration::from_millis(5);
    match kind {
        0 | 1 => {
            let worker = tenure.worker(&name, work).drain_timeout(soon).start().expect("it can be started");
            let _ended = Ended(|| drop(worker.stop().now_or_never()));
            // Some are let work before, the others are caught at whatever they do.
            while (how / 8).is_multiple_of(2) && worker.status() == WorkerStatus::Waiting {
                pause().await;
            }
            let mut ended = pin!(worker.ended());
            assert!(at_most(how / 4 % 9, ended.as_mut()).await.is_none());
            if (how / 4).is_multiple_of(2) { worker.drain().await } else { worker.stop().await }
                .expect("it ends");
        }
        2 => {
            let mut timer = tenure.timer(&name, soon * 4).start().expect("it can be started");
            timer.next().await.expect("it goes on").expect("the store has timers");
        }
        3 => {
            let job = tenure.periodic(&name, soon * 4, work).drain_timeout(soon);
            let job = job.start().expect("it can be started");
            let _ended = Ended(|| drop(job.stop().now_or_never()));
            let mut ended = pin!(job.ended());
            // Long enough for some to have runs.
            let end = tenure.now() + soon * u32::try_from(how / 4 % 8).unwrap_or_default();
            while tenure.now() < end {
                assert!(at_most(1, ended.as_mut()).await.is_none());
            }
            if (how / 4).is_multiple_of(2) { job.drain().await } else { job.stop().await }.expect("it ends");
        }
        4 => {
            let shares =
                tenure.coordinate([&name, "shared"], work).drain_timeout(soon).hold_down(Duration::ZERO);
            let shares = shares.start().expect("it can be started");
            let _ended = Ended(|| drop(shares.stop().now_or_never()));
            let mut changed = pin!(shares.changed());
            let _changed = at_most(how / 4 % 9, changed.as_mut()).await;
            shares.add("another").await.expect("the name is fine");
            if (how / 4).is_multiple_of(2) { shares.drain().await } else { shares.stop().await }
                .expect("it ends");
        }
        5 => {
            let run = tenure.jobs().begin(&name).start().await.expect("the store has records");
            run.text("going on");
            match how % 3 {
                0 => drop(run),
                1 => run.succeed().await.expect("the store has records"),
                _ => run.fail("no luck").await.expect("the store has records"),
            }
        }
        6 => {
            let held = tenure.inspect(&name).await;
            assert!(!matches!(held, Err(RequestError::Closed(_))), "{held:?}");
            drop(tenure.leases().await);
            drop(tenure.timers().await);
            drop(tenure.members().await);
        }
        7 => {
            let (mut draining, mut drained) = (pin!(tenure.draining()), pin!(tenure.drained()));
            assert!(at_most(2, draining.as_mut()).await.is_none());
            assert!(at_most(2, drained.as_mut()).await.is_none());
            tenure.resumed().await;
        }
        _ => {
            let inner = tenure.clone();
            let mut waiting = pin!(inner.until_terminated());
            assert!(at_most(3, waiting.as_mut()).await.is_none());
            // One that is never polled, and one that is, behind a guard of this very task.
            drop(tenure.acquire(&name).into_future());
            let guard = tenure.acquire(&name).await.expect("there is a driver");
            let mut behind = pin!(tenure.acquire(&name).into_future());
            assert!(at_most(how / 4 % 5, behind.as_mut()).await.is_none());
            drop(guard);
        }
    }
}

/// Ends something that would go on without its handle.
struct Ended<F: FnMut()>(F);

impl<F: FnMut()> Drop for Ended<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// After ten whole lives, with something of everything, nothing is left.
pub fn lives_leave_nothing<H: Host>() {
    let host = H::new();
    let life = async |own_thread: bool| {
        let store = MemoryStore::new();
        let runtime = Counted::new(host.runtime());
        let counts = runtime.counts();
        let builder = Builder::new(runtime).lease(LeaseConfig::new(TTL)).store(store.handle());
        let builder = if own_thread { builder.on_own_thread() } else { builder };
        let tenure = builder.start().expect("it can be started");
        tenure.join().await.expect("the store has members");
        let lease = tenure.acquire("a").await.expect("it is free");
        let behind = tenure.acquire("a").into_future();
        let until_drained = |ctx: Ctx| async move {
            ctx.draining().await;
        };
        let worker = tenure.worker("b", until_drained).start().expect("it can be started");
        let shares = tenure.coordinate(["c", "d"], until_drained).start().expect("it can be started");
        let timer = tenure.timer("e", Duration::from_millis(20)).start().expect("it can be started");
        let job = tenure.periodic("f", Duration::from_millis(20), until_drained);
        let job = job.start().expect("it can be started");
        let run = tenure.jobs().begin("g").start().await.expect("the store has records");
        let mut behind = Box::pin(behind);
        let mut lost = Box::pin(lease.lost());
        assert!(once(behind.as_mut()).await.is_pending());
        assert!(once(lost.as_mut()).await.is_pending());
        until(&host.runtime(), "all of it runs", || tenure.stats().held >= 5).await;
        // The one behind has it as soon as it is given back, or goes before it hears of that.
        drop((lease, behind));
        drop((worker, shares, timer, job, run));
        tenure.shutdown().await.expect("all of it ends");
        let runtime = host.runtime();
        until(&runtime, "no task of it is left", || counts.tasks() == 0).await;
        lost.await;
        assert_eq!((counts.sleeps(), counts.alarms()), (0, 0));
        let other = Builder::new(host.runtime()).store(store).start().expect("it can be started");
        assert_eq!(other.leases().await.expect("the store answers"), []);
        assert_eq!(other.members().await.expect("the store answers"), []);
        forgotten(&other).await;
        other.shutdown().await.expect("nothing is held");
    };
    host.block_on(async {
        for own_thread in [false, true] {
            life(own_thread).await;
        }
        let (tasks, system) = (host.tasks(), System::now());
        for n in 0..10 {
            life(n % 2 == 0).await;
        }
        let runtime = host.runtime();
        until(&runtime, "no task is left", || host.tasks() <= tasks).await;
        until(&runtime, "no descriptor and no thread is left", || System::now().is_within(system)).await;
    });
    host.shut_down();
}

/// After 20,000 cycles of plain threads, a fifth of which give up, nothing is left.
///
/// # Panics
/// If something is.
pub fn cycles_of_threads_leave_nothing<H: Host>() {
    const CYCLES: u64 = 20_000;
    let host = H::new();
    let live = |cycles: u64| {
        let runtime = Counted::new(host.block_on(async { host.runtime() }));
        let counts = runtime.counts();
        let builder = Builder::new(runtime).lease(LeaseConfig::new(TTL)).store(MemoryStore::new());
        let tenure = builder.start_blocking().expect("it can be started");
        thread::scope(|scope| {
            for n in 0..SIDE_BY_SIDE {
                let (tenure, mut random) = (&tenure, SplitMix::new(SEED ^ n));
                scope.spawn(move || {
                    for _ in 0..cycles / SIDE_BY_SIDE {
                        cycle_of_a_thread(tenure, random.below(5), random.below(5));
                    }
                });
            }
        });
        host.block_on(async {
            until(&host.runtime(), "all is given back", || tenure.stats().open == 0).await;
            until(&host.runtime(), "only the driver is a task", || counts.tasks() == 1).await;
            assert_eq!(counts.sleeps(), 0);
        });
        assert_eq!(tenure.leases().expect("the store answers"), []);
        assert!(tenure.stats().acquired >= cycles / 2, "{:?}", tenure.stats());
        tenure.shutdown().expect("nothing is held");
        drop(tenure);
        host.block_on(async {
            until(&host.runtime(), "no task of it is left", || counts.tasks() == 0).await;
        });
    };
    // What is made once, and kept.
    live(SIDE_BY_SIDE * 10);
    let system = System::now();
    live(CYCLES);
    host.block_on(async {
        let runtime = host.runtime();
        until(&runtime, "no descriptor and no thread is left", || System::now().is_within(system)).await;
    });
    host.shut_down();
}

fn cycle_of_a_thread(tenure: &blocking::Tenure, name: u64, how: u64) {
    let acquire = tenure.acquire(name.to_string());
    // In so little time not even the first try may come to its end.
    let acquire = if how == 0 { acquire.wait_at_most(Duration::from_micros(50)) } else { acquire };
    let lease = match acquire.wait() {
        Ok(lease) => lease,
        Err(AcquireError::Busy { .. } | AcquireError::Unreachable { .. }) if how == 0 => return,
        Err(error) => panic!("{error}"),
    };
    match how {
        1 => {
            lease.run(|signal| assert!(!signal.is_stopping())).expect("it is held");
        }
        2 => {
            let mut renewals = lease.renewals();
            assert!(
                renewals.next_timeout(Duration::ZERO).is_err() && lease.lost_timeout(Duration::ZERO).is_err()
            );
        }
        3 => {
            lease.release().expect("there is a driver");
        }
        _ => {}
    }
}
