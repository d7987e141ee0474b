//! What the properties are written with: candidates that acquire, renew and release, and their wants.

use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use tenure_core::{
    Acquisition, Identity, Incarnation, Instant, LeaseConfig, LeaseName, LeaseTiming, Owner, Token,
};

use super::Harness;
use crate::{
    Acquire, Acquired, Answer, Holder, Limits, Metadata, Operation, Outcome, Release, Released, Renew,
    Renewed, Replies, Store,
};

/// No request of a property is in a hurry.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// How much longer than expected something may take before the store fails the property: machines that run
/// tests are slow at times, and no property asks for speed.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A TTL that does not run out during a property.
pub(super) fn long_ttl(store: &impl Store) -> Duration {
    let Limits { min_ttl, max_ttl, .. } = store.limits();
    Duration::from_secs(60).min(max_ttl).max(min_ttl)
}

/// A TTL to wait for.
pub(super) fn short_ttl<H: Harness>(store: &H::Store) -> Duration {
    H::TTL.max(store.limits().min_ttl)
}

/// How long a holder relies on such a TTL at this store, and when it is certainly over.
pub(super) fn timing(store: &impl Store, ttl: Duration) -> LeaseTiming {
    match LeaseConfig::new(ttl).resolve(&store.limits().clock) {
        Ok(timing) => timing,
        Err(error) => panic!("a TTL of {ttl:?} does not suit the store's clock: {error}"),
    }
}

pub(super) fn lease(name: impl AsRef<str>) -> LeaseName {
    let name = name.as_ref();
    LeaseName::new(name).unwrap_or_else(|error| panic!("{name:?} is no name: {error}"))
}

/// One acquisition of a process, or of what would be one.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) name: LeaseName,
    pub(super) owner: Owner,
    ttl: Duration,
}

impl Candidate {
    /// Acquisition `n` of the process with this number.
    pub(super) fn new(name: &LeaseName, process: u16, n: u64, ttl: Duration) -> Self {
        let identity = Identity::new(format!("host:{process}"), Incarnation::new(u128::from(process) << 64))
            .unwrap_or_else(|error| panic!("{error}"));
        Self { name: name.clone(), owner: identity.owner(Acquisition(n)), ttl }
    }

    pub(super) fn with_ttl(&self, ttl: Duration) -> Self {
        Self { ttl, ..self.clone() }
    }

    /// The same acquisition of a process of the same name that was started again.
    pub(super) fn restarted(&self) -> Self {
        let identity = self.owner.identity();
        let incarnation = Incarnation::new(identity.incarnation().as_u128() + 1);
        let identity = Identity::new(identity.instance(), incarnation).expect("the name is one already");
        Self { owner: identity.owner(self.owner.acquisition()), ..self.clone() }
    }

    pub(super) fn acquire(&self) -> Acquire {
        Acquire {
            name: self.name.clone(),
            owner: self.owner.clone(),
            ttl: self.ttl,
            floor: Token::ZERO,
            wait: false,
            metadata: Metadata::new(),
            timeout: TIMEOUT,
        }
    }

    pub(super) fn renew(&self, token: Token) -> Renew {
        let (name, owner) = (self.name.clone(), self.owner.clone());
        Renew { name, owner, token, ttl: self.ttl, timeout: TIMEOUT }
    }

    pub(super) fn release(&self, token: Option<Token>) -> Release {
        Release { name: self.name.clone(), owner: self.owner.clone(), token, timeout: TIMEOUT }
    }

    /// Acquires the lease, which is free or its own.
    pub(super) async fn gets(&self, store: &impl Store) -> Token {
        match run(store, self.acquire()).await {
            Ok(Answer::Acquire(Acquired::Granted(token))) => token,
            other => {
                panic!("{:?} should be granted to {}, but the answer is {other:?}", self.name, self.owner)
            }
        }
    }

