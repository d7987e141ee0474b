//! The workers of a node, joined with the leases of their runs.

use super::{Entry, Machine, Node, move_deadline};
use crate::command::{Command, Event, Exit, Misuse, Output, Stop};
use crate::jitter::Jitter;
use crate::lease::Lease;
use crate::name::{Acquisition, CoordinatorKey, LeaseKey, LeaseName, PeriodicKey, Token, WorkerKey};
use crate::notice::Notice;
use crate::planted::{Bug, planted};
use crate::time::Instant;
use crate::worker::{Worker, WorkerOptions};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerEntry<J> {
    worker: Worker<J>,
    pub(super) what: What,
    /// Where it stands among the deadlines.
    deadline: Option<Instant>,
    /// Whether it stands among the ready.
    ready: bool,
}

/// What a worker is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    /// The runs under the lease of this name, one after the other.
    Lease(LeaseName),
    /// One run of a periodic job.
    Run(PeriodicKey),
    /// The runs of a workload of this coordinator.
    Share(CoordinatorKey, LeaseName),
}

impl<J> WorkerEntry<J> {
    /// The job whose run it is.
    pub(super) fn run(&self) -> Option<PeriodicKey> {
        match &self.what {
            What::Lease(_) | What::Share(..) => None,
            What::Run(periodic) => Some(*periodic),
        }
    }

    /// The name of its lease.
    fn name(&self) -> Option<&LeaseName> {
        match &self.what {
            What::Lease(name) | What::Share(_, name) => Some(name),
            What::Run(_) => None,
        }
    }
}

#[cfg(feature = "model")]
impl<J: Jitter> WorkerEntry<J> {
    pub(super) fn visit(&mut self, visitor: &mut impl crate::model::Visitor) {
        let Self { worker, what, deadline, ready: _ } = self;
        worker.visit(visitor);
        match what {
            What::Lease(_) => {}
            What::Run(periodic) => periodic.visit(visitor),
            What::Share(coordinator, _) => coordinator.visit(visitor),
        }
        if let Some(deadline) = deadline {
            visitor.deadline(deadline);
        }
    }
}

#[cfg(test)]
impl<J: Jitter> WorkerEntry<J> {
    /// What holds whenever everything was polled; returns its deadline.
    pub(super) fn check(&self, now: Instant) -> Option<Instant> {
        assert_eq!(self.deadline, self.worker.deadline());
        assert!(self.deadline.is_none_or(|at| at > now), "a worker is overdue");
        assert!(!self.ready && !self.worker.has_output());
        self.deadline
    }
}

impl<J: Jitter> Node<J> {
    /// Makes a worker: from now on its workload is started whenever its lease is granted, until it is drained or its
    /// policy wants no further run.
    ///
    /// # Errors
    /// [`Misuse::ShuttingDown`] after [`Node::shutdown`].
    pub fn start_worker(
        &mut self,
        now: Instant,
        name: LeaseName,
        options: WorkerOptions,
    ) -> Result<WorkerKey, Misuse> {
        if self.shutting_down {
            return Err(Misuse::ShuttingDown);
        }
        self.clamp(now);
        let key = WorkerKey(self.next_machine());
        let mut worker = Worker::new(self.now, key, options, self.jitter.0.fork());
        if self.drain.on {
            worker.pause();
        }
        self.enter_worker(key, worker, What::Lease(name));
        Ok(key)
    }

    pub(super) fn enter_worker(&mut self, key: WorkerKey, worker: Worker<J>, what: What) {
        self.workers.insert(key, WorkerEntry { worker, what, deadline: None, ready: false });
        self.settle_worker(key);
    }

    /// A worker for one run of a periodic job; its candidacy is entered by whoever calls this.
    pub(super) fn enter_run(&mut self, key: WorkerKey, worker: Worker<J>, periodic: PeriodicKey) {
        self.enter_worker(key, worker, What::Run(periodic));
    }

    /// Starts nothing any more for this worker. A workload that runs is told to end in order, within the grace of its
    /// lease's options; the lease is given back once it has. [`Notice::WorkerEnded`] tells when nothing runs. Harmless
    /// when repeated.
    ///
    /// # Errors
    /// [`Misuse::UnknownWorker`] for a key that this node never made.
    pub fn drain_worker(&mut self, now: Instant, worker: WorkerKey) -> Result<(), Misuse> {
        self.end_worker(now, worker, Lease::drain)
    }

    /// Like [`Node::drain_worker`], without a grace: a workload that runs is stopped hard at once.
    ///
    /// # Errors
    /// [`Misuse::UnknownWorker`] for a key that this node never made.
    pub fn stop_worker(&mut self, now: Instant, worker: WorkerKey) -> Result<(), Misuse> {
        self.end_worker(now, worker, Lease::stop_now)
    }

