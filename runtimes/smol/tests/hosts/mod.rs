//! The executors that the suite is run on.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use futures::channel::oneshot;
use smol::Executor;
use tenure_driver::clock;
use tenure_smol::Smol;
use tenure_suite::{GENEROUS, Host};

/// An executor that the thread runs that waits.
pub(crate) struct OneThread(Arc<Executor<'static>>);

impl Host for OneThread {
    type Runtime = Smol;

    const ONE_THREAD: bool = true;

    fn new() -> Self {
        Self(Arc::new(Executor::new()))
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        smol::block_on(self.0.run(future))
    }

    fn runtime(&self) -> Smol {
        Smol::on(&self.0)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task).detach();
    }

    fn tasks(&self) -> Option<usize> {
        None
    }

    fn shut_down(self) -> bool {
        drop_in_the_end(self.0)
    }
}

/// Whoever spawns something has it for that moment, too.
fn drop_in_the_end(executor: Arc<Executor<'static>>) -> bool {
    let dropped = Arc::downgrade(&executor);
    drop(executor);
    let end = clock::now() + GENEROUS;
    while dropped.strong_count() > 0 && clock::now() < end {
        thread::yield_now();
    }
    dropped.strong_count() == 0
}

/// An executor with several threads.
pub(crate) struct Threads {
    executor: Arc<Executor<'static>>,
    threads: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Host for Threads {
    type Runtime = Smol;

    const ONE_THREAD: bool = false;

    fn new() -> Self {
        let executor = Arc::new(Executor::new());
        let thread = |_| {
            let (end, ends) = oneshot::channel::<()>();
            let executor = Arc::clone(&executor);
            // The other end is dropped to end it.
            let run = move || _ = smol::block_on(executor.run(ends));
            (end, thread::spawn(run))
        };
        let threads = (0..4).map(thread).collect();
        Self { executor, threads }
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        smol::block_on(future)
    }

    fn runtime(&self) -> Smol {
        Smol::on(&self.executor)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.executor.spawn(task).detach();
    }

    fn tasks(&self) -> Option<usize> {
        None
    }

    fn shut_down(self) -> bool {
        let (ends, threads): (Vec<_>, Vec<_>) = self.threads.into_iter().unzip();
        drop(ends);
        for thread in threads {
            thread.join().unwrap();
        }
        drop_in_the_end(self.executor)
    }
}

/// smol's own executor, with a single thread beside.
pub(crate) struct Global;

impl Host for Global {
    type Runtime = Smol;

    const ONE_THREAD: bool = false;

    fn new() -> Self {
        Self
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        smol::block_on(future)
    }

    fn runtime(&self) -> Smol {
        Smol::global()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        smol::spawn(task).detach();
    }

    fn tasks(&self) -> Option<usize> {
        None
    }

    fn shut_down(self) -> bool {
        false
    }
}
