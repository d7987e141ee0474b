//! Workers: work that runs wherever, and only while, its lease is held, on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Deadlines, DueTick, LeaseConfig, LeaseName, Restart, StopReason, Token};

use super::wait::{wait, wait_at_most};
use super::{Renewals, Signal, TimedOut};
use crate::{DrainError, LostReason, WorkerError, WorkerStatus};

/// Sets up a worker; made by [`Tenure::worker`](super::Tenure::worker). Nothing runs before
/// [`start`](WorkerSetup::start).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::blocking::connect("memory:")?;
/// # fn migrate() -> Result<(), std::io::Error> { Ok(()) }
/// use std::time::Duration;
/// use tenure::Restart;
///
/// // Runs until it has succeeded here; in between other instances have their turns.
/// let migration = tenure
///     .worker("migration", |_| migrate())
///     .ttl(Duration::from_secs(30))
///     .restart(Restart::OnFailure)
///     .drain_timeout(Duration::from_secs(60))
///     .start()?;
/// migration.ended();
/// # tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing runs before `start`"]
pub struct WorkerSetup(crate::WorkerSetup);

impl WorkerSetup {
    pub(super) const fn new(inner: crate::WorkerSetup) -> Self {
        Self(inner)
    }

    /// Sets the TTL of the lease; the rest of the timing follows from it. See [`LeaseConfig::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Sets the whole timing of the lease.
    pub fn timing(self, config: LeaseConfig) -> Self {
        Self(self.0.timing(config))
    }

    /// How long the work may take to end once it is told that it drains, before it must have ended. What has not
    /// ended a stop budget later counts as stuck. Default 30 s.
    pub fn drain_timeout(self, timeout: Duration) -> Self {
        Self(self.0.drain_timeout(timeout))
    }

    /// Passes the work on this long after each start: it drains, and the next instance has its turn. Work that does
    /// not end by itself loses the lease: from then on only the token keeps the next run apart. Default: never.
    pub fn max_hold(self, limit: Duration) -> Self {
        Self(self.0.max_hold(limit))
    }

    /// Keeps a text with the record of the lease for whoever inspects it.
    pub fn text(self, text: impl Into<Arc<str>>) -> Self {
        Self(self.0.text(text))
    }

    /// When the work is started again after it has ended by itself. Default [`Restart::Always`].
    pub fn restart(self, when: Restart) -> Self {
        Self(self.0.restart(when))
    }

    /// How long the worker rests before it campaigns again; see the async
    /// [`restart_delays`](crate::WorkerSetup::restart_delays).
    pub fn restart_delays(self, first: Duration, longest: Duration) -> Self {
        Self(self.0.restart_delays(first, longest))
    }

    /// Starts the worker: it campaigns for the lease from now on, and works whenever it has it. Each run is a thread
    /// of its own; a run for which the operating system gives no thread is a failed one.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn start(self) -> Result<Worker, WorkerError> {
        self.0.start().map(Worker)
    }
}

/// A worker that was started; cloning shares it.
///
/// It works on when this handle is dropped, for as long as any handle of its [`Tenure`](super::Tenure) is there: this
/// one counts, and so does one that the work itself keeps. Once the last one is gone, or at the shutdown, it is
/// drained.
#[derive(Clone, Debug)]
pub struct Worker(crate::Worker);

impl Worker {
    /// The name of its lease.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        self.0.name()
    }

    /// What it does now.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        self.0.status()
    }

    /// What last went wrong with a run, unless a later one came to its end; see the async
    /// [`last_error`](crate::Worker::last_error).
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.0.last_error()
    }

    /// Ends the worker: the work is told that it drains ([`Ctx::is_draining`]), and may come to its end within the
    /// [`drain_timeout`](WorkerSetup::drain_timeout); then it must have ended. The lease is given back once its
    /// thread has returned. Nothing is started any more. Returns once all of that is done.
    ///
    /// # Errors
    /// [`DrainError::Stuck`] if the work has not ended a stop budget after it should have. The drain goes on all the
    /// same: [`ended`](Worker::ended) tells when the work has ended after all.
    pub fn drain(&self) -> Result<(), DrainError> {
        wait(self.0.drain())
    }

    /// Like [`drain`](Worker::drain), without the time for it.
    ///
    /// # Errors
    /// As of [`drain`](Worker::drain).
    pub fn stop(&self) -> Result<(), DrainError> {
        wait(self.0.stop())
    }

    /// Waits until the worker has ended and its lease is given back: because its policy wants no further run, because
    /// it was drained, or because what drives the leases has ended.
    pub fn ended(&self) {
        wait(self.0.ended());
    }

    /// Like [`ended`](Worker::ended), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it has not ended by then.
    pub fn ended_timeout(&self, limit: Duration) -> Result<(), TimedOut> {
        wait_at_most(self.0.ended(), limit)
    }
}

