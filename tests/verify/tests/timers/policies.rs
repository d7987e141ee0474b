//! What becomes of ticks while nobody runs them, and while runs overlap.

use super::*;

/// A job every ten minutes, of which nobody was there for a day.
fn after_a_day(missed: Missed, late_limit: Option<Duration>) -> (Fleet, usize) {
    let mut fleet = Fleet::new();
    let first = fleet.with_job("report", job(600));
    fleet.run_to(25 * MINUTE);
    assert_eq!(fleet.ran("report"), [1, 2]);
    fleet.kill(first);
    fleet.run_to(25 * MINUTE + 24 * HOUR);
    fleet.runs.clear();
    let mut options = job(600);
    (options.timer.missed, options.timer.late_limit) = (missed, late_limit);
    let member = fleet.with_job("report", options);
    fleet.run_for(MINUTE);
    (fleet, member)
}

#[test]
fn after_a_day_away_one_run_makes_up_for_all_and_says_how_many() {
    let (fleet, _) = after_a_day(Missed::Skip, None);
    let [run] = &fleet.runs[..] else { panic!("{:?}", fleet.runs) };
    assert_eq!((run.due.tick.n, run.due.missed), (146, 143));
    assert!(run.due.late >= Duration::from_secs(290), "{run:?}");
}

#[test]
fn after_a_day_away_nothing_runs_where_late_is_worse_than_never_and_the_reason_is_told() {
    let (mut fleet, member) = after_a_day(Missed::Skip, Some(Duration::from_secs(60)));
    assert_eq!(fleet.ran("report"), []);
    assert_eq!(fleet.member(member).missed, [(146, 144, TickMiss::TooLate)]);
    fleet.run_for(10 * MINUTE);
    assert_eq!(fleet.ran("report"), [147]);
}

#[test]
fn after_a_day_away_as_many_runs_as_allowed_come_one_after_the_other_each_marked() {
    let (mut fleet, _) = after_a_day(Missed::CatchUp { at_most: 4 }, None);
    assert_eq!(fleet.ran("report"), [143, 144, 145, 146]);
    assert!(fleet.runs.iter().all(|run| run.due.catching_up && !run.due.late.is_zero()));
    fleet.assert_no_overlap("report");
    fleet.run_for(10 * MINUTE);
    assert_eq!(fleet.ran("report").last(), Some(&147));
    assert!(!fleet.runs.last().expect("a run").due.catching_up);
}

#[test]
fn two_that_come_back_at_once_make_up_for_each_tick_once() {
    let mut fleet = Fleet::new();
    let mut options = job(60);
    options.timer.missed = Missed::CatchUp { at_most: 5 };
    let first = fleet.with_job("report", options.clone());
    fleet.run_to(90 * SECOND);
    fleet.kill(first);
    fleet.run_to(HOUR + 30 * SECOND);
    for _ in 0..2 {
        let member = fleet.with_job("report", options.clone());
        fleet.member(member).length = 2 * SECOND;
    }
    fleet.run_for(29 * SECOND);
    let mut ran = fleet.ran("report");
    let count = ran.len();
    ran.dedup();
    assert_eq!(ran.len(), count, "{ran:?}");
    assert!(ran.is_sorted() && ran.contains(&60), "{ran:?}");
    fleet.assert_no_overlap("report");
}

/// The store is away from 5.2 s on, while the run of tick 5 goes on, or its claim is on its way.
fn after_an_outage(instances: usize, at_most: u32, from: u64) -> Fleet {
    let mut fleet = Fleet::new();
    let mut options = job(1);
    options.timer.missed = Missed::CatchUp { at_most };
    for _ in 0..instances {
        let member = fleet.with_job("report", options.clone());
        fleet.member(member).length = 300 * MS;
    }
    fleet.run_to(from);
    fleet.stalled = true;
    fleet.run_to(11 * SECOND + 500 * MS);
    fleet.stalled = false;
    fleet.run_to(MINUTE);
    fleet
}

#[test]
fn what_came_while_the_store_was_away_is_made_up_for_one_run_after_the_other() {
    for instances in [1, 3] {
        for from in [4 * SECOND + 900 * MS, 5 * SECOND + 200 * MS] {
            let fleet = after_an_outage(instances, 20, from);
            let ran = fleet.ran("report");
            assert!(ran.is_sorted_by(|a, b| a < b), "{ran:?}");
            fleet.assert_no_overlap("report");
            // No run makes up for the others, and none of them is one that came while a run went on.
            let missing: Vec<_> = (1..=11).filter(|tick| !ran.contains(tick)).collect();
            assert_eq!(missing, [], "{instances} instances, away from {from}: {ran:?}");
            let late = fleet.runs.iter().filter(|run| (6..=11).contains(&run.due.tick.n));
            assert!(late.clone().all(|run| run.due.catching_up && run.due.missed == 0));
            // What came by the clock meanwhile is skipped, and told.
            let told = |tick: &u64| {
                let skipped = fleet.members.values().flat_map(|member| &member.skipped);
                skipped.into_iter().any(|skipped| *skipped == (*tick, TickMiss::Overlap))
            };
            let silent: Vec<_> = (12..=50).filter(|tick| !ran.contains(tick) && !told(tick)).collect();
            assert_eq!(silent, [], "{instances} instances, away from {from}: {ran:?}");
        }
    }
}

