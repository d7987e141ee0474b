//! What reports make of a run.

use super::*;

const TTL: Duration = Duration::from_secs(10);

fn report(outcome: Option<RunOutcome>) -> RunReport {
    let job = JobName::new("backup").unwrap();
    RunReport { outcome, ..RunReport::new(job, "here/1.0", TTL, TTL) }
}

fn at(seconds: u64) -> StoreTime {
    let passed = Duration::from_secs(seconds);
    StoreTime { wall: Timestamp::EPOCH + passed, now: Instant::ZERO + passed }
}

#[test]
fn a_run_goes_on_as_long_as_it_says_so_and_is_abandoned_after_that() {
    let mut run = KeptRun::new(&report(None), at(0));
    run.report(&report(None), at(8));
    let record = run.record(at(17));
    assert_eq!((record.state, record.started, record.ended), (RunState::Running, at(0).wall, None));
    let record = run.record(at(18));
    assert_eq!((record.state, record.ended), (RunState::Abandoned, Some(at(18).wall)));
    assert!(run.report(&report(None), at(30)), "it was only silent");
    assert_eq!(run.record(at(31)).state, RunState::Running);
}

#[test]
fn a_run_that_is_known_to_be_dead_has_not_ended_in_the_future_nor_before_it_began() {
    let mut run = KeptRun::new(&report(None), at(10));
    run.lives_until = Instant::ZERO;
    assert_eq!(run.record(at(12)).ended, Some(at(12).wall));
    assert_eq!(run.record(at(60)).ended, Some(at(20).wall));
    assert_eq!(run.record(at(3)).ended, Some(at(10).wall), "the clock was set back");
}

#[test]
fn the_first_outcome_counts_and_nothing_changes_it() {
    let mut run = KeptRun::new(&report(None), at(0));
    assert!(run.report(&report(Some(RunOutcome::Failed)), at(2)));
    let ended = run.clone();
    for outcome in [None, Some(RunOutcome::Failed), Some(RunOutcome::Succeeded)] {
        let late = RunReport { index: Some(7), text: Some("late".into()), ..report(outcome) };
        assert!(!run.report(&late, at(3)));
        assert_eq!(run, ended);
    }
    let record = run.record(at(1_000_000));
    assert_eq!((record.state, record.ended), (RunState::Ended(RunOutcome::Failed), Some(at(2).wall)));
}

#[test]
fn a_text_takes_the_place_of_the_one_before_and_none_leaves_it() {
    let text = |text: &str| RunReport { text: Some(text.into()), ..report(None) };
    let mut run = KeptRun::new(&RunReport { index: Some(3), ..text("half") }, at(0));
    run.report(&report(None), at(1));
    assert_eq!(run.record(at(1)).text.as_deref(), Some("half"));
    run.report(&RunReport { index: Some(9), ..text("all") }, at(1));
    let record = run.record(at(1));
    assert_eq!((record.text.as_deref(), record.index), (Some("all"), Some(3)));
}

#[test]
fn an_outcome_is_read_as_it_is_written() {
    for outcome in [RunOutcome::Succeeded, RunOutcome::Failed, RunOutcome::Stopped] {
        assert_eq!(RunOutcome::parse(outcome.as_str()), Some(outcome));
    }
    assert_eq!(RunOutcome::parse("Failed"), None);
}

#[test]
fn a_time_before_1970_or_at_the_end_of_time_is_a_time() {
    for wall in [i64::MIN, -1, i64::MAX].map(Timestamp::from_nanos) {
        let time = StoreTime { wall, now: Instant::MAX };
        let run = KeptRun::new(&report(None), time);
        assert_eq!(run.record(time).started, wall);
    }
}
