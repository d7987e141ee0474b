//! What the records of jobs promise.

use std::time::Duration;

use tenure_core::JobName;

use super::Harness;
use super::candidate::{PATIENCE, TIMEOUT, long_ttl, short_ttl, timing};
use crate::{RunOutcome, RunRecord, RunReport, RunState, Store};

pub(super) fn job(name: impl AsRef<str>) -> JobName {
    let name = name.as_ref();
    JobName::new(name).unwrap_or_else(|error| panic!("{name:?} is no name: {error}"))
}

pub(super) fn to_report(job: &JobName, run: usize, ttl: Duration) -> RunReport {
    RunReport::new(job.clone(), format!("here/1.{run}"), ttl, TIMEOUT)
}

pub(super) async fn runs(store: &impl Store, job: &JobName) -> Vec<RunRecord> {
    store.runs(job.clone()).await.expect("reading the runs works")
}

async fn report(store: &impl Store, report: &RunReport) {
    store.report(report.clone()).await.expect("the report is fine");
}

/// A run shows from its first report on, with what it says, when it began and ended, and how.
pub fn a_run_is_recorded_from_its_first_report_to_its_outcome<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = job("backup");
        assert_eq!(runs(&store, &name).await, []);
        assert_eq!(store.jobs(None, 10).await, Ok(Vec::new()));
        let mut run = to_report(&name, 1, long_ttl(&store));
        (run.index, run.text) = (Some(7), Some("half".into()));
        report(&store, &run).await;
        let other = h.handle(&store).await;
        let begun = runs(&other, &name).await.remove(0);
        assert_eq!((&*begun.owner, begun.index), ("here/1.1", Some(7)));
        assert_eq!((begun.state, begun.ended), (RunState::Running, None));
        assert_eq!(begun.text.as_deref(), Some("half"));
        h.pass(Duration::from_millis(20)).await;
        (run.outcome, run.text) = (Some(RunOutcome::Failed), Some("all".into()));
        report(&other, &run).await;
        let ended = runs(&store, &name).await.remove(0);
        assert_eq!((ended.state, ended.started), (RunState::Ended(RunOutcome::Failed), begun.started));
        assert!(ended.ended.is_some_and(|ended| ended > begun.started), "{ended:?}");
        assert_eq!((ended.text.as_deref(), ended.index), (Some("all"), Some(7)));
    });
}

/// The first outcome of a run stands; what is reported of it later, or once more, changes nothing.
pub fn the_first_outcome_of_a_run_counts<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = job("ended");
        let run = to_report(&name, 1, long_ttl(&store));
        report(&store, &run).await;
        report(&store, &RunReport { outcome: Some(RunOutcome::Stopped), ..run.clone() }).await;
        let ended = runs(&store, &name).await;
        assert_eq!(ended[0].state, RunState::Ended(RunOutcome::Stopped));
        for outcome in [Some(RunOutcome::Stopped), Some(RunOutcome::Succeeded), None] {
            h.pass(Duration::from_millis(2)).await;
            report(&store, &RunReport { outcome, text: Some("late".into()), ..run.clone() }).await;
            assert_eq!(runs(&store, &name).await, ended, "{outcome:?}");
        }
    });
}

/// A report that is repeated makes no second run, and an outcome that comes first needs no beginning.
pub fn reports_that_are_repeated_make_one_run<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = job("repeated");
        let run = to_report(&name, 1, long_ttl(&store));
        report(&store, &run).await;
        report(&h.handle(&store).await, &run).await;
        assert_eq!(runs(&store, &name).await.len(), 1);
        let short = RunReport { outcome: Some(RunOutcome::Succeeded), ..to_report(&name, 2, run.ttl) };
        report(&store, &short).await;
        report(&store, &to_report(&name, 2, run.ttl)).await;
        let states: Vec<_> = runs(&store, &name).await.into_iter().map(|run| run.state).collect();
        assert_eq!(states, [RunState::Ended(RunOutcome::Succeeded), RunState::Running], "the latest first");
    });
}

