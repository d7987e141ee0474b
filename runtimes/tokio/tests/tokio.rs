//! Leases on tokio, in real time: with one thread and with several, across the end of a runtime, and when
//! something blocks it.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_driver::core::{Instant, LeaseConfig, ReleaseOutcome, StopReason};
use tenure_driver::store_contract::SimpleStore;
use tenure_driver::{
    Acquire, AcquireError, Acquiring, Alarm as _, Builder, Lease, LostReason, Renewals, Runtime as _, Signal,
    StartError, Tenure, clock,
};
use tenure_memory::MemoryStore;
use tenure_tokio::Tokio;
use tokio::runtime::Runtime;

/// Short, so that a test sees many renewals, and long enough for a machine that is busy with other things.
const TTL: Duration = Duration::from_secs(4);
/// No wait in these tests ends by it unless something is wrong.
const GENEROUS: Duration = Duration::from_secs(60);

fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

fn start(store: MemoryStore) -> Tenure {
    Builder::new(Tokio::current()).lease(LeaseConfig::new(TTL)).store(store).start().unwrap()
}

/// Waits until the condition holds; looks again every few milliseconds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = clock::now() + GENEROUS;
    while !condition() {
        assert!(clock::now() < end, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Blocks the thread, as work does that is not asynchronous.
fn block(duration: Duration) {
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    assert!(never.recv_timeout(duration).is_err());
}

fn on_both(test: impl AsyncFn()) {
    for runtime in [one_thread(), threads()] {
        runtime.block_on(test());
    }
}

#[test]
fn what_users_hold_can_go_anywhere() {
    fn anywhere<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>(_: &T) {}
    anywhere::<Tenure>();
    anywhere::<Lease>();
    anywhere::<Signal>();
    anywhere::<Renewals>();
    fn movable<T: Send + 'static>() {}
    movable::<Acquire>();
    movable::<Acquiring>();
    let runtime = one_thread();
    runtime.block_on(async {
        let tenure = start(MemoryStore::new());
        let lease = tenure.acquire("a").await.unwrap();
        sent(&lease.lost());
        sent(&lease.stopping());
        sent(&lease.signal().stopped());
        sent(&tenure.clone().scope(async |_| ()));
        lease.release().await.unwrap();
        tenure.shutdown().await.unwrap();
    });
}

#[test]
fn a_lease_is_renewed_and_passes_on() {
    on_both(async || {
        let store = MemoryStore::new();
        let (one, other) = (start(store.handle()), start(store.handle()));
        let lease = one.acquire("a").await.unwrap();
        let next = tokio::spawn(other.acquire("a").into_future());
        let first = lease.deadlines();
        until("renewed past the first end", || lease.deadlines().fence_at > first.valid_until).await;
        assert!(lease.is_valid() && !next.is_finished());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        let next = next.await.unwrap().unwrap();
        assert!(next.is_valid());
        let error = one.try_acquire("a").await.unwrap_err();
        assert!(matches!(error, AcquireError::Busy { .. }), "{error}");
        drop(next);
        one.shutdown().await.unwrap();
        other.shutdown().await.unwrap();
        assert_eq!(store.list(None, 10).await.unwrap(), []);
    });
}

#[test]
fn one_works_at_a_time() {
    on_both(async || {
        let store = MemoryStore::new();
        let inside = Arc::new(AtomicU32::new(0));
        let done = Arc::new(AtomicU32::new(0));
        let processes: Vec<_> = (0..4).map(|_| start(store.handle())).collect();
        let work = |tenure: Tenure| {
            let (inside, done) = (Arc::clone(&inside), Arc::clone(&done));
            tokio::spawn(async move {
                let mut last = None;
                for _ in 0..25 {
                    let lease = tenure.acquire("a").await.unwrap();
                    assert!(Some(lease.token()) > last);
                    last = Some(lease.token());
                    lease
                        .run(async {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            tokio::task::yield_now().await;
                            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                        })
                        .await
                        .unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let tasks: Vec<_> = processes.iter().cycle().take(8).cloned().map(work).collect();
        for task in tasks {
            tokio::time::timeout(GENEROUS, task).await.unwrap().unwrap();
        }
        assert_eq!(done.load(Ordering::SeqCst), 200);
        for tenure in processes {
            tenure.shutdown().await.unwrap();
        }
    });
}

#[test]
fn a_runtime_that_lacks_something_is_refused_with_what_to_do() {
    fn refused(runtime: Option<Runtime>) -> String {
        let _entered = runtime.as_ref().map(Runtime::enter);
        let error = Builder::new(Tokio::current()).store(MemoryStore::new()).start().unwrap_err();
        assert!(matches!(error, StartError::Runtime(_)));
        error.to_string()
    }
    assert!(refused(None).contains("no tokio runtime"), "{}", refused(None));
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(refused(Some(bare)).contains("enable_all"));
    let no_io = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    if cfg!(target_os = "linux") {
        assert!(refused(Some(no_io)).contains("I/O driver"));
    }
}

#[test]
fn guards_survive_the_end_of_their_runtime() {
    for runtime in [one_thread(), threads()] {
        let (tenure, lease, signal, lost) = runtime.block_on(async {
            let tenure = start(MemoryStore::new());
            let lease = tenure.acquire("a").await.unwrap();
            let kept = tenure.acquire("b").await.unwrap();
            let (signal, lost) = (kept.signal(), lease.lost());
            // Dropped with its task.
            tokio::spawn(async move {
                kept.run(std::future::pending::<()>()).await.unwrap();
            });
            tokio::task::yield_now().await;
            (tenure, lease, signal, lost)
        });
        let mut lost = Box::pin(lost);
        assert!(lost.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(runtime);
        assert!(!lease.is_valid());
        assert!(signal.is_stopping());
        let Poll::Ready(lost) = lost.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("whoever waits for the loss is left waiting")
        };
        assert_eq!(lost.why, LostReason::Closed);
        // Outside of any runtime: nothing panics, nothing hangs.
        assert!(pin!(lease.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        drop(lease);
        let another = one_thread();
        let error = another.block_on(tenure.acquire("a").into_future()).unwrap_err();
        assert_eq!(error, AcquireError::Closed);
        assert_eq!(another.block_on(tenure.shutdown()), Ok(()));
    }
}

#[test]
fn guards_are_dropped_from_other_threads() {
    let runtime = threads();
    let tenure = runtime.block_on(async { start(MemoryStore::new()) });
    let leases: Vec<_> =
        (0..8).map(|n| runtime.block_on(tenure.acquire(n.to_string()).into_future()).unwrap()).collect();
    for thread in leases.into_iter().map(|lease| std::thread::spawn(move || drop(lease))) {
        thread.join().unwrap();
    }
    runtime.block_on(async {
        until("all given back", || tenure.stats().open == 0).await;
        assert_eq!(tenure.leases().await.unwrap(), []);
    });
}

#[test]
fn the_loss_is_told_at_the_fence_though_the_driver_is_stuck() {
    // The driver has a thread of its own, which something blocks; the work runs on another runtime.
    let (sender, lease) = std::sync::mpsc::channel();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let driver = std::thread::spawn(move || {
        one_thread().block_on(async {
            let tenure = start(MemoryStore::new());
            sender.send(tenure.acquire("a").await.unwrap()).unwrap();
            blocked.recv().unwrap();
        });
    });
    let lease = lease.recv().unwrap();
    let deadlines = lease.deadlines();
    let result = one_thread()
        .block_on(async { tokio::time::timeout(GENEROUS, lease.run(std::future::pending::<()>())).await });
    assert!(clock::now() >= deadlines.fence_at);
    assert_eq!(result.unwrap().unwrap_err().why, LostReason::Expired);
    assert!(!lease.is_valid());
    unblock.send(()).unwrap();
    driver.join().unwrap();
    drop(lease);
}

#[test]
fn blocking_the_only_thread_for_half_the_ttl_is_survived_and_for_twice_the_ttl_noticed() {
    one_thread().block_on(async {
        let tenure = start(MemoryStore::new());
        let lease = tenure.acquire("a").await.unwrap();
        block(TTL / 2);
        let renewed = tenure.stats().renewed;
        until("renewed", || tenure.stats().renewed > renewed).await;
        assert!(lease.is_valid());
        block(TTL * 2);
        assert!(!lease.is_valid());
        assert!(lease.run(async {}).await.is_err());
        until("reported", || tenure.stats().starved > 0).await;
        assert_eq!(lease.stopping().await, StopReason::Fence);
        tenure.shutdown().await.unwrap_err();
    });
}

#[test]
fn with_a_thread_of_its_own_a_lease_survives_a_program_that_blocks() {
    one_thread().block_on(async {
        let builder = Builder::new(Tokio::current()).on_own_thread();
        let tenure = builder.lease(LeaseConfig::new(TTL)).store(MemoryStore::new()).start().unwrap();
        let lease = tenure.acquire("a").await.unwrap();
        block(TTL * 2);
        assert!(lease.is_valid());
        assert_eq!(lease.run(async { 1 }).await, Ok(1));
        assert_eq!(tenure.stats().starved, 0);
        lease.release().await.unwrap();
        tenure.shutdown().await.unwrap();
        // One that is never used, dropped inside of another runtime.
        drop(Tokio::current().on_own_thread().unwrap());
    });
}

#[test]
fn the_alarm_and_the_sleeps_end_when_they_are_due_and_never_before() {
    on_both(async || {
        let runtime = Tokio::current();
        let mut alarm = runtime.alarm();
        for wait in [0, 1, 20, 5] {
            let at = clock::now() + Duration::from_millis(wait);
            poll_fn(|cx| alarm.poll_at(at, cx)).await;
            assert!(clock::now() >= at);
            let at = clock::now() + Duration::from_millis(wait);
            runtime.sleep_until(at).await;
            assert!(clock::now() >= at);
        }
        // It is set anew: a late deadline does not hide an early one, nor the other way round.
        let (soon, late) = (clock::now() + Duration::from_millis(10), clock::now() + GENEROUS);
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(late, cx))).await.is_pending());
        poll_fn(|cx| alarm.poll_at(soon, cx)).await;
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(late, cx))).await.is_pending());
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(Instant::MAX, cx))).await.is_pending());
        let again = clock::now() + Duration::from_millis(10);
        poll_fn(|cx| alarm.poll_at(again, cx)).await;
        assert!(clock::now() >= again);
    });
}
