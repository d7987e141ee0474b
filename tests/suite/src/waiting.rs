//! Waiting for conditions, on any runtime.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tenure_driver::{Runtime, clock};

use crate::api::GENEROUS;
use crate::host::Host;

/// Waits until the condition holds; looks again every few milliseconds.
pub(crate) async fn until<R: Runtime>(runtime: &R, what: &str, mut condition: impl FnMut() -> bool) {
    let end = clock::now() + GENEROUS;
    while !condition() {
        assert!(clock::now() < end, "still not: {what}");
        runtime.sleep_until(clock::now() + Duration::from_millis(5)).await;
    }
}

/// Waits for a future. Panics if that takes for ever.
pub(crate) async fn soon<F: Future>(runtime: &impl Runtime, future: F) -> F::Output {
    let limit = runtime.sleep_until(clock::now() + GENEROUS);
    // Each is polled only when it was woken itself: a sleep that looks at the clock now and then does not make up for a
    // wake of the other one that is lost.
    let both: FuturesUnordered<_> =
        [Either::Left(future.map(Some)), Either::Right(limit.map(|()| None))].into_iter().collect();
    pin!(both).next().await.flatten().expect("it takes for ever")
}

/// Runs a future inside of a host. Panics if that takes for ever.
pub(crate) fn run<H: Host, T>(host: &H, future: impl Future<Output = T>) -> T {
    host.block_on(async { soon(&host.runtime(), future).await })
}

/// Lets other tasks run.
pub(crate) async fn pause() {
    let mut paused = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls once.
pub(crate) async fn once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Polls at most so often, with other tasks running in between; `None` if that was not enough.
pub(crate) async fn at_most<F: Future + ?Sized>(polls: u64, mut future: Pin<&mut F>) -> Option<F::Output> {
    for _ in 0..polls {
        if let Poll::Ready(output) = once(future.as_mut()).await {
            return Some(output);
        }
        pause().await;
    }
    None
}

/// Polls at most so often, whenever it is woken; `None` if that was not enough.
pub(crate) async fn at_most_woken<F: Future + ?Sized>(
    polls: u64,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
