//! A store behind a bad network: requests and replies are late or lost, or nothing gets through.
//!
//! The embedded store has no network, so the trouble is put where it would be felt: between a member and its store.
//! The member, the store and what is lost are real.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{FuturesUnordered, StreamExt, unfold};
use tenure::store_contract::{
    Acquired, Answer, DrainMark, Hint, Hints, Operation, Outcome, Released, Renewed, Replies, RunReport,
    Subject, TimerAnswer,
};
use tenure::{
    Eviction, Identity, JobName, JobRecord, LeaseName, LeaseRecord, Limits, MemberEntry, RunRecord,
    SqliteStore, Store, StoreError, TimerEntry, TimerName,
};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::demo::notes::{HELD_BACK, LATE_EXECUTED, LATE_REFUSED, note};

/// What the network is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Everything gets through.
    Clear,
    /// Of each lease's requests every second one has bad luck, see [`Fate`]; the others are slow.
    Bad,
    /// Nothing gets through. What is sent arrives once it is over, however late.
    Cut,
}

impl Weather {
    /// Its name, by which a member is told of it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Bad => "bad",
            Self::Cut => "cut",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Clear, Self::Bad, Self::Cut].into_iter().find(|weather| weather.name() == name)
    }
}

/// What becomes of a request in bad weather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It takes a quarter of its timeout to the store, and its reply as long back.
    Slow,
    /// The store executes it, and the reply comes after its timeout.
    LateReply,
    /// The store executes it, and the reply is lost.
    LostReply,
    /// It is lost.
    LostRequest,
}

impl Fate {
    /// In turn. Never two of bad luck in a row: a lease is to survive this.
    const CYCLE: [Self; 6] =
        [Self::Slow, Self::LateReply, Self::Slow, Self::LostReply, Self::Slow, Self::LostRequest];

    /// Its name, in the notes of the member that suffers it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::LateReply => "late-reply",
            Self::LostReply => "lost-reply",
            Self::LostRequest => "lost-request",
        }
    }
}

/// The embedded store, seen through a network.
pub(crate) struct Troubled {
    store: SqliteStore,
    weather: watch::Receiver<Weather>,
    /// How many requests about each lease or timer bad weather has seen.
    requests: Mutex<BTreeMap<String, usize>>,
    /// How many requests are held back.
    held_back: Arc<AtomicU64>,
}

impl Troubled {
    pub(crate) fn new(store: SqliteStore, weather: watch::Receiver<Weather>) -> Self {
        Self { store, weather, requests: Mutex::default(), held_back: Arc::default() }
    }

    fn weather(&self) -> Weather {
        *self.weather.borrow()
    }

    /// Carries one operation to the store, and its outcome back.
    async fn carry(&self, operation: Operation) -> Outcome {
        let timeout = operation.timeout();
        let lost = || StoreError::unknown("the network brought no reply").about(operation.subject());
        match self.weather() {
            Weather::Clear => execute(&self.store, operation).await,
            Weather::Cut => {
                let lost = lost();
                self.hold_back(operation);
                sleep(timeout).await;
                Err(lost)
            }
            Weather::Bad => {
                let (fate, lost) = (self.fate(name(&operation)), lost());
                note(fate.name(), name(&operation));
                match fate {
                    Fate::Slow => {
                        sleep(timeout / 4).await;
                        let outcome = execute(&self.store, operation).await;
                        sleep(timeout / 4).await;
                        outcome
                    }
                    Fate::LateReply => {
                        let outcome = execute(&self.store, operation).await;
                        sleep(timeout * 3 / 2).await;
                        outcome
                    }
                    Fate::LostReply => {
                        let _ = execute(&self.store, operation).await;
                        sleep(timeout).await;
                        Err(lost)
                    }
                    Fate::LostRequest => {
                        sleep(timeout).await;
                        Err(lost)
                    }
                }
            }
        }
    }

    fn fate(&self, subject: &str) -> Fate {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let count = requests.entry(subject.to_owned()).or_default();
        let fate = Fate::CYCLE[*count % Fate::CYCLE.len()];
        *count += 1;
        fate
    }

    /// Lets an operation arrive when the network is there again. Nobody waits for its outcome any more.
    fn hold_back(&self, operation: Operation) {
        /// The network's memory: what comes beyond is lost.
        const MOST: u64 = 64;
        if self.held_back.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.held_back.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (store, held_back) = (self.store.clone(), Arc::clone(&self.held_back));
        let mut weather = self.weather.clone();
        let name = name(&operation).to_owned();
        note(HELD_BACK, &name);
        tokio::spawn(async move {
            let _ = weather.wait_for(|weather| *weather != Weather::Cut).await;
            let outcome = execute(&store, operation).await;
            held_back.fetch_sub(1, Ordering::Relaxed);
            note(if did_something(&outcome) { LATE_EXECUTED } else { LATE_REFUSED }, &name);
        });
    }

