//! What is smol's alone: an executor of the program, which Tenure does not keep, and which has to be run.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::thread;

use futures::task::AtomicWaker;
use smol::Executor;
use tenure_driver::{Builder, Ctx, Runtime as _, StartError, clock};
use tenure_memory::MemoryStore;
use tenure_smol::Smol;
use tenure_suite::GENEROUS;

#[test]
fn an_executor_that_was_dropped_is_refused_with_what_to_do() {
    let executor = Arc::new(Executor::new());
    let smol = Smol::on(&executor);
    assert_eq!(smol.check(), Ok(()));
    assert_eq!(Smol::global().check(), Ok(()));
    drop(executor);
    // Also for the leases alone on a thread of their own: the work would have nowhere to go.
    for builder in [Builder::new(smol.clone()), Builder::new(smol).on_own_thread()] {
        let error = builder.store(MemoryStore::new()).start().unwrap_err();
        assert!(matches!(error, StartError::Runtime(_)));
        assert!(error.to_string().contains("keep it"), "{error}");
    }
}

#[test]
fn an_executor_is_not_kept_alive() {
    let executor = Arc::new(Executor::new());
    let tenure = Builder::new(Smol::on(&executor)).store(MemoryStore::new()).start().unwrap();
    let (lease, worker) = smol::block_on(executor.run(async {
        let worker = tenure.worker("b", |_| std::future::pending::<()>()).start().unwrap();
        (tenure.acquire("a").await.unwrap(), worker)
    }));
    assert!(lease.is_valid());
    assert_eq!(Arc::strong_count(&executor), 1);
    drop(executor);
    assert!(!lease.is_valid());
    smol::block_on(worker.ended());
    // What is asked of it from now on is dropped.
    tenure.worker("c", |_| async {}).start().unwrap_err();
}

#[test]
fn work_runs_on_the_executor_wherever_it_was_started() {
    let executor = Arc::new(Executor::new());
    let builder = Builder::new(Smol::on(&executor)).on_own_thread();
    let tenure = builder.store(MemoryStore::new()).start().unwrap();
    let (sender, ran) = futures::channel::oneshot::channel();
    let sender = std::sync::Mutex::new(Some(sender));
    let work = move |_: Ctx| {
        let sender = sender.lock().unwrap().take();
        async move {
            if let Some(sender) = sender {
                sender.send(thread::current().id()).unwrap();
            }
        }
    };
    // Outside of any executor, and inside of another one.
    let worker = smol::block_on(async { tenure.worker("a", work).start().unwrap() });
    assert_eq!(smol::block_on(executor.run(ran)), Ok(thread::current().id()));
    smol::block_on(executor.run(worker.stop())).unwrap();
    smol::block_on(tenure.shutdown()).unwrap();
}

#[test]
fn several_executors_share_a_thread() {
    let store = MemoryStore::new();
    let executors = [(); 2].map(|()| Arc::new(Executor::new()));
    let [one, other] = executors
        .each_ref()
        .map(|executor| Builder::new(Smol::on(executor)).store(store.handle()).start().unwrap());
    smol::block_on(executors[0].run(executors[1].run(async {
        let lease = one.acquire("a").await.unwrap();
        let waiting = other.acquire("a");
        lease.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        one.shutdown().await.unwrap();
        other.shutdown().await.unwrap();
    })));
}

/// Tells when it is dropped.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_task_that_is_woken_while_its_executor_is_dropped_goes_with_it() {
    for round in 0..20_000 {
        let executor = Arc::new(Executor::new());
        let (waker, dropped) = (Arc::new(AtomicWaker::new()), Arc::new(AtomicBool::new(false)));
        let (registered, told) = (Arc::clone(&waker), Told(Arc::clone(&dropped)));
        Smol::on(&executor).spawn(Box::pin(async move {
            let _told = told;
            poll_fn::<(), _>(|cx| {
                registered.register(cx.waker());
                Poll::Pending
            })
            .await;
        }));
        assert!(executor.try_tick());
        let start = Arc::new(Barrier::new(2));
        let other = Arc::clone(&start);
        let wakes = thread::spawn(move || {
            other.wait();
            waker.wake();
        });
        start.wait();
        // Sooner or later, in turn.
        for _ in 0..round % 100 {
            std::hint::spin_loop();
        }
        drop(executor);
        wakes.join().unwrap();
        let end = clock::now() + GENEROUS;
        while !dropped.load(Ordering::SeqCst) {
            assert!(clock::now() < end, "the task is kept in round {round}");
            thread::yield_now();
        }
    }
}
