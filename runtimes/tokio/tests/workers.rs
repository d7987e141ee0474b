//! Workers on tokio, in real time: where their work runs, and what becomes of work that blocks its thread.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use tenure_driver::core::{LeaseConfig, Restart};
use tenure_driver::store_contract::SimpleStore;
use tenure_driver::{Builder, Ctx, DrainError, Runtime as _, Tenure, Worker, WorkerStatus, clock};
use tenure_memory::MemoryStore;
use tenure_tokio::Tokio;
use tokio::runtime::Runtime;

/// Short, so that a test sees the end of a lease, and long enough for a machine that is busy with other things.
const TTL: Duration = Duration::from_secs(4);
/// No wait in these tests ends by it unless something is wrong.
const GENEROUS: Duration = Duration::from_secs(60);

fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

fn start(runtime: Tokio, store: &MemoryStore) -> Tenure {
    Builder::new(runtime).lease(LeaseConfig::new(TTL)).store(store.handle()).start().unwrap()
}

fn soon<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(async { tokio::time::timeout(GENEROUS, future).await }).expect("it takes for ever")
}

/// Work that says that it has begun, and blocks its thread until it may go on.
fn blocking(tenure: &Tenure) -> (Worker, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (begins, begun) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    let work = move |_: Ctx| {
        begins.send(()).unwrap();
        // The other end is dropped to end it.
        let _ended = blocked.recv();
        async {}
    };
    let worker = tenure.worker("a", work).drain_timeout(Duration::from_millis(50)).start().unwrap();
    (worker, begun, unblock)
}

/// Drains it from elsewhere while it blocks, and lets it go then.
fn assert_stuck(tenure: &Tenure, store: &MemoryStore, worker: &Worker, unblock: mpsc::Sender<()>) {
    let elsewhere = &one_thread();
    let error = soon(elsewhere, worker.drain()).unwrap_err();
    let DrainError::Stuck { lease, token } = &error else { panic!("{error}") };
    assert_eq!((lease.as_str(), worker.status()), ("a", WorkerStatus::Stuck { token: *token }));
    assert_eq!(soon(elsewhere, worker.stop()), Err(error.clone()), "also when it is asked again");
    // It keeps its lease, longer than it would last without renewals.
    let renewed = tenure.stats().renewed;
    soon(elsewhere, async {
        while tenure.stats().renewed < renewed + 6 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let records = soon(elsewhere, store.list(None, 10)).unwrap();
    assert_eq!(records.iter().map(|record| record.holder.token).collect::<Vec<_>>(), [Some(*token)]);
    drop(unblock);
    soon(elsewhere, worker.ended());
    assert_eq!(soon(elsewhere, worker.drain()), Ok(()));
    assert_eq!(soon(elsewhere, store.list(None, 10)).unwrap(), []);
}

#[test]
fn work_that_blocks_one_of_several_threads_is_named_stuck_and_keeps_its_lease_until_it_ends() {
    let (runtime, store) = (threads(), MemoryStore::new());
    let tenure = runtime.block_on(async { start(Tokio::current(), &store) });
    let (worker, begun, unblock) = runtime.block_on(async { blocking(&tenure) });
    begun.recv_timeout(GENEROUS).unwrap();
    assert_stuck(&tenure, &store, &worker, unblock);
    soon(&runtime, tenure.shutdown()).unwrap();
}

#[test]
fn work_that_blocks_the_only_thread_is_named_stuck_and_keeps_its_lease_until_it_ends() {
    let store = MemoryStore::new();
    let tenure = start(Tokio::current().on_own_thread().unwrap(), &store);
    let (sender, started) = mpsc::channel();
    let only = tenure.clone();
    let (done, until) = oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        one_thread().block_on(async {
            sender.send(blocking(&only)).unwrap();
            drop(only);
            until.await.unwrap();
        });
    });
    let (worker, begun, unblock) = started.recv_timeout(GENEROUS).unwrap();
    begun.recv_timeout(GENEROUS).unwrap();
    assert_stuck(&tenure, &store, &worker, unblock);
    done.send(()).unwrap();
    thread.join().unwrap();
    soon(&one_thread(), tenure.shutdown()).unwrap();
}

