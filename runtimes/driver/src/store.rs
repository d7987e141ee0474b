//! A store without its type.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tenure_core::{Identity, JobName, LeaseName, TimerName};
use tenure_store::{
    DrainMark, Eviction, Hints, JobRecord, LeaseRecord, Limits, MemberEntry, Operation, Replies, RunRecord,
    RunReport, Store, StoreError, TimerEntry,
};

/// Any [`Store`], its type erased: for programs that choose the store at run time. Cloning shares it.
///
/// Futures of it own what they need, and so can be driven on their own.
#[derive(Clone)]
pub struct AnyStore(Arc<dyn Erased>);

impl AnyStore {
    /// Erases the type.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(store))
    }

    pub(crate) fn executing(&self, batch: Vec<Operation>, replies: Replies) -> BoxFuture<'static, ()> {
        self.0.clone().execute(batch, replies)
    }

    pub(crate) fn inspecting(&self, name: LeaseName) -> Answering<Option<LeaseRecord>> {
        self.0.clone().inspect(name)
    }

    pub(crate) fn listing(&self, after: Option<LeaseName>, most: usize) -> Answering<Vec<LeaseRecord>> {
        self.0.clone().list(after, most)
    }

    pub(crate) fn evicting(&self, name: LeaseName, how: Eviction) -> Answering<Option<LeaseRecord>> {
        self.0.clone().evict(name, how)
    }

    pub(crate) fn timing(&self, after: Option<TimerName>, most: usize) -> Answering<Vec<TimerEntry>> {
        self.0.clone().timers(after, most)
    }

    pub(crate) fn reporting(&self, report: RunReport) -> Answering<()> {
        self.0.clone().report(report)
    }

    pub(crate) fn recording(&self, after: Option<JobName>, most: usize) -> Answering<Vec<JobRecord>> {
        self.0.clone().jobs(after, most)
    }

    pub(crate) fn running(&self, job: JobName) -> Answering<Vec<RunRecord>> {
        self.0.clone().runs(job)
    }

    pub(crate) fn forgetting(&self, job: JobName) -> Answering<bool> {
        self.0.clone().forget_job(job)
    }

    pub(crate) fn membering(&self, after: Option<Identity>, most: usize) -> Answering<Vec<MemberEntry>> {
        self.0.clone().members(after, most)
    }

    pub(crate) fn marking(&self, mark: DrainMark) -> Answering<Vec<Identity>> {
        self.0.clone().mark(mark)
    }

    pub(crate) fn watching(&self, name: LeaseName) -> Answering<()> {
        self.0.clone().watch(name)
    }

    pub(crate) fn unwatching(&self, name: LeaseName) -> BoxFuture<'static, ()> {
        self.0.clone().unwatch(name)
    }

    pub(crate) fn closing(&self) -> BoxFuture<'static, ()> {
        self.0.clone().close()
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyStore").finish_non_exhaustive()
    }
}

impl Store for AnyStore {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    async fn execute(&self, batch: Vec<Operation>, replies: Replies) {
        self.executing(batch, replies).await;
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        self.inspecting(name).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        self.listing(after, most).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        self.evicting(name, how).await
    }

    fn hints(&self) -> Option<Hints> {
        self.0.hints()
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        self.watching(name).await
    }

    async fn unwatch(&self, name: LeaseName) {
        self.unwatching(name).await;
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        self.timing(after, most).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        self.reporting(report).await
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        self.recording(after, most).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        self.running(job).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        self.forgetting(job).await
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        self.membering(after, most).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        self.marking(mark).await
    }

    async fn close(&self) {
        self.closing().await;
    }
}

pub(crate) type Answering<T> = BoxFuture<'static, Result<T, StoreError>>;

