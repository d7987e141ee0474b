//! The handle that a program holds.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use tenure_core::{
    AnySchedule, ConfigError, Identity, Instant, JobName, LeaseConfig, LeaseName, LeaseOptions, LeaseTiming,
    Missed, PeriodicOptions, TimerName, TimerOptions, WaitLimit, WorkerOptions, readable,
};
use tenure_store::{Eviction, LeaseRecord, Limits, StoreError, TimerEntry};

use crate::acquire::{Acquire, AcquireError, Candidate};
use crate::events;
use crate::fleet;
use crate::hold::Hold;
use crate::jobs::Jobs;
use crate::periodic::{self, PeriodicSetup};
use crate::request::{Claim, Look, NewPeriodic, NewTimer, NewWorker, Request, Requests, Ticket};
use crate::runtime::SharedClock;
use crate::stats::Stats;
use crate::timer::{Feed, IntoSchedule, TimerSetup};
use crate::worker::{Ctx, Outcome, Place, Tie, Work, WorkerSetup};

mod errors;
mod members;

pub(crate) use errors::Names;
pub use errors::{Closed, Interrupted, RequestError, StillHeld};

/// Leases, timers and jobs for a program, over one store. Made by a [`Builder`](crate::Builder); cloning shares it.
///
/// One task in the background renews all leases. End with [`shutdown`](Tenure::shutdown), or run in a
/// [`scope`](Tenure::scope): then what is held is given back before the program ends, and others need not wait
/// for a TTL to run out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tenure = tenure::connect("memory:").await?;
/// let lease = tenure.acquire("backup").await?;
/// assert!(tenure.try_acquire("backup").await.is_err());
/// let record = tenure.inspect("backup").await?.expect("it is held");
/// assert_eq!(record.holder.owner, lease.owner());
/// drop(lease);
/// tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tenure(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) clock: SharedClock,
    pub(crate) requests: Requests,
    pub(crate) limits: Limits,
    pub(crate) config: LeaseConfig,
    pub(crate) shutdown_budget: Duration,
    pub(crate) schedules: fn(&str) -> Option<AnySchedule>,
    pub(crate) tickets: AtomicU64,
    pub(crate) stats: Arc<Mutex<Stats>>,
    pub(crate) fleet: Arc<fleet::Shared>,
}

impl Tenure {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// Acquires a lease, waiting for it as long as it takes; see [`Acquire`] for the options. Every call is a
    /// candidate of its own: whoever holds a lease and acquires it again waits for itself.
    ///
    /// A store that is down is tried again as long as it takes, too. So without
    /// [`wait_at_most`](Acquire::wait_at_most) an error is one that trying again does not mend by itself.
    ///
    /// # Errors
    /// When awaited: [`AcquireError`].
    pub fn acquire(&self, name: impl AsRef<str>) -> Acquire {
        Acquire::new(self.clone(), LeaseName::new(name), WaitLimit::Forever)
    }

    /// Acquires a lease if it is free: one try, which takes one round trip to the store.
    ///
    /// # Errors
    /// When awaited: [`AcquireError`], [`Busy`](AcquireError::Busy) if somebody has it.
    pub fn try_acquire(&self, name: impl AsRef<str>) -> Acquire {
        Acquire::new(self.clone(), LeaseName::new(name), WaitLimit::No)
    }

