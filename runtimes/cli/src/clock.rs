//! The clock on which leases are counted: it goes on while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};
use tenure_core::Instant;

/// Linux's `CLOCK_MONOTONIC` stands still during suspend, `CLOCK_BOOTTIME` does not.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock is what there is; on macOS it counts the time asleep.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Now, in nanoseconds since the machine was started. All processes of a machine share this clock.
pub(crate) fn now() -> Instant {
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
