//! What users hold: it goes anywhere, and outlives its runtime.

use std::future::{Future, IntoFuture, pending};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::channel::oneshot;
use tenure_driver::{
    Acquire, AcquireError, Acquiring, Builder, Coordinator, Ctx, JobRun, Jobs, Lease, LostReason, Periodic,
    Renewals, Signal, Tenure, Timer, Worker,
};
use tenure_memory::MemoryStore;

use crate::host::Host;
use crate::waiting::{pause, run};

/// What users hold can be shared between threads and kept for ever, and what it returns can be sent.
pub fn what_users_hold_can_go_anywhere<H: Host>() {
    fn anywhere<T: Send + Sync + 'static>() {}
    fn movable<T: Send + 'static>() {}
    fn sent<T: Send + 'static>(_: &T) {}
    anywhere::<Tenure>();
    anywhere::<Lease>();
    anywhere::<Signal>();
    anywhere::<Renewals>();
    anywhere::<Worker>();
    anywhere::<Ctx>();
    anywhere::<Timer>();
    anywhere::<Periodic>();
    anywhere::<Coordinator>();
    anywhere::<Jobs>();
    anywhere::<JobRun>();
    anywhere::<H::Runtime>();
    movable::<Acquire>();
    movable::<Acquiring>();
    let host = H::new();
    run(&host, async {
        let tenure = Builder::new(host.runtime()).store(MemoryStore::new()).start().unwrap();
        let lease = tenure.acquire("a").await.unwrap();
        sent(&lease.lost());
        sent(&lease.stopping());
        sent(&lease.signal().stopped());
        sent(&tenure.clone().scope(async |_| ()));
        lease.release().await.unwrap();
        tenure.shutdown().await.unwrap();
    });
}

/// A guard that outlives its runtime is invalid at once, tells everybody who waits for it, and can be dropped; the handles
/// say that all is over.
pub fn guards_survive_the_end_of_their_runtime<H: Host>() {
    let host = H::new();
    let (tenure, lease, signal, lost) = run(&host, async {
        let tenure = Builder::new(host.runtime()).store(MemoryStore::new()).start().unwrap();
        let lease = tenure.acquire("a").await.unwrap();
        let kept = tenure.acquire("b").await.unwrap();
        let (signal, lost) = (kept.signal(), lease.lost());
        // Dropped with its task.
        host.spawn(async move {
            kept.run(pending::<()>()).await.unwrap();
        });
        pause().await;
        (tenure, lease, signal, lost)
    });
    let mut lost = Box::pin(lost);
    let mut noop = Context::from_waker(Waker::noop());
    assert!(lost.as_mut().poll(&mut noop).is_pending());
    assert!(lease.is_valid() && signal.is_valid());
    assert!(host.shut_down(), "the runtime has ended");
    assert!(!lease.is_valid());
    assert!(signal.is_stopping());
    let Poll::Ready(lost) = lost.as_mut().poll(&mut noop) else {
        panic!("whoever waits for the loss is left waiting")
    };
    assert_eq!(lost.why, LostReason::Closed);
    // Outside of any runtime: nothing panics, nothing hangs.
    assert!(pin!(lease.lost()).poll(&mut noop).is_ready());
    drop(lease);
    let another = H::new();
    let error = run(&another, tenure.acquire("a").into_future()).unwrap_err();
    assert_eq!(error, AcquireError::Closed);
    assert_eq!(run(&another, tenure.shutdown()), Ok(()));
}

/// A worker ends with the runtime of its work, though its leases are renewed on a thread of their own; others take over.
pub fn a_worker_ends_with_the_runtime_of_its_work_and_others_take_over<H: Host>() {
    let host = H::new();
    let (begins, begun) = oneshot::channel();
    let begins = Arc::new(Mutex::new(Some(begins)));
    let work = move |_: Ctx| {
        let begins = begins.lock().unwrap().take();
        async move {
            begins.expect("once").send(()).unwrap();
            pending::<()>().await;
        }
    };
    let (tenure, worker) = run(&host, async {
        let builder = Builder::new(host.runtime()).on_own_thread();
        let tenure = builder.store(MemoryStore::new()).start().unwrap();
        let worker = tenure.worker("a", work).start().unwrap();
        begun.await.unwrap();
        (tenure, worker)
    });
    assert!(host.shut_down(), "the runtime has ended");
    let other = H::new();
    run(&other, worker.ended());
    let error = worker.last_error();
    assert!(error.as_ref().is_some_and(|error| error.contains("runtime has ended")), "{error:?}");
    let free = run(&other, tenure.try_acquire("a").into_future());
    assert!(free.is_ok(), "{free:?}");
    drop(free);
    run(&other, tenure.shutdown()).unwrap();
}
