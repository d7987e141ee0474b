//! What a scope does when the process is asked to end. A process of its own: signals concern all of it.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tenure_driver::core::StopReason;
use tenure_driver::store_contract::SimpleStore;
use tenure_driver::{AcquireError, Builder, Ctx, RequestError, Runtime as _, WorkerStatus};
use tenure_memory::MemoryStore;
use tenure_tokio::Tokio;

/// Signals concern the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_second_signal_is_heard_though_the_thread_of_the_leases_has_ended() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = MemoryStore::new();
    let tenure = Builder::new(Tokio::current().on_own_thread().unwrap()).store(store).start().unwrap();
    let result = runtime.block_on(tenure.scope(async |tenure| {
        tenure.acquire("a").await.unwrap().release().await.unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        // Nothing is held: the driver ends at the first signal.
        while !matches!(tenure.inspect("a").await, Err(RequestError::Closed(_))) {
            tokio::task::yield_now().await;
        }
        tenure.shutdown().await.unwrap();
        // The work does not end by itself. It sends a second signal once the first has been dealt with.
        kill_process(getpid(), Signal::TERM).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }));
    assert!(result.is_err(), "the work was dropped");
}

#[test]
fn a_signal_asks_the_work_to_end_and_a_second_one_drops_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        for twice in [false, true] {
            let store = MemoryStore::new();
            let tenure = runtime
                .block_on(async { Builder::new(Tokio::current()).store(store.handle()).start() })
                .unwrap();
            let result = runtime.block_on(tenure.scope(async |tenure| {
                let lease = tenure.acquire("a").await.unwrap();
                kill_process(getpid(), signal).unwrap();
                let why = lease.stopping().await;
                assert!(lease.is_valid(), "there is time to end in order");
                let refused = tenure.acquire("b").await.unwrap_err();
                assert!(matches!(refused, AcquireError::ShuttingDown { .. }), "{refused}");
                if twice {
                    kill_process(getpid(), signal).unwrap();
                    std::future::pending::<()>().await;
                }
                why
            }));
            assert_eq!(result.ok(), (!twice).then_some(StopReason::Drain));
            let free = runtime.block_on(async {
                let other = Builder::new(Tokio::current()).store(store.handle()).start().unwrap();
                let lease = other.acquire("a").wait_at_most(Duration::ZERO).await;
                lease.is_ok()
            });
            assert!(free, "the lease was given back");
        }
    }
}

#[test]
fn a_signal_drains_a_worker_and_its_scope_ends_with_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (runtime, own) in [
        (tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), false),
        (tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap(), true),
    ] {
        let store = MemoryStore::new();
        let tokio = {
            let _entered = runtime.enter();
            if own { Tokio::current().on_own_thread().unwrap() } else { Tokio::current() }
        };
        let tenure = Builder::new(tokio).store(store.handle()).start().unwrap();
        let (sender, told) = std::sync::mpsc::channel();
        let result = runtime.block_on(tenure.scope(async |tenure| {
            let work = move |ctx: Ctx| {
                let sender = sender.clone();
                async move {
                    kill_process(getpid(), Signal::TERM).unwrap();
                    let why = ctx.draining().await;
                    sender.send((why, ctx.is_valid())).unwrap();
                }
            };
            let worker = tenure.worker("a", work).start().unwrap();
            worker.ended().await;
            worker.status()
        }));
        assert_eq!(result.ok(), Some(WorkerStatus::Ended));
        assert_eq!(told.try_recv().ok(), Some((StopReason::Drain, true)), "with time to end in order");
        assert!(told.try_recv().is_err(), "it was not started again");
        assert_eq!(runtime.block_on(store.list(None, 10)).unwrap(), []);
    }
}

#[test]
fn a_signal_drains_an_instance_that_waits_for_it_and_a_second_one_stops_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        for twice in [false, true] {
            let store = MemoryStore::new();
            let ended = runtime.block_on(async {
                let tenure = Builder::new(Tokio::current()).store(store.handle()).start().unwrap();
                let work = move |ctx: Ctx| async move {
                    // The test has begun to wait by then, or will before it is polled again.
                    kill_process(getpid(), signal).unwrap();
                    let why = ctx.draining().await;
                    assert!(ctx.is_valid() && why == StopReason::Drain);
                    if twice {
                        kill_process(getpid(), signal).unwrap();
                        std::future::pending::<()>().await;
                    }
                };
                let waiting = tenure.until_terminated();
                let mut waiting = std::pin::pin!(waiting);
                // From here on a signal is for Tenure.
                let polled = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                let coordinator = tenure.coordinate(["a"], work).start().unwrap();
                let ended = waiting.await;
                coordinator.ended().await;
                ended
            });
            assert_eq!(ended, Ok(()));
            let left = runtime.block_on(async {
                let other = Builder::new(Tokio::current()).store(store.handle()).start().unwrap();
                (other.leases().await.unwrap().len(), other.members().await.unwrap().len())
            });
            assert_eq!(left, (0, 0), "all is given back, and the instance has left");
        }
    }
}
