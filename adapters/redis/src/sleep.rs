//! Waiting and working, in whichever runtime polls.

use std::future::Future;
use std::time::Duration;

use std::pin::pin;

use futures::future::{Either, select};
use tenure_core::Instant;
use tenure_store::clock;

/// Waits so long. It stands still while the machine sleeps, which is fine for what it is used for: whoever is woken late
/// asks the server, and by its answer.
pub(crate) async fn sleep(time: Duration) {
    #[cfg(feature = "tokio")]
    if tokio::runtime::Handle::try_current().is_ok() {
        return tokio::time::sleep(time).await;
    }
    #[cfg(feature = "smol")]
    async_io::Timer::after(time).await;
    #[cfg(not(feature = "smol"))]
    tokio::time::sleep(time).await;
}

/// Whether there is a runtime to work in: a Tokio that is entered, or smol, which is everywhere.
pub(crate) fn is_in_runtime() -> bool {
    #[cfg(feature = "tokio")]
    if tokio::runtime::Handle::try_current().is_ok() {
        return true;
    }
    cfg!(feature = "smol")
}

/// Has a future polled to its end beside whoever polls now. It is dropped with the runtime.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    #[cfg(feature = "tokio")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(future);
        return;
    }
    #[cfg(feature = "smol")]
    smol::spawn(future).detach();
    #[cfg(not(feature = "smol"))]
    drop(future);
}

/// What a future comes to, or `None` if that takes beyond `until`. It is polled once in any case.
pub(crate) async fn before<F: Future>(until: Instant, future: F) -> Option<F::Output> {
    let limit = pin!(sleep(until.saturating_since(clock::now())));
    match select(pin!(future), limit).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// Polls a future to its end, in a runtime that the library was built for.
#[cfg(all(test, feature = "tokio"))]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Polls a future to its end, in a runtime that the library was built for.
#[cfg(all(test, not(feature = "tokio")))]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    smol::block_on(future)
}
