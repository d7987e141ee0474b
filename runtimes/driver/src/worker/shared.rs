//! What a worker's handles, its driver and its work tell each other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tenure_core::{Exit, Token};

use super::WorkerStatus;
use crate::wakers::{Place, Wakers, wake};

/// What the driver and the handles share about a worker.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<State>);

#[derive(Debug)]
pub(super) struct State {
    pub(super) status: WorkerStatus,
    /// How many of its leases were granted, so that the store may still have a record of them.
    recorded: usize,
    /// A run of its work has begun, and not ended.
    runs: bool,
    /// The driver went before it had ended.
    pub(super) closed: bool,
    pub(super) error: Option<Arc<str>>,
    waiting: Wakers,
}

impl Default for State {
    fn default() -> Self {
        let waiting = Wakers::default();
        Self { status: WorkerStatus::Waiting, recorded: 0, runs: false, closed: false, error: None, waiting }
    }
}

impl State {
    pub(super) fn has_ended(&self) -> bool {
        self.status == WorkerStatus::Ended && (self.closed || self.recorded == 0)
    }

    /// Without a driver only the work itself is left to end.
    fn end_without_driver(&mut self) {
        if self.closed && !self.runs {
            self.status = WorkerStatus::Ended;
        }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn work_is_gone(&self) {
        self.change(|state| {
            state.runs = false;
            state.end_without_driver();
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut woken: Vec<Waker> = Vec::new();
        {
            let mut state = self.lock();
            change(&mut state);
            state.waiting.take(&mut woken);
        }
        wake(woken);
    }
}

/// The driver's end of a [`Shared`]: once it is gone, only the work itself changes anything.
#[derive(Debug)]
pub(crate) struct Tie(pub(crate) Arc<Shared>);

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

/// Waits for a change.
pub(super) struct Waiting {
    shared: Arc<Shared>,
    place: Place,
}

impl Waiting {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), place: Place::NEW }
    }

    pub(super) fn poll<T>(&mut self, cx: &Context<'_>, wanted: impl FnOnce(&State) -> Option<T>) -> Poll<T> {
        let mut state = self.shared.lock();
        let found = wanted(&state);
        let replaced = match found {
            Some(_) => state.waiting.leave(&mut self.place),
            None => state.waiting.register(&mut self.place, cx.waker()),
        };
        drop(state);
        drop(replaced);
        found.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let left = self.shared.lock().waiting.leave(&mut self.place);
        drop(left);
    }
}
