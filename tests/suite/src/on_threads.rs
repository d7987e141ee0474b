//! [`Api`] on plain threads: whatever is awaited blocks the thread that polls it.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use tenure_driver::blocking;
use tenure_driver::core::{Deadlines, DueTick, LeaseConfig, ReleaseOutcome, StopReason, Token};
use tenure_driver::store_contract::{LeaseRecord, MemberEntry, RunRecord, Store};
use tenure_driver::{
    AcquireError, Builder, Closed, DrainError, Lost, NotDrained, PeriodicStatus, RequestError, Share, Stats,
    StillHeld, TimerError, WorkerStatus,
};

use crate::api::{self, Api, GENEROUS, Setup, TTL};
use crate::host::Host;

/// Plain threads, with the leases on a thread that is of the kind of the [`Host`]. The test itself runs on a thread
/// that is in no runtime, or if so wanted `INSIDE` of the host's, which it blocks.
pub struct Threads<H: Host, const INSIDE: bool = false> {
    runtime: H::Runtime,
}

impl<H: Host, const INSIDE: bool> Clone for Threads<H, INSIDE> {
    fn clone(&self) -> Self {
        Self { runtime: self.runtime.clone() }
    }
}

impl<H: Host, const INSIDE: bool> Api for Threads<H, INSIDE> {
    type Tenure = blocking::Tenure;

    fn run(test: impl AsyncFnOnce(Self)) {
        let host = H::new();
        let _watched = Watchdog::new();
        if INSIDE {
            host.block_on(async { test(Self { runtime: host.runtime() }).await });
        } else {
            block_on(test(Self { runtime: host.runtime() }));
        }
    }

    fn tenure(&self, store: impl Store) -> blocking::Tenure {
        let builder = Builder::new(self.runtime.clone()).lease(LeaseConfig::new(TTL));
        builder.store(store).start_blocking().unwrap()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        thread::spawn(|| block_on(task));
    }

    async fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }

    async fn yield_now(&self) {
        thread::yield_now();
    }
}

/// Nothing stops a thread that waits for ever: then it is the whole process that ends.
pub(crate) struct Watchdog(
    #[expect(dead_code, reason = "dropped to tell that the test has ended")] mpsc::Sender<()>,
);

impl Watchdog {
    pub(crate) fn new() -> Self {
        let (alive, ended) = mpsc::channel();
        let test = thread::current().name().map(str::to_owned);
        thread::spawn(move || {
            if ended.recv_timeout(2 * GENEROUS) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{} takes for ever", test.as_deref().unwrap_or("a test"));
                std::process::abort();
            }
        });
        Self(alive)
    }
}

/// Work of a thread that makes a future and polls it to its end. Only the making is exclusive.
fn polled<C, F: Future<Output = ()>>(
    work: impl FnMut(C) -> F + Send + 'static,
) -> impl Fn(C) + Send + Sync + 'static {
    let work = Arc::new(Mutex::new(work));
    move |ctx| {
        let run = work.lock().unwrap_or_else(PoisonError::into_inner)(ctx);
        block_on(run);
    }
}

impl api::Tenure for blocking::Tenure {
    type Lease = blocking::Lease;
    type Worker = blocking::Worker;
    type Timer = blocking::Timer;
    type Periodic = blocking::Periodic;
    type Coordinator = blocking::Coordinator;
    type JobRun = blocking::JobRun;
    type Ctx = blocking::Ctx;

    async fn acquire(&self, name: &str) -> Result<Self::Lease, AcquireError> {
        self.acquire(name).wait()
    }

    async fn try_acquire(&self, name: &str) -> Result<Self::Lease, AcquireError> {
        self.try_acquire(name).wait()
    }

