//! Tasks on an executor that the program may drop at any time.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use futures::future::BoxFuture;
use smol::Executor;

/// A task that goes with its executor.
///
/// An executor that is dropped schedules all of its tasks and drops what is scheduled. One that another thread is about to
/// schedule at that very moment is missed by both: it and all that it has would be kept for ever, a lease among it. So
/// whoever wakes this has the executor for as long as that takes.
pub(crate) struct Within {
    executor: Weak<Executor<'static>>,
    task: BoxFuture<'static, ()>,
    /// What the task was polled with last, and what it was given in place of that.
    wakers: Option<(Waker, Waker)>,
}

impl Within {
    pub(crate) fn new(executor: &Arc<Executor<'static>>, task: BoxFuture<'static, ()>) -> Self {
        Self { executor: Arc::downgrade(executor), task, wakers: None }
    }
}

impl Future for Within {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let known = this.wakers.take().filter(|(outer, _)| outer.will_wake(cx.waker()));
        let (_, waker) = this.wakers.insert(known.unwrap_or_else(|| {
            let outer = cx.waker().clone();
            let inner = Waking { executor: Weak::clone(&this.executor), waker: outer.clone() };
            (outer, Arc::new(inner).into())
        }));
        this.task.as_mut().poll(&mut Context::from_waker(waker))
    }
}

struct Waking {
    executor: Weak<Executor<'static>>,
    waker: Waker,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // One that is being dropped schedules the task itself.
        let Some(executor) = self.executor.upgrade() else { return };
        self.waker.wake_by_ref();
        let_go(executor);
    }
}

/// Ends a use of an executor.
pub(crate) fn let_go(executor: Arc<Executor<'static>>) {
    // The program has dropped it meanwhile: all of its tasks go with it, which is nothing to wait for here.
    if let Some(executor) = Arc::into_inner(executor) {
        let _no_thread = thread::Builder::new().spawn(move || drop(executor));
    }
}
