//! Coordinators: workloads that the instances of a fleet share out among themselves.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::channel::oneshot;
use tenure_core::{
    AnyAssigner, CoordinatorOptions, LeaseConfig, LeaseName, NameError, Rebalance, Rendezvous, Restart,
    RestartPolicy, WaitLimit, WorkerOptions,
};
use tenure_store::StoreError;

use crate::acquire::Acquire;
use crate::fleet::{self, NotDrained, Stuck};
use crate::request::{Request, Requests, Ticket};
use crate::tenure::Tenure;
use crate::unstarted::Unstarted;
use crate::wakers::Waiting;
use crate::worker::{Work, WorkerError, WorkerStatus};
use crate::{Closed, RequestError};

mod shared;

pub(crate) use shared::{Shared, Tie};

/// Sets up a coordinator; made by [`Tenure::coordinate`]. Nothing runs before [`start`](CoordinatorSetup::start).
///
/// Instances share work only with those that have the same workloads, the same [rule](CoordinatorSetup::assign) and the
/// same [hold-down](CoordinatorSetup::hold_down); the rest of the settings is each one's own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::connect("memory:").await?;
/// use std::time::Duration;
/// use tenure::{Balanced, Rebalance};
///
/// let queues = tenure
///     .coordinate(["mail", "reports", "search"], |ctx| async move { ctx.draining().await; })
///     .ttl(Duration::from_secs(10))
///     .assign(Balanced)
///     .hold_down(Duration::from_secs(2))
///     .on_rebalance(Rebalance::Drain)
///     .drain_timeout(Duration::from_secs(60))
///     .start()?;
/// # queues.drain().await?;
/// # tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing runs before `start`"]
pub struct CoordinatorSetup {
    acquire: Acquire,
    workloads: Result<Vec<LeaseName>, NameError>,
    restart: Restart,
    delays: Option<(Duration, Duration)>,
    assigner: AnyAssigner,
    hold_down: Duration,
    rebalance: Rebalance,
    work: Work,
    unstarted: Unstarted,
}

impl CoordinatorSetup {
    pub(crate) fn new<N: AsRef<str>>(
        tenure: &Tenure,
        workloads: impl IntoIterator<Item = N>,
        work: Work,
    ) -> Self {
        let workloads: Result<Vec<_>, _> = workloads.into_iter().map(LeaseName::new).collect();
        // The name is not used: each workload has its own.
        let acquire = Acquire::new(tenure.clone(), LeaseName::new("workload"), WaitLimit::Forever);
        Self {
            acquire,
            workloads,
            restart: Restart::Always,
            delays: None,
            assigner: Rendezvous::new().into(),
            hold_down: CoordinatorOptions::DEFAULT_HOLD_DOWN,
            rebalance: Rebalance::default(),
            work,
            unstarted: Unstarted::unnamed("coordinator"),
        }
    }

