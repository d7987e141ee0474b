//! When ticks are delivered.

use super::*;

/// Whether each tick came at its time or later, by at most this much, and the numbers rise one by one.
fn assert_regular(world: &World, instance: usize, at_most: u64) {
    let mut last = None;
    for (at, due) in &world.instances[instance].ticks {
        let late = world.store.wall(*at).as_nanos() - due.tick.at.as_nanos();
        assert!(late >= 0, "tick {} came {} ns early", due.tick.n, -late);
        assert!(late as u64 <= at_most, "tick {} came {late} ns late", due.tick.n);
        assert!(last.is_none_or(|last| due.tick.n == last + 1), "{} after {last:?}", due.tick.n);
        assert!((due.missed, due.catching_up) == (0, false), "{due:?}");
        last = Some(due.tick.n);
    }
}

#[test]
fn the_first_tick_comes_one_period_after_the_registration() {
    let mut world = World::with(seconds(10));
    world.run_to(10 * SECOND);
    assert_eq!(world.numbers(0), []);
    world.run_to(11 * SECOND);
    assert_eq!(world.numbers(0), [1]);
    assert_eq!(
        world.instances[0].ticks[0].1.tick.at,
        Timestamp::from_nanos(NOON + (10 * SECOND + MS) as i64)
    );
}

#[test]
fn three_instances_that_start_apart_tick_at_the_same_times_with_the_same_numbers() {
    let mut world = World::with(seconds(60));
    world.run_to(20 * SECOND);
    world.join(seconds(60));
    world.run_to(40 * SECOND);
    world.join(seconds(60));
    world.run_to(10 * MINUTE + SECOND);
    let ticks = |instance: usize| -> Vec<Tick> {
        world.instances[instance].ticks.iter().map(|(_, due)| due.tick).collect()
    };
    assert_eq!(world.numbers(0), (1..=10).collect::<Vec<_>>());
    assert_eq!((ticks(1), ticks(2)), (ticks(0), ticks(0)));
    for instance in 0..3 {
        assert_regular(&world, instance, SECOND / 10);
    }
}

#[test]
fn no_tick_is_early_and_none_much_late_while_clocks_drift_as_far_as_they_may() {
    for (store, own) in [(990_000, 1_010_000), (1_010_000, 990_000), (1_000_000, 1_000_000)] {
        for seconds_each in [1, 60, 3600] {
            let mut world = World::new();
            world.store.rate = store;
            world.join_as(seconds(seconds_each), true, own);
            world.run_to(20 * seconds_each * SECOND);
            assert!(world.numbers(0).len() >= 18, "{:?}", world.numbers(0));
            let tolerance = (20 * MS).max(seconds_each * MS);
            assert_regular(&world, 0, tolerance + 25 * MS);
        }
    }
}

#[test]
fn the_error_of_a_fast_timer_does_not_grow_though_its_wake_ups_jitter() {
    let mut world = World::with(TimerOptions::new(every(Duration::from_millis(100))));
    let mut dice = SplitMix::new(5);
    let mut at = 0;
    while at < 10 * MINUTE {
        // Whatever drives it is kept from running for up to 30 ms, again and again.
        at += 20 * MS + crate::jitter::Jitter::below(&mut dice, 30 * MS);
        world.instances[0].asleep_until = at;
        world.run_to(at);
    }
    let count = world.numbers(0).len();
    assert!((5_998..=6_000).contains(&count), "{count}");
    assert_regular(&world, 0, 110 * MS);
    let (late, early) = world.instances[0].ticks.split_at(count / 2);
    let lateness = |ticks: &[(u64, DueTick)]| {
        let late = ticks.iter().map(|(at, due)| world.store.wall(*at).saturating_since(due.tick.at));
        late.sum::<Duration>() / u32::try_from(ticks.len()).expect("few")
    };
    let (first, second) = (lateness(late), lateness(early));
    assert!(first.abs_diff(second) < Duration::from_millis(2), "{first:?} then {second:?}");
}

