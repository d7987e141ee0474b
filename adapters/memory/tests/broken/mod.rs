//! A store with one fault, of a kind that a store could have.

mod jobs;
mod members;
mod timers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use tenure_memory::MemoryStore;
use tenure_store::core::{
    Acquisition, Identity, Incarnation, JobName, LeaseName, Owner, TimerName, Token, Wake,
};
use tenure_store::{
    Acquire, Acquired, Answer, DrainMark, Eviction, Hint, Hints, JobRecord, LeaseRecord, Limits, MemberEntry,
    Metadata, Operation, Outcome, Release, Released, Renew, Renewed, Replies, RunOutcome, RunRecord,
    RunReport, RunState, SimpleStore, Store, StoreError, TimerEntry,
};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    // Who owns.
    GrantsWhatIsHeld,
    ConfirmsWithANewToken,
    IgnoresTheAcquisition,
    IgnoresTheIncarnation,
    RenewsForAnyOwner,
    RenewsForAnyToken,
    ReleasesForAnyOwner,
    ReleasesForAnyToken,
    ReleasesUnseenForAnyOwner,
    ReleasesTwice,
    ReleasesByName,
    // Until when.
    ConfirmsWithoutExtending,
    RenewsWithoutExtending,
    NeverExpires,
    ExpiresEarly,
    RenewsForHalf,
    RenewsWhatIsGone,
    RemembersTokens,
    // Tokens.
    ForgetsTokensOnRelease,
    ForgetsTokensOnEviction,
    ForgetsTokensOnReopening,
    ForgetsLeasesOnReopening,
    IgnoresTheFloor,
    WrapsTokens,
    // Batches, names, bounds.
    FailsTheWholeBatch,
    ReversesBatches,
    LosesTheLastOfMany,
    FoldsCase,
    CutsNames,
    TrimsNames,
    EscapesNames,
    ClampsTtls,
    RefusesTheLongestTtl,
    CutsMetadata,
    // What people see and do.
    TellsNoTokens,
    LosesMetadata,
    TellsTooMuchRemaining,
    ListsTheDead,
    IgnoresAfter,
    IgnoresMost,
    ReplacingDeletes,
    DeletingReplaces,
    EvictingCreates,
    // Timers.
    MakesATimerPerHandle,
    MakesTimersAnew,
    TellsTheTimeOfTheBase,
    ChangesWhateverTheRevision,
    StagesAtOnce,
    StagesForLater,
    LosesStaged,
    LowersTheLastTick,
    IgnoresTheLastTick,
    MakesWhatIsChanged,
    BeginsAtZero,
    ForgetsNoTimers,
    IgnoresRebases,
    RebasesTwice,
    NumbersFromTheAsker,
    LosesClaimsInLists,
    CutsSchedules,
    ClampsTicks,
    ForgetsAllOfThatName,
    // Claims.
    GrantsWhatIsTaken,
    HoldsWhatIsTaken,
    ClaimsWithANewToken,
    RepeatsForEver,
    NeverRepeats,
    CountsWhatNeverBegan,
    CountsNothing,
    GrantsAgainToTheSameOwner,
    FreesEarlierAttempts,
    AllowsAllOverlaps,
    SkipsAllOverlaps,
    QueuesAllOverlaps,
    RunsSkippedTicksLate,
    AllowsMoreRuns,
    // Records of jobs.
    TellsNoOutcomes,
    TellsNoEnds,
    LastOutcomeCounts,
    RecordsEveryReport,
    RunsForEver,
    KeepsFewRuns,
    TellsTheOldestFirst,
    ForgetsNoJobs,
    ForgetsAllJobs,
    // Members.
    SeesNobodyElse,
    JoinsAnew,
    ForgetsWhatJoinersSay,
    TellsNoAges,
    CountsAgesFromTheFirstJoin,
    TakesLateHeartbeats,
    ExtendsByLateHeartbeats,
    ForgetsWhoLeft,
    LeavesNobodyUnseen,
    ClearsMarks,
    MarksEveryProcess,
    MarksNobody,
    MarksForeignProcesses,
    RaisesTheVersionAlways,
    NeverRaisesTheVersion,
    RaisesNoVersionForMarks,
    TellsTheViewAlways,
    TellsNoViewToWhoKnewOne,
    LosesLabels,
    CutsDigests,
    LosesTheLastMembers,
    ListsMembersBackwards,
    ClampsSequences,
    SilentMembers,
    // Hints.
    SilentReleases,
    SilentGrants,
    SilentDeletions,
    WatchesNothing,
    ChoosesAll,
    ChoosesNobody,
    ChoosesItself,
    IgnoresUnwatch,
}

