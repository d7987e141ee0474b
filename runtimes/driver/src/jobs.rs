//! Records of what jobs did, for people and for programs to look at.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use tenure_core::{Acquisition, ConfigError, JobName, NameError, readable};
use tenure_store::{JobRecord, RunOutcome, RunRecord, RunReport, StoreError};

use crate::Closed;
use crate::periodic::cut;
use crate::request::{Look, NewRun, Request, Requests, Ticket};
use crate::tenure::{RequestError, Tenure};

/// The records of jobs: who ran what, when, and how it ended. Made by [`Tenure::jobs`]; cloning shares it.
///
/// The store keeps the last 100 runs of each job. They decide nothing: they are for people and
/// programs to look at. [Periodic jobs](Tenure::periodic) record their runs by themselves; other work says when it
/// begins and how it ends:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::connect("memory:").await?;
/// # async fn import(file: &str) -> Result<u32, std::io::Error> { Ok(7) }
/// use tenure::{RunOutcome, RunState};
///
/// let run = tenure.jobs().begin("import").text("april.csv").start().await?;
/// match import("april.csv").await {
///     Ok(lines) => {
///         run.text(format!("april.csv: {lines} lines"));
///         run.succeed().await?;
///     }
///     Err(error) => run.fail(error.to_string()).await?,
/// }
/// let history = tenure.jobs().history("import").await?;
/// assert_eq!(history[0].state, RunState::Ended(RunOutcome::Succeeded));
/// # tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Jobs(Tenure);

impl Jobs {
    pub(crate) const fn new(tenure: Tenure) -> Self {
        Self(tenure)
    }

    /// How long after its last report a run counts as abandoned, unless another is set. The driver reports three times
    /// as often.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(60);

    /// A run of this job begins: set it up and [`start`](RunSetup::start) it.
    pub fn begin(&self, job: impl AsRef<str>) -> RunSetup {
        RunSetup {
            tenure: self.0.clone(),
            job: JobName::new(job),
            index: None,
            text: None,
            ttl: Self::DEFAULT_TTL,
        }
    }

    /// All jobs that have records, in the order of their names' bytes.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn all(&self) -> Result<Vec<JobRecord>, RequestError> {
        let name = |record: &JobRecord| record.name.clone();
        self.0.pages(name, Look::Jobs).await
    }

    /// The runs of a job that are kept, the latest first; none for a job that nobody has recorded.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn history(&self, job: impl AsRef<str>) -> Result<Vec<RunRecord>, RequestError> {
        let job = JobName::new(job)?;
        self.0.look(|answer| Look::Runs(job, answer)).await
    }

    /// Removes all records of a job; tells whether there were any. Runs that go on make new ones.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn forget(&self, job: impl AsRef<str>) -> Result<bool, RequestError> {
        let job = JobName::new(job)?;
        self.0.look(|answer| Look::ForgetJob(job, answer)).await
    }
}

/// Sets up the record of a run; made by [`Jobs::begin`]. Nothing is recorded before [`start`](RunSetup::start).
#[derive(Debug)]
#[must_use = "nothing is recorded before `start`"]
pub struct RunSetup {
    tenure: Tenure,
    job: Result<JobName, NameError>,
    index: Option<u64>,
    text: Option<Arc<str>>,
    ttl: Duration,
}

impl RunSetup {
    /// A number of the run, of the user's choice.
    pub const fn index(mut self, index: u64) -> Self {
        self.index = Some(index);
        self
    }