#[test]
fn no_more_than_allowed_is_made_up_for_after_the_store_was_away_and_the_others_are_told() {
    let fleet = after_an_outage(1, 3, 4 * SECOND + 900 * MS);
    let ran = fleet.ran("report");
    assert_eq!(ran[..7], [1, 2, 3, 4, 9, 10, 11], "{ran:?}");
    let skipped = &fleet.members[&0].skipped;
    assert!((5..=8).all(|tick| skipped.contains(&(tick, TickMiss::Superseded))), "{skipped:?}");
}

#[test]
fn a_job_that_is_slower_than_its_period_skips_what_comes_meanwhile_in_the_whole_fleet() {
    let mut fleet = Fleet::new();
    for _ in 0..3 {
        let member = fleet.with_job("report", job(10));
        fleet.member(member).length = 25 * SECOND;
    }
    fleet.run_to(5 * MINUTE + 5 * SECOND);
    fleet.assert_no_overlap("report");
    assert_eq!(fleet.ran("report"), [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]);
    // Each tick is either run, or told of by somebody.
    let skipped = || fleet.members.values().flat_map(|member| &member.skipped);
    assert!(skipped().all(|(_, why)| *why == TickMiss::Overlap));
    let known: BTreeSet<_> =
        fleet.ran("report").into_iter().chain(skipped().map(|(tick, _)| *tick)).collect();
    assert_eq!(known, (1..=30).collect());
}

#[test]
fn a_job_that_is_slower_than_its_period_runs_one_after_the_other_where_ticks_queue() {
    let mut fleet = Fleet::new();
    for _ in 0..3 {
        let mut options = job(10);
        options.overlap = Overlap::Queue;
        let member = fleet.with_job("report", options);
        fleet.member(member).length = 25 * SECOND;
    }
    fleet.run_to(5 * MINUTE + 5 * SECOND);
    fleet.assert_no_overlap("report");
    let ran = fleet.ran("report");
    assert!(ran.len() >= 10 && ran.is_sorted_by(|a, b| a < b), "{ran:?}");
}

#[test]
fn runs_overlap_where_they_may_each_tick_once_and_never_more_than_sixteen() {
    let mut fleet = Fleet::new();
    for _ in 0..3 {
        let mut options = job(1);
        options.overlap = Overlap::Allow;
        let member = fleet.with_job("report", options);
        fleet.member(member).length = 30 * SECOND;
    }
    let mut most = 0;
    for _ in 0..120 {
        fleet.run_for(SECOND);
        most = most.max(fleet.runs.iter().filter(|run| run.end.is_none()).count());
    }
    assert_eq!(most, PeriodicOptions::MOST_RUNS);
    let mut ran = fleet.ran("report");
    let count = ran.len();
    assert!(count >= 60, "{count}");
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), count);
}

#[test]
fn a_clock_that_steps_back_by_an_hour_runs_nothing_twice_and_holds_ticks_up_for_a_period_at_most() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.with_job("report", job(600));
    }
    fleet.run_to(65 * MINUTE);
    assert_eq!(fleet.ran("report"), [1, 2, 3, 4, 5, 6]);
    fleet.stepped -= HOUR as i64;
    fleet.run_to(4 * HOUR);
    let ran = fleet.ran("report");
    assert!(ran.iter().copied().eq(1..=ran.len() as u64), "{ran:?}");
    let gaps = fleet.runs.windows(2).map(|pair| pair[1].from - pair[0].from);
    assert!(gaps.max() <= Some(21 * MINUTE));
    assert!(ran.len() >= 22, "{ran:?}");
}

#[test]
fn a_suspend_of_the_whole_fleet_is_followed_by_one_run() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.with_job("pulse", job(1));
    }
    fleet.run_to(10 * SECOND + 500 * MS);
    let before = fleet.ran("pulse").len();
    for member in [0, 1] {
        let member = fleet.members.values_mut().nth(member).expect("two of them");
        member.asleep_until = 70 * SECOND + 500 * MS;
    }
    fleet.run_to(70 * SECOND + 900 * MS);
    let ran = fleet.ran("pulse");
    // One by what the clocks say for certain, and one when the store has said the rest.
    assert!((1..=2).contains(&(ran.len() - before)), "{ran:?}");
    assert!(*ran.last().expect("some") >= 68);
    fleet.run_for(5 * SECOND);
    assert!(fleet.ran("pulse").is_sorted_by(|a, b| a < b));
}
