//! A run of a job as text: its place among the runs of the job, a space, and its record.
//!
//! ```json
//! 7 {"v":1,"index":7,"started":1790000000000000000,"ended":1790000001000000000,"outcome":"succeeded",
//!    "lives_until":1790000015000000000,"silent_from":1790000015000000000,"text":"…"}
//! ```
//!
//! The owner is the name of the field. `index`, `text`, `ended` and `outcome` need not be there; of the last two there are
//! both or neither.

use tenure_json::{Object, Unreadable, Writer, run};
use tenure_store::KeptRun;

/// Reads a run of this owner, and which of the job's runs it is.
pub(crate) fn read(owner: &str, bytes: &[u8]) -> Result<(u64, KeptRun), Unreadable> {
    let space = bytes.iter().position(|byte| *byte == b' ').ok_or(Unreadable::Foreign)?;
    let (number, record) = bytes.split_at(space);
    let number = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    let number = number.ok_or(Unreadable::Foreign)?;
    Ok((number, run::read(owner, &Object::record(&record[1..])?)?))
}

/// Writes a run's record. The server puts its number before it.
pub(crate) fn write(run: &KeptRun) -> String {
    run::write(Writer::record(), run).end()
}

#[cfg(test)]
mod tests;
