//! The clock that all processes of a machine share, and what tells one boot from another.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tenure_core::Instant;
use tenure_store::StoreError;

/// Counts on while the machine sleeps, is the same for all processes, and nobody can set it.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "openbsd"))]
const CLOCK: ClockId = ClockId::Boottime;
/// On macOS the monotonic clock counts on during sleep (`clock_gettime(3)` there).
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "openbsd")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since the machine was started, suspend included.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The latest wall-clock time that is believed, in microseconds since 1970: 2^53, the year 2255. It keeps the
/// clock of a mad machine from eating the tokens up.
const LATEST_WALL_MICROS: u64 = 1 << 53;

/// The wall clock in microseconds since 1970, between zero and the year 2255 whatever the clock says.
/// It never decides whether a lease is over; it makes tokens rise even when a store's memory is lost.
pub(crate) fn wall_micros() -> u64 {
    clamp_wall(SystemTime::now())
}

fn clamp_wall(time: SystemTime) -> u64 {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX).min(LATEST_WALL_MICROS)
}

/// The wall-clock time of a record; `None` if it is no time that this platform knows.
pub(crate) fn from_wall_micros(micros: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(u64::try_from(micros).ok()?))
}

/// What the records' times are relative to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The kernel's name for this start of the machine.
    pub(crate) id: String,
    /// The time namespace: processes in different ones read different times from the same clock.
    pub(crate) time_namespace: i64,
}

impl Boot {
    /// This boot, in this process's time namespace.
    pub(crate) fn current() -> Result<Self, StoreError> {
        let id = boot_id().map_err(|error| {
            StoreError::unsupported(format!(
                "can't tell this start of the machine from the earlier ones ({error}), so leases of before a \
                 restart could not be told from current ones"
            ))
        })?;
        Ok(Self { id, time_namespace: time_namespace() })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_id() -> Result<String, String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    check_boot_id(&text)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_id() -> Result<String, String> {
    // There is no safe call for it. kern.bootsessionuuid is macOS's; the others at least have a start time.
    let mut last = String::new();
    for key in ["kern.bootsessionuuid", "kern.boottime"] {
        match std::process::Command::new("sysctl").args(["-n", key]).output() {
            Ok(output) if output.status.success() => {
                return check_boot_id(&String::from_utf8_lossy(&output.stdout));
            }
            Ok(output) => last = format!("sysctl {key}: {}", output.status),
            Err(error) => last = format!("sysctl {key}: {error}"),
        }
    }
    Err(last)
}

fn check_boot_id(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the kernel's boot id is empty".to_owned()),
        id => Ok(id.chars().take(128).collect()),
    }
}

/// The inode of the time namespace, zero where the kernel has none.
fn time_namespace() -> i64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/time").map_or(0, |meta| i64::try_from(meta.ino()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let first = now();
        assert!(now() >= first);
        assert!(first > Instant::ZERO);
    }

    #[test]
    fn a_wall_clock_before_1970_or_far_in_the_future_neither_panics_nor_wraps() {
        let year_1960 = UNIX_EPOCH - Duration::from_secs(10 * 365 * 86_400);
        assert_eq!(clamp_wall(year_1960), 0);
        let year_2200 = UNIX_EPOCH + Duration::from_secs(230 * 365 * 86_400);
        assert_eq!(clamp_wall(year_2200), 230 * 365 * 86_400 * 1_000_000);
        let year_300000 = UNIX_EPOCH + Duration::from_secs(298_000 * 365 * 86_400);
        assert_eq!(clamp_wall(year_300000), LATEST_WALL_MICROS);
        assert_eq!(from_wall_micros(-1), None);
        assert_eq!(from_wall_micros(1), Some(UNIX_EPOCH + Duration::from_micros(1)));
    }

    #[test]
    fn the_boot_is_the_same_whoever_asks() {
        assert_eq!(Boot::current(), Boot::current());
    }
}
