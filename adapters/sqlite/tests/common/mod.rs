//! What the tests of this folder share.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::{Either, select};
use tenure_sqlite::SqliteStore;
use tenure_store::core::{
    Acquisition, ClaimEnd, Identity, Incarnation, JobName, Labels, LeaseName, Overlap, Owner, Presence,
    TimerName, TimerView, Token,
};
use tenure_store::{
    Acquire, Acquired, Answer, Heartbeat, Holder, Metadata, Operation, Outcome, Release, Released, Renew,
    Renewed, Replies, RunRecord, RunReport, Store, StoreError, TickClaim, TimerAct, TimerAnswer,
    TimerRequest,
};

/// Long enough for a machine under load; nothing waits this long when all is well.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A folder for a store, removed at the end.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.path().join("leases.db")
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(self.database()).unwrap()
    }
}

pub(crate) fn name(text: &str) -> LeaseName {
    LeaseName::new(text).unwrap()
}

/// The owner of acquisition `n` of process `process`.
pub(crate) fn owner(process: u64, n: u64) -> Owner {
    Identity::new(format!("test-{process}"), Incarnation::new(u128::from(process)))
        .unwrap()
        .owner(Acquisition(n))
}

pub(crate) fn acquire(lease: &str, owner: Owner, ttl: Duration) -> Acquire {
    Acquire {
        name: name(lease),
        owner,
        ttl,
        floor: Token::ZERO,
        wait: false,
        metadata: Metadata::new(),
        timeout: LIMIT,
    }
}

/// All outcomes of a batch.
pub(crate) fn execute(store: &SqliteStore, batch: Vec<Operation>) -> Vec<Outcome> {
    let outcomes = Arc::new(Mutex::new(vec![None; batch.len()]));
    let sink = Arc::clone(&outcomes);
    let replies = Replies::new(batch.len(), move |index, outcome| {
        let before = sink.lock().unwrap()[index].replace(outcome);
        assert!(before.is_none(), "one outcome each");
    });
    block_on(store.execute(batch, replies));
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
    outcomes.into_iter().map(|outcome| outcome.expect("every operation has an outcome")).collect()
}

