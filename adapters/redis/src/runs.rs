//! Records of what jobs did: a hash for each job, with a run under each owner.

mod format;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use redis::Value;
use tenure_core::{Instant, JobName};
use tenure_store::{JobRecord, KeptRun, RunRecord, RunReport, StoreError, StoreTime, clock};

use crate::client::Client;
use crate::error::strange;
use crate::keys::{RUNS, Route};
use crate::looking::PATIENCE;
use crate::record::millis;
use crate::reply::{self, KEPT, again, foreign, only_read, parts};
use crate::script::{self, Call};
use crate::timers::READ_AT_ONCE;

impl Client {
    pub(crate) async fn keep_report(&self, report: &RunReport) -> Result<(), StoreError> {
        self.limits.check_report(report)?;
        let until = clock::now() + report.timeout;
        let (route, key) = self.server.keys(until).await?.job(&report.job);
        loop {
            let call = Call::new().key(&key).arg(&*report.owner);
            let read = self.read_runs(route, &call, until).await?;
            let (time, found) = read.ok_or_else(|| foreign(&key))?;
            let before = reply::bytes(&found);
            let run = match before.map(|before| format::read(&report.owner, before)) {
                None => KeptRun::new(report, time),
                Some(Ok((_, mut run))) => {
                    if !run.report(report, time) {
                        return Ok(());
                    }
                    run
                }
                // A newer version's: it is not for this one to change.
                Some(Err(_)) => return Ok(()),
            };
            let call = Call::new()
                .key(&key)
                .arg(&*report.owner)
                .arg(before.unwrap_or_default())
                .arg(format::write(&run))
                .arg(millis(KEPT))
                .arg(RunReport::MOST_RUNS);
            let written = self.server.run(route, &script::RUN_WRITE, &call, until).await?;
            match parts(&written, &key)? {
                [Value::BulkString(what)] if what == b"written" => return Ok(()),
                [Value::BulkString(what)] if what == b"changed" => again(until).await?,
                _ => return Err(strange(&written)),
            }
        }
    }

    /// The kept runs of a job, the latest first.
    pub(crate) async fn runs_of(&self, job: &JobName) -> Result<Vec<RunRecord>, StoreError> {
        let until = clock::now() + PATIENCE;
        let (route, key) = self.server.keys(until).await?.job(job);
        self.kept_runs(route, &key, until).await?.ok_or_else(|| foreign(&key))
    }

    /// The same; `None` if the key is that of another program. What can't be read is left out: it decides nothing.
    async fn kept_runs(
        &self,
        route: Route,
        key: &[u8],
        until: Instant,
    ) -> Result<Option<Vec<RunRecord>>, StoreError> {
        let read = self.read_runs(route, &Call::new().key(key), until).await?;
        let Some((time, found)) = read else { return Ok(None) };
        let Value::Array(found) = &found else { return Err(strange(&found)) };
        let (pairs, _) = found.as_chunks::<2>();
        let read = |[owner, run]: &[Value; 2]| {
            let owner = str::from_utf8(reply::bytes(owner)?).ok()?;
            format::read(owner, reply::bytes(run)?).ok()
        };
        let mut runs: Vec<(u64, KeptRun)> = pairs.iter().filter_map(read).collect();
        runs.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        Ok(Some(runs.into_iter().map(|(_, run)| run.record(time)).collect()))
    }

    /// At most `most` jobs after `after`, in the order of their names' bytes.
    pub(crate) async fn list_jobs(
        &self,
        after: Option<JobName>,
        most: usize,
    ) -> Result<Vec<JobRecord>, StoreError> {
        let mut after = after;
        loop {
            let names = self.page(RUNS, after.as_ref(), most, |name| JobName::new(name).ok()).await?;
            after = names.last().cloned();
            let found: Vec<Option<JobRecord>> = stream::iter(names)
                .map(|name| self.job_record(name))
                .buffered(READ_AT_ONCE)
                .try_collect()
                .await?;
            let found: Vec<JobRecord> = found.into_iter().flatten().collect();
            // That all of a page were forgotten meanwhile does not mean that nothing follows.
            if !found.is_empty() || after.is_none() {
                return Ok(found);
            }
        }
    }

    /// A job as it is now, `None` if it is gone, or there is something else in its place.
    async fn job_record(&self, name: JobName) -> Result<Option<JobRecord>, StoreError> {
        let until = clock::now() + PATIENCE;
        let (route, key) = self.server.keys(until).await?.job(&name);
        let runs = self.kept_runs(route, &key, until).await?;
        Ok(runs.and_then(|runs| JobRecord::of(name, &runs)))
    }

    pub(crate) async fn forget_runs(&self, job: &JobName) -> Result<bool, StoreError> {
        let until = clock::now() + PATIENCE;
        let (route, key) = self.server.keys(until).await?.job(job);
        self.forget(route, &key, "HLEN", until).await
    }

    /// What a call of the script that reads runs finds, and when; `None` if the key is that of another program.
    async fn read_runs(
        &self,
        route: Route,
        call: &Call,
        until: Instant,
    ) -> Result<Option<(StoreTime, Value)>, StoreError> {
        let answer = self.server.run(route, &script::RUN_READ, call, until).await.map_err(only_read)?;
        let Value::Array(read) = &answer else { return Err(strange(&answer)) };
        match &read[..] {
            [seconds, micros, found] => {
                let time = reply::time(seconds, micros).ok_or_else(|| strange(&answer))?;
                Ok(Some((time, found.clone())))
            }
            [Value::BulkString(what), _] if what == b"type" => Ok(None),
            _ => Err(strange(&answer)),
        }
    }
}