    /// The worker that a hold or candidacy belongs to.
    #[must_use]
    pub fn worker(&self, lease: LeaseKey) -> Option<WorkerKey> {
        self.leases.get(&lease)?.worker
    }

    /// The name of a worker's lease; `None` for a run of a periodic job, and once [`Notice::WorkerEnded`] was polled.
    #[must_use]
    pub fn worker_name(&self, worker: WorkerKey) -> Option<&LeaseName> {
        self.workers.get(&worker)?.name()
    }

    pub(super) fn end_worker(
        &mut self,
        now: Instant,
        key: WorkerKey,
        end: impl FnOnce(&mut Lease<J>, Instant),
    ) -> Result<(), Misuse> {
        if !self.was_made(key.0) || (self.lives(key.0) && !self.workers.contains_key(&key)) {
            return Err(Misuse::UnknownWorker(key));
        }
        self.clamp(now);
        if let Some(entry) = self.workers.get_mut(&key) {
            let lease = entry.worker.drain();
            self.settle_worker(key);
            if let Some(lease) = lease
                && let Some(entry) = self.leases.get_mut(&lease)
            {
                end(&mut entry.lease, self.now);
                self.settle(lease);
            }
        }
        Ok(())
    }

    /// Starts nothing any more; the leases are drained by whoever calls this.
    pub(super) fn drain_workers(&mut self) {
        let keys: alloc::vec::Vec<_> = self.workers.keys().copied().collect();
        for key in keys {
            if let Some(entry) = self.workers.get_mut(&key) {
                entry.worker.drain();
                self.settle_worker(key);
            }
        }
    }

    /// Nothing is started any more while the instance drains: workers of leases wait, runs of jobs end. The leases are
    /// drained by whoever calls this; the workers of coordinators are dropped by their plans.
    pub(super) fn pause_workers(&mut self) {
        let keys: alloc::vec::Vec<_> = self.workers.keys().copied().collect();
        for key in keys {
            if let Some(entry) = self.workers.get_mut(&key) {
                match entry.what {
                    What::Lease(_) => entry.worker.pause(),
                    What::Run(_) => {
                        entry.worker.drain();
                    }
                    What::Share(..) => {}
                }
                self.settle_worker(key);
            }
        }
    }

    /// The drain is over.
    pub(super) fn resume_workers(&mut self) {
        let keys: alloc::vec::Vec<_> = self.workers.keys().copied().collect();
        for key in keys {
            if let Some(entry) = self.workers.get_mut(&key) {
                entry.worker.resume(self.now);
                self.settle_worker(key);
            }
        }
    }

    /// The deadline and the readiness of one worker.
    pub(super) fn settle_worker(&mut self, key: WorkerKey) {
        let Some(entry) = self.workers.get_mut(&key) else { return };
        move_deadline(
            &mut self.deadlines,
            Machine::Worker(key),
            &mut entry.deadline,
            entry.worker.deadline(),
        );
        if !entry.ready && entry.worker.has_output() {
            entry.ready = true;
            self.ready.push_back(Machine::Worker(key));
        }
    }

    /// Its rest is over, or its workload is stuck.
    pub(super) fn worker_due(&mut self, key: WorkerKey) {
        let Some(entry) = self.workers.get_mut(&key) else { return };
        entry.worker.timeout(self.now);
        if let Some(name) = entry.name()
            && let Some(options) = entry.worker.wants(self.now)
        {
            let name = name.clone();
            let lease = self.enter(name, options, Some(key));
            self.campaigns(key, lease);
        }
        self.settle_worker(key);
    }

    /// A candidacy was entered for this worker.
    pub(super) fn campaigns(&mut self, key: WorkerKey, lease: LeaseKey) {
        let Some(entry) = self.workers.get_mut(&key) else { return };
        entry.worker.campaigns(lease);
        if !entry.ready {
            // Whose candidacy it is comes before what it says.
            entry.ready = true;
            self.ready.push_front(Machine::Worker(key));
        }
        self.settle_worker(key);
    }

    /// The next output of a worker that is ready.
    pub(super) fn poll_worker(&mut self, key: WorkerKey) -> Option<Output> {
        let output = self.worker_output(key);
        if let Some(entry) = self.workers.get_mut(&key)
            && entry.worker.has_output()
        {
            return output;
        }
        self.ready.pop_front();
        if let Some(entry) = self.workers.get_mut(&key) {
            entry.ready = false;
        }
        if output == Some(Output::Notice(Notice::WorkerEnded { worker: key }))
            && let Some(entry) = self.workers.remove(&key)
        {
            match entry.what {
                What::Lease(_) => {}
                What::Run(periodic) => self.run_over(periodic, key),
                What::Share(coordinator, name) => self.share_ended(coordinator, &name, key),
            }
        }
        if let Some(Output::Command(Command::StartWorkload { .. })) = output
            && let Some(periodic) = self.workers.get(&key).and_then(WorkerEntry::run)
        {
            self.go_on(periodic);
        }
        self.settle_worker(key);
        output
    }

