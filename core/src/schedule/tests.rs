//! A fixed period: its numbers, its times, its text.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use super::{AnySchedule, Every, MIN_TOLERANCE, Schedule, Tick};
use crate::jitter::{Jitter, SplitMix};
use crate::time::Timestamp;

const SECOND: i64 = 1_000_000_000;

fn at(nanos: i64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn every(millis: u64) -> Every {
    Every::new(Duration::from_millis(millis)).expect("a fine period")
}

#[test]
fn the_first_tick_is_a_period_after_the_base_and_each_has_the_next_number() {
    let schedule = every(1_500);
    let base = Tick { n: 40, at: at(10 * SECOND) };
    let first = Tick { n: 41, at: at(11_500_000_000) };
    assert_eq!(schedule.next(base, at(0)), Some(first), "not before the base");
    assert_eq!(schedule.next(base, base.at), Some(first));
    assert_eq!(schedule.next(base, at(11_499_999_999)), Some(first));
    let second = Tick { n: 42, at: at(13 * SECOND) };
    assert_eq!(schedule.next(base, first.at), Some(second), "later than the tick itself");
    assert_eq!(schedule.latest(base, at(12_999_999_999)), Some(first));
    assert_eq!(schedule.latest(base, second.at), Some(second));
    assert_eq!(schedule.latest(base, base.at), Some(base), "the base itself");
    assert_eq!(schedule.latest(base, at(9_999_999_999)), None, "even the base lies ahead");
    assert_eq!((schedule.at(base, 42), schedule.at(base, 40)), (second.at, base.at));
    assert_eq!(schedule.at(base, 3), base.at, "a number before the base");
}

#[test]
fn next_and_latest_agree_whatever_the_base_and_the_time() {
    let mut dice = SplitMix::new(11);
    for _ in 0..20_000 {
        let schedule = every(10 + dice.below(1_000_000));
        let time = |dice: &mut SplitMix| at(dice.below(1 << 62) as i64 - (1 << 61));
        let base = Tick { n: dice.below(1 << 40), at: time(&mut dice) };
        let now = time(&mut dice);
        let next = schedule.next(base, now).expect("far from the end of time");
        assert!(next.at > now && next.at > base.at && next.n > base.n);
        assert_eq!(schedule.at(base, next.n), next.at);
        assert_eq!(schedule.latest(base, next.at), Some(next));
        let before = schedule.latest(base, at(next.at.as_nanos() - 1));
        assert_eq!(before.map(|tick| tick.n + 1), Some(next.n));
        assert_eq!(schedule.latest(base, now).is_some(), base.at <= now);
        if let Some(latest) = schedule.latest(base, now) {
            assert!(latest.at <= now && latest.n + 1 == next.n);
            assert_eq!(schedule.next(base, latest.at), Some(next));
        }
    }
}

#[test]
fn at_the_end_of_time_there_is_no_next_tick() {
    let schedule = every(1_000);
    for base in [Timestamp::EPOCH, at(i64::MIN), at(i64::MAX - SECOND), Timestamp::MAX] {
        let base = Tick { n: 0, at: base };
        for after in [Timestamp::MAX, at(i64::MAX - 1)] {
            assert_eq!(schedule.next(base, after), None);
        }
    }
    let longest = Every::new(Every::MAX).expect("as long as may be");
    let base = Tick { n: u64::MAX - 1, at: at(i64::MIN) };
    assert_eq!(longest.next(base, Timestamp::MAX), None);
    assert_eq!(longest.next(base, at(i64::MIN)).map(|tick| tick.n), Some(u64::MAX));
    assert_eq!(longest.latest(base, Timestamp::MAX).map(|tick| tick.n), Some(u64::MAX), "numbers end, too");
    assert_eq!(longest.at(base, u64::MAX), at(i64::MIN) + Every::MAX);
    assert_eq!(longest.at(Tick { n: 0, ..base }, u64::MAX), Timestamp::MAX);
}

#[test]
fn numbers_are_counted_each_above_and_up_to_the_given_ones() {
    let schedule = every(1_000);
    let base = Tick { n: 5, at: at(0) };
    assert_eq!(schedule.count(base, 7, 10), 3);
    assert_eq!(schedule.count(base, 10, 10), 0);
    assert_eq!(schedule.count(base, 11, 10), 0);
    assert_eq!(schedule.count(base, 2, 10), 8, "as if it had held before the base, too");
    let far = Tick { n: 1_700_000_000, at: at(0) };
    assert_eq!(schedule.count(far, 3, far.n + 2), 1_002, "but numbers before it may be far apart");
    assert_eq!(schedule.count(base, 0, u64::MAX), u64::MAX);
}

#[test]
fn a_period_of_nothing_or_of_ages_is_refused() {
    for period in [Duration::ZERO, Duration::from_nanos(9_999_999), Every::MAX + Duration::from_nanos(1)] {
        let refused = Every::new(period).expect_err("out of bounds");
        assert_eq!(refused.field, "period");
        assert!(refused.to_string().contains("must lie between 10ms and 100 years"), "{refused}");
    }
    for period in [Every::MIN, Every::MAX] {
        assert_eq!(Every::new(period).map(|every| every.period()), Ok(period));
    }
}

#[test]
fn the_text_of_a_period_is_read_back_and_no_other_text_means_the_same() {
    let texts = [
        (Duration::from_millis(10), "every 0.01s"),
        (Duration::from_millis(200), "every 0.2s"),
        (Duration::from_secs(90), "every 90s"),
        (Duration::new(1, 1), "every 1.000000001s"),
        (Every::MAX, "every 3153600000s"),
    ];
    for (period, text) in texts {
        let every = Every::new(period).expect("a fine period");
        assert_eq!(every.text(), text);
        assert_eq!(Every::parse(text), Some(every.clone()));
        assert_eq!(AnySchedule::parse(text), Some(every.into()));
        assert!(text.len() <= AnySchedule::MAX_BYTES);
    }
    let others = [
        "",
        "every",
        "every ",
        "every s",
        "every .5s",
        "every 1.s",
        "every 1.0s",
        "every 01s",
        "every 1",
        "every 1S",
        "every  1s",
        " every 1s",
        "every 1s ",
        "every +1s",
        "every -1s",
        "every 1e3s",
        "every 0.0000000001s",
        "every 0.001s",
        "every 0s",
        "every 3153600001s",
        "every 99999999999999999999999s",
        "every ١s",
        "every 1.٥s",
        "EVERY 1s",
        "every 1.5.5s",
    ];
    for text in others {
        assert_eq!(Every::parse(text), None, "{text:?}");
    }
}

#[test]
fn no_tick_is_to_be_met_more_exactly_than_a_busy_machine_wakes_up() {
    assert_eq!(every(100).tolerance(), MIN_TOLERANCE);
    assert_eq!(every(3_600_000).tolerance(), Duration::from_millis(3_600));
}

#[test]
fn schedules_of_the_same_text_are_the_same() {
    let (a, b): (AnySchedule, AnySchedule) = (every(100).into(), every(100).into());
    assert_eq!(a, b);
    assert_ne!(a, every(101).into());
    assert_eq!(format!("{a} {a:?}"), "every 0.1s every 0.1s");
    let hash = |schedule: &AnySchedule| {
        use core::hash::{Hash, Hasher};
        /// Keeps what it is given.
        #[derive(Default)]
        struct Bytes(Vec<u8>);
        impl Hasher for Bytes {
            fn write(&mut self, bytes: &[u8]) {
                self.0.extend(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let mut bytes = Bytes::default();
        schedule.hash(&mut bytes);
        bytes.0
    };
    assert_eq!(hash(&a), hash(&b));
}
