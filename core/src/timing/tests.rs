use alloc::format;
use alloc::string::ToString;
use core::time::Duration;

use super::{LeaseConfig, LeaseTiming, StoreClock};
use crate::time::{Rate, nanos, readable};

const PERFECT: StoreClock = StoreClock { drift: Rate::ZERO, quantum: Duration::ZERO, step: Duration::ZERO };

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn defaults() -> LeaseTiming {
    LeaseConfig::default().resolve(&StoreClock::default()).expect("the defaults fit")
}

/// The field of the refusal.
fn refused(config: LeaseConfig) -> &'static str {
    let error = config.resolve(&StoreClock::default()).expect_err("refused");
    let text = error.to_string();
    assert!(text.starts_with(error.field) && text.contains(&error.value) && text.contains("must"), "{text}");
    error.field
}

#[test]
fn validity_is_the_ttl_less_the_drift_of_both_clocks_the_grain_and_the_step() {
    let clock = StoreClock {
        drift: Rate::from_ppm(10_000),
        quantum: Duration::from_millis(1),
        step: Duration::from_millis(250),
    };
    let timing = LeaseConfig::new(secs(15)).resolve(&clock).expect("fits");
    // floor(15e9 * 990000 / 1010000) - 1e6 - 250e6
    assert_eq!(timing.valid_for(), Duration::from_nanos(14_702_970_297 - 251_000_000));
    assert_eq!(
        LeaseConfig::new(secs(15)).drift(Rate::ZERO).resolve(&PERFECT).expect("fits").valid_for(),
        secs(15)
    );
}

/// S2.
#[test]
fn no_rounding_makes_the_lease_valid_for_longer_than_the_store_keeps_it() {
    for ttl in (50_000_001..5_000_000_000_u64).step_by(7_919_993) {
        for (own, stores) in [(10_000, 10_000), (1, 3), (199_999, 7), (3, 199_999)] {
            let clock = StoreClock { drift: Rate::from_ppm(stores), ..PERFECT };
            let config = LeaseConfig::new(Duration::from_nanos(ttl)).drift(Rate::from_ppm(own));
            let timing = config.resolve(&clock).expect("fits");
            // In true time: the holder's clock may be slow, the store's may be fast.
            let holder = u128::from(nanos(timing.valid_for())) * u128::from(1_000_000 + stores);
            let store = u128::from(ttl) * u128::from(1_000_000 - own);
            assert!(holder <= store, "ttl {ttl}, drift {own} and {stores}");
            let (late, early) = (u128::from(1_000_000 + own), u128::from(1_000_000 - stores));
            let over = u128::from(nanos(timing.outlived_after()));
            assert!(over * early >= u128::from(ttl) * late, "ttl {ttl}: outlived too early");
        }
    }
}

#[test]
fn a_record_that_was_outlived_is_over_though_it_was_kept_a_grain_longer_and_the_stores_clock_stepped_back() {
    let (quantum, step) = (Duration::from_millis(1), Duration::from_millis(250));
    let clock = StoreClock { drift: Rate::from_ppm(10_000), quantum, step };
    let timing = LeaseConfig::new(secs(15)).resolve(&clock).expect("fits");
    // The holder's clock runs fast while it counts, and the store's slow.
    let counted = u128::from(nanos(timing.outlived_after()));
    let kept = u128::from(nanos(secs(15) + quantum + step));
    assert!(counted * 990_000 >= kept * 1_010_000, "over after {counted} ns is too early");
}

#[test]
fn the_defaults_are_those_that_are_documented() {
    let timing = defaults();
    assert_eq!(timing.ttl(), secs(15));
    assert_eq!(timing.stop_budget(), secs(2));
    assert_eq!(timing.kill_margin(), Duration::from_millis(250));
    assert_eq!(timing.renew_interval(), (timing.valid_for() - secs(2)) / 3);
    assert_eq!(timing.attempt_timeout(), timing.renew_interval() / 2);
    let short = LeaseConfig::new(secs(1)).resolve(&StoreClock::default()).expect("fits");
    assert_eq!(short.stop_budget(), short.valid_for() / 4);
    assert_eq!(short.kill_margin(), short.stop_budget() / 2);
}

#[test]
fn a_ttl_of_zero_one_millisecond_or_the_wrong_unit_is_refused() {
    for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1), Duration::from_micros(15)]
    {
        assert_eq!(refused(LeaseConfig::new(ttl)), "ttl");
    }
    // Fifteen seconds handed over as if they were milliseconds, and the other way round.
    assert_eq!(refused(LeaseConfig::new(Duration::from_millis(15))), "ttl");
    assert_eq!(refused(LeaseConfig::new(secs(15_000_000))), "ttl");
}