    /// The lease of a run and its claim are held.
    pub(super) fn worker_acquired(&mut self, key: WorkerKey, lease: LeaseKey, n: Acquisition, token: Token) {
        if let Some(entry) = self.workers.get_mut(&key) {
            entry.worker.acquired(lease, n, token);
            self.settle_worker(key);
        }
    }

    fn worker_output(&mut self, key: WorkerKey) -> Option<Output> {
        let worker = &mut self.workers.get_mut(&key)?.worker;
        if let Some(output) = worker.next_output() {
            return Some(output);
        }
        let (lease, n, token) = worker.starting()?;
        let may = self.may_run(key);
        let machine = self.leases.get(&lease).map(|entry| &entry.lease);
        let valid = machine.and_then(|machine| machine.valid(self.now)) == Some(token);
        match machine.and_then(Lease::deadlines) {
            // The start leaves now, or never.
            Some(deadlines) if may && (valid || planted(Bug::StartedThoughInvalid)) => {
                self.workers.get_mut(&key)?.worker.started(self.now);
                let start = Command::StartWorkload { worker: key, lease, n, token, deadlines };
                if planted(Bug::StartedTwice) {
                    self.output.push_back(Output::Command(start.clone()));
                }
                self.run_started(key);
                Some(Output::Command(start))
            }
            _ => {
                self.work_ended(lease, Exit::NotStarted);
                // The lease may be forgotten by now.
                self.worker_exited(key, lease, Exit::NotStarted);
                None
            }
        }
    }

    /// What a worker makes of what its lease says.
    pub(super) fn through_worker(&mut self, key: WorkerKey, output: Output) -> Option<Output> {
        let output = self.through_run(key, output)?;
        let Some(entry) = self.workers.get_mut(&key) else { return Some(output) };
        let worker = &mut entry.worker;
        match &output {
            Output::Notice(Notice::Acquired { lease, n, token, .. }) => worker.acquired(*lease, *n, *token),
            Output::Notice(Notice::Failed { lease, why }) => worker.refused(self.now, *lease, *why),
            Output::Command(
                Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, how: Stop::Ask, .. },
            ) => return self.stop_work(key, *lease, Stop::Ask).then_some(output),
            Output::Command(Command::StopWorkload { lease, how: Stop::Hard, .. }) => {
                return self.stop_work(key, *lease, Stop::Hard).then_some(output);
            }
            _ => {}
        }
        self.settle_worker(key);
        Some(output)
    }

    /// Tells whether there is a workload to be told; one that was not started never will be.
    fn stop_work(&mut self, key: WorkerKey, lease: LeaseKey, how: Stop) -> bool {
        let Some(entry) = self.workers.get_mut(&key) else { return false };
        let runs = entry.worker.stops(self.now, lease, how);
        if !runs {
            self.work_ended(lease, Exit::NotStarted);
        }
        self.settle_worker(key);
        runs
    }

    /// Nothing of the work under this hold runs any more. None is under what is not held, nor under a claim beside the
    /// lease of a run.
    pub(super) fn work_ended(&mut self, lease: LeaseKey, exit: Exit) {
        let candidate = self.leases.get(&lease).is_some_and(|entry| entry.lease.is_candidate());
        if candidate || self.is_beside(lease) {
            return;
        }
        if let Some(worker) = self.leases.get(&lease).and_then(|entry| entry.worker) {
            self.run_exited(worker, exit);
            self.finish_beside(worker);
        }
        let Some(Entry { lease: machine, worker, .. }) = self.leases.get_mut(&lease) else { return };
        let worker = *worker;
        // An exit is no misuse for any lease that was ever made, so there is nothing to report.
        let _ = machine.handle(self.now, Event::WorkloadExited { lease, exit });
        self.settle(lease);
        if let Some(key) = worker {
            self.worker_exited(key, lease, exit);
        }
    }

    pub(super) fn is_running(&self, key: WorkerKey) -> bool {
        self.workers.get(&key).is_some_and(|entry| entry.worker.is_running())
    }

    fn worker_exited(&mut self, key: WorkerKey, lease: LeaseKey, exit: Exit) {
        if let Some(entry) = self.workers.get_mut(&key) {
            entry.worker.exited(self.now, lease, exit);
            self.settle_worker(key);
        }
    }
}