/// A handle on a memory store with a fault.
#[derive(Debug)]
pub(crate) struct Broken {
    inner: MemoryStore,
    fault: Fault,
    memory: Arc<Memory>,
    /// Which handle it is.
    number: u64,
}

/// What the fault needs to remember, shared by all handles.
#[derive(Debug, Default)]
struct Memory {
    /// Who got each lease last.
    owners: Mutex<BTreeMap<LeaseName, Owner>>,
    /// The first token that each owner got.
    tokens: Mutex<BTreeMap<(LeaseName, Owner), Token>>,
    /// What each lease once was.
    records: Mutex<BTreeMap<LeaseName, LeaseRecord>>,
    /// Who got each tick last.
    claimants: Mutex<BTreeMap<(TimerName, u64), Owner>>,
    /// Ticks of which an attempt was begun before the one that was given back unbegun.
    unbegun: Mutex<BTreeSet<(TimerName, u64)>>,
    /// The last outcome that was reported of each run.
    outcomes: Mutex<BTreeMap<(JobName, String), RunOutcome>>,
    handles: AtomicU64,
    operations: AtomicU64,
    last_token: AtomicU64,
    /// How much lower the tokens are that are told.
    forgotten: AtomicU64,
    deletions_to_hide: AtomicU64,
    members: Mutex<members::MemberMemory>,
}

impl Broken {
    pub(crate) fn new(inner: MemoryStore, fault: Fault) -> Self {
        Self { inner, fault, memory: Arc::default(), number: 0 }
    }

    pub(crate) fn handle(&self) -> Self {
        let number = self.memory.handles.fetch_add(1, Ordering::Relaxed) + 1;
        Self { inner: self.inner.handle(), fault: self.fault, memory: self.memory.clone(), number }
    }

    /// After a restart on the same data; `empty` is where it would find none.
    pub(crate) fn reopen(self, empty: MemoryStore) -> Self {
        if self.fault == Fault::ForgetsTokensOnReopening {
            self.forget_tokens();
        }
        let inner = if self.fault == Fault::ForgetsLeasesOnReopening { empty } else { self.inner.handle() };
        Self { inner, fault: self.fault, memory: self.memory, number: self.number }
    }

