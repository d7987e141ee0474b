//! A runtime as plain threads use it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tenure_core::Instant;

use super::wait;
use crate::runtime::{Runtime, sealed};

/// A runtime on a thread of its own, for callers on other threads: what they wait for needs nothing of the runtime,
/// so that they hear of a loss by their own clock even if it is stuck, and nothing of the runtime that they may
/// block.
#[derive(Clone)]
pub(crate) struct Plain<R>(pub(crate) R);

impl<R: Runtime> sealed::Sealed for Plain<R> {}

impl<R: Runtime> Runtime for Plain<R> {
    type Alarm = R::Alarm;

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    /// Never that of the caller.
    fn here(&self) -> Self {
        self.clone()
    }

    fn on_own_thread(&self) -> io::Result<Self> {
        self.0.on_own_thread().map(Self)
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { at, runtime: self.0.clone(), elsewhere: None })
    }

    fn alarm(&self) -> R::Alarm {
        self.0.alarm()
    }

    fn interrupted(&self) -> BoxFuture<'static, ()> {
        self.0.interrupted()
    }

    fn check(&self) -> Result<(), String> {
        self.0.check()
    }
}

impl<R> fmt::Debug for Plain<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").finish_non_exhaustive()
    }
}

struct Sleep<R> {
    at: Instant,
    runtime: R,
    /// Where it is polled by something else than a thread that waits.
    elsewhere: Option<BoxFuture<'static, ()>>,
}

impl<R: Runtime> Future for Sleep<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { at, runtime, elsewhere } = self.get_mut();
        if runtime.now() >= *at {
            return Poll::Ready(());
        }
        if wait::wake_at(*at, cx) {
            return Poll::Pending;
        }
        elsewhere.get_or_insert_with(|| runtime.sleep_until(*at)).as_mut().poll(cx)
    }
}

impl<R> Unpin for Sleep<R> {}
