//! The clock of every runtime: one that goes on while the machine sleeps.

use tenure_core::Instant;

/// The time since the machine was started, sleep included.
///
/// With a clock that stands still in suspend, a machine that wakes up believes that its leases still run. On
/// Linux this is `CLOCK_BOOTTIME`, on Apple's systems `CLOCK_MONOTONIC`, which counts sleep there. All
/// processes of a machine read the same values.
#[cfg(unix)]
#[must_use]
pub fn now() -> Instant {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The time since the first call in this process, sleep included.
#[cfg(not(unix))]
#[must_use]
#[expect(clippy::disallowed_types, reason = "on Windows it counts sleep")]
pub fn now() -> Instant {
    use std::sync::OnceLock;
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    // An hour ahead of zero, so that subtracting a TTL does not hit the epoch.
    let since = START.get_or_init(std::time::Instant::now).elapsed();
    Instant::from_nanos(3_600_000_000_000) + since
}
