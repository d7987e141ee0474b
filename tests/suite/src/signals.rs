//! What happens when the process is asked to end. Signals concern all of it: these are for a test binary of their own.

use std::future::pending;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tenure_driver::core::StopReason;
use tenure_driver::{AcquireError, Builder, Ctx, RequestError, Runtime, Tenure, WorkerStatus, clock};
use tenure_memory::MemoryStore;

use crate::api::GENEROUS;
use crate::host::Host;
use crate::waiting::{once, pause, run};

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn signal(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

fn start<R: Runtime>(runtime: R, store: &MemoryStore) -> Tenure {
    Builder::new(runtime).store(store.handle()).start().unwrap()
}

/// Looks with another process whether no lease is held, and nobody is a member.
fn all_is_given_back<H: Host>(host: &H, store: &MemoryStore) -> bool {
    run(host, async {
        let other = start(host.runtime(), store);
        let left = (other.leases().await.unwrap(), other.members().await.unwrap());
        other.shutdown().await.unwrap();
        left == (Vec::new(), Vec::new())
    })
}

/// From the call on a signal does not end the process, and it is told to all who wait, each time anew.
pub fn a_signal_is_told_to_all_who_wait_for_it<H: Host>() {
    let _alone = alone();
    let host = H::new();
    let runtime = run(&host, async { host.runtime() });
    for asks in [Signal::TERM, Signal::INT] {
        // Outside of the runtime, too.
        let mut outside = runtime.interrupted();
        run(&host, async {
            let runtime = host.runtime();
            let (early, mut inside) = (runtime.interrupted(), runtime.interrupted());
            assert!(once(inside.as_mut()).await.is_pending());
            assert!(once(outside.as_mut()).await.is_pending());
            signal(asks);
            early.await;
            inside.await;
            outside.await;
            // One who comes later waits for the next.
            let mut late = pin!(runtime.interrupted());
            assert!(once(late.as_mut()).await.is_pending());
            runtime.sleep_until(clock::now() + Duration::from_millis(20)).await;
            assert!(once(late.as_mut()).await.is_pending());
            signal(asks);
            late.await;
        });
    }
}

/// A second signal is heard though the thread of the leases has ended with the first.
pub fn a_second_signal_is_heard_though_the_thread_of_the_leases_has_ended<H: Host>() {
    let _alone = alone();
    let host = H::new();
    let result = run(&host, async {
        let builder = Builder::new(host.runtime()).on_own_thread();
        let tenure = builder.store(MemoryStore::new()).start().unwrap();
        let scope = tenure.scope(async |tenure| {
            tenure.acquire("a").await.unwrap().release().await.unwrap();
            signal(Signal::TERM);
            // Nothing is held: the driver ends at the first signal.
            while !matches!(tenure.inspect("a").await, Err(RequestError::Closed(_))) {
                pause().await;
            }
            tenure.shutdown().await.unwrap();
            // The work does not end by itself. It sends a second signal once the first has been dealt with.
            signal(Signal::TERM);
            host.runtime().sleep_until(clock::now() + GENEROUS).await;
        });
        scope.await
    });
    assert!(result.is_err(), "the work was dropped");
}

/// A signal asks the work of a scope to end, with time to do it in order; a second one drops it.
pub fn a_signal_asks_the_work_to_end_and_a_second_one_drops_it<H: Host>() {
    let _alone = alone();
    let host = H::new();
    for asks in [Signal::TERM, Signal::INT] {
        for twice in [false, true] {
            let store = MemoryStore::new();
            let result = run(&host, async {
                let scope = start(host.runtime(), &store).scope(async |tenure| {
                    let lease = tenure.acquire("a").await.unwrap();
                    signal(asks);
                    let why = lease.stopping().await;
                    assert!(lease.is_valid(), "there is time to end in order");
                    let refused = tenure.acquire("b").await.unwrap_err();
                    assert!(matches!(refused, AcquireError::ShuttingDown { .. }), "{refused}");
                    if twice {
                        signal(asks);
                        pending::<()>().await;
                    }
                    why
                });
                scope.await
            });
            assert_eq!(result.ok(), (!twice).then_some(StopReason::Drain));
            assert!(all_is_given_back(&host, &store));
        }
    }
}

/// A signal drains a worker, and its scope ends with it: also with the leases on a thread of their own.
pub fn a_signal_drains_a_worker_and_its_scope_ends_with_it<H: Host>() {
    let _alone = alone();
    let host = H::new();
    for own_thread in [false, true] {
        let store = MemoryStore::new();
        let (sender, told) = std::sync::mpsc::channel();
        let result = run(&host, async {
            let mut builder = Builder::new(host.runtime());
            if own_thread {
                builder = builder.on_own_thread();
            }
            let tenure = builder.store(store.handle()).start().unwrap();
            let scope = tenure.scope(async |tenure| {
                let work = move |ctx: Ctx| {
                    let sender = sender.clone();
                    async move {
                        signal(Signal::TERM);
                        let why = ctx.draining().await;
                        sender.send((why, ctx.is_valid())).unwrap();
                    }
                };
                let worker = tenure.worker("a", work).start().unwrap();
                worker.ended().await;
                worker.status()
            });
            scope.await
        });
        assert_eq!(result.ok(), Some(WorkerStatus::Ended));
        assert_eq!(told.try_recv().ok(), Some((StopReason::Drain, true)), "with time to end in order");
        assert!(told.try_recv().is_err(), "it was not started again");
        assert!(all_is_given_back(&host, &store));
    }
}

/// A signal drains an instance that waits for it, and a second one stops it.
pub fn a_signal_drains_an_instance_that_waits_for_it_and_a_second_one_stops_it<H: Host>() {
    let _alone = alone();
    let host = H::new();
    for asks in [Signal::TERM, Signal::INT] {
        for twice in [false, true] {
            let store = MemoryStore::new();
            let ended = run(&host, async {
                let tenure = start(host.runtime(), &store);
                let work = move |ctx: Ctx| async move {
                    // The test has begun to wait by then, or will before it is polled again.
                    signal(asks);
                    let why = ctx.draining().await;
                    assert!(ctx.is_valid() && why == StopReason::Drain);
                    if twice {
                        signal(asks);
                        pending::<()>().await;
                    }
                };
                let mut waiting = pin!(tenure.until_terminated());
                // From here on a signal is for Tenure.
                assert!(once(waiting.as_mut()).await.is_pending());
                let coordinator = tenure.coordinate(["a"], work).start().unwrap();
                let ended = waiting.await;
                coordinator.ended().await;
                ended
            });
            assert_eq!(ended, Ok(()));
            assert!(all_is_given_back(&host, &store), "and the instance has left");
        }
    }
}
