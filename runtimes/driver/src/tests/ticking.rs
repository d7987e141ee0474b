//! Timers: which ticks come, when, and to whom.

use futures::FutureExt;
use tenure_core::{AnySchedule, DueTick, Every, Missed};
use tenure_store::StoreErrorKind;

use super::*;
use crate::{Closed, RequestError, Timer, TimerError};

/// What ticks may be late by: the store's time is asked for again where it is not known better.
const TOLERANCE: Duration = Duration::from_millis(20);

fn start(tenure: &Tenure, period: Duration) -> Timer {
    tenure.timer("t", period).start().unwrap()
}

fn next(world: &World, timer: &mut Timer) -> DueTick {
    world.runtime.block_on(timer.next()).expect("it goes on").unwrap()
}

/// What can be read now.
fn read(timer: &mut Timer) -> Vec<DueTick> {
    std::iter::from_fn(|| timer.next().now_or_never()).map(|tick| tick.unwrap().unwrap()).collect()
}

fn numbers(ticks: &[DueTick]) -> Vec<(u64, u64)> {
    ticks.iter().map(|due| (due.tick.n, due.missed)).collect()
}

#[test]
fn a_timer_ticks_each_period_in_order_never_early_and_hardly_late() {
    for period in [100 * MILLI, SECOND, 3600 * SECOND] {
        let world = World::new();
        let mut timer = start(&world.tenure(), period);
        let tolerance = TOLERANCE.max(period / 1000);
        let begun = world.wall();
        for n in 1..=50 {
            let due = next(&world, &mut timer);
            let at = begun + period * n;
            assert_eq!((due.tick.n, due.tick.at, due.missed), (u64::from(n), at, 0), "{period:?}");
            let late = world.wall().saturating_since(at);
            assert!(world.wall() >= at && late <= tolerance, "{period:?}: {late:?} late");
        }
    }
}

const MILLI: Duration = Duration::from_millis(1);

#[test]
fn all_instances_see_the_same_ticks_whenever_they_were_started() {
    let world = World::new();
    let first = world.tenure();
    let mut early = start(&first, 10 * SECOND);
    world.runtime.advance(24 * SECOND);
    assert_eq!(numbers(&read(&mut early)), [(2, 1)]);
    let mut late = start(&world.tenure(), 10 * SECOND);
    for n in 3..20 {
        let (one, other) = (next(&world, &mut early), next(&world, &mut late));
        assert_eq!((one.tick.n, one.tick), (n, other.tick));
    }
    // All of them are gone for a while: the schedule is as it was.
    drop((early, late));
    world.runtime.advance(15 * SECOND);
    let mut again = start(&world.tenure(), 10 * SECOND);
    assert_eq!(next(&world, &mut again).tick.n, 20, "the one that nobody saw");
    assert_eq!(next(&world, &mut again).tick.n, 21);
}

#[test]
fn who_reads_late_gets_the_latest_and_is_told_how_many_were_missed() {
    let world = World::new();
    let tenure = world.tenure();
    let mut timer = start(&tenure, SECOND);
    let mut few = tenure.timer("t", SECOND).missed(Missed::CatchUp { at_most: 3 }).start().unwrap();
    world.runtime.advance(10 * SECOND + TOLERANCE);
    assert_eq!(numbers(&read(&mut timer)), [(10, 9)]);
    assert_eq!(numbers(&read(&mut few)), [(8, 7), (9, 0), (10, 0)]);
    world.runtime.advance(SECOND);
    assert_eq!(numbers(&read(&mut timer)), [(11, 0)]);
    let stats = tenure.stats();
    assert_eq!((stats.timers, stats.ticks, stats.skipped_ticks), (2, 22, 9 + 7));
}

#[test]
fn a_tick_knows_how_long_it_has_waited_and_is_not_read_beyond_the_limit() {
    let world = World::new();
    let tenure = world.tenure();
    let mut timer = tenure.timer("t", 60 * SECOND).late_limit(SECOND).start().unwrap();
    world.runtime.advance(60 * SECOND + 600 * MILLI);
    let [due] = read(&mut timer)[..] else { panic!() };
    assert!(due.late >= 500 * MILLI && due.late <= 600 * MILLI, "{due:?}");
    world.runtime.advance(62 * SECOND);
    assert_eq!(numbers(&read(&mut timer)), [], "too late");
    world.runtime.advance(58 * SECOND);
    assert_eq!(numbers(&read(&mut timer)), [(3, 1)]);
}

