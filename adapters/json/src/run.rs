//! A run of a job, as fields of an object. Where its owner stands is the store's to say.
//!
//! ```json
//! {"index":7,"started":1790000000000000000,"ended":1790000001000000000,"outcome":"succeeded",
//!  "lives_until":1790000015000000000,"silent_from":1790000015000000000,"text":"…"}
//! ```
//!
//! `index`, `text`, `ended` and `outcome` need not be there; of the last two there are both or neither.

use std::sync::Arc;

use tenure_store::{KeptRun, RunOutcome};

use crate::{Object, Unreadable, Value, Writer};

/// Reads a run of this owner.
///
/// # Errors
/// A field is missing or wrong.
pub fn read(owner: &str, object: &Object) -> Result<KeptRun, Unreadable> {
    let outcome =
        object.optional("outcome", "an outcome", |value| value.as_str().and_then(RunOutcome::parse))?;
    let ended = match outcome {
        Some(outcome) => Some((outcome, object.time("ended")?)),
        None => None,
    };
    Ok(KeptRun {
        owner: owner.to_owned(),
        index: object.optional("index", "a whole number", Value::as_u64)?,
        started: object.time("started")?,
        ended,
        lives_until: object.instant("lives_until")?,
        silent_from: object.time("silent_from")?,
        text: object.optional("text", "a text", |value| value.as_str().map(Arc::from))?,
    })
}

/// Writes all of it but the owner.
#[must_use]
pub fn write(writer: Writer, run: &KeptRun) -> Writer {
    let KeptRun { owner: _, index, started, ended, lives_until, silent_from, text } = run;
    writer
        .some("index", *index)
        .field("started", started.as_nanos())
        .some("ended", ended.map(|(_, at)| at.as_nanos()))
        .some("outcome", ended.map(|(outcome, _)| outcome.as_str()))
        .field("lives_until", lives_until.as_nanos())
        .field("silent_from", silent_from.as_nanos())
        .some("text", text.as_deref())
}
