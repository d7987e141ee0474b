//! The clocks of a machine, for stores and runtimes that have no other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::{Instant, Timestamp};

/// The time since the machine was started, sleep included; all processes of the machine read the same.
///
/// With a clock that stands still in suspend, a machine that wakes up believes that its leases still run. On
/// Linux this is `CLOCK_BOOTTIME`; on Apple's systems `CLOCK_MONOTONIC`, which counts on during sleep there.
#[cfg(unix)]
#[must_use]
pub fn now() -> Instant {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "openbsd"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(
        target_os = "linux",
        target_os = "android",
        target_os = "freebsd",
        target_os = "openbsd"
    )))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The time since the first call in this process, sleep included.
#[cfg(not(unix))]
#[must_use]
#[expect(clippy::disallowed_types, reason = "on Windows it counts on during sleep")]
pub fn now() -> Instant {
    use std::sync::OnceLock;
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    // An hour ahead of zero, so that subtracting a TTL does not hit the epoch.
    Instant::from_nanos(3_600_000_000_000) + START.get_or_init(std::time::Instant::now).elapsed()
}

/// The latest wall-clock time that is believed, in microseconds since 1970: 2^53, in the year 2255. It keeps the
/// clock of a mad machine from eating the tokens up.
const LATEST_WALL_MICROS: u64 = 1 << 53;

/// The wall clock, for timers and for what people read. It may step, and it decides nothing about a lease.
///
/// A clock before the year 1677 or after 2262 is read as one of these bounds.
#[must_use]
pub fn wall() -> Timestamp {
    timestamp(SystemTime::now())
}

fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since_1970) => Timestamp::EPOCH + since_1970,
        Err(before) => Timestamp::EPOCH.saturating_sub(before.duration()),
    }
}

/// The wall clock in microseconds since 1970, between zero and the year 2255 whatever the clock says.
///
/// It never decides whether a lease is over. It makes tokens rise even when a store's memory is lost.
#[must_use]
pub fn wall_micros() -> u64 {
    micros(wall())
}

/// A time in microseconds since 1970, within the bounds of [`wall_micros`].
#[must_use]
pub fn micros(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanos() / 1_000).unwrap_or(0).min(LATEST_WALL_MICROS)
}

/// A time as the standard library has it; `None` if it is no time that this platform knows.
#[must_use]
pub fn system_time(time: Timestamp) -> Option<SystemTime> {
    if time >= Timestamp::EPOCH {
        UNIX_EPOCH.checked_add(time.saturating_since(Timestamp::EPOCH))
    } else {
        UNIX_EPOCH.checked_sub(Timestamp::EPOCH.saturating_since(time))
    }
}

/// What [`wall_micros`] stands for; `None` if it is no time that this platform knows.
#[must_use]
pub fn wall_time(micros: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(micros))
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

    /// In a time namespace the clock that counts suspend can be moved on, and the one that does not stays.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_counts_the_time_that_a_machine_sleeps() {
        use rustix::time::{ClockId, clock_gettime};
        const INSIDE: &str = "TENURE_TEST_IN_TIME_NAMESPACE";
        if std::env::var_os(INSIDE).is_some() {
            let awake = clock_gettime(ClockId::Monotonic);
            let slept = now().as_nanos() / 1_000_000_000 - u64::try_from(awake.tv_sec).unwrap();
            assert!(slept >= 100_000, "{slept} s of 100000 s");
            return;
        }
        let unshare = |program: &std::ffi::OsStr| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--time", "--boottime", "100000", "--fork", "--"]).arg(program);
            command
        };
        if !unshare("true".as_ref()).output().is_ok_and(|output| output.status.success()) {
            println!("skipped: a time namespace can't be made here");
            return;
        }
        let mut inside = unshare(std::env::current_exe().unwrap().as_ref());
        inside.args(["the_clock_counts_the_time_that_a_machine_sleeps"]).env(INSIDE, "1");
        let output = inside.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn a_wall_clock_before_1970_or_far_in_the_future_neither_panics_nor_wraps() {
        let year_1960 = UNIX_EPOCH - Duration::from_secs(10 * 365 * 86_400);
        assert_eq!(timestamp(year_1960), Timestamp::from_nanos(-10 * 365 * 86_400 * 1_000_000_000));
        assert_eq!(micros(timestamp(year_1960)), 0);
        let year_2200 = UNIX_EPOCH + Duration::from_secs(230 * 365 * 86_400);
        assert_eq!(micros(timestamp(year_2200)), 230 * 365 * 86_400 * 1_000_000);
        for time in [year_1960, year_2200] {
            assert_eq!(system_time(timestamp(time)), Some(time));
        }
        let year_300000 = UNIX_EPOCH + Duration::from_secs(298_000 * 365 * 86_400);
        assert_eq!(timestamp(year_300000), Timestamp::MAX);
        assert_eq!(micros(timestamp(year_300000)), LATEST_WALL_MICROS);
        let year_1600 = UNIX_EPOCH - Duration::from_secs(370 * 365 * 86_400);
        assert_eq!(timestamp(year_1600), Timestamp::from_nanos(i64::MIN));
        assert_eq!(wall_time(1), Some(UNIX_EPOCH + Duration::from_micros(1)));
        // 2020-01-01: a machine whose clock is behind that can't be meant.
        assert!(wall_micros() > 1_577_836_800_000_000);
    }
}
