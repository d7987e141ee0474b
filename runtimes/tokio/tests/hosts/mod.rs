//! The runtimes that the suite is run on.

use tenure_suite::Host;
use tenure_tokio::Tokio;
use tokio::runtime::{Builder, Runtime};

/// Everything on the thread that waits.
pub(crate) type OneThread = On<true>;

/// Several threads.
pub(crate) type Threads = On<false>;

pub(crate) struct On<const ONE_THREAD: bool>(Runtime);

impl<const ONE_THREAD: bool> Host for On<ONE_THREAD> {
    type Runtime = Tokio;

    const ONE_THREAD: bool = ONE_THREAD;

    fn new() -> Self {
        let mut builder =
            if ONE_THREAD { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        if !ONE_THREAD {
            builder.worker_threads(4);
        }
        Self(builder.enable_all().build().unwrap())
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn runtime(&self) -> Tokio {
        Tokio::current()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    fn tasks(&self) -> Option<usize> {
        Some(self.0.metrics().num_alive_tasks())
    }

    fn shut_down(self) -> bool {
        drop(self.0);
        true
    }
}
