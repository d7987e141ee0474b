//! The queue of hints of one store handle.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;
use tenure_store::Hint;

/// A bounded queue of hints. What does not fit any more is replaced, with all that waits, by one
/// [`Hint::Resync`].
#[derive(Debug, Default)]
pub(crate) struct HintQueue(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    hints: VecDeque<Hint>,
    waker: Option<Waker>,
    closed: bool,
}

impl HintQueue {
    /// More than a driver lets wait unless it is stuck, and little enough to keep.
    pub(crate) const CAPACITY: usize = 1024;

    /// Adds a hint. Returns whom to wake, which is to be done without any lock: it may run anything.
    pub(crate) fn push(&self, hint: Hint) -> Option<Waker> {
        let mut queue = self.lock();
        if queue.hints.len() >= Self::CAPACITY {
            queue.hints.clear();
            queue.hints.push_back(Hint::Resync);
        } else {
            queue.hints.push_back(hint);
        }
        queue.waker.take()
    }

    /// Lets the stream end once it is drained. Returns whom to wake.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut queue = self.lock();
        queue.closed = true;
        queue.waker.take()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the driver reads the hints from. It ends when its handle is closed or dropped, or when the handle
/// gives out a newer stream.
#[derive(Debug)]
pub(crate) struct HintStream(pub(crate) Arc<HintQueue>);

impl Stream for HintStream {
    type Item = Hint;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut queue = self.0.lock();
        if let Some(hint) = queue.hints.pop_front() {
            return Poll::Ready(Some(hint));
        }
        if queue.closed {
            return Poll::Ready(None);
        }
        let replaced = queue.waker.replace(context.waker().clone());
        // A waker may own a task, and that a store handle: dropping it takes locks.
        drop(queue);
        drop(replaced);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::stream::StreamExt;
    use tenure_store::core::{LeaseName, Wake};

    use super::*;

    fn hint(n: usize) -> Hint {
        let name = LeaseName::new(n.to_string()).expect("a short name");
        Hint::Lease { name, wake: Wake::Free { chosen: false } }
    }

    #[test]
    fn a_queue_that_overflows_says_resync_and_goes_on() {
        let queue = Arc::new(HintQueue::default());
        let mut stream = HintStream(queue.clone());
        for n in 0..=HintQueue::CAPACITY {
            queue.push(hint(n));
        }
        queue.push(hint(7));
        assert_eq!(stream.next().now_or_never(), Some(Some(Hint::Resync)));
        assert_eq!(stream.next().now_or_never(), Some(Some(hint(7))));
        assert_eq!(stream.next().now_or_never(), None);
    }

    #[test]
    fn a_closed_queue_is_drained_and_ends() {
        let queue = Arc::new(HintQueue::default());
        let mut stream = HintStream(queue.clone());
        queue.push(hint(1));
        queue.close();
        assert_eq!(stream.next().now_or_never(), Some(Some(hint(1))));
        assert_eq!(stream.next().now_or_never(), Some(None));
    }
}
