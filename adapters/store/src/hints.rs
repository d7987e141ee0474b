//! The way of hints from where an adapter hears of something to whoever listens.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;

use crate::Hint;

/// The hints of one handle that nobody has taken yet: bounded, and never a reason to wait.
///
/// For adapters that give hints. Whatever hears of something pushes it, from any thread; [`SimpleStore::hints`] gives out
/// what [`listen`](Self::listen) returns.
///
/// [`SimpleStore::hints`]: crate::SimpleStore::hints
///
/// ```
/// use std::sync::Arc;
///
/// use futures::{FutureExt, StreamExt};
/// use tenure_store::core::{LeaseName, Wake};
/// use tenure_store::{Hint, HintQueue};
///
/// let queue = Arc::new(HintQueue::new());
/// let mut hints = queue.listen().expect("nobody listens yet");
/// let hint = Hint::Lease { name: LeaseName::new("backup").unwrap(), wake: Wake::Free { chosen: true } };
/// queue.push(hint.clone());
/// assert_eq!(hints.next().now_or_never(), Some(Some(hint)));
/// ```
#[derive(Default)]
pub struct HintQueue {
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
    /// So many hints are kept for a listener that does not listen: more than a driver lets wait unless it is stuck. If
    /// there are more, all are replaced by one [`Hint::Resync`]: then looking at everything is cheaper anyway.
    pub const CAPACITY: usize = 1024;

    /// One without hints, to which nobody listens.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The stream of what is pushed from now on; `None` while somebody has it. It ends when the queue is
    /// [closed](Self::close).
    #[must_use]
    pub fn listen(self: &Arc<Self>) -> Option<HintStream> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.listening, true) {
            return None;
        }
        Some(HintStream { queue: Arc::clone(self) })
    }

    /// Adds a hint, if anybody listens, and wakes the listener.
    ///
    /// A waker may run anything. Whoever has a lock uses [`push_without_waking`](Self::push_without_waking).
    pub fn push(&self, hint: Hint) {
        if let Some(waker) = self.push_without_waking(hint) {
            waker.wake();
        }
    }

    /// Adds a hint, if anybody listens. Returns whom to wake, once no lock is held any more.
    #[must_use = "the listener does not know of the hint yet"]
    pub fn push_without_waking(&self, hint: Hint) -> Option<Waker> {
        let mut state = self.lock();
        // What comes behind a `Resync` that was not yet taken is covered by it.
        if !state.listening || state.closed || state.hints.back() == Some(&Hint::Resync) {
            return None;
        }
        if hint == Hint::Resync || state.hints.len() >= Self::CAPACITY {
            state.hints.clear();
            state.hints.push_back(Hint::Resync);
        } else {
            state.hints.push_back(hint);
        }
        state.waker.take()
    }

    /// Ends the stream, after what it still has, and wakes the listener.
    pub fn close(&self) {
        if let Some(waker) = self.close_without_waking() {
            waker.wake();
        }
    }

    /// Ends the stream, after what it still has. Returns whom to wake, once no lock is held any more.
    #[must_use = "the listener does not know of the end yet"]
    pub fn close_without_waking(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.closed = true;
        state.waker.take()
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

/// The hints of a [`HintQueue`]. Once it is dropped another may be had.
#[derive(Debug)]
pub struct HintStream {
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
        let replaced = state.waker.replace(context.waker().clone());
        // A waker may own a task, and that a store handle: dropping it takes locks.
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for HintStream {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.listening = false;
        state.hints.clear();
        let waker = state.waker.take();
        drop(state);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt as _, StreamExt as _};
    use tenure_core::{LeaseName, Wake};

    use super::*;

    fn free(name: &str) -> Hint {
        Hint::Lease { name: LeaseName::new(name).unwrap(), wake: Wake::Free { chosen: false } }
    }

    #[test]
    fn hints_go_in_their_order_to_the_one_who_listens() {
        let queue = Arc::new(HintQueue::new());
        queue.push(free("nobody listens"));
        let mut stream = queue.listen().unwrap();
        assert!(queue.listen().is_none(), "hints go to one listener");
        queue.push(free("a"));
        queue.push(Hint::Members);
        assert_eq!(stream.next().now_or_never(), Some(Some(free("a"))));
        assert_eq!(stream.next().now_or_never(), Some(Some(Hint::Members)));
        assert_eq!(stream.next().now_or_never(), None);
        queue.push(free("not taken"));
        drop(stream);
        let mut next = queue.listen().expect("the first one listens no more");
        assert_eq!(next.next().now_or_never(), None, "what is old is not for the next one");
    }

    #[test]
    fn too_many_hints_become_one_resync_and_those_after_it_are_covered_by_it() {
        let queue = Arc::new(HintQueue::new());
        let mut stream = queue.listen().unwrap();
        for _ in 0..=HintQueue::CAPACITY {
            queue.push(free("a"));
        }
        queue.push(free("b"));
        assert_eq!(stream.next().now_or_never(), Some(Some(Hint::Resync)));
        assert_eq!(stream.next().now_or_never(), None);
        queue.push(free("c"));
        assert_eq!(stream.next().now_or_never(), Some(Some(free("c"))));
    }

    #[test]
    fn a_resync_takes_the_place_of_what_waits_before_it() {
        let queue = Arc::new(HintQueue::new());
        let mut stream = queue.listen().unwrap();
        queue.push(free("a"));
        queue.push(Hint::Resync);
        assert_eq!(stream.next().now_or_never(), Some(Some(Hint::Resync)));
        assert_eq!(stream.next().now_or_never(), None);
    }

    #[test]
    fn a_closed_queue_is_drained_and_ends() {
        let queue = Arc::new(HintQueue::new());
        let mut stream = queue.listen().unwrap();
        queue.push(free("a"));
        queue.close();
        queue.push(free("too late"));
        assert_eq!(stream.next().now_or_never(), Some(Some(free("a"))));
        assert_eq!(stream.next().now_or_never(), Some(None));
    }

    #[test]
    fn a_listener_is_woken_once_for_what_it_has_not_seen() {
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (queue, count) = (Arc::new(HintQueue::new()), Arc::new(Count(AtomicUsize::new(0))));
        let waker = Waker::from(Arc::clone(&count));
        let mut stream = queue.listen().unwrap();
        let mut poll = || stream.poll_next_unpin(&mut Context::from_waker(&waker));
        assert_eq!(poll(), Poll::Pending);
        queue.push(free("a"));
        queue.push(free("b"));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(
            [poll(), poll(), poll()],
            [Poll::Ready(Some(free("a"))), Poll::Ready(Some(free("b"))), Poll::Pending]
        );
        let owed = queue.push_without_waking(free("c"));
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "that is the caller's");
        owed.expect("somebody waits").wake();
        assert_eq!(poll(), Poll::Ready(Some(free("c"))));
        assert_eq!(poll(), Poll::Pending);
        queue.close();
        assert_eq!(count.0.load(Ordering::SeqCst), 3);
    }
}
