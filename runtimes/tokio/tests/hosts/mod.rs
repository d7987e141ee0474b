//! The two kinds of runtime that tokio has, under test.

use std::future::Future;

use tenure_suite::Host;
use tenure_tokio::Tokio;
use tokio::runtime::{Builder, Runtime};

/// Everything on one thread.
pub(crate) struct OneThread(Runtime);

/// On several threads.
pub(crate) struct Threads(Runtime);

macro_rules! host {
    ($host:ty, $one_thread:literal, $builder:expr) => {
        impl Host for $host {
            type Runtime = Tokio;

            const ONE_THREAD: bool = $one_thread;

            fn new() -> Self {
                Self($builder.enable_all().build().expect("there are descriptors"))
            }

            fn block_on<F: Future>(&self, future: F) -> F::Output {
                self.0.block_on(future)
            }

            fn runtime(&self) -> Tokio {
                Tokio::current()
            }

            fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
                drop(self.0.spawn(task));
            }

            fn tasks(&self) -> Option<usize> {
                Some(self.0.metrics().num_alive_tasks())
            }

            fn shut_down(self) -> bool {
                drop(self.0);
                true
            }
        }
    };
}

host!(OneThread, true, Builder::new_current_thread());
host!(Threads, false, Builder::new_multi_thread().worker_threads(4));
