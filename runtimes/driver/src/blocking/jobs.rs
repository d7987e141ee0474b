//! Records of what jobs did.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::JobName;
use tenure_store::{JobRecord, RunRecord};

use super::wait;
use crate::RequestError;

/// The records of jobs: who ran what, when, and how it ended. Made by [`Tenure::jobs`](super::Tenure::jobs); cloning
/// shares it. See the async [`Jobs`](crate::Jobs).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::blocking::connect("memory:")?;
/// # fn import(file: &str) -> Result<u32, std::io::Error> { Ok(7) }
/// use tenure::{RunOutcome, RunState};
///
/// let run = tenure.jobs().begin("import").text("april.csv").start()?;
/// match import("april.csv") {
///     Ok(lines) => {
///         run.text(format!("april.csv: {lines} lines"));
///         run.succeed()?;
///     }
///     Err(error) => run.fail(error.to_string())?,
/// }
/// let history = tenure.jobs().history("import")?;
/// assert_eq!(history[0].state, RunState::Ended(RunOutcome::Succeeded));
/// # tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Jobs(crate::Jobs);

impl Jobs {
    pub(super) const fn new(inner: crate::Jobs) -> Self {
        Self(inner)
    }

    /// How long after its last report a run counts as abandoned, unless another is set.
    pub const DEFAULT_TTL: Duration = crate::Jobs::DEFAULT_TTL;

    /// A run of this job begins: set it up and [`start`](RunSetup::start) it.
    pub fn begin(&self, job: impl AsRef<str>) -> RunSetup {
        RunSetup(self.0.begin(job))
    }

    /// All jobs that have records, in the order of their names' bytes.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn all(&self) -> Result<Vec<JobRecord>, RequestError> {
        wait(self.0.all())
    }

    /// The runs of a job that are kept, the latest first; none for a job that nobody has recorded.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn history(&self, job: impl AsRef<str>) -> Result<Vec<RunRecord>, RequestError> {
        wait(self.0.history(job))
    }

    /// Removes all records of a job; tells whether there were any. Runs that go on make new ones.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn forget(&self, job: impl AsRef<str>) -> Result<bool, RequestError> {
        wait(self.0.forget(job))
    }
}

/// Sets up the record of a run; made by [`Jobs::begin`]. Nothing is recorded before [`start`](RunSetup::start).
#[derive(Debug)]
#[must_use = "nothing is recorded before `start`"]
pub struct RunSetup(crate::RunSetup);

impl RunSetup {
    /// A number of the run, of the user's choice.
    pub fn index(self, index: u64) -> Self {
        Self(self.0.index(index))
    }

    /// A text to begin with; see the async [`text`](crate::RunSetup::text).
    pub fn text(self, text: impl Into<Arc<str>>) -> Self {
        Self(self.0.text(text))
    }

    /// How long after the last report the run counts as abandoned; see the async [`ttl`](crate::RunSetup::ttl).
    /// Default 60 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Records that the run begins, and waits for the store's answer.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn start(self) -> Result<JobRun, RequestError> {
        wait(self.0.start()).map(JobRun)
    }
}

/// A run that is recorded as going on, for as long as this lives. Made by [`RunSetup::start`].
///
/// Dropped without a word it is recorded as [stopped](tenure_store::RunOutcome::Stopped): that neither blocks nor
/// panics. If its process dies, it counts as abandoned once its TTL is over.
#[derive(Debug)]
#[must_use = "the run is recorded as stopped when this is dropped"]
pub struct JobRun(crate::JobRun);

impl JobRun {
    /// The job.
    #[must_use]
    pub const fn job(&self) -> &JobName {
        self.0.job()
    }

    /// Changes the text of the record, soon, without waiting for it; see the async [`text`](crate::JobRun::text).
    pub fn text(&self, text: impl AsRef<str>) {
        self.0.text(text);
    }

    /// The run has come to its end.
    ///
    /// # Errors
    /// [`RequestError`] if the store could not be told.
    pub fn succeed(self) -> Result<(), RequestError> {
        wait(self.0.succeed())
    }

    /// The run has failed; the text takes the place of the one before, cut as in [`text`](JobRun::text).
    ///
    /// # Errors
    /// [`RequestError`] if the store could not be told.
    pub fn fail(self, text: impl AsRef<str>) -> Result<(), RequestError> {
        wait(self.0.fail(text))
    }
}
