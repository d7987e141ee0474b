//! What a scope does when the process is asked to end. A process of its own: signals concern all of it.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tenure_driver::core::StopReason;
use tenure_driver::{AcquireError, Builder};
use tenure_memory::MemoryStore;
use tenure_tokio::Tokio;

#[test]
fn a_signal_asks_the_work_to_end_and_a_second_one_drops_it() {
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
