//! Workers: work that runs wherever, and only while, its lease is held.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    ConfigError, Deadlines, DueTick, Instant, LeaseConfig, LeaseName, NameError, Restart, RestartPolicy,
    StopReason, TimerName, Token, WaitLimit, WorkerOptions,
};

use crate::Closed;
use crate::acquire::Acquire;
use crate::hold::{Ending, Hold};
use crate::lease::{LostReason, Renewals, Signal};
use crate::request::{Request, Requests, Ticket};
use crate::subject::Subject;
use crate::tenure::Tenure;
use crate::unstarted::Unstarted;
use crate::wakers::Waiting;

mod job;
mod outcome;
mod shared;

pub(crate) use job::{Ended, Host, Job};
pub use outcome::Outcome;
pub(crate) use outcome::{Home, Work};
pub(crate) use shared::{Place, Shared, State, Tie};

/// Sets up a worker; made by [`Tenure::worker`]. Nothing runs before [`start`](WorkerSetup::start).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::connect("memory:").await?;
/// # async fn migrate() -> Result<(), std::io::Error> { Ok(()) }
/// use std::time::Duration;
/// use tenure::Restart;
///
/// // Runs until it has succeeded here; in between other instances have their turns.
/// let migration = tenure
///     .worker("migration", |_| migrate())
///     .ttl(Duration::from_secs(30))
///     .restart(Restart::OnFailure)
///     .restart_delays(Duration::from_secs(5), Duration::from_secs(300))
///     .drain_timeout(Duration::from_secs(60))
///     .start()?;
/// migration.ended().await;
/// # tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing runs before `start`"]
pub struct WorkerSetup {
    acquire: Acquire,
    restart: Restart,
    delays: Option<(Duration, Duration)>,
    work: Work,
    unstarted: Unstarted,
}

impl WorkerSetup {
    pub(crate) fn new(tenure: &Tenure, name: impl AsRef<str>, work: Work) -> Self {
        let unstarted = Unstarted::new("worker", &name);
        let acquire = Acquire::new(tenure.clone(), LeaseName::new(name), WaitLimit::Forever);
        Self { acquire, restart: Restart::Always, delays: None, work, unstarted }
    }

    /// Sets the TTL of the lease; the rest of the timing follows from it. See [`LeaseConfig::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.acquire = self.acquire.ttl(ttl);
        self
    }

    /// Sets the whole timing of the lease.
    pub fn timing(mut self, config: LeaseConfig) -> Self {
        self.acquire = self.acquire.timing(config);
        self
    }

    /// How long the work may take to end by itself once it is told that it drains; then it is dropped at its next
    /// await point. Default 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.acquire = self.acquire.grace(timeout);
        self
    }

    /// Passes the work on this long after each start: it drains, and the next instance has its turn. Work that blocks
    /// its thread all through that loses the lease: from then on only the token keeps the next run apart. Default:
    /// never.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.acquire = self.acquire.max_hold(limit);
        self
    }

    /// Keeps a text with the record of the lease for whoever inspects it.
    pub fn text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.acquire = self.acquire.text(text);
        self
    }

    /// When the work is started again after it has ended by itself. Default [`Restart::Always`].
    pub const fn restart(mut self, when: Restart) -> Self {
        self.restart = when;
        self
    }

    /// How long the worker rests before it campaigns again: `first` after a run that did not fail, and after failures
    /// in a row twice as long each time, up to `longest`. Default 1 s and 60 s. See [`RestartPolicy`].
    pub const fn restart_delays(mut self, first: Duration, longest: Duration) -> Self {
        self.delays = Some((first, longest));
        self
    }

    /// Starts the worker: it campaigns for the lease from now on, and works whenever it has it.
    ///
    /// Each run is a task of the async runtime that this is called in, also where the leases are renewed on another
    /// one; outside of any, of the runtime that the program started with, or else of the one that renews them. When that
    /// runtime ends, the worker ends with it.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn start(self) -> Result<Worker, WorkerError> {
        self.unstarted.begin();
        let options = self.acquire.options()?;
        let name = self.acquire.name()?.clone();
        let mut restart = RestartPolicy::new(self.restart);
        if let Some((first, longest)) = self.delays {
            restart = restart.delays(first, longest)?;
        }
        let mut options = WorkerOptions::new(options);
        options.restart = restart;
        let shared = Arc::new(Shared::default());
        let (ticket, requests) =
            self.acquire.tenure().start_worker(name.clone(), options, self.work, &shared)?;
        Ok(Worker { name, ticket, requests, shared })
    }
}

impl fmt::Debug for WorkerSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSetup")
            .field("acquire", &self.acquire)
            .field("restart", &self.restart)
            .finish_non_exhaustive()
    }
}

