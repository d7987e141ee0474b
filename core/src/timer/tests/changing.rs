//! How one schedule takes the place of another.

use super::*;

#[test]
fn a_changed_period_is_proposed_once_and_counts_from_the_next_tick_on() {
    let mut world = World::with(seconds(60));
    world.run_to(150 * SECOND);
    let second = world.join(seconds(10));
    world.run_to(151 * SECOND);
    let record = world.store.record.clone().expect("it is there");
    assert_eq!(&*record.schedule, "every 60s");
    assert_eq!(record.next.as_ref().map(|next| (next.at.n, &*next.schedule)), Some((3, "every 10s")));
    world.run_to(215 * SECOND);
    assert_eq!(world.numbers(0), [1, 2, 3, 4, 5, 6]);
    assert_eq!(world.numbers(second), [3, 4, 5, 6]);
    let changed = |notice: &Notice| matches!(notice, Notice::ScheduleChanged { .. });
    assert_eq!(world.told(0).iter().filter(|notice| changed(notice)).count(), 1);
    assert_eq!(world.told(second), []);
    assert_eq!(world.instances[0].timer.schedule().text(), "every 10s");
    assert_eq!(world.store.record.as_ref().map(|record| record.revision), Some(3), "staged, then followed");
}

#[test]
fn of_two_who_register_at_once_the_last_one_counts_for_both() {
    let mut world = World::with(seconds(10));
    world.join(seconds(15));
    world.join(seconds(20));
    world.run_to(10 * MINUTE);
    let texts: Vec<_> = world
        .instances
        .iter()
        .map(|instance| alloc::string::String::from(instance.timer.schedule().text()))
        .collect();
    assert_eq!(texts[0], texts[1]);
    assert_eq!(texts[1], texts[2]);
    let last = |instance| world.numbers(instance).last().copied();
    assert_eq!((last(0), last(0)), (last(1), last(2)));
    let gaps: Vec<_> = world.instances[0].ticks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let tail = &gaps[gaps.len() / 2..];
    assert!(tail.iter().all(|gap| gap.abs_diff(tail[0]) < SECOND / 2), "{gaps:?}");
}

#[test]
fn a_restart_with_the_same_schedule_changes_nothing() {
    let mut world = World::with(seconds(60));
    world.run_to(150 * SECOND);
    world.instances.clear();
    world.join(seconds(60));
    world.run_to(10 * MINUTE);
    let record = world.store.record.as_ref().expect("it is there");
    assert_eq!((record.revision, record.base.n), (1, 0));
}

#[test]
fn ticks_missed_on_both_sides_of_a_change_are_counted_and_made_up_for() {
    for (missed, told) in [
        (Missed::Skip, vec![(8, 6)]),
        (Missed::CatchUp { at_most: 3 }, vec![(6, 4), (7, 0), (8, 0)]),
        (Missed::CatchUp { at_most: 7 }, (2..=8).map(|n| (n, 0)).collect()),
    ] {
        let mut options = seconds(60);
        options.missed = missed;
        let mut world = World::with(options);
        world.run_to(70 * SECOND);
        // Another stages ten seconds from tick 3 on; this one hears of it, and then sleeps over the change.
        world.store.record.as_mut().expect("it is there").next = Some(NextSchedule {
            at: Tick { n: 3, at: world.store.wall(MS) + Duration::from_secs(180) },
            schedule: "every 10s".into(),
        });
        let timer = &mut world.instances[0].timer;
        timer.request = super::super::Request::At(timer.now);
        timer.timeout(timer.now);
        world.run_to(71 * SECOND);
        world.delivered(0);
        world.store.stalled = true;
        world.instances[0].asleep_until = 238 * SECOND;
        world.run_to(238 * SECOND + 10 * MS);
        let due: Vec<_> = world.delivered(0).iter().map(|due| (due.tick.n, due.missed)).collect();
        // The clock may have gone slow by 2 %, 3.3 s: of the ticks at 180 s and then each ten seconds the eighth
        // is the last that certainly came.
        assert_eq!(due, told, "{missed:?}");
    }
}

/// Ticks at whole minutes, with the number of the second.
#[derive(Debug)]
struct Minutes;

impl Schedule for Minutes {
    fn text(&self) -> &str {
        "minutes"
    }

