//! Cron schedules with time zones for Tenure.
//!
//! ```
//! use tenure_cron::Cron;
//! use tenure_core::{Schedule, TimerOptions};
//!
//! let nightly = Cron::new("30 1 * * *", "Europe/Berlin")?;
//! assert_eq!(nightly.text(), "cron Europe/Berlin 30 1 * * *");
//!
//! let mut options = TimerOptions::new(nightly);
//! options.parse = tenure_cron::schedules;
//! # Ok::<(), tenure_cron::CronError>(())
//! ```
//!
//! The zone is part of the schedule, and so of what the store keeps: whoever takes over computes in the same one.
//! A tick's number is the Unix second for which it is scheduled.
//!
//! # Where clocks are changed
//!
//! | | a time that is left out | a time that comes twice |
//! |---|---|---|
//! | fixed times: hour, minute and second are numbers, or lists of them | once, at the first instant after the gap | once, the first time |
//! | intervals: hour, minute or second has a `*`, a range or a step | not at all: there is no such time | both times |
//!
//! So a job of each night runs once in each, and a job of each minute has neither a pause nor a tick twice.
//!
//! Every instance should have the same rules of time zones. They come from the system (`/usr/share/zoneinfo`), and
//! where it has none, as in many containers, from a copy in the program.

mod calendar;
mod error;
mod expression;
mod zone;

use core::fmt;
use core::time::Duration;

use jiff::tz::TimeZone;
use tenure_core::{AnySchedule, Schedule, Tick, Timestamp};

pub use error::CronError;
use expression::Expression;
use zone::Search;

/// Billions of nanoseconds.
const NANOS: i64 = 1_000_000_000;

/// A cron expression in a time zone. Its text is `cron Europe/Berlin 30 1 * * *`.
#[derive(Clone)]
pub struct Cron {
    expression: Expression,
    zone: TimeZone,
    text: String,
}

impl Cron {
    /// No tick of a list is counted beyond this.
    const MOST_COUNTED: u64 = 1000;

    /// A schedule of five fields (minute, hour, day of the month, month, day of the week), or six with the second
    /// before them, in a zone of the IANA's database, such as `Europe/Berlin` or `UTC`.
    ///
    /// Fields are as in cron: `*`, numbers, ranges, lists, steps (`*/15`, `9-17/2`), names of months and days of the
    /// week in any case. Sunday is 0 or 7. Where both the day of the month and that of the week are given, either
    /// one makes a day; a `+` before the latter asks for both. The day of the month may be `L` (the last), `15W` (the
    /// working day closest to it) or `LW`, the day of the week `5#2` (the second Friday) or `5L` (the last one).
    ///
    /// # Errors
    /// [`CronError`] names the field that can't be read, the zone that nobody knows, or says that there is no such
    /// day.
    pub fn new(expression: &str, time_zone: &str) -> Result<Self, CronError> {
        let expression = Expression::parse(expression)?;
        let zone = TimeZone::get(time_zone);
        let zone = zone.map_err(|_| CronError::UnknownZone { name: time_zone.into() })?;
        let name = zone.iana_name().ok_or_else(|| CronError::UnknownZone { name: time_zone.into() })?;
        let text = format!("cron {name} {}", expression.text());
        if text.len() > AnySchedule::MAX_BYTES {
            return Err(CronError::TooLong { bytes: text.len() });
        }
        Ok(Self { expression, zone, text })
    }

    /// Reads what [`Schedule::text`] says.
    ///
    /// # Errors
    /// [`CronError`], as for [`Cron::new`]; [`CronError::NotCron`] for any other text.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let rest = text.strip_prefix("cron ").ok_or_else(|| CronError::NotCron { text: text.into() })?;
        let (zone, expression) = rest.split_once(' ').unwrap_or((rest, ""));
        Self::new(expression, zone)
    }

    fn search(&self) -> Search<'_> {
        Search::new(&self.expression, &self.zone)
    }

    fn next_second(&self, base: Tick, after: Timestamp) -> Option<i64> {
        // Before 1970 there are no numbers.
        let from = seconds(base.at.max(after)).saturating_add(1).max(1);
        self.search().next(from)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Schedule for Cron {
    fn text(&self) -> &str {
        &self.text
    }

    fn next(&self, base: Tick, after: Timestamp) -> Option<Tick> {
        self.next_second(base, after).and_then(tick)
    }

    fn latest(&self, base: Tick, until: Timestamp) -> Option<Tick> {
        if base.at > until {
            return None;
        }
        let since = seconds(base.at).saturating_add(1).max(1);
        let latest = self.search().latest(since, seconds(until));
        Some(latest.and_then(tick).unwrap_or(base))
    }

    fn at(&self, base: Tick, n: u64) -> Timestamp {
        if n <= base.n {
            return base.at;
        }
        let nanos = i64::try_from(n).ok().and_then(|seconds| seconds.checked_mul(NANOS));
        nanos.map_or(Timestamp::MAX, Timestamp::from_nanos)
    }

    fn count(&self, base: Tick, after: u64, n: u64) -> u64 {
        let mut count = u64::from(after < base.n && base.n <= n);
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let mut last = after.max(seconds(base.at)).max(0);
        let mut search = self.search();
        while count < Self::MOST_COUNTED
            && let Some(next) = search.next(last.saturating_add(1))
            && u64::try_from(next).is_ok_and(|next| next <= n)
        {
            count += 1;
            last = next;
        }
        count
    }

    /// A quarter of a second: a tick comes in the second for which it is written, though the request for the time and
    /// the wake-up take theirs. Asking again costs little, since it is done once or twice for a tick.
    fn tolerance(&self) -> Duration {
        Duration::from_millis(250)
    }

    /// Its times are those of the wall clock: after a step back it waits until the clock has passed the last tick again.
    fn rebases(&self) -> bool {
        false
    }
}

impl From<Cron> for AnySchedule {
    fn from(cron: Cron) -> Self {
        Self::new(cron)
    }
}

/// Reads the text of a fixed period or of a cron schedule: for `TimerOptions::parse`.
#[must_use]
pub fn schedules(text: &str) -> Option<AnySchedule> {
    AnySchedule::parse(text).or_else(|| Cron::parse(text).ok().map(AnySchedule::from))
}

/// Whole seconds since 1970, rounded down.
fn seconds(at: Timestamp) -> i64 {
    at.as_nanos().div_euclid(NANOS)
}

/// The tick of a second; `None` at the end of time.
fn tick(second: i64) -> Option<Tick> {
    let at = Timestamp::from_nanos(second.checked_mul(NANOS)?);
    Some(Tick { n: u64::try_from(second).ok()?, at })
}
