//! The traits that an adapter implements.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::time::Duration;

use futures::stream::{BoxStream, FuturesUnordered, StreamExt};
use tenure_core::{LeaseName, StoreClock, Wake};

use crate::{
    Acquire, Acquired, Answer, Eviction, LeaseRecord, Operation, Outcome, Release, Released, Renew, Renewed,
    Replies, StoreError,
};

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The shortest TTL that it keeps.
    pub min_ttl: Duration,
    /// The longest TTL that it keeps.
    pub max_ttl: Duration,
    /// What its clock is like.
    pub clock: StoreClock,
    /// The most operations that one call of [`Store::execute`] should carry.
    pub batch: usize,
}

impl Limits {
    /// TTLs from 50 ms to a week, the default clock, 250 operations per batch.
    pub const DEFAULT: Self = Self {
        min_ttl: tenure_core::LeaseConfig::MIN_TTL,
        max_ttl: tenure_core::LeaseConfig::MAX_TTL,
        clock: StoreClock {
            drift: tenure_core::Rate::ONE_PERCENT,
            quantum: Duration::from_millis(1),
            step: Duration::ZERO,
        },
        batch: 250,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A hint that something has happened at the store. It may be missing, repeated, late or wrong; it is never
/// evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the driver handles every one")]
pub enum Hint {
    /// About a watched lease.
    Lease {
        /// The lease.
        name: LeaseName,
        /// What seems to have happened.
        wake: Wake,
    },
    /// Hints may have been missed: every waiter should look for itself.
    Resync,
}

/// The hints of a store handle.
pub type Hints = BoxStream<'static, Hint>;

/// A store with one function per operation: all that an adapter needs. Every `SimpleStore` is a [`Store`].
///
/// Each operation is atomic at the store and uses the store's clock. An operation must not be repeated by the
/// adapter unless the store certainly did not execute it; what is unknown is returned as
/// [`StoreError::unknown`]. A returned future is polled by whichever runtime the user has, and may be dropped.
pub trait SimpleStore: Send + Sync + 'static {
    /// What the store can do. Constant, and known before anything is connected.
    fn limits(&self) -> Limits {
        Limits::DEFAULT
    }

    /// Takes the lease if there is no unexpired record, or confirms (and extends) it if the record is this
    /// owner's.
    ///
    /// A new grant has a token above `floor` and above that of every earlier grant of this lease, whatever
    /// happened in between; a confirmation has the token of the grant.
    fn acquire(&self, request: Acquire) -> impl Future<Output = Result<Acquired, StoreError>> + Send;

    /// Extends the record if it is unexpired and this owner's with this token. Never creates one.
    fn renew(&self, request: Renew) -> impl Future<Output = Result<Renewed, StoreError>> + Send;

    /// Removes the record if it is this owner's (and has the token, if one is given).
    fn release(&self, request: Release) -> impl Future<Output = Result<Released, StoreError>> + Send;

    /// Who holds the lease, for people to look at; `None` if nobody does. It may be out of date.
    fn inspect(
        &self,
        name: LeaseName,
    ) -> impl Future<Output = Result<Option<LeaseRecord>, StoreError>> + Send;

    /// At most `most` leases that are held, in the order of their names' bytes, beginning after `after`.
    fn list(
        &self,
        after: Option<LeaseName>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<LeaseRecord>, StoreError>> + Send;

    /// Takes a lease away from whoever holds it and tells who that was; `None` if nobody did.
    fn evict(
        &self,
        name: LeaseName,
        how: Eviction,
    ) -> impl Future<Output = Result<Option<LeaseRecord>, StoreError>> + Send;

    /// The hints of this handle, from now on, for all watched leases; `None` if the store can't watch. Asked
    /// once, by the driver.
    fn hints(&self) -> Option<Hints> {
        None
    }

    /// Watches a lease; returns once no hint about it will be missed without a [`Hint::Resync`].
    fn watch(&self, name: LeaseName) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move { Err(StoreError::unsupported("this store has no hints").about(&name)) }
    }

    /// Ends [`watch`](Self::watch) for this lease and forgets that this handle waits for it.
    fn unwatch(&self, name: LeaseName) -> impl Future<Output = ()> + Send {
        async move { drop(name) }
    }

    /// Ends what the handle has open, before the program ends. Nothing is called after it.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// A store as the driver sees it: operations come in batches.
///
/// Implement [`SimpleStore`] instead unless the store gains by carrying many operations in one request.
pub trait Store: Send + Sync + 'static {
    /// See [`SimpleStore::limits`].
    fn limits(&self) -> Limits;

    /// Carries out all operations, and delivers each outcome as soon as it is known.
    ///
    /// Operations on one lease are executed in the order of the batch. One that fails, or is malformed, has no
    /// effect on the others.
    fn execute(&self, batch: Vec<Operation>, replies: Replies) -> impl Future<Output = ()> + Send;

    /// See [`SimpleStore::inspect`].
    fn inspect(
        &self,
        name: LeaseName,
    ) -> impl Future<Output = Result<Option<LeaseRecord>, StoreError>> + Send;

    /// See [`SimpleStore::list`].
    fn list(
        &self,
        after: Option<LeaseName>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<LeaseRecord>, StoreError>> + Send;

    /// See [`SimpleStore::evict`].
    fn evict(
        &self,
        name: LeaseName,
        how: Eviction,
    ) -> impl Future<Output = Result<Option<LeaseRecord>, StoreError>> + Send;

    /// See [`SimpleStore::hints`].
    fn hints(&self) -> Option<Hints>;

    /// See [`SimpleStore::watch`].
    fn watch(&self, name: LeaseName) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// See [`SimpleStore::unwatch`].
    fn unwatch(&self, name: LeaseName) -> impl Future<Output = ()> + Send;

    /// See [`SimpleStore::close`].
    fn close(&self) -> impl Future<Output = ()> + Send;
}

impl<S: SimpleStore> Store for S {
    fn limits(&self) -> Limits {
        SimpleStore::limits(self)
    }

    async fn execute(&self, batch: Vec<Operation>, mut replies: Replies) {
        let mut waiting = in_order_by_lease(batch).into_iter();
        let mut running: FuturesUnordered<_> =
            waiting.by_ref().take(MOST_AT_ONCE).map(|queue| run_first(self, queue)).collect();
        while let Some(done) = running.next().await {
            let Some((index, outcome, rest)) = done else { continue };
            replies.deliver(index, outcome);
            // The next one on the same lease, which may have waited for this one, else on another lease.
            if let Some(queue) = Some(rest).filter(|rest| !rest.is_empty()).or_else(|| waiting.next()) {
                running.push(run_first(self, queue));
            }
        }
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        SimpleStore::inspect(self, name).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        SimpleStore::list(self, after, most).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        SimpleStore::evict(self, name, how).await
    }

    fn hints(&self) -> Option<Hints> {
        SimpleStore::hints(self)
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        SimpleStore::watch(self, name).await
    }

    async fn unwatch(&self, name: LeaseName) {
        SimpleStore::unwatch(self, name).await;
    }

    async fn close(&self) {
        SimpleStore::close(self).await;
    }
}

/// Operations of a batch on different leases run side by side, so many at once: enough to hide a round trip,
/// and few enough for a store whose connection or thread is one.
const MOST_AT_ONCE: usize = 16;

/// The operations on one lease that are still to be done, with their places in the batch.
type Queue = VecDeque<(usize, Operation)>;

/// One queue for each lease, in the order in which the leases first come.
fn in_order_by_lease(batch: Vec<Operation>) -> Vec<Queue> {
    let mut places: BTreeMap<LeaseName, usize> = BTreeMap::new();
    let mut queues: Vec<Queue> = Vec::new();
    for (index, operation) in batch.into_iter().enumerate() {
        let place = *places.entry(operation.name().clone()).or_insert(queues.len());
        if place == queues.len() {
            queues.push(Queue::new());
        }
        queues[place].push_back((index, operation));
    }
    queues
}

/// Runs the first operation of a queue; gives its place in the batch, its outcome and the rest of the queue.
async fn run_first<S: SimpleStore>(store: &S, mut queue: Queue) -> Option<(usize, Outcome, Queue)> {
    let (index, operation) = queue.pop_front()?;
    let outcome = match operation {
        Operation::Acquire(request) => store.acquire(request).await.map(Answer::Acquire),
        Operation::Renew(request) => store.renew(request).await.map(Answer::Renew),
        Operation::Release(request) => store.release(request).await.map(Answer::Release),
    };
    Some((index, outcome, queue))
}

#[cfg(test)]
mod tests;