pub(crate) fn try_acquire(store: &SqliteStore, request: Acquire) -> Result<Acquired, StoreError> {
    match execute(store, vec![Operation::Acquire(request)]).remove(0)? {
        Answer::Acquire(acquired) => Ok(acquired),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn granted(store: &SqliteStore, lease: &str, owner: Owner, ttl: Duration) -> Token {
    match try_acquire(store, acquire(lease, owner, ttl)) {
        Ok(Acquired::Granted(token)) => token,
        other => panic!("{lease}: {other:?}"),
    }
}

pub(crate) fn held(store: &SqliteStore, lease: &str, owner: Owner, ttl: Duration) -> Holder {
    match try_acquire(store, acquire(lease, owner, ttl)) {
        Ok(Acquired::Held(holder)) => holder,
        other => panic!("{lease}: {other:?}"),
    }
}

pub(crate) fn renew(
    store: &SqliteStore,
    lease: &str,
    owner: Owner,
    token: Token,
    ttl: Duration,
) -> Result<Renewed, StoreError> {
    let request = Renew { name: name(lease), owner, token, ttl, timeout: LIMIT };
    match execute(store, vec![Operation::Renew(request)]).remove(0)? {
        Answer::Renew(renewed) => Ok(renewed),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn release(
    store: &SqliteStore,
    lease: &str,
    owner: Owner,
    token: Option<Token>,
) -> Result<Released, StoreError> {
    let request = Release { name: name(lease), owner, token, timeout: LIMIT };
    match execute(store, vec![Operation::Release(request)]).remove(0)? {
        Answer::Release(released) => Ok(released),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn timer_name(text: &str) -> TimerName {
    TimerName::new(text).unwrap()
}

pub(crate) fn timer(store: &SqliteStore, name: &str, act: TimerAct) -> Result<TimerAnswer, StoreError> {
    let request = TimerRequest { name: timer_name(name), act, timeout: LIMIT };
    match execute(store, vec![Operation::Timer(request)]).remove(0)? {
        Answer::Timer(answer) => Ok(answer),
        other => panic!("{other:?}"),
    }
}

pub(crate) const READ: &str = "every 3600s";

pub(crate) fn read_timer(store: &SqliteStore, name: &str) -> TimerView {
    match timer(store, name, TimerAct::Read { schedule: READ.into(), last: None }) {
        Ok(TimerAnswer::Read { view, .. }) => view,
        other => panic!("{name}: {other:?}"),
    }
}

/// Claims a tick of which two runs may be begun.
pub(crate) fn claim(store: &SqliteStore, name: &str, tick: u64, owner: Owner, ttl: Duration) -> TimerAnswer {
    let (overlap, metadata) = (Overlap::Skip, Metadata::new());
    let claim = TickClaim { tick, owner, ttl, floor: Token::ZERO, attempts: 2, overlap, metadata };
    timer(store, name, TimerAct::Claim(claim)).unwrap()
}

pub(crate) fn claimed(store: &SqliteStore, name: &str, tick: u64, owner: Owner, ttl: Duration) -> Token {
    match claim(store, name, tick, owner, ttl) {
        TimerAnswer::Granted(token) => token,
        other => panic!("{name}: {other:?}"),
    }
}

pub(crate) fn renew_claim(
    store: &SqliteStore,
    name: &str,
    tick: u64,
    owner: Owner,
    token: Token,
) -> TimerAnswer {
    timer(store, name, TimerAct::Renew { tick, owner, token, ttl: LIMIT }).unwrap()
}

pub(crate) fn finish(store: &SqliteStore, name: &str, tick: u64, owner: Owner, end: ClaimEnd) -> TimerAnswer {
    timer(store, name, TimerAct::Finish { tick, owner, token: None, end }).unwrap()
}

/// Heartbeat `n` of process `process` of the instance of this name.
pub(crate) fn beat(name: &str, process: u64, n: u64, ttl: Duration) -> Heartbeat {
    Heartbeat {
        identity: identity(name, process),
        sequence: n,
        joined: None,
        draining: false,
        marked: false,
        digests: [].into(),
        labels: Labels::default(),
        known: None,
        ttl,
        metadata: Metadata::new(),
        timeout: LIMIT,
    }
}

pub(crate) fn identity(name: &str, process: u64) -> Identity {
    Identity::new(name, Incarnation::new(u128::from(process))).unwrap()
}

pub(crate) fn try_beat(store: &SqliteStore, beat: Heartbeat) -> Result<Presence, StoreError> {
    match execute(store, vec![beat.into()]).remove(0)? {
        Answer::Heartbeat(presence) => Ok(presence),
        other => panic!("{other:?}"),
    }
}

/// The instances that the answer to this heartbeat shows.
pub(crate) fn seen(store: &SqliteStore, beat: Heartbeat) -> Vec<Identity> {
    let members = try_beat(store, beat).unwrap().members.expect("the whole view");
    members.iter().map(|member| member.identity.clone()).collect()
}

pub(crate) fn members(store: &SqliteStore) -> Vec<Identity> {
    let listed = block_on(store.members(None, 1000)).unwrap();
    listed.into_iter().map(|entry| entry.member.identity).collect()
}

pub(crate) fn job_name(text: &str) -> JobName {
    JobName::new(text).unwrap()
}

pub(crate) fn report(store: &SqliteStore, job: &str, owner: &Owner, ttl: Duration) {
    let report = RunReport::new(job_name(job), owner.to_string(), ttl, LIMIT);
    block_on(store.report(report)).unwrap();
}

pub(crate) fn runs(store: &SqliteStore, job: &str) -> Vec<RunRecord> {
    block_on(store.runs(job_name(job))).unwrap()
}

/// Waits for something, but not for ever.
pub(crate) fn within<F: Future>(future: F) -> F::Output {
    let (over, limit) = futures::channel::oneshot::channel::<()>();
    std::thread::spawn(move || {
        std::thread::sleep(LIMIT);
        drop(over);
    });
    match block_on(select(std::pin::pin!(future), limit)) {
        Either::Left((output, _)) => output,
        Either::Right(_) => panic!("nothing came within {LIMIT:?}"),
    }
}

/// Looks until it is so.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = std::time::SystemTime::now();
    while !condition() {
        assert!(begun.elapsed().unwrap_or_default() < LIMIT, "still not so: {what}");
        std::thread::yield_now();
    }
}
