//! The memory store has every property that a store must have, but that it keeps nothing over a restart.

mod virtual_time;

use std::future::Future;
use std::time::Duration;

use tenure_memory::MemoryStore;
use tenure_store::conformance::Harness;
use tenure_store::core::Instant;

use virtual_time::Clock;

#[derive(Default)]
struct VirtualTime(Clock);

impl Harness for VirtualTime {
    type Store = MemoryStore;

    fn block_on<F: Future>(&self, property: F) -> F::Output {
        futures::executor::block_on(property)
    }

    async fn fresh(&self) -> MemoryStore {
        self.0.store()
    }

    async fn handle(&self, store: &MemoryStore) -> MemoryStore {
        store.handle()
    }

    async fn reopen(&self, store: MemoryStore) -> MemoryStore {
        drop(store);
        // A program takes a while to start.
        self.0.pass(Duration::from_millis(1));
        self.0.store()
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    async fn pass(&self, time: Duration) {
        self.0.pass(time);
    }

    fn set_wall(&self, by: i64) {
        self.0.set_wall(by);
    }
}

tenure_store::conformance!(VirtualTime::default(), ignore: {
    reopening_keeps_what_is_held: "it keeps nothing over a restart",
    reopening_keeps_timers: "it keeps nothing over a restart",
    reopening_keeps_claims: "it keeps nothing over a restart",
    reopening_keeps_the_records_of_jobs: "it keeps nothing over a restart",
    reopening_keeps_members: "it keeps nothing over a restart",
});

/// The same on the machine's clock, as programs use it.
mod real_time {
    use super::*;

    struct RealTime;

    impl Harness for RealTime {
        type Store = MemoryStore;

        const TTL: Duration = Duration::from_millis(500);

        fn block_on<F: Future>(&self, property: F) -> F::Output {
            futures::executor::block_on(property)
        }

        async fn fresh(&self) -> MemoryStore {
            MemoryStore::new()
        }

        async fn handle(&self, store: &MemoryStore) -> MemoryStore {
            store.handle()
        }

        async fn reopen(&self, store: MemoryStore) -> MemoryStore {
            drop(store);
            // A program takes a while to start.
            self.pass(Duration::from_millis(1)).await;
            MemoryStore::new()
        }
    }

    tenure_store::conformance!(RealTime, ignore: {
        reopening_keeps_what_is_held: "it keeps nothing over a restart",
        reopening_keeps_timers: "it keeps nothing over a restart",
        reopening_keeps_claims: "it keeps nothing over a restart",
        reopening_keeps_the_records_of_jobs: "it keeps nothing over a restart",
    reopening_keeps_members: "it keeps nothing over a restart",
        a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the machine's clock can't be set",
    });
}
