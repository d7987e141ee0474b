//! Times as the server writes them, and lengths of time as it takes them.

use std::time::Duration;

use tenure_core::Timestamp;

/// Reads a time like `2026-12-01T13:05:29.627076835Z` (RFC 3339, always in UTC).
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [hour, minute, second] = numbers(clock, ':')?;
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
        || fraction.len() > 9
        || !fraction.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp::from_nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

/// Three numbers without a sign.
fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let mut parts = text.split(between).map(|part| {
        let digits = !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| digits)
    });
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// Days from 1970 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin with March here, so that the leap day comes last.
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (month * 153 + 2) / 5
        + day
        - 719_469
}

/// A TTL as the server takes it: whole seconds, never shorter than was asked for.
pub(crate) fn seconds(ttl: Duration) -> u64 {
    (ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).max(1)
}

/// Reads what the server keeps of a TTL: `15`, `15s`, `1m0s`, `24h0m0s`; `None` also for `never`.
pub(crate) fn ttl(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let scale = match &rest[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * scale).ok()?;
        rest = &rest[unit..];
    }
    (!total.is_zero()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_the_server_are_read() {
        let read = |text| parse(text).map(Timestamp::as_nanos);
        assert_eq!(read("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(read("2026-12-01T13:05:29.627076835Z"), Some(1_796_130_329_627_076_835));
        assert_eq!(read("2024-02-29T23:59:59.5Z"), Some(1_709_251_199_500_000_000));
        assert_eq!(read("2000-03-01T00:00:00Z"), Some(951_868_800_000_000_000));
        assert_eq!(read("1969-12-31T23:59:59Z"), Some(-1_000_000_000));
        for wrong in [
            "",
            "Z",
            "2026-12-01",
            "2026-12-01T13:05:29",
            "2026-13-01T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T13:05:29+01:00",
            "2026-12-01T13:05Z",
            "2026-12-01T13:05:29.1234567890Z",
            "+026-12-01T00:00:00Z",
            "0001-01-01T00:00:00Z",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_ttl_is_rounded_up_to_whole_seconds() {
        for (ttl, expected) in [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (2900, 3), (15_000, 15)] {
            assert_eq!(seconds(Duration::from_millis(ttl)), expected, "{ttl} ms");
        }
        assert_eq!(seconds(Duration::from_nanos(1_000_000_001)), 2);
    }

    #[test]
    fn the_ttls_that_servers_keep_are_read() {
        for (text, expected) in [("15", 15_000), ("15s", 15_000), ("1m0s", 60_000), ("24h0m1s", 86_401_000)] {
            assert_eq!(ttl(text), Some(Duration::from_millis(expected)), "{text}");
        }
        assert_eq!(ttl("1.5s"), Some(Duration::from_millis(1500)));
        for none in ["", "never", "s", "1", "5x", "-1s", "0s"] {
            assert_eq!(ttl(none), (none == "1").then_some(Duration::from_secs(1)), "{none}");
        }
    }
}