    fn forget_tokens(&self) {
        self.memory.forgotten.store(self.memory.last_token.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn told(&self, token: Token) -> Token {
        Token::new(token.get().wrapping_sub(self.memory.forgotten.load(Ordering::Relaxed)))
    }

    fn kept(&self, token: Token) -> Token {
        Token::new(token.get().wrapping_add(self.memory.forgotten.load(Ordering::Relaxed)))
    }

    fn name(&self, name: LeaseName) -> LeaseName {
        self.other_text(name.as_str()).and_then(|text| LeaseName::new(text).ok()).unwrap_or(name)
    }

    /// What becomes of a name.
    fn other_text(&self, text: &str) -> Option<String> {
        match self.fault {
            Fault::FoldsCase => Some(text.to_lowercase()),
            Fault::TrimsNames => Some(text.trim().to_owned()),
            Fault::CutsNames => {
                Some(text.char_indices().filter(|(at, c)| at + c.len_utf8() <= 200).map(|(_, c)| c).collect())
            }
            Fault::MakesATimerPerHandle => Some(format!("{text} of {}", self.number)),
            _ => None,
        }
    }

    fn count(&self) -> u64 {
        self.memory.operations.fetch_add(1, Ordering::Relaxed)
    }

    fn owner(&self, owner: Owner) -> Owner {
        let identity = owner.identity();
        match self.fault {
            Fault::IgnoresTheAcquisition => identity.owner(Acquisition(0)),
            Fault::IgnoresTheIncarnation => Identity::new(identity.instance(), Incarnation::new(0))
                .expect("the name is one already")
                .owner(owner.acquisition()),
            _ => owner,
        }
    }

    fn ttl(&self, ttl: Duration) -> Duration {
        let Limits { min_ttl, max_ttl, .. } = Store::limits(self);
        if self.fault == Fault::ClampsTtls { ttl.clamp(min_ttl, max_ttl) } else { ttl }
    }

    async fn holder(&self, name: &LeaseName) -> Option<LeaseRecord> {
        SimpleStore::inspect(&self.inner, name.clone()).await.expect("the inner store works")
    }

    fn last_owner(&self, name: &LeaseName) -> Option<Owner> {
        self.memory.owners.lock().expect("no panic").get(name).cloned()
    }

    async fn run(&self, operation: Operation) -> Outcome {
        match operation {
            Operation::Acquire(mut request) => {
                request.name = self.name(request.name);
                request.owner = self.owner(request.owner);
                request.ttl = self.ttl(request.ttl);
                self.acquire(request).await.map(Answer::Acquire)
            }
            Operation::Renew(mut request) => {
                request.name = self.name(request.name);
                request.owner = self.owner(request.owner);
                request.ttl = self.ttl(request.ttl);
                request.token = self.kept(request.token);
                self.renew(request).await.map(Answer::Renew)
            }
            Operation::Release(mut request) => {
                request.name = self.name(request.name);
                request.owner = self.owner(request.owner);
                request.token = request.token.map(|token| self.kept(token));
                self.release(request).await.map(Answer::Release)
            }
            Operation::Timer(request) => self.timer(request).await.map(Answer::Timer),
            Operation::Heartbeat(beat) => self.heartbeat(beat).await.map(Answer::Heartbeat),
            Operation::Leave(leave) => self.leave(leave).await.map(|()| Answer::Leave),
        }
    }

    async fn acquire(&self, mut request: Acquire) -> Result<Acquired, StoreError> {
        let Acquire { name, owner, floor, .. } = request.clone();
        let limits = Store::limits(self);
        let confirmed = self.holder(&name).await.filter(|record| record.holder.owner == owner.to_string());
        match self.fault {
            Fault::ConfirmsWithANewToken if confirmed.is_some() => {
                let release = Release {
                    name: name.clone(),
                    owner: owner.clone(),
                    token: None,
                    timeout: request.timeout,
                };
                SimpleStore::release(&self.inner, release).await?;
            }
            Fault::ConfirmsWithoutExtending => {
                if let Some(token) = confirmed.and_then(|record| record.holder.token) {
                    return Ok(Acquired::Granted(token));
                }
            }
            Fault::NeverExpires => request.ttl = limits.max_ttl,
            Fault::ExpiresEarly => request.ttl = (request.ttl * 9 / 10).max(limits.min_ttl),
            Fault::IgnoresTheFloor => request.floor = Token::ZERO,
            Fault::WrapsTokens if floor > MemoryStore::MAX_FLOOR => request.floor = Token::ZERO,
            Fault::RefusesTheLongestTtl if request.ttl == limits.max_ttl => {
                return Err(StoreError::rejected("too long").about(&name));
            }
            Fault::CutsMetadata => {
                let cut =
                    |text: &str| text.chars().take(Metadata::MAX_TEXT_BYTES / 2).collect::<String>().into();
                request.metadata.text = request.metadata.text.as_deref().map(cut);
            }
            Fault::LosesMetadata => request.metadata = Metadata::new(),
            _ => {}
        }
        match SimpleStore::acquire(&self.inner, request).await? {
            Acquired::Granted(token) => {
                self.memory.last_token.fetch_max(token.get(), Ordering::Relaxed);
                self.memory.owners.lock().expect("no panic").insert(name.clone(), owner.clone());
                if let Some(record) = self.holder(&name).await {
                    self.memory.records.lock().expect("no panic").insert(name.clone(), record);
                }
                let mut tokens = self.memory.tokens.lock().expect("no panic");
                let first = *tokens.entry((name, owner)).or_insert(token);
                Ok(Acquired::Granted(match self.fault {
                    Fault::RemembersTokens => first,
                    Fault::WrapsTokens if floor > MemoryStore::MAX_FLOOR => {
                        Token::new(floor.get().wrapping_add(1))
                    }
                    _ => self.told(token),
                }))
            }
            Acquired::Held(holder) => match (self.fault, holder.token) {
                (Fault::GrantsWhatIsHeld, Some(token)) => Ok(Acquired::Granted(token)),
                _ => Ok(Acquired::Held(self.seen(LeaseRecord::new(name, holder)).holder)),
            },
        }
    }

    async fn renew(&self, mut request: Renew) -> Result<Renewed, StoreError> {
        let holder = self.holder(&request.name).await.map(|record| record.holder);
        let is_right = holder.as_ref().is_some_and(|holder| {
            holder.owner == request.owner.to_string() && holder.token == Some(request.token)
        });
        match self.fault {
            Fault::RenewsForAnyOwner => {
                request.owner = self.last_owner(&request.name).unwrap_or(request.owner);
            }
            Fault::RenewsForAnyToken => {
                request.token = holder.and_then(|holder| holder.token).unwrap_or(request.token);
            }
            Fault::RenewsWithoutExtending if is_right => return Ok(Renewed::Renewed),
            Fault::RenewsForHalf => request.ttl /= 2,
            Fault::RenewsWhatIsGone if holder.is_none() => {
                let Renew { name, owner, ttl, timeout, .. } = request;
                let (floor, wait, metadata) = (Token::ZERO, false, Metadata::new());
                let acquire = Acquire { name, owner, ttl, floor, wait, metadata, timeout };
                SimpleStore::acquire(&self.inner, acquire).await?;
                return Ok(Renewed::Renewed);
            }
            _ => {}
        }
        SimpleStore::renew(&self.inner, request).await
    }

    async fn release(&self, mut request: Release) -> Result<Released, StoreError> {
        match self.fault {
            Fault::ReleasesForAnyOwner => {
                request.owner = self.last_owner(&request.name).unwrap_or(request.owner);
            }
            Fault::ReleasesForAnyToken => request.token = None,
            Fault::ReleasesUnseenForAnyOwner if request.token.is_none() => {
                request.owner = self.last_owner(&request.name).unwrap_or(request.owner);
            }
            Fault::ReleasesByName => {
                let evicted = SimpleStore::evict(&self.inner, request.name, Eviction::Delete).await?;
                return Ok(match evicted {
                    Some(_) => Released::Released { others_chosen: false },
                    None => Released::NotYours,
                });
            }
            _ => {}
        }
        let released = SimpleStore::release(&self.inner, request).await?;
        match (self.fault, released) {
            (Fault::ReleasesTwice, Released::NotYours) => Ok(Released::Released { others_chosen: false }),
            (Fault::ChoosesItself, Released::Released { .. }) => {
                Ok(Released::Released { others_chosen: true })
            }
            (Fault::ForgetsTokensOnRelease, Released::Released { .. }) => {
                self.forget_tokens();
                Ok(released)
            }
            _ => Ok(released),
        }
    }

    /// A record as the faulty store shows it.
    fn seen(&self, mut record: LeaseRecord) -> LeaseRecord {
        record.holder.token = record.holder.token.map(|token| self.told(token));
        match self.fault {
            Fault::TellsTooMuchRemaining => record.holder.remaining = Some(Duration::from_secs(3600)),
            Fault::TellsNoTokens => record.holder.token = None,
            Fault::EscapesNames => {
                let escaped = LeaseName::new(record.name.as_str().escape_debug().to_string());
                record.name = escaped.unwrap_or(record.name);
            }
            _ => {}
        }
        record
    }
}

impl Store for Broken {
    fn limits(&self) -> Limits {
        SimpleStore::limits(&self.inner)
    }

    async fn execute(&self, batch: Vec<Operation>, mut replies: Replies) {
        let (limits, operations) = (Store::limits(self), batch.len());
        if self.fault == Fault::FailsTheWholeBatch
            && let Some(error) = batch.iter().find_map(|operation| limits.check(operation).err())
        {
            for index in 0..operations {
                replies.deliver(index, Err(error.clone()));
            }
            return;
        }
        let mut batch: Vec<(usize, Operation)> = batch.into_iter().enumerate().collect();
        if self.fault == Fault::ReversesBatches {
            batch.reverse();
        }
        if self.fault == Fault::LosesTheLastOfMany && operations > 100 {
            batch.pop();
        }
        for (index, operation) in batch {
            replies.deliver(index, self.run(operation).await);
        }
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        let mut record = self.holder(&self.name(name.clone())).await;
        if self.fault == Fault::ListsTheDead && record.is_none() {
            record = self.memory.records.lock().expect("no panic").get(&name).cloned();
        }
        Ok(record.map(|record| self.seen(record)))
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        let after = after.filter(|_| self.fault != Fault::IgnoresAfter);
        let most = if self.fault == Fault::IgnoresMost { usize::MAX } else { most };
        let records = SimpleStore::list(&self.inner, after, most).await?;
        Ok(records.into_iter().map(|record| self.seen(record)).collect())
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        self.seen_members(after, most).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        self.mark_members(mark).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        let how = match self.fault {
            Fault::ReplacingDeletes => Eviction::Delete,
            Fault::DeletingReplaces => Eviction::Replace,
            _ => how,
        };
        let evicted = SimpleStore::evict(&self.inner, self.name(name.clone()), how).await?;
        match self.fault {
            Fault::ForgetsTokensOnEviction => self.forget_tokens(),
            Fault::SilentDeletions => {
                self.memory.deletions_to_hide.fetch_add(1, Ordering::Relaxed);
            }
            Fault::EvictingCreates if evicted.is_none() => {
                let identity = Identity::new("operator", Incarnation::new(0)).expect("a short name");
                let acquire = Acquire {
                    name,
                    owner: identity.owner(Acquisition(0)),
                    ttl: Duration::from_secs(60),
                    floor: Token::ZERO,
                    wait: false,
                    metadata: Metadata::new(),
                    timeout: Duration::from_secs(1),
                };
                SimpleStore::acquire(&self.inner, acquire).await?;
            }
            _ => {}
        }
        Ok(evicted.map(|record| self.seen(record)))
    }

    fn hints(&self) -> Option<Hints> {
        let (fault, memory) = (self.fault, self.memory.clone());
        let heard = move |hint: Hint| {
            if fault == Fault::SilentMembers && hint == Hint::Members {
                return None;
            }
            let Hint::Lease { name, wake } = hint else { return Some(hint) };
            let wake = match (fault, wake) {
                (Fault::SilentReleases, Wake::Free { .. }) | (Fault::SilentGrants, Wake::Held { .. }) => {
                    return None;
                }
                (Fault::SilentDeletions, Wake::Free { .. })
                    if memory.deletions_to_hide.swap(0, Ordering::Relaxed) > 0 =>
                {
                    return None;
                }
                (Fault::ChoosesAll, Wake::Free { .. }) => Wake::Free { chosen: true },
                (Fault::ChoosesNobody, Wake::Free { .. }) => Wake::Free { chosen: false },
                (_, wake) => wake,
            };
            Some(Hint::Lease { name, wake })
        };
        let hints = SimpleStore::hints(&self.inner)?;
        Some(hints.filter_map(move |hint| std::future::ready(heard(hint))).boxed())
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        match self.fault {
            Fault::WatchesNothing => Ok(()),
            _ => SimpleStore::watch(&self.inner, name).await,
        }
    }

    async fn unwatch(&self, name: LeaseName) {
        if self.fault != Fault::IgnoresUnwatch {
            SimpleStore::unwatch(&self.inner, name).await;
        }
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        let after = after.filter(|_| self.fault != Fault::IgnoresAfter);
        let most = if self.fault == Fault::IgnoresMost { usize::MAX } else { most };
        let mut timers = SimpleStore::timers(&self.inner, after, most).await?;
        if self.fault == Fault::LosesClaimsInLists {
            timers.iter_mut().for_each(|timer| timer.record.claims.clear());
        }
        Ok(timers)
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        self.record_run(report).await
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        let after = after.filter(|_| self.fault != Fault::IgnoresAfter);
        let most = if self.fault == Fault::IgnoresMost { usize::MAX } else { most };
        let mut jobs = SimpleStore::jobs(&self.inner, after, most).await?;
        for job in &mut jobs {
            let runs = self.seen_runs(&job.name).await?;
            job.latest = runs[0].clone();
            job.running = runs.iter().filter(|run| run.state == RunState::Running).count();
        }
        Ok(jobs)
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        self.seen_runs(&job).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        match self.fault {
            Fault::ForgetsNoJobs => Ok(!SimpleStore::runs(&self.inner, job).await?.is_empty()),
            Fault::ForgetsAllJobs => {
                let forgotten = SimpleStore::forget_job(&self.inner, job).await?;
                for other in SimpleStore::jobs(&self.inner, None, usize::MAX).await? {
                    SimpleStore::forget_job(&self.inner, other.name).await?;
                }
                Ok(forgotten)
            }
            _ => SimpleStore::forget_job(&self.inner, job).await,
        }
    }

    async fn close(&self) {
        SimpleStore::close(&self.inner).await;
    }
}
