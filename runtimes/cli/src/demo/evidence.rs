//! What the members have written so far about their work, read as it grows.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::history::{Breach, History, Line, Unit};

/// A grant under which work was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Its fencing token.
    pub(crate) token: u64,
    /// The member that had it.
    pub(crate) member: char,
    /// The process that worked.
    pub(crate) process: i32,
    /// When its work began.
    pub(crate) began: u64,
    /// When it ended, if it said so: whoever is killed does not.
    pub(crate) ended: Option<u64>,
}

/// The evidence of one lease.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) lease: &'static str,
    path: PathBuf,
    /// How much of the file was read.
    offset: u64,
    /// The beginning of a line whose end was not there yet.
    rest: String,
    pub(crate) grants: Vec<Grant>,
    pub(crate) history: History,
}

/// What a look at the evidence has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A member has begun to work.
    Began(Grant),
    /// A member has ended its work.
    Ended(Grant),
}

impl Evidence {
    /// Of this lease, in this file, which need not be there yet.
    pub(crate) fn new(lease: &'static str, path: PathBuf) -> Self {
        Self { lease, path, offset: 0, rest: String::new(), grants: Vec::new(), history: History::default() }
    }

    /// Reads on.
    ///
    /// # Errors
    /// Also for a line that can't be understood: the check would not see it.
    pub(crate) fn read(&mut self) -> io::Result<Vec<News>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = std::mem::take(&mut self.rest);
        self.offset += file.read_to_string(&mut text)? as u64;
        let mut news = Vec::new();
        for line in text.split_inclusive('\n') {
            if line.ends_with('\n') {
                news.extend(self.take(line)?);
            } else {
                line.clone_into(&mut self.rest);
            }
        }
        Ok(news)
    }

    fn take(&mut self, text: &str) -> io::Result<Option<News>> {
        let unclear = || io::Error::other(format!("{}: {text:?} can't be understood", self.path.display()));
        let line = Line::parse(text).ok_or_else(unclear)?;
        match (line.what, &line.details[..]) {
            ("unit", [_, _]) => self.history.units.push(line.unit().ok_or_else(unclear)?),
            ("overlap", [_]) => self.history.refused.push(line.unit().ok_or_else(unclear)?),
            ("began", [time, member]) => {
                let (began, member) = time.parse().ok().zip(member.parse().ok()).ok_or_else(unclear)?;
                let Line { token, process, .. } = line;
                let grant = Grant { token, member, process, began, ended: None };
                self.grants.push(grant);
                let lease = self.lease.to_owned();
                self.history.grants.push(Unit { lease, token, process, start: began, end: began });
                return Ok(Some(News::Began(grant)));
            }
            ("ended", [time]) => {
                let time = time.parse().map_err(|_| unclear())?;
                let grant = self.grants.iter_mut().rev().find(|grant| grant.token == line.token);
                return Ok(grant.map(|grant| {
                    grant.ended = Some(time);
                    News::Ended(*grant)
                }));
            }
            _ => return Err(unclear()),
        }
        Ok(None)
    }

    /// The newest grant, if its work has not ended.
    pub(crate) fn at_work(&self) -> Option<Grant> {
        self.grants.last().copied().filter(|grant| grant.ended.is_none())
    }

    /// The work that was done under a token.
    pub(crate) fn units(&self, token: u64) -> impl DoubleEndedIterator<Item = &Unit> {
        self.history.units.iter().filter(move |unit| unit.token == token)
    }

    /// When the last work before this grant had ended, as far as it left evidence.
    pub(crate) fn work_before(&self, grant: Grant) -> Option<u64> {
        self.history.units.iter().filter(|unit| unit.token < grant.token).map(|unit| unit.end).max()
    }

    /// What must not be.
    pub(crate) fn breaches(&self) -> Vec<Breach> {
        self.history.check()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_are_read_once_they_are_whole_and_others_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let mut evidence = Evidence::new("job", path.clone());
        assert_eq!(evidence.read().unwrap(), []);
        let mut file = File::create(&path).unwrap();
        file.write_all(b"began job 7 41 100 A\nunit job 7 41 1").unwrap();
        let grant = Grant { token: 7, member: 'A', process: 41, began: 100, ended: None };
        assert_eq!(evidence.read().unwrap(), [News::Began(grant)]);
        assert_eq!(evidence.history.units, []);
        file.write_all(b"10 130\nended job 7 41 150\n").unwrap();
        let ended = Grant { ended: Some(150), ..grant };
        assert_eq!(evidence.read().unwrap(), [News::Ended(ended)]);
        let unit = Unit { lease: "job".to_owned(), token: 7, process: 41, start: 110, end: 130 };
        assert_eq!(evidence.history.units, [unit]);
        assert_eq!((evidence.at_work(), evidence.breaches()), (None, vec![]));
        file.write_all(b"unit job 7 41 garbage\n").unwrap();
        assert!(evidence.read().unwrap_err().to_string().contains("garbage"));
    }
}
