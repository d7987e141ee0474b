//! The runs of a job, those that began first being first.
//!
//! ```json
//! {"v":1,"runs":[{"owner":"host/0123….4","index":7,"started":1790000000000000000,"ended":1790000001000000000,
//!   "outcome":"succeeded","lives_until":1790000015000000000,"silent_from":1790000015000000000,"text":"…"}]}
//! ```
//!
//! `index`, `text`, `ended` and `outcome` need not be there; of the last two there are both or neither. A run that can't be
//! read is kept as it stands, and not told.

use std::sync::Arc;

use serde_json::Value;
use tenure_store::{KeptRun, RunOutcome};

use crate::json::{Object, Unreadable, Writer, array};

/// The runs of a job, loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    pub(crate) runs: Vec<KeptRun>,
    /// Those that can't be read, as they stand.
    pub(crate) unreadable: Vec<Value>,
}

/// Reads the runs of a job.
pub(crate) fn read(bytes: &[u8]) -> Result<Runs, Unreadable> {
    let object = Object::record(bytes)?;
    let mut runs = Runs::default();
    for value in object.list("runs")? {
        match Object::within(value.clone()).and_then(|run| read_run(&run)) {
            Ok(run) => runs.runs.push(run),
            Err(_) => runs.unreadable.push(value.clone()),
        }
    }
    Ok(runs)
}

fn read_run(object: &Object) -> Result<KeptRun, Unreadable> {
    let outcome =
        object.optional("outcome", "an outcome", |value| value.as_str().and_then(RunOutcome::parse))?;
    let ended = match outcome {
        Some(outcome) => Some((outcome, object.time("ended")?)),
        None => None,
    };
    Ok(KeptRun {
        owner: object.text("owner")?.to_owned(),
        index: object.optional("index", "a whole number", Value::as_u64)?,
        started: object.time("started")?,
        ended,
        lives_until: object.instant("lives_until")?,
        silent_from: object.time("silent_from")?,
        text: object.optional("text", "a text", |value| value.as_str().map(Arc::from))?,
    })
}

/// Writes the runs of a job.
pub(crate) fn write(runs: &Runs) -> Vec<u8> {
    let ours = runs.runs.iter().map(write_run);
    let all = array(ours.chain(runs.unreadable.iter().map(Value::to_string)));
    Writer::record().raw("runs", &all).end().into_bytes()
}

fn write_run(run: &KeptRun) -> String {
    let KeptRun { owner, index, started, ended, lives_until, silent_from, text } = run;
    Writer::within()
        .field("owner", &**owner)
        .some("index", *index)
        .field("started", started.as_nanos())
        .some("ended", ended.map(|(_, at)| at.as_nanos()))
        .some("outcome", ended.map(|(outcome, _)| outcome.as_str()))
        .field("lives_until", lives_until.as_nanos())
        .field("silent_from", silent_from.as_nanos())
        .some("text", text.as_deref())
        .end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_read_is_kept_as_it_stands() {
        let good = r#"{"owner":"a/1","started":1,"ended":2,"outcome":"failed","lives_until":3,"silent_from":4,"text":"x"}"#;
        let newer = r#"{"outcome":"vanished","owner":"a/2"}"#;
        let text = format!(r#"{{"v":1,"runs":[{newer},{good}]}}"#);
        let runs = read(text.as_bytes()).unwrap();
        assert_eq!((runs.runs.len(), runs.unreadable.len()), (1, 1));
        assert_eq!(String::from_utf8(write(&runs)).unwrap(), format!(r#"{{"v":1,"runs":[{good},{newer}]}}"#));
        assert_eq!(read(b"x").unwrap_err(), Unreadable::Foreign);
        assert!(matches!(read(br#"{"v":2,"runs":[]}"#), Err(Unreadable::Problem(_))));
    }
}
