//! Points in time and clock rates, as the core sees them.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

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
