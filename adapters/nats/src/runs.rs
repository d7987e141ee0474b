//! Records of what jobs did: one for each job, with its latest runs.

mod format;

use tenure_core::JobName;
use tenure_store::{JobRecord, KeptRun, RunRecord, RunReport, StoreError, StoreTime, clock};

use self::format::Runs;
use crate::client::Client;
use crate::error::unreadable;
use crate::link::{PATIENCE, Wrote, again};
use crate::names::Kind;
use crate::timers::KEPT;

/// What to do about a record that can't be read.
const ADVICE: &str = "until then runs of this job are not recorded; an operator can forget it";

impl Client {
    pub(crate) async fn keep_report(&self, report: &RunReport) -> Result<(), StoreError> {
        self.limits.check_report(report)?;
        let until = clock::now() + report.timeout;
        let subject = self.link.names.job(&report.job);
        loop {
            let found = self.link.get(&subject, until).await?;
            let time = self.link.time(until).await?;
            let last = found.as_ref().map_or(0, |stored| stored.sequence);
            let runs =
                found.filter(|stored| !stored.gone).map(|stored| format::read(&stored.data)).transpose();
            let runs = runs.map_err(|problem| unreadable(&problem, &subject, ADVICE))?;
            let mut runs = runs.unwrap_or_default();
            if !runs.take(report, time) {
                return Ok(());
            }
            match self.link.write(&subject, format::write(&runs), last, KEPT, until).await? {
                Wrote::Written(_) => return Ok(()),
                Wrote::Changed => again(until).await?,
            }
        }
    }

    /// The kept runs of a job, the latest first.
    pub(crate) async fn runs_of(&self, job: &JobName) -> Result<Vec<RunRecord>, StoreError> {
        let until = clock::now() + PATIENCE;
        let subject = self.link.names.job(job);
        let found = self.link.get(&subject, until).await?.filter(|stored| !stored.gone);
        let Some(stored) = found else { return Ok(Vec::new()) };
        let runs = format::read(&stored.data).map_err(|problem| unreadable(&problem, &subject, ADVICE))?;
        Ok(runs.records(self.link.time(until).await?))
    }

    /// At most `most` jobs after `after`, in the order of their names' bytes.
    pub(crate) async fn list_jobs(
        &self,
        after: Option<JobName>,
        most: usize,
    ) -> Result<Vec<JobRecord>, StoreError> {
        let mut after = after;
        loop {
            let (time, found) =
                self.page(Kind::Job, after.as_ref(), most, |name| JobName::new(name).ok()).await?;
            after = found.last().map(|(name, _)| name.clone());
            let job = |(name, stored): (JobName, crate::link::Stored)| {
                // What can't be read is left out: it decides nothing.
                JobRecord::of(name, &format::read(&stored.data).ok()?.records(time))
            };
            let jobs: Vec<JobRecord> = found.into_iter().filter_map(job).collect();
            // That none of a page can be read does not mean that nothing follows.
            if !jobs.is_empty() || after.is_none() {
                return Ok(jobs);
            }
        }
    }

    pub(crate) async fn forget_runs(&self, job: &JobName) -> Result<bool, StoreError> {
        let until = clock::now() + PATIENCE;
        let subject = self.link.names.job(job);
        loop {
            let found = self.link.get(&subject, until).await?.filter(|stored| !stored.gone);
            let Some(stored) = found else { return Ok(false) };
            match self.link.purge(&subject, stored.sequence, until).await? {
                Wrote::Written(_) => return Ok(true),
                Wrote::Changed => again(until).await?,
            }
        }
    }
}

impl Runs {
    /// Takes note of a report; tells whether that changed anything.
    fn take(&mut self, report: &RunReport, time: StoreTime) -> bool {
        if let Some(run) = self.runs.iter_mut().find(|run| run.owner == *report.owner) {
            return run.report(report, time);
        }
        if self.unreadable.iter().any(|run| run.get("owner").is_some_and(|owner| owner == &*report.owner)) {
            // A newer version's: it is not for this one to change.
            return false;
        }
        self.runs.push(KeptRun::new(report, time));
        let over = self.runs.len().saturating_sub(RunReport::MOST_RUNS);
        self.runs.drain(..over);
        let room = RunReport::MOST_RUNS - self.runs.len();
        let over = self.unreadable.len().saturating_sub(room);
        self.unreadable.drain(..over);
        true
    }

    /// What is told of them, the latest first.
    fn records(&self, time: StoreTime) -> Vec<RunRecord> {
        self.runs.iter().rev().map(|run| run.record(time)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{Instant, Timestamp};
    use tenure_store::RunOutcome;

    use super::*;

    #[test]
    fn the_latest_hundred_are_kept_in_the_order_in_which_they_began() {
        let mut runs = Runs::default();
        let time = StoreTime { wall: Timestamp::EPOCH, now: Instant::ZERO };
        let (job, second) = (JobName::new("a").unwrap(), Duration::from_secs(1));
        let report = |number: u32| RunReport::new(job.clone(), format!("host/{number}"), second, second);
        for number in 0..130 {
            assert!(runs.take(&report(number), time));
        }
        let mut ended = report(50);
        ended.outcome = Some(RunOutcome::Succeeded);
        assert!(runs.take(&ended, time));
        assert!(!runs.take(&ended, time), "it has ended");
        let records = runs.records(time);
        assert_eq!(records.len(), RunReport::MOST_RUNS);
        assert_eq!((&*records[0].owner, &*records[99].owner), ("host/129", "host/30"));
        let again = format::read(&format::write(&runs)).unwrap();
        assert_eq!(again.runs, runs.runs);
    }
}
