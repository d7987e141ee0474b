//! The coordinators of a node, joined with its membership and its workers.

use alloc::format;
use alloc::vec::Vec;

use super::workers::What;
use super::{Machine, Node, move_deadline};
use crate::command::{Misuse, Output};
use crate::coordinator::{Coordinator, CoordinatorOptions, DropReason, Rebalance, Step};
use crate::jitter::Jitter;
use crate::lease::Lease;
use crate::name::{CoordinatorKey, LeaseName, WorkerKey};
use crate::notice::Notice;
use crate::time::Instant;
use crate::timing::ConfigError;
use crate::worker::Worker;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CoordinatorEntry {
    pub(super) coordinator: Coordinator,
    /// Where it stands among the deadlines.
    pub(super) deadline: Option<Instant>,
}

impl<J: Jitter> Node<J> {
    /// Shares these workloads out among the instances that do the same: from now on this instance has a worker for each
    /// of those that belong to it. The lease of a workload has its name.
    ///
    /// # Errors
    /// [`Misuse::ShuttingDown`] after [`Node::shutdown`]; [`Misuse::NotJoined`] before [`Node::join`];
    /// [`Misuse::Config`] if there are [`CoordinatorOptions::MOST`] already.
    pub fn start_coordinator(
        &mut self,
        now: Instant,
        workloads: impl IntoIterator<Item = LeaseName>,
        options: CoordinatorOptions,
    ) -> Result<CoordinatorKey, Misuse> {
        if self.shutting_down {
            return Err(Misuse::ShuttingDown);
        }
        if self.member.is_none() {
            return Err(Misuse::NotJoined);
        }
        let most = CoordinatorOptions::MOST;
        if self.coordinators.len() >= most {
            let rule = format!("an instance has at most {most}");
            return Err(ConfigError::new("coordinators", format!("{}", most + 1), rule).into());
        }
        self.clamp(now);
        let key = CoordinatorKey(self.next_machine());
        let coordinator = Coordinator::new(options, workloads);
        self.coordinators.insert(key, CoordinatorEntry { coordinator, deadline: None });
        self.say();
        self.settle_coordinator(key);
        Ok(key)
    }

    /// Adds a workload; tells whether it was not there. Harmless when repeated.
    ///
    /// Instances count for each other only where they have the same workloads; while each of them is told of a new one,
    /// they go on to do so for the time of the hold-down.
    ///
    /// # Errors
    /// [`Misuse::UnknownCoordinator`] for a key that this node never made.
    pub fn add_workload(
        &mut self,
        now: Instant,
        coordinator: CoordinatorKey,
        name: LeaseName,
    ) -> Result<bool, Misuse> {
        self.change_workloads(now, coordinator, |coordinator, now| coordinator.add(now, name))
    }

    /// Removes a workload; tells whether it was there. Its worker ends as for a rebalance. Harmless when repeated.
    ///
    /// # Errors
    /// [`Misuse::UnknownCoordinator`] for a key that this node never made.
    pub fn remove_workload(
        &mut self,
        now: Instant,
        coordinator: CoordinatorKey,
        name: &LeaseName,
    ) -> Result<bool, Misuse> {
        self.change_workloads(now, coordinator, |coordinator, now| coordinator.remove(now, name))
    }

    fn change_workloads(
        &mut self,
        now: Instant,
        key: CoordinatorKey,
        change: impl FnOnce(&mut Coordinator, Instant) -> bool,
    ) -> Result<bool, Misuse> {
        self.check_coordinator(key)?;
        self.clamp(now);
        let Some(entry) = self.coordinators.get_mut(&key) else { return Ok(false) };
        let changed = change(&mut entry.coordinator, self.now);
        if changed {
            self.say();
        }
        self.settle_coordinator(key);
        Ok(changed)
    }

    /// Ends a coordinator: its workers are drained, and others take the workloads over. [`Notice::CoordinatorEnded`]
    /// tells when nothing of it runs. Harmless when repeated.
    ///
    /// # Errors
    /// [`Misuse::UnknownCoordinator`] for a key that this node never made.
    pub fn drain_coordinator(&mut self, now: Instant, coordinator: CoordinatorKey) -> Result<(), Misuse> {
        self.end_coordinator(now, coordinator, Lease::drain)
    }

    /// Like [`Node::drain_coordinator`], without a grace: workloads that run are stopped hard at once.
    ///
    /// # Errors
    /// [`Misuse::UnknownCoordinator`] for a key that this node never made.
    pub fn stop_coordinator(&mut self, now: Instant, coordinator: CoordinatorKey) -> Result<(), Misuse> {
        self.end_coordinator(now, coordinator, Lease::stop_now)
    }

    fn end_coordinator(
        &mut self,
        now: Instant,
        key: CoordinatorKey,
        end: impl Fn(&mut Lease<J>, Instant),
    ) -> Result<(), Misuse> {
        self.check_coordinator(key)?;
        self.clamp(now);
        let Some(entry) = self.coordinators.get_mut(&key) else { return Ok(()) };
        entry.coordinator.ending = true;
        let workers: Vec<_> = entry.coordinator.workers().collect();
        self.plan_now(key);
        self.say();
        for worker in workers {
            self.end_worker(self.now, worker, &end)?;
        }
        Ok(())
    }

    /// All coordinators end, and their workers with them.
    pub(super) fn end_coordinators(&mut self) {
        let keys: Vec<_> = self.coordinators.keys().copied().collect();
        for key in keys {
            if let Some(entry) = self.coordinators.get_mut(&key) {
                entry.coordinator.ending = true;
                self.plan_now(key);
            }
        }
    }

