//! What a worker's handles, its driver and its work tell each other.

use std::sync::Arc;

use tenure_core::{Exit, Token, WorkerKey};

use super::WorkerStatus;
use crate::coordinator;
use crate::wakers::Watched;

/// What the driver and the handles share about a worker.
pub(crate) type Shared = Watched<State>;

#[derive(Debug)]
pub(crate) struct State {
    pub(super) status: WorkerStatus,
    /// How many of its leases were granted, so that the store may still have a record of them.
    recorded: usize,
    /// A run of its work has begun, and not ended.
    runs: bool,
    /// The driver went before it had ended.
    pub(super) closed: bool,
    pub(super) error: Option<Arc<str>>,
}

impl Default for State {
    fn default() -> Self {
        Self { status: WorkerStatus::Waiting, recorded: 0, runs: false, closed: false, error: None }
    }
}

impl State {
    pub(crate) const fn status(&self) -> WorkerStatus {
        self.status
    }

    pub(crate) fn error(&self) -> Option<Arc<str>> {
        self.error.clone()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.status == WorkerStatus::Ended && (self.closed || self.recorded == 0)
    }

    /// Without a driver only the work itself is left to end.
    fn end_without_driver(&mut self) {
        if self.closed && !self.runs {
            self.status = WorkerStatus::Ended;
        }
    }
}

/// Where the state of a worker is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// It has handles of its own.
    Own(Arc<Shared>),
    /// It is one of a coordinator's.
    Share(Arc<coordinator::Shared>, WorkerKey),
}

impl Place {
    fn change(&self, change: impl FnOnce(&mut State)) {
        match self {
            Self::Own(shared) => shared.change(change),
            Self::Share(shared, worker) => shared.change_worker(*worker, change),
        }
    }

    pub(crate) fn work_is_gone(&self) {
        self.change(|state| {
            state.runs = false;
            state.end_without_driver();
        });
    }
}

/// The driver's end of a worker's state: once it is gone, only the work itself changes anything.
#[derive(Debug)]
pub(crate) struct Tie(pub(crate) Place);

impl Tie {
    pub(crate) fn set(&self, status: WorkerStatus) {
        self.0.change(|state| state.status = status);
    }

    /// A run begins.
    pub(crate) fn works(&self, token: Token) {
        self.0.change(|state| {
            state.status = WorkerStatus::Working { token };
            state.runs = true;
        });
    }

    /// The work does not end.
    pub(crate) fn stuck(&self) {
        self.0.change(|state| {
            if let WorkerStatus::Working { token } = state.status {
                state.status = WorkerStatus::Stuck { token };
            }
        });
    }

    /// The store may have a record of one more of its leases, or of one less.
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
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.0.change(|state| {
            // What has not ended in order never will.
            state.closed = !state.has_ended();
            state.end_without_driver();
        });
    }
}
