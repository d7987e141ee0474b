//! What a periodic job's handles, its driver and its runs tell each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::{Exit, LeaseKey, Token};
use tenure_store::StoreError;

use super::PeriodicStatus;
use crate::wakers::Watched;

/// What the driver and the handles share about a periodic job.
pub(crate) type Shared = Watched<State>;

#[derive(Debug, Default)]
pub(crate) struct State {
    /// By the leases that they run under, so in the order in which they were begun.
    runs: BTreeMap<LeaseKey, Running>,
    /// How many of its leases and claims were granted, so that the store may still have a record of them.
    recorded: usize,
    /// Nothing is started any more.
    over: bool,
    /// The driver went before it had ended.
    closed: bool,
    refused: Option<Box<StoreError>>,
    error: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    tick: u64,
    token: Token,
    /// It was stopped and does not end.
    stuck: bool,
}

impl State {
    pub(super) fn has_ended(&self) -> bool {
        self.runs.is_empty() && (self.closed || (self.over && self.recorded == 0))
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn refused(&self) -> Option<Box<StoreError>> {
        self.refused.clone()
    }

    /// A run that does not end.
    pub(super) fn stuck(&self) -> Option<(u64, Token)> {
        self.runs.values().find(|run| run.stuck).map(|run| (run.tick, run.token))
    }

    fn status(&self) -> PeriodicStatus {
        match (self.stuck(), self.runs.values().max_by_key(|run| run.tick)) {
            _ if self.has_ended() => PeriodicStatus::Ended,
            (Some((tick, token)), _) => PeriodicStatus::Stuck { tick, token },
            (None, Some(&Running { tick, token, .. })) => {
                PeriodicStatus::Working { runs: self.runs.len(), tick, token }
            }
            (None, None) => PeriodicStatus::Waiting,
        }
    }
}

impl Shared {
    pub(super) fn status(&self) -> PeriodicStatus {
        self.look(State::status)
    }

    pub(super) fn last_error(&self) -> Option<Arc<str>> {
        self.look(|state| state.error.clone())
    }

    pub(crate) fn run_is_gone(&self, lease: LeaseKey) {
        self.change(|state| {
            state.runs.remove(&lease);
        });
    }
}

/// The driver's end of a [`Shared`]: once it is gone, only the runs themselves change anything.
#[derive(Debug)]
pub(crate) struct Tie(pub(crate) Arc<Shared>);

impl Tie {
    /// A run begins.
    pub(crate) fn works(&self, lease: LeaseKey, tick: u64, token: Token) {
        self.0.change(|state| {
            state.runs.insert(lease, Running { tick, token, stuck: false });
        });
    }

    /// A run does not end.
    pub(crate) fn stuck(&self, lease: LeaseKey) {
        self.0.change(|state| {
            if let Some(run) = state.runs.get_mut(&lease) {
                run.stuck = true;
            }
        });
    }

    /// The store may have a record of one more of its leases and claims, or of one less.
    pub(crate) fn record(&self, recorded: bool) {
        self.0.change(|state| {
            state.recorded = if recorded { state.recorded + 1 } else { state.recorded.saturating_sub(1) };
        });
    }

    /// A run has ended. To have been stopped, without a word, tells nothing of the one before.
    pub(crate) fn ended(&self, exit: Exit, error: Option<String>) {
        if exit == Exit::Completed || error.is_some() {
            self.0.change(|state| state.error = error.map(Into::into));
        }
    }

    pub(crate) fn refused(&self, error: StoreError) {
        self.0.change(|state| {
            state.error = Some(error.to_string().into());
            state.refused = Some(Box::new(error));
        });
    }

    /// Nothing is started any more.
    pub(crate) fn over(&self) {
        self.0.change(|state| state.over = true);
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        // What has not ended in order never will.
        self.0.change(|state| state.closed = !state.has_ended());
    }
}
