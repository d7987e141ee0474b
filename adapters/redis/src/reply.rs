//! What scripts answer about records, and how often they are asked: what is decided here is read before and written
//! afterwards, on the condition that nobody has changed it meanwhile.

use std::time::Duration;

use redis::Value;
use tenure_core::{Instant, Timestamp};
use tenure_json::Unreadable;
use tenure_store::{StoreError, StoreErrorKind, StoreTime, clock};

use crate::error::strange;
use crate::sleep::sleep;

/// Timers and the runs of jobs are kept so long after they were last of interest: longer than a year, so that what
/// happens once a year is not forgotten in between.
pub(crate) const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// What stands at this key is none of ours.
pub(crate) fn foreign(key: &[u8]) -> StoreError {
    StoreError::rejected(format!(
        "the key {:?} holds something of another program: remove it there, or choose another prefix for this store",
        String::from_utf8_lossy(key)
    ))
}

/// The error of whoever needs what stands at this key; `advice` tells what can be done about a record of ours.
pub(crate) fn unreadable(problem: &Unreadable, key: &[u8], advice: &str) -> StoreError {
    match problem {
        Unreadable::Foreign => foreign(key),
        Unreadable::Problem(problem) => {
            StoreError::unsupported(format!("{problem} (key {:?}); {advice}", String::from_utf8_lossy(key)))
        }
    }
}

/// The parts of an answer; an error if it says that this key is none of ours.
pub(crate) fn parts<'a>(answer: &'a Value, key: &[u8]) -> Result<&'a [Value], StoreError> {
    let Value::Array(parts) = answer else { return Err(strange(answer)) };
    match &parts[..] {
        [Value::BulkString(what), Value::BulkString(other)] if what == b"type" => {
            Err(foreign(if other.is_empty() { key } else { other }))
        }
        parts => Ok(parts),
    }
}

/// The server's time, by which everything expires here, in seconds and microseconds.
pub(crate) fn time(seconds: &Value, micros: &Value) -> Option<StoreTime> {
    let micros = number(seconds)?.saturating_mul(1_000_000).saturating_add(number(micros)?);
    let nanos = micros.saturating_mul(1000);
    let wall = Timestamp::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX));
    Some(StoreTime { wall, now: Instant::from_nanos(nanos) })
}

/// A number, as text.
pub(crate) fn number(value: &Value) -> Option<u64> {
    str::from_utf8(bytes(value)?).ok()?.parse().ok()
}

/// What stands there; `None` if nothing does.
pub(crate) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// An instant in microseconds, rounded up: what is over at it is over at each instant of a clock of microseconds from then
/// on, and at none before.
pub(crate) fn micros(at: Instant) -> u64 {
    at.as_nanos().div_ceil(1000)
}

/// A request that only reads has done nothing, whatever became of it.
pub(crate) fn only_read(mut error: StoreError) -> StoreError {
    if error.kind == StoreErrorKind::Unknown {
        error.kind = StoreErrorKind::Transient;
    }
    error
}

/// Somebody else was faster: waits a moment, so that those who meet don't meet again.
///
/// # Errors
/// There is no time for another attempt.
pub(crate) async fn again(until: Instant) -> Result<(), StoreError> {
    let mut bits = [0; 1];
    // Without random numbers all wait equally long, which does no harm where one of them always succeeds.
    let _ = getrandom::fill(&mut bits);
    let pause = Duration::from_millis(1 + u64::from(bits[0]) % 20);
    if clock::now() + pause >= until {
        return Err(StoreError::transient("others change the same record all the time; nothing was done"));
    }
    sleep(pause).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sleep::block_on;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_time_of_the_server_is_read_whatever_it_is() {
        let at = |seconds, micros| time(&text(seconds), &text(micros));
        let read = at("1790000000", "000123").unwrap();
        assert_eq!(read.wall, Timestamp::from_nanos(1_790_000_000_000_123_000));
        assert_eq!(read.now, Instant::from_nanos(1_790_000_000_000_123_000));
        assert_eq!(at("18446744073709551615", "9").unwrap().wall, Timestamp::MAX);
        assert_eq!(at("0", "0").unwrap().now, Instant::ZERO);
        for wrong in ["", "-1", "1.5", "x", "18446744073709551616"] {
            assert_eq!(at(wrong, "0"), None);
            assert_eq!(at("0", wrong), None);
        }
        assert_eq!(time(&Value::Int(1), &text("0")), None);
    }

    #[test]
    fn an_end_is_over_by_the_clock_of_the_server_when_it_is_by_the_record() {
        for nanos in [0, 1, 999, 1000, 1001, u64::MAX] {
            let end = Instant::from_nanos(nanos);
            let first = micros(end);
            assert!(first.checked_mul(1000).is_none_or(|over| over >= nanos), "{nanos}");
            assert!(first == 0 || (first - 1) * 1000 < nanos, "{nanos}");
        }
    }

    #[test]
    fn who_only_read_has_done_nothing() {
        assert_eq!(only_read(StoreError::unknown("x")), StoreError::transient("x"));
        assert_eq!(only_read(StoreError::rejected("x")), StoreError::rejected("x"));
    }

    #[test]
    fn who_has_time_tries_again_and_who_has_none_has_done_nothing() {
        let minute = Duration::from_secs(60);
        assert_eq!(block_on(again(clock::now() + minute)), Ok(()));
        let error = block_on(again(clock::now())).expect_err("no pause is that short");
        assert_eq!(error.kind, StoreErrorKind::Transient);
    }
}
