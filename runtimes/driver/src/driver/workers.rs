//! The workers: their work runs in tasks of its own, and comes back when it has ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::channel::mpsc;
use futures::stream::StreamExt;
use tenure_core::{AcquireFailure, Event, Exit, Instant, LeaseKey, Misuse, Token, WorkerKey};

use super::entries::{self, Entry, Times};
use super::{Driver, SHARE};
use crate::events;
use crate::reason;
use crate::request::{NewWorker, Ticket};
use crate::runtime::{Runtime, SharedClock};
use crate::span::Span;
use crate::subject::Subject;
use crate::trouble::{self, Case, Kind};
use crate::worker::{Ended, Host, Job, Tie, Work, WorkerStatus};

pub(super) struct Workers {
    known: BTreeMap<WorkerKey, Known>,
    tickets: HashMap<Ticket, WorkerKey>,
    /// Of periodic jobs, too.
    ended: mpsc::UnboundedReceiver<Ended>,
    /// For the tasks.
    pub(super) sender: mpsc::UnboundedSender<Ended>,
}

struct Known {
    /// `None` for one of a coordinator's.
    ticket: Option<Ticket>,
    times: Times,
    /// `None` while it runs.
    work: Option<Work>,
    /// Runs the tasks.
    runtime: SharedClock,
    tie: Arc<Tie>,
}

impl Default for Workers {
    fn default() -> Self {
        let (sender, ended) = mpsc::unbounded();
        Self { known: BTreeMap::new(), tickets: HashMap::new(), ended, sender }
    }
}

impl Workers {
    /// How many entries all tables have.
    pub(super) fn entries(&self) -> usize {
        self.known.len() + self.tickets.len()
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn enter(
        &mut self,
        worker: WorkerKey,
        ticket: Option<Ticket>,
        times: Times,
        work: Work,
        runtime: SharedClock,
        tie: Tie,
    ) {
        let (work, tie) = (Some(work), Arc::new(tie));
        self.known.insert(worker, Known { ticket, times, work, runtime, tie });
    }

    fn set(&self, worker: WorkerKey, status: WorkerStatus) {
        if let Some(known) = self.known.get(&worker) {
            known.tie.set(status);
        }
    }
}

impl<R: Runtime> Driver<R> {
    pub(super) fn take_ended(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        for taken in 0..SHARE {
            match self.workers.ended.poll_next_unpin(cx) {
                Poll::Ready(Some(ended)) => self.work_ended(now, ended),
                Poll::Ready(None) | Poll::Pending => return taken > 0,
            }
        }
        true
    }

    pub(super) fn start_worker(&mut self, now: Instant, new: NewWorker) {
        let NewWorker { ticket, name, options, work, runtime, tie } = new;
        let times = Times::of(&options.lease);
        self.closures.enter(&work, &runtime);
        match self.node.start_worker(now, name, options) {
            Ok(key) => {
                self.workers.tickets.insert(ticket, key);
                self.workers.enter(key, Some(ticket), times, work, runtime, tie);
            }
            // Dropping the tie tells the handle.
            Err(misuse) => events::request_refused(format_args!("no worker: {misuse}")),
        }
    }

    pub(super) fn end_worker(&mut self, now: Instant, ticket: Ticket, hard: bool) {
        let Some(&key) = self.workers.tickets.get(&ticket) else { return };
        let ended: Result<(), Misuse> =
            if hard { self.node.stop_worker(now, key) } else { self.node.drain_worker(now, key) };
        debug_assert!(ended.is_ok(), "the key is the node's own");
    }

    /// A candidacy of a worker, or of a run, begins.
    pub(super) fn campaigns(&mut self, now: Instant, worker: WorkerKey, lease: LeaseKey) {
        if let Some((periodic, due)) = self.node.run(worker) {
            return self.run_campaigns(now, periodic, due, lease);
        }
        let Some(known) = self.workers.known.get(&worker) else { return };
        let Some(name) = self.node.worker_name(worker).cloned() else { return };
        known.tie.set(WorkerStatus::Waiting);
        let host = entries::Host::Worker(Arc::clone(&known.tie));
        self.entries.insert(lease, Entry::of_run(now, Subject::Lease(name), known.times, host));
    }

