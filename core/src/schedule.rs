//! When ticks are due: schedules, of which a fixed period is one.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;

use crate::time::{Timestamp, nanos, readable};
use crate::timing::ConfigError;

#[cfg(test)]
mod tests;

/// One tick of a schedule: the number that the whole fleet knows it by, and when it is due by the store's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a number and a time, there is nothing else to a tick")]
pub struct Tick {
    /// Its number. Numbers of a timer only rise; whether they do so one by one is the schedule's affair.
    pub n: u64,
    /// When it is due.
    pub at: Timestamp,
}

/// A rule that says when ticks are due. [`Every`] is the one that the core has.
///
/// Ticks are counted from a base: the timer's creation, or the tick at which the schedule took effect. All functions
/// are pure: every instance comes to the same ticks.
pub trait Schedule: fmt::Debug + Send + Sync {
    /// The schedule as text, at most [`AnySchedule::MAX_BYTES`] bytes: what the store keeps. Schedules of the same
    /// text are the same.
    fn text(&self) -> &str;

    /// The first tick later than both `base` and `after`; `None` if there is none any more.
    fn next(&self, base: Tick, after: Timestamp) -> Option<Tick>;

    /// The last tick at or before `until`; the base itself if there was none since, `None` if even that lies ahead.
    fn latest(&self, base: Tick, until: Timestamp) -> Option<Tick>;

    /// When tick `n`, not before the base, is due.
    fn at(&self, base: Tick, n: u64) -> Timestamp;

    /// How many ticks have numbers above `after`, up to and with `n`. May stop counting at a thousand. Numbers below
    /// the base's are another schedule's: they may be counted as if this one had held then, or not at all.
    fn count(&self, base: Tick, after: u64, n: u64) -> u64;

    /// How exactly a tick is to be met: beyond it the store's time is asked for again before the tick.
    fn tolerance(&self) -> Duration;

    /// Whether, once the store's clock stands before the last tick, the schedule goes on from now and the next number.
    /// If not, it waits until the clock has passed that tick again.
    fn rebases(&self) -> bool;
}

/// Any [`Schedule`]. Cloning shares it; two are equal if their texts are.
#[derive(Clone)]
pub struct AnySchedule(Arc<dyn Schedule>);

impl AnySchedule {
    /// The longest text of a schedule, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Shares a schedule.
    #[must_use]
    pub fn new(schedule: impl Schedule + 'static) -> Self {
        Self(Arc::new(schedule))
    }

    /// Reads the text of a schedule that the core has: a fixed period. `None` if it is another.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Every::parse(text).map(Self::new)
    }
}

impl core::ops::Deref for AnySchedule {
    type Target = dyn Schedule;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for AnySchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for AnySchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl PartialEq for AnySchedule {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for AnySchedule {}

impl Hash for AnySchedule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl From<Every> for AnySchedule {
    fn from(every: Every) -> Self {
        Self::new(every)
    }
}

/// A tick each period, see [`Every::new`].
impl TryFrom<Duration> for AnySchedule {
    type Error = ConfigError;

    fn try_from(period: Duration) -> Result<Self, ConfigError> {
        Every::new(period).map(Self::new)
    }
}

/// A fixed period: tick n is due n periods after the base. Its text is `every 0.2s`, in decimal seconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Every {
    period: Duration,
    text: String,
}

impl Every {
    /// Below this, asking a store takes longer than the period.
    pub const MIN: Duration = Duration::from_millis(10);
    /// A hundred years.
    pub const MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

    /// A tick each `period`.
    ///
    /// # Errors
    /// [`ConfigError`] if the period is shorter than 10 ms or longer than 100 years.
    pub fn new(period: Duration) -> Result<Self, ConfigError> {
        if period < Self::MIN || period > Self::MAX {
            let rule = format!("must lie between {:?} and 100 years", Self::MIN);
            return Err(ConfigError::new("period", format!("{}", readable(period)), rule));
        }
        let fraction = format!("{:09}", period.subsec_nanos());
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        let text = format!("every {}{dot}{fraction}s", period.as_secs());
        Ok(Self { period, text })
    }

    /// The time between two ticks.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Reads what [`Schedule::text`] says.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("every ")?.strip_suffix('s')?;
        let (seconds, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if fraction.len() > 9 || !seconds.bytes().chain(fraction.bytes()).all(|digit| digit.is_ascii_digit())
        {
            return None;
        }
        let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
        let every = Self::new(Duration::new(seconds.parse().ok()?, nanos)).ok()?;
        (every.text == text).then_some(every)
    }

    fn period_nanos(&self) -> u64 {
        nanos(self.period)
    }

    fn tick(&self, base: Tick, periods: u64) -> Tick {
        let after = Duration::from_nanos(periods.saturating_mul(self.period_nanos()));
        Tick { n: base.n.saturating_add(periods), at: base.at + after }
    }

    /// How many periods have passed since the base.
    fn passed(&self, base: Tick, at: Timestamp) -> u64 {
        nanos(at.saturating_since(base.at)) / self.period_nanos()
    }
}

impl Schedule for Every {
    fn text(&self) -> &str {
        &self.text
    }

    fn next(&self, base: Tick, after: Timestamp) -> Option<Tick> {
        let next = self.tick(base, self.passed(base, after).saturating_add(1));
        // At the end of time the clock stands still, and so does the schedule.
        (next.at > after && next.at < Timestamp::MAX).then_some(next)
    }

    fn latest(&self, base: Tick, until: Timestamp) -> Option<Tick> {
        (base.at <= until).then(|| self.tick(base, self.passed(base, until)))
    }

    fn at(&self, base: Tick, n: u64) -> Timestamp {
        self.tick(base, n.saturating_sub(base.n)).at
    }

    fn count(&self, base: Tick, after: u64, n: u64) -> u64 {
        // A schedule before this one may have had numbers far apart.
        let before = base.n.saturating_sub(after).min(1000);
        before.saturating_add(n.saturating_sub(after.max(base.n)))
    }

    fn tolerance(&self) -> Duration {
        MIN_TOLERANCE.max(self.period / 1000)
    }

    fn rebases(&self) -> bool {
        true
    }
}

/// No tick is met more exactly than this: what a busy machine needs to wake up.
pub const MIN_TOLERANCE: Duration = Duration::from_millis(20);
