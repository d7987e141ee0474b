//! `tenure jobs`: what ran when, where, and how it ended.

use std::time::{Duration, SystemTime};

use comfy_table::Table;
use serde_json::{Map, Value, json};
use tenure::{JobRecord, RunOutcome, RunRecord, RunState, Timestamp};

use crate::args::{Jobs, JobsAction};
use crate::failure::Failure;
use crate::holder::{instance, printable, span, time};
use crate::list::{self, millis, system_time, unknown};
use crate::say;
use crate::store::Place;

/// Lists the jobs or the runs of one, or forgets one.
pub(crate) async fn jobs(args: &Jobs, place: &Place) -> Result<u8, Failure> {
    match &args.action {
        None => list(args.json, place).await,
        Some(JobsAction::History { name, json }) => history(name, *json, place).await,
        Some(JobsAction::Forget { name }) => forget(name, place).await,
    }
}

async fn list(json: bool, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let records = place.answer(tenure.jobs().all()).await;
    let _ = tenure.shutdown().await;
    let records = records.map_err(|error| Failure::from(error).at(place.name()))?;
    list::write(json, &records, as_json, table, || format!("no jobs are recorded in {}", place.name()))
}

async fn history(name: &str, json: bool, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let runs = place.answer(tenure.jobs().history(name)).await;
    let _ = tenure.shutdown().await;
    let runs = runs.map_err(|error| Failure::from(error).at(place.name()))?;
    let run_as_json = |run: &RunRecord| Value::Object(run_as_json(run));
    let nothing = || format!("no runs of job {name:?} are recorded in {}", place.name());
    list::write(json, &runs, run_as_json, runs_table, nothing)
}

async fn forget(name: &str, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let forgotten = place.answer(tenure.jobs().forget(name)).await;
    let _ = tenure.shutdown().await;
    if forgotten.map_err(|error| Failure::from(error).at(place.name()))? {
        say::line(format_args!("the records of job {name:?} are forgotten"));
    } else {
        say::line(format_args!("there are no records of job {name:?}; nothing was done"));
    }
    Ok(0)
}

/// A job as an object. The names of the fields are part of the interface; what is not known is null.
pub(crate) fn as_json(record: &JobRecord) -> Value {
    json!({
        "job": record.name.as_str(),
        "running": record.running,
        "kept": record.kept,
        "last": run_as_json(&record.latest),
    })
}

fn run_as_json(run: &RunRecord) -> Map<String, Value> {
    let fields = [
        ("index", json!(run.index)),
        ("instance", json!(instance(&run.owner))),
        ("owner", json!(run.owner)),
        ("started", json!(time(system_time(run.started)))),
        ("ended", json!(run.ended.map(|ended| time(system_time(ended))))),
        ("duration_ms", json!(duration(run).map(millis))),
        ("outcome", json!(outcome(run.state))),
        ("text", json!(run.text)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The state of a run, in a word that is part of the interface.
const fn outcome(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Ended(RunOutcome::Succeeded) => "succeeded",
        RunState::Ended(RunOutcome::Failed) => "failed",
        RunState::Ended(RunOutcome::Stopped) => "stopped",
        RunState::Abandoned => "abandoned",
        _ => "?",
    }
}

/// How long it took, by the store's clock; of a run that goes on, how long it is going on by ours. When one that was
/// abandoned has ended is not known.
fn duration(run: &RunRecord) -> Option<Duration> {
    match (run.state, run.ended) {
        (RunState::Abandoned, _) => None,
        (_, Some(ended)) => Some(ended.saturating_since(run.started)),
        (_, None) => Some(now().saturating_since(run.started)),
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::EPOCH + since
}

pub(crate) fn table(records: &[JobRecord]) -> Table {
    list::table(
        ["JOB", "STATE", "LAST START", "DURATION", "INSTANCE", "RUNS KEPT"],
        records.iter().map(|record| {
            let JobRecord { name, running, kept, latest, .. } = record;
            let state =
                if *running > 0 { format!("running {running}") } else { outcome(latest.state).to_owned() };
            [
                printable(name.as_str()),
                state,
                time(system_time(latest.started)),
                duration(latest).map_or_else(unknown, span),
                printable(instance(&latest.owner)),
                kept.to_string(),
            ]
        }),
    )
}

fn runs_table(runs: &[RunRecord]) -> Table {
    list::table(
        ["INDEX", "INSTANCE", "START", "DURATION", "OUTCOME", "TEXT"],
        runs.iter().map(|run| {
            [
                run.index.map_or_else(unknown, |index| index.to_string()),
                printable(instance(&run.owner)),
                time(system_time(run.started)),
                duration(run).map_or_else(unknown, span),
                outcome(run.state).to_owned(),
                run.text.as_deref().map_or_else(unknown, printable),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(state: RunState, started: i64, ended: Option<i64>) -> RunRecord {
        let mut run = RunRecord::new("\u{1b}[2J", Timestamp::from_nanos(started));
        (run.state, run.ended) = (state, ended.map(Timestamp::from_nanos));
        run
    }

    #[test]
    fn how_long_a_run_took_is_told_as_far_as_it_is_known() {
        let ended = RunState::Ended(RunOutcome::Failed);
        assert_eq!(duration(&run(ended, 5, Some(9))), Some(Duration::from_nanos(4)));
        assert_eq!(duration(&run(ended, 9, Some(5))), Some(Duration::ZERO), "the clock was set back");
        assert_eq!(duration(&run(RunState::Abandoned, 5, Some(9))), None);
        assert_eq!(duration(&run(RunState::Running, i64::MAX, None)), Some(Duration::ZERO));
    }

    #[test]
    fn nothing_in_a_record_is_too_odd_to_be_shown() {
        let mut odd = run(RunState::Running, i64::MIN, None);
        odd.text = Some("\u{7}\n".to_owned());
        let shown = Value::Object(run_as_json(&odd));
        assert_eq!((&shown["started"], &shown["outcome"]), (&json!("?"), &json!("running")));
        let text = runs_table(&[odd]).to_string();
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
    }
}