#[test]
fn after_a_pause_come_the_latest_ticks_by_the_policy() {
    for (missed, expected) in [
        (Missed::Skip, vec![(60, 59)]),
        (Missed::CatchUp { at_most: 3 }, vec![(58, 57), (59, 0), (60, 0)]),
        (Missed::CatchUp { at_most: 1000 }, (1..=60).map(|n| (n, 0)).collect()),
    ] {
        let world = World::new();
        let tenure = world.tenure();
        let mut timer = tenure.timer("t", SECOND).missed(missed).start().unwrap();
        world.settle();
        world.runtime.block(60 * SECOND + SECOND / 2);
        world.settle();
        assert_eq!(numbers(&read(&mut timer)), expected, "{missed:?}");
    }
}

#[test]
fn what_is_too_late_after_a_pause_is_counted_and_told_with_the_next_tick() {
    let world = World::new();
    let tenure = world.tenure();
    let mut timer = tenure.timer("t", 60 * SECOND).late_limit(SECOND).start().unwrap();
    world.settle();
    world.runtime.block(150 * SECOND);
    world.settle();
    assert_eq!(numbers(&read(&mut timer)), []);
    assert_eq!(tenure.stats().skipped_ticks, 2);
    assert_eq!(next(&world, &mut timer).missed, 2);
}

#[test]
fn ticks_go_on_while_the_store_is_down() {
    let world = World::new();
    let tenure = world.tenure();
    let mut timer = start(&tenure, SECOND);
    assert_eq!(next(&world, &mut timer).tick.n, 1);
    for fault in [Fault::Fail, Fault::Hang] {
        world.plan.all(fault);
        let from = next(&world, &mut timer).tick.n;
        for n in from + 1..from + 30 {
            assert_eq!(numbers(&[next(&world, &mut timer)]), [(n, 0)]);
        }
        world.plan.heal();
    }
}

#[test]
fn dropping_the_stream_ends_the_timer_here_and_leaves_nothing_behind() {
    let world = World::new();
    let tenure = world.tenure();
    let mut other = start(&world.tenure(), SECOND);
    let timer = start(&tenure, SECOND);
    world.settle();
    assert_eq!((tenure.stats().timers, tenure.stats().open), (1, 1));
    drop(timer);
    world.settle();
    assert_eq!((tenure.stats().timers, tenure.stats().open), (0, 0));
    world.plan.forget();
    assert_eq!(next(&world, &mut other).tick.n, 1);
}

#[test]
fn a_shutdown_ends_the_stream_and_a_runtime_that_ends_is_an_error() {
    let world = World::new();
    let tenure = world.tenure();
    let mut timer = start(&tenure, SECOND);
    world.settle();
    world.runtime.block_on(tenure.shutdown()).unwrap();
    assert_eq!(world.runtime.block_on(timer.next()), None);
    assert_eq!(world.runtime.block_on(timer.next()), None);
    assert!(matches!(tenure.timer("t", SECOND).start(), Err(TimerError::Closed(Closed))));

    let mut timer = start(&world.tenure(), SECOND);
    world.settle();
    world.runtime.shut_down();
    assert_eq!(world.runtime.block_on(timer.next()), Some(Err(TimerError::Closed(Closed))));
    assert_eq!(world.runtime.block_on(timer.next()), None);
}

#[test]
fn a_store_that_refuses_the_timer_ends_the_stream_with_its_words() {
    let world = World::new();
    world.plan.only("read", Fault::Refuse);
    let tenure = world.tenure();
    let mut timer = start(&tenure, SECOND);
    let Some(Err(TimerError::Refused { timer: name, error })) = world.runtime.block_on(timer.next()) else {
        panic!("it is refused")
    };
    assert_eq!((name.as_str(), error.kind, &*error.message), ("t", StoreErrorKind::Rejected, "not allowed"));
    assert_eq!(world.runtime.block_on(timer.next()), None);
    assert_eq!(tenure.stats().timers, 0);
}

#[test]
fn settings_that_do_not_fit_are_refused_before_anything_is_asked() {
    let world = World::new();
    let tenure = world.tenure();
    let refusal = |error: TimerError| error.to_string();
    let zero = tenure.timer("t", Duration::ZERO).start().map(drop).map_err(refusal);
    assert_eq!(zero, Err("period is 0s, but it must lie between 10ms and 100 years".to_owned()));
    let limit = tenure.timer("t", SECOND).late_limit(MILLI).start().map(drop).map_err(refusal);
    assert!(limit.unwrap_err().starts_with("late_limit is 1ms, but it must be at least 20ms"));
    let none = tenure.timer("t", SECOND).missed(Missed::CatchUp { at_most: 0 }).start();
    assert!(matches!(none, Err(TimerError::Config(error)) if error.field == "missed"));
    assert!(matches!(tenure.timer("", SECOND).start(), Err(TimerError::Name(_))));
    world.settle();
    assert_eq!(world.plan.log(), []);
}

