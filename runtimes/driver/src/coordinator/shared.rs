//! What a coordinator's handles, its driver and its work tell each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_core::{LeaseName, Token, WorkerKey};

use super::Share;
use crate::wakers::Watched;
use crate::worker::{self, WorkerStatus};

/// What the driver and the handles share about a coordinator.
pub(crate) type Shared = Watched<State>;

#[derive(Debug)]
pub(crate) struct State {
    workloads: BTreeSet<LeaseName>,
    /// The workers that have not ended, and those whose leases are still on their way back.
    entries: BTreeMap<WorkerKey, Entry>,
    /// Nothing is started any more.
    over: bool,
    /// The driver went before it had ended.
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    workload: LeaseName,
    /// It belongs to this instance.
    is_mine: bool,
    worker: worker::State,
}

impl State {
    pub(super) fn new(workloads: &[LeaseName]) -> Self {
        let workloads = workloads.iter().cloned().collect();
        Self { workloads, entries: BTreeMap::new(), over: false, closed: false }
    }

    pub(super) fn workloads(&self) -> Vec<LeaseName> {
        self.workloads.iter().cloned().collect()
    }

    /// Those that belong here, or those that do not any more.
    pub(super) fn shares(&self, mine: bool) -> Vec<Share> {
        let entries = self.entries.values().filter(|entry| entry.is_mine == mine);
        let share = |Entry { workload, worker, .. }: &Entry| Share {
            workload: workload.clone(),
            status: worker.status(),
            last_error: worker.error(),
        };
        let mut shares: Vec<_> = entries.map(share).collect();
        shares.sort_by(|one, other| one.workload.cmp(&other.workload));
        shares
    }

    /// How many belong here, and how many run.
    pub(super) fn counts(&self) -> (usize, usize) {
        let assigned = self.entries.values().filter(|entry| entry.is_mine).count();
        let runs = |entry: &&Entry| {
            matches!(entry.worker.status(), WorkerStatus::Working { .. } | WorkerStatus::Stuck { .. })
        };
        (assigned, self.entries.values().filter(runs).count())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.entries.is_empty() && (self.over || self.closed)
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The workloads that do not end, and their tokens; none as long as anything else is still to end.
    pub(super) fn stuck(&self) -> Vec<(LeaseName, Token)> {
        let stuck = |entry: &Entry| match entry.worker.status() {
            WorkerStatus::Stuck { token } => Some((entry.workload.clone(), token)),
            WorkerStatus::Waiting
            | WorkerStatus::Working { .. }
            | WorkerStatus::Resting { .. }
            | WorkerStatus::Ended => None,
        };
        let stuck: Option<Vec<_>> = self.entries.values().map(stuck).collect();
        let mut stuck = stuck.unwrap_or_default();
        stuck.sort();
        stuck
    }
}

impl Shared {
    /// Changes what is known of one of the workers; forgets it once it has ended.
    pub(crate) fn change_worker(&self, worker: WorkerKey, change: impl FnOnce(&mut worker::State)) {
        self.change(|state| {
            if let Some(entry) = state.entries.get_mut(&worker) {
                change(&mut entry.worker);
                if entry.worker.has_ended() {
                    state.entries.remove(&worker);
                }
            }
        });
    }
}

/// The driver's end of a [`Shared`]: once it is gone, only the work itself changes anything.
#[derive(Debug)]
pub(crate) struct Tie(pub(crate) Arc<Shared>);

impl Tie {
    /// A workload belongs here.
    pub(crate) fn assigned(&self, worker: WorkerKey, workload: LeaseName) {
        let entry = Entry { workload, is_mine: true, worker: worker::State::default() };
        self.0.change(|state| drop(state.entries.insert(worker, entry)));
    }

    /// A workload does not belong here any more.
    pub(crate) fn dropped(&self, worker: WorkerKey) {
        self.0.change(|state| {
            if let Some(entry) = state.entries.get_mut(&worker) {
                entry.is_mine = false;
            }
        });
    }

    pub(crate) fn set_workloads(&self, workloads: BTreeSet<LeaseName>) {
        self.0.change(|state| state.workloads = workloads);
    }

    /// Nothing is started any more.
    pub(crate) fn over(&self) {
        self.0.change(|state| state.over = true);
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        // What has not ended in order never will.
        self.0.change(|state| state.closed = !state.over);
    }
}
