//! The records of jobs: a row for each run.

use rusqlite::{OptionalExtension as _, Row, params};
use tenure_core::{Instant, JobName, Timestamp};
use tenure_store::{JobRecord, KeptRun, RunOutcome, RunRecord, RunReport};

use crate::liveness::{HandleId, Life};
use crate::record::{self, whole};
use crate::schema::ROW_FORMAT;
use crate::tx::{Transaction, signed};

/// The columns of a run beside its job, in the order in which they are read.
const RUN: &str =
    "owner, format, number, tick, started, ended, outcome, text, boot, expires, silent, handle, early";

/// A run as it stands in a row.
#[derive(Debug)]
struct RunRow {
    run: KeptRun,
    /// Its place among the runs of the job.
    number: u64,
    boot: String,
    handle: Option<HandleId>,
    early: bool,
}

impl Transaction<'_> {
    /// Keeps what a run reports.
    pub(crate) fn report(&self, report: &RunReport) -> rusqlite::Result<()> {
        let job = report.job.as_str().as_bytes();
        let found = self
            .connection
            .prepare_cached(&format!("SELECT {RUN} FROM run WHERE job = ?1 AND owner = ?2"))?
            .query_row(params![job, &*report.owner], |row| Ok(RunRow::read(row)))
            .optional()?;
        match found {
            Some(Ok(RunRow { mut run, number, .. })) => {
                if run.report(report, self.time()) {
                    self.write_run(job, number, &run)?;
                }
            }
            // A newer version's: it is not for this one to change.
            Some(Err(_)) => {}
            None => {
                let last: Option<i64> = self
                    .connection
                    .prepare_cached("SELECT max(number) FROM run WHERE job = ?1")?
                    .query_row([job], |row| row.get(0))?;
                let number = u64::try_from(last.unwrap_or(0).saturating_add(1)).unwrap_or(1);
                self.write_run(job, number, &KeptRun::new(report, self.time()))?;
                self.connection
                    .prepare_cached(
                        "DELETE FROM run WHERE job = ?1 AND number <= \
                         (SELECT number FROM run WHERE job = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
                    )?
                    .execute(params![job, i64::try_from(RunReport::MOST_RUNS).unwrap_or(i64::MAX)])?;
            }
        }
        Ok(())
    }

    fn write_run(&self, job: &[u8], number: u64, run: &KeptRun) -> rusqlite::Result<()> {
        let KeptRun { owner, index, started, ended, lives_until, silent_from, text } = run;
        self.connection
            .prepare_cached(&format!(
                "INSERT OR REPLACE INTO run (job, {RUN}) VALUES \
                 (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
            ))?
            .execute(params![
                job,
                owner,
                ROW_FORMAT,
                signed(number),
                index.map(signed),
                started.as_nanos(),
                ended.map(|(_, at)| at.as_nanos()),
                ended.map(|(outcome, _)| outcome.as_str()),
                text.as_deref(),
                self.boot,
                signed(lives_until.as_nanos()),
                silent_from.as_nanos(),
                self.me.handle().as_bytes(),
                self.me.is_visible(),
            ])
            .map(drop)
    }

    /// The kept runs of a job, the latest first. What can't be read is left out: it decides nothing.
    pub(crate) fn runs(&self, job: &JobName) -> rusqlite::Result<Vec<RunRecord>> {
        self.connection
            .prepare_cached(&format!("SELECT {RUN} FROM run WHERE job = ?1 ORDER BY number DESC"))?
            .query_map([job.as_str().as_bytes()], |row| Ok(RunRow::read(row)))?
            .filter_map(|row| row.map(Result::ok).transpose())
            .map(|row| row.map(|row| self.as_record(row)))
            .collect()
    }

    /// A run as it is now: of an earlier boot, or of a process that has died, it goes on no more.
    fn as_record(&self, row: RunRow) -> RunRecord {
        let RunRow { mut run, boot, handle, early, .. } = row;
        let dead = || early && handle.is_some_and(|handle| self.life(handle) == Life::Dead);
        if run.ended.is_none() && run.lives_until > self.now && (boot != self.boot || dead()) {
            run.lives_until = Instant::ZERO;
        }
        run.record(self.time())
    }

    /// At most `most` jobs after `after`, in the order of their names' bytes.
    pub(crate) fn jobs(&self, after: Option<&JobName>, most: usize) -> rusqlite::Result<Vec<JobRecord>> {
        let mut next =
            self.connection.prepare_cached("SELECT job FROM run WHERE job > ?1 ORDER BY job LIMIT 1")?;
        let mut listed = Vec::new();
        let mut after = after.map_or("", JobName::as_str).as_bytes().to_vec();
        while listed.len() < most {
            let found = next
                .query_row([&after], |row| {
                    let job = record::name(row, |text| JobName::new(text).ok());
                    Ok((job, row.get_ref(0)?.as_blob().unwrap_or_default().to_vec()))
                })
                .optional()?;
            let Some((job, bytes)) = found else { break };
            after = bytes;
            if let Some(job) = job {
                let runs = self.runs(&job)?;
                listed.extend(JobRecord::of(job, &runs));
            }
        }
        Ok(listed)
    }

    /// Removes the records of a job; tells whether there were any.
    pub(crate) fn forget_job(&self, job: &JobName) -> rusqlite::Result<bool> {
        let removed = self
            .connection
            .prepare_cached("DELETE FROM run WHERE job = ?1")?
            .execute([job.as_str().as_bytes()])?;
        Ok(removed > 0)
    }
}

impl RunRow {
    fn read(row: &Row<'_>) -> Result<Self, String> {
        record::check_format(row, 1)?;
        let outcome: Option<String> = row.get(6).map_err(|error| record::damaged(&error))?;
        let outcome = outcome
            .map(|text| RunOutcome::parse(&text).ok_or_else(|| format!("no outcome of a run is {text:?}")))
            .transpose()?;
        let read = || -> rusqlite::Result<Self> {
            let time = |index: usize| row.get(index).map(Timestamp::from_nanos);
            let index: Option<i64> = row.get(3)?;
            let ended = match outcome {
                Some(outcome) => Some((outcome, time(5)?)),
                None => None,
            };
            let run = KeptRun {
                owner: row.get(0)?,
                index: index.map(|_| whole(row, 3)).transpose()?,
                started: time(4)?,
                ended,
                lives_until: Instant::from_nanos(whole(row, 9)?),
                silent_from: time(10)?,
                text: row.get(7)?,
            };
            let handle = HandleId::from_bytes(row.get_ref(11)?.as_blob()?);
            Ok(Self { run, number: whole(row, 2)?, boot: row.get(8)?, handle, early: row.get(12)? })
        };
        read().map_err(|error| record::damaged(&error))
    }
}