#[test]
fn the_last_registration_counts_and_the_others_follow_from_the_next_tick_on() {
    let world = World::new();
    let (first, second) = (world.tenure(), world.tenure());
    let mut old = start(&first, 10 * SECOND);
    world.runtime.advance(14 * SECOND);
    assert_eq!(numbers(&read(&mut old)), [(1, 0)]);
    let mut new = second.timer("t", Every::new(3 * SECOND).unwrap()).start().unwrap();
    let base = next(&world, &mut new);
    assert_eq!((base.tick.n, next(&world, &mut old).tick), (2, base.tick));
    for n in 3..10 {
        let due = next(&world, &mut new);
        assert_eq!(
            (due.tick.n, due.tick.at.saturating_since(base.tick.at)),
            (n, 3 * SECOND * (n - 2) as u32)
        );
    }
    // Whoever had it before looks again within ten minutes.
    world.runtime.advance(610 * SECOND);
    assert_eq!((old.schedule().text(), new.schedule().text()), ("every 3s", "every 3s"));
}

#[test]
fn a_schedule_that_a_program_cannot_read_gives_it_no_ticks_and_the_others_have_theirs() {
    let world = World::new();
    let only_own = world.builder().schedules(|_| None).store(world.faulty()).start().unwrap();
    let mut blind = start(&only_own, SECOND);
    next(&world, &mut blind);
    let any = world.builder().schedules(AnySchedule::parse).store(world.faulty()).start().unwrap();
    let mut seeing = start(&any, 3 * SECOND);
    // Whoever had it before looks again within ten minutes.
    world.runtime.advance(610 * SECOND);
    read(&mut blind);
    let from = next(&world, &mut seeing).tick.n;
    world.runtime.advance(100 * SECOND);
    assert_eq!(numbers(&read(&mut blind)), []);
    assert!(next(&world, &mut seeing).tick.n >= from + 30);
}

#[test]
fn a_wall_clock_that_is_set_back_does_not_stop_the_ticks_for_long() {
    let world = World::new();
    let mut timer = start(&world.tenure(), 10 * SECOND);
    for _ in 0..5 {
        next(&world, &mut timer);
    }
    world.wall.fetch_sub(3_600_000_000_000, Ordering::Relaxed);
    let before = world.now();
    let n = next(&world, &mut timer).tick.n;
    let waited = world.now().saturating_since(before);
    // One period until it is seen, and one from then on.
    assert!(n > 5 && waited <= 20 * SECOND + TOLERANCE, "tick {n} after {waited:?}");
    assert_eq!(next(&world, &mut timer).tick.n, n + 1);
}

#[test]
fn timers_are_listed_and_forgotten_and_made_anew_by_those_who_have_them() {
    let world = World::new();
    let tenure = world.tenure();
    let mut timer = start(&tenure, 10 * SECOND);
    let _other = tenure.timer("another", SECOND).start().unwrap();
    assert_eq!(next(&world, &mut timer).tick.n, 1);
    let listed = world.runtime.block_on(tenure.timers()).unwrap();
    let names: Vec<_> = listed.iter().map(|entry| (entry.name.as_str(), &*entry.record.schedule)).collect();
    assert_eq!(names, [("another", "every 1s"), ("t", "every 10s")]);
    assert_eq!(world.runtime.block_on(tenure.forget_timer("t")), Ok(true));
    assert_eq!(world.runtime.block_on(tenure.forget_timer("t")), Ok(false));
    assert!(matches!(world.runtime.block_on(tenure.forget_timer("")), Err(RequestError::Name(_))));
    for _ in 0..3 {
        next(&world, &mut timer);
    }
    assert_eq!(world.runtime.block_on(tenure.timers()).unwrap().len(), 2);
    world.plan.only("forget", Fault::Hang);
    assert!(matches!(world.runtime.block_on(tenure.forget_timer("t")), Err(RequestError::Store(_))));
}

#[test]
fn a_bad_store_delays_no_tick_and_repeats_none() {
    let world = World::new();
    let mut chance = 0;
    world.plan.set(move |_| {
        chance = (chance * 31 + 17) % 101;
        Fault::of_a_bad_store(chance.min(99))
    });
    let tenure = world.tenure();
    let mut timer = start(&tenure, SECOND);
    let mut last = next(&world, &mut timer).tick.n;
    for _ in 0..500 {
        let due = next(&world, &mut timer);
        assert_eq!((due.tick.n, due.missed), (last + 1, 0));
        last = due.tick.n;
    }
}

#[test]
fn thousands_of_ticks_leave_no_tasks_and_no_sleeps() {
    let world = World::new();
    let tenure = world.tenure();
    let mut timer = start(&tenure, 100 * MILLI);
    next(&world, &mut timer);
    let count = || (world.runtime.tasks(), tenure.stats().open, tenure.stats().in_flight);
    let (before, sleepers) = (count(), world.runtime.sleepers());
    for _ in 0..3000 {
        next(&world, &mut timer);
    }
    world.settle();
    assert_eq!(count(), before);
    assert!(world.runtime.sleepers() <= sleepers + 1);
}
