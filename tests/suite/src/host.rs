//! A runtime under test.

use std::future::Future;

use tenure_driver::Runtime;

/// A runtime under test. Each test makes its own, on a thread of its own.
pub trait Host: Sized + 'static {
    /// What the builder is given.
    type Runtime: Runtime;

    /// Whether everything runs on the thread that is in [`block_on`](Host::block_on): then work that blocks it keeps the
    /// driver from running.
    const ONE_THREAD: bool;

    /// A new runtime with nothing to do.
    fn new() -> Self;

    /// Runs a future to its end on this thread, inside of the runtime.
    fn block_on<F: Future>(&self, future: F) -> F::Output;

    /// The runtime for a builder. Called inside of [`block_on`](Host::block_on).
    fn runtime(&self) -> Self::Runtime;

    /// Runs a task beside, to its end or to that of the runtime. Called inside of [`block_on`](Host::block_on).
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// How many tasks have not ended; `None` if the runtime can't tell.
    fn tasks(&self) -> Option<usize>;

    /// Ends the runtime with all its tasks; `false` if it can't be ended.
    fn shut_down(self) -> bool;
}
