//! Coordinators: workloads that the instances of a fleet share out among themselves, each on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{AnyAssigner, LeaseConfig, LeaseName, Rebalance, Restart};

use super::TimedOut;
use super::wait::{wait, wait_at_most};
use crate::{CoordinatorStatus, NotDrained, RequestError, Share, WorkerError};

/// Sets up a coordinator; made by [`Tenure::coordinate`](super::Tenure::coordinate). Nothing runs before
/// [`start`](CoordinatorSetup::start). What has to be the same on all instances is said of the async
/// [`CoordinatorSetup`](crate::CoordinatorSetup).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::blocking::connect("memory:")?;
/// use std::time::Duration;
/// use tenure::{Balanced, Rebalance};
///
/// let queues = tenure
///     .coordinate(["mail", "reports", "search"], |ctx| { ctx.draining(); })
///     .ttl(Duration::from_secs(10))
///     .assign(Balanced)
///     .on_rebalance(Rebalance::Drain)
///     .drain_timeout(Duration::from_secs(60))
///     .start()?;
/// # queues.drain()?;
/// # tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing runs before `start`"]
pub struct CoordinatorSetup(crate::CoordinatorSetup);

impl CoordinatorSetup {
    pub(super) const fn new(inner: crate::CoordinatorSetup) -> Self {
        Self(inner)
    }

    /// Sets the TTL of the leases; the rest of their timing follows from it. See [`LeaseConfig::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Sets the whole timing of the leases.
    pub fn timing(self, config: LeaseConfig) -> Self {
        Self(self.0.timing(config))
    }

    /// How long the work of a workload may take to end once it is told that it drains, before it must have ended.
    /// What has not ended a stop budget later counts as stuck. Default 30 s.
    pub fn drain_timeout(self, timeout: Duration) -> Self {
        Self(self.0.drain_timeout(timeout))
    }

    /// Starts each workload anew this long after its start; see the async
    /// [`max_hold`](crate::CoordinatorSetup::max_hold). Default: never.
    pub fn max_hold(self, limit: Duration) -> Self {
        Self(self.0.max_hold(limit))
    }

    /// Keeps a text with the records of the leases for whoever inspects them.
    pub fn text(self, text: impl Into<Arc<str>>) -> Self {
        Self(self.0.text(text))
    }

    /// When work is started again after it has ended by itself; see the async
    /// [`restart`](crate::CoordinatorSetup::restart). Default [`Restart::Always`].
    pub fn restart(self, when: Restart) -> Self {
        Self(self.0.restart(when))
    }

    /// How long a workload rests before it is started again; see the async
    /// [`restart_delays`](crate::WorkerSetup::restart_delays).
    pub fn restart_delays(self, first: Duration, longest: Duration) -> Self {
        Self(self.0.restart_delays(first, longest))
    }

    /// Sets the rule by which the workloads are shared out. All instances need the same one. See the async
    /// [`assign`](crate::CoordinatorSetup::assign).
    pub fn assign(self, assigner: impl Into<AnyAssigner>) -> Self {
        Self(self.0.assign(assigner))
    }

    /// How long an instance must have been a member to be given work; see the async
    /// [`hold_down`](crate::CoordinatorSetup::hold_down). Default 5 s.
    pub fn hold_down(self, limit: Duration) -> Self {
        Self(self.0.hold_down(limit))
    }

    /// What becomes of work that belongs to another instance from now on, while this one is healthy: by default it is
    /// told to end, and must have ended a stop budget later; [`Rebalance::Drain`] gives it the whole
    /// [`drain_timeout`](CoordinatorSetup::drain_timeout).
    pub fn on_rebalance(self, rebalance: Rebalance) -> Self {
        Self(self.0.on_rebalance(rebalance))
    }

    /// Starts the coordinator. This instance joins the fleet, if it has not yet, and has what belongs to it run from
    /// its first look at the members on. Each run is a thread of its own.
    ///
    /// # Errors
    /// [`WorkerError`]. A store that has no members shows in the [status](Coordinator::status).
    pub fn start(self) -> Result<Coordinator, WorkerError> {
        self.0.start().map(Coordinator)
    }
}

/// A coordinator that was started; cloning shares it.
///
/// It works on when this handle is dropped, for as long as any handle of its [`Tenure`](super::Tenure) is there: this
/// one counts. Once the last one is gone, or at the shutdown, it is drained.
#[derive(Clone, Debug)]
pub struct Coordinator(crate::Coordinator);

impl Coordinator {
    /// The workloads that are shared out, sorted.
    #[must_use]
    pub fn workloads(&self) -> Vec<LeaseName> {
        self.0.workloads()
    }

    /// Those that belong to this instance now, sorted, with what they do. One whose work has ended for good is none of
    /// them.
    #[must_use]
    pub fn mine(&self) -> Vec<Share> {
        self.0.mine()
    }

    /// Those that do not belong to this instance any more, and have not ended here yet, sorted.
    #[must_use]
    pub fn leaving(&self) -> Vec<Share> {
        self.0.leaving()
    }

    /// What it does now.
    #[must_use]
    pub fn status(&self) -> CoordinatorStatus {
        self.0.status()
    }

    /// Adds a workload; tells whether it was not there. Add it on every instance; see the async
    /// [`add`](crate::Coordinator::add).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn add(&self, name: impl AsRef<str>) -> Result<bool, RequestError> {
        wait(self.0.add(name))
    }

    /// Removes a workload; tells whether it was there. What runs of it here ends as in a rebalance. Remove it on every
    /// instance.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn remove(&self, name: impl AsRef<str>) -> Result<bool, RequestError> {
        wait(self.0.remove(name))
    }

    /// Ends the coordinator: the work of all workloads is told that it drains
    /// ([`Ctx::is_draining`](super::Ctx::is_draining)), and may come to its end within the
    /// [`drain_timeout`](CoordinatorSetup::drain_timeout). As each one ends its lease is given back, and the instance
    /// that it belongs to from now on goes on. Returns once all are.
    ///
    /// # Errors
    /// [`NotDrained::Stuck`] names each workload that has not ended a stop budget after it should have. The drain
    /// goes on all the same: [`ended`](Coordinator::ended) tells when they have ended after all.
    pub fn drain(&self) -> Result<(), NotDrained> {
        wait(self.0.drain())
    }

    /// Like [`drain`](Coordinator::drain), without the time for it.
    ///
    /// # Errors
    /// As of [`drain`](Coordinator::drain).
    pub fn stop(&self) -> Result<(), NotDrained> {
        wait(self.0.stop())
    }

    /// Waits until the coordinator has ended and its leases are given back: because it was drained, or because what
    /// drives the leases has ended.
    pub fn ended(&self) {
        wait(self.0.ended());
    }

    /// Like [`ended`](Coordinator::ended), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it has not ended by then.
    pub fn ended_timeout(&self, limit: Duration) -> Result<(), TimedOut> {
        wait_at_most(self.0.ended(), limit)
    }

    /// Waits until what belongs to this instance, or what is done for it, is not as it was at the call.
    pub fn changed(&self) {
        wait(self.0.changed());
    }

    /// Like [`changed`](Coordinator::changed), for no longer than this. Who looks and then waits misses what happens in
    /// between: look again after a while.
    ///
    /// # Errors
    /// [`TimedOut`]: nothing has changed by then.
    pub fn changed_timeout(&self, limit: Duration) -> Result<(), TimedOut> {
        wait_at_most(self.0.changed(), limit)
    }
}
