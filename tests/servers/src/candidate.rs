//! What tests of stores do on whichever server: candidates for leases, operations, hints that are waited for.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use tenure_store::core::{Acquisition, Identity, Incarnation, LeaseName, Owner, Token, Wake};
use tenure_store::{
    Acquire, Acquired, Answer, Hint, Hints, Holder, Metadata, Operation, Outcome, Release, Released, Renew,
    Renewed, Replies, Store, StoreError, clock,
};

use crate::LIMIT;

/// How long an operation may take; the machine may be busy.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Somebody who wants a lease.
#[derive(Debug)]
pub struct Candidate {
    /// The lease.
    pub name: LeaseName,
    /// As whom.
    pub owner: Owner,
    /// For how long.
    pub ttl: Duration,
}

impl Candidate {
    /// Of a process of this number.
    pub fn new(name: &str, process: u128) -> Self {
        let identity = Identity::new("host", Incarnation::new(process)).unwrap();
        let owner = identity.owner(Acquisition(0));
        Self { name: LeaseName::new(name).unwrap(), owner, ttl: Duration::from_secs(60) }
    }

    /// With another TTL than a minute.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// The request for it; it waits.
    pub fn acquire(&self) -> Acquire {
        Acquire {
            name: self.name.clone(),
            owner: self.owner.clone(),
            ttl: self.ttl,
            floor: Token::ZERO,
            wait: true,
            metadata: Metadata::new(),
            timeout: TIMEOUT,
        }
    }

    /// The request to extend this grant.
    pub fn renew(&self, token: Token) -> Renew {
        let Self { name, owner, ttl } = self;
        Renew { name: name.clone(), owner: owner.clone(), token, ttl: *ttl, timeout: TIMEOUT }
    }

    /// The request to end it.
    pub fn release(&self, token: Token) -> Release {
        let Self { name, owner, .. } = self;
        Release { name: name.clone(), owner: owner.clone(), token: Some(token), timeout: TIMEOUT }
    }

    /// Asks once.
    pub async fn tries(&self, store: &impl Store) -> Result<Acquired, StoreError> {
        match run(store, self.acquire().into()).await? {
            Answer::Acquire(answer) => Ok(answer),
            other => panic!("an answer to something else: {other:?}"),
        }
    }

    /// Asks once, and is granted it.
    pub async fn gets(&self, store: &impl Store) -> Token {
        match self.tries(store).await {
            Ok(Acquired::Granted(token)) => token,
            other => panic!("{:?} should be granted, but the answer is {other:?}", self.name),
        }
    }

    /// Asks once, and somebody else has it.
    pub async fn is_refused(&self, store: &impl Store) -> Holder {
        match self.tries(store).await {
            Ok(Acquired::Held(holder)) => holder,
            other => panic!("{:?} should be held, but the answer is {other:?}", self.name),
        }
    }

    /// Extends this grant, or is told that it is over.
    pub async fn renews(&self, store: &impl Store, token: Token) -> Renewed {
        match run(store, self.renew(token).into()).await {
            Ok(Answer::Renew(answer)) => answer,
            other => panic!("renewing {:?} was answered with {other:?}", self.name),
        }
    }

    /// Ends this grant, or is told that it is over.
    pub async fn releases(&self, store: &impl Store, token: Token) -> Released {
        match run(store, self.release(token).into()).await {
            Ok(Answer::Release(answer)) => answer,
            other => panic!("releasing {:?} was answered with {other:?}", self.name),
        }
    }
}

/// What one operation comes to.
pub async fn run(store: &impl Store, operation: Operation) -> Outcome {
    run_batch(store, vec![operation]).await.remove(0)
}

/// What each operation comes to, in their order.
pub async fn run_batch(store: &impl Store, batch: Vec<Operation>) -> Vec<Outcome> {
    let outcomes = Arc::new(Mutex::new(vec![None; batch.len()]));
    let sink = Arc::clone(&outcomes);
    let replies =
        Replies::new(batch.len(), move |index, outcome| sink.lock().unwrap()[index] = Some(outcome));
    store.execute(batch, replies).await;
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
    outcomes.into_iter().map(|outcome| outcome.expect("each operation has an outcome")).collect()
}

/// The next hint that is wanted; others before it are passed over.
pub async fn hears<T>(hints: &mut Hints, what: &str, wanted: impl Fn(&Hint) -> Option<T>) -> T {
    let mut heard = Vec::new();
    let limit = pin!(after(LIMIT));
    let found = pin!(async {
        loop {
            let hint = hints.next().await.expect("the hints go on");
            if let Some(found) = wanted(&hint) {
                return found;
            }
            heard.push(hint);
        }
    });
    match select(found, limit).await {
        Either::Left((found, _)) => found,
        Either::Right(_) => panic!("no hint of {what} in {LIMIT:?}"),
    }
}

/// Whether a hint says that this lease is free, and whether this handle was chosen.
pub fn freed(name: &LeaseName) -> impl Fn(&Hint) -> Option<bool> + '_ {
    move |hint| match hint {
        Hint::Lease { name: of, wake: Wake::Free { chosen } } if of == name => Some(*chosen),
        Hint::Lease { .. } | Hint::Members | Hint::Resync => None,
    }
}

/// Waits until an asynchronous condition holds.
pub async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let limit = clock::now() + LIMIT;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(clock::now() < limit, "waited {LIMIT:?} for {what}");
        after(Duration::from_millis(5)).await;
    }
}

/// A pause in whichever runtime polls.
pub async fn after(time: Duration) {
    if tokio::runtime::Handle::try_current().is_ok() {
        tokio::time::sleep(time).await;
    } else {
        smol::Timer::after(time).await;
    }
}
