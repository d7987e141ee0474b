//! The search on the wall clock, which knows of no zone: the next and the last time that an expression means.
//!
//! Croner has a search of its own. It is not used: it goes on for three thousand years where there is nothing to find,
//! it takes lists of fixed times for intervals where clocks are changed, and it would tie this crate to the release
//! of jiff that it knows. What it is used for is the harder part, which days an expression means.

use jiff::civil;

#[cfg(test)]
mod tests;

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Date(civil::Date);

const DAY: i64 = 24 * 3600;
/// After so many years without a day there is none: the longest time between two days that an expression may mean is
/// the one between two 29ths of February on the same day of the week, 40 years around 2100.
const HORIZON: i16 = 41;

impl Date {
    const EPOCH: Self = Self(civil::Date::constant(1970, 1, 1));

    /// The day of this second of the wall clock; `None` outside of the years that a calendar has.
    fn of(wall: i64) -> Option<Self> {
        let days = i32::try_from(wall.div_euclid(DAY)).ok()?;
        let span = jiff::Span::new().try_days(days).ok()?;
        Self::EPOCH.0.checked_add(span).ok().map(Self)
    }

    /// The first second of this day.
    fn begin(self) -> i64 {
        let days = (self.0 - Self::EPOCH.0).get_days();
        i64::from(days) * DAY
    }

    pub(crate) fn year(self) -> i16 {
        self.0.year()
    }

    pub(crate) fn month(self) -> u8 {
        self.0.month().unsigned_abs()
    }

    pub(crate) fn day(self) -> u8 {
        self.0.day().unsigned_abs()
    }

    /// 0 is Sunday.
    pub(crate) fn weekday(self) -> u8 {
        self.0.weekday().to_sunday_zero_offset().unsigned_abs()
    }

    /// Days among which there is each day of the year on each day of the week.
    pub(crate) fn of_a_cycle() -> impl Iterator<Item = Self> {
        let begin = Self(civil::Date::constant(2000, 1, 1));
        core::iter::successors(Some(begin), |date| date.0.tomorrow().ok().map(Self))
            .take_while(|date| date.year() < 2030)
    }

    /// The days from this one on, without the months of which `days` wants nothing.
    fn forth(self, days: &impl Days) -> impl Iterator<Item = Self> {
        let last = self.year().saturating_add(HORIZON);
        let next = |date: &Self| {
            let next =
                if days.is_in(date.month()) { date.0.tomorrow() } else { date.0.last_of_month().tomorrow() };
            next.ok().map(Self)
        };
        core::iter::successors(Some(self), next).take_while(move |date| date.year() <= last)
    }

    /// The days from this one back, without the months of which `days` wants nothing.
    fn back(self, days: &impl Days) -> impl Iterator<Item = Self> {
        let first = self.year().saturating_sub(HORIZON);
        let next = |date: &Self| {
            let next = if days.is_in(date.month()) {
                date.0.yesterday()
            } else {
                date.0.first_of_month().yesterday()
            };
            next.ok().map(Self)
        };
        core::iter::successors(Some(self), next).take_while(move |date| date.year() >= first)
    }
}

/// Which days are meant.
pub(crate) trait Days {
    /// Whether any day of this month may be.
    fn is_in(&self, month: u8) -> bool;
    /// Whether this day is.
    fn is_on(&self, date: Date) -> bool;
}

/// Which times of a day are meant: each of the hours with each of the minutes and each of the seconds, in order.
#[derive(Clone, Debug)]
pub(crate) struct TimesOfDay {
    pub(crate) hours: Vec<i64>,
    pub(crate) minutes: Vec<i64>,
    pub(crate) seconds: Vec<i64>,
}

impl TimesOfDay {
    pub(crate) fn is_empty(&self) -> bool {
        self.hours.is_empty() || self.minutes.is_empty() || self.seconds.is_empty()
    }

    /// The first time at or after this second of the day.
    fn next(&self, of_day: i64) -> Option<i64> {
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let at_or_after = |values: &[i64], least: i64| values.iter().copied().find(|value| *value >= least);
        let (first_minute, first_second) = (*self.minutes.first()?, *self.seconds.first()?);
        if self.hours.contains(&hour) {
            if self.minutes.contains(&minute)
                && let Some(second) = at_or_after(&self.seconds, second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = at_or_after(&self.minutes, minute + 1) {
                return Some(hour * 3600 + minute * 60 + first_second);
            }
        }
        at_or_after(&self.hours, hour + 1).map(|hour| hour * 3600 + first_minute * 60 + first_second)
    }

    /// The last time at or before this second of the day.
    fn latest(&self, of_day: i64) -> Option<i64> {
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let at_or_before =
            |values: &[i64], most: i64| values.iter().rev().copied().find(|value| *value <= most);
        let (last_minute, last_second) = (*self.minutes.last()?, *self.seconds.last()?);
        if self.hours.contains(&hour) {
            if self.minutes.contains(&minute)
                && let Some(second) = at_or_before(&self.seconds, second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = at_or_before(&self.minutes, minute - 1) {
                return Some(hour * 3600 + minute * 60 + last_second);
            }
        }
        at_or_before(&self.hours, hour - 1).map(|hour| hour * 3600 + last_minute * 60 + last_second)
    }
}

/// The first meant time at or after this second of the wall clock.
pub(crate) fn next(days: &impl Days, times: &TimesOfDay, wall: i64) -> Option<i64> {
    let first = Date::of(wall)?;
    for date in first.forth(days).filter(|date| days.is_on(*date)) {
        let from = if date == first { wall.rem_euclid(DAY) } else { 0 };
        if let Some(time) = times.next(from) {
            return Some(date.begin() + time);
        }
    }
    None
}

/// The last meant time at or before this second of the wall clock.
pub(crate) fn latest(days: &impl Days, times: &TimesOfDay, wall: i64) -> Option<i64> {
    let last = Date::of(wall)?;
    for date in last.back(days).filter(|date| days.is_on(*date)) {
        let until = if date == last { wall.rem_euclid(DAY) } else { DAY - 1 };
        if let Some(time) = times.latest(until) {
            return Some(date.begin() + time);
        }
    }
    None
}
