//! Records of what jobs did: the last runs of each, for people and for programs to look at. They decide nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Instant, JobName, Timestamp};

use crate::StoreTime;

#[cfg(test)]
mod tests;

/// A run says that it begins, lives, or has ended. The first report of a run makes its record, each one extends its
/// life, and the first with an outcome ends it; what comes after that changes nothing, so reports may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReport {
    /// The job.
    pub job: JobName,
    /// Who runs it, `{instance}/{incarnation}.{n}`: the same in all reports of a run, and different for each run.
    pub owner: Arc<str>,
    /// The number of the run: of the tick that it is for, or one of the user's.
    pub index: Option<u64>,
    /// How the run has ended; `None` while it goes on.
    pub outcome: Option<RunOutcome>,
    /// A text of the user's, at most [`RunReport::MAX_TEXT_BYTES`]. One that is given takes the place of the one
    /// before.
    pub text: Option<Arc<str>>,
    /// Unless another report follows within this time, the run counts as abandoned.
    pub ttl: Duration,
    /// How long the operation may take.
    pub timeout: Duration,
}

impl RunReport {
    /// The longest text: a hundred runs stay a small record on every store.
    pub const MAX_TEXT_BYTES: usize = 255;
    /// How many runs of a job are kept, the latest.
    pub const MOST_RUNS: usize = 100;

    /// A run of this job goes on.
    #[must_use]
    pub fn new(job: JobName, owner: impl Into<Arc<str>>, ttl: Duration, timeout: Duration) -> Self {
        Self { job, owner: owner.into(), index: None, outcome: None, text: None, ttl, timeout }
    }
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunOutcome {
    /// It came to its end.
    Succeeded,
    /// It returned an error, panicked, or its command did not exit with zero.
    Failed,
    /// It was stopped before its end.
    Stopped,
}

impl RunOutcome {
    /// As a store keeps it: `succeeded`, `failed` or `stopped`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// Reads what [`RunOutcome::as_str`] says; `None` if it is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Succeeded, Self::Failed, Self::Stopped].into_iter().find(|outcome| outcome.as_str() == text)
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of how a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunState {
    /// It goes on.
    Running,
    /// It has ended.
    Ended(RunOutcome),
    /// It said nothing within its TTL, and is taken to have died.
    Abandoned,
}

/// One run of a job, as a store keeps it: what every report makes of it, and what is told of it.
///
/// A store keeps the latest [`RunReport::MOST_RUNS`] of a job by when they were first heard of, and looks one up by
/// job and owner. It loads, changes and writes it in one atomic step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "adapters write and read them")]
pub struct KeptRun {
    /// Who runs it, `{instance}/{incarnation}.{n}`.
    pub owner: String,
    /// The number of the run.
    pub index: Option<u64>,
    /// The first report, by the wall clock.
    pub started: Timestamp,
    /// How it has ended, and when by the wall clock.
    pub ended: Option<(RunOutcome, Timestamp)>,
    /// Without another report it counts as abandoned from then on, by the store's clock of expiry. In the past if its
    /// owner is known to be dead.
    pub lives_until: Instant,
    /// The same by the wall clock, for people.
    pub silent_from: Timestamp,
    /// The text of the user's.
    pub text: Option<Arc<str>>,
}

impl KeptRun {
    /// The record that the first report of a run makes.
    #[must_use]
    pub fn new(report: &RunReport, time: StoreTime) -> Self {
        let mut run = Self {
            owner: (*report.owner).to_owned(),
            index: None,
            started: time.wall,
            ended: None,
            lives_until: time.now,
            silent_from: time.wall,
            text: None,
        };
        run.report(report, time);
        run
    }

    /// Takes note of a report; tells whether that changed anything. After the first outcome nothing does.
    pub fn report(&mut self, report: &RunReport, time: StoreTime) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.index = self.index.or(report.index);
        self.lives_until = time.now + report.ttl;
        self.silent_from = time.wall + report.ttl;
        if let Some(text) = &report.text {
            self.text = Some(Arc::clone(text));
        }
        self.ended = report.outcome.map(|outcome| (outcome, time.wall));
        true
    }

    /// What is told of it at this time.
    #[must_use]
    pub fn record(&self, time: StoreTime) -> RunRecord {
        let (state, ended) = match self.ended {
            Some((outcome, at)) => (RunState::Ended(outcome), Some(at)),
            // Its process may be known to have died before that.
            None if self.lives_until <= time.now => {
                (RunState::Abandoned, Some(self.silent_from.min(time.wall).max(self.started)))
            }
            None => (RunState::Running, None),
        };
        RunRecord {
            owner: self.owner.clone(),
            index: self.index,
            started: self.started,
            ended,
            state,
            text: self.text.as_deref().map(str::to_owned),
        }
    }
}

/// One run of a job, as the store tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunRecord {
    /// Who runs it, `{instance}/{incarnation}.{n}`.
    pub owner: String,
    /// The number of the run.
    pub index: Option<u64>,
    /// When it began, by the store's wall clock.
    pub started: Timestamp,
    /// When it ended, or when it is taken to have died: the end of the TTL of its last report, or now if its process is
    /// known to have died before that.
    pub ended: Option<Timestamp>,
    /// How it is.
    pub state: RunState,
    /// The text of the user's.
    pub text: Option<String>,
}

impl RunRecord {
    /// A run that began at this time, and goes on.
    #[must_use]
    pub fn new(owner: impl Into<String>, started: Timestamp) -> Self {
        let owner = owner.into();
        Self { owner, index: None, started, ended: None, state: RunState::Running, text: None }
    }
}

/// A job, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRecord {
    /// Its name.
    pub name: JobName,
    /// How many of the kept runs go on.
    pub running: usize,
    /// How many runs are kept.
    pub kept: usize,
    /// The latest run.
    pub latest: RunRecord,
}

impl JobRecord {
    /// What the kept runs of a job, the latest first, come to; `None` if there are none.
    #[must_use]
    pub fn of(name: JobName, runs: &[RunRecord]) -> Option<Self> {
        let running = runs.iter().filter(|run| run.state == RunState::Running).count();
        let latest = runs.first()?.clone();
        Some(Self { name, running, kept: runs.len(), latest })
    }
}
