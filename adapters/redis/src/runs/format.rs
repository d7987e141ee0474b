//! A run of a job as text: its place among the runs of the job, a space, and its record.
//!
//! ```json
//! 7 {"v":1,"index":7,"started":1790000000000000000,"ended":1790000001000000000,"outcome":"succeeded",
//!    "lives_until":1790000015000000000,"silent_from":1790000015000000000,"text":"…"}
//! ```
//!
//! The owner is the name of the field. `index`, `text`, `ended` and `outcome` need not be there; of the last two there are
//! both or neither.

use std::sync::Arc;

use serde_json::Value;
use tenure_store::{KeptRun, RunOutcome};

use crate::json::{Object, Unreadable, Writer};

/// Reads a run of this owner, and which of the job's runs it is.
pub(crate) fn read(owner: &str, bytes: &[u8]) -> Result<(u64, KeptRun), Unreadable> {
    let space = bytes.iter().position(|byte| *byte == b' ').ok_or(Unreadable::Foreign)?;
    let (number, record) = bytes.split_at(space);
    let number = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    let number = number.ok_or(Unreadable::Foreign)?;
    let object = Object::record(&record[1..])?;
    let outcome =
        object.optional("outcome", "an outcome", |value| value.as_str().and_then(RunOutcome::parse))?;
    let ended = match outcome {
        Some(outcome) => Some((outcome, object.time("ended")?)),
        None => None,
    };
    let run = KeptRun {
        owner: owner.to_owned(),
        index: object.optional("index", "a whole number", Value::as_u64)?,
        started: object.time("started")?,
        ended,
        lives_until: object.instant("lives_until")?,
        silent_from: object.time("silent_from")?,
        text: object.optional("text", "a text", |value| value.as_str().map(Arc::from))?,
    };
    Ok((number, run))
}

/// Writes a run's record. The server puts its number before it.
pub(crate) fn write(run: &KeptRun) -> String {
    let KeptRun { owner: _, index, started, ended, lives_until, silent_from, text } = run;
    Writer::record()
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
mod tests;