    /// Asks for the lease, which another owner holds.
    pub(super) async fn is_refused(&self, store: &impl Store) -> Holder {
        match run(store, self.acquire()).await {
            Ok(Answer::Acquire(Acquired::Held(holder))) => holder,
            other => {
                panic!("{:?} should be refused to {}, but the answer is {other:?}", self.name, self.owner)
            }
        }
    }

    pub(super) async fn renews(&self, store: &impl Store, token: Token) -> Renewed {
        match run(store, self.renew(token)).await {
            Ok(Answer::Renew(answer)) => answer,
            other => panic!("renewing {:?} for {} was answered with {other:?}", self.name, self.owner),
        }
    }

    pub(super) async fn releases(&self, store: &impl Store, token: Option<Token>) -> Released {
        match run(store, self.release(token)).await {
            Ok(Answer::Release(answer)) => answer,
            other => panic!("releasing {:?} for {} was answered with {other:?}", self.name, self.owner),
        }
    }

    /// Gives back the lease, which is its own.
    pub(super) async fn gives_back(&self, store: &impl Store, token: Token) -> Released {
        let answer = self.releases(store, Some(token)).await;
        assert_ne!(answer, Released::NotYours, "{} holds {:?} with token {token}", self.owner, self.name);
        answer
    }

    /// Tries until the lease is granted, which must happen by itself. Returns the token, and when the grant
    /// was known.
    pub(super) async fn takes_over<H: Harness>(&self, h: &H, store: &H::Store) -> (Token, Instant) {
        let outlived = timing(store, short_ttl::<H>(store)).outlived_after();
        let limit = h.now() + outlived + PATIENCE;
        loop {
            match run(store, self.acquire()).await {
                Ok(Answer::Acquire(Acquired::Granted(token))) => return (token, h.now()),
                Ok(Answer::Acquire(Acquired::Held(holder))) => {
                    assert!(h.now() < limit, "{:?} did not expire in {outlived:?}: {holder:?}", self.name);
                }
                other => panic!("acquiring {:?} was answered with {other:?}", self.name),
            }
            h.pass(outlived / 50).await;
        }
    }
}

/// Waits until nobody holds the lease, without touching it.
pub(super) async fn until_over<H: Harness>(h: &H, store: &H::Store, name: &LeaseName) {
    let outlived = timing(store, short_ttl::<H>(store)).outlived_after();
    let limit = h.now() + outlived + PATIENCE;
    while let Some(record) = store.inspect(name.clone()).await.expect("inspecting works") {
        assert!(h.now() < limit, "{name:?} did not expire in {outlived:?}: {record:?}");
        h.pass(outlived / 50).await;
    }
}

/// Carries out one operation.
pub(super) async fn run(store: &impl Store, operation: impl Into<Operation>) -> Outcome {
    run_batch(store, vec![operation.into()]).await.remove(0)
}

/// Carries out a batch and gives the outcome of each operation.
pub(super) async fn run_batch(store: &impl Store, batch: Vec<Operation>) -> Vec<Outcome> {
    let operations = batch.len();
    let (deliver, delivered) = mpsc::unbounded();
    let replies = Replies::new(operations, move |index, outcome| {
        // The other end is there until the last outcome has come.
        drop(deliver.unbounded_send((index, outcome)));
    });
    store.execute(batch, replies).await;
    let mut outcomes: Vec<(usize, Outcome)> = delivered.collect().await;
    outcomes.sort_by_key(|(index, _)| *index);
    assert!(
        outcomes.iter().map(|(index, _)| *index).eq(0..operations),
        "one outcome for each of {operations} operations: {outcomes:?}"
    );
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

pub(super) fn granted(outcome: &Outcome) -> Token {
    match outcome {
        Ok(Answer::Acquire(Acquired::Granted(token))) => *token,
        other => panic!("the lease should be granted, but the answer is {other:?}"),
    }
}

pub(super) fn held(outcome: Outcome) -> Holder {
    match outcome {
        Ok(Answer::Acquire(Acquired::Held(holder))) => holder,
        other => panic!("the lease should be held by another, but the answer is {other:?}"),
    }
}
