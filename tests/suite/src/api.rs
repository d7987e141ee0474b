//! What programs use, under one set of names: for futures, and for plain threads.
//!
//! The names are those of the crate's own handles, so that a property reads as a program would. Where an
//! implementation has no futures, its methods block when they are polled, and the thread that polls is one that
//! may be blocked.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use tenure_driver::core::{Deadlines, DueTick, Overlap, ReleaseOutcome, Restart, StopReason, Token};
use tenure_driver::store_contract::{LeaseRecord, MemberEntry, RunRecord, Store};
use tenure_driver::{
    AcquireError, Closed, DrainError, Lost, NotDrained, PeriodicStatus, RequestError, Share, Stats,
    StillHeld, TimerError, WorkerStatus, clock,
};

/// What leases live for in the suite: short, so that a test sees many renewals, and long enough for a machine that is busy
/// with other things.
pub const TTL: Duration = Duration::from_secs(4);

/// No wait in these tests ends by it unless something is wrong.
pub const GENEROUS: Duration = Duration::from_secs(120);

/// A way to use Tenure: with futures on some runtime, or with plain threads. Cloning shares it.
pub trait Api: Clone + Send + Sync + 'static {
    /// The handle that a program holds.
    type Tenure: Tenure;

    /// Makes one and runs a test with it to its end. Panics if the test does, or if it takes for ever.
    fn run(test: impl AsyncFnOnce(Self));

    /// Another process over this store, whose leases live for [`TTL`].
    fn tenure(&self, store: impl Store) -> Self::Tenure;

    /// Runs a task beside.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Waits for this long.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;

    /// Lets others go first.
    fn yield_now(&self) -> impl Future<Output = ()> + Send;

    /// Waits until the condition holds; looks again every few milliseconds.
    fn until(
        &self,
        what: &str,
        mut condition: impl FnMut() -> bool + Send,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let end = clock::now() + GENEROUS;
            while !condition() {
                assert!(clock::now() < end, "still not: {what}");
                self.sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Runs a task beside, whose output can be waited for.
    fn task<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Task<T> {
        let output = Arc::new(Mutex::new(None));
        let place = Arc::clone(&output);
        self.spawn(async move {
            let result = AssertUnwindSafe(task).catch_unwind().await;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        Task(output)
    }
}

/// A task that was begun with [`Api::task`].
#[derive(Debug)]
pub struct Task<T>(Arc<Mutex<Option<thread::Result<T>>>>);

impl<T: Send> Task<T> {
    /// Whether it has come to an end.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits for its output. Panics if the task has.
    pub async fn join(self, api: &impl Api) -> T {
        api.until("the task has ended", || self.is_finished()).await;
        let result = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.expect("it is finished").unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Settings of workers, coordinators and periodic jobs; `None` is the default of the handle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// How long work may go on after it was asked to end. For all of them.
    pub drain_timeout: Option<Duration>,
    /// Whether work that ends is started again. For workers.
    pub restart: Option<Restart>,
    /// What happens to a tick while a run of an earlier one goes on. For periodic jobs.
    pub overlap: Option<Overlap>,
    /// How long a new member has to have been there to count. For coordinators.
    pub hold_down: Option<Duration>,
}

/// See [`tenure_driver::Tenure`].
pub trait Tenure: Clone + Send + Sync + 'static {
    /// See [`Lease`].
    type Lease: Lease;
    /// See [`Worker`].
    type Worker: Worker;
    /// See [`Timer`].
    type Timer: Timer;
    /// See [`Periodic`].
    type Periodic: Periodic;
    /// See [`Coordinator`].
    type Coordinator: Coordinator;
    /// See [`JobRun`].
    type JobRun: JobRun;
    /// See [`Ctx`].
    type Ctx: Ctx;

    /// Acquires a lease, waiting for it as long as it takes.
    fn acquire(&self, name: &str) -> impl Future<Output = Result<Self::Lease, AcquireError>> + Send;

    /// Acquires a lease if it is free.
    fn try_acquire(&self, name: &str) -> impl Future<Output = Result<Self::Lease, AcquireError>> + Send;

    /// Starts a worker. Work of plain threads polls its future to the end on its own thread.
    fn worker<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        work: impl FnMut(Self::Ctx) -> F + Send + 'static,
        setup: Setup,
    ) -> Self::Worker;

    /// Starts a timer with this period.
    fn timer(&self, name: &str, period: Duration) -> Self::Timer;

    /// Starts a periodic job.
    fn periodic<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        period: Duration,
        work: impl FnMut(Self::Ctx) -> F + Send + 'static,
        setup: Setup,
    ) -> Self::Periodic;

    /// Starts a coordinator of these workloads.
    fn coordinate<F: Future<Output = ()> + Send + 'static>(
        &self,
        names: &[&str],
        work: impl FnMut(Self::Ctx) -> F + Send + 'static,
        setup: Setup,
    ) -> Self::Coordinator;

    /// Begins the record of a run of a job.
    fn begin(&self, job: &str, index: u64)
    -> impl Future<Output = Result<Self::JobRun, RequestError>> + Send;

    /// What the runs of a job were.
    fn history(&self, job: &str) -> impl Future<Output = Result<Vec<RunRecord>, RequestError>> + Send;

    /// All leases that are held.
    fn leases(&self) -> impl Future<Output = Result<Vec<LeaseRecord>, RequestError>> + Send;

    /// All members of the fleet.
    fn members(&self) -> impl Future<Output = Result<Vec<MemberEntry>, RequestError>> + Send;

    /// Counts of what was done so far.
    fn stats(&self) -> Stats;

    /// Hands over everything of this instance.
    fn drain(&self) -> impl Future<Output = Result<(), NotDrained>> + Send;

    /// Takes the drain back.
    fn resume(&self);

    /// Whether this instance drains, or has drained.
    fn is_draining(&self) -> bool;

    /// Drains at once: work is stopped hard.
    fn stop(&self) -> impl Future<Output = Result<(), NotDrained>> + Send;

    /// Waits until this instance has drained.
    fn drained(&self) -> impl Future<Output = ()> + Send;

    /// Gives back what is held, and ends.
    fn shutdown(&self) -> impl Future<Output = Result<(), StillHeld>> + Send;
}