/// A worker that was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A setting breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The name can't be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// What drives the leases has ended.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// A worker that was started; cloning shares it.
///
/// It works on when this handle is dropped, for as long as any handle of its [`Tenure`] is there: this one counts,
/// and so does one that the work itself keeps. Once the last one is gone, or at [`Tenure::shutdown`], it is drained.
///
/// To end one in order, [`drain`](Worker::drain) it, which waits until the work has ended and the lease is given back.
/// To wait for one that ends by itself, or for the end of the program, there is [`ended`](Worker::ended).
#[derive(Clone)]
pub struct Worker {
    name: LeaseName,
    ticket: Ticket,
    requests: Requests,
    shared: Arc<Shared>,
}

impl Worker {
    /// The name of its lease.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// What it does now.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        self.shared.look(|state| state.status)
    }

    /// What last went wrong with a run, unless a later one came to its end: a failure, the error of work that was
    /// stopped, or the end of its runtime. To be stopped is no failure by itself.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.shared.look(|state| state.error.clone())
    }

    /// Ends the worker: the work is told that it drains ([`Ctx::draining`]), and may come to its end within the
    /// [`drain_timeout`](WorkerSetup::drain_timeout); then it is dropped at its next await point. The lease is given
    /// back once it has ended. Nothing is started any more. Returns once all of that is done.
    ///
    /// It begins with the first poll. It may be called again, and from several places; dropping the future takes
    /// nothing back.
    ///
    /// # Errors
    /// [`DrainError::Stuck`] if the work has not ended a stop budget after it was stopped. The drain goes on all the
    /// same: [`ended`](Worker::ended) tells when the work has ended after all.
    pub async fn drain(&self) -> Result<(), DrainError> {
        self.end(false).await
    }

    /// Like [`drain`](Worker::drain), without the time for it: work that runs is dropped at its next await point.
    ///
    /// # Errors
    /// As of [`drain`](Worker::drain).
    pub async fn stop(&self) -> Result<(), DrainError> {
        self.end(true).await
    }

    /// Waits until the worker has ended and its lease is given back: because its policy wants no further run, because it
    /// was drained, or because what drives the leases has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut waiting = Waiting::new(&self.shared);
        poll_fn(move |cx| waiting.poll(cx, |state| state.has_ended().then_some(())))
    }

    async fn end(&self, hard: bool) -> Result<(), DrainError> {
        let _gone = self.requests.unbounded_send(Request::EndWorker { ticket: self.ticket, hard });
        let mut waiting = Waiting::new(&self.shared);
        poll_fn(|cx| {
            waiting.poll(cx, |state| match state.status {
                WorkerStatus::Stuck { token } => {
                    Some(Err(DrainError::Stuck { lease: self.name.clone(), token }))
                }
                _ if state.closed => Some(Err(DrainError::Closed(Closed))),
                _ => state.has_ended().then_some(Ok(())),
            })
        })
        .await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.name)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerStatus {
    /// It waits for its lease.
    Waiting,
    /// Its work runs.
    Working {
        /// The token under which it does.
        token: Token,
    },
    /// Its work was stopped and has not ended in time. The lease is renewed until it does, unless it was taken away or
    /// its maximum hold is over.
    Stuck {
        /// The token under which it works.
        token: Token,
    },
    /// Its work has ended; it campaigns again later.
    Resting {
        /// Failures in a row.
        failures: u32,
        /// Until when, on the clock of [`Tenure::now`].
        until: Instant,
    },
    /// Nothing runs, and nothing is started any more.
    Ended,
}

/// A worker or a periodic job that could not be drained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// The work was stopped, and has not ended since: it blocks its thread. The lease is not given back before it ends.
    #[error(
        "the work under lease {lease:?} (token {token}) was stopped and does not end: it blocks its thread; the lease \
         is renewed until it does, unless it was taken away or its maximum hold is over"
    )]
    Stuck {
        /// The lease.
        lease: LeaseName,
        /// The token under which it works.
        token: Token,
    },
    /// A run of a periodic job was stopped, and has not ended since: it blocks its thread. Its claim is not ended before.
    #[error(
        "the run of tick {tick} of {timer:?} (token {token}) was stopped and does not end: it blocks its thread; its \
         claim is renewed until it does, unless it was taken away"
    )]
    RunStuck {
        /// The periodic job's name.
        timer: TimerName,
        /// The tick.
        tick: u64,
        /// The token under which it works.
        token: Token,
    },
    /// What drives the leases has ended.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// What work gets to know of its run. Cloning shares it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::connect("memory:").await?;
