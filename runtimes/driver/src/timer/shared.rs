//! What the driver and a timer's handle tell each other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::{AnySchedule, DueTick, Instant, Missed, TimerName, TimerOptions};
use tenure_store::StoreError;

use super::TimerError;
use crate::Closed;
use crate::runtime::SharedClock;

/// The ticks of one timer until they are read.
pub(crate) struct Shared {
    clock: SharedClock,
    /// As many as would be delivered at once after a pause.
    most: usize,
    late_limit: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    /// What was not read yet, and when it came.
    due: VecDeque<(DueTick, Instant)>,
    /// How many were missed since the last tick that is still there.
    missed: u64,
    schedule: AnySchedule,
    end: Option<End>,
    waker: Option<Waker>,
}

enum End {
    /// Nothing is left to be told.
    Silent,
    Refused(Box<StoreError>),
    Closed,
}

impl Shared {
    pub(crate) fn new(options: &TimerOptions, clock: SharedClock) -> Self {
        let most = match options.missed {
            Missed::Skip => 1,
            Missed::CatchUp { at_most } => at_most.clamp(1, Missed::MOST) as usize,
        };
        let state = State {
            due: VecDeque::new(),
            missed: 0,
            schedule: options.schedule.clone(),
            end: None,
            waker: None,
        };
        Self { clock, most, late_limit: options.late_limit, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn schedule(&self) -> AnySchedule {
        self.lock().schedule.clone()
    }

    pub(super) fn poll(
        &self,
        name: &TimerName,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<DueTick, TimerError>>> {
        let mut state = self.lock();
        let now = self.clock.now();
        while let Some((mut due, since)) = state.due.pop_front() {
            // It has waited to be read.
            due.late = due.late.saturating_add(now.saturating_since(since));
            if self.late_limit.is_none_or(|limit| due.late <= limit) {
                return Poll::Ready(Some(Ok(due)));
            }
            state.pass_on(due.missed.saturating_add(1));
        }
        let end = match state.end.replace(End::Silent) {
            Some(End::Silent) => None,
            Some(End::Refused(error)) => Some(TimerError::Refused { timer: name.clone(), error }),
            Some(End::Closed) => Some(TimerError::Closed(Closed)),
            None => {
                state.end = None;
                let replaced = state.waker.replace(cx.waker().clone());
                drop(state);
                drop(replaced);
                return Poll::Pending;
            }
        };
        Poll::Ready(end.map(Err))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// So many ticks before the next one to be read are not read.
    fn pass_on(&mut self, missed: u64) {
        let next = self.due.front_mut().map(|(due, _)| &mut due.missed);
        let count = next.unwrap_or(&mut self.missed);
        *count = count.saturating_add(missed);
    }
}

/// The driver's end of a [`Shared`].
pub(crate) struct Feed(pub(crate) Arc<Shared>);

impl Feed {
    /// A tick is due. Tells how many were left out because nobody read them.
    pub(crate) fn tick(&self, now: Instant, mut due: DueTick) -> u64 {
        let mut unread = 0;
        self.0.change(|state| {
            due.missed = due.missed.saturating_add(std::mem::take(&mut state.missed));
            state.due.push_back((due, now));
            while state.due.len() > self.0.most
                && let Some((left_out, _)) = state.due.pop_front()
            {
                unread += 1;
                state.pass_on(left_out.missed.saturating_add(1));
            }
        });
        unread
    }

    /// So many ticks are not delivered.
    pub(crate) fn missed(&self, count: u64) {
        let mut state = self.0.lock();
        state.missed = state.missed.saturating_add(count);
    }

    pub(crate) fn follow(&self, schedule: AnySchedule) {
        self.0.lock().schedule = schedule;
    }

    pub(crate) fn refused(&self, error: StoreError) {
        self.0.change(|state| {
            state.end.get_or_insert(End::Refused(Box::new(error)));
        });
    }

    pub(crate) fn stopped(&self) {
        self.0.change(|state| {
            state.end.get_or_insert(End::Silent);
        });
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // Without a word of the driver before, that is gone.
        self.0.change(|state| {
            state.end.get_or_insert(End::Closed);
        });
    }
}
