use std::time::Duration;

use tenure_core::{Instant, JobName, Timestamp};
use tenure_store::{RunOutcome, RunReport, StoreTime};

use super::*;

fn extreme(whole: u64, time: i64, words: &str, outcome: Option<RunOutcome>) -> KeptRun {
    let at = Timestamp::from_nanos(time);
    KeptRun {
        owner: format!("host {words}/1.1"),
        index: (whole != 0).then_some(whole),
        started: at,
        ended: outcome.map(|outcome| (outcome, at)),
        lives_until: Instant::from_nanos(whole),
        silent_from: at,
        text: (!words.is_empty()).then(|| words.into()),
    }
}

#[test]
fn every_run_comes_back_unchanged_also_at_the_ends_of_its_numbers() {
    let outcomes = [None, Some(RunOutcome::Succeeded), Some(RunOutcome::Failed), Some(RunOutcome::Stopped)];
    for whole in [0, 1, (1 << 53) + 1, u64::MAX] {
        for time in [i64::MIN, -1, 0, i64::MAX] {
            for words in ["", "two\nlines, \"quoted\" \\ and 🦀\u{0}"] {
                for outcome in outcomes {
                    let run = extreme(whole, time, words, outcome);
                    let text = format!("{whole} {}", write(&run));
                    assert_eq!(read(&run.owner, text.as_bytes()), Ok((whole, run)));
                }
            }
        }
    }
}

#[test]
fn a_run_is_written_as_documented() {
    let time = StoreTime { wall: Timestamp::from_nanos(1_000), now: Instant::from_nanos(1_000) };
    let job = JobName::new("backup").unwrap();
    let mut report = RunReport::new(job, "a/1.1", Duration::from_secs(1), Duration::from_secs(1));
    report.index = Some(7);
    report.outcome = Some(RunOutcome::Failed);
    assert_eq!(
        write(&KeptRun::new(&report, time)),
        concat!(
            r#"{"v":1,"index":7,"started":1000,"ended":1000,"outcome":"failed","lives_until":1000001000,"#,
            r#""silent_from":1000001000}"#
        )
    );
}

#[test]
fn what_is_no_run_is_an_error() {
    let run = write(&extreme(1, 1, "", Some(RunOutcome::Failed)));
    for foreign in
        ["", "x", "7", "7 ", "x {}", "-1 {\"v\":1}", " {\"v\":1}", &run, "18446744073709551616 {\"v\":1}"]
    {
        assert_eq!(read("a", foreign.as_bytes()), Err(Unreadable::Foreign), "{foreign:?}");
    }
    assert_eq!(read("a", b"7\xff {}"), Err(Unreadable::Foreign));
    for (field, wrong) in [
        ("\"v\":1", "\"v\":2"),
        ("\"failed\"", "\"exploded\""),
        ("\"ended\":1,", ""),
        ("\"started\":1", "\"started\":\"1\""),
        ("\"lives_until\":1", "\"lives_until\":-1"),
    ] {
        let text = format!("7 {}", run.replace(field, wrong));
        assert!(matches!(read("a", text.as_bytes()), Err(Unreadable::Problem(_))), "{text}");
    }
}