#[test]
fn the_refusal_of_a_ttl_names_the_least_that_works_with_the_stores_clock() {
    for step in [0, 1, 20, 100, 1_000].map(Duration::from_millis) {
        for ppm in [0, 10_000, 200_000] {
            let clock = StoreClock { step, drift: Rate::from_ppm(ppm), ..StoreClock::default() };
            let config = LeaseConfig::new(Duration::ZERO);
            let least = config.least_ttl(&clock);
            let error = config.resolve(&clock).expect_err("refused");
            let rule = format!("ttl is 0s, but it must lie between {} and 7d", readable(least));
            assert!(error.to_string().starts_with(&rule), "{error}");
            LeaseConfig::new(least).resolve(&clock).expect("the least that works");
            let shorter = LeaseConfig::new(least - Duration::from_millis(1));
            assert_eq!(shorter.resolve(&clock).expect_err("refused").field, "ttl");
        }
    }
    // As on Redis, with what follows from it.
    let clock = StoreClock { step: Duration::from_millis(100), ..StoreClock::default() };
    let error = LeaseConfig::new(Duration::from_millis(60)).resolve(&clock).expect_err("refused").to_string();
    assert!(error.contains("60ms") && error.contains("139ms") && error.contains("100ms"), "{error}");
}

#[test]
fn a_huge_ttl_is_refused_and_overflows_nothing() {
    for ttl in
        [Duration::MAX, Duration::from_millis(u64::MAX), secs(300 * 365 * 86_400), secs(i64::MAX as u64)]
    {
        assert_eq!(refused(LeaseConfig::new(ttl)), "ttl");
    }
    let longest = LeaseConfig::new(LeaseConfig::MAX_TTL).resolve(&StoreClock::default()).expect("fits");
    assert!(longest.valid_for() < LeaseConfig::MAX_TTL);
}

#[test]
fn a_renewal_period_as_long_as_the_ttl_or_more_than_half_of_it_is_refused() {
    for interval in [secs(15), secs(8), secs(7), secs(1_000), Duration::MAX, Duration::ZERO] {
        assert_eq!(refused(LeaseConfig::new(secs(15)).renew_interval(interval)), "renew_interval");
    }
    LeaseConfig::new(secs(15)).renew_interval(secs(6)).resolve(&StoreClock::default()).expect("fits");
}

#[test]
fn an_attempt_that_takes_more_than_half_of_the_interval_is_refused() {
    let config = LeaseConfig::new(secs(15)).renew_interval(secs(4));
    for timeout in [Duration::from_millis(2_001), Duration::MAX, Duration::ZERO] {
        assert_eq!(refused(config.attempt_timeout(timeout)), "attempt_timeout");
    }
    config.attempt_timeout(secs(2)).resolve(&StoreClock::default()).expect("fits");
}

#[test]
fn a_stop_budget_of_less_than_a_millisecond_or_of_more_than_half_is_refused() {
    // With a single nanosecond the hard stop would come at the end of validity, not before it.
    for budget in [Duration::ZERO, Duration::from_nanos(1), secs(8), secs(15), Duration::MAX] {
        assert_eq!(refused(LeaseConfig::new(secs(15)).stop_budget(budget)), "stop_budget");
    }
    let shortest = LeaseConfig::new(secs(15)).stop_budget(Duration::from_millis(1));
    let timing = shortest.resolve(&StoreClock::default()).expect("fits");
    assert_eq!(timing.kill_margin(), Duration::from_micros(500));
}

#[test]
fn a_clock_that_is_worse_than_any_is_refused_and_so_is_a_store_that_eats_the_ttl() {
    assert_eq!(refused(LeaseConfig::new(secs(15)).drift(Rate::from_ppm(200_001))), "drift");
    assert_eq!(refused(LeaseConfig::new(secs(15)).drift(Rate::from_ppm(u32::MAX))), "drift");
    let bad = StoreClock { drift: Rate::from_ppm(u32::MAX), ..PERFECT };
    assert_eq!(LeaseConfig::new(secs(15)).resolve(&bad).expect_err("refused").field, "store drift");
    let coarse = StoreClock { quantum: secs(1), step: Duration::MAX, ..PERFECT };
    assert_eq!(LeaseConfig::new(secs(15)).resolve(&coarse).expect_err("refused").field, "ttl");
}

#[test]
fn whatever_is_accepted_leaves_room_for_two_renewals_before_the_fence() {
    for ttl in [50, 60, 100, 1_000, 15_000, 3_600_000] {
        let timing =
            LeaseConfig::new(Duration::from_millis(ttl)).resolve(&StoreClock::default()).expect("fits");
        let usable = timing.valid_for() - timing.stop_budget();
        assert!(
            timing.renew_interval() * 2 <= usable && timing.attempt_timeout() * 2 <= timing.renew_interval()
        );
        assert!(!timing.kill_margin().is_zero() && timing.kill_margin() < timing.stop_budget());
    }
}

#[test]
fn a_period_of_no_time_is_no_schedule_and_the_refusal_names_the_value() {
    let error = crate::AnySchedule::try_from(Duration::ZERO).unwrap_err();
    assert_eq!((error.field, &*error.value), ("period", "0s"));
    let schedule = crate::AnySchedule::try_from(Duration::from_secs(90)).unwrap();
    assert_eq!(schedule.text(), "every 90s");
}
