//! What a guard, its signals and the driver share about one hold.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_core::{Deadlines, Owner, StopReason, Token};

use crate::lease::LostReason;
use crate::runtime::SharedClock;
use crate::subject::Subject;
use crate::wakers::{Place, Wakers, wake};

/// One hold. Its validity is a deadline that is read with the clock, never a message: a driver that is stuck
/// or gone can't keep it valid.
pub(crate) struct Hold {
    /// The lease, or the tick that was claimed.
    pub(crate) subject: Subject,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    clock: SharedClock,
    /// The fence, in nanoseconds of the clock; zero once the hold is over. Written under the lock of `state`.
    fence_at: AtomicU64,
    /// Whether the last renewal failed.
    doubt: AtomicBool,
    /// Whether the work has seen that it is to end.
    heard: AtomicBool,
    /// The work says that it has done nothing, and will not.
    unbegun: AtomicBool,
    state: Mutex<State>,
}

struct State {
    deadlines: Deadlines,
    /// Counts the changes of `deadlines`.
    renewals: u64,
    /// Why the work was first asked to end.
    stop: Option<StopReason>,
    /// Why the work must have ended. Once set, nothing revives the hold.
    over: Option<LostReason>,
    /// The work is to be stopped without its consent.
    killed: bool,
    /// Those who wait for `stop` or `over`.
    waiting: Wakers,
    /// Those who wait for `deadlines` to change.
    watching: Wakers,
}

