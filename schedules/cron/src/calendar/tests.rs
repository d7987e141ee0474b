//! The search is bounded, and takes few steps.

use core::cell::Cell;

use super::{DAY, Date, Days, TimesOfDay, latest, next};

/// One day of the year, or none.
struct Yearly {
    month: u8,
    day: u8,
    asked: Cell<u32>,
}

impl Yearly {
    fn new(month: u8, day: u8) -> Self {
        Self { month, day, asked: Cell::new(0) }
    }
}

impl Days for Yearly {
    fn is_in(&self, month: u8) -> bool {
        self.asked.set(self.asked.get() + 1);
        month == self.month
    }

    fn is_on(&self, date: Date) -> bool {
        self.asked.set(self.asked.get() + 1);
        (date.month(), date.day()) == (self.month, self.day)
    }
}

fn noon() -> TimesOfDay {
    TimesOfDay { hours: vec![12], minutes: vec![0], seconds: vec![0] }
}

/// 2026-01-01.
const NOW: i64 = 20_454 * DAY;

#[test]
fn what_never_comes_is_given_up_after_some_thousands_of_steps_both_ways() {
    let never = Yearly::new(2, 30);
    assert_eq!((next(&never, &noon(), NOW), latest(&never, &noon(), NOW)), (None, None));
    assert!(never.asked.get() < 10_000, "{}", never.asked.get());
}

#[test]
fn months_of_which_nothing_is_wanted_are_passed_over() {
    let yearly = Yearly::new(12, 24);
    assert_eq!(next(&yearly, &noon(), NOW), Some(NOW + 357 * DAY + DAY / 2));
    assert_eq!(latest(&yearly, &noon(), NOW), Some(NOW - 8 * DAY + DAY / 2));
    assert!(yearly.asked.get() < 200, "{}", yearly.asked.get());
}

#[test]
fn the_time_itself_counts_both_ways_and_a_second_later_or_earlier_does_not() {
    let new_year = Yearly::new(1, 1);
    let at = NOW + DAY / 2;
    assert_eq!((next(&new_year, &noon(), at), latest(&new_year, &noon(), at)), (Some(at), Some(at)));
    assert_eq!(next(&new_year, &noon(), at + 1), Some(at + 365 * DAY));
    assert_eq!(latest(&new_year, &noon(), at - 1), Some(at - 365 * DAY));
}

#[test]
fn times_of_a_day_are_each_hour_with_each_minute_and_each_second() {
    let times = TimesOfDay { hours: vec![1, 5], minutes: vec![0, 30], seconds: vec![10, 50] };
    let mut all = Vec::new();
    let mut from = 0;
    while let Some(time) = times.next(from) {
        all.push(time);
        from = time + 1;
    }
    let expected: Vec<i64> =
        [3_600, 5_400, 18_000, 19_800].iter().flat_map(|at| [at + 10, at + 50]).collect();
    assert_eq!(all, expected);
    for second in 0..DAY {
        let after = expected.iter().copied().find(|time| *time >= second);
        let before = expected.iter().rev().copied().find(|time| *time <= second);
        assert_eq!((times.next(second), times.latest(second)), (after, before), "{second}");
    }
}

#[test]
fn outside_of_the_years_of_a_calendar_there_is_nothing_and_no_overflow() {
    for wall in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
        let yearly = Yearly::new(1, 1);
        assert_eq!((next(&yearly, &noon(), wall), latest(&yearly, &noon(), wall)), (None, None));
    }
}

#[test]
fn seconds_and_dates_go_together_before_1970_too() {
    for days in [-800_000_i64, -1, 0, 1, 20_454, 800_000] {
        let date = Date::of(days * DAY).expect("in the calendar");
        assert_eq!(date.begin(), days * DAY);
        assert_eq!(Date::of(days * DAY + DAY - 1), Some(date));
    }
    let epoch = Date::of(0).expect("in the calendar");
    assert_eq!((epoch.year(), epoch.month(), epoch.day(), epoch.weekday()), (1970, 1, 1, 4));
}
