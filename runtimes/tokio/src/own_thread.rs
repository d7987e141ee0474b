//! A runtime that belongs to the leases alone.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use tokio::runtime::{self, Handle, Runtime};

/// Waits for the task that it is for.
#[derive(Clone, Debug)]
pub(crate) struct OwnThread(Arc<Unused>);

#[derive(Debug)]
struct Unused(Mutex<Option<Runtime>>);

impl OwnThread {
    pub(crate) fn new() -> io::Result<(Self, Handle)> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        Ok((Self(Arc::new(Unused(Mutex::new(Some(runtime))))), handle))
    }

    /// Runs the task, the only one, on a thread that ends with it.
    pub(crate) fn run(&self, task: BoxFuture<'static, ()>) {
        let Some(runtime) = self.0.take() else { return };
        let unused = Unused(Mutex::new(Some(runtime)));
        let thread = std::thread::Builder::new().name("tenure".to_owned());
        // Without a thread the task is dropped, and the handles say that it has ended; the runtime is dropped here.
        let _no_thread = thread.spawn(move || {
            if let Some(runtime) = unused.take() {
                runtime.block_on(task);
            }
        });
    }
}

impl Unused {
    fn take(&self) -> Option<Runtime> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        // A runtime that is simply dropped inside of another one panics.
        if let Some(runtime) = self.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_found_no_thread_can_be_dropped_inside_of_another_one() {
        let (own, _handle) = OwnThread::new().unwrap();
        let unused = Unused(Mutex::new(own.0.take()));
        let outer = runtime::Builder::new_current_thread().build().unwrap();
        outer.block_on(async { drop((own, unused)) });
    }
}
