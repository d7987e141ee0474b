//! A thread that belongs to the leases alone.

use std::io;
use std::sync::mpsc;
use std::thread;

use futures::future::BoxFuture;

/// Waits for the task that it is for, on a thread that is there already: one that the system does not give is told
/// before anything relies on it.
#[derive(Clone)]
pub(crate) struct OwnThread(mpsc::Sender<BoxFuture<'static, ()>>);

impl OwnThread {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, tasks) = mpsc::channel();
        thread::Builder::new().name("tenure".to_owned()).spawn(move || {
            if let Ok(task) = tasks.recv() {
                // What comes after the first task is dropped.
                drop(tasks);
                async_io::block_on(task);
            }
        })?;
        Ok(Self(sender))
    }

    /// Runs the task, the only one, on a thread that ends with it.
    pub(crate) fn run(&self, task: BoxFuture<'static, ()>) {
        let _another = self.0.send(task);
    }
}
