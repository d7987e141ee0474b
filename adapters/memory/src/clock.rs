//! The clocks of the store: one for expiry, one for tokens.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
        Self { now: Arc::new(suspend_aware_now), wall_micros: Arc::new(wall_micros) }
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

/// Wall-clock microseconds as the time that they stand for.
pub(crate) fn wall_time(micros: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(micros))
}

fn wall_micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// The clock that also counts while the machine sleeps.
#[cfg(unix)]
fn suspend_aware_now() -> Instant {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android", target_os = "openbsd"))]
    const CLOCK: ClockId = ClockId::Boottime;
    // On Apple's systems CLOCK_MONOTONIC counts on during sleep; elsewhere there is nothing better.
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "openbsd")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// On Windows the clock behind std's `Instant` counts on during sleep.
#[cfg(not(unix))]
#[expect(clippy::disallowed_types, reason = "the only clock that std has here")]
fn suspend_aware_now() -> Instant {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let elapsed = START.get_or_init(std::time::Instant::now).elapsed();
    Instant::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_clocks_run_forward() {
        let clocks = Clocks::real();
        let (earlier, later) = (clocks.now(), clocks.now());
        assert!(Instant::ZERO < earlier && earlier <= later);
        // 2020-01-01: a machine whose clock is behind that can't be meant.
        assert!(clocks.wall_micros() > 1_577_836_800_000_000);
    }
}
