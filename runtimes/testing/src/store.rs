//! The store as an instance of the fleet has it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use tenure_driver::core::{Identity, JobName, LeaseName, TimerName};
use tenure_driver::store_contract::{
    Answer, DrainMark, Eviction, Hints, JobRecord, LeaseRecord, Limits, MemberEntry, Operation, Outcome,
    Replies, RunRecord, RunReport, SimpleStore, Store, StoreError, TimerEntry, Topic,
};
use tenure_memory::MemoryStore;

use crate::link::{Connection, Link};
use crate::server::Server;

/// The store of a [`Fleet`](crate::Fleet), as one process of it has it, with its faults.
pub struct InstanceStore(Arc<Connection>);

impl InstanceStore {
    pub(crate) fn new(server: Arc<Server>, link: Arc<Link>) -> Self {
        Self(Arc::new(Connection::new(server, link)))
    }
}

impl fmt::Debug for InstanceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceStore").finish_non_exhaustive()
    }
}

async fn carry_out(store: Arc<MemoryStore>, operation: Operation) -> Outcome {
    match operation {
        Operation::Acquire(acquire) => store.acquire(acquire).await.map(Answer::Acquire),
        Operation::Renew(renew) => store.renew(renew).await.map(Answer::Renew),
        Operation::Release(release) => store.release(release).await.map(Answer::Release),
        Operation::Timer(request) => store.timer(request).await.map(Answer::Timer),
        Operation::Heartbeat(beat) => store.heartbeat(beat).await.map(Answer::Heartbeat),
        Operation::Leave(leave) => store.leave(leave).await.map(|()| Answer::Leave),
    }
}

impl Store for InstanceStore {
    fn limits(&self) -> Limits {
        SimpleStore::limits(&*self.0.store())
    }

    async fn execute(&self, batch: Vec<Operation>, replies: Replies) {
        if self.0.is_clear() {
            return Store::execute(&*self.0.store(), batch, replies).await;
        }
        let replies = Mutex::new(replies);
        join_all(batch.into_iter().enumerate().map(|(index, operation)| {
            let replies = &replies;
            async move {
                let topic = Topic::from(operation.subject());
                let request = move |store| carry_out(store, operation.clone());
                let outcome = self.0.ask(Some(topic), request).await;
                replies.lock().unwrap_or_else(PoisonError::into_inner).deliver(index, outcome);
            }
        }))
        .await;
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let name = name.clone();
            async move { SimpleStore::inspect(&*store, name).await }
        };
        self.0.ask(None, request).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let after = after.clone();
            async move { SimpleStore::list(&*store, after, most).await }
        };
        self.0.ask(None, request).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let name = name.clone();
            async move { SimpleStore::evict(&*store, name, how).await }
        };
        self.0.ask(None, request).await
    }

    fn hints(&self) -> Option<Hints> {
        self.0.hints()
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        let (way, topic) = (Arc::downgrade(&self.0), Topic::from(&name));
        let request = move |store: Arc<MemoryStore>| {
            let name = name.clone();
            if let Some(way) = way.upgrade() {
                way.watched(&name, true);
            }
            async move { SimpleStore::watch(&*store, name).await }
        };
        self.0.ask(Some(topic), request).await
    }

    async fn unwatch(&self, name: LeaseName) {
        let way = Arc::downgrade(&self.0);
        let request = move |store: Arc<MemoryStore>| {
            let name = name.clone();
            if let Some(way) = way.upgrade() {
                way.watched(&name, false);
            }
            async move {
                SimpleStore::unwatch(&*store, name).await;
                Ok(())
            }
        };
        let _said = self.0.ask(None, request).await;
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let after = after.clone();
            async move { SimpleStore::timers(&*store, after, most).await }
        };
        self.0.ask(None, request).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        let topic = Topic::from(&report.job);
        let request = move |store: Arc<MemoryStore>| {
            let report = report.clone();
            async move { SimpleStore::report(&*store, report).await }
        };
        self.0.ask(Some(topic), request).await
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let after = after.clone();
            async move { SimpleStore::jobs(&*store, after, most).await }
        };
        self.0.ask(None, request).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let job = job.clone();
            async move { SimpleStore::runs(&*store, job).await }
        };
        self.0.ask(None, request).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let job = job.clone();
            async move { SimpleStore::forget_job(&*store, job).await }
        };
        self.0.ask(None, request).await
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let after = after.clone();
            async move { SimpleStore::members(&*store, after, most).await }
        };
        self.0.ask(None, request).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        let request = move |store: Arc<MemoryStore>| {
            let mark = mark.clone();
            async move { SimpleStore::mark(&*store, mark).await }
        };
        self.0.ask(None, request).await
    }

    async fn close(&self) {
        let request = |store: Arc<MemoryStore>| async move {
            SimpleStore::close(&*store).await;
            Ok(())
        };
        let _said = self.0.ask(None, request).await;
    }
}
