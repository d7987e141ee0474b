//! A store in a time that passes when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_memory::MemoryStore;
use tenure_store::core::Instant;

/// 2026-01-01 in microseconds since 1970.
const WALL_AT_ZERO: u64 = 1_767_225_600_000_000;

/// Nanoseconds, shared by all that were cloned from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a test passes little time");
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    /// An empty store in this time.
    pub(crate) fn store(&self) -> MemoryStore {
        let (expiry, wall) = (self.clone(), self.clone());
        MemoryStore::with_clocks(
            move || expiry.now(),
            move || WALL_AT_ZERO + wall.now().saturating_since(Instant::ZERO).as_micros() as u64,
        )
    }
}
