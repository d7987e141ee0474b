//! Which ticks wait, which make room, and what is said of them.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Overlap, Periodic, PeriodicOptions, Refused, Run};
use crate::command::ClaimEnd;
use crate::lease::{LeaseOptions, WaitLimit};
use crate::name::{LeaseKey, LeaseName, PeriodicKey, TimerKey, Token, WorkerKey};
use crate::notice::{AcquireFailure, Notice};
use crate::schedule::{Every, Tick};
use crate::time::{Instant, Timestamp};
use crate::timer::{DueTick, Missed, TickMiss, TimerEnd, TimerOptions};
use crate::timing::{LeaseConfig, StoreClock};

const NOW: Instant = Instant::from_nanos(1_000_000_000);

fn options() -> PeriodicOptions {
    let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default());
    let timer = TimerOptions::new(Every::new(Duration::from_secs(1)).expect("a fine period"));
    PeriodicOptions::new(timer, LeaseOptions::new(timing.expect("the defaults fit")))
}

fn job(options: PeriodicOptions) -> Periodic {
    Periodic::new(PeriodicKey(1), TimerKey(2), options)
}

fn due(n: u64) -> DueTick {
    DueTick { tick: Tick { n, at: Timestamp::EPOCH }, late: Duration::ZERO, missed: 0, catching_up: false }
}

fn run(n: u64) -> Run {
    Run {
        due: due(n),
        lease: LeaseKey(9),
        claim: None,
        latest: None,
        granted: false,
        started: false,
        watched: false,
        end: ClaimEnd::NotStarted,
        refused: None,
    }
}

fn with_a_run(mut job: Periodic) -> Periodic {
    job.runs.insert(WorkerKey(8), Run { started: true, ..run(1) });
    job
}

fn skips(notices: &[Notice]) -> Vec<(u64, TickMiss)> {
    let skip = |notice: &Notice| match notice {
        Notice::TickSkipped { tick, why, .. } => (*tick, *why),
        other => panic!("{other:?}"),
    };
    notices.iter().map(skip).collect()
}

#[test]
fn as_many_ticks_wait_as_may_be_made_up_for_and_the_oldest_make_room() {
    for (missed, waiting) in
        [(Missed::Skip, 1), (Missed::CatchUp { at_most: 0 }, 1), (Missed::CatchUp { at_most: 3 }, 3)]
    {
        let mut options = options();
        options.timer.missed = missed;
        let mut job = job(options);
        let mut dropped = Vec::new();
        for n in 1..=10 {
            dropped.extend(skips(&job.ticked(NOW, due(n))));
        }
        let expected: Vec<_> = (1..=10 - waiting).map(|n| (n, TickMiss::Superseded)).collect();
        assert_eq!(dropped, expected, "{missed:?}");
        let next: Vec<_> = core::iter::from_fn(|| job.next(NOW)).map(|due| due.tick.n).collect();
        assert_eq!(next, (11 - waiting..=10).collect::<Vec<_>>());
    }
}

#[test]
fn with_what_waits_behind_them_candidates_are_no_more_than_may_be_made_up_for() {
    for (missed, pending, candidates, superseded) in [
        (Missed::Skip, 0, 2, 0),
        (Missed::Skip, 1, 2, 2),
        (Missed::CatchUp { at_most: 3 }, 2, 1, 0),
        (Missed::CatchUp { at_most: 3 }, 3, 1, 1),
        (Missed::CatchUp { at_most: 3 }, 2, 3, 2),
    ] {
        let mut options = options();
        options.timer.missed = missed;
        let mut job = job(options);
        for n in 1..=pending {
            job.ticked(NOW, due(n));
        }
        assert_eq!(job.give_way(candidates), superseded, "{missed:?} {pending} {candidates}");
    }
}

#[test]
fn what_is_held_up_by_the_store_is_made_up_for_where_ticks_are_caught_up_and_no_run_goes_on() {
    let catch_up = Missed::CatchUp { at_most: 3 };
    for (missed, unanswered, unsettled, working, made_up_for) in [
        (catch_up, true, false, false, true),
        (catch_up, false, true, false, true),
        (catch_up, false, false, false, false),
        (catch_up, true, true, true, false),
        (Missed::Skip, true, true, false, false),
    ] {
        let mut options = options();
        (options.timer.missed, options.overlap) = (missed, Overlap::Queue);
        let mut job = job(options);
        let claiming = WorkerKey(7);
        job.runs.insert(claiming, run(2));
        if working {
            job = with_a_run(job);
        }
        job.unsettled.extend(unsettled.then_some(LeaseKey(6)));
        job.ticked(NOW, due(3));
        let keys: &[_] = if unanswered { &[claiming] } else { &[] };
        job.held_up(3, keys);
        assert_eq!(job.runs[&claiming].due.catching_up, made_up_for && unanswered);
        let next = job.next(NOW).map(|due| due.catching_up);
        assert_eq!(next, Some(made_up_for), "{missed:?} {unanswered} {unsettled} {working}");
    }
    let mut job = job(options());
    job.options.timer.missed = catch_up;
    job.ticked(NOW, due(1));
    assert_eq!(job.next(NOW), Some(due(1)));
    job.held_up(1, &[WorkerKey(7)]);
    assert!(!job.has(1), "it was claimed at once");
}

