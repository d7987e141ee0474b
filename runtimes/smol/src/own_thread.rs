//! A thread that belongs to the leases alone.

use futures::future::BoxFuture;

/// Runs the task on a thread that ends with it.
pub(crate) fn run(task: BoxFuture<'static, ()>) {
    let thread = std::thread::Builder::new().name("tenure".to_owned());
    // Without a thread the task is dropped, and the handles say that it has ended.
    let _no_thread = thread.spawn(move || async_io::block_on(task));
}
