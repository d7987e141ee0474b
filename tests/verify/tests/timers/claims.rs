//! Who runs a tick.

use super::*;

#[test]
fn a_fast_job_runs_once_for_each_tick_though_clocks_are_apart_and_one_node_is_late() {
    let mut fleet = Fleet::new();
    for skew in [0, 30 * SECOND, HOUR] {
        let member = fleet.join(skew, 1_000_000);
        fleet.start(member, "pulse", job(1));
    }
    fleet.member(2).latency = 200 * MS;
    fleet.run_to(2 * MINUTE + 500 * MS);
    assert_eq!(fleet.ran("pulse").len(), 120);
    fleet.assert_each_once("pulse", 1, 100 * MS);
}

#[test]
fn each_tick_runs_once_while_clocks_drift_as_far_as_they_may() {
    let mut fleet = Fleet::new();
    for rate in [990_000, 1_000_000, 1_010_000] {
        let member = fleet.join(5, rate);
        fleet.start(member, "pulse", job(7));
    }
    fleet.run_to(HOUR + SECOND);
    assert_eq!(fleet.ran("pulse").len(), 514);
    fleet.assert_each_once("pulse", 1, 100 * MS);
}

#[test]
fn three_instances_that_start_apart_run_one_a_minute_and_joining_changes_nothing() {
    let mut fleet = Fleet::new();
    for _ in 0..3 {
        fleet.with_job("report", job(60));
        fleet.run_for(20 * SECOND);
    }
    fleet.run_to(10 * MINUTE + SECOND);
    assert_eq!(fleet.ran("report").len(), 10);
    fleet.assert_each_once("report", 1, 100 * MS);
    let at: Vec<_> = fleet.runs.iter().map(|run| run.due.tick.at.as_nanos()).collect();
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] == MINUTE as i64), "{at:?}");
}

#[test]
fn a_holder_that_stops_a_second_before_the_tick_leaves_it_to_the_next() {
    let mut fleet = Fleet::new();
    let first = fleet.with_job("report", job(600));
    fleet.run_to(20 * MINUTE - SECOND);
    let now = fleet.members[&first].local(fleet.now);
    fleet.member(first).node.shutdown(now);
    fleet.run_for(500 * MS);
    fleet.kill(first);
    fleet.run_to(20 * MINUTE + 700 * MS);
    fleet.with_job("report", job(600));
    fleet.run_for(SECOND);
    let run = fleet.runs.last().expect("a run");
    assert_eq!((run.due.tick.n, run.due.missed), (2, 0));
    assert!(run.due.late >= Duration::from_millis(650), "{run:?}");
}

#[test]
fn a_runner_that_dies_in_its_run_blocks_the_next_tick_no_longer_than_its_claim_lives() {
    let mut fleet = Fleet::new();
    let first = fleet.with_job("report", job(60));
    let second = fleet.join(0, 1_000_000);
    for member in [first, second] {
        fleet.member(member).length = 30 * SECOND;
    }
    fleet.run_to(50 * SECOND);
    fleet.start(second, "report", job(60));
    // Whoever runs it dies.
    fleet.run_to(61 * SECOND);
    assert_eq!(fleet.ran("report"), [1]);
    let dies = fleet.runs[0].member;
    let stays = if dies == first { second } else { first };
    fleet.member(stays).length = SECOND;
    fleet.kill(dies);
    fleet.run_to(3 * MINUTE + SECOND);
    let ran = fleet.ran("report");
    assert_eq!(ran, [1, 2, 3], "at most once: the first is not repeated");
    assert!(fleet.runs[1..].iter().all(|run| run.member == stays));
}

