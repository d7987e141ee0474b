//! The clocks of the store: one for expiry, one for tokens.

use std::sync::Arc;

use tenure_store::clock;
use tenure_store::core::Instant;

/// What the store reads the time from.
#[derive(Clone)]
pub(crate) struct Clocks {
    now: Arc<dyn Fn() -> Instant + Send + Sync>,
    wall_micros: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Clocks {
    /// The clocks of the machine.
    pub(crate) fn real() -> Self {
        Self { now: Arc::new(clock::now), wall_micros: Arc::new(clock::wall_micros) }
    }

    pub(crate) fn with_now(mut self, now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.now = Arc::new(now);
        self
    }

    pub(crate) fn with_wall_micros(mut self, micros: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.wall_micros = Arc::new(micros);
        self
    }

    pub(crate) fn now(&self) -> Instant {
        (self.now)()
    }

    pub(crate) fn wall_micros(&self) -> u64 {
        (self.wall_micros)()
    }
}
