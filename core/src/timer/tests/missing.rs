//! What becomes of ticks that came while nobody could deliver them.

use super::*;

/// A job every ten minutes, whose only instance was away for a day.
fn after_a_day(missed: Missed, late_limit: Option<Duration>) -> World {
    let mut world = World::with(seconds(600));
    world.run_to(25 * MINUTE);
    assert_eq!(world.delivered(0).len(), 2);
    world.instances.clear();
    world.run_to(25 * MINUTE + 24 * HOUR);
    let mut options = seconds(600);
    (options.missed, options.late_limit) = (missed, late_limit);
    world.join(options);
    world.run_for(MINUTE);
    world
}

#[test]
fn after_a_day_away_the_latest_tick_is_delivered_late_with_the_number_of_those_before_it() {
    let mut world = after_a_day(Missed::Skip, None);
    let [due] = world.delivered(0)[..] else { panic!("one tick") };
    assert_eq!((due.tick.n, due.missed, due.catching_up), (146, 143, false));
    assert!(due.late >= Duration::from_secs(290), "{due:?}");
}

#[test]
fn after_a_day_away_nothing_is_delivered_where_late_is_worse_than_never() {
    let mut world = after_a_day(Missed::Skip, Some(Duration::from_secs(60)));
    assert_eq!(world.delivered(0), []);
    let missed: Vec<_> = world.told(0).iter().filter_map(is_missed).collect();
    assert_eq!(missed, [(146, 144, TickMiss::TooLate)]);
    world.run_for(10 * MINUTE);
    assert_eq!(world.delivered(0).len(), 1, "the next one is in time");
}

#[test]
fn after_a_day_away_the_last_few_are_made_up_for_in_order_each_marked() {
    let mut world = after_a_day(Missed::CatchUp { at_most: 3 }, None);
    let due = world.delivered(0);
    let told: Vec<_> = due.iter().map(|due| (due.tick.n, due.missed, due.catching_up)).collect();
    assert_eq!(told, [(144, 141, true), (145, 0, true), (146, 0, true)]);
    assert!(due.iter().is_sorted_by(|a, b| a.late > b.late));
    world.run_for(10 * MINUTE);
    let [due] = world.delivered(0)[..] else { panic!("one tick") };
    assert!(!due.catching_up);
}

#[test]
fn of_those_that_are_made_up_for_the_ones_that_are_too_late_are_told_of_only() {
    let mut world = after_a_day(Missed::CatchUp { at_most: 5 }, Some(Duration::from_secs(1_000)));
    let numbers: Vec<_> = world.delivered(0).iter().map(|due| (due.tick.n, due.missed)).collect();
    assert_eq!(numbers, [(145, 0), (146, 0)]);
    let missed: Vec<_> = world.told(0).iter().filter_map(is_missed).collect();
    assert_eq!(missed, [(144, 142, TickMiss::TooLate)]);
}

#[test]
fn a_year_away_starts_no_backlog_unless_one_is_asked_for_and_then_a_bounded_one() {
    let year = 365 * 24 * HOUR;
    for (missed, at_once) in [(Missed::Skip, 1), (Missed::CatchUp { at_most: u32::MAX }, 1_000)] {
        let mut world = World::with(seconds(60));
        world.run_to(90 * SECOND);
        world.instances.clear();
        world.run_to(90 * SECOND + year);
        let mut options = seconds(60);
        options.missed = missed;
        world.join(options);
        world.run_for(SECOND);
        let due = world.delivered(0);
        assert_eq!(due.len(), at_once);
        let all: u64 = due.iter().map(|due| due.missed + 1).sum();
        assert_eq!(all, 365 * 24 * 60, "each one is accounted for");
    }
}

#[test]
fn a_suspend_of_a_minute_makes_one_tick_of_a_fast_timer() {
    let mut world = World::with(seconds(1));
    world.run_to(5 * SECOND + 500 * MS);
    world.delivered(0);
    world.instances[0].asleep_until = 65 * SECOND + 500 * MS;
    world.run_to(65 * SECOND + 600 * MS);
    let due = world.delivered(0);
    // By the clocks alone it may be up to two and a half seconds earlier; then the store says the rest.
    let missed: u64 = due.iter().map(|due| due.missed).sum();
    assert!(due.len() <= 2 && due.iter().all(|due| due.tick.n >= 62), "{due:?}");
    assert_eq!(missed + due.len() as u64, 60, "{due:?}");
    world.run_for(3 * SECOND);
    let numbers: Vec<_> = world.delivered(0).iter().map(|due| due.tick.n).collect();
    assert_eq!(numbers.last(), Some(&68));
}

#[test]
fn the_first_due_time_is_recorded_at_the_registration() {
    // Due in ten minutes; the process stops after one, and comes again when it was due.
    let year = 365 * 24 * 3600;
    let mut world = World::with(seconds(year));
    world.run_to(MINUTE);
    world.instances.clear();
    world.run_to(year * SECOND + 5 * MINUTE);
    world.join(seconds(year));
    world.run_for(SECOND);
    let [due] = world.delivered(0)[..] else { panic!("the first one") };
    assert_eq!((due.tick.n, due.missed), (1, 0));
}

#[test]
fn who_comes_after_a_holder_that_stopped_right_before_the_tick_looks_back() {
    let mut world = World::with(seconds(600));
    world.run_to(10 * MINUTE + SECOND);
    assert_eq!(world.numbers(0), [1]);
    world.run_to(20 * MINUTE - SECOND);
    world.instances.clear();
    world.run_to(20 * MINUTE + 700 * MS);
    world.join(seconds(600));
    world.run_for(SECOND);
    let [due] = world.delivered(0)[..] else { panic!("the one in between") };
    assert_eq!((due.tick.n, due.missed), (2, 0));
}

#[test]
fn what_the_fleet_has_had_is_not_delivered_to_who_comes_later() {
    let mut world = World::with(seconds(10));
    world.run_to(35 * SECOND);
    world.join(seconds(10));
    world.run_to(39 * SECOND);
    assert_eq!(world.numbers(1), []);
    world.run_to(45 * SECOND);
    assert_eq!((world.numbers(0), world.numbers(1)), (vec![1, 2, 3, 4], vec![4]));
}

#[test]
fn where_ticks_are_claimed_what_others_have_claimed_is_neither_missed_nor_delivered() {
    let mut world = World::new();
    world.join_as(seconds(60), false, 1_000_000);
    world.run_to(150 * SECOND);
    assert_eq!(world.delivered(0).len(), 2);
    // The clock steps forward, and the others claim what is due by it, before this one hears of either.
    world.store.ahead += (600 * SECOND) as i64;
    world.store.record.as_mut().expect("it is there").claimed = 12;
    world.run_to(180 * SECOND + 500 * MS);
    let told: Vec<_> = world.delivered(0).iter().map(|due| (due.tick.n, due.missed)).collect();
    assert_eq!(told, [(13, 0)]);
}
