//! Whatever the expression, the zone and the time: what comes next and what came last agree, and both agree with a walk
//! through every second.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use tenure_core::{Schedule, Tick, Timestamp};
use tenure_cron::Cron;

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Pacific/Apia",
];

/// Times near which the clocks of those zones are changed, and some others.
const TIMES: [i64; 8] = [
    1_774_746_000, // 2026-03-29, Berlin
    1_792_890_000, // 2026-10-25, Berlin
    1_772_953_200, // 2026-03-08, New York
    1_793_512_800, // 2026-11-01, New York
    1_791_041_400, // 2026-10-03, Lord Howe
    1_775_314_800, // 2026-04-04, Lord Howe
    1_325_239_200, // 2011-12-30, Apia
    1_709_164_800, // 2024-02-29
];

fn second(at: i64) -> Timestamp {
    Timestamp::from_nanos(at * 1_000_000_000)
}

fn field(least: u32, most: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        2 => (least..=most).prop_map(|value| value.to_string()),
        1 => (least..=most, least..=most).prop_map(|(a, b)| format!("{a},{b}")),
        1 => (least..=most, least..=most).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (1..=most.max(2)).prop_map(|step| format!("*/{step}")),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let seconds = prop_oneof![4 => Just("0".to_owned()), 1 => field(0, 59)];
    let days = prop_oneof![3 => field(1, 31), 1 => Just("L".to_owned())];
    (seconds, field(0, 59), field(0, 23), days, field(1, 12), field(0, 6))
        .prop_map(|(s, m, h, d, month, w)| format!("{s} {m} {h} {d} {month} {w}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn next_and_latest_agree_and_rise(
        expression in expression(), zone in 0..ZONES.len(), time in 0..TIMES.len(), off in -200_000_i64..200_000,
    ) {
        let Ok(cron) = Cron::new(&expression, ZONES[zone]) else { return Ok(()) };
        let from = TIMES[time] + off;
        let base = Tick { n: 0, at: second(from - 400_000) };
        let mut after = second(from);
        for _ in 0..20 {
            let Some(next) = cron.next(base, after) else { break };
            prop_assert!(next.at > after && next.at > base.at);
            prop_assert_eq!(cron.at(base, next.n), next.at);
            prop_assert_eq!(cron.latest(base, next.at), Some(next));
            prop_assert_eq!(cron.count(base, u64::try_from(after.as_nanos() / 1_000_000_000).unwrap(), next.n), 1);
            // Until then it is what it was before.
            let before = Timestamp::from_nanos(next.at.as_nanos() - 1);
            prop_assert_eq!(cron.latest(base, before), cron.latest(base, after));
            let middle = Timestamp::from_nanos(i64::midpoint(after.as_nanos(), next.at.as_nanos()));
            prop_assert_eq!(cron.next(base, middle.min(before)), Some(next));
            after = next.at;
        }
    }

    #[test]
    fn a_walk_through_every_second_finds_the_same(
        minute in field(0, 59), hour in field(0, 23), zone in 0..ZONES.len(), time in 0..TIMES.len(),
    ) {
        let cron = Cron::new(&format!("{minute} {hour} * * *"), ZONES[zone]).unwrap();
        let fixed = ![&minute, &hour].iter().any(|field| field.contains(['*', '-', '/']));
        let zone = TimeZone::get(ZONES[zone]).unwrap();
        let (begin, end) = (TIMES[time] - 90_000, TIMES[time] + 90_000);
        // Which minutes and hours are meant is what the schedule says in a zone without changes.
        let utc = Cron::new(&format!("{minute} {hour} * * *"), "UTC").unwrap();
        let mut of_day = BTreeSet::new();
        let mut last = Tick { n: 0, at: second(86_399) };
        while let Some(tick) = utc.next(last, last.at).filter(|tick| tick.n < 2 * 86_400) {
            of_day.insert(tick.n as i64 - 86_400);
            last = tick;
        }
        let meant = |wall: i64| of_day.contains(&wall.rem_euclid(86_400));
        let offset = |at: i64| i64::from(zone.to_offset(jiff::Timestamp::from_second(at).unwrap()).seconds());

        let mut expected = Vec::new();
        let mut highest = i64::MIN;
        for at in (begin - 100_000) / 60 * 60..=end {
            if at % 60 != 0 {
                continue;
            }
            let (before, now) = (at - 60 + offset(at - 60), at + offset(at));
            let repeated = now <= highest;
            let skipped = (before + 60..now).step_by(60).any(meant);
            highest = highest.max(now);
            let ticks = if fixed { skipped || (meant(now) && !repeated) } else { meant(now) };
            if ticks && at > begin {
                expected.push(at);
            }
        }
        let base = Tick { n: 0, at: second(begin) };
        let mut found = Vec::new();
        let mut after = base.at;
        while let Some(next) = cron.next(base, after).filter(|next| next.at <= second(end)) {
            found.push(next.n as i64);
            after = next.at;
        }
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(cron.count(base, 0, end as u64), (expected.len() as u64).min(1000));
    }
}
