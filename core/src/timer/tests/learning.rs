//! What the store's clock does, and what its record says.

use super::*;

fn rebases(notices: &[Notice]) -> usize {
    notices.iter().filter(|notice| matches!(notice, Notice::Rebased { .. })).count()
}

#[test]
fn a_clock_that_steps_back_during_a_wait_costs_one_period_at_most_and_numbers_go_on() {
    let mut world = World::with(seconds(600));
    world.run_to(65 * MINUTE);
    assert_eq!(world.numbers(0), [1, 2, 3, 4, 5, 6]);
    world.store.ahead -= HOUR as i64;
    let stepped = world.now;
    world.run_to(stepped + 2 * HOUR);
    let numbers = world.numbers(0);
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    assert!(numbers.len() >= 6 + 11, "{numbers:?}");
    let gaps = world.instances[0].ticks.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(gaps.max().expect("some") <= 21 * MINUTE);
    assert_eq!(rebases(&world.told(0)), 1);
}

#[test]
fn a_clock_that_steps_back_before_the_first_tick_does_not_put_it_off() {
    let mut world = World::with(seconds(600));
    world.run_to(MINUTE);
    world.store.ahead -= 24 * HOUR as i64;
    world.run_to(5 * MINUTE);
    // It comes again, and knows nothing but the store's time.
    world.instances.clear();
    world.join(seconds(600));
    world.run_for(11 * MINUTE);
    assert_eq!(world.numbers(0), [1]);
    assert_eq!(rebases(&world.told(0)), 1);
}

#[test]
fn a_step_back_by_less_than_it_takes_to_pass_the_last_tick_moves_nothing() {
    let mut world = World::with(seconds(600));
    world.run_to(18 * MINUTE);
    world.store.ahead -= 5 * MINUTE as i64;
    world.run_to(HOUR);
    assert_eq!(rebases(&world.told(0)), 0);
    let numbers = world.numbers(0);
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64) && numbers.len() >= 5, "{numbers:?}");
}

#[test]
fn the_jitter_of_a_store_is_no_step_back() {
    let mut options = seconds(1);
    options.clock.step = Duration::from_millis(250);
    let mut world = World::with(options);
    for second in 1..60 {
        // Replicas that differ by less than is assumed.
        world.store.ahead = NOON - if second % 2 == 0 { (200 * MS) as i64 } else { 0 };
        world.run_to(second * SECOND);
    }
    assert_eq!(rebases(&world.told(0)), 0);
    assert!(world.numbers(0).len() >= 57);
}

#[test]
fn two_that_notice_a_step_back_at_once_base_the_timer_once() {
    let mut world = World::with(seconds(60));
    world.join(seconds(60));
    world.run_to(5 * MINUTE + SECOND);
    world.store.ahead -= HOUR as i64;
    world.run_to(20 * MINUTE);
    assert_eq!(world.store.record.as_ref().map(|record| record.revision), Some(2));
    for instance in 0..2 {
        let numbers = world.numbers(instance);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }
    assert_eq!(world.numbers(0).last(), world.numbers(1).last());
}

#[test]
fn a_clock_that_steps_forward_makes_one_tick_with_the_number_of_the_others() {
    let mut world = World::with(seconds(60));
    world.run_to(5 * MINUTE + SECOND);
    world.delivered(0);
    world.store.ahead += HOUR as i64;
    world.run_for(2 * MINUTE);
    let due = world.delivered(0);
    let told: Vec<_> = due.iter().map(|due| (due.tick.n, due.missed)).collect();
    // The step is noticed shortly before the next tick by what was known.
    assert_eq!(told, [(65, 59), (66, 0), (67, 0)]);
}

#[test]
fn a_record_that_was_forgotten_is_made_anew_and_numbers_go_on() {
    let mut world = World::with(seconds(10));
    world.run_to(45 * SECOND);
    world.store.record = None;
    world.run_to(95 * SECOND);
    let numbers = world.numbers(0);
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64) && numbers.len() >= 8, "{numbers:?}");
}

#[test]
fn a_record_that_was_set_back_is_based_anew_above_what_is_known() {
    let mut world = World::with(seconds(10));
    world.run_to(45 * SECOND);
    let base = Tick { n: 0, at: world.store.wall(45 * SECOND) };
    let record = world.store.record.as_mut().expect("it is there");
    (record.base, record.last, record.claimed) = (base, 0, 0);
    world.run_to(2 * MINUTE);
    let numbers = world.numbers(0);
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64) && numbers.len() >= 10, "{numbers:?}");
}

#[test]
fn a_store_that_does_not_carry_changes_out_is_not_asked_hot() {
    for (ignores, fails) in
        [(true, None), (false, Some(Failure::NotExecuted)), (false, Some(Failure::Refused))]
    {
        let mut world = World::with(seconds(60));
        world.run_to(5 * MINUTE + SECOND);
        (world.store.ignores_changes, world.store.changes_fail) = (ignores, fails);
        world.store.ahead -= HOUR as i64;
        let before = world.store.asked.len();
        world.run_for(10 * MINUTE);
        let asked = world.store.asked.len() - before;
        assert!(asked < 300, "{asked} times in ten minutes, {ignores} {fails:?}");
        let told = world.told(0);
        let retrying = told.iter().filter(|notice| matches!(notice, Notice::TimerRetrying { .. })).count();
        assert_eq!(retrying, 1, "{told:?}");
    }
}

#[test]
fn timers_of_two_names_are_each_with_those_who_registered_them() {
    // Each has a record of its own: what one does is nothing to the other.
    let mut first = World::with(seconds(10));
    let mut second = World::with(seconds(15));
    first.run_to(HOUR);
    second.run_to(HOUR);
    assert_eq!((first.numbers(0).len(), second.numbers(0).len()), (359, 239));
}
