//! Work on threads of its own: when it counts as ended, and what becomes of panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use tenure_core::{Overlap, Restart, StopReason};
use tenure_memory::MemoryStore;
use tenure_store::{RunOutcome, RunState};

use super::{A_WHILE, GENEROUS, start, until};
use crate::blocking::{Ctx, TimedOut};
use crate::{AcquireError, DrainError, LostReason, NotDrained, PeriodicStatus, StillHeld, WorkerStatus};

const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_lease_is_acquired_waited_for_and_given_back() {
    let store = MemoryStore::new();
    let (one, other) = (start(&store), start(&store));
    let lease = one.acquire("a").wait().unwrap();
    assert!(matches!(other.try_acquire("a").wait(), Err(AcquireError::Busy { .. })));
    let busy = other.acquire("a").wait_at_most(SHORT).wait();
    assert!(matches!(busy, Err(AcquireError::Busy { .. })), "{busy:?}");
    let waiting = {
        let other = other.clone();
        thread::spawn(move || other.acquire("a").wait().unwrap())
    };
    let (ran, valid) =
        lease.run(|signal| (signal.token(), signal.is_valid() && !signal.is_stopping())).unwrap();
    assert_eq!((ran, valid), (lease.token(), true));
    assert!(lease.renewals().next_timeout(GENEROUS).unwrap().is_some());
    // Outside of any runtime, on any thread.
    thread::spawn(move || drop(lease)).join().unwrap();
    let next = waiting.join().unwrap();
    assert!(next.token() > ran);
    next.release().unwrap();
    assert_eq!(other.inspect("a").unwrap(), None);
    one.shutdown().unwrap();
    other.shutdown().unwrap();
    assert!(matches!(one.acquire("a").wait(), Err(AcquireError::Closed)));
}

#[test]
fn a_call_inside_of_an_executor_only_blocks_it() {
    let tenure = start(&MemoryStore::new());
    block_on(async {
        let lease = tenure.acquire("a").wait().unwrap();
        assert_eq!(lease.lost_timeout(SHORT), Err(TimedOut));
        drop(lease);
        tenure.shutdown().unwrap();
    });
}

#[test]
fn a_drain_waits_for_the_thread_and_gives_nothing_back_before() {
    let store = MemoryStore::new();
    let (one, other) = (start(&store), start(&store));
    let (go, gone) = mpsc::channel::<()>();
    let ended = Arc::new(AtomicBool::new(false));
    let at_its_end = Arc::clone(&ended);
    let (tell, told) = mpsc::channel();
    let worker = one
        .worker("a", move |ctx: Ctx| {
            tell.send((ctx.draining(), ctx.lost())).unwrap();
            gone.recv().unwrap();
            thread::sleep(SHORT);
            at_its_end.store(true, Ordering::SeqCst);
        })
        .drain_timeout(SHORT)
        .start()
        .unwrap();
    until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));

    let stuck = worker.drain().unwrap_err();
    assert!(matches!(stuck, DrainError::Stuck { .. }), "{stuck:?}");
    let reasons = told.recv_timeout(GENEROUS).unwrap();
    assert_eq!(reasons, (StopReason::Drain, LostReason::Stopped(StopReason::Drain)));
    // Also when it is stopped hard, and when the whole instance is to end.
    assert!(matches!(worker.stop(), Err(DrainError::Stuck { .. })));
    assert!(matches!(one.stop(), Err(NotDrained::Stuck(_))));
    assert!(matches!(one.shutdown(), Err(StillHeld { .. })));
    assert_eq!(worker.ended_timeout(A_WHILE), Err(TimedOut));
    let held = other.try_acquire("a").wait();
    assert!(matches!(held, Err(AcquireError::Busy { .. })), "given back beside work that runs: {held:?}");

    go.send(()).unwrap();
    let lease = other.acquire("a").wait().unwrap();
    assert!(ended.load(Ordering::SeqCst), "given back before the thread had ended");
    worker.ended();
    lease.release().unwrap();
    other.shutdown().unwrap();
}

#[test]
fn a_run_of_a_periodic_job_that_was_stopped_ends_with_its_thread() {
    let tenure = start(&MemoryStore::new());
    let go = Arc::new(Barrier::new(2));
    let gone = Arc::clone(&go);
    let job = tenure
        .periodic("p", Duration::from_millis(50), move |_: Ctx| {
            gone.wait();
        })
        .drain_timeout(SHORT)
        .start()
        .unwrap();
    until("it runs", || matches!(job.status(), PeriodicStatus::Working { .. }));
    assert!(matches!(job.drain(), Err(DrainError::RunStuck { .. })));
    assert_eq!(job.ended_timeout(SHORT), Err(TimedOut));
    let open = tenure.jobs().history("p").unwrap();
    assert_eq!(open[0].state, RunState::Running, "its record is open for as long as it runs");
    go.wait();
    job.ended().unwrap();
    tenure.shutdown().unwrap();
}

