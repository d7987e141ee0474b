//! The store: one handle on a Redis or Valkey server.

use std::fmt;
use std::sync::Arc;

use tenure_core::{Identity, JobName, LeaseName, TimerName};
use tenure_store::core::ConfigError;
use tenure_store::{
    DrainMark, Eviction, Hints, JobRecord, LeaseRecord, Limits, MemberEntry, Operation, Replies, RunRecord,
    RunReport, SimpleStore, Store, StoreError, TimerEntry,
};

use crate::client::Client;
use crate::options::RedisOptions;

/// A store on a Redis or Valkey server. Clones share one connection.
///
/// ```
/// # use tenure_redis::RedisStore;
/// let store = RedisStore::from_url("redis://localhost")?;
/// # Ok::<(), tenure_store::core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct RedisStore {
    client: Arc<Client>,
}

impl RedisStore {
    /// The server that a URL names: see [`RedisOptions::from_url`].
    ///
    /// # Errors
    /// [`ConfigError`] says which part of the URL is wrong.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        RedisOptions::from_url(url).map(Self::new)
    }

    /// With these settings.
    #[must_use]
    pub fn new(options: RedisOptions) -> Self {
        Self { client: Arc::new(Client::new(&options)) }
    }
}

impl RedisStore {
    /// The settings, with which another process, or another handle, finds the same leases.
    #[must_use]
    pub fn options(&self) -> &RedisOptions {
        &self.client.options
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn limits(&self) -> Limits {
        self.client.limits
    }

    async fn execute(&self, batch: Vec<Operation>, replies: Replies) {
        self.client.carry_out_all(batch, replies).await;
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        SimpleStore::inspect(&*self.client, name).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        SimpleStore::list(&*self.client, after, most).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        SimpleStore::evict(&*self.client, name, how).await
    }

    fn hints(&self) -> Option<Hints> {
        SimpleStore::hints(&*self.client)
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        SimpleStore::watch(&*self.client, name).await
    }

    async fn unwatch(&self, name: LeaseName) {
        SimpleStore::unwatch(&*self.client, name).await;
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        SimpleStore::timers(&*self.client, after, most).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        SimpleStore::report(&*self.client, report).await
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        SimpleStore::jobs(&*self.client, after, most).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        SimpleStore::runs(&*self.client, job).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        SimpleStore::forget_job(&*self.client, job).await
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        SimpleStore::members(&*self.client, after, most).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        SimpleStore::mark(&*self.client, mark).await
    }

    async fn close(&self) {
        SimpleStore::close(&*self.client).await;
    }
}
