//! What cron schedules mean, told by examples.

use std::time::Duration;

use jiff::tz::TimeZone;
use tenure_core::{AnySchedule, Every, Schedule, Tick, Timestamp};
use tenure_cron::{Cron, CronError, schedules};

fn cron(expression: &str, zone: &str) -> Cron {
    Cron::new(expression, zone).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// An instant, as `2026-03-29T00:30:00Z`.
fn at(text: &str) -> Timestamp {
    let instant: jiff::Timestamp = text.parse().expect("a fine instant");
    Timestamp::from_nanos(i64::try_from(instant.as_nanosecond()).expect("this century"))
}

fn base(text: &str) -> Tick {
    Tick { n: 0, at: at(text) }
}

/// The next ticks after an instant, as the wall clock of the zone shows them.
fn next(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let cron = cron(expression, zone);
    let mut after = at(after);
    let base = Tick { n: 0, at: after };
    let mut told = Vec::new();
    for _ in 0..count {
        let Some(tick) = cron.next(base, after) else { break };
        assert_eq!(tick.at.as_nanos(), i64::try_from(tick.n).expect("this century") * 1_000_000_000);
        after = tick.at;
        let instant = jiff::Timestamp::from_second(tick.n as i64).expect("this century");
        let zone = TimeZone::get(zone).expect("a zone");
        told.push(instant.to_zoned_datetime(zone).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string());
    }
    told
}

#[test]
fn fields_mean_what_they_mean_in_cron() {
    for (expression, expected) in [
        ("* * * * *", ["Thu 2026-01-01 00:01:00 +00:00", "Thu 2026-01-01 00:02:00 +00:00"]),
        ("*/20 * * * * *", ["Thu 2026-01-01 00:00:20 +00:00", "Thu 2026-01-01 00:00:40 +00:00"]),
        ("30 1 * * *", ["Thu 2026-01-01 01:30:00 +00:00", "Fri 2026-01-02 01:30:00 +00:00"]),
        ("15 30 1 * * *", ["Thu 2026-01-01 01:30:15 +00:00", "Fri 2026-01-02 01:30:15 +00:00"]),
        ("0 9-17/4 * * MON-FRI", ["Thu 2026-01-01 09:00:00 +00:00", "Thu 2026-01-01 13:00:00 +00:00"]),
        ("0 0 1,15 * *", ["Thu 2026-01-15 00:00:00 +00:00", "Sun 2026-02-01 00:00:00 +00:00"]),
        ("0 0 13 * fri", ["Fri 2026-01-02 00:00:00 +00:00", "Fri 2026-01-09 00:00:00 +00:00"]),
        ("0 0 13 * +fri", ["Fri 2026-02-13 00:00:00 +00:00", "Fri 2026-03-13 00:00:00 +00:00"]),
        ("0 0 * * 7", ["Sun 2026-01-04 00:00:00 +00:00", "Sun 2026-01-11 00:00:00 +00:00"]),
        ("0 0 * * 0", ["Sun 2026-01-04 00:00:00 +00:00", "Sun 2026-01-11 00:00:00 +00:00"]),
        ("0 0 * Feb,apr 5#2", ["Fri 2026-02-13 00:00:00 +00:00", "Fri 2026-04-10 00:00:00 +00:00"]),
        ("0 0 L * *", ["Sat 2026-01-31 00:00:00 +00:00", "Sat 2026-02-28 00:00:00 +00:00"]),
        ("0 0 LW * *", ["Fri 2026-01-30 00:00:00 +00:00", "Fri 2026-02-27 00:00:00 +00:00"]),
        ("0 0 15W 8 *", ["Fri 2026-08-14 00:00:00 +00:00", "Mon 2027-08-16 00:00:00 +00:00"]),
        ("0 0 * * 5L", ["Fri 2026-01-30 00:00:00 +00:00", "Fri 2026-02-27 00:00:00 +00:00"]),
        ("0 0 31 * *", ["Sat 2026-01-31 00:00:00 +00:00", "Tue 2026-03-31 00:00:00 +00:00"]),
        ("0 0 29 2 *", ["Tue 2028-02-29 00:00:00 +00:00", "Sun 2032-02-29 00:00:00 +00:00"]),
        ("0 0 29 2 +MON", ["Mon 2044-02-29 00:00:00 +00:00", "Mon 2072-02-29 00:00:00 +00:00"]),
    ] {
        assert_eq!(next(expression, "UTC", "2026-01-01T00:00:00Z", 2), expected, "{expression}");
    }
}

#[test]
fn a_job_of_each_night_runs_once_where_an_hour_is_left_out() {
    let ran = next("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3);
    assert_eq!(
        ran,
        [
            "Sat 2026-03-28 02:30:00 +01:00",
            "Sun 2026-03-29 03:00:00 +02:00",
            "Mon 2026-03-30 02:30:00 +02:00"
        ]
    );
    let ran = next("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 2);
    assert_eq!(ran, ["Sun 2026-03-08 03:00:00 -04:00", "Mon 2026-03-09 02:30:00 -04:00"]);
    // Half an hour is left out here.
    let ran = next("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", 2);
    assert_eq!(ran, ["Sun 2026-10-04 02:30:00 +11:00", "Mon 2026-10-05 02:15:00 +11:00"]);
}

#[test]
fn times_that_are_left_out_together_are_made_up_for_by_one_run_and_the_edges_are_no_part_of_it() {
    let day = |expression| next(expression, "Europe/Berlin", "2026-03-28T23:30:00Z", 3);
    assert_eq!(
        day("0,20,40 2 * * *"),
        [
            "Sun 2026-03-29 03:00:00 +02:00",
            "Mon 2026-03-30 02:00:00 +02:00",
            "Mon 2026-03-30 02:20:00 +02:00"
        ]
    );
    // The first instant after the gap is meant as well: it is one tick.
    assert_eq!(
        day("0 2,3 * * *"),
        [
            "Sun 2026-03-29 03:00:00 +02:00",
            "Mon 2026-03-30 02:00:00 +02:00",
            "Mon 2026-03-30 03:00:00 +02:00"
        ]
    );
    assert_eq!(day("59 1 * * *")[..2], ["Sun 2026-03-29 01:59:00 +01:00", "Mon 2026-03-30 01:59:00 +02:00"]);
    assert_eq!(day("0 3 * * *")[..2], ["Sun 2026-03-29 03:00:00 +02:00", "Mon 2026-03-30 03:00:00 +02:00"]);
}

#[test]
fn a_job_of_each_night_runs_once_where_an_hour_comes_twice() {
    let ran = next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(ran, ["Sun 2026-10-25 02:30:00 +02:00", "Mon 2026-10-26 02:30:00 +01:00"]);
    let ran = next("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2);
    assert_eq!(ran, ["Sun 2026-11-01 01:30:00 -04:00", "Mon 2026-11-02 01:30:00 -05:00"]);
    let ran = next("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", 2);
    assert_eq!(ran, ["Sun 2026-04-05 01:45:00 +11:00", "Mon 2026-04-06 01:45:00 +10:30"]);
    // A start between the two does not bring the first one back, nor the second.
    let ran = next("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", 1);
    assert_eq!(ran, ["Mon 2026-10-26 02:30:00 +01:00"]);
    // Lists of fixed times are fixed times; the end of the hour that comes twice is no part of it.
    let ran = next("0,30 2,3 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", 5);
    assert_eq!(
        ran,
        [
            "Sun 2026-10-25 02:00:00 +02:00",
            "Sun 2026-10-25 02:30:00 +02:00",
            "Sun 2026-10-25 03:00:00 +01:00",
            "Sun 2026-10-25 03:30:00 +01:00",
            "Mon 2026-10-26 02:00:00 +01:00",
        ]
    );
}

#[test]
fn a_job_of_each_minute_has_neither_a_pause_nor_a_tick_twice_where_clocks_are_changed() {
    for (zone, begin) in [
        ("Europe/Berlin", "2026-03-28T22:00:00Z"),
        ("Europe/Berlin", "2026-10-24T22:00:00Z"),
        ("America/New_York", "2026-03-08T05:00:00Z"),
        ("America/New_York", "2026-11-01T04:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T13:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T13:00:00Z"),
        ("UTC", "2026-03-28T22:00:00Z"),
    ] {
        let (cron, base) = (cron("* * * * *", zone), base(begin));
        let mut after = base.at;
        for minute in 1..=300 {
            let tick = cron.next(base, after).expect("each minute");
            assert_eq!(tick.at, base.at + Duration::from_secs(60 * minute), "{zone}");
            assert_eq!(cron.latest(base, tick.at + Duration::from_secs(59)), Some(tick));
            after = tick.at;
        }
    }
}

#[test]
fn intervals_come_both_times_and_not_at_times_that_are_left_out() {
    let ran = next("*/30 2 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", 5);
    assert_eq!(
        ran,
        [
            "Sun 2026-10-25 02:00:00 +02:00",
            "Sun 2026-10-25 02:30:00 +02:00",
            "Sun 2026-10-25 02:00:00 +01:00",
            "Sun 2026-10-25 02:30:00 +01:00",
            "Mon 2026-10-26 02:00:00 +01:00",
        ]
    );
    let ran = next("*/30 2 * * *", "Europe/Berlin", "2026-03-28T22:00:00Z", 1);
    assert_eq!(ran, ["Mon 2026-03-30 02:00:00 +02:00"]);
    let ran = next("0 1-3 * * *", "Europe/Berlin", "2026-03-28T22:00:00Z", 3);
    assert_eq!(
        ran,
        [
            "Sun 2026-03-29 01:00:00 +01:00",
            "Sun 2026-03-29 03:00:00 +02:00",
            "Mon 2026-03-30 01:00:00 +02:00"
        ]
    );
}

#[test]
fn a_day_that_a_zone_has_left_out_is_made_up_for_too() {
    // Samoa went from Thursday, the 29th, to Saturday, the 31st.
    let ran = next("30 1 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 4);
    assert_eq!(
        ran,
        [
            "Thu 2011-12-29 01:30:00 -10:00",
            "Sat 2011-12-31 00:00:00 +14:00",
            "Sat 2011-12-31 01:30:00 +14:00",
            "Sun 2012-01-01 01:30:00 +14:00",
        ]
    );
}

#[test]
fn a_day_that_never_comes_is_refused() {
    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 *", "0 0 30 2 +MON", "0 0 31 6 +*"] {
        let refused = Cron::new(expression, "UTC").expect_err(expression);
        assert!(matches!(refused, CronError::Never { .. }), "{refused}");
        assert!(refused.to_string().ends_with("names a day that never comes"), "{refused}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_and_the_field_named() {
    for (expression, field) in [
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * 32 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of week"),
        ("61 * * * * *", "second"),
        ("MON * * * *", "minute"),
        ("* JAN * * *", "hour"),
        ("* * MAY * *", "day of month"),
        ("* * * FRI *", "month"),
        ("* * * * JUN", "day of week"),
        ("* * * * SUNDAY", "day of week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("a * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("1.5 * * * *", "minute"),
        ("٣ * * * *", "minute"),
        ("99999999999999999999 * * * *", "minute"),
        ("* * * * 1#6", "day of week"),
    ] {
        let refused = Cron::new(expression, "UTC").expect_err(expression);
        assert!(
            matches!(&refused, CronError::Field { field: name, .. } if *name == field),
            "{expression}: {refused}"
        );
        assert!(
            refused.to_string().starts_with(&format!("the {field} of the cron expression is ")),
            "{refused}"
        );
    }
    for (expression, count) in [("", 0), ("* * * *", 4), ("* * * * * * *", 7), ("@daily", 1)] {
        let refused = Cron::new(expression, "UTC").expect_err(expression);
        assert!(matches!(&refused, CronError::Fields { fields, .. } if *fields == count), "{refused}");
    }
    for zone in ["Europe/Atlantis", "", "CEST-1", "Etc/Unknown", "../etc/passwd", "Europe/Berlin "] {
        let refused = Cron::new("* * * * *", zone).expect_err(zone);
        assert!(matches!(&refused, CronError::UnknownZone { name } if name == zone), "{refused}");
        assert!(refused.to_string().contains("is not known; a name of the IANA's database is wanted"));
    }
    let long = format!("{} * * * *", ["0"; 130].join(","));
    let refused = Cron::new(&long, "UTC").expect_err("it is long");
    assert!(matches!(refused, CronError::TooLong { .. }), "{refused}");
}

#[test]
fn the_zone_is_part_of_the_text_which_is_read_back() {
    let nightly = cron("30 1 * * *", "Europe/Berlin");
    assert_eq!(nightly.text(), "cron Europe/Berlin 30 1 * * *");
    let again = Cron::parse(nightly.text()).expect("its own text");
    assert_eq!(again.text(), nightly.text());
    let base = base("2026-07-01T00:00:00Z");
    assert_eq!(again.next(base, base.at), nightly.next(base, base.at));
    assert_eq!(again.next(base, base.at).map(|tick| tick.at), Some(at("2026-07-01T23:30:00Z")), "not in UTC");
    // However it is written, the text is the same.
    assert_eq!(cron("  30   1 *\t* mon ", "europe/BERLIN").text(), "cron Europe/Berlin 30 1 * * MON");
}

#[test]
fn both_kinds_of_schedules_are_read_from_their_texts_and_nothing_else_is() {
    let of = |text: &str| schedules(text).map(|schedule| schedule.text().to_owned());
    for text in ["every 0.2s", "cron UTC * * * * *", "cron America/New_York 15 30 1 L * *"] {
        assert_eq!(of(text).as_deref(), Some(text));
    }
    for text in
        ["", "cron", "cron ", "cron UTC", "cron UTC * * *", "cron Nowhere * * * * *", "* * * * *", "every"]
    {
        assert_eq!(of(text), None, "{text:?}");
    }
    assert!(matches!(Cron::parse("every 1s"), Err(CronError::NotCron { .. })));
    let parse: fn(&str) -> Option<AnySchedule> = schedules;
    assert!(parse("cron UTC * * * * *").is_some());
}

#[test]
fn a_tick_s_number_is_its_second_and_before_1970_there_are_none() {
    let daily = cron("0 0 * * *", "UTC");
    let old = Tick { n: 0, at: at("1960-05-05T05:05:05Z") };
    let first = daily.next(old, old.at).expect("a day later than the epoch");
    assert_eq!(first, Tick { n: 86_400, at: at("1970-01-02T00:00:00Z") });
    assert_eq!(daily.latest(old, at("1969-12-31T00:00:00Z")), Some(old), "the base itself");
    assert_eq!(daily.latest(old, at("1950-01-01T00:00:00Z")), None);
    assert_eq!(daily.latest(old, at("1970-01-02T12:00:00Z")), Some(first));
}

#[test]
fn a_tick_is_later_than_the_base_and_than_the_time_to_the_nanosecond() {
    let minutely = cron("* * * * *", "UTC");
    let on_it = base("2026-01-01T00:01:00Z");
    let second = Tick { n: on_it.n, at: Timestamp::from_nanos(on_it.at.as_nanos() + 1) };
    let next = |base: Tick, after: Timestamp| minutely.next(base, after).expect("each minute").at;
    assert_eq!(next(on_it, Timestamp::EPOCH), at("2026-01-01T00:02:00Z"));
    assert_eq!(next(second, Timestamp::EPOCH), at("2026-01-01T00:02:00Z"));
    let before = Timestamp::from_nanos(at("2026-01-01T00:02:00Z").as_nanos() - 1);
    assert_eq!(next(on_it, before), at("2026-01-01T00:02:00Z"));
    assert_eq!(minutely.latest(on_it, before), Some(on_it));
    assert_eq!(minutely.latest(on_it, at("2026-01-01T00:02:00Z")).map(|tick| tick.n), Some(1_767_225_720));
}

#[test]
fn at_the_end_of_time_there_is_no_next_tick() {
    for expression in ["* * * * * *", "0 0 29 2 +MON", "0 0 1 1 *"] {
        let cron = cron(expression, "Europe/Berlin");
        for at in [i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1, 0, -1] {
            let base = Tick { n: 0, at: Timestamp::from_nanos(at) };
            for after in [i64::MAX, i64::MIN, 0] {
                let after = Timestamp::from_nanos(after);
                if let Some(next) = cron.next(base, after) {
                    assert!(next.at > after && next.at > base.at);
                }
                if let Some(latest) = cron.latest(base, after) {
                    assert!(latest.at <= after && latest.at >= base.at);
                }
            }
        }
        let last = Tick { n: 0, at: Timestamp::MAX };
        assert_eq!(cron.next(last, Timestamp::MAX), None);
        assert_eq!(cron.at(last, u64::MAX), Timestamp::MAX);
    }
}

#[test]
fn ticks_are_counted_from_the_base_on_and_no_further_than_a_thousand() {
    let hourly = cron("0 * * * *", "UTC");
    let base = base("2026-01-01T00:30:00Z");
    let tick = |text: &str| hourly.latest(base, at(text)).expect("not before the base").n;
    let (first, third) = (tick("2026-01-01T01:00:00Z"), tick("2026-01-01T03:10:00Z"));
    assert_eq!(hourly.count(base, 0, third), 3, "not since 1970");
    assert_eq!(hourly.count(base, first, third), 2);
    assert_eq!(hourly.count(base, third, third), 0);
    assert_eq!(hourly.count(base, third + 5, third), 0);
    assert_eq!(hourly.count(base, 0, tick("2027-01-01T00:00:00Z")), 1_000);
    assert_eq!(hourly.count(base, 0, u64::MAX), 1_000);
    // A tick of the schedule before it is the base of this one, and counts.
    let taken_over = Tick { n: 41, at: base.at };
    assert_eq!(hourly.count(taken_over, 40, third), 4);
    assert_eq!(hourly.count(taken_over, 41, third), 3);
}

#[test]
fn after_a_step_back_it_waits_and_its_ticks_are_met_within_their_second() {
    let minutely = cron("* * * * *", "UTC");
    assert!(!minutely.rebases());
    assert!(minutely.tolerance() < Duration::from_secs(1));
}

#[test]
fn a_fixed_period_and_a_cron_schedule_follow_each_other_without_going_back() {
    // A count that goes over to cron has smaller numbers than its seconds.
    let every = Every::new(Duration::from_secs(60)).expect("a fine period");
    let base = base("2026-01-01T00:00:00Z");
    let change = every.latest(base, at("2026-01-01T00:10:30Z")).expect("ten of them");
    let minutely = cron("* * * * *", "UTC");
    let first = minutely.next(change, change.at).expect("each minute");
    assert!(first.n > change.n);
    assert_eq!(minutely.at(change, first.n), first.at);
    assert_eq!(minutely.at(change, change.n), change.at);
    let after = every.next(first, first.at).expect("a minute later");
    assert_eq!(after.n, first.n + 1);
}

#[test]
fn what_came_last_and_what_comes_next_are_found_years_after_the_base() {
    for (expression, zone) in
        [("* * * * * *", "Europe/Berlin"), ("30 1 * * *", "America/New_York"), ("0 0 29 2 *", "UTC")]
    {
        let cron = cron(expression, zone);
        let base = base("2000-01-01T00:00:00Z");
        for day in 0..200 {
            let now = at("2026-01-01T00:00:00Z") + Duration::from_secs(day * 86_400 + 7);
            let latest = cron.latest(base, now).expect("years of them");
            let next = cron.next(base, now).expect("years to come");
            assert!(latest.at <= now && next.at > now);
        }
    }
}