impl Hold {
    pub(crate) fn new(
        subject: Subject,
        owner: Owner,
        token: Token,
        deadlines: Deadlines,
        clock: SharedClock,
    ) -> Self {
        let state = State {
            deadlines,
            renewals: 0,
            stop: None,
            over: None,
            killed: false,
            waiting: Wakers::default(),
            watching: Wakers::default(),
        };
        let fence_at = AtomicU64::new(deadlines.fence_at.as_nanos());
        Self {
            subject,
            owner,
            token,
            clock,
            fence_at,
            doubt: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            unbegun: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn deadlines(&self) -> Deadlines {
        self.lock().deadlines
    }

    /// Waits on the clock of the hold, from now on.
    pub(crate) fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(self.clock.now() + duration)
    }

    /// One read of the clock and one load. What was seen as invalid once stays so, even if a renewal that was
    /// acknowledged before the fence is handled only after it.
    pub(crate) fn is_valid(&self) -> bool {
        if self.clock.now().as_nanos() < self.fence_at.load(Ordering::Acquire) {
            return true;
        }
        self.look();
        false
    }

    /// What is to be said of the hold now: whether it is to end, and whether it is over.
    pub(crate) fn look(&self) -> (Option<StopReason>, Option<LostReason>) {
        let now = self.clock.now();
        self.change(|state, woken| {
            if state.over.is_none() && now >= state.deadlines.fence_at {
                self.end(state, StopReason::Fence, LostReason::Expired, woken);
            }
            (state.stop, state.over)
        })
    }

    /// Why it is over, as far as anybody has seen.
    pub(crate) fn over(&self) -> Option<LostReason> {
        self.lock().over
    }

    /// The work has seen that it is to end.
    pub(crate) fn hear(&self) {
        self.heard.store(true, Ordering::Release);
    }

    /// The work has done nothing, and will not.
    pub(crate) fn leave_unbegun(&self) {
        self.unbegun.store(true, Ordering::Release);
    }

    /// Whether the work was left unbegun because it is to end. Otherwise it would be granted again at once, to be left
    /// unbegun again.
    pub(crate) fn is_unbegun(&self) -> bool {
        let (stop, _) = self.look();
        stop.is_some() && self.unbegun.load(Ordering::Acquire)
    }

    /// Whether work that has ended by itself may have done so because it was told to.
    pub(crate) fn cut_short(&self) -> bool {
        let (_, over) = self.look();
        over.is_some() || self.heard.load(Ordering::Acquire)
    }

    /// A renewal was acknowledged.
    pub(crate) fn renew(&self, deadlines: Deadlines) {
        self.doubt.store(false, Ordering::Relaxed);
        self.change(|state, woken| {
            state.renewals += 1;
            if state.over.is_none() {
                state.deadlines = deadlines;
                self.fence_at.store(deadlines.fence_at.as_nanos(), Ordering::Release);
            } else {
                // It only covers the stop, which is not put off by it.
                state.deadlines.valid_until = deadlines.valid_until;
            }
            state.watching.take(woken);
        });
    }

    /// A renewal failed.
    pub(crate) fn doubt(&self) {
        self.doubt.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.load(Ordering::Relaxed)
    }

    /// The work is asked to end.
    pub(crate) fn ask(&self, why: StopReason) {
        self.change(|state, woken| {
            if state.stop.is_none() {
                state.stop = Some(why);
                state.waiting.take(woken);
            }
        });
    }

    /// The work must have ended. The first reason stays.
    pub(crate) fn lose(&self, stop: StopReason, why: LostReason) {
        self.change(|state, woken| self.end(state, stop, why, woken));
    }

    /// The work is to be stopped without its consent.
    pub(crate) fn kill(&self) {
        self.change(|state, woken| {
            state.killed = true;
            state.waiting.take(woken);
        });
    }

    fn end(&self, state: &mut State, stop: StopReason, why: LostReason, woken: &mut Vec<Waker>) {
        self.fence_at.store(0, Ordering::Release);
        state.stop.get_or_insert(stop);
        state.over.get_or_insert(why);
        state.waiting.take(woken);
        state.watching.take(woken);
    }

    fn change<T>(&self, change: impl FnOnce(&mut State, &mut Vec<Waker>) -> T) -> T {
        let mut woken = Vec::new();
        let result = change(&mut self.lock(), &mut woken);
        wake(woken);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready with the deadlines once they are not those of renewal `seen`; with `None` once the hold is over.
    pub(crate) fn poll_renewal(
        &self,
        seen: &mut u64,
        place: &mut Place,
        cx: &Context<'_>,
    ) -> Poll<Option<Deadlines>> {
        let mut state = self.lock();
        if state.renewals != *seen {
            *seen = state.renewals;
            return Poll::Ready(Some(state.deadlines));
        }
        if state.over.is_some() {
            return Poll::Ready(None);
        }
        let replaced = state.watching.register(place, cx.waker());
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    pub(crate) fn renewals(&self) -> u64 {
        self.lock().renewals
    }

    pub(crate) fn leave_renewals(&self, place: &mut Place) {
        let left = self.lock().watching.leave(place);
        drop(left);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Hold")
            .field("subject", &self.subject)
            .field("token", &self.token)
            .field("deadlines", &state.deadlines)
            .field("stop", &state.stop)
            .field("over", &state.over)
            .finish_non_exhaustive()
    }
}

/// Waits for the end of a hold by its own clock as well as by the driver's word.
pub(crate) struct Ending {
    hold: Arc<Hold>,
    place: Place,
    sleep: Option<BoxFuture<'static, ()>>,
}

impl Ending {
    pub(crate) const fn new(hold: Arc<Hold>) -> Self {
        Self { hold, place: Place::NEW, sleep: None }
    }

    /// Ready once `wanted` finds in (stop, over) what it waits for.
    pub(crate) fn poll_for<T>(
        &mut self,
        cx: &mut Context<'_>,
        wanted: impl Fn(Option<StopReason>, Option<LostReason>) -> Option<T>,
    ) -> Poll<T> {
        loop {
            // Register before looking, or a change in between would be missed.
            let replaced = self.hold.lock().waiting.register(&mut self.place, cx.waker());
            drop(replaced);
            let (stop, over) = self.hold.look();
            if let Some(found) = wanted(stop, over) {
                self.hold.hear();
                return Poll::Ready(found);
            }
            if over.is_some() {
                // Nothing more will come by the clock.
                return Poll::Pending;
            }
            let hold = &self.hold;
            let sleep = self.sleep.get_or_insert_with(|| hold.clock.sleep_until(hold.deadlines().fence_at));
            // A renewal moves the fence; the sleep is armed anew only when the old one is over.
            match sleep.as_mut().poll(cx) {
                Poll::Ready(()) => self.sleep = None,
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Ready once the work is to be stopped without its consent: because the driver says so, or by the clock.
    pub(crate) fn poll_killed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let (replaced, killed, kill_at) = {
                let mut state = self.hold.lock();
                let replaced = state.waiting.register(&mut self.place, cx.waker());
                (replaced, state.killed, state.deadlines.kill_at)
            };
            drop(replaced);
            if killed || self.hold.clock.now() >= kill_at {
                return Poll::Ready(());
            }
            let sleep = self.sleep.get_or_insert_with(|| self.hold.clock.sleep_until(kill_at));
            match sleep.as_mut().poll(cx) {
                Poll::Ready(()) => self.sleep = None,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let left = self.hold.lock().waiting.leave(&mut self.place);
        drop(left);
    }
}

#[cfg(test)]
mod tests;
