//! What the store keeps, and what each operation does with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use tenure_store::clock;
use tenure_store::core::{
    Identity, Instant, JobName, LeaseName, Owner, Presence, TimerName, Timestamp, Token, Wake,
};
use tenure_store::{
    Acquire, Acquired, DrainMark, Eviction, Fleet, Heartbeat, Holder, JobRecord, KeptRun, LeaseRecord, Leave,
    MemberEntry, Metadata, Release, Released, Renew, Renewed, RunRecord, RunReport, StoreError, StoreTime,
    TimerAnswer, TimerEntry, TimerRecord, TimerRequest,
};

use crate::waiting::{HandleId, Waiting};

/// A waiter tries again at the latest when the TTL that it was told of is over. One that did not come back
/// this long after that is gone or stuck.
const WAITER_GRACE: Duration = Duration::from_secs(5);

/// The owner that no process can have: every owner of ours has a `/` and a `.`.
const EVICTED: &str = "evicted";

/// The leases and who waits for them, the timers, what is kept of jobs, and the members.
#[derive(Debug, Default)]
pub(crate) struct State {
    leases: BTreeMap<LeaseName, Record>,
    /// When each record ends, so that those that are over are found without a scan.
    ends: BTreeSet<(Instant, LeaseName)>,
    /// The highest token that was ever given.
    high_water: Token,
    timers: BTreeMap<TimerName, TimerRecord>,
    /// The runs of each job, the latest first.
    jobs: BTreeMap<JobName, VecDeque<KeptRun>>,
    fleet: Fleet,
    /// The latest time that was read: time does not go back, whatever the clock does.
    now: Instant,
    /// The wall clock, which may.
    wall: Timestamp,
    pub(crate) waiting: Waiting,
}

#[derive(Debug)]
struct Record {
    /// `None` once it was evicted.
    owner: Option<Owner>,
    token: Token,
    ttl: Duration,
    ends: Instant,
    /// The wall clock at the grant.
    granted_at: Timestamp,
    metadata: Metadata,
}

impl Record {
    fn is_of(&self, owner: &Owner, token: Option<Token>) -> bool {
        self.owner.as_ref() == Some(owner) && token.is_none_or(|token| token == self.token)
    }

    fn holder(&self, now: Instant) -> Holder {
        let owner = self.owner.as_ref().map_or_else(|| EVICTED.to_owned(), ToString::to_string);
        let mut holder = Holder::new(owner);
        holder.token = Some(self.token);
        holder.remaining = Some(self.ends.saturating_since(now));
        holder.ttl = Some(self.ttl);
        holder.since = clock::system_time(self.granted_at);
        holder.metadata = self.metadata.clone();
        holder
    }
}

impl State {
    /// Takes note of the time and removes what is over by now. Each record is removed once, so that this
    /// costs as much as the grants did, whatever becomes of the holders.
    pub(crate) fn advance(&mut self, time: StoreTime) {
        self.now = self.now.max(time.now);
        self.wall = time.wall;
        while let Some((ends, name)) = self.ends.first()
            && *ends <= self.now
        {
            self.leases.remove(name);
            self.ends.pop_first();
        }
        self.waiting.expire(self.now);
    }

    pub(crate) fn acquire(&mut self, request: Acquire, handle: HandleId) -> Result<Acquired, StoreError> {
        let Acquire { name, owner, ttl, floor, wait, metadata, timeout: _ } = request;
        if let Some(record) = self.leases.get(&name) {
            if !record.is_of(&owner, None) {
                let holder = record.holder(self.now);
                if wait {
                    self.wait(&name, handle);
                }
                return Ok(Acquired::Held(holder));
            }
            let token = record.token;
            self.extend(&name, ttl);
            return Ok(Acquired::Granted(token));
        }
        let token = next_token(&mut self.high_water, floor, self.wall).map_err(|error| error.about(&name))?;
        let ends = self.now + ttl;
        let record = Record { owner: Some(owner), token, ttl, ends, granted_at: self.wall, metadata };
        self.ends.insert((ends, name.clone()));
        self.leases.insert(name.clone(), record);
        self.waiting.stop_waiting(&name, handle);
        self.waiting.held(&name, handle, Wake::Held { token, ttl });
        Ok(Acquired::Granted(token))
    }

    pub(crate) fn renew(&mut self, request: &Renew) -> Renewed {
        let token = Some(request.token);
        if !self.leases.get(&request.name).is_some_and(|record| record.is_of(&request.owner, token)) {
            return Renewed::NotYours;
        }
        self.extend(&request.name, request.ttl);
        Renewed::Renewed
    }

    fn extend(&mut self, name: &LeaseName, ttl: Duration) {
        let Some(record) = self.leases.get_mut(name) else { return };
        self.ends.remove(&(record.ends, name.clone()));
        record.ttl = ttl;
        record.ends = self.now + ttl;
        self.ends.insert((record.ends, name.clone()));
    }

    pub(crate) fn release(&mut self, request: &Release, handle: HandleId) -> Released {
        let Release { name, owner, token, timeout: _ } = request;
        if !self.leases.get(name).is_some_and(|record| record.is_of(owner, *token)) {
            return Released::NotYours;
        }
        self.remove(name);
        Released::Released { others_chosen: self.waiting.free(name, Some(handle)) }
    }

    fn remove(&mut self, name: &LeaseName) {
        if let Some(record) = self.leases.remove(name) {
            self.ends.remove(&(record.ends, name.clone()));
        }
    }