/// What work gets to know of its run. Cloning shares it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::blocking::connect("memory:")?;
/// # fn clean_up(_: tenure::Token) {}
/// use std::time::Duration;
/// let worker = tenure
///     .worker("cleaner", |ctx| {
///         // Every ten seconds; ends early, in order, when it is to end.
///         while ctx.draining_timeout(Duration::from_secs(10)).is_err() {
///             clean_up(ctx.token());
///         }
///     })
///     .start()?;
/// worker.drain()?;
/// # tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ctx(crate::Ctx);

impl Ctx {
    pub(super) const fn new(inner: crate::Ctx) -> Self {
        Self(inner)
    }

    /// The name of the worker's lease, of the workload of a [coordinator](super::Tenure::coordinate), or of the
    /// periodic job.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The tick that this run of a [periodic job](super::Tenure::periodic) is for; `None` in a worker. Its number is
    /// the same in the whole fleet, and in each attempt at it.
    #[must_use]
    pub fn tick(&self) -> Option<DueTick> {
        self.0.tick()
    }

    /// The fencing token of this run: greater than that of every run before it. Hand it to what the work changes.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// The owner as the store keeps it: `{instance}/{incarnation}.{n}`, another one for each run.
    #[must_use]
    pub fn owner(&self) -> String {
        self.0.owner()
    }

    /// Whether work may go on; see [`Lease::is_valid`](super::Lease::is_valid). Once false, the work must have ended:
    /// look before each step, and return.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// When the lease ends unless it is renewed.
    #[must_use]
    pub fn deadlines(&self) -> Deadlines {
        self.0.deadlines()
    }

    /// The deadlines after each renewal from now on: for work that is guarded by something outside of this program.
    #[must_use]
    pub fn renewals(&self) -> Renewals {
        Renewals::new(self.0.renewals())
    }

    /// Whether the work is to come to an end: it drains, or it must have ended.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    /// Waits until the work is to come to an end, and says why. For a drain or a maximum hold there is the drain
    /// timeout; for a lease that could not be renewed there is until [`Deadlines::kill_at`], and for one that was
    /// taken away no time at all. See the async [`draining`](crate::Ctx::draining).
    pub fn draining(&self) -> StopReason {
        wait(self.0.draining())
    }

    /// Like [`draining`](Ctx::draining), for no longer than this: a sleep that ends early when the work is to end.
    ///
    /// # Errors
    /// [`TimedOut`]: it was not to end by then.
    pub fn draining_timeout(&self, limit: Duration) -> Result<StopReason, TimedOut> {
        wait_at_most(self.0.draining(), limit)
    }

    /// Waits until the work must have ended: the lease is over, or the time for draining is.
    pub fn stopping(&self) {
        wait(self.0.stopping());
    }

    /// Like [`stopping`](Ctx::stopping), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it was still valid by then.
    pub fn stopping_timeout(&self, limit: Duration) -> Result<(), TimedOut> {
        wait_at_most(self.0.stopping(), limit)
    }

    /// Like [`stopping`](Ctx::stopping), and says why.
    pub fn lost(&self) -> LostReason {
        wait(self.0.lost())
    }

    /// Like [`lost`](Ctx::lost), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it was still valid by then.
    pub fn lost_timeout(&self, limit: Duration) -> Result<LostReason, TimedOut> {
        wait_at_most(self.0.lost(), limit)
    }

    /// Waits on the clock that also counts while the machine sleeps; see [`Tenure::sleep`](super::Tenure::sleep). It
    /// goes on when the work is to end: what waits for long uses [`draining_timeout`](Ctx::draining_timeout).
    pub fn sleep(&self, duration: Duration) {
        wait(self.0.sleep(duration));
    }

    /// Says that this work ends before its time, though it was not told to; see the async
    /// [`cut_short`](crate::Ctx::cut_short).
    pub fn cut_short(&self) {
        self.0.cut_short();
    }

    /// Says that a run which is [draining](Ctx::is_draining) has done nothing, and will not; see the async
    /// [`leave_unbegun`](crate::Ctx::leave_unbegun).
    pub fn leave_unbegun(&self) {
        self.0.leave_unbegun();
    }

    /// A token for threads that do part of the work: it tells them when to stop. Join them before the work returns: its
    /// lease is given back then.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal(self.0.signal())
    }
}