    pub(super) fn start_work(&mut self, now: Instant, worker: WorkerKey, lease: LeaseKey, token: Token) {
        if let Some((periodic, due)) = self.node.run(worker) {
            return self.start_run(now, periodic, due, lease, token);
        }
        let hold = self.entries.of(lease).and_then(|entry| entry.hold.clone());
        let known = self.workers.known.get_mut(&worker);
        let Some((hold, known, work)) = hold.zip(known).and_then(|(hold, known)| {
            let work = known.work.take()?;
            Some((hold, known, work))
        }) else {
            return self.tell_node(now, Event::WorkloadExited { lease, exit: Exit::NotStarted });
        };
        self.stats.runs += 1;
        events::work_started(hold.subject.lease(), token.get());
        known.tie.works(token);
        let host = Host::Worker(known.tie.0.clone());
        let job = Job::new(lease, hold, work, host, self.workers.sender.clone());
        job.start(&known.runtime);
    }

    fn work_ended(&mut self, now: Instant, ended: Ended) {
        if let Some(run) = self.periodics.take_run(ended.lease) {
            return self.run_ended(now, run, ended);
        }
        let Ended { lease, exit, error, work } = ended;
        let worker = self.node.worker(lease);
        let subject = self.node.name(lease).cloned().map(Subject::Lease);
        self.unhold(now, lease);
        if exit == Exit::Failed {
            self.stats.failed_runs += 1;
        }
        if let (Some(subject), Some(error)) = (&subject, &error) {
            let how = Ended::how(exit);
            let case = Case::from(subject).with_reason(reason::exit(exit));
            self.trouble.warn(now, Kind::Work, case, format_args!("work {how}: {error}"));
        } else if let Some(subject) = &subject {
            events::work_ended(subject.lease(), reason::exit(exit));
        }
        let lost = work.is_none();
        if let Some(known) = worker.and_then(|worker| self.workers.known.get_mut(&worker)) {
            known.work = work;
            known.tie.ended(exit, error);
        }
        self.tell_node(now, Event::WorkloadExited { lease, exit });
        if lost && let Some(worker) = worker {
            // There is nothing left that could be started again.
            let _known = match self.node.worker_coordinator(worker) {
                // Others can: they are to have its workloads.
                Some(coordinator) => self.node.drain_coordinator(now, coordinator),
                None => self.node.drain_worker(now, worker),
            };
        }
    }

    /// The candidacy of a worker has failed; it tries again by itself.
    pub(super) fn worker_refused(&mut self, now: Instant, lease: LeaseKey, why: AcquireFailure) {
        if matches!(why, AcquireFailure::GivenUp | AcquireFailure::Draining | AcquireFailure::ShuttingDown) {
            return;
        }
        let Some(name) = self.node.name(lease).cloned() else { return };
        let error = self.entries.acquire_error(&name, why).to_string();
        let subject = Subject::Lease(name);
        let (kind, case) = trouble::refused(&subject, why);
        self.trouble.warn(now, kind, case, format_args!("{error}; tried again later"));
    }

    pub(super) fn restarting(&mut self, now: Instant, worker: WorkerKey, failures: u32, until: Instant) {
        let name = self.node.worker_name(worker).map(|name| name.as_str());
        let rest = Span(until.saturating_since(now));
        events::work_resting(name, failures, format_args!("campaigns again in {rest}"));
        self.workers.set(worker, WorkerStatus::Resting { failures, until });
    }

    pub(super) fn stuck(&mut self, now: Instant, worker: WorkerKey, lease: LeaseKey) {
        if self.run_stuck(now, lease) {
            return;
        }
        let Some(known) = self.workers.known.get(&worker) else { return };
        known.tie.stuck();
        let text = "the work was stopped and does not end: it blocks its thread; its lease is not given back before it does";
        let subject = self.node.name(lease).cloned().map(Subject::Lease);
        self.trouble.warn(now, Kind::Stuck, subject.as_ref(), text);
    }

    pub(super) fn worker_ended(&mut self, worker: WorkerKey) {
        let Some(known) = self.workers.known.remove(&worker) else { return };
        known.ticket.map(|ticket| self.workers.tickets.remove(&ticket));
        known.tie.set(WorkerStatus::Ended);
    }
}
