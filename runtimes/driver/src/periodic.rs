//! Periodic jobs: each tick of a timer is run on one instance of the fleet.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    ConfigError, JobName, LeaseConfig, LeaseName, Missed, NameError, Overlap, PeriodicOptions, TimerName,
    Token, WaitLimit,
};
use tenure_store::RunReport;

use crate::Closed;
use crate::acquire::Acquire;
use crate::request::{Request, Requests, Ticket};
use crate::tenure::Tenure;
use crate::timer::{IntoSchedule, TimerError, When};
use crate::unstarted::Unstarted;
use crate::wakers::Waiting;
use crate::worker::{DrainError, Work};

mod shared;

pub(crate) use shared::{Shared, Tie};

/// Sets up a periodic job; made by [`Tenure::periodic`]. Nothing runs before [`start`](PeriodicSetup::start).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::connect("memory:").await?;
/// # async fn bill(day: u64) -> Result<(), std::io::Error> { Ok(()) }
/// use std::time::Duration;
/// use tenure::{Ctx, Missed, Overlap};
///
/// // Each day is billed, up to a week of them after an outage; one at a time, and again elsewhere if an instance dies.
/// let billing = tenure
///     .periodic("billing", Duration::from_secs(24 * 3600), |ctx: Ctx| async move {
///         bill(ctx.tick().map_or(0, |due| due.tick.n)).await
///     })
///     .missed(Missed::CatchUp { at_most: 7 })
///     .overlap(Overlap::Queue)
///     .attempts(3)
///     .start()?;
/// billing.drain().await?;
/// # tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing runs before `start`"]
pub struct PeriodicSetup {
    name: Result<TimerName, NameError>,
    when: When,
    /// The timing and the text of the claims.
    claim: Acquire,
    overlap: Overlap,
    attempts: u32,
    lease: Option<Result<LeaseName, NameError>>,
    records: bool,
    work: Work,
    unstarted: Unstarted,
}

impl PeriodicSetup {
    pub(crate) fn new(
        tenure: &Tenure,
        name: impl AsRef<str>,
        schedule: impl IntoSchedule,
        work: Work,
    ) -> Self {
        Self {
            name: TimerName::new(&name),
            when: When::new(schedule),
            claim: Acquire::new(tenure.clone(), LeaseName::new(&name), WaitLimit::Forever),
            overlap: Overlap::Skip,
            attempts: 1,
            lease: None,
            records: true,
            work,
            unstarted: Unstarted::new("periodic job", &name),
        }
    }

    /// What becomes of ticks that came while nobody could run them: downtime of the whole fleet, a store that was away, a
    /// pause, a forward step of the store's clock. Default [`Missed::Skip`]: the latest is run, and the others are told as
    /// missed.
    ///
    /// Ticks that are caught up with run one after the other, or side by side with [`Overlap::Allow`].
    /// [`overlap`](PeriodicSetup::overlap) says what becomes of one that comes by the clock meanwhile: where each of those
    /// is to be run, too, choose [`Overlap::Queue`].
    pub const fn missed(mut self, missed: Missed) -> Self {
        self.when.missed = missed;
        self
    }

    /// A tick that would be run later than this is not run, but counted as skipped. At least 20 ms. Default: no limit.
    pub const fn late_limit(mut self, limit: Duration) -> Self {
        self.when.late_limit = Some(limit);
        self
    }

    /// What becomes of a tick that is due while a run is going on, on whatever instance. Default [`Overlap::Skip`].
    pub const fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// How many runs of one tick may be begun at most. Default 1: a run whose process dies is not repeated, so each tick
    /// is run at most once. With more it is repeated elsewhere once the TTL is over, and so is one that was stopped, that
    /// has ended, well or with an error, after it saw that it drains, or whose runtime has ended, as long as attempts are
    /// left: then work has to bear being repeated. A run that fails by itself, or panics, is not.
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Runs only while it holds this lease, too: beside nothing else that needs it. The token is then that lease's.
    pub fn under(mut self, lease: impl AsRef<str>) -> Self {
        self.lease = Some(LeaseName::new(lease));
        self
    }

    /// Sets the TTL of each run's claim: how long after the death of an instance its run may be repeated, or the next
    /// one begin. The rest of the timing follows from it. See [`LeaseConfig::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.claim = self.claim.ttl(ttl);
        self
    }

    /// Sets the whole timing of the claims.
    pub fn timing(mut self, config: LeaseConfig) -> Self {
        self.claim = self.claim.timing(config);
        self
    }

    /// How long a run may take to end by itself once it is told that it drains; then it is dropped at its next await
    /// point. Default 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.claim = self.claim.grace(timeout);
        self
    }

    /// Keeps a text with each claim for whoever looks at the timer.
    pub fn text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.claim = self.claim.text(text);
        self
    }

    /// Keeps no records of the runs. By default each run is recorded as one of the job of this name, with the number of
    /// its tick: see [`Tenure::jobs`]. A record that can't be written never disturbs a run.
    pub const fn without_records(mut self) -> Self {
        self.records = false;
        self
    }

    /// Starts the job: from now on this instance runs the ticks that it gets.
    ///
    /// Each run is a task of the async runtime that this is called in, also where claims are renewed on another one;
    /// outside of any, of the runtime that the program started with, or else of the one that renews them. When that
    /// runtime ends, the job ends with it.
    ///
    /// # Errors
    /// [`TimerError`], but not [`TimerError::Refused`]: nothing was asked of the store yet.
    pub fn start(self) -> Result<Periodic, TimerError> {
        let Self { name, when, claim, overlap, attempts, lease, records, work, unstarted } = self;
        unstarted.begin();
        let (tenure, run) = (claim.tenure().clone(), claim.options()?);
        let name = name?;
        let mut options = PeriodicOptions::new(when.options(&tenure)?, run);
        options.lease = lease.transpose()?;
        options.overlap = overlap;
        options.attempts = attempts;
        if attempts == 0 {
            return Err(ConfigError::new("attempts", "0".to_owned(), "must be at least 1".to_owned()).into());
        }
        if options.lease.is_some() && overlap == Overlap::Allow {
            let rule = "must not be `Allow` under a lease, which lets one run at a time".to_owned();
            return Err(ConfigError::new("overlap", "Allow".to_owned(), rule).into());
        }
        // Names of timers and of jobs have the same rules.
        let job = if records { Some(JobName::new(name.as_str())?) } else { None };
        let shared = Arc::new(Shared::default());
        let (ticket, requests) = tenure.start_periodic(name.clone(), options, job, work, &shared)?;
        Ok(Periodic { name, ticket, requests, shared })
    }
}