    /// Sets the TTL of the leases; the rest of their timing follows from it. See [`LeaseConfig::ttl`]. It has nothing to
    /// do with the TTL of the [membership](crate::Builder::member_ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.acquire = self.acquire.ttl(ttl);
        self
    }

    /// Sets the whole timing of the leases.
    pub fn timing(mut self, config: LeaseConfig) -> Self {
        self.acquire = self.acquire.timing(config);
        self
    }

    /// How long the work of a workload may take to end by itself once it is told that it drains; then it is dropped at
    /// its next await point. Default 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.acquire = self.acquire.grace(timeout);
        self
    }

    /// Starts each workload anew this long after its start: it drains, and its lease is given back and acquired again.
    /// See [`WorkerSetup::max_hold`](crate::WorkerSetup::max_hold). Default: never.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.acquire = self.acquire.max_hold(limit);
        self
    }

    /// Keeps a text with the records of the leases for whoever inspects them.
    pub fn text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.acquire = self.acquire.text(text);
        self
    }

    /// When work is started again after it has ended by itself. Default [`Restart::Always`]. A workload that is not
    /// started again stays with this instance, as done, until it belongs to another one; then it runs there. Wherever it
    /// belongs next it runs again, here as well after a drain that was undone: this is not for work that is to be done
    /// once.
    pub const fn restart(mut self, when: Restart) -> Self {
        self.restart = when;
        self
    }

    /// How long a workload rests before it is started again; see
    /// [`WorkerSetup::restart_delays`](crate::WorkerSetup::restart_delays).
    pub const fn restart_delays(mut self, first: Duration, longest: Duration) -> Self {
        self.delays = Some((first, longest));
        self
    }

    /// Sets the rule by which the workloads are shared out. All instances need the same one. Default [`Rendezvous`], with
    /// its bound: a change of the members moves few workloads, and no instance has more than 1.25 times its fair share.
    pub fn assign(mut self, assigner: impl Into<AnyAssigner>) -> Self {
        self.assigner = assigner.into();
        self
    }

    /// How long an instance must have been a member to be given work, unless it came that soon after the eldest one. So
    /// a deploy that starts many instances moves work once, and one that keeps crashing moves none. Default 5 s.
    pub const fn hold_down(mut self, limit: Duration) -> Self {
        self.hold_down = limit;
        self
    }

    /// What becomes of work that belongs to another instance from now on, while this one is healthy: by default it is
    /// told to end, and dropped a stop budget later; [`Rebalance::Drain`] gives it the whole
    /// [`drain_timeout`](CoordinatorSetup::drain_timeout).
    pub const fn on_rebalance(mut self, rebalance: Rebalance) -> Self {
        self.rebalance = rebalance;
        self
    }

    /// Starts the coordinator. This instance joins the fleet, if it has not yet, and has what belongs to it run from its
    /// first look at the members on.
    ///
    /// Each run is a task of the async runtime that this is called in; see
    /// [`WorkerSetup::start`](crate::WorkerSetup::start).
    ///
    /// # Errors
    /// [`WorkerError`]. A store that has no members shows in the [status](Coordinator::status).
    pub fn start(self) -> Result<Coordinator, WorkerError> {
        self.unstarted.begin();
        let workloads = self.workloads?;
        let mut restart = RestartPolicy::new(self.restart);
        if let Some((first, longest)) = self.delays {
            restart = restart.delays(first, longest)?;
        }
        let mut worker = WorkerOptions::new(self.acquire.options()?);
        worker.restart = restart;
        let mut options = CoordinatorOptions::new(self.assigner, worker);
        options.hold_down = self.hold_down;
        options.rebalance = self.rebalance;
        let tenure = self.acquire.tenure();
        let shared = Arc::new(Shared::new(shared::State::new(&workloads)));
        let (ticket, requests) = tenure.start_coordinator(workloads, options, self.work, &shared)?;
        Ok(Coordinator { ticket, requests, shared, fleet: tenure.fleet() })
    }
}

impl fmt::Debug for CoordinatorSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinatorSetup")
            .field("workloads", &self.workloads)
            .field("assigner", &self.assigner)
            .field("hold_down", &self.hold_down)
            .field("rebalance", &self.rebalance)
            .finish_non_exhaustive()
    }
}

/// A coordinator that was started; cloning shares it.
///
/// It works on when this handle is dropped, for as long as any handle of its [`Tenure`] is there: this one counts. Once
/// the last one is gone, or at [`Tenure::shutdown`], it is drained.
#[derive(Clone)]
pub struct Coordinator {
    ticket: Ticket,
    requests: Requests,
    shared: Arc<Shared>,
    fleet: Arc<fleet::Shared>,
}

impl Coordinator {
    /// The workloads that are shared out, sorted.
    #[must_use]
    pub fn workloads(&self) -> Vec<LeaseName> {
        self.shared.look(shared::State::workloads)
    }

    /// Those that belong to this instance now, sorted, with what they do. One whose work has ended for good is none of
    /// them; see [`CoordinatorSetup::restart`].
    #[must_use]
    pub fn mine(&self) -> Vec<Share> {
        self.shared.look(|state| state.shares(true))
    }

    /// Those that do not belong to this instance any more, and have not ended here yet, sorted.
    #[must_use]
    pub fn leaving(&self) -> Vec<Share> {
        self.shared.look(|state| state.shares(false))
    }

    /// What it does now.
    #[must_use]
    pub fn status(&self) -> CoordinatorStatus {
        let (listed, error) = self.fleet.look(|state| (state.members.is_some(), state.error.clone()));
        self.shared.look(|state| {
            let (assigned, working) = state.counts();
            match listed {
                _ if state.has_ended() => CoordinatorStatus::Ended,
                false => CoordinatorStatus::Joining { error: error.map(Box::new) },
                true => CoordinatorStatus::Sharing { assigned, working },
            }
        })
    }