/// A run that says nothing for its TTL is abandoned, not running for ever; each report begins the TTL anew.
pub fn a_run_without_a_sign_of_life_is_abandoned<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = job("silent");
        let ttl = short_ttl::<H>(&store);
        let timing = timing(&store, ttl);
        let run = to_report(&name, 1, ttl);
        let state = async || runs(&store, &name).await.remove(0).state;
        let begun = h.now();
        report(&store, &run).await;
        // Longer than one TTL, with a sign of life in each half.
        let mut sent = begun;
        while h.now().saturating_since(begun) < ttl * 2 {
            h.pass(ttl / 4).await;
            sent = h.now();
            report(&store, &run).await;
        }
        let before = h.now();
        let after_reports = state().await;
        if h.now().saturating_since(sent) < timing.valid_for() {
            assert_eq!(
                after_reports,
                RunState::Running,
                "{:?} after a report",
                before.saturating_since(sent)
            );
        }
        let limit = h.now() + timing.outlived_after() + PATIENCE;
        while state().await != RunState::Abandoned {
            assert!(h.now() < limit, "it still runs, they say");
            h.pass(ttl / 20).await;
        }
        let record = runs(&store, &name).await.remove(0);
        assert!(record.ended.is_some_and(|ended| ended > record.started), "{record:?}");
        let listed = store.jobs(None, 10).await.expect("listing works");
        assert_eq!((listed[0].running, listed[0].latest.state), (0, RunState::Abandoned));
    });
}

/// The latest runs of a job are kept, so many, and of each job its own.
pub fn the_latest_hundred_runs_of_a_job_are_kept<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let (name, other) = (job("often"), job("once"));
        let ttl = long_ttl(&store);
        report(&store, &to_report(&other, 0, ttl)).await;
        let (most, more) = (RunReport::MOST_RUNS, 5);
        for run in 0..most + more {
            let outcome = (run % 2 == 0).then_some(RunOutcome::Succeeded);
            report(&store, &RunReport { outcome, ..to_report(&name, run, ttl) }).await;
        }
        let kept: Vec<String> = runs(&store, &name).await.into_iter().map(|run| run.owner).collect();
        let latest: Vec<String> = (more..most + more).rev().map(|run| format!("here/1.{run}")).collect();
        assert_eq!(kept, latest);
        assert_eq!(runs(&store, &other).await.len(), 1);
        let listed = store.jobs(None, 10).await.expect("listing works");
        let counts: Vec<_> = listed.iter().map(|job| (job.kept, job.running)).collect();
        assert_eq!(counts, [(most, most / 2), (1, 1)]);
    });
}

/// A list is read in pages, in the order of the names' bytes, each job once, with its latest run.
pub fn jobs_are_listed_page_by_page<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut names: Vec<JobName> =
            (0..10).map(|number| job(format!("{}{number}", ["a", "B", "ä/"][number % 3]))).collect();
        for name in &names {
            for run in 1..3 {
                report(&store, &to_report(name, run, long_ttl(&store))).await;
            }
        }
        names.sort();
        for most in [1, 4, 10, 11] {
            let mut found: Vec<JobName> = Vec::new();
            loop {
                let page = store.jobs(found.last().cloned(), most).await.expect("listing works");
                assert!(page.len() <= most, "at most {most}: {page:?}");
                if page.is_empty() {
                    break;
                }
                for entry in page {
                    assert_eq!((entry.kept, entry.running, &*entry.latest.owner), (2, 2, "here/1.2"));
                    found.push(entry.name);
                }
                assert!(found.len() <= names.len(), "each job once: {found:?}");
            }
            assert_eq!(found, names, "in pages of {most}");
        }
        assert_eq!(store.jobs(None, 0).await, Ok(Vec::new()));
    });
}

/// Forgetting a job removes all of its records, and those of no other.
pub fn a_forgotten_job_is_gone<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let (name, other) = (job("forgotten"), job("kept"));
        assert_eq!(store.forget_job(name.clone()).await, Ok(false));
        for name in [&name, &other] {
            report(&store, &to_report(name, 1, long_ttl(&store))).await;
        }
        assert_eq!(store.forget_job(name.clone()).await, Ok(true));
        assert_eq!(runs(&store, &name).await, []);
        assert_eq!(store.forget_job(name.clone()).await, Ok(false));
        let listed = store.jobs(None, 10).await.expect("listing works");
        assert_eq!(listed.into_iter().map(|job| job.name).collect::<Vec<_>>(), [other]);
    });
}

/// A restart of the programs and the store loses no record of a job.
pub fn reopening_keeps_the_records_of_jobs<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = job("kept");
        let run = |run| to_report(&name, run, long_ttl(&store));
        report(&store, &RunReport { outcome: Some(RunOutcome::Failed), ..run(1) }).await;
        report(&store, &RunReport { text: Some("on it".into()), ..run(2) }).await;
        let before = runs(&store, &name).await;
        assert_eq!(before.len(), 2);
        store.close().await;
        let store = h.reopen(store).await;
        assert_eq!(runs(&store, &name).await, before);
    });
}
