//! The clocks of the store: one for expiry, and the wall clock, for tokens, timers and what people read.

use std::sync::Arc;

use tenure_store::StoreTime;
use tenure_store::clock;
use tenure_store::core::{Instant, Timestamp};

/// What the store reads the time from.
#[derive(Clone)]
pub(crate) struct Clocks {
    now: Arc<dyn Fn() -> Instant + Send + Sync>,
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Clocks {
    /// The clocks of the machine.
    pub(crate) fn real() -> Self {
        Self { now: Arc::new(clock::now), wall: Arc::new(clock::wall) }
    }

    pub(crate) fn with_now(mut self, now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.now = Arc::new(now);
        self
    }

    pub(crate) fn with_wall(mut self, wall: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.wall = Arc::new(wall);
        self
    }

    pub(crate) fn read(&self) -> StoreTime {
        StoreTime { wall: (self.wall)(), now: (self.now)() }
    }
}
