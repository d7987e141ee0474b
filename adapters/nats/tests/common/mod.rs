//! A server for all tests of a process, and stores on it that share nothing.

#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use tenure_nats::NatsStore;
use tenure_servers::{LIMIT, Nats, NatsCluster};
use tenure_store::conformance::Harness;
use tenure_store::core::{Acquisition, Identity, Incarnation, LeaseName, Owner, Token, Wake};
use tenure_store::{
    Acquire, Acquired, Answer, Hint, Hints, Holder, Metadata, Operation, Outcome, Release, Released, Renew,
    Renewed, Replies, Store, StoreError, clock,
};

/// How long an operation may take; the machine may be busy.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The server that all tests of this process share; it ends with the last of those that use it.
pub fn shared() -> Arc<Nats> {
    static SHARED: Mutex<Weak<Nats>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Nats::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// The three that all tests of this process share, like [`shared`].
pub fn shared_cluster() -> Arc<NatsCluster> {
    static SHARED: Mutex<Weak<NatsCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(NatsCluster::start());
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

/// A bucket that nobody else has at any server.
pub fn bucket() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("test-{:06}", MADE.fetch_add(1, Ordering::Relaxed))
}

/// What polls the futures of the library.
pub enum Runtime {
    Tokio(tokio::runtime::Runtime),
    Smol,
}

impl Runtime {
    pub fn tokio() -> Self {
        Self::Tokio(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
    }

    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self {
            Self::Tokio(runtime) => runtime.block_on(future),
            Self::Smol => smol::block_on(future),
        }
    }
}

/// Stores at a URL, each with a bucket of its own; `server` is what must live as long.
pub struct At<S> {
    pub runtime: Runtime,
    pub url: String,
    pub replicas: u8,
    pub server: S,
}

impl At<Arc<Nats>> {
    /// On the server that all share.
    pub fn shared(runtime: Runtime) -> Self {
        let server = shared();
        Self { runtime, url: server.url(), replicas: 1, server }
    }
}

impl At<Arc<NatsCluster>> {
    /// On the three that all share.
    pub fn shared_cluster(runtime: Runtime) -> Self {
        let server = shared_cluster();
        Self { runtime, url: server.url(), replicas: 3, server }
    }
}

impl<S> At<S> {
    pub fn open(&self, bucket: &str) -> NatsStore {
        let Self { url, replicas, .. } = self;
        let url = format!("{url}?bucket={bucket}&replicas={replicas}&connect_timeout=20s");
        NatsStore::from_url(&url).unwrap()
    }
}

impl<S> Harness for At<S> {
    type Store = NatsStore;

    const TTL: Duration = Duration::from_secs(1);

    fn block_on<F: Future>(&self, property: F) -> F::Output {
        self.runtime.block_on(property)
    }

    async fn fresh(&self) -> NatsStore {
        self.open(&bucket())
    }

    async fn handle(&self, store: &NatsStore) -> NatsStore {
        NatsStore::new(store.options().clone())
    }

    async fn reopen(&self, store: NatsStore) -> NatsStore {
        NatsStore::new(store.options().clone())
    }
}

/// A server of its own, which is started again whenever its stores are opened again.
pub struct Restarted(pub At<Nats>);

impl Harness for Restarted {
    type Store = NatsStore;

    const TTL: Duration = At::<Nats>::TTL;

    fn block_on<F: Future>(&self, property: F) -> F::Output {
        self.0.block_on(property)
    }

    async fn fresh(&self) -> NatsStore {
        self.0.fresh().await
    }

    async fn handle(&self, store: &NatsStore) -> NatsStore {
        self.0.handle(store).await
    }

    async fn reopen(&self, store: NatsStore) -> NatsStore {
        self.0.server.stop();
        self.0.server.restart();
        self.0.reopen(store).await
    }
}

/// Somebody who wants a lease.
pub struct Candidate {
    pub name: LeaseName,
    pub owner: Owner,
    pub ttl: Duration,
}

impl Candidate {
    /// Of a process of this number.
    pub fn new(name: &str, process: u128) -> Self {
        let identity = Identity::new("host", Incarnation::new(process)).unwrap();
        let owner = identity.owner(Acquisition(0));
        Self { name: LeaseName::new(name).unwrap(), owner, ttl: Duration::from_secs(60) }
    }

    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

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

    pub fn renew(&self, token: Token) -> Renew {
        let Self { name, owner, ttl } = self;
        Renew { name: name.clone(), owner: owner.clone(), token, ttl: *ttl, timeout: TIMEOUT }
    }

    pub fn release(&self, token: Token) -> Release {
        let Self { name, owner, .. } = self;
        Release { name: name.clone(), owner: owner.clone(), token: Some(token), timeout: TIMEOUT }
    }

    pub async fn tries(&self, store: &impl Store) -> Result<Acquired, StoreError> {
        match run(store, self.acquire().into()).await? {
            Answer::Acquire(answer) => Ok(answer),
            other => panic!("an answer to something else: {other:?}"),
        }
    }

    pub async fn gets(&self, store: &impl Store) -> Token {
        match self.tries(store).await {
            Ok(Acquired::Granted(token)) => token,
            other => panic!("{:?} should be granted, but the answer is {other:?}", self.name),
        }
    }

    pub async fn is_refused(&self, store: &impl Store) -> Holder {
        match self.tries(store).await {
            Ok(Acquired::Held(holder)) => holder,
            other => panic!("{:?} should be held, but the answer is {other:?}", self.name),
        }
    }

    pub async fn renews(&self, store: &impl Store, token: Token) -> Renewed {
        match run(store, self.renew(token).into()).await {
            Ok(Answer::Renew(answer)) => answer,
            other => panic!("renewing {:?} was answered with {other:?}", self.name),
        }
    }

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