/// [`Store`] in a form that can be a trait object. The store is called inside of the futures only, so that a
/// panic of it happens where it is caught.
trait Erased: Send + Sync {
    fn limits(&self) -> Limits;
    fn execute(self: Arc<Self>, batch: Vec<Operation>, replies: Replies) -> BoxFuture<'static, ()>;
    fn inspect(self: Arc<Self>, name: LeaseName) -> Answering<Option<LeaseRecord>>;
    fn list(self: Arc<Self>, after: Option<LeaseName>, most: usize) -> Answering<Vec<LeaseRecord>>;
    fn evict(self: Arc<Self>, name: LeaseName, how: Eviction) -> Answering<Option<LeaseRecord>>;
    fn hints(&self) -> Option<Hints>;
    fn watch(self: Arc<Self>, name: LeaseName) -> Answering<()>;
    fn unwatch(self: Arc<Self>, name: LeaseName) -> BoxFuture<'static, ()>;
    fn timers(self: Arc<Self>, after: Option<TimerName>, most: usize) -> Answering<Vec<TimerEntry>>;
    fn report(self: Arc<Self>, report: RunReport) -> Answering<()>;
    fn jobs(self: Arc<Self>, after: Option<JobName>, most: usize) -> Answering<Vec<JobRecord>>;
    fn runs(self: Arc<Self>, job: JobName) -> Answering<Vec<RunRecord>>;
    fn forget_job(self: Arc<Self>, job: JobName) -> Answering<bool>;
    fn members(self: Arc<Self>, after: Option<Identity>, most: usize) -> Answering<Vec<MemberEntry>>;
    fn mark(self: Arc<Self>, mark: DrainMark) -> Answering<Vec<Identity>>;
    fn close(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

impl<S: Store> Erased for S {
    fn limits(&self) -> Limits {
        Store::limits(self)
    }

    fn execute(self: Arc<Self>, batch: Vec<Operation>, replies: Replies) -> BoxFuture<'static, ()> {
        Box::pin(async move { Store::execute(&*self, batch, replies).await })
    }

    fn inspect(self: Arc<Self>, name: LeaseName) -> Answering<Option<LeaseRecord>> {
        Box::pin(async move { Store::inspect(&*self, name).await })
    }

    fn list(self: Arc<Self>, after: Option<LeaseName>, most: usize) -> Answering<Vec<LeaseRecord>> {
        Box::pin(async move { Store::list(&*self, after, most).await })
    }

    fn evict(self: Arc<Self>, name: LeaseName, how: Eviction) -> Answering<Option<LeaseRecord>> {
        Box::pin(async move { Store::evict(&*self, name, how).await })
    }

    fn hints(&self) -> Option<Hints> {
        Store::hints(self)
    }

    fn watch(self: Arc<Self>, name: LeaseName) -> Answering<()> {
        Box::pin(async move { Store::watch(&*self, name).await })
    }

    fn unwatch(self: Arc<Self>, name: LeaseName) -> BoxFuture<'static, ()> {
        Box::pin(async move { Store::unwatch(&*self, name).await })
    }

    fn timers(self: Arc<Self>, after: Option<TimerName>, most: usize) -> Answering<Vec<TimerEntry>> {
        Box::pin(async move { Store::timers(&*self, after, most).await })
    }

    fn report(self: Arc<Self>, report: RunReport) -> Answering<()> {
        Box::pin(async move { Store::report(&*self, report).await })
    }

    fn jobs(self: Arc<Self>, after: Option<JobName>, most: usize) -> Answering<Vec<JobRecord>> {
        Box::pin(async move { Store::jobs(&*self, after, most).await })
    }

    fn runs(self: Arc<Self>, job: JobName) -> Answering<Vec<RunRecord>> {
        Box::pin(async move { Store::runs(&*self, job).await })
    }

    fn forget_job(self: Arc<Self>, job: JobName) -> Answering<bool> {
        Box::pin(async move { Store::forget_job(&*self, job).await })
    }

    fn members(self: Arc<Self>, after: Option<Identity>, most: usize) -> Answering<Vec<MemberEntry>> {
        Box::pin(async move { Store::members(&*self, after, most).await })
    }

    fn mark(self: Arc<Self>, mark: DrainMark) -> Answering<Vec<Identity>> {
        Box::pin(async move { Store::mark(&*self, mark).await })
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { Store::close(&*self).await })
    }
}
