//! A runtime that belongs to the leases alone.

use std::io;
use std::sync::mpsc;
use std::thread;

use futures::future::BoxFuture;
use tokio::runtime::{self, Handle, Runtime};

/// Waits for the task that it is for, on a thread that is there already: one that the system does not give is told
/// before anything relies on it.
#[derive(Clone, Debug)]
pub(crate) struct OwnThread(mpsc::Sender<BoxFuture<'static, ()>>);

impl OwnThread {
    pub(crate) fn new() -> io::Result<(Self, Handle)> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (sender, tasks) = mpsc::channel();
        let mut unused = Unused(Some(runtime));
        thread::Builder::new().name("tenure".to_owned()).spawn(move || {
            if let Ok(task) = tasks.recv()
                && let Some(runtime) = unused.0.take()
            {
                // What comes after the first task is dropped.
                drop(tasks);
                runtime.block_on(task);
            }
        })?;
        Ok((Self(sender), handle))
    }

    /// Runs the task, the only one, on a thread that ends with it.
    pub(crate) fn run(&self, task: BoxFuture<'static, ()>) {
        let _another = self.0.send(task);
    }
}

struct Unused(Option<Runtime>);

impl Drop for Unused {
    fn drop(&mut self) {
        // A runtime that is simply dropped inside of another one panics.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_found_no_thread_can_be_dropped_inside_of_another_one() {
        let own = runtime::Builder::new_current_thread().build().unwrap();
        let outer = runtime::Builder::new_current_thread().build().unwrap();
        outer.block_on(async { drop(Unused(Some(own))) });
    }
}