    fn worker<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        work: impl FnMut(Self::Ctx) -> F + Send + 'static,
        setup: Setup,
    ) -> Self::Worker {
        let mut worker = self.worker(name, polled(work));
        if let Some(timeout) = setup.drain_timeout {
            worker = worker.drain_timeout(timeout);
        }
        if let Some(restart) = setup.restart {
            worker = worker.restart(restart);
        }
        worker.start().unwrap()
    }

    fn timer(&self, name: &str, period: Duration) -> Self::Timer {
        self.timer(name, period).start().unwrap()
    }

    fn periodic<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        period: Duration,
        work: impl FnMut(Self::Ctx) -> F + Send + 'static,
        setup: Setup,
    ) -> Self::Periodic {
        let mut periodic = self.periodic(name, period, polled(work));
        if let Some(timeout) = setup.drain_timeout {
            periodic = periodic.drain_timeout(timeout);
        }
        if let Some(overlap) = setup.overlap {
            periodic = periodic.overlap(overlap);
        }
        periodic.start().unwrap()
    }

    fn coordinate<F: Future<Output = ()> + Send + 'static>(
        &self,
        names: &[&str],
        work: impl FnMut(Self::Ctx) -> F + Send + 'static,
        setup: Setup,
    ) -> Self::Coordinator {
        let mut coordinator = self.coordinate(names, polled(work));
        if let Some(timeout) = setup.drain_timeout {
            coordinator = coordinator.drain_timeout(timeout);
        }
        if let Some(limit) = setup.hold_down {
            coordinator = coordinator.hold_down(limit);
        }
        coordinator.start().unwrap()
    }

    async fn begin(&self, job: &str, index: u64) -> Result<Self::JobRun, RequestError> {
        self.jobs().begin(job).index(index).start()
    }

    async fn history(&self, job: &str) -> Result<Vec<RunRecord>, RequestError> {
        self.jobs().history(job)
    }

    async fn leases(&self) -> Result<Vec<LeaseRecord>, RequestError> {
        self.leases()
    }

    async fn members(&self) -> Result<Vec<MemberEntry>, RequestError> {
        self.members()
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    async fn drain(&self) -> Result<(), NotDrained> {
        self.drain()
    }

    fn resume(&self) {
        self.resume();
    }

    fn is_draining(&self) -> bool {
        self.is_draining()
    }

    async fn stop(&self) -> Result<(), NotDrained> {
        self.stop()
    }

    async fn drained(&self) {
        self.drained();
    }

    async fn shutdown(&self) -> Result<(), StillHeld> {
        self.shutdown()
    }
}

impl api::Lease for blocking::Lease {
    fn token(&self) -> Token {
        self.token()
    }

    fn is_valid(&self) -> bool {
        self.is_valid()
    }

    fn deadlines(&self) -> Deadlines {
        self.deadlines()
    }

    async fn run<F: Future + Send>(&self, work: F) -> Result<F::Output, Lost>
    where
        F::Output: Send,
    {
        // Within what polls this: a thread of its own has an executor of its own.
        self.run(|_signal| thread::scope(|scope| scope.spawn(|| block_on(work)).join().unwrap()))
    }

    async fn stopping(&self) -> StopReason {
        self.stopping()
    }

    async fn lost(&self) -> Lost {
        self.lost()
    }

    async fn release(self) -> Result<ReleaseOutcome, Closed> {
        self.release()
    }
}

impl api::Worker for blocking::Worker {
    fn status(&self) -> WorkerStatus {
        self.status()
    }

    async fn drain(&self) -> Result<(), DrainError> {
        self.drain()
    }

    async fn stop(&self) -> Result<(), DrainError> {
        self.stop()
    }

    async fn ended(&self) {
        self.ended();
    }
}

impl api::Ctx for blocking::Ctx {
    fn name(&self) -> &str {
        self.name()
    }

    fn tick(&self) -> Option<DueTick> {
        self.tick()
    }

    fn token(&self) -> Token {
        self.token()
    }

    fn is_valid(&self) -> bool {
        self.is_valid()
    }

    fn is_draining(&self) -> bool {
        self.is_draining()
    }

    async fn draining(&self) -> StopReason {
        self.draining()
    }
}

impl api::Timer for blocking::Timer {
    async fn next(&mut self) -> Option<Result<DueTick, TimerError>> {
        Iterator::next(self)
    }
}

impl api::Periodic for blocking::Periodic {
    fn status(&self) -> PeriodicStatus {
        self.status()
    }

    async fn drain(&self) -> Result<(), DrainError> {
        self.drain()
    }
}

impl api::Coordinator for blocking::Coordinator {
    fn mine(&self) -> Vec<Share> {
        self.mine()
    }

    async fn drain(&self) -> Result<(), NotDrained> {
        self.drain()
    }

    async fn ended(&self) {
        self.ended();
    }
}

impl api::JobRun for blocking::JobRun {
    async fn fail(self, text: &str) -> Result<(), RequestError> {
        self.fail(text)
    }
}
