//! The coordinators: each workload that belongs here has a worker.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::channel::oneshot;
use tenure_core::{CoordinatorKey, DropReason, Instant, LeaseName, Misuse, WorkerKey};

use super::Driver;
use super::entries::Times;
use crate::coordinator::Tie;
use crate::events;
use crate::reason;
use crate::request::{NewCoordinator, Ticket};
use crate::runtime::{Runtime, SharedClock};
use crate::worker::{self, Place, Work};

#[derive(Default)]
pub(super) struct Coordinators {
    known: BTreeMap<CoordinatorKey, Known>,
    tickets: HashMap<Ticket, CoordinatorKey>,
}

struct Known {
    ticket: Ticket,
    times: Times,
    work: Work,
    /// Runs the tasks.
    runtime: SharedClock,
    tie: Tie,
}

impl Coordinators {
    /// How many entries all tables have.
    pub(super) fn entries(&self) -> usize {
        self.known.len() + self.tickets.len()
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

impl<R: Runtime> Driver<R> {
    pub(super) fn start_coordinator(&mut self, now: Instant, new: NewCoordinator) {
        let NewCoordinator { ticket, workloads, options, work, runtime, tie } = new;
        self.join(now, None);
        let times = Times::of(&options.worker.lease);
        self.closures.enter(&work, &runtime);
        match self.node.start_coordinator(now, workloads, options) {
            Ok(key) => {
                self.coordinators.tickets.insert(ticket, key);
                self.coordinators.known.insert(key, Known { ticket, times, work, runtime, tie });
            }
            // Dropping the tie tells the handle.
            Err(misuse) => events::request_refused(format_args!("no coordinator: {misuse}")),
        }
    }

    pub(super) fn change_workloads(
        &mut self,
        now: Instant,
        ticket: Ticket,
        name: LeaseName,
        add: bool,
        changed: oneshot::Sender<bool>,
    ) {
        let Some(&key) = self.coordinators.tickets.get(&ticket) else { return };
        let result = if add {
            self.node.add_workload(now, key, name)
        } else {
            self.node.remove_workload(now, key, &name)
        };
        let (Ok(result), Some(known)) = (result, self.coordinators.known.get(&key)) else { return };
        known.tie.set_workloads(self.node.workloads(key).cloned().collect());
        let _nobody_waits = changed.send(result);
    }

    pub(super) fn end_coordinator(&mut self, now: Instant, ticket: Ticket, hard: bool) {
        let Some(&key) = self.coordinators.tickets.get(&ticket) else { return };
        let ended: Result<(), Misuse> =
            if hard { self.node.stop_coordinator(now, key) } else { self.node.drain_coordinator(now, key) };
        debug_assert!(ended.is_ok(), "the key is the node's own");
    }

    pub(super) fn assigned(&mut self, coordinator: CoordinatorKey, worker: WorkerKey) {
        let Some(known) = self.coordinators.known.get(&coordinator) else { return };
        let Some(name) = self.node.worker_name(worker).cloned() else { return };
        events::workload_assigned(name.as_str());
        self.stats.assigned += 1;
        known.tie.assigned(worker, name);
        let tie = worker::Tie(Place::Share(Arc::clone(&known.tie.0), worker));
        let (work, runtime) = (known.work.clone(), Arc::clone(&known.runtime));
        self.workers.enter(worker, None, known.times, work, runtime, tie);
    }

    pub(super) fn dropped(&mut self, coordinator: CoordinatorKey, worker: WorkerKey, why: DropReason) {
        let Some(known) = self.coordinators.known.get(&coordinator) else { return };
        let name = self.node.worker_name(worker).map(LeaseName::as_str);
        let text = match why {
            DropReason::Rebalance => "another one has it now",
            DropReason::Drain => "this instance drains",
            DropReason::Removed => "it was removed",
            DropReason::Ended => "its coordinator ends",
            _ => "for a reason that this version does not know",
        };
        let text = format_args!("a workload does not belong to this instance: {text}");
        events::workload_dropped(name, reason::dropped(why), text);
        self.stats.dropped += 1;
        self.metrics.dropped(reason::dropped(why));
        known.tie.dropped(worker);
    }

    pub(super) fn coordinator_ended(&mut self, coordinator: CoordinatorKey) {
        let Some(known) = self.coordinators.known.remove(&coordinator) else { return };
        self.coordinators.tickets.remove(&known.ticket);
        known.tie.over();
    }
}