    /// Adds a workload; tells whether it was not there. Add it on every instance: they go on to share the others
    /// meanwhile, for the time of the hold-down.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn add(&self, name: impl AsRef<str>) -> Result<bool, RequestError> {
        self.change(LeaseName::new(name)?, true).await
    }

    /// Removes a workload; tells whether it was there. What runs of it here ends as in a rebalance. Remove it on every
    /// instance, as for [`add`](Coordinator::add).
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn remove(&self, name: impl AsRef<str>) -> Result<bool, RequestError> {
        self.change(LeaseName::new(name)?, false).await
    }

    async fn change(&self, name: LeaseName, add: bool) -> Result<bool, RequestError> {
        let (changed, answer) = oneshot::channel();
        let request = Request::ChangeWorkloads { ticket: self.ticket, name, add, changed };
        self.requests.unbounded_send(request).map_err(|_| Closed)?;
        answer.await.map_err(|oneshot::Canceled| Closed.into())
    }

    /// Ends the coordinator: the work of all workloads is told that it drains ([`Ctx::draining`](crate::Ctx::draining)), and may come to its
    /// end within the [`drain_timeout`](CoordinatorSetup::drain_timeout). As each one ends its lease is given back, and
    /// the instance that it belongs to from now on goes on. Returns once all are.
    ///
    /// It begins with the first poll. It may be called again, and from several places; dropping the future takes
    /// nothing back.
    ///
    /// # Errors
    /// [`NotDrained::Stuck`] names each workload that has not ended a stop budget after it was stopped. The drain goes
    /// on all the same: [`ended`](Coordinator::ended) tells when they have ended after all.
    pub async fn drain(&self) -> Result<(), NotDrained> {
        self.end(false).await
    }

    /// Like [`drain`](Coordinator::drain), without the time for it: work that runs is dropped at its next await point.
    ///
    /// # Errors
    /// As of [`drain`](Coordinator::drain).
    pub async fn stop(&self) -> Result<(), NotDrained> {
        self.end(true).await
    }

    /// Waits until the coordinator has ended and its leases are given back: because it was drained, or because what
    /// drives the leases has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut waiting = Waiting::new(&self.shared);
        poll_fn(move |cx| waiting.poll(cx, |state| state.has_ended().then_some(())))
    }

    /// Waits until what belongs to this instance, or what is done for it, is not as it is now.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let before = self.shared.look(|state| (state.shares(true), state.has_ended()));
        let mut waiting = Waiting::new(&self.shared);
        poll_fn(move |cx| {
            waiting.poll(cx, |state| ((state.shares(true), state.has_ended()) != before).then_some(()))
        })
    }

    async fn end(&self, hard: bool) -> Result<(), NotDrained> {
        let _gone = self.requests.unbounded_send(Request::EndCoordinator { ticket: self.ticket, hard });
        let mut waiting = Waiting::new(&self.shared);
        poll_fn(|cx| -> Poll<Result<(), NotDrained>> {
            waiting.poll(cx, |state| {
                let stuck = state.stuck();
                if state.is_closed() {
                    Some(Err(Closed.into()))
                } else if state.has_ended() {
                    Some(Ok(()))
                } else if stuck.is_empty() {
                    None
                } else {
                    Some(Err(NotDrained::Stuck(Stuck { leases: stuck, ticks: Vec::new() })))
                }
            })
        })
        .await
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("workloads", &self.workloads())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// What a coordinator does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinatorStatus {
    /// It has not seen the members yet, so nothing belongs to this instance.
    Joining {
        /// What the last heartbeat failed with, if none was answered since; for example that the store has no members.
        error: Option<Box<StoreError>>,
    },
    /// It shares the workloads with the others.
    Sharing {
        /// How many belong to this instance.
        assigned: usize,
        /// How many run here, those included that do not belong here any more.
        working: usize,
    },
    /// Nothing runs, and nothing is started any more.
    Ended,
}

/// A workload of a coordinator, on this instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// The workload; its lease has this name.
    pub workload: LeaseName,
    /// What is done for it. It waits while another instance still has the lease.
    pub status: WorkerStatus,
    /// What last went wrong with a run, unless a later one came to its end.
    pub last_error: Option<Arc<str>>,
}
