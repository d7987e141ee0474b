//! The way of hints from the store's thread to whoever listens: bounded, and never a reason to wait.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use tenure_store::Hint;

/// So many hints are kept for a listener that does not listen. If there are more, all are replaced by one
/// [`Hint::Resync`]: then looking at everything is cheaper anyway.
const CAPACITY: usize = 1024;

/// The hints that nobody has taken yet.
#[derive(Default)]
pub(crate) struct HintQueue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hints: VecDeque<Hint>,
    listening: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl HintQueue {
    /// The stream; `None` if somebody has it.
    pub(crate) fn listen(self: &Arc<Self>) -> Option<HintStream> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.listening, true) {
            return None;
        }
        Some(HintStream { queue: Arc::clone(self) })
    }

    pub(crate) fn push(&self, hint: Hint) {
        let mut state = self.lock();
        if !state.listening || state.closed || state.hints.back() == Some(&Hint::Resync) {
            return;
        }
        if hint == Hint::Resync || state.hints.len() >= CAPACITY {
            state.hints.clear();
            state.hints.push_back(Hint::Resync);
        } else {
            state.hints.push_back(hint);
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the stream, after what it still has.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HintQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HintQueue").field("waiting", &self.lock().hints.len()).finish_non_exhaustive()
    }
}

/// What [`Store::hints`](tenure_store::Store::hints) gives out.
#[derive(Debug)]
pub(crate) struct HintStream {
    queue: Arc<HintQueue>,
}

impl Stream for HintStream {
    type Item = Hint;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut state = self.queue.lock();
        if let Some(hint) = state.hints.pop_front() {
            return Poll::Ready(Some(hint));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for HintStream {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.listening = false;
        state.hints.clear();
        state.waker = None;
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};
    use tenure_core::{LeaseName, Wake};

    use super::*;

    fn free(name: &str) -> Hint {
        Hint::Lease { name: LeaseName::new(name).unwrap(), wake: Wake::Free { chosen: false } }
    }

    #[test]
    fn too_many_hints_become_one_resync_and_those_after_it_are_covered_by_it() {
        let queue = Arc::new(HintQueue::default());
        queue.push(free("nobody listens"));
        let mut stream = queue.listen().unwrap();
        assert!(queue.listen().is_none(), "hints go to one listener");
        for _ in 0..=CAPACITY {
            queue.push(free("a"));
        }
        queue.push(free("b"));
        assert_eq!(stream.next().now_or_never(), Some(Some(Hint::Resync)));
        assert_eq!(stream.next().now_or_never(), None);
        queue.push(free("c"));
        assert_eq!(stream.next().now_or_never(), Some(Some(free("c"))));
        queue.close();
        assert_eq!(stream.next().now_or_never(), Some(None));
    }
}
