//! What the properties need to know of a store, and of the time that it lives in.

use std::future::Future;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use tenure_core::Instant;

use crate::Store;

/// A store under test: how to make one, and how time passes for it.
pub trait Harness {
    /// The store.
    type Store: Store;

    /// The TTL that properties let run out. As short as the store allows, and long enough that a few requests
    /// take less than half of it. The store's shortest TTL is used if that is longer.
    const TTL: Duration = Duration::from_secs(1);

    /// Runs a property to its end, in the runtime that the store wants.
    fn block_on<F: Future>(&self, property: F) -> F::Output;

    /// An empty store that shares nothing with those of other calls; tests run side by side.
    fn fresh(&self) -> impl Future<Output = Self::Store>;

    /// Another handle on the same leases, as another process would have one.
    fn handle(&self, store: &Self::Store) -> impl Future<Output = Self::Store>;

    /// The same leases after the program and, where there is one, the server were started again. The store
    /// was closed by then.
    fn reopen(&self, store: Self::Store) -> impl Future<Output = Self::Store>;

    /// The time, by a clock of the program's side.
    #[expect(clippy::disallowed_types, reason = "a test that sleeps through a suspend may fail")]
    fn now(&self) -> Instant {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        Instant::ZERO + START.get_or_init(std::time::Instant::now).elapsed()
    }

    /// Lets that much time pass, both for the store and for [`now`](Self::now). By default it waits.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> {
        // Of its own thread, since no runtime is known here.
        let (passed, wait) = oneshot::channel::<()>();
        thread::spawn(move || {
            thread::sleep(time);
            drop(passed);
        });
        async move {
            // It is over when the sender is gone.
            let _: Result<(), oneshot::Canceled> = wait.await;
        }
    }

    /// Sets the store's wall clock, by which timers go, forward by so many nanoseconds, or back if that is negative.
    /// For one property only, which is left out where this can't be done.
    fn set_wall(&self, by: i64) {
        panic!("the wall clock can't be set by {by} ns here: leave the property out that wants it");
    }
}