    /// A text to begin with, of at most 255 bytes.
    pub fn text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// How long after the last report the run counts as abandoned. The driver reports each third of it, for as long as
    /// the [`JobRun`] lives. Default 60 s.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Records that the run begins, and waits for the store's answer.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn start(self) -> Result<JobRun, RequestError> {
        let Self { tenure, job, index, text, ttl } = self;
        let (job, limits) = (job?, tenure.limits());
        if ttl < limits.min_ttl || ttl > limits.max_ttl {
            let rule = format!(
                "must lie between {} and {} on this store",
                readable(limits.min_ttl),
                readable(limits.max_ttl)
            );
            return Err(ConfigError::new("ttl", readable(ttl).to_string(), rule).into());
        }
        if let Some(text) = text.as_ref().filter(|text| text.len() > RunReport::MAX_TEXT_BYTES) {
            let rule = format!("must have at most {} bytes", RunReport::MAX_TEXT_BYTES);
            return Err(ConfigError::new("text", format!("{} bytes long", text.len()), rule).into());
        }
        let (begun, answer) = oneshot::channel();
        let ticket = tenure.ticket();
        let owner = tenure.identity().owner(Acquisition(OWN_RUNS | ticket.0)).to_string().into();
        let requests = tenure.requests();
        // Made before it is known to be recorded: whoever does not wait for that ends it.
        let run = JobRun { job: job.clone(), ticket, requests, ended: false };
        run.send(Request::BeginRun(Box::new(NewRun { ticket, job, owner, index, text, ttl, begun })))?;
        match answer.await {
            Ok(Ok(())) => Ok(run),
            Ok(Err(error)) => Err(error.into()),
            Err(oneshot::Canceled) => Err(Closed.into()),
        }
    }
}

/// Acquisitions are numbered from one. Runs that are not under one have numbers of their own from here on, so that the
/// owners of two runs of a job are never the same.
const OWN_RUNS: u64 = 1 << 63;

/// A run that is recorded as going on, for as long as this lives. Made by [`RunSetup::start`].
///
/// Dropped without a word it is recorded as [stopped](RunOutcome::Stopped): that neither blocks nor panics. If its
/// process dies, it counts as abandoned once its TTL is over. What goes wrong at the store meanwhile does not disturb
/// it: the driver tries again, and says so in the log.
#[must_use = "the run is recorded as stopped when this is dropped"]
pub struct JobRun {
    job: JobName,
    ticket: Ticket,
    requests: Requests,
    ended: bool,
}

impl JobRun {
    /// The job.
    #[must_use]
    pub const fn job(&self) -> &JobName {
        &self.job
    }

    /// Changes the text of the record, soon, without waiting for it. What does not fit into
    /// [`RunReport::MAX_TEXT_BYTES`] is cut.
    pub fn text(&self, text: impl AsRef<str>) {
        let _gone = self.send(Request::NoteRun { ticket: self.ticket, text: cut(text.as_ref()) });
    }

    /// The run has come to its end. Dropping the future does not take that back.
    ///
    /// # Errors
    /// [`RequestError`] if the store could not be told.
    pub async fn succeed(self) -> Result<(), RequestError> {
        self.end(RunOutcome::Succeeded, None).await
    }

    /// The run has failed; the text takes the place of the one before, cut as in [`text`](JobRun::text). Dropping the
    /// future does not take that back.
    ///
    /// # Errors
    /// [`RequestError`] if the store could not be told.
    pub async fn fail(self, text: impl AsRef<str>) -> Result<(), RequestError> {
        let text = cut(text.as_ref());
        self.end(RunOutcome::Failed, Some(text)).await
    }

    async fn end(mut self, outcome: RunOutcome, text: Option<Arc<str>>) -> Result<(), RequestError> {
        let (done, answer): (oneshot::Sender<Result<(), StoreError>>, _) = oneshot::channel();
        self.ended = true;
        self.send(Request::EndRun { ticket: self.ticket, outcome, text, done: Some(done) })?;
        drop(self);
        Ok(answer.await.map_err(|oneshot::Canceled| Closed)??)
    }

    fn send(&self, request: Request) -> Result<(), Closed> {
        self.requests.unbounded_send(request).map_err(|_| Closed)
    }
}

impl Drop for JobRun {
    fn drop(&mut self) {
        if !self.ended {
            let ticket = self.ticket;
            let _gone =
                self.send(Request::EndRun { ticket, outcome: RunOutcome::Stopped, text: None, done: None });
        }
    }
}

impl fmt::Debug for JobRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRun").field("job", &self.job).finish_non_exhaustive()
    }
}