    pub(crate) fn inspect(&self, name: &LeaseName) -> Option<LeaseRecord> {
        self.leases.get(name).map(|record| LeaseRecord::new(name.clone(), record.holder(self.now)))
    }

    pub(crate) fn list(&self, after: Option<&LeaseName>, most: usize) -> Vec<LeaseRecord> {
        page(&self.leases, after, most)
            .map(|(name, record)| LeaseRecord::new(name.clone(), record.holder(self.now)))
            .collect()
    }

    pub(crate) fn evict(&mut self, name: &LeaseName, how: Eviction) -> Option<LeaseRecord> {
        let evicted = self.inspect(name)?;
        match how {
            Eviction::Replace => {
                if let Some(record) = self.leases.get_mut(name) {
                    record.owner = None;
                }
            }
            Eviction::Delete => {
                self.remove(name);
                self.waiting.free(name, None);
            }
        }
        Some(evicted)
    }

    pub(crate) fn watch(&mut self, name: &LeaseName, handle: HandleId) {
        self.waiting.watch(name, handle);
        self.wait(name, handle);
    }

    fn wait(&mut self, name: &LeaseName, handle: HandleId) {
        let free_at = self.leases.get(name).map_or(self.now, |record| record.ends);
        self.waiting.wait(name, handle, free_at + WAITER_GRACE);
    }

    pub(crate) fn timer(&mut self, request: &TimerRequest) -> Result<TimerAnswer, StoreError> {
        let TimerRequest { name, act, timeout: _ } = request;
        let time = self.time();
        let mut record = self.timers.remove(name);
        let high_water = &mut self.high_water;
        let token = |floor| next_token(high_water, floor, time.wall);
        let answer = TimerRecord::apply(&mut record, act, time, token);
        if let Some(record) = record {
            self.timers.insert(name.clone(), record);
        }
        answer
    }

    pub(crate) fn timers(&self, after: Option<&TimerName>, most: usize) -> Vec<TimerEntry> {
        page(&self.timers, after, most)
            .map(|(name, record)| TimerEntry::new(name.clone(), record.clone(), self.time()))
            .collect()
    }

    pub(crate) fn report(&mut self, report: &RunReport) {
        let time = self.time();
        let runs = self.jobs.entry(report.job.clone()).or_default();
        if let Some(run) = runs.iter_mut().find(|run| run.owner == *report.owner) {
            run.report(report, time);
        } else {
            runs.push_front(KeptRun::new(report, time));
            runs.truncate(RunReport::MOST_RUNS);
        }
    }

    pub(crate) fn jobs(&self, after: Option<&JobName>, most: usize) -> Vec<JobRecord> {
        page(&self.jobs, after, most)
            .filter_map(|(name, _)| JobRecord::of(name.clone(), &self.runs(name)))
            .collect()
    }

    pub(crate) fn runs(&self, job: &JobName) -> Vec<RunRecord> {
        self.jobs.get(job).into_iter().flatten().map(|run| run.record(self.time())).collect()
    }

    pub(crate) fn forget_job(&mut self, job: &JobName) -> bool {
        self.jobs.remove(job).is_some()
    }

    /// Carries a heartbeat out, and tells the others if it changes what they see, or finds that something has.
    pub(crate) fn heartbeat(&mut self, beat: &Heartbeat, handle: HandleId) -> Result<Presence, StoreError> {
        let done = self.fleet.beat(beat, self.time());
        if let Ok((presence, _)) = &done {
            self.waiting.told_members(handle, presence.version);
        }
        self.waiting.members(self.fleet.version());
        done.map(|(presence, _)| presence)
    }

    pub(crate) fn leave(&mut self, leave: &Leave) {
        self.fleet.leave(leave, self.time());
        self.waiting.members(self.fleet.version());
    }

    pub(crate) fn members(&mut self, after: Option<&Identity>, most: usize) -> Vec<MemberEntry> {
        self.fleet.advance(self.time());
        self.waiting.members(self.fleet.version());
        self.fleet.list(after, most, self.time())
    }

    pub(crate) fn mark(&mut self, mark: &DrainMark) -> Vec<Identity> {
        let (concerned, _) = self.fleet.mark(mark, self.time());
        self.waiting.members(self.fleet.version());
        concerned
    }

    const fn time(&self) -> StoreTime {
        StoreTime { wall: self.wall, now: self.now }
    }

    #[cfg(test)]
    pub(crate) fn set_high_water(&mut self, token: Token) {
        self.high_water = token;
    }

    /// Nothing of leases and members is left.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.fleet.is_empty() && self.leases.is_empty() && self.ends.is_empty() && self.waiting.is_empty()
    }
}

/// Above every token before, above the floor, and not below the wall clock: so tokens also rise from one run of the
/// program to the next.
fn next_token(high_water: &mut Token, floor: Token, wall: Timestamp) -> Result<Token, StoreError> {
    let highest = high_water.get().max(floor.get()).max(clock::micros(wall).saturating_sub(1));
    let next = highest.checked_add(1).map(Token::new);
    let token =
        next.ok_or_else(|| StoreError::rejected("no token is left above the highest one that was given"))?;
    *high_water = token;
    Ok(token)
}

/// At most `most` entries after `after`.
fn page<'a, K: Ord, V>(
    map: &'a BTreeMap<K, V>,
    after: Option<&K>,
    most: usize,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    map.range::<K, _>((after, Bound::Unbounded)).take(most)
}