#[test]
fn a_tick_whose_runner_died_is_repeated_elsewhere_where_it_may_be_and_no_more_often_than_that() {
    for attempts in [2, 3] {
        let mut fleet = Fleet::new();
        let mut options = job(3600);
        options.attempts = attempts;
        for _ in 0..5 {
            let member = fleet.with_job("report", options.clone());
            fleet.member(member).length = 10 * MINUTE;
        }
        fleet.run_to(HOUR + MINUTE);
        for begun in 1..=4_usize {
            let begun = begun.min(attempts as usize);
            assert_eq!(fleet.ran("report"), vec![1; begun]);
            let runner = fleet.runs.last().expect("a run").member;
            if fleet.members.contains_key(&runner) {
                fleet.kill(runner);
            }
            fleet.run_for(2 * TTL);
        }
        let members: BTreeSet<_> = fleet.runs.iter().map(|run| run.member).collect();
        assert_eq!(members.len(), attempts as usize, "each time another");
        fleet.run_to(2 * HOUR + SECOND);
        assert_eq!(fleet.ran("report").last(), Some(&2), "the next tick is run all the same");
    }
}

#[test]
fn a_run_that_outlasts_its_ttl_is_judged_dead_by_nobody_however_wrong_their_clocks_are() {
    let mut fleet = Fleet::new();
    let mut options = job(600);
    options.attempts = 3;
    for skew in [0, 10 * MINUTE, 24 * HOUR] {
        let member = fleet.join(skew, 1_000_000);
        fleet.start(member, "report", options.clone());
        fleet.member(member).length = 5 * MINUTE;
    }
    fleet.run_to(HOUR + MINUTE);
    assert_eq!(fleet.ran("report"), [1, 2, 3, 4, 5, 6]);
    assert!(fleet.runs[..5].iter().all(|run| matches!(run.end, Some((_, Exit::Completed)))));
    fleet.assert_no_overlap("report");
}

#[test]
fn a_store_that_does_not_answer_halts_ticks_only_for_as_long_as_it_does_not() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.with_job("pulse", job(1));
    }
    fleet.run_to(10 * SECOND + 500 * MS);
    assert_eq!(fleet.ran("pulse").len(), 10);
    fleet.stalled = true;
    fleet.run_to(40 * SECOND + 500 * MS);
    fleet.stalled = false;
    let before = fleet.ran("pulse").len();
    fleet.run_to(50 * SECOND + 500 * MS);
    let ran = fleet.ran("pulse");
    assert!(ran.len() - before >= 8, "{ran:?}");
    assert!(ran.is_sorted_by(|a, b| a < b), "each once, in order: {ran:?}");
    fleet.assert_no_overlap("pulse");
}

#[test]
fn one_instance_whose_requests_hang_does_not_halt_the_others() {
    let mut fleet = Fleet::new();
    let slow = fleet.with_job("pulse", job(5));
    fleet.with_job("pulse", job(5));
    fleet.run_to(6 * SECOND);
    // Its answers take longer than anyone waits for them: a grant that it does not hear of blocks until it is over.
    fleet.member(slow).latency = 30 * SECOND;
    fleet.run_to(5 * MINUTE);
    let ran = fleet.ran("pulse");
    assert!(ran.len() >= 40 && ran.is_sorted_by(|a, b| a < b), "{ran:?}");
    fleet.assert_no_overlap("pulse");
}

#[test]
fn jobs_are_with_those_who_have_them_and_nobody_else_leads_for_them() {
    let mut fleet = Fleet::new();
    let a = fleet.with_job("of a", job(10));
    let b = fleet.with_job("of b", job(15));
    fleet.run_to(5 * MINUTE + SECOND);
    assert_eq!((fleet.ran("of a").len(), fleet.ran("of b").len()), (30, 20));
    assert!(fleet.runs.iter().all(|run| run.member == if run.job == timer_name("of a") { a } else { b }));
}

