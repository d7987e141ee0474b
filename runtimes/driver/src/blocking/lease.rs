//! The guard of a lease that is held, and what can be had from it.

use std::time::Duration;

use tenure_core::{Deadlines, LeaseName, ReleaseOutcome, StopReason, Token};

use super::TimedOut;
use super::wait::{wait, wait_at_most};
use crate::{Closed, Lost};

/// A lease that this process holds. It is renewed in the background until it is released or dropped.
///
/// What is said of the async [`Lease`](crate::Lease) goes for this one. Dropping it gives the lease back: that neither
/// blocks nor panics, anywhere.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::blocking::connect("memory:")?;
/// let lease = tenure.acquire("backup").wait()?;
/// let token = lease.token();
/// let written = lease.run(|_signal| format!("written under {token}"))?;
/// assert!(lease.is_valid());
///
/// // A thread of its own looks at a signal.
/// let signal = lease.signal();
/// let steps = std::thread::spawn(move || {
///     let mut steps = 0;
///     while !signal.is_stopping() && steps < 10 {
///         steps += 1;
///     }
///     steps
/// });
/// assert_eq!(steps.join().unwrap(), 10);
/// // Nothing of the work runs any more.
/// lease.release()?;
/// # assert!(!written.is_empty());
/// # tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the lease is given back when the guard is dropped"]
pub struct Lease(crate::Lease);

impl Lease {
    pub(super) const fn new(inner: crate::Lease) -> Self {
        Self(inner)
    }

    /// The lease's name.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        self.0.name()
    }

    /// The fencing token of this grant: greater than that of every earlier grant of the lease.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// The owner as the store keeps it: `{instance}/{incarnation}.{n}`.
    #[must_use]
    pub fn owner(&self) -> String {
        self.0.owner()
    }

    /// Whether work may go on: the clock has not reached the fence, and the lease was not lost. Costs one read of the
    /// clock. Once false, it stays so.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Whether the last renewal failed, so that the lease ends at the fence unless a next one succeeds.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.0.is_in_doubt()
    }

    /// When the lease ends unless it is renewed, on the clock of [`Tenure::now`](super::Tenure::now).
    #[must_use]
    pub fn deadlines(&self) -> Deadlines {
        self.0.deadlines()
    }

    /// The deadlines after each renewal from now on.
    #[must_use]
    pub fn renewals(&self) -> Renewals {
        Renewals::new(self.0.renewals())
    }

    /// Waits until the work must have ended, and says why. That is at the fence at the latest, by the caller's own
    /// clock: the thread in the background is not needed for it.
    pub fn lost(&self) -> Lost {
        wait(self.0.lost())
    }

    /// Like [`lost`](Lease::lost), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it was not lost by then.
    pub fn lost_timeout(&self, limit: Duration) -> Result<Lost, TimedOut> {
        wait_at_most(self.0.lost(), limit)
    }

    /// Waits until the work is asked to end: because the holder wants it ([`StopReason::Drain`],
    /// [`StopReason::MaxHold`]: there is a grace period, the lease is renewed throughout) or because the lease ends
    /// ([`StopReason::Fence`], [`StopReason::Lost`]: stop at once).
    pub fn stopping(&self) -> StopReason {
        wait(self.0.stopping())
    }

    /// Like [`stopping`](Lease::stopping), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it was not asked to end by then.
    pub fn stopping_timeout(&self, limit: Duration) -> Result<StopReason, TimedOut> {
        wait_at_most(self.0.stopping(), limit)
    }

    /// Does work under the lease, on this thread.
    ///
    /// Whether the lease is valid is looked at before `work` is called, and what it returns is returned even if the
    /// lease ended meanwhile. Nothing stops it in between: it looks at the [`Signal`] before each step. The signal
    /// says that the work is to end already when it is asked to by the holder's choice (shutdown, drain, maximum
    /// hold), where it has its grace period; [`Signal::is_valid`] is false from when it must have ended.
    ///
    /// # Errors
    /// [`Lost`] if the lease had ended before; `work` was not called.
    pub fn run<T>(&self, work: impl FnOnce(&Signal) -> T) -> Result<T, Lost> {
        wait(self.0.run(async { work(&self.signal()) }))
    }

    /// A token for threads that work under this lease: it tells them when to stop. It does not keep the lease.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal(self.0.signal())
    }

    /// Gives the lease back and waits for what the store says. Nothing of the work may run any more.
    ///
    /// A lease that was lost meanwhile is no error: the outcome is [`ReleaseOutcome::NotHeld`]. To go on without
    /// waiting, drop the guard.
    ///
    /// # Errors
    /// [`Closed`] if the thread in the background was gone before the store had answered; the store frees the lease
    /// by its TTL.
    pub fn release(self) -> Result<ReleaseOutcome, Closed> {
        wait(self.0.release())
    }
}

/// Tells threads that work under a lease when to stop. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Signal(pub(super) crate::Signal);

impl Signal {
    /// Whether the work is to end, or must have ended.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.is_stopping()
    }

    /// Whether the lease still is valid; see [`Lease::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// The fencing token of the lease.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// Waits until the work is to end; see [`Lease::stopping`]. Releasing the lease counts as [`StopReason::Drain`].
    pub fn stopped(&self) -> StopReason {
        wait(self.0.stopped())
    }

    /// Like [`stopped`](Signal::stopped), for no longer than this: a sleep that ends early when the work is to end.
    ///
    /// # Errors
    /// [`TimedOut`]: it was not to end by then.
    pub fn stopped_timeout(&self, limit: Duration) -> Result<StopReason, TimedOut> {
        wait_at_most(self.0.stopped(), limit)
    }
}

/// The deadlines after each renewal of a lease: an iterator that waits for the next one. Who reads late gets the
/// newest only. It ends with the lease, by the caller's own clock as well.
#[derive(Debug)]
pub struct Renewals(crate::Renewals);

impl Renewals {
    pub(super) const fn new(inner: crate::Renewals) -> Self {
        Self(inner)
    }

    /// The next item, if it comes within this time.
    ///
    /// # Errors
    /// [`TimedOut`]: it has not. Nothing is missed by that.
    pub fn next_timeout(&mut self, limit: Duration) -> Result<Option<Deadlines>, TimedOut> {
        wait_at_most(self.0.next(), limit)
    }
}

impl Iterator for Renewals {
    type Item = Deadlines;

    fn next(&mut self) -> Option<Deadlines> {
        wait(self.0.next())
    }
}