    /// Waits until something gets through.
    async fn reach(&self) {
        let _ = self.weather.clone().wait_for(|weather| *weather != Weather::Cut).await;
    }
}

/// The name of the lease, the timer or the instance.
fn name(operation: &Operation) -> &str {
    match operation.subject() {
        Subject::Lease(name) => name.as_str(),
        Subject::Timer(name) => name.as_str(),
        Subject::Member(identity) => identity.instance(),
    }
}

/// Has the store execute one operation.
async fn execute(store: &SqliteStore, operation: Operation) -> Outcome {
    let (sender, outcome) = oneshot::channel();
    let mut sender = Some(sender);
    let replies = Replies::new(1, move |_, outcome| {
        if let Some(sender) = sender.take() {
            let _ = sender.send(outcome);
        }
    });
    store.execute(vec![operation], replies).await;
    outcome.await.unwrap_or_else(|_| Err(StoreError::unknown("the store gave no answer")))
}

fn did_something(outcome: &Outcome) -> bool {
    match outcome {
        Ok(Answer::Acquire(Acquired::Granted(_)) | Answer::Renew(Renewed::Renewed)) => true,
        Ok(Answer::Release(Released::Released { .. })) => true,
        Ok(Answer::Acquire(Acquired::Held(_)) | Answer::Renew(Renewed::NotYours)) => false,
        Ok(Answer::Release(Released::NotYours)) => false,
        Ok(Answer::Timer(answer)) => match answer {
            TimerAnswer::Read { .. } | TimerAnswer::Granted(_) => true,
            TimerAnswer::Renewed | TimerAnswer::Removed => true,
            TimerAnswer::Held { .. } | TimerAnswer::Taken | TimerAnswer::Overlaps => false,
            TimerAnswer::Gone | TimerAnswer::NotYours => false,
        },
        Ok(Answer::Heartbeat(_) | Answer::Leave) => true,
        Err(_) => false,
    }
}

impl Store for Troubled {
    fn limits(&self) -> Limits {
        self.store.limits()
    }

    async fn execute(&self, batch: Vec<Operation>, mut replies: Replies) {
        if self.weather() == Weather::Clear {
            return self.store.execute(batch, replies).await;
        }
        // Those on one lease may overtake each other: networks do that.
        let carry = |(index, operation)| async move { (index, self.carry(operation).await) };
        let mut carried: FuturesUnordered<_> = batch.into_iter().enumerate().map(carry).collect();
        while let Some((index, outcome)) = carried.next().await {
            replies.deliver(index, outcome);
        }
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        self.reach().await;
        self.store.inspect(name).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        self.reach().await;
        self.store.list(after, most).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        self.reach().await;
        self.store.evict(name, how).await
    }

    fn hints(&self) -> Option<Hints> {
        let hints = (self.store.hints()?, self.weather.clone());
        Some(Box::pin(unfold(hints, async |(mut hints, mut weather)| {
            loop {
                tokio::select! {
                    hint = hints.next() => {
                        let hint = hint?;
                        if *weather.borrow() != Weather::Cut {
                            return Some((hint, (hints, weather)));
                        }
                    }
                    // Some may be missing.
                    Ok(()) = weather.changed() => return Some((Hint::Resync, (hints, weather))),
                }
            }
        })))
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        self.reach().await;
        self.store.watch(name).await
    }

    async fn unwatch(&self, name: LeaseName) {
        self.reach().await;
        self.store.unwatch(name).await;
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        self.reach().await;
        self.store.timers(after, most).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        self.reach().await;
        self.store.report(report).await
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        self.reach().await;
        self.store.jobs(after, most).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        self.reach().await;
        self.store.runs(job).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        self.reach().await;
        self.store.forget_job(job).await
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        self.reach().await;
        self.store.members(after, most).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        self.reach().await;
        self.store.mark(mark).await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_luck_never_comes_twice_in_a_row() {
        let cycle = Fate::CYCLE.iter().chain(&Fate::CYCLE[..1]).collect::<Vec<_>>();
        assert!(cycle.windows(2).all(|pair| pair.contains(&&Fate::Slow)), "{cycle:?}");
        for fate in [Fate::Slow, Fate::LateReply, Fate::LostReply, Fate::LostRequest] {
            assert!(Fate::CYCLE.contains(&fate), "{fate:?} never happens");
        }
    }

    #[test]
    fn the_weather_is_told_by_its_name() {
        for weather in [Weather::Clear, Weather::Bad, Weather::Cut] {
            assert_eq!(Weather::parse(weather.name()), Some(weather));
        }
        assert_eq!(Weather::parse("fog"), None);
    }
}
