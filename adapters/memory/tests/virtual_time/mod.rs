//! A store in a time that passes when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tenure_memory::MemoryStore;
use tenure_store::core::{Instant, Timestamp};

/// 2026-01-01 in nanoseconds since 1970.
const WALL_AT_ZERO: i64 = 1_767_225_600_000_000_000;

/// Nanoseconds, shared by all that were cloned from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    now: Arc<AtomicU64>,
    /// How far the wall clock was set, in nanoseconds.
    set_by: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    pub(crate) fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a test passes little time");
        self.now.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Sets the wall clock forward by so many nanoseconds, or back if that is negative.
    pub(crate) fn set_wall(&self, by: i64) {
        self.set_by.fetch_add(by, Ordering::Relaxed);
    }

    fn wall(&self) -> Timestamp {
        let at_zero = Timestamp::from_nanos(WALL_AT_ZERO + self.set_by.load(Ordering::Relaxed));
        at_zero + self.now().saturating_since(Instant::ZERO)
    }

    /// An empty store in this time.
    pub(crate) fn store(&self) -> MemoryStore {
        let (expiry, wall) = (self.clone(), self.clone());
        MemoryStore::with_clocks(move || expiry.now(), move || wall.wall())
    }
}
