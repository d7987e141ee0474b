//! Times of day.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use tenure_driver::core::Timestamp;

/// A time of day, as a [`Fleet`](crate::Fleet) takes one: a [`Timestamp`], a [`SystemTime`], or a text like
/// `2026-12-01T02:00:00Z` or `2026-12-01T02:00:00+01:00`. Seconds may have a fraction, and may be left out.
pub trait WallTime {
    /// The time.
    ///
    /// # Panics
    /// If it is a text that names no time.
    fn timestamp(self) -> Timestamp;
}

impl WallTime for Timestamp {
    fn timestamp(self) -> Timestamp {
        self
    }
}

impl WallTime for SystemTime {
    fn timestamp(self) -> Timestamp {
        match self.duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp::EPOCH + since,
            Err(before) => Timestamp::EPOCH.saturating_sub(before.duration()),
        }
    }
}

impl WallTime for &str {
    fn timestamp(self) -> Timestamp {
        match read(self) {
            Some(time) => time,
            None => {
                panic!("{self:?} is no time: write it like 2026-12-01T02:00:00Z or 2026-12-01T02:00:00+01:00")
            }
        }
    }
}

const SECOND: i64 = 1_000_000_000;

fn read(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(['T', ' '])?;
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    if !(1678..=2261).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=days_in(year, month)).contains(&day)
    {
        return None;
    }
    let (time, offset) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let place = time.rfind(['+', '-'])?;
            let (hours, minutes) = time.get(place + 1..)?.split_once(':')?;
            let (hours, minutes) = (below(24, hours)?, below(60, minutes)?);
            let sign = if time.as_bytes()[place] == b'-' { -1 } else { 1 };
            (&time[..place], sign * (hours * 3600 + minutes * 60))
        }
    };
    let (hours, rest) = time.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':').unwrap_or((rest, "00"));
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let (hours, minutes, seconds) = (below(24, hours)?, below(60, minutes)?, below(60, seconds)?);
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let nanos = number(&format!("{fraction:0<9}"))?;
    let days = days_since_1970(year, month, day);
    let seconds = days * 86_400 + hours * 3600 + minutes * 60 + seconds - offset;
    Some(Timestamp::from_nanos(seconds.checked_mul(SECOND)?.checked_add(nanos)?))
}

fn number(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn below(bound: i64, text: &str) -> Option<i64> {
    number(text).filter(|number| *number < bound && text.len() == 2)
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Of the Gregorian calendar, with years that begin in March so that a leap day comes last.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leap_days = year / 4 - year / 100 + year / 400;
    // 719,468 days lie between the first of March of the year 0 and 1970.
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// A time as people read it, in UTC.
pub(crate) struct Utc(pub(crate) Timestamp);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (seconds, fraction) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // A timestamp is within 300 years of 1970: a walk is short, and needs no second formula.
        let (mut year, mut left) = (1970, days);
        while left < 0 {
            year -= 1;
            left += 365 + i64::from(is_leap(year));
        }
        while left >= 365 + i64::from(is_leap(year)) {
            left -= 365 + i64::from(is_leap(year));
            year += 1;
        }
        let mut month = 1;
        while left >= days_in(year, month) {
            left -= days_in(year, month);
            month += 1;
        }
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(f, "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{:02}", left + 1, second % 60)?;
        if fraction != 0 {
            write!(f, ".{:03}", fraction / 1_000_000)?;
        }
        f.write_str("Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_calendar_has_them() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T12:00Z", 951_825_600),
            ("2026-12-01T02:00:00+01:00", 1_796_086_800),
            ("2026-11-30 20:00:00-05:00", 1_796_086_800),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("1900-03-01T00:00:00Z", -2_203_891_200),
        ] {
            assert_eq!(text.timestamp(), Timestamp::from_nanos(seconds * SECOND), "{text}");
        }
        assert_eq!("1970-01-01T00:00:00.25Z".timestamp(), Timestamp::from_nanos(SECOND / 4));
        assert_eq!(
            (UNIX_EPOCH + std::time::Duration::from_secs(5)).timestamp(),
            Timestamp::from_nanos(5 * SECOND)
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        for day in -80_000_i64..80_000 {
            let time = Timestamp::from_nanos((day * 86_400 + day.rem_euclid(86_400)) * SECOND + 1_000_000);
            assert_eq!(Utc(time).to_string().as_str().timestamp(), time);
        }
        assert_eq!(Utc("2026-12-01T02:00:00Z".timestamp()).to_string(), "2026-12-01T02:00:00Z");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "02:00",
            "2026-12-01",
            "2026-12-01T02:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T2:00:00Z",
            "2026-12-01T02:00:00.Z",
            "2026-12-01T02:00:00.1234567890Z",
            "2026-12-01T02:00:00+1",
            "2026-12-01T02:00:00+ä0:00",
            "9999-12-01T02:00:00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