    /// All coordinators drop what they have: the instance drains.
    pub(super) fn drain_coordinators(&mut self) {
        let keys: Vec<_> = self.coordinators.keys().copied().collect();
        keys.into_iter().for_each(|key| self.plan_now(key));
    }

    /// Makes a plan before anything else is said, for what must not be begun any more.
    fn plan_now(&mut self, key: CoordinatorKey) {
        if let Some(entry) = self.coordinators.get_mut(&key) {
            entry.coordinator.touch();
            self.coordinator_due(key);
        }
    }

    fn check_coordinator(&self, key: CoordinatorKey) -> Result<(), Misuse> {
        if !self.was_made(key.0) || (self.lives(key.0) && !self.coordinators.contains_key(&key)) {
            return Err(Misuse::UnknownCoordinator(key));
        }
        Ok(())
    }

    /// The workloads that a coordinator shares out, sorted; none once it has ended.
    pub fn workloads(&self, coordinator: CoordinatorKey) -> impl Iterator<Item = &LeaseName> {
        self.coordinators.get(&coordinator).into_iter().flat_map(|entry| entry.coordinator.names())
    }

    /// The coordinator that a worker was started by; `None` for workers of other kinds, and for one that has ended.
    #[must_use]
    pub fn worker_coordinator(&self, worker: WorkerKey) -> Option<CoordinatorKey> {
        match &self.workers.get(&worker)?.what {
            What::Share(coordinator, _) => Some(*coordinator),
            What::Lease(_) | What::Run(_) => None,
        }
    }

    pub(super) fn touch_coordinators(&mut self) {
        let keys: Vec<_> = self.coordinators.keys().copied().collect();
        for key in keys {
            if let Some(entry) = self.coordinators.get_mut(&key) {
                entry.coordinator.touch();
                self.settle_coordinator(key);
            }
        }
    }

    fn settle_coordinator(&mut self, key: CoordinatorKey) {
        let Some(entry) = self.coordinators.get_mut(&key) else { return };
        let machine = Machine::Coordinator(key);
        let deadline = entry.coordinator.deadline();
        move_deadline(&mut self.deadlines, machine, &mut entry.deadline, deadline);
    }

    /// A plan is to be made, or something of it is over.
    pub(super) fn coordinator_due(&mut self, key: CoordinatorKey) {
        let draining = self.drain.on;
        let Some(entry) = self.coordinators.get_mut(&key) else { return };
        let says = entry.coordinator.timeout(self.now);
        let member = self.member.as_ref().and_then(|(_, entry)| entry.membership.members());
        let view = member.map(|(members, at)| (&**members, at));
        let steps = entry.coordinator.plan(self.now, &self.identity, view, draining);
        let rebalance = entry.coordinator.options.rebalance;
        for step in steps {
            match step {
                Step::Start(name) => self.start_share(key, name),
                Step::Drop(worker, why) => self.drop_share(key, worker, why, rebalance),
            }
        }
        if says {
            self.say();
        }
        self.coordinator_over(key);
        self.settle_coordinator(key);
    }

    fn start_share(&mut self, key: CoordinatorKey, name: LeaseName) {
        let Some(entry) = self.coordinators.get(&key) else { return };
        let options = entry.coordinator.options.worker.clone();
        let worker = WorkerKey(self.next_machine());
        self.output.push_back(Output::Notice(Notice::WorkloadAssigned { coordinator: key, worker }));
        let machine = Worker::new(self.now, worker, options, self.jitter.0.fork());
        self.enter_worker(worker, machine, What::Share(key, name.clone()));
        if let Some(entry) = self.coordinators.get_mut(&key) {
            entry.coordinator.started(&name, worker);
        }
    }

    fn drop_share(&mut self, key: CoordinatorKey, worker: WorkerKey, why: DropReason, rebalance: Rebalance) {
        self.output.push_back(Output::Notice(Notice::WorkloadDropped { coordinator: key, worker, why }));
        // The worker is one of this node's, so there is nothing to report.
        let _known = match (why, rebalance) {
            (DropReason::Rebalance | DropReason::Removed, Rebalance::Stop) => {
                self.end_worker(self.now, worker, Lease::stop_soon)
            }
            (DropReason::Rebalance | DropReason::Removed, Rebalance::Drain)
            | (DropReason::Drain | DropReason::Ended, _) => self.end_worker(self.now, worker, Lease::drain),
        };
    }

    /// A worker that was started here has ended.
    pub(super) fn share_ended(&mut self, key: CoordinatorKey, name: &LeaseName, worker: WorkerKey) {
        if let Some(entry) = self.coordinators.get_mut(&key) {
            entry.coordinator.worker_ended(name, worker);
        }
        self.coordinator_over(key);
        self.settle_coordinator(key);
    }

    fn coordinator_over(&mut self, key: CoordinatorKey) {
        let Some(entry) = self.coordinators.get(&key) else { return };
        if entry.coordinator.ending && entry.coordinator.workers().next().is_none() {
            if let Some(deadline) = entry.deadline {
                self.deadlines.remove(&(deadline, Machine::Coordinator(key)));
            }
            self.coordinators.remove(&key);
            self.output.push_back(Output::Notice(Notice::CoordinatorEnded { coordinator: key }));
        }
    }
}

#[cfg(test)]
impl CoordinatorEntry {
    /// What holds whenever everything was polled; returns its deadline.
    pub(super) fn check(&self, now: Instant) -> Option<Instant> {
        assert_eq!(self.deadline, self.coordinator.deadline());
        assert!(self.deadline.is_none_or(|at| at > now), "a coordinator is overdue");
        self.deadline
    }
}