#[test]
fn a_tick_is_as_late_as_it_is_when_it_is_claimed_and_too_late_ones_are_not() {
    let mut options = options();
    options.timer.late_limit = Some(Duration::from_secs(5));
    let mut job = job(options);
    job.ticked(NOW, DueTick { late: Duration::from_secs(1), ..due(1) });
    let due = job.next(NOW + Duration::from_secs(3)).expect("it waits");
    assert_eq!(due.late, Duration::from_secs(4));
    let wait = |late| job.run_options(&DueTick { late, ..due }).map(|options| options.wait);
    assert_eq!(wait(Duration::from_secs(4)), Some(WaitLimit::AtMost(Duration::from_secs(1))));
    assert_eq!(wait(Duration::from_secs(6)), None);
}

#[test]
fn while_a_run_goes_on_ticks_are_skipped_queued_or_claimed_as_the_policy_says() {
    for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Allow] {
        let mut options = options();
        options.overlap = overlap;
        let mut job = with_a_run(job(options));
        let skipped = skips(&job.ticked(NOW, due(2)));
        let expected = if overlap == Overlap::Skip { vec![(2, TickMiss::Overlap)] } else { Vec::new() };
        assert_eq!((skipped, job.has(2)), (expected, overlap != Overlap::Skip));
        assert_eq!(job.may_claim(), overlap == Overlap::Allow);
        // What is made up for waits for its turn in any case.
        job.ticked(NOW, DueTick { catching_up: true, ..due(3) });
        assert!(job.has(3) && job.has(1) && !job.has(4));
    }
}

#[test]
fn a_run_that_starts_skips_what_waits_but_not_what_queues_or_is_made_up_for() {
    for (overlap, catching_up, stays) in [
        (Overlap::Skip, false, false),
        (Overlap::Skip, true, true),
        (Overlap::Queue, false, true),
        (Overlap::Allow, false, true),
    ] {
        let mut options = options();
        options.overlap = overlap;
        let mut job = job(options);
        job.ticked(NOW, DueTick { catching_up, ..due(2) });
        let skipped = skips(&job.started());
        assert_eq!(skipped.is_empty(), stays, "{overlap:?} {catching_up}");
        assert_eq!(job.has(2), stays);
    }
}

#[test]
fn why_a_claim_failed_decides_what_is_said_of_its_tick() {
    use AcquireFailure as Why;
    let regressed = Why::StoreRegressed { token: Token::new(1), floor: Token::new(2) };
    let missed = Refused::Missed;
    for (why, plain, retried) in [
        (Why::TickTaken, Refused::NotOurs, Refused::NotOurs),
        (Why::GivenUp, Refused::NotOurs, Refused::NotOurs),
        (Why::ShuttingDown, Refused::NotOurs, Refused::NotOurs),
        (Why::TickOverlaps, missed(TickMiss::Overlap), missed(TickMiss::Overlap)),
        // Where a tick may be tried again, whoever is told to wait knows that another runs it.
        (Why::Busy, missed(TickMiss::TooLate), Refused::NotOurs),
        (Why::Unreachable, missed(TickMiss::TooLate), missed(TickMiss::TooLate)),
        (Why::GrantedTooLate, missed(TickMiss::TooLate), missed(TickMiss::TooLate)),
        (Why::Refused, missed(TickMiss::Refused), missed(TickMiss::Refused)),
        (regressed, missed(TickMiss::Refused), missed(TickMiss::Refused)),
    ] {
        for (attempts, expected) in [(1, plain), (2, retried)] {
            let mut options = options();
            options.attempts = attempts;
            assert_eq!(job(options).refused(&run(1), why), expected, "{why:?} {attempts}");
        }
    }
    let mut options = options();
    options.lease = Some(LeaseName::new("machine").expect("a fine name"));
    let job = job(options);
    assert_eq!(job.refused(&run(1), Why::Busy), missed(TickMiss::Overlap), "the lease is in use");
    let watched = Run { watched: true, claim: Some(LeaseKey(10)), ..run(1) };
    assert_eq!(job.refused(&watched, Why::Busy), Refused::NotOurs);
}

#[test]
fn of_a_tick_that_was_run_nothing_is_said_and_of_one_that_was_not_the_reason() {
    let job = job(options());
    for end in [ClaimEnd::Finished, ClaimEnd::Interrupted] {
        assert_eq!(job.missed(&Run { end, started: true, ..run(1) }), None);
    }
    assert_eq!(job.missed(&Run { refused: Some(Refused::NotOurs), ..run(1) }), None);
    let told = job.missed(&Run { refused: Some(Refused::Missed(TickMiss::Superseded)), ..run(1) });
    assert_eq!(skips(&Vec::from_iter(told)), [(1, TickMiss::Superseded)]);
    assert_eq!(skips(&Vec::from_iter(job.missed(&run(1)))), [(1, TickMiss::TooLate)]);
}

#[test]
fn a_job_that_ends_takes_no_ticks_says_nothing_more_and_is_over_once_nothing_runs() {
    let mut job = with_a_run(job(options()));
    assert_eq!(job.over(), None);
    job.end(TimerEnd::Refused);
    job.end(TimerEnd::Stopped);
    assert!(job.is_ending());
    assert_eq!(job.over(), None, "its run goes on");
    assert_eq!(job.ticked(NOW, due(2)), []);
    assert!(!job.has(2) && !job.may_claim());
    assert_eq!(job.missed(&run(3)), None);
    job.runs.clear();
    assert_eq!(job.over(), Some(TimerEnd::Refused), "the first reason counts");
}

#[test]
fn sixteen_runs_are_the_most_at_a_time() {
    let mut options = options();
    options.overlap = Overlap::Allow;
    let mut job = job(options);
    job.ticked(NOW, due(99));
    for key in 0..PeriodicOptions::MOST_RUNS as u64 {
        assert!(job.may_claim());
        job.runs.insert(WorkerKey(key), run(key));
    }
    assert!(!job.may_claim());
}
