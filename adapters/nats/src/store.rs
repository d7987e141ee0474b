//! The store: one handle on a bucket, and the thread on which all of its work is done.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use tenure_core::{Identity, JobName, LeaseName, TimerName};
use tenure_store::core::ConfigError;
use tenure_store::{
    DrainMark, Eviction, Hints, JobRecord, LeaseRecord, Limits, MemberEntry, Operation, Replies, RunRecord,
    RunReport, SimpleStore, Store, StoreError, TimerEntry,
};
use tokio::runtime::{Builder, Runtime};

use crate::client::{Client, limits};
use crate::options::NatsOptions;

/// A store in a key-value bucket of NATS JetStream. Clones share one connection and one thread.
///
/// Its futures may be polled anywhere, in whichever runtime or none.
///
/// ```
/// # use tenure_nats::NatsStore;
/// let store = NatsStore::from_url("nats://localhost")?;
/// # Ok::<(), tenure_store::core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct NatsStore {
    shared: Arc<Shared>,
}

struct Shared {
    options: NatsOptions,
    client: Arc<Client>,
    /// The client library needs tokio. It is begun with the first operation; `None` if the system has no thread for it.
    runtime: OnceLock<Option<Runtime>>,
}

impl NatsStore {
    /// The bucket that a URL names: see [`NatsOptions::from_url`].
    ///
    /// # Errors
    /// [`ConfigError`] says which part of the URL is wrong.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        NatsOptions::from_url(url).map(Self::new)
    }

    /// With these settings.
    #[must_use]
    pub fn new(options: NatsOptions) -> Self {
        let client = Arc::new(Client::new(&options));
        Self { shared: Arc::new(Shared { options, client, runtime: OnceLock::new() }) }
    }

    /// The settings, with which another process, or another handle, finds the same leases.
    #[must_use]
    pub fn options(&self) -> &NatsOptions {
        &self.shared.options
    }

    /// Does something on the thread of this store. It goes on if the returned future is dropped.
    async fn on_thread<T, F>(&self, act: impl FnOnce(Arc<Client>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let make = || {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name("tenure-nats").enable_all().build().ok()
        };
        let runtime = self.shared.runtime.get_or_init(make).as_ref();
        let runtime =
            runtime.ok_or_else(|| StoreError::rejected("the system has no thread for the store"))?;
        let done = runtime.spawn(act(Arc::clone(&self.shared.client))).await;
        done.map_err(|_| StoreError::unknown("the store was closed with the operation under way"))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It may be dropped where nothing may wait.
        if let Some(runtime) = self.runtime.take().flatten() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for NatsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsStore").finish_non_exhaustive()
    }
}

impl Store for NatsStore {
    fn limits(&self) -> Limits {
        limits(&self.shared.options)
    }

    async fn execute(&self, batch: Vec<Operation>, replies: Replies) {
        // What has no outcome by then is unknown.
        let _ = self.on_thread(|client| async move { client.carry_out_all(batch, replies).await }).await;
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        self.on_thread(|client| async move { SimpleStore::inspect(&*client, name).await }).await?
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        self.on_thread(|client| async move { SimpleStore::list(&*client, after, most).await }).await?
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        self.on_thread(|client| async move { SimpleStore::evict(&*client, name, how).await }).await?
    }

    fn hints(&self) -> Option<Hints> {
        SimpleStore::hints(&*self.shared.client)
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        self.on_thread(|client| async move { SimpleStore::watch(&*client, name).await }).await?
    }

    async fn unwatch(&self, name: LeaseName) {
        let _ = self.on_thread(|client| async move { SimpleStore::unwatch(&*client, name).await }).await;
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        self.on_thread(|client| async move { SimpleStore::timers(&*client, after, most).await }).await?
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        self.on_thread(|client| async move { SimpleStore::report(&*client, report).await }).await?
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        self.on_thread(|client| async move { SimpleStore::jobs(&*client, after, most).await }).await?
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        self.on_thread(|client| async move { SimpleStore::runs(&*client, job).await }).await?
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        self.on_thread(|client| async move { SimpleStore::forget_job(&*client, job).await }).await?
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        self.on_thread(|client| async move { SimpleStore::members(&*client, after, most).await }).await?
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        self.on_thread(|client| async move { SimpleStore::mark(&*client, mark).await }).await?
    }

    async fn close(&self) {
        let _ = self.on_thread(|client| async move { SimpleStore::close(&*client).await }).await;
    }
}
