//! What is wrong with the records of jobs.

use std::sync::PoisonError;

use tenure_store::core::{JobName, Timestamp};
use tenure_store::{RunRecord, RunReport, RunState, SimpleStore, StoreError};

use super::{Broken, Fault};

impl Broken {
    pub(super) async fn record_run(&self, mut report: RunReport) -> Result<(), StoreError> {
        if let Some(text) = self.other_text(report.job.as_str()) {
            report.job = JobName::new(text).unwrap_or(report.job);
        }
        report.ttl = self.ttl(report.ttl);
        match self.fault {
            Fault::CutsMetadata => {
                let cut =
                    |text: &str| text.chars().take(RunReport::MAX_TEXT_BYTES / 2).collect::<String>().into();
                report.text = report.text.as_deref().map(cut);
            }
            Fault::LosesMetadata => report.text = None,
            Fault::RecordsEveryReport => report.owner = format!("{}{}", report.owner, self.count()).into(),
            Fault::RenewsWithoutExtending if report.outcome.is_none() => {
                let runs = SimpleStore::runs(&self.inner, report.job.clone()).await?;
                if runs.iter().any(|run| run.owner == *report.owner) {
                    return Ok(());
                }
            }
            Fault::LastOutcomeCounts => {
                if let Some(outcome) = report.outcome {
                    let run = (report.job.clone(), report.owner.to_string());
                    self.memory.outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(run, outcome);
                }
            }
            _ => {}
        }
        SimpleStore::report(&self.inner, report).await
    }

    /// The runs of a job as the faulty store shows them.
    pub(super) async fn seen_runs(&self, job: &JobName) -> Result<Vec<RunRecord>, StoreError> {
        let mut runs = SimpleStore::runs(&self.inner, job.clone()).await?;
        let last_outcomes = self.memory.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        for run in &mut runs {
            match (self.fault, run.state) {
                (Fault::TellsNoOutcomes, _) | (Fault::RunsForEver, RunState::Abandoned) => {
                    run.state = RunState::Running;
                }
                (Fault::TellsNoEnds, _) => run.ended = run.ended.map(|_| Timestamp::EPOCH),
                (Fault::LastOutcomeCounts, RunState::Ended(_)) => {
                    if let Some(outcome) = last_outcomes.get(&(job.clone(), run.owner.clone())) {
                        run.state = RunState::Ended(*outcome);
                    }
                }
                _ => {}
            }
        }
        match self.fault {
            Fault::KeepsFewRuns => runs.truncate(RunReport::MOST_RUNS / 2),
            Fault::TellsTheOldestFirst => runs.reverse(),
            _ => {}
        }
        Ok(runs)
    }
}
