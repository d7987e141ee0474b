//! The runs of a job, those that began first being first.
//!
//! ```json
//! {"v":1,"runs":[{"owner":"host/0123….4","index":7,"started":1790000000000000000,"ended":1790000001000000000,
//!   "outcome":"succeeded","lives_until":1790000015000000000,"silent_from":1790000015000000000,"text":"…"}]}
//! ```
//!
//! `index`, `text`, `ended` and `outcome` need not be there; of the last two there are both or neither. A run that can't be
//! read is kept as it stands, and not told.

use tenure_json::{Object, Unreadable, Value, Writer, array, run};
use tenure_store::KeptRun;

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
        match Object::within(value.clone()).and_then(|run| run::read(run.text("owner")?, &run)) {
            Ok(run) => runs.runs.push(run),
            Err(_) => runs.unreadable.push(value.clone()),
        }
    }
    Ok(runs)
}

/// Writes the runs of a job.
pub(crate) fn write(runs: &Runs) -> Vec<u8> {
    let ours = runs.runs.iter().map(write_run);
    let all = array(ours.chain(runs.unreadable.iter().map(Value::to_string)));
    Writer::record().raw("runs", &all).end().into_bytes()
}

fn write_run(run: &KeptRun) -> String {
    run::write(Writer::within().field("owner", &*run.owner), run).end()
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