#[test]
fn ticks_go_on_while_the_store_does_not_answer() {
    let mut world = World::with(seconds(1));
    world.run_to(5 * SECOND + 500 * MS);
    assert_eq!(world.numbers(0), [1, 2, 3, 4, 5]);
    world.store.stalled = true;
    world.run_to(60 * SECOND + 500 * MS);
    assert_eq!(world.numbers(0).len(), 59, "one is on its way: clocks may have drifted by 4 % since");
    let told = world.told(0);
    assert!(matches!(told[..], [Notice::TimerRetrying { failure: Failure::Unknown, .. }]), "{told:?}");
    world.store.stalled = false;
    world.run_to(90 * SECOND + 500 * MS);
    assert_eq!(world.numbers(0), (1..=90).collect::<Vec<_>>());
}

#[test]
fn a_store_in_trouble_is_asked_ever_more_rarely() {
    for failure in [Failure::NotExecuted, Failure::Unknown] {
        let mut world = World::new();
        world.store.fails = Some(failure);
        world.join(seconds(1));
        world.run_to(10 * MINUTE);
        let asked = world.store.asked.len();
        assert!((60..140).contains(&asked), "{asked}");
        assert_eq!(world.told(0).len(), 1, "reported at the first failure only");
        world.store.fails = None;
        world.run_to(11 * MINUTE);
        assert!(world.numbers(0).len() > 40, "{:?}", world.numbers(0));
    }
}

#[test]
fn the_store_is_asked_about_once_or_twice_for_each_tick_and_not_less_than_every_ten_minutes() {
    for (period, ticks, at_most) in [(1, 600, 1_250), (600, 10, 50), (86_400, 2, 320)] {
        let mut world = World::with(seconds(period));
        world.run_to((ticks * period + 1) * SECOND);
        assert_eq!(world.numbers(0).len() as u64, ticks);
        let asked = &world.store.asked;
        assert!(asked.len() < at_most, "{} times for {ticks} ticks of {period} s", asked.len());
        let gaps = asked.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max() <= Some(10 * MINUTE + SECOND), "{period} s");
    }
}

#[test]
fn what_is_delivered_while_a_request_is_under_way_is_told_to_the_store_too() {
    let mut world = World::with(seconds(1));
    world.run_to(3 * SECOND + 500 * MS);
    // The answer to the request of one tick comes after the next tick.
    world.instances[0].latency = 700 * MS;
    world.run_to(4 * SECOND + 900 * MS);
    assert_eq!(world.numbers(0), [1, 2, 3, 4]);
    let begins = 5 * SECOND + 900 * MS;
    world.run_to(begins);
    assert_eq!(world.numbers(0).last(), Some(&5));
    world.instances[0].latency = MS;
    world.run_to(begins + 900 * MS);
    let last = world.numbers(0).last().copied().expect("some");
    assert_eq!(world.store.record.as_ref().map(|record| record.last), Some(last));
}

#[test]
fn an_early_or_repeated_timeout_does_nothing() {
    let mut world = World::with(seconds(10));
    world.run_to(SECOND);
    let timer = &mut world.instances[0].timer;
    let before = timer.clone();
    for _ in 0..3 {
        timer.timeout(before.now);
        assert_eq!(*timer, before);
    }
}

#[test]
fn a_timer_that_was_stopped_delivers_nothing_and_says_so_once() {
    for at in [0, 500 * MS, 10 * SECOND, 10 * SECOND + 500 * MS] {
        let mut world = World::with(seconds(10));
        world.run_to(at);
        let now = local(at, 1_000_000);
        for _ in 0..2 {
            world.instances[0].timer.stop(now);
        }
        world.run_to(at + HOUR);
        assert!(world.numbers(0).len() <= 1);
        let why = TimerEnd::Stopped;
        assert_eq!(world.told(0), [Notice::TimerEnded { timer: TimerKey(1), why }]);
        assert_eq!(world.instances[0].timer.deadline(), None);
    }
}

#[test]
fn a_registration_that_the_store_refuses_is_the_end() {
    let mut world = World::new();
    world.store.fails = Some(Failure::Refused);
    world.join(seconds(10));
    world.run_to(MINUTE);
    assert_eq!(world.told(0), [Notice::TimerEnded { timer: TimerKey(1), why: TimerEnd::Refused }]);
    assert_eq!(world.store.asked.len(), 1);
}

#[test]
fn a_refusal_later_on_stops_no_ticks_and_is_repeated_rarely() {
    let mut world = World::with(seconds(1));
    world.run_to(2 * SECOND + 500 * MS);
    world.store.fails = Some(Failure::Refused);
    let before = world.store.asked.len();
    world.run_to(62 * SECOND + 500 * MS);
    assert!(world.numbers(0).len() >= 58);
    let asked = world.store.asked.len() - before;
    assert!(asked <= 13, "{asked}");
}

