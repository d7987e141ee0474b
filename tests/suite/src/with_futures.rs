//! [`Api`] with futures, on the runtime of a [`Host`].

use std::time::Duration;

use tenure_driver::core::{Deadlines, DueTick, LeaseConfig, ReleaseOutcome, StopReason, Token};
use tenure_driver::store_contract::{LeaseRecord, MemberEntry, RunRecord, Store};
use tenure_driver::{
    AcquireError, Builder, Closed, DrainError, Lost, NotDrained, PeriodicStatus, RequestError, Runtime,
    Share, Stats, StillHeld, TimerError, WorkerStatus, clock,
};

use crate::api::{self, Api, Setup, TTL};
use crate::host::Host;
use crate::waiting::{pause, soon};

/// Futures on the runtime of a [`Host`]; with the leases on a thread of their own, if so wanted.
pub struct Futures<H: Host, const OWN_THREAD: bool = false> {
    runtime: H::Runtime,
}

impl<H: Host, const OWN_THREAD: bool> Clone for Futures<H, OWN_THREAD> {
    fn clone(&self) -> Self {
        Self { runtime: self.runtime.clone() }
    }
}

impl<H: Host, const OWN_THREAD: bool> Api for Futures<H, OWN_THREAD> {
    type Tenure = tenure_driver::Tenure;

    fn run(test: impl AsyncFnOnce(Self)) {
        let host = H::new();
        host.block_on(async {
            let runtime = host.runtime();
            soon(&runtime, test(Self { runtime: runtime.clone() })).await;
        });
    }

    fn tenure(&self, store: impl Store) -> tenure_driver::Tenure {
        let mut builder = Builder::new(self.runtime.clone()).lease(LeaseConfig::new(TTL));
        if OWN_THREAD {
            builder = builder.on_own_thread();
        }
        builder.store(store).start().unwrap()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Box::pin(task));
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        self.runtime.sleep_until(clock::now() + duration)
    }

    fn yield_now(&self) -> impl Future<Output = ()> + Send {
        pause()
    }
}

impl api::Tenure for tenure_driver::Tenure {
    type Lease = tenure_driver::Lease;
    type Worker = tenure_driver::Worker;
    type Timer = tenure_driver::Timer;
    type Periodic = tenure_driver::Periodic;
    type Coordinator = tenure_driver::Coordinator;
    type JobRun = tenure_driver::JobRun;
    type Ctx = tenure_driver::Ctx;

    async fn acquire(&self, name: &str) -> Result<Self::Lease, AcquireError> {
        self.acquire(name).await
    }

    async fn try_acquire(&self, name: &str) -> Result<Self::Lease, AcquireError> {
        self.try_acquire(name).await
    }

    fn worker<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        work: impl FnMut(Self::Ctx) -> F + Send + 'static,
        setup: Setup,
    ) -> Self::Worker {
        let mut worker = self.worker(name, work);
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
        let mut periodic = self.periodic(name, period, work);
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
        let mut coordinator = self.coordinate(names, work);
        if let Some(timeout) = setup.drain_timeout {
            coordinator = coordinator.drain_timeout(timeout);
        }
        if let Some(limit) = setup.hold_down {
            coordinator = coordinator.hold_down(limit);
        }
        coordinator.start().unwrap()
    }

    async fn begin(&self, job: &str, index: u64) -> Result<Self::JobRun, RequestError> {
        self.jobs().begin(job).index(index).start().await
    }

    async fn history(&self, job: &str) -> Result<Vec<RunRecord>, RequestError> {
        self.jobs().history(job).await
    }

    async fn leases(&self) -> Result<Vec<LeaseRecord>, RequestError> {
        self.leases().await
    }

    async fn members(&self) -> Result<Vec<MemberEntry>, RequestError> {
        self.members().await
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    async fn drain(&self) -> Result<(), NotDrained> {
        self.drain().await
    }

    fn resume(&self) {
        self.resume();
    }

    fn is_draining(&self) -> bool {
        self.is_draining()
    }

    async fn stop(&self) -> Result<(), NotDrained> {
        self.stop().await
    }

    async fn drained(&self) {
        self.drained().await;
    }

    async fn shutdown(&self) -> Result<(), StillHeld> {
        self.shutdown().await
    }
}

impl api::Lease for tenure_driver::Lease {
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
        self.run(work).await
    }

    async fn stopping(&self) -> StopReason {
        self.stopping().await
    }

    async fn lost(&self) -> Lost {
        self.lost().await
    }

    async fn release(self) -> Result<ReleaseOutcome, Closed> {
        self.release().await
    }
}

impl api::Worker for tenure_driver::Worker {
    fn status(&self) -> WorkerStatus {
        self.status()
    }

    async fn drain(&self) -> Result<(), DrainError> {
        self.drain().await
    }

    async fn stop(&self) -> Result<(), DrainError> {
        self.stop().await
    }

    async fn ended(&self) {
        self.ended().await;
    }
}

impl api::Ctx for tenure_driver::Ctx {
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
        self.draining().await
    }
}

impl api::Timer for tenure_driver::Timer {
    async fn next(&mut self) -> Option<Result<DueTick, TimerError>> {
        self.next().await
    }
}

impl api::Periodic for tenure_driver::Periodic {
    fn status(&self) -> PeriodicStatus {
        self.status()
    }

    async fn drain(&self) -> Result<(), DrainError> {
        self.drain().await
    }
}

impl api::Coordinator for tenure_driver::Coordinator {
    fn mine(&self) -> Vec<Share> {
        self.mine()
    }

    async fn drain(&self) -> Result<(), NotDrained> {
        self.drain().await
    }

    async fn ended(&self) {
        self.ended().await;
    }
}

impl api::JobRun for tenure_driver::JobRun {
    async fn fail(self, text: &str) -> Result<(), RequestError> {
        self.fail(text).await
    }
}
