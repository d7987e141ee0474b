//! Workers: one works at a time, hands over when it is drained, and keeps its lease while its work does not end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tenure_driver::core::{Restart, StopReason};
use tenure_driver::{DrainError, WorkerStatus};
use tenure_memory::MemoryStore;

use crate::api::{Api, Ctx, GENEROUS, Setup, Tenure, Worker};

/// Of two workers of one name one works; drained, it ends in order, and the other one goes on under a higher token.
pub fn a_worker_that_drains_hands_over<A: Api>() {
    A::run(async |api: A| {
        let store = MemoryStore::new();
        let (told, ends) = mpsc::channel();
        let start = || {
            let tenure = api.tenure(store.handle());
            let told = told.clone();
            let work = move |ctx: CtxOf<A>| {
                let told = told.clone();
                async move {
                    let why = ctx.draining().await;
                    told.send((ctx.token(), why, ctx.is_valid())).unwrap();
                }
            };
            let worker = tenure.worker("a", work, Setup::default());
            (tenure, worker)
        };
        let mut pair = [start(), start()];
        let working = |worker: &WorkerOf<A>| matches!(worker.status(), WorkerStatus::Working { .. });
        api.until("one works", || pair.iter().any(|(_, worker)| working(worker))).await;
        if working(&pair[1].1) {
            pair.swap(0, 1);
        }
        let [(one, first), (other, second)] = pair;
        assert!(!working(&second));
        assert_eq!(first.drain().await, Ok(()));
        assert_eq!(first.status(), WorkerStatus::Ended);
        let (before, why, valid) = ends.try_recv().unwrap();
        assert_eq!((why, valid), (StopReason::Drain, true), "with time to end in order");
        api.until("the other one works", || working(&second)).await;
        assert_eq!(second.drain().await, Ok(()));
        assert!(ends.try_recv().unwrap().0 > before);
        assert!(ends.try_recv().is_err(), "each has run once");
        for tenure in [one, other] {
            tenure.shutdown().await.unwrap();
        }
    });
}

/// Work that ends is not started again where its policy does not want it, and the worker ends.
pub fn a_worker_that_is_to_run_once_ends_with_its_work<A: Api>() {
    A::run(async |api: A| {
        let tenure = api.tenure(MemoryStore::new());
        let (ran, runs) = mpsc::channel();
        let work = move |ctx: CtxOf<A>| {
            ran.send((ctx.name().to_owned(), ctx.is_valid(), ctx.is_draining(), ctx.tick())).unwrap();
            async {}
        };
        let setup = Setup { restart: Some(Restart::Never), ..Setup::default() };
        let worker = tenure.worker("a", work, setup);
        worker.ended().await;
        assert_eq!(worker.status(), WorkerStatus::Ended);
        assert_eq!(runs.try_iter().collect::<Vec<_>>(), [("a".to_owned(), true, false, None)]);
        assert_eq!(tenure.leases().await.unwrap(), []);
        tenure.shutdown().await.unwrap();
    });
}

/// Work that blocks one of several threads can't be stopped: it is named as stuck, and keeps its lease until it ends.
pub fn work_that_blocks_its_thread_is_named_stuck_and_keeps_its_lease_until_it_ends<A: Api>() {
    A::run(async |api: A| {
        let tenure = api.tenure(MemoryStore::new());
        let (worker, begun, unblock) = blocking(&tenure);
        api.until("the work has begun", || begun.load(Ordering::SeqCst)).await;
        is_stuck_until_it_ends(&api, &tenure, &worker, unblock).await;
        tenure.shutdown().await.unwrap();
    });
}

/// The context of work, the worker of an [`Api`].
pub(crate) type CtxOf<A> = <<A as Api>::Tenure as Tenure>::Ctx;
type WorkerOf<A> = <<A as Api>::Tenure as Tenure>::Worker;

/// A worker, what tells that its work has begun, and what unblocks it when it is dropped.
type Blocking<W> = (W, Arc<AtomicBool>, mpsc::Sender<()>);

/// Work that says that it has begun, and blocks its thread until it may go on.
pub(crate) fn blocking<T: Tenure>(tenure: &T) -> Blocking<T::Worker> {
    let begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&begun);
    let (unblock, blocked) = mpsc::channel::<()>();
    let work = move |_: T::Ctx| {
        begins.store(true, Ordering::SeqCst);
        // The other end is dropped to end it.
        let _ended = blocked.recv_timeout(GENEROUS);
        async {}
    };
    let setup = Setup { drain_timeout: Some(Duration::from_millis(50)), ..Setup::default() };
    (tenure.worker("a", work, setup), begun, unblock)
}

/// Drains it while it blocks, and lets it go then.
pub(crate) async fn is_stuck_until_it_ends<A: Api>(
    api: &A,
    tenure: &impl Tenure,
    worker: &impl Worker,
    unblock: mpsc::Sender<()>,
) {
    let error = worker.drain().await.unwrap_err();
    let DrainError::Stuck { lease, token } = &error else { panic!("{error}") };
    assert_eq!((lease.as_str(), worker.status()), ("a", WorkerStatus::Stuck { token: *token }));
    assert_eq!(worker.stop().await, Err(error.clone()), "also when it is asked again");
    // It keeps its lease, longer than it would last without renewals.
    let renewed = tenure.stats().renewed;
    api.until("renewed past the TTL", || tenure.stats().renewed >= renewed + 6).await;
    let records = tenure.leases().await.unwrap();
    assert_eq!(records.iter().map(|record| record.holder.token).collect::<Vec<_>>(), [Some(*token)]);
    drop(unblock);
    worker.ended().await;
    assert_eq!(worker.drain().await, Ok(()));
    assert_eq!(tenure.leases().await.unwrap(), []);
}
