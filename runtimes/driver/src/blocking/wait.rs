//! Waiting for a future on a plain thread.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure_core::Instant;

use super::TimedOut;
use crate::clock;

/// A sleep of the machine is slept through by a thread that waits: so it looks at the clock this often if it waits
/// for a time.
const CAP: Duration = Duration::from_secs(1);

/// Waits until the future is ready. The calling thread polls it, and sleeps in between: no runtime is entered, and none
/// is needed.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Ok(output) = wait_until(future.as_mut(), Instant::MAX) {
            return output;
        }
    }
}

/// Waits until the future is ready, for no longer than this. Without any time it is looked at once.
pub(super) fn wait_at_most<F: Future>(future: F, limit: Duration) -> Result<F::Output, TimedOut> {
    wait_until(future, clock::now() + limit)
}

fn wait_until<F: Future>(future: F, limit: Instant) -> Result<F::Output, TimedOut> {
    let mut future = pin!(future);
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        let polling = Polling::begin(&waker);
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        let at = polling.end().min(limit);
        let now = clock::now();
        if now >= limit {
            return Err(TimedOut);
        }
        bell.wait((at < Instant::MAX).then(|| at.saturating_since(now).min(CAP)));
    }
}

/// Has the thread that polls a future come back to it at this time. False if that is no thread of [`wait`]: then
/// something else must wake the future.
pub(super) fn wake_at(at: Instant, cx: &Context<'_>) -> bool {
    let noted = INNERMOST.try_with(|innermost| match innermost.borrow_mut().as_mut() {
        // What is polled may run an executor of its own, which knows nothing of these times.
        Some(notes) if notes.waker.will_wake(cx.waker()) => {
            notes.at = notes.at.min(at);
            true
        }
        Some(_) | None => false,
    });
    // A thread at its end takes no notes any more.
    noted.unwrap_or(false)
}

thread_local! {
    /// Of the innermost `wait` of this thread that polls.
    static INNERMOST: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

struct Notes {
    waker: Waker,
    /// The earliest time that was named.
    at: Instant,
}

/// While it lives, notes are taken for one `wait`; then for the one around it again, also after a panic.
struct Polling {
    outer: Option<Notes>,
}

impl Polling {
    fn begin(waker: &Waker) -> Self {
        let notes = Notes { waker: waker.clone(), at: Instant::MAX };
        Self { outer: INNERMOST.try_with(|innermost| innermost.replace(Some(notes))).unwrap_or(None) }
    }

    /// The time that was noted.
    fn end(self) -> Instant {
        let at = |innermost: &RefCell<Option<Notes>>| innermost.borrow().as_ref().map(|notes| notes.at);
        INNERMOST.try_with(at).unwrap_or(None).unwrap_or(Instant::MAX)
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let outer = self.outer.take();
        let inner = INNERMOST.try_with(|innermost| innermost.replace(outer));
        drop(inner);
    }
}

/// Wakes a thread. Not by `unpark`: the token of that may belong to an executor that this thread runs.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn wait(&self, limit: Option<Duration>) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = |rung: &mut bool| !*rung;
        let mut rung = match limit {
            None => self.changed.wait_while(rung, silent).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(rung, limit, silent);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