#[test]
fn answers_that_are_late_repeated_or_of_another_request_change_nothing() {
    let mut world = World::new();
    world.store.stalled = true;
    world.join(seconds(1));
    world.settle();
    let timer = &mut world.instances[0].timer;
    let id = CommandId { machine: 1, sequence: 0 };
    let record = TimerView {
        revision: 1,
        base: Tick { n: 0, at: Timestamp::from_nanos(NOON) },
        schedule: "every 1s".into(),
        next: None,
        last: 0,
        claimed: 0,
        unfinished: Vec::new(),
    };
    let at = Timestamp::from_nanos(NOON);
    let now = local(3 * SECOND, 1_000_000);
    assert!(!timer.read(now, id, record.clone(), at), "its time was over");
    while timer.next_output().is_some() {}
    let next = CommandId { machine: 1, sequence: 1 };
    assert!(timer.check(next).is_err(), "it was not sent yet");
    timer.timeout(timer.deadline().expect("again after a while"));
    assert!(timer.check(next).is_ok());
    assert!(!timer.failed(now, id, Failure::Unknown));
    assert!(timer.read(now, next, record.clone(), at));
    assert!(!timer.read(now, next, record, at), "a second time");
    assert!(!timer.failed(now, next, Failure::Refused));
    assert!(timer.check(CommandId { machine: 2, sequence: 0 }).is_err());
}

#[test]
fn at_the_end_of_time_nothing_is_due_any_more() {
    for wall in [i64::MAX, i64::MAX - 1, i64::MAX - (3 * SECOND) as i64, i64::MIN, i64::MIN + 1] {
        let mut world = World::new();
        world.store.ahead = wall;
        world.join(seconds(1));
        world.run_to(MINUTE);
        let numbers = world.numbers(0);
        assert!(numbers.len() < 70 && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }
    let mut world = World::with(seconds(1));
    world.run_to(SECOND);
    let timer = &mut world.instances[0].timer;
    for end in [Instant::from_nanos(u64::MAX - 1), Instant::MAX] {
        timer.timeout(end);
        assert!(timer.deadline().is_none_or(|at| at > end));
    }
}

#[test]
fn numbers_at_their_end_are_not_delivered_again() {
    let mut world = World::new();
    world.store.record = Some(TimerView {
        revision: 1,
        base: Tick { n: u64::MAX - 2, at: Timestamp::from_nanos(NOON) },
        schedule: "every 1s".into(),
        next: None,
        last: u64::MAX - 2,
        claimed: u64::MAX - 2,
        unfinished: Vec::new(),
    });
    world.join(seconds(1));
    world.run_to(MINUTE);
    assert_eq!(world.numbers(0), [u64::MAX - 1, u64::MAX]);
}

/// A schedule whose answers contradict each other.
#[derive(Debug)]
struct Broken;

impl Schedule for Broken {
    fn text(&self) -> &str {
        "broken"
    }

    fn next(&self, base: Tick, after: Timestamp) -> Option<Tick> {
        Some(Tick { n: base.n + 1, at: after.saturating_sub(Duration::from_secs(1)) })
    }

    fn latest(&self, base: Tick, until: Timestamp) -> Option<Tick> {
        Some(Tick { n: base.n + 7, at: until + Duration::from_secs(1) })
    }

    fn at(&self, base: Tick, _: u64) -> Timestamp {
        base.at
    }

    fn count(&self, _: Tick, _: u64, _: u64) -> u64 {
        0
    }

    fn tolerance(&self) -> Duration {
        Duration::ZERO
    }

    fn rebases(&self) -> bool {
        true
    }
}

#[test]
fn a_schedule_that_contradicts_itself_ticks_not_at_all_and_does_no_harm() {
    let mut world = World::with(TimerOptions::new(AnySchedule::new(Broken)));
    world.run_to(HOUR);
    assert_eq!(world.numbers(0), []);
    assert!(world.store.asked.len() < 10);
}

#[test]
fn missed_is_bounded_whatever_is_asked_for() {
    assert_eq!(Missed::CatchUp { at_most: 0 }.at_once(), 1);
    assert_eq!(Missed::CatchUp { at_most: u32::MAX }.at_once(), Missed::MOST);
    assert_eq!(Missed::Skip.at_once(), 1);
}
