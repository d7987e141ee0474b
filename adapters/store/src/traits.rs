//! The traits that an adapter implements.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::time::Duration;

use futures::stream::{BoxStream, FuturesUnordered, StreamExt};
use tenure_core::{Identity, JobName, LeaseName, Presence, StoreClock, TimerName, Wake};

use crate::{
    Acquire, Acquired, Answer, DrainMark, Eviction, Heartbeat, JobRecord, LeaseRecord, Leave, MemberEntry,
    Operation, Outcome, Release, Released, Renew, Renewed, Replies, RunRecord, RunReport, StoreError,
    Subject, TimerAnswer, TimerEntry, TimerRequest,
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
    /// The members of the fleet, or what they say of themselves, seem to have changed. Every handle that has sent a
    /// heartbeat gets it; it need not watch anything.
    Members,
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
/// The whole contract is on [the front page of the crate](crate).
///
/// A sketch, with a map for a store. What it leaves out: `list` and `evict`, records of jobs, what is kept with a record
/// for people, and that there is more than one process.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Mutex, PoisonError};
/// use tenure_store::core::{Instant, LeaseName, TimerName, Token};
/// use tenure_store::{
///     Acquire, Acquired, Eviction, Holder, LeaseRecord, Release, Released, Renew, Renewed, SimpleStore,
///     StoreError, StoreTime, TimerAnswer, TimerRecord, TimerRequest, clock,
/// };
///
/// struct MapStore {
///     /// A clock that also counts while the machine sleeps.
///     now: fn() -> Instant,
///     leases: Mutex<Leases>,
/// }
///
/// #[derive(Default)]
/// struct Leases {
///     last_token: u64,
///     held: BTreeMap<LeaseName, Record>,
///     timers: BTreeMap<TimerName, TimerRecord>,
/// }
///
/// struct Record {
///     owner: String,
///     token: Token,
///     ends: Instant,
/// }
///
/// impl MapStore {
///     /// One operation, atomic since it has the lock, and only with records that are not over.
///     fn change<T>(&self, act: impl FnOnce(&mut Leases, Instant) -> T) -> T {
///         let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
///         let now = (self.now)();
///         leases.held.retain(|_, record| record.ends > now);
///         act(&mut leases, now)
///     }
/// }
///
/// impl SimpleStore for MapStore {
///     async fn acquire(&self, request: Acquire) -> Result<Acquired, StoreError> {
///         self.limits().check_acquire(&request)?;
///         tenure_store::check_floor(&request, Token::new(u64::MAX / 2))?;
///         self.change(|leases, now| {
///             let (owner, ends) = (request.owner.to_string(), now + request.ttl);
///             if let Some(record) = leases.held.get_mut(&request.name) {
///                 if record.owner != owner {
///                     return Ok(Acquired::Held(record.holder(now)));
///                 }
///                 record.ends = ends;
///                 return Ok(Acquired::Granted(record.token));
///             }
///             let token = next_token(&mut leases.last_token, request.floor);
///             leases.held.insert(request.name, Record { owner, token, ends });
///             Ok(Acquired::Granted(token))
///         })
///     }
///
///     async fn renew(&self, request: Renew) -> Result<Renewed, StoreError> {
///         self.limits().check_renew(&request)?;
///         Ok(self.change(|leases, now| match leases.held.get_mut(&request.name) {
///             Some(record) if record.is_of(&request.owner.to_string(), Some(request.token)) => {
///                 record.ends = now + request.ttl;
///                 Renewed::Renewed
///             }
///             _ => Renewed::NotYours,
///         }))
///     }
///
///     async fn release(&self, request: Release) -> Result<Released, StoreError> {
///         Ok(self.change(|leases, _| match leases.held.get(&request.name) {
///             Some(record) if record.is_of(&request.owner.to_string(), request.token) => {
///                 leases.held.remove(&request.name);
///                 Released::Released { others_chosen: false }
///             }
///             _ => Released::NotYours,
///         }))
///     }
///
///     async fn timer(&self, request: TimerRequest) -> Result<TimerAnswer, StoreError> {
///         self.limits().check_timer(&request)?;
///         tenure_store::check_claim_floor(&request, Token::new(u64::MAX / 2))?;
///         self.change(|leases, now| {
///             let time = StoreTime { wall: clock::wall(), now };
///             let mut record = leases.timers.remove(&request.name);
///             let token = |floor| Ok(next_token(&mut leases.last_token, floor));
///             let answer = TimerRecord::apply(&mut record, &request.act, time, token);
///             leases.timers.extend(record.map(|record| (request.name, record)));
///             answer
///         })
///     }
///
///     async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
///         Ok(self.change(|leases, now| {
///             let holder = leases.held.get(&name)?.holder(now);
///             Some(LeaseRecord::new(name, holder))
///         }))
///     }
///
/// #   async fn list(&self, _: Option<LeaseName>, _: usize) -> Result<Vec<LeaseRecord>, StoreError> {
/// #       Ok(Vec::new())
/// #   }
/// #   async fn evict(&self, _: LeaseName, _: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
/// #       Ok(None)
/// #   }
///     // list, evict, timers
/// }
///
/// /// A store that outlives its process would take care that this survives too.
/// fn next_token(last: &mut u64, floor: Token) -> Token {
///     *last = (*last).max(floor.get()) + 1;
///     Token::new(*last)
/// }
///
/// impl Record {
///     fn is_of(&self, owner: &str, token: Option<Token>) -> bool {
///         self.owner == owner && token.is_none_or(|token| token == self.token)
///     }
///
///     fn holder(&self, now: Instant) -> Holder {
///         let mut holder = Holder::new(&self.owner);
///         holder.token = Some(self.token);
///         holder.remaining = Some(self.ends.saturating_since(now));
///         holder
///     }
/// }
/// # use tenure_store::core::{Acquisition, Identity, Incarnation};
/// # let store = MapStore { now: || Instant::ZERO, leases: Mutex::default() };
/// # let request = |process| Acquire {
/// #     name: LeaseName::new("backup").unwrap(),
/// #     owner: Identity::new("here", Incarnation::new(process)).unwrap().owner(Acquisition(0)),
/// #     ttl: std::time::Duration::from_secs(10),
/// #     floor: Token::ZERO,
/// #     wait: false,
/// #     metadata: tenure_store::Metadata::new(),
/// #     timeout: std::time::Duration::from_secs(1),
/// # };
/// # let acquire = |process| futures::executor::block_on(store.acquire(request(process))).unwrap();
/// # assert_eq!(acquire(1), Acquired::Granted(Token::new(1)));
/// # assert!(matches!(acquire(2), Acquired::Held(_)));
/// # assert_eq!(acquire(1), Acquired::Granted(Token::new(1)));
/// ```
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

    /// Carries out an operation on a timer: loads its record, lets [`TimerRecord::apply`](crate::TimerRecord::apply) act
    /// on it, and writes it back, all in one atomic step.
    fn timer(&self, request: TimerRequest) -> impl Future<Output = Result<TimerAnswer, StoreError>> + Send {
        async move { Err(StoreError::unsupported(format!("this store has no timers: {}", request.name))) }
    }

    /// At most `most` timers, in the order of their names' bytes, beginning after `after`. One whose record can't be
    /// read is among them, with [its problem](TimerEntry::unreadable), and hides no other.
    fn timers(
        &self,
        after: Option<TimerName>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<TimerEntry>, StoreError>> + Send {
        async move {
            let _page = (after, most);
            Err(StoreError::unsupported("this store has no timers"))
        }
    }

    /// Keeps what a run of a job reports; see [`RunReport`].
    fn report(&self, report: RunReport) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move { Err(StoreError::unsupported(format!("this store keeps no records of jobs: {}", report.job))) }
    }

    /// At most `most` jobs, in the order of their names' bytes, beginning after `after`.
    fn jobs(
        &self,
        after: Option<JobName>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<JobRecord>, StoreError>> + Send {
        async move {
            let _page = (after, most);
            Err(StoreError::unsupported("this store keeps no records of jobs"))
        }
    }

    /// The kept runs of a job, the latest first; none if there is no such job.
    fn runs(&self, job: JobName) -> impl Future<Output = Result<Vec<RunRecord>, StoreError>> + Send {
        async move { Err(StoreError::unsupported(format!("this store keeps no records of jobs: {job}"))) }
    }

    /// Removes all records of a job; tells whether there were any.
    fn forget_job(&self, job: JobName) -> impl Future<Output = Result<bool, StoreError>> + Send {
        async move { Err(StoreError::unsupported(format!("this store keeps no records of jobs: {job}"))) }
    }

    /// See [`Heartbeat`]. [`MemberRecord`](crate::MemberRecord) says what it does, and the front page of the crate when
    /// the version of the view rises.
    fn heartbeat(&self, beat: Heartbeat) -> impl Future<Output = Result<Presence, StoreError>> + Send {
        async move { Err(StoreError::unsupported("this store keeps no members").about(&beat.identity)) }
    }

    /// See [`Leave`].
    fn leave(&self, leave: Leave) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move { Err(StoreError::unsupported("this store keeps no members").about(&leave.identity)) }
    }

    /// The members that are listed now: at most `most`, those after `after`, sorted by identity.
    fn members(
        &self,
        after: Option<Identity>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<MemberEntry>, StoreError>> + Send {
        async move {
            let _page = (after, most);
            Err(StoreError::unsupported("this store keeps no members"))
        }
    }

    /// Marks the listed members that this concerns to drain, or no longer; tells who they are. A mark is also taken from
    /// those that are only remembered, which are told then, too: see [`MemberRecord::can_be_marked`].
    ///
    /// [`MemberRecord::can_be_marked`]: crate::MemberRecord::can_be_marked
    fn mark(&self, mark: DrainMark) -> impl Future<Output = Result<Vec<Identity>, StoreError>> + Send {
        async move {
            let message = format!("this store keeps no members: {}", mark.instance);
            Err(StoreError::unsupported(message))
        }
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
    /// Operations on one lease, and those on one timer, are executed in the order of the batch. One that fails, or is
    /// malformed, has no effect on the others.
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

    /// See [`SimpleStore::timers`].
    fn timers(
        &self,
        after: Option<TimerName>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<TimerEntry>, StoreError>> + Send;

    /// See [`SimpleStore::report`].
    fn report(&self, report: RunReport) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// See [`SimpleStore::jobs`].
    fn jobs(
        &self,
        after: Option<JobName>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<JobRecord>, StoreError>> + Send;

    /// See [`SimpleStore::runs`].
    fn runs(&self, job: JobName) -> impl Future<Output = Result<Vec<RunRecord>, StoreError>> + Send;

    /// See [`SimpleStore::forget_job`].
    fn forget_job(&self, job: JobName) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// See [`SimpleStore::members`].
    fn members(
        &self,
        after: Option<Identity>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<MemberEntry>, StoreError>> + Send;

    /// See [`SimpleStore::mark`].
    fn mark(&self, mark: DrainMark) -> impl Future<Output = Result<Vec<Identity>, StoreError>> + Send;

    /// See [`SimpleStore::close`].
    fn close(&self) -> impl Future<Output = ()> + Send;
}

impl<S: SimpleStore> Store for S {
    fn limits(&self) -> Limits {
        SimpleStore::limits(self)
    }

    async fn execute(&self, mut batch: Vec<Operation>, mut replies: Replies) {
        if batch.len() == 1
            && let Some(operation) = batch.pop()
        {
            return replies.deliver(0, run(self, operation).await);
        }
        let mut waiting = in_order_by_subject(batch).into_iter();
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

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        SimpleStore::timers(self, after, most).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        SimpleStore::report(self, report).await
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        SimpleStore::jobs(self, after, most).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        SimpleStore::runs(self, job).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        SimpleStore::forget_job(self, job).await
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        SimpleStore::members(self, after, most).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        SimpleStore::mark(self, mark).await
    }

    async fn close(&self) {
        SimpleStore::close(self).await;
    }
}

/// Operations of a batch on different leases and timers run side by side, so many at once: enough to hide a round trip,
/// and few enough for a store whose connection or thread is one.
const MOST_AT_ONCE: usize = 16;

/// The operations on one subject that are still to be done, with their places in the batch.
type Queue = VecDeque<(usize, Operation)>;

/// One queue for each subject, in the order in which the subjects first come.
fn in_order_by_subject(batch: Vec<Operation>) -> Vec<Queue> {
    let mut queues: Vec<Queue> = Vec::new();
    let mut places: BTreeMap<Subject<'_>, usize> = BTreeMap::new();
    let subjects: Vec<usize> = batch
        .iter()
        .map(|operation| {
            let next = places.len();
            *places.entry(operation.subject()).or_insert(next)
        })
        .collect();
    for (index, (operation, place)) in batch.into_iter().zip(subjects).enumerate() {
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
    Some((index, run(store, operation).await, queue))
}

/// Runs one operation.
async fn run<S: SimpleStore>(store: &S, operation: Operation) -> Outcome {
    match operation {
        Operation::Acquire(request) => store.acquire(request).await.map(Answer::Acquire),
        Operation::Renew(request) => store.renew(request).await.map(Answer::Renew),
        Operation::Release(request) => store.release(request).await.map(Answer::Release),
        Operation::Timer(request) => store.timer(request).await.map(Answer::Timer),
        Operation::Heartbeat(beat) => store.heartbeat(beat).await.map(Answer::Heartbeat),
        Operation::Leave(leave) => store.leave(leave).await.map(|()| Answer::Leave),
    }
}

#[cfg(test)]
mod tests;