#[test]
fn a_panic_is_a_failed_run() {
    let tenure = start(&MemoryStore::new());
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let worker = tenure
        .worker("a", move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => panic!("of the work"),
            1 => Err("no luck"),
            _ => Ok(()),
        })
        .restart(Restart::OnFailure)
        .restart_delays(SHORT, SHORT)
        .start()
        .unwrap();
    worker.ended_timeout(GENEROUS).unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!((tenure.stats().runs, tenure.stats().failed_runs), (3, 2));
    assert_eq!(worker.last_error(), None);
    tenure.shutdown().unwrap();
}

#[test]
fn a_scope_gives_back_what_is_held_also_after_a_panic() {
    let store = MemoryStore::new();
    let other = start(&store);
    let result = catch_unwind(AssertUnwindSafe(|| {
        start(&store).scope(|tenure| {
            let guard = tenure.acquire("a").wait().unwrap();
            tenure.worker("b", |ctx| ctx.stopping()).start().map(drop).unwrap();
            let _held = guard;
            panic!("of the program")
        })
    }));
    assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"of the program"));
    let lease = other.try_acquire("a").wait().expect("it was given back by the end of the scope");
    assert_eq!(start(&store).scope(|_| 7), 7);
    drop(lease);
    other.shutdown().unwrap();
}

#[test]
fn workloads_and_runs_go_on_side_by_side() {
    let tenure = start(&MemoryStore::new());
    let together = Arc::new(Barrier::new(2));
    let meet = Arc::clone(&together);
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&names);
    let shared = tenure
        .coordinate(["x", "y"], move |ctx: Ctx| {
            // Each waits for the other.
            meet.wait();
            seen.lock().unwrap().push(ctx.name().to_owned());
            ctx.draining();
        })
        .start()
        .unwrap();
    until("both work", || names.lock().unwrap().len() == 2);
    assert_eq!(shared.mine().len(), 2);
    shared.drain().unwrap();
    shared.ended_timeout(GENEROUS).unwrap();

    let runs = AtomicUsize::new(0);
    let job = tenure
        .periodic("p", Duration::from_millis(50), move |_: Ctx| {
            if runs.fetch_add(1, Ordering::SeqCst) < 2 {
                together.wait();
            }
        })
        .overlap(Overlap::Allow)
        .start()
        .unwrap();
    until("two runs have met", || {
        let history = tenure.jobs().history("p").unwrap();
        history.iter().filter(|run| run.state == RunState::Ended(RunOutcome::Succeeded)).count() >= 2
    });
    job.drain().unwrap();
    tenure.shutdown().unwrap();
}

#[test]
fn ticks_are_iterated() {
    let tenure = start(&MemoryStore::new());
    let mut timer = tenure.timer("t", Duration::from_millis(200)).start().unwrap();
    assert_eq!(timer.next_timeout(Duration::ZERO), Err(TimedOut));
    let first = timer.next_timeout(GENEROUS).unwrap().unwrap().unwrap();
    let numbers: Vec<_> = timer.by_ref().take(2).map(|due| due.unwrap().tick.n).collect();
    assert!(numbers[0] > first.tick.n && numbers[1] > numbers[0]);
    tenure.shutdown().unwrap();
    assert!(timer.next().is_none());
    assert_eq!(timer.next_timeout(GENEROUS), Ok(None));
}

#[test]
fn an_endless_loop_is_work() {
    // It has no other end than a panic.
    let work = |ctx: Ctx| {
        loop {
            assert!(!ctx.is_draining(), "on purpose");
            thread::sleep(SHORT);
        }
    };
    let tenure = start(&MemoryStore::new());
    let worker = tenure.worker("a", work).start().unwrap();
    let job = tenure.periodic("b", SHORT, work).start().unwrap();
    let workloads = tenure.coordinate(["c"], work).start().unwrap();
    until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));
    until("it runs", || matches!(job.status(), PeriodicStatus::Working { .. }));
    let works = |share: &crate::Share| matches!(share.status, WorkerStatus::Working { .. });
    until("the workload is worked on", || workloads.mine().iter().any(works));
    assert_eq!(tenure.drain(), Ok(()));
    assert_eq!(tenure.stats().runs, 3);
}