    /// A worker: `work` is started whenever this process gets the lease `name`, and stopped before another may start
    /// it. Set it up and [`start`](WorkerSetup::start) it. This is the form for leader election, and for whatever is to
    /// run on one instance at a time for as long as the program does.
    ///
    /// `work` makes the future of each run; it may return `()` or a result. Work that ends is started again after a
    /// while, here or on another instance, wherever the lease goes next: see [`WorkerSetup::restart`]. A panic is a
    /// failed run, no more.
    ///
    /// The future is dropped at an await point when the lease is lost. [`Ctx::draining`] tells it before, where there is
    /// time to end in order: when the worker is drained, and at [`shutdown`](Tenure::shutdown). Blocking code and
    /// detached tasks can't be stopped: give them a [`signal`](Ctx::signal). Work that does not end keeps its lease.
    ///
    /// A worker does not make this instance a member of the fleet: for an operator to see it and to drain it,
    /// [`join`](Tenure::join).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::connect("memory:").await?;
    /// # async fn next_job() {}
    /// # async fn process(job: (), token: tenure::Token) -> Result<(), std::io::Error> { Ok(()) }
    /// let worker = tenure
    ///     .worker("queue", |ctx| async move {
    ///         while !ctx.is_draining() {
    ///             let job = next_job().await;
    ///             process(job, ctx.token()).await?;
    /// #           tokio::task::yield_now().await;
    ///         }
    ///         Ok::<_, std::io::Error>(())
    ///     })
    ///     .start()?;
    /// // ... the program does other things, and in the end:
    /// worker.drain().await?;
    /// tenure.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker<W, F>(&self, name: impl AsRef<str>, work: W) -> WorkerSetup
    where
        W: FnMut(Ctx) -> F + Send + 'static,
        F: Future + Send + 'static,
        F::Output: Outcome,
    {
        WorkerSetup::new(self, name, Work::new(work))
    }

