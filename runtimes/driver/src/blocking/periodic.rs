//! Periodic jobs: each tick of a timer is run on one instance of the fleet, on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{LeaseConfig, Missed, Overlap, TimerName};

use super::TimedOut;
use super::wait::{wait, wait_at_most};
use crate::{DrainError, PeriodicStatus, TimerError};

/// Sets up a periodic job; made by [`Tenure::periodic`](super::Tenure::periodic). Nothing runs before
/// [`start`](PeriodicSetup::start).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::blocking::connect("memory:")?;
/// # fn bill(day: u64) -> Result<(), std::io::Error> { Ok(()) }
/// use std::time::Duration;
/// use tenure::{Missed, Overlap};
///
/// // Each day is billed, up to a week of them after an outage; one at a time, and again elsewhere if an instance dies.
/// let billing = tenure
///     .periodic("billing", Duration::from_secs(24 * 3600), |ctx| {
///         bill(ctx.tick().map_or(0, |due| due.tick.n))
///     })
///     .missed(Missed::CatchUp { at_most: 7 })
///     .overlap(Overlap::Queue)
///     .attempts(3)
///     .start()?;
/// billing.drain()?;
/// # tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing runs before `start`"]
pub struct PeriodicSetup(crate::PeriodicSetup);

impl PeriodicSetup {
    pub(super) const fn new(inner: crate::PeriodicSetup) -> Self {
        Self(inner)
    }

    /// What becomes of ticks that came while nobody could run them; see the async
    /// [`missed`](crate::PeriodicSetup::missed). Default [`Missed::Skip`].
    pub fn missed(self, missed: Missed) -> Self {
        Self(self.0.missed(missed))
    }

    /// A tick that would be run later than this is not run, but counted as skipped. At least 20 ms. Default: no limit.
    pub fn late_limit(self, limit: Duration) -> Self {
        Self(self.0.late_limit(limit))
    }

    /// What becomes of a tick that is due while a run is going on, on whatever instance. Default [`Overlap::Skip`].
    pub fn overlap(self, overlap: Overlap) -> Self {
        Self(self.0.overlap(overlap))
    }

    /// How many runs of one tick may be begun at most. Default 1: each tick is run at most once. See the async
    /// [`attempts`](crate::PeriodicSetup::attempts).
    pub fn attempts(self, attempts: u32) -> Self {
        Self(self.0.attempts(attempts))
    }

    /// Runs only while it holds this lease, too: beside nothing else that needs it. The token is then that lease's.
    pub fn under(self, lease: impl AsRef<str>) -> Self {
        Self(self.0.under(lease))
    }

    /// Sets the TTL of each run's claim; the rest of the timing follows from it. See the async
    /// [`ttl`](crate::PeriodicSetup::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Sets the whole timing of the claims.
    pub fn timing(self, config: LeaseConfig) -> Self {
        Self(self.0.timing(config))
    }

    /// How long a run may take to end once it is told that it drains, before it must have ended. What has not ended a
    /// stop budget later counts as stuck. Default 30 s.
    pub fn drain_timeout(self, timeout: Duration) -> Self {
        Self(self.0.drain_timeout(timeout))
    }

    /// Keeps a text with each claim for whoever looks at the timer.
    pub fn text(self, text: impl Into<Arc<str>>) -> Self {
        Self(self.0.text(text))
    }

    /// Keeps no records of the runs. By default each run is recorded as one of the job of this name, with the number of
    /// its tick: see [`Tenure::jobs`](super::Tenure::jobs).
    pub fn without_records(self) -> Self {
        Self(self.0.without_records())
    }

    /// Starts the job: from now on this instance runs the ticks that it gets. Each run is a thread of its own; a run
    /// for which the operating system gives no thread is a failed one.
    ///
    /// # Errors
    /// [`TimerError`], but not [`TimerError::Refused`]: nothing was asked of the store yet.
    pub fn start(self) -> Result<Periodic, TimerError> {
        self.0.start().map(Periodic)
    }
}

/// A periodic job that was started; cloning shares it.
///
/// It goes on when this handle is dropped, for as long as any handle of its [`Tenure`](super::Tenure) is there: this
/// one counts, and so does one that the work itself keeps. Once the last one is gone, or at the shutdown, it is
/// drained.
#[derive(Clone, Debug)]
pub struct Periodic(crate::Periodic);

impl Periodic {
    /// Its name, which is also that of its timer, and of the job that its runs are recorded as.
    #[must_use]
    pub const fn name(&self) -> &TimerName {
        self.0.name()
    }

    /// What it does on this instance now.
    #[must_use]
    pub fn status(&self) -> PeriodicStatus {
        self.0.status()
    }

    /// What last went wrong with a run here, unless a later one came to its end; see the async
    /// [`last_error`](crate::Periodic::last_error).
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.0.last_error()
    }

    /// Ends the job on this instance: no tick is run here any more. Runs are told that they drain
    /// ([`Ctx::is_draining`](super::Ctx::is_draining)), and may come to their ends within the
    /// [`drain_timeout`](PeriodicSetup::drain_timeout); then they must have ended. Returns once nothing runs, and all
    /// claims are ended.
    ///
    /// # Errors
    /// [`DrainError::RunStuck`] if a run has not ended a stop budget after it should have. The drain goes on all the
    /// same: [`ended`](Periodic::ended) tells when the run has ended after all.
    pub fn drain(&self) -> Result<(), DrainError> {
        wait(self.0.drain())
    }

    /// Like [`drain`](Periodic::drain), without the time for it.
    ///
    /// # Errors
    /// As of [`drain`](Periodic::drain).
    pub fn stop(&self) -> Result<(), DrainError> {
        wait(self.0.stop())
    }

    /// Waits until nothing runs and nothing is run any more: because the job was drained, because the store refused
    /// it, or because what drives it has ended.
    ///
    /// # Errors
    /// [`TimerError::Refused`] if it was refused.
    pub fn ended(&self) -> Result<(), TimerError> {
        wait(self.0.ended())
    }

    /// Like [`ended`](Periodic::ended), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it has not ended by then.
    pub fn ended_timeout(&self, limit: Duration) -> Result<Result<(), TimerError>, TimedOut> {
        wait_at_most(self.0.ended(), limit)
    }
}
