//! One handle's side of the store: each operation by itself. All of it is polled where the client library's tasks are.

use std::sync::Arc;

use tenure_core::{Identity, JobName, LeaseName, Presence, TimerName};
use tenure_store::{
    Acquire, Acquired, DrainMark, Eviction, Heartbeat, Hints, JobRecord, LeaseRecord, Leave, Limits,
    MemberEntry, Release, Released, Renew, Renewed, RunRecord, RunReport, SimpleStore, StoreError,
    TimerAnswer, TimerEntry, TimerRequest,
};
use tokio::sync::Mutex as AsyncMutex;

use crate::leases::Known;
use crate::link::Link;
use crate::members::Mirror;
use crate::options::NatsOptions;
use crate::watch::{Pushes, Upkeep};

/// A handle.
pub(crate) struct Client {
    pub(crate) limits: Limits,
    pub(crate) link: Arc<Link>,
    pub(crate) pushes: Arc<Pushes>,
    pub(crate) upkeep: Upkeep,
    pub(crate) known: Known,
    pub(crate) mirror: AsyncMutex<Mirror>,
    /// What this handle is known by to others: 16 hexadecimal digits, another one for each handle.
    pub(crate) handle: String,
}

impl Client {
    pub(crate) fn new(options: &NatsOptions) -> Self {
        let mut bits = [0; 8];
        // Without random numbers two handles might take each other's place in a queue, which costs a little time.
        let _ = getrandom::fill(&mut bits);
        let handle = format!("{:016x}", u64::from_be_bytes(bits));
        let limits = limits(options);
        let link = Arc::new(Link::new(options));
        Self {
            limits,
            pushes: Arc::new(Pushes::new(&handle, &link.names)),
            link,
            upkeep: Upkeep::default(),
            known: Known::new(limits.clock.drift, limits.clock.quantum),
            mirror: AsyncMutex::default(),
            handle,
        }
    }
}

/// What such a store can do. The server counts in whole seconds, from one on.
pub(crate) fn limits(options: &NatsOptions) -> Limits {
    let mut limits = Limits::DEFAULT;
    limits.min_ttl = std::time::Duration::from_secs(1);
    limits.clock.step = options.clock_step;
    limits
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
        self.renew_lease(&request).await.map_err(|error| error.about(&request.name))
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
        self.upkeep.end();
        self.link.close().await;
        self.pushes.close();
    }
}