impl fmt::Debug for PeriodicSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeriodicSetup")
            .field("name", &self.name)
            .field("when", &self.when)
            .field("overlap", &self.overlap)
            .field("attempts", &self.attempts)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// A periodic job that was started; cloning shares it.
///
/// It goes on when this handle is dropped, for as long as any handle of its [`Tenure`] is there: this one counts, and so
/// does one that the work itself keeps. Once the last one is gone, or at [`Tenure::shutdown`], it is drained.
#[derive(Clone)]
pub struct Periodic {
    name: TimerName,
    ticket: Ticket,
    requests: Requests,
    shared: Arc<Shared>,
}

impl Periodic {
    /// Its name, which is also that of its timer, and of the job that its runs are recorded as.
    #[must_use]
    pub const fn name(&self) -> &TimerName {
        &self.name
    }

    /// What it does on this instance now.
    #[must_use]
    pub fn status(&self) -> PeriodicStatus {
        self.shared.status()
    }

    /// What last went wrong with a run here, unless a later one came to its end: a failure, the error of a run that was
    /// stopped, or the end of its runtime; or why the store refused the job. To be stopped is no failure by itself.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.shared.last_error()
    }

    /// Ends the job on this instance: no tick is run here any more. Runs are told that they drain ([`Ctx::draining`](crate::Ctx::draining)),
    /// and may come to their ends within the [`drain_timeout`](PeriodicSetup::drain_timeout); then they are dropped at
    /// their next await point. Returns once nothing runs, and all claims are ended.
    ///
    /// It begins with the first poll. It may be called again, and from several places; dropping the future takes
    /// nothing back.
    ///
    /// # Errors
    /// [`DrainError::RunStuck`] if a run has not ended a stop budget after it was stopped. The drain goes on all the
    /// same: [`ended`](Periodic::ended) tells when the run has ended after all.
    pub async fn drain(&self) -> Result<(), DrainError> {
        self.end(false).await
    }

    /// Like [`drain`](Periodic::drain), without the time for it: runs are dropped at their next await points.
    ///
    /// # Errors
    /// As of [`drain`](Periodic::drain).
    pub async fn stop(&self) -> Result<(), DrainError> {
        self.end(true).await
    }

    /// Waits until nothing runs and nothing is run any more: because the job was drained, because the store refused
    /// it, or because what drives it has ended.
    ///
    /// # Errors
    /// [`TimerError::Refused`] if it was refused.
    pub fn ended(&self) -> impl Future<Output = Result<(), TimerError>> + Send + use<> {
        let (mut waiting, name) = (Waiting::new(&self.shared), self.name.clone());
        poll_fn(move |cx| {
            waiting.poll(cx, |state| {
                state.has_ended().then(|| match state.refused() {
                    Some(error) => Err(TimerError::Refused { timer: name.clone(), error }),
                    None => Ok(()),
                })
            })
        })
    }

    async fn end(&self, hard: bool) -> Result<(), DrainError> {
        let _gone = self.requests.unbounded_send(Request::EndPeriodic { ticket: self.ticket, hard });
        let mut waiting = Waiting::new(&self.shared);
        poll_fn(|cx| {
            waiting.poll(cx, |state| {
                if let Some((tick, token)) = state.stuck() {
                    return Some(Err(DrainError::RunStuck { timer: self.name.clone(), tick, token }));
                }
                if state.is_closed() {
                    return Some(Err(DrainError::Closed(Closed)));
                }
                state.has_ended().then_some(Ok(()))
            })
        })
        .await
    }
}

impl fmt::Debug for Periodic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Periodic")
            .field("name", &self.name)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// What a periodic job does on this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeriodicStatus {
    /// It waits for a tick, or for its turn.
    Waiting,
    /// Runs are going on here.
    Working {
        /// How many: more than one only with [`Overlap::Allow`].
        runs: usize,
        /// The latest of their ticks.
        tick: u64,
        /// The token of that run.
        token: Token,
    },
    /// A run was stopped and has not ended in time. Its claim is renewed until it does, unless it was taken away.
    Stuck {
        /// Its tick.
        tick: u64,
        /// Its token.
        token: Token,
    },
    /// Nothing runs, and nothing is run any more.
    Ended,
}

/// The longest text that fits into a run's record: what is longer is cut.
pub(crate) fn cut(text: &str) -> Arc<str> {
    const ELLIPSIS: &str = "…";
    if text.len() <= RunReport::MAX_TEXT_BYTES {
        return text.into();
    }
    let mut end = RunReport::MAX_TEXT_BYTES - ELLIPSIS.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ELLIPSIS}", &text[..end]).into()
}