/// # async fn next_message() -> u32 { tokio::task::yield_now().await; 7 }
/// # async fn store(_: u32, _: tenure::Token) {}
/// let worker = tenure
///     .worker("inbox", |ctx| async move {
///         let mut draining = std::pin::pin!(ctx.draining());
///         loop {
///             let message = tokio::select! {
///                 message = next_message() => message,
///                 // Time to end in order: between two messages.
///                 _why = &mut draining => return,
///             };
///             store(message, ctx.token()).await;
///         }
///     })
///     .start()?;
/// worker.drain().await?;
/// # tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ctx {
    hold: Arc<Hold>,
    /// The periodic job and the tick that it is a run of.
    run: Option<(TimerName, DueTick)>,
}

impl Ctx {
    pub(crate) const fn new(hold: Arc<Hold>, run: Option<(TimerName, DueTick)>) -> Self {
        Self { hold, run }
    }

    /// The name of the worker's lease, of the workload of a [coordinator](Tenure::coordinate), or of the periodic job.
    #[must_use]
    pub fn name(&self) -> &str {
        match (&self.run, &self.hold.subject) {
            (Some((name, _)), _) => name.as_str(),
            (None, Subject::Lease(name)) => name.as_str(),
            (None, Subject::Timer(name) | Subject::Tick(name, _)) => name.as_str(),
            (None, Subject::Job(name)) => name.as_str(),
            // No work runs because of a membership.
            (None, Subject::Member(identity)) => identity.instance(),
        }
    }

    /// The tick that this run of a [periodic job](Tenure::periodic) is for; `None` in a worker. Its number is the same
    /// in the whole fleet, and in each attempt at it.
    #[must_use]
    pub fn tick(&self) -> Option<DueTick> {
        self.run.as_ref().map(|(_, due)| *due)
    }

    /// The fencing token of this run: greater than that of every run before it. Hand it to what the work changes.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// The owner as the store keeps it: `{instance}/{incarnation}.{n}`, another one for each run.
    #[must_use]
    pub fn owner(&self) -> String {
        self.hold.owner.to_string()
    }

    /// Whether work may go on; see [`Lease::is_valid`](crate::Lease::is_valid).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// When the lease ends unless it is renewed.
    #[must_use]
    pub fn deadlines(&self) -> Deadlines {
        self.hold.deadlines()
    }

    /// The deadlines after each renewal from now on: for work that is guarded by something outside of this program.
    #[must_use]
    pub fn renewals(&self) -> Renewals {
        Renewals::new(Arc::clone(&self.hold))
    }

    /// Whether the work is to come to an end: it drains, or it must stop.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.signal().is_stopping()
    }

    /// Waits until the work is to come to an end, and says why. For a drain or a maximum hold there is the drain
    /// timeout; for a lease that could not be renewed there is until [`Deadlines::kill_at`], and for one that was taken
    /// away no time at all. Then the work is dropped at its next await point.
    ///
    /// That the workload of a coordinator belongs to another instance from now on is a drain, too: [`StopReason::Drain`],
    /// with a stop budget of time or, by [`Rebalance::Drain`](tenure_core::Rebalance::Drain), the drain timeout.
    /// [`Tenure::is_draining`] tells whether it is the whole instance that drains.
    pub fn draining(&self) -> impl Future<Output = StopReason> + Send + use<> {
        self.signal().stopped()
    }

    /// Waits until the lease ends, so that the work must stop. If it could not be renewed, what is still to be saved has
    /// to be saved before [`Deadlines::kill_at`]. If it was taken away, or the time for draining is over, the work is
    /// dropped at once; that it must stop then is seen by tasks of its own that wait here.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let lost = self.lost();
        async move {
            let _why = lost.await;
        }
    }

    /// Like [`stopping`](Ctx::stopping), and says why.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let mut ending = Ending::new(Arc::clone(&self.hold));
        poll_fn(move |cx| ending.poll_for(cx, |_, over| over))
    }

    /// Waits, from this call on, on the clock that also counts while the machine sleeps; see [`Tenure::sleep`]. It goes on
    /// when the work is to end: what waits for long waits for [`draining`](Ctx::draining) as well.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.hold.sleep(duration)
    }

    /// Says that this work ends before its time, though it was not told to: it then counts as stopped, not as complete or
    /// failed, and a tick is run again where attempts are left. For work that something outside of this program stops.
    pub fn cut_short(&self) {
        self.hold.hear();
    }

    /// Says that a run which is [draining](Ctx::draining) has done nothing, and will not: it is no attempt at its tick.
    /// Without effect in a worker, and in a run that is not draining when it ends.
    pub fn leave_unbegun(&self) {
        self.hold.leave_unbegun();
    }

    /// A token for tasks that do part of the work: it tells them when to stop.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal::new(Arc::clone(&self.hold))
    }
}