    fn next(&self, base: Tick, after: Timestamp) -> Option<Tick> {
        let after = after.max(base.at).as_nanos() / MINUTE as i64;
        Some(minute(after + 1))
    }

    fn latest(&self, base: Tick, until: Timestamp) -> Option<Tick> {
        let tick = minute(until.as_nanos() / MINUTE as i64);
        (base.at <= until).then(|| if tick.at <= base.at { base } else { tick })
    }

    fn at(&self, _: Tick, n: u64) -> Timestamp {
        Timestamp::from_nanos((n * SECOND) as i64)
    }

    fn count(&self, base: Tick, after: u64, n: u64) -> u64 {
        let base = u64::try_from(base.at.as_nanos()).expect("after 1970") / SECOND;
        n / 60 - after.max(base) / 60
    }

    fn tolerance(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn rebases(&self) -> bool {
        false
    }
}

fn minute(number: i64) -> Tick {
    let at = number * MINUTE as i64;
    Tick { n: (at / SECOND as i64) as u64, at: Timestamp::from_nanos(at) }
}

#[test]
fn a_change_from_numbers_far_apart_to_a_count_reports_no_missed_ticks() {
    let read = |text: &str| match text {
        "minutes" => Some(AnySchedule::new(Minutes)),
        text => AnySchedule::parse(text),
    };
    let options = |schedule| {
        let mut options = TimerOptions::new(schedule);
        options.parse = read;
        options
    };
    let mut world = World::with(options(AnySchedule::new(Minutes)));
    world.run_to(130 * SECOND);
    let new = world.join(options(every(Duration::from_secs(10))));
    world.run_to(250 * SECOND);
    for instance in [0, new] {
        let due = world.delivered(instance);
        assert!(due.len() >= 7 && due.iter().all(|due| due.missed == 0), "{due:?}");
        assert!(due.is_sorted_by(|a, b| a.tick.n < b.tick.n));
    }
    // Whoever comes after the change knows nothing of the ticks before it.
    world.instances.clear();
    world.run_to(305 * SECOND);
    world.join(options(every(Duration::from_secs(10))));
    world.run_for(SECOND);
    let due = world.delivered(0);
    assert!(matches!(due[..], [DueTick { missed: 5, .. }]), "{due:?}");
}

#[test]
fn a_clock_that_steps_back_makes_no_tick_of_a_schedule_that_does_not_count_come_twice() {
    let mut world = World::with(TimerOptions::new(AnySchedule::new(Minutes)));
    world.run_to(10 * MINUTE + SECOND);
    let before = world.delivered(0).len();
    world.store.ahead -= 3 * MINUTE as i64;
    world.run_for(10 * MINUTE);
    let due = world.delivered(0);
    assert!((6..=8).contains(&due.len()), "{before} then {due:?}");
    assert!(due.is_sorted_by(|a, b| a.tick.n < b.tick.n));
    assert!(world.told(0).is_empty());
}

#[test]
fn a_schedule_that_cannot_be_read_here_makes_no_ticks_until_it_changes() {
    let mut world = World::with(seconds(10));
    world.run_to(25 * SECOND);
    let record = world.store.record.as_mut().expect("it is there");
    (record.revision, record.schedule) = (7, "lunar phases".into());
    world.run_to(5 * MINUTE);
    assert!(world.numbers(0).len() <= 3);
    let told = world.told(0);
    assert_eq!(told, [Notice::ScheduleUnreadable { timer: TimerKey(1) }], "once, and not replaced");
    let asked = world.store.asked.iter().filter(|at| **at > 40 * SECOND).count();
    assert!((4..=5).contains(&asked), "once a minute: {asked}");
    let record = world.store.record.as_mut().expect("it is there");
    (record.revision, record.schedule) = (8, "every 10s".into());
    world.run_to(10 * MINUTE);
    assert!(world.numbers(0).len() > 20);
}

#[test]
fn a_schedule_that_cannot_be_read_is_replaced_by_who_registers_another() {
    let mut world = World::with(seconds(10));
    world.run_to(25 * SECOND);
    world.instances.clear();
    let record = world.store.record.as_mut().expect("it is there");
    (record.revision, record.schedule) = (7, "lunar phases".into());
    world.join(seconds(10));
    world.run_for(25 * SECOND);
    let numbers = world.numbers(0);
    assert_eq!(numbers.last(), Some(&4), "{numbers:?}");
}