/// See [`tenure_driver::Lease`].
pub trait Lease: Send + Sync + 'static {
    /// The fencing token.
    fn token(&self) -> Token;

    /// Whether work may go on.
    fn is_valid(&self) -> bool;

    /// When the lease ends unless it is renewed.
    fn deadlines(&self) -> Deadlines;

    /// Works for as long as the lease allows. What has no futures looks at the clock before and has no say after.
    fn run<F: Future + Send>(&self, work: F) -> impl Future<Output = Result<F::Output, Lost>> + Send
    where
        F::Output: Send;

    /// Waits until the work is asked to end.
    fn stopping(&self) -> impl Future<Output = StopReason> + Send;

    /// Waits until the work must have ended.
    fn lost(&self) -> impl Future<Output = Lost> + Send;

    /// Gives the lease back.
    fn release(self) -> impl Future<Output = Result<ReleaseOutcome, Closed>> + Send;
}

/// See [`tenure_driver::Worker`].
pub trait Worker: Send + Sync + 'static {
    /// What it does.
    fn status(&self) -> WorkerStatus;

    /// Ends it in order.
    fn drain(&self) -> impl Future<Output = Result<(), DrainError>> + Send;

    /// Ends it at once.
    fn stop(&self) -> impl Future<Output = Result<(), DrainError>> + Send;

    /// Waits until it has ended.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}

/// See [`tenure_driver::Ctx`].
pub trait Ctx: Send + Sync + 'static {
    /// The name of the worker, workload or job.
    fn name(&self) -> &str;

    /// The tick of a run of a periodic job.
    fn tick(&self) -> Option<DueTick>;

    /// The fencing token.
    fn token(&self) -> Token;

    /// Whether work may go on.
    fn is_valid(&self) -> bool;

    /// Whether the work is asked to end.
    fn is_draining(&self) -> bool;

    /// Waits until the work is asked to end.
    fn draining(&self) -> impl Future<Output = StopReason> + Send;
}

/// See [`tenure_driver::Timer`].
pub trait Timer: Send + 'static {
    /// The next tick.
    fn next(&mut self) -> impl Future<Output = Option<Result<DueTick, TimerError>>> + Send;
}

/// See [`tenure_driver::Periodic`].
pub trait Periodic: Send + Sync + 'static {
    /// What it does.
    fn status(&self) -> PeriodicStatus;

    /// Ends it in order.
    fn drain(&self) -> impl Future<Output = Result<(), DrainError>> + Send;
}

/// See [`tenure_driver::Coordinator`].
pub trait Coordinator: Send + Sync + 'static {
    /// The workloads of this instance.
    fn mine(&self) -> Vec<Share>;

    /// Ends it in order.
    fn drain(&self) -> impl Future<Output = Result<(), NotDrained>> + Send;

    /// Waits until it has ended.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}

/// See [`tenure_driver::JobRun`].
pub trait JobRun: Send + 'static {
    /// Ends it as failed.
    fn fail(self, text: &str) -> impl Future<Output = Result<(), RequestError>> + Send;
}
