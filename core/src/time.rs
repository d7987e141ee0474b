//! Points in time and clock rates, as the core sees them.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// A point in time: nanoseconds since an epoch of the driver's choice.
///
/// The core never reads a clock: whoever drives it passes `now` with every event. Feed it a clock that
/// also counts while the machine sleeps (`CLOCK_BOOTTIME` on Linux); with a plain monotonic clock a machine
/// that slept believes that its leases still run.
///
/// Arithmetic saturates. There is deliberately no `Instant - Instant`: which of two instants is the later
/// one is a question to ask with [`Instant::saturating_since`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// The end of time: about 584 years after the epoch.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant that lies `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero if `earlier` is not earlier.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The instant `duration` before `self`, the epoch at the earliest.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// The latest multiple of `step` that is not after `self`; `self` if `step` is zero.
    pub(crate) fn floor_to(self, step: Duration) -> Self {
        match nanos(step) {
            0 => self,
            step => Self(self.0 - self.0 % step),
        }
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

/// A point in time on a store's wall clock: nanoseconds since the Unix epoch, from the year 1677 to 2262.
///
/// Timers live by it; no lease does. It may step in both directions. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The beginning of 1970, UTC.
    pub const EPOCH: Self = Self(0);
    /// The end of time, in 2262.
    pub const MAX: Self = Self(i64::MAX);

    /// The time that lies `nanos` nanoseconds after the Unix epoch, before it if that is negative.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero if `earlier` is not earlier.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        if self.0 <= earlier.0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.0.abs_diff(earlier.0))
    }

    /// The time `duration` before `self`.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub_unsigned(nanos(duration)))
    }
}

/// The time in UTC, as RFC 3339 has it, with as much of the second as there is: `2026-12-01T02:00:00.25Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: i64 = 24 * 3600;
        let (seconds, nanos) = (self.0.div_euclid(1_000_000_000), self.0.rem_euclid(1_000_000_000));
        let (year, month, day) = date(seconds.div_euclid(DAY));
        let second = seconds.rem_euclid(DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if nanos != 0 {
            let (mut fraction, mut digits) = (nanos, 9);
            while fraction % 10 == 0 {
                (fraction, digits) = (fraction / 10, digits - 1);
            }
            write!(f, ".{fraction:0digits$}")?;
        }
        f.write_str("Z")
    }
}

/// Year, month and day in the Gregorian calendar, so many days after the beginning of 1970.
const fn date(days: i64) -> (i64, i64, i64) {
    // Years are counted from March on, so that the day of a leap year is the last, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    if month < 10 { (year + 400 * era, month + 3, day) } else { (year + 400 * era + 1, month - 9, day) }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add_unsigned(nanos(duration)))
    }
}

/// A relative rate in parts per million: how far a clock may run from true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u32);

impl Rate {
    /// A perfect clock.
    pub const ZERO: Self = Self(0);

    /// One per cent, the default for every clock: it costs two per cent of a TTL.
    pub const ONE_PERCENT: Self = Self(10_000);

    /// `ppm` parts per million; 1 % is 10,000.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Self {
        Self(ppm)
    }

    /// Parts per million.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ppm", self.0)
    }
}

/// A duration in whole nanoseconds, at most about 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration in the largest unit of which it is a whole number, for people: `0s`, `1h`, `7d`, `1.5s`.
#[must_use]
pub fn readable(duration: Duration) -> impl fmt::Display {
    Readable(duration)
}

struct Readable(Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HOUR: u64 = 3600;
        let whole = if self.0.subsec_nanos() == 0 { self.0.as_secs() } else { 1 };
        match whole {
            0 => f.write_str("0s"),
            secs if secs % (24 * HOUR) == 0 => write!(f, "{}d", secs / (24 * HOUR)),
            secs if secs % HOUR == 0 => write!(f, "{}h", secs / HOUR),
            _ => write!(f, "{:?}", self.0),
        }
    }
}