#[test]
fn with_a_thread_of_its_own_for_the_leases_work_runs_on_the_callers_and_may_block_there() {
    for runtime in [one_thread(), threads()] {
        let store = MemoryStore::new();
        let tenure = start(Tokio::current().on_own_thread().unwrap(), &store);
        let seen = Arc::new(Mutex::new(None));
        let found = Arc::clone(&seen);
        let work = move |ctx: Ctx| {
            let found = Arc::clone(&found);
            async move {
                // Nothing is sent: it blocks for as long as this.
                let (_sender, never) = mpsc::channel::<()>();
                assert!(never.recv_timeout(TTL * 2).is_err());
                let name = thread::current().name().map(str::to_owned);
                *found.lock().unwrap() = Some((ctx.is_valid(), name));
            }
        };
        let worker =
            runtime.block_on(async { tenure.worker("a", work).restart(Restart::Never).start().unwrap() });
        soon(&runtime, worker.ended());
        let (valid, name) = seen.lock().unwrap().take().expect("it ran");
        assert!(valid && name.as_deref() != Some("tenure"), "{name:?}");
        assert_eq!((tenure.stats().starved, tenure.stats().lost), (0, 0));
        soon(&runtime, tenure.shutdown()).unwrap();
    }
}

#[test]
fn work_that_is_started_outside_of_any_runtime_runs_where_the_leases_are_renewed() {
    for own in [false, true] {
        let (runtime, store) = (threads(), MemoryStore::new());
        let tokio = runtime.block_on(async {
            if own { Tokio::current().on_own_thread().unwrap() } else { Tokio::current() }
        });
        let tenure = {
            let _entered = runtime.enter();
            start(tokio, &store)
        };
        let (sender, names) = mpsc::channel();
        let work = move |ctx: Ctx| {
            sender.send(thread::current().name().map(str::to_owned)).unwrap();
            async move {
                ctx.draining().await;
            }
        };
        let worker = tenure.worker("a", work).start().unwrap();
        let name = names.recv_timeout(GENEROUS).unwrap();
        assert_eq!(name.as_deref() == Some("tenure"), own, "{name:?}");
        assert_eq!(soon(&runtime, worker.drain()), Ok(()));
        soon(&runtime, tenure.shutdown()).unwrap();
    }
}

#[test]
fn a_worker_ends_with_the_runtime_of_its_work_and_others_take_over() {
    for runtime in [one_thread(), threads()] {
        let store = MemoryStore::new();
        let tenure = start(Tokio::current().on_own_thread().unwrap(), &store);
        let (begins, begun) = oneshot::channel();
        let begins = Mutex::new(Some(begins));
        let work = move |_: Ctx| {
            let begins = begins.lock().unwrap().take();
            async move {
                begins.expect("once").send(()).unwrap();
                std::future::pending::<()>().await;
            }
        };
        let worker = runtime.block_on(async { tenure.worker("a", work).start().unwrap() });
        soon(&runtime, begun).unwrap();
        drop(runtime);
        let other = one_thread();
        soon(&other, worker.ended());
        assert!(worker.last_error().is_some_and(|error| error.contains("runtime has ended")));
        let free = soon(&other, tenure.try_acquire("a").into_future());
        assert!(free.is_ok(), "{free:?}");
        drop(free);
        soon(&other, tenure.shutdown()).unwrap();
    }
}

#[test]
fn work_ends_by_its_own_clock_when_the_driver_is_stuck() {
    let store = MemoryStore::new();
    let (sender, tenure) = mpsc::channel();
    let (block, blocking) = oneshot::channel::<()>();
    let (unblock, blocked) = mpsc::channel::<()>();
    let handle = store.handle();
    let driver = thread::spawn(move || {
        one_thread().block_on(async {
            sender.send(start(Tokio::current(), &handle)).unwrap();
            blocking.await.unwrap();
            // The other end is dropped to end it.
            let _ended = blocked.recv();
            tokio::task::yield_now().await;
        });
    });
    struct Dropped(Ctx, mpsc::Sender<bool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            // The last deadlines, since nothing renews the lease.
            let _nobody = self.1.send(clock::now() >= self.0.deadlines().kill_at);
        }
    }
    let tenure = tenure.recv_timeout(GENEROUS).unwrap();
    let runtime = threads();
    let (begins, begun) = mpsc::channel();
    let (drops, dropped) = mpsc::channel();
    let work = move |ctx: Ctx| {
        begins.send(()).unwrap();
        let dropped = Dropped(ctx, drops.clone());
        async move {
            std::future::pending::<()>().await;
            drop(dropped);
        }
    };
    let worker = runtime.block_on(async { tenure.worker("a", work).start().unwrap() });
    begun.recv_timeout(GENEROUS).unwrap();
    block.send(()).unwrap();
    assert_eq!(dropped.recv_timeout(GENEROUS), Ok(true), "not before the kill");
    drop(unblock);
    driver.join().unwrap();
    soon(&runtime, worker.ended());
    assert_eq!(worker.status(), WorkerStatus::Ended);
}
