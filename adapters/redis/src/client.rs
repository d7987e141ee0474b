//! One handle's side of the store: each operation by itself.

use std::sync::Arc;

use tenure_core::{Identity, JobName, LeaseName, Presence, TimerName};
use tenure_store::{
    Acquire, Acquired, DrainMark, Eviction, Heartbeat, Hints, JobRecord, LeaseRecord, Leave, Limits,
    MemberEntry, Release, Released, Renew, Renewed, RunRecord, RunReport, SimpleStore, StoreError,
    TimerAnswer, TimerEntry, TimerRequest, clock,
};

use crate::options::RedisOptions;
use crate::server::Server;
use crate::watch::Pushes;

/// A handle.
pub(crate) struct Client {
    pub(crate) options: RedisOptions,
    pub(crate) limits: Limits,
    pub(crate) server: Arc<Server>,
    pub(crate) pushes: Arc<Pushes>,
    /// What those who wait are known by at the server: 16 hexadecimal digits, another one for each handle.
    pub(crate) handle: String,
}

impl Client {
    pub(crate) fn new(options: &RedisOptions) -> Self {
        let mut bits = [0; 8];
        // Without random numbers two handles might take each other's place in a queue, which costs a little time.
        let _ = getrandom::fill(&mut bits);
        let handle = format!("{:016x}", u64::from_be_bytes(bits));
        let pushes = Arc::new(Pushes::new(&handle));
        let mut limits = Limits::DEFAULT;
        limits.clock.step = options.clock_step;
        Self {
            options: options.clone(),
            limits,
            server: Arc::new(Server::new(options, Arc::clone(&pushes))),
            pushes,
            handle,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.pushes.close();
    }
}

impl SimpleStore for Client {
    fn limits(&self) -> Limits {
        self.limits
    }

    async fn acquire(&self, request: Acquire) -> Result<Acquired, StoreError> {
        self.acquire_lease(&request).await.map_err(|error| error.about(&request.name))
    }

    async fn renew(&self, request: Renew) -> Result<Renewed, StoreError> {
        let mut renewed = self.renew_leases(std::slice::from_ref(&request), clock::now()).await;
        renewed.pop().unwrap_or_else(|| Err(StoreError::unknown("no answer")))
    }

    async fn release(&self, request: Release) -> Result<Released, StoreError> {
        self.release_lease(&request).await.map_err(|error| error.about(&request.name))
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        self.inspect_lease(&name).await.map_err(|error| error.about(&name))
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        self.list_leases(after, most).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        self.evict_lease(&name, how).await.map_err(|error| error.about(&name))
    }

    fn hints(&self) -> Option<Hints> {
        self.hear()
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        self.watch_lease(&name).await.map_err(|error| error.about(&name))
    }

    async fn unwatch(&self, name: LeaseName) {
        self.unwatch_lease(&name).await;
    }

    async fn timer(&self, request: TimerRequest) -> Result<TimerAnswer, StoreError> {
        self.carry_out(&request).await.map_err(|error| error.about(&request.name))
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        self.list_timers(after, most).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        self.keep_report(&report).await.map_err(|error| error.about(&report.job))
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        self.list_jobs(after, most).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        self.runs_of(&job).await.map_err(|error| error.about(&job))
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        self.forget_runs(&job).await.map_err(|error| error.about(&job))
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<Presence, StoreError> {
        self.beat(&beat).await.map_err(|error| error.about(&beat.identity))
    }

    async fn leave(&self, leave: Leave) -> Result<(), StoreError> {
        self.farewell(&leave).await.map_err(|error| error.about(&leave.identity))
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        self.list_members(after, most).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        self.mark_members(&mark).await
    }

    async fn close(&self) {
        self.server.close().await;
        self.pushes.close();
    }
}