    /// A timer: each of its ticks comes to every instance that has it. Set it up and [`start`](TimerSetup::start) it; the
    /// [`Timer`](crate::Timer) is a stream of [ticks](tenure_core::DueTick).
    ///
    /// The schedule is kept at the store, and goes by the store's clock: all instances have the same ticks with the same
    /// numbers, whenever they were started, and a restart of any or all of them changes nothing. With a period the first
    /// tick comes one period after the timer was first registered. A schedule that differs from the store's takes its
    /// place from the next tick on; the other instances follow.
    ///
    /// To run something on one instance at each tick there is [`periodic`](Tenure::periodic).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::connect("memory:").await?;
    /// use std::time::Duration;
    /// let mut flushes = tenure.timer("flush", Duration::from_millis(50)).start()?;
    /// while let Some(tick) = flushes.next().await {
    ///     let due = tick?;
    ///     println!("tick {} is due, {} were missed", due.tick.n, due.missed);
    ///     if due.tick.n >= 2 {
    ///         break;
    ///     }
    /// }
    /// # tenure.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn timer(&self, name: impl AsRef<str>, schedule: impl IntoSchedule) -> TimerSetup {
        TimerSetup::new(self, name, schedule)
    }

    /// A periodic job: at each tick of the timer of this name `work` is run on one instance of those that have the job.
    /// Set it up and [`start`](PeriodicSetup::start) it.
    ///
    /// The store grants each tick to one instance, so no tick is run twice, however late an instance or wrong its clock
    /// is: at most once, unless [`attempts`](PeriodicSetup::attempts) allow more. No lease is held between ticks. The
    /// run holds a claim of its tick, which is renewed, and ends like a lease: the future is dropped at an await point
    /// when the claim is lost, and [`Ctx::draining`] tells it before, where there is time. A panic is a failed run, no
    /// more. What is said of blocking code and of members at [`worker`](Tenure::worker) goes for runs, too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::connect("memory:").await?;
    /// # async fn report(tick: u64, token: tenure::Token) -> Result<(), std::io::Error> { Ok(()) }
    /// use std::time::Duration;
    /// let reports = tenure
    ///     .periodic("report", Duration::from_secs(600), |ctx: tenure::Ctx| async move {
    ///         let due = ctx.tick().expect("it is a run of a periodic job");
    ///         report(due.tick.n, ctx.token()).await
    ///     })
    ///     .start()?;
    /// // ... the program does other things, and in the end:
    /// reports.drain().await?;
    /// tenure.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn periodic<W, F>(&self, name: impl AsRef<str>, schedule: impl IntoSchedule, work: W) -> PeriodicSetup
    where
        W: FnMut(Ctx) -> F + Send + 'static,
        F: Future + Send + 'static,
        F::Output: Outcome,
    {
        PeriodicSetup::new(self, name, schedule, Work::new(work))
    }

    /// The records of what jobs did.
    #[must_use]
    pub fn jobs(&self) -> Jobs {
        Jobs::new(self.clone())
    }

    /// All timers that the store has, in the order of their names' bytes, with what is claimed of each.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn timers(&self) -> Result<Vec<TimerEntry>, RequestError> {
        let name = |entry: &TimerEntry| entry.name.clone();
        self.pages(name, Look::Timers).await
    }

    /// Removes a timer from the store, its claims included; tells whether there was one. Runs lose their claims, and
    /// instances that still have the timer make it anew: forget those that nobody has any more.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn forget_timer(&self, name: impl AsRef<str>) -> Result<bool, RequestError> {
        let name = TimerName::new(name)?;
        self.look(|answer| Look::ForgetTimer(name, answer)).await
    }

    /// Who holds a lease, for people to look at; `None` if nobody does. It may be out of date.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LeaseRecord>, RequestError> {
        let name = LeaseName::new(name)?;
        self.look(|answer| Look::Inspect(name, answer)).await
    }

    /// All leases that are held, in the order of their names' bytes.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn leases(&self) -> Result<Vec<LeaseRecord>, RequestError> {
        let name = |record: &LeaseRecord| record.name.clone();
        self.pages(name, Look::List).await
    }

    /// All of what the store lists page by page, in the order of the names.
    pub(crate) async fn pages<T, N: Ord + Clone>(
        &self,
        name: impl Fn(&T) -> N,
        look: impl Fn(Option<N>, usize, oneshot::Sender<Result<Vec<T>, StoreError>>) -> Look,
    ) -> Result<Vec<T>, RequestError> {
        let mut all: Vec<T> = Vec::new();
        loop {
            let after = all.last().map(&name);
            let page = self.look(|answer| look(after.clone(), Self::PAGE, answer)).await?;
            // A store that repeats itself must not keep us here for ever.
            let fresh =
                page.into_iter().filter(|item| after.as_ref().is_none_or(|after| name(item) > *after));
            let known = all.len();
            all.extend(fresh);
            if all.len() - known < Self::PAGE {
                return Ok(all);
            }
        }
    }

    /// How many leases, timers or jobs are listed per request to the store.
    const PAGE: usize = 500;

    /// Takes a lease away from whoever holds it, and tells who that was; `None` if nobody did.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn evict(
        &self,
        name: impl AsRef<str>,
        how: Eviction,
    ) -> Result<Option<LeaseRecord>, RequestError> {
        let name = LeaseName::new(name)?;
        self.look(|answer| Look::Evict(name, how, answer)).await
    }

    /// Gives back what is held, and ends.
    ///
    /// No lease is acquired any more, and candidates that wait fail with [`AcquireError::ShuttingDown`]. All
    /// work under a lease is asked to stop, and workers, coordinators and periodic jobs are drained; as each guard goes,
    /// and each run ends, its lease is given back. Timers end, and runs whose records are open are recorded as stopped.
    /// Last of all this instance leaves the fleet, if it had [joined](Tenure::join).
    ///
    /// Returns once all is done, and the store is closed; or when the budget is over
    /// ([`Builder::shutdown_budget`], default 2 s). What is held then is renewed until its guard goes, or its run has
    /// ended: to give all work the whole of its drain timeout, [drain](Tenure::drain) the instance before. Where
    /// nothing is held, a store that does not answer delays it by half a second at most. It may be called again, and
    /// from several places.
    ///
    /// [`Builder::shutdown_budget`]: crate::Builder::shutdown_budget
    ///
    /// # Errors
    /// [`StillHeld`] names the leases and claims that were not given back in time.
    pub async fn shutdown(&self) -> Result<(), StillHeld> {
        let (done, answer) = oneshot::channel();
        let request = Request::Shutdown { budget: self.0.shutdown_budget, done };
        // A driver that is gone holds nothing: either it was shut down, or it has warned of what it left.
        if self.0.requests.unbounded_send(request).is_err() {
            return Ok(());
        }
        match answer.await {
            Ok(held) if !held.is_empty() => Err(StillHeld::new(held, self.0.shutdown_budget)),
            Ok(_) | Err(oneshot::Canceled) => Ok(()),
        }
    }

    /// Runs a program's work and then [shuts down](Tenure::shutdown): when the work returns, returns an error,
    /// or panics.
    ///
    /// On SIGINT or SIGTERM all work under leases is asked to stop (see
    /// [`Lease::stopping`](crate::Lease::stopping)), workers are drained, and candidates that wait fail with
    /// [`AcquireError::ShuttingDown`]; `work` goes on, to end by itself. On a second signal it is dropped. The
    /// signals keep this meaning for the rest of the process's life. Leases that can't be given back in time are
    /// named in a warning.
    ///
    /// # Errors
    /// [`Interrupted`] if `work` was dropped because of a second signal.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = tenure::connect("memory:").await?;
    /// let answer = tenure
    ///     .scope(async |tenure| {
    ///         let lease = tenure.acquire("backup").await?;
    ///         Ok::<_, tenure::AcquireError>(lease.run(async { 42 }).await)
    ///     })
    ///     .await??;
    /// assert_eq!(answer?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn scope<F, T>(self, work: impl FnOnce(Self) -> F) -> Result<T, Interrupted>
    where
        F: Future<Output = T>,
    {
        let result = {
            let mut signal = self.0.clock.interrupted();
            let mut told = false;
            let mut work = pin!(AssertUnwindSafe(async { work(self.clone()).await }).catch_unwind());
            poll_fn(|cx| {
                if let Poll::Ready(result) = work.as_mut().poll(cx) {
                    return Poll::Ready(Ok(result));
                }
                while signal.as_mut().poll(cx).is_ready() {
                    if told {
                        return Poll::Ready(Err(Interrupted));
                    }
                    told = true;
                    events::asked_to_end("asked to end: work under leases is asked to stop");
                    self.begin_shutdown();
                    signal = self.0.clock.interrupted();
                }
                Poll::Pending
            })
            .await
        };
        if let Err(error) = self.shutdown().await {
            events::instance_still_held(error);
        }
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(interrupted) => Err(interrupted),
        }
    }

    /// Does what [`shutdown`](Tenure::shutdown) does, without waiting for it.
    pub fn begin_shutdown(&self) {
        let (done, _nobody) = oneshot::channel();
        let request = Request::Shutdown { budget: self.0.shutdown_budget, done };
        let _gone = self.0.requests.unbounded_send(request);
    }

    /// Counts of what was done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.0.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who this process is to the others.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// What the store can do.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// The time on the clock of all instants that the handles speak of.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.clock.now()
    }

    /// Waits, from this call on, on the clock that also counts while the machine sleeps. In a test with virtual time
    /// (`tenure::testing`) this is the time that the test lets pass.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::connect("memory:").await?;
    /// use std::time::Duration;
    /// let began = tenure.now();
    /// tenure.sleep(Duration::from_millis(20)).await;
    /// assert!(tenure.now().saturating_since(began) >= Duration::from_millis(20));
    /// # tenure.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.0.clock.sleep_until(self.now() + duration)
    }

    pub(crate) fn clock(&self) -> SharedClock {
        Arc::clone(&self.0.clock)
    }

    pub(crate) fn requests(&self) -> Requests {
        self.0.requests.clone()
    }

    pub(crate) fn timer_options(
        &self,
        schedule: AnySchedule,
        missed: Missed,
        late_limit: Option<Duration>,
    ) -> TimerOptions {
        let mut options = TimerOptions::new(schedule);
        options.missed = missed;
        options.late_limit = late_limit;
        options.clock = self.0.limits.clock;
        options.drift = self.0.config.drift;
        options.parse = self.0.schedules;
        options
    }

    pub(crate) fn config(&self) -> LeaseConfig {
        self.0.config
    }

    pub(crate) fn timing(&self, config: &LeaseConfig) -> Result<LeaseTiming, ConfigError> {
        resolve(config, &self.0.limits)
    }

    pub(crate) fn start_worker(
        &self,
        name: LeaseName,
        options: WorkerOptions,
        work: Work,
        shared: &Arc<crate::worker::Shared>,
    ) -> Result<(Ticket, Requests), Closed> {
        let ticket = self.ticket();
        let (runtime, tie) = (self.0.clock.here(), Tie(Place::Own(Arc::clone(shared))));
        let new = NewWorker { ticket, name, options, work, runtime, tie };
        self.0.requests.unbounded_send(Request::Worker(Box::new(new))).map_err(|_| Closed)?;
        Ok((ticket, self.0.requests.clone()))
    }

    pub(crate) fn start_timer(
        &self,
        name: TimerName,
        options: TimerOptions,
        feed: Feed,
    ) -> Result<(Ticket, Requests), Closed> {
        let ticket = self.ticket();
        let new = NewTimer { ticket, name, options, feed };
        self.0.requests.unbounded_send(Request::Timer(Box::new(new))).map_err(|_| Closed)?;
        Ok((ticket, self.requests()))
    }

    pub(crate) fn start_periodic(
        &self,
        name: TimerName,
        options: PeriodicOptions,
        job: Option<JobName>,
        work: Work,
        shared: &Arc<periodic::Shared>,
    ) -> Result<(Ticket, Requests), Closed> {
        let ticket = self.ticket();
        let (runtime, tie) = (self.0.clock.here(), periodic::Tie(Arc::clone(shared)));
        let new = NewPeriodic { ticket, name, options, job, work, runtime, tie };
        self.0.requests.unbounded_send(Request::Periodic(Box::new(new))).map_err(|_| Closed)?;
        Ok((ticket, self.requests()))
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.0.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a candidacy off; `None` if nobody takes it.
    #[expect(clippy::type_complexity, reason = "used once")]
    pub(crate) fn enter(
        &self,
        name: LeaseName,
        options: LeaseOptions,
        candidate: Option<Arc<Candidate>>,
    ) -> Option<(Claim, oneshot::Receiver<Result<Arc<Hold>, AcquireError>>)> {
        let ticket = self.ticket();
        let (grant, answer) = oneshot::channel();
        let request = Request::Acquire { ticket, name, options, candidate, grant };
        self.0.requests.unbounded_send(request).ok()?;
        Some((Claim::new(ticket, self.0.requests.clone()), answer))
    }

    pub(crate) async fn look<T>(
        &self,
        look: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Look,
    ) -> Result<T, RequestError> {
        let (sender, answer) = oneshot::channel();
        self.0
            .requests
            .unbounded_send(Request::Look(look(sender)))
            .map_err(|_| RequestError::Closed(Closed))?;
        Ok(answer.await.map_err(|oneshot::Canceled| RequestError::Closed(Closed))??)
    }
}

impl std::fmt::Debug for Tenure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenure").field("identity", &self.0.identity).finish_non_exhaustive()
    }
}

/// The timing that follows from the settings, if this store can keep it.
pub(crate) fn resolve(config: &LeaseConfig, limits: &Limits) -> Result<LeaseTiming, ConfigError> {
    if config.ttl < limits.min_ttl || config.ttl > limits.max_ttl {
        let least = limits.min_ttl.max(config.least_ttl(&limits.clock));
        return Err(ConfigError::new(
            "ttl",
            readable(config.ttl).to_string(),
            format!("must lie between {} and {} on this store", readable(least), readable(limits.max_ttl)),
        ));
    }
    config.resolve(&limits.clock)
}