#[test]
fn an_instance_that_was_frozen_in_its_run_is_not_joined_by_another_run_before_its_time_is_over() {
    let mut fleet = Fleet::new();
    let mut options = job(60);
    options.attempts = 2;
    for _ in 0..2 {
        let member = fleet.with_job("report", options.clone());
        fleet.member(member).length = 20 * SECOND;
    }
    fleet.run_to(61 * SECOND);
    let runner = fleet.runs[0].member;
    fleet.member(runner).asleep_until = 3 * MINUTE;
    fleet.run_to(61 * SECOND + TTL - SECOND);
    assert_eq!(fleet.ran("report"), [1]);
    fleet.run_to(10 * MINUTE);
    let ran = fleet.ran("report");
    assert_eq!(ran.iter().filter(|tick| **tick == 1).count(), 2, "repeated once: {ran:?}");
    let first = &fleet.runs[0];
    assert!(first.end.is_some_and(|(at, _)| at >= 3 * MINUTE), "it ends when it wakes: {first:?}");
}

#[test]
fn a_drain_in_a_run_leaves_its_tick_to_another_where_it_may_be_repeated() {
    let mut fleet = Fleet::new();
    let mut options = job(60);
    options.attempts = 2;
    let (mut jobs, mut members) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let member = fleet.join(0, 1_000_000);
        jobs.push(fleet.start(member, "report", options.clone()));
        fleet.member(member).length = 20 * SECOND;
        members.push(member);
    }
    fleet.run_to(65 * SECOND);
    let runner = members.iter().position(|member| *member == fleet.runs[0].member).expect("it is one");
    let now = fleet.members[&members[runner]].local(fleet.now);
    fleet.member(members[runner]).node.drain_periodic(now, jobs[runner]).expect("known");
    fleet.run_to(2 * MINUTE - SECOND);
    assert_eq!(fleet.ran("report"), [1, 1]);
    assert_eq!(fleet.runs[1].member, members[1 - runner]);
    fleet.assert_no_overlap("report");
}

#[test]
fn runs_under_a_lease_never_meet_what_else_uses_it() {
    for overlap in [Overlap::Skip, Overlap::Queue] {
        let mut fleet = Fleet::new();
        let mut options = job(10);
        (options.lease, options.overlap) = (Some(LeaseName::new("machine").expect("fine")), overlap);
        for _ in 0..3 {
            let member = fleet.with_job("report", options.clone());
            fleet.member(member).length = 2 * SECOND;
        }
        let other = fleet.with_job("cleaning", {
            let mut options = job(7);
            (options.lease, options.overlap) =
                (Some(LeaseName::new("machine").expect("fine")), Overlap::Skip);
            options
        });
        fleet.member(other).length = 3 * SECOND;
        fleet.run_to(5 * MINUTE);
        let mut last_end = 0;
        for run in &fleet.runs {
            assert!(run.from >= last_end, "{run:?} under a lease that was in use");
            last_end = run.end.map_or(u64::MAX, |(at, _)| at);
        }
        let (reports, cleanings) = (fleet.ran("report"), fleet.ran("cleaning"));
        let least = if overlap == Overlap::Skip { 10 } else { 20 };
        assert!(reports.len() >= least && cleanings.len() >= 15, "{overlap:?} {reports:?} {cleanings:?}");
        assert!(reports.is_sorted_by(|a, b| a < b) && cleanings.is_sorted_by(|a, b| a < b));
    }
}

#[test]
fn whoever_dies_under_a_lease_holds_the_others_up_no_longer_than_it_lives() {
    let mut fleet = Fleet::new();
    let mut options = job(60);
    (options.lease, options.attempts) = (Some(LeaseName::new("machine").expect("fine")), 2);
    for _ in 0..2 {
        let member = fleet.with_job("report", options.clone());
        fleet.member(member).length = 20 * SECOND;
    }
    fleet.run_to(61 * SECOND);
    let runner = fleet.runs[0].member;
    fleet.kill(runner);
    fleet.run_to(5 * MINUTE + SECOND);
    // The first is repeated once its claim was seen to be over, and the second is skipped if that run goes on.
    let ran = fleet.ran("report");
    assert_eq!(ran.iter().filter(|tick| **tick == 1).count(), 2, "{ran:?}");
    assert!([3, 4, 5].iter().all(|tick| ran.contains(tick)), "{ran:?}");
    assert!(fleet.runs[1..].iter().all(|run| run.member != runner));
}
