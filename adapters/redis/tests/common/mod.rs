//! A server for all tests of a process, and stores on it that share nothing.

#![allow(dead_code, unreachable_pub, unused_macros, reason = "each test uses some of it")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use tenure_redis::RedisStore;
use tenure_servers::{Cluster, Config, Flavour, LIMIT, Redis, Sentinel};
use tenure_store::conformance::Harness;
use tenure_store::core::{Acquisition, Identity, Incarnation, LeaseName, Owner, Token, Wake};
use tenure_store::{
    Acquire, Acquired, Answer, Hint, Hints, Holder, Metadata, Operation, Outcome, Release, Released, Renew,
    Renewed, Replies, Store, StoreError, clock,
};

/// How long an operation may take; the machine may be busy.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A test on Redis and on Valkey for each of these functions, which take the flavour.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod needs_redis {
            $(#[test] #[ignore = "needs redis"] fn $test() { super::$test(tenure_servers::Flavour::Redis); })*
        }
        mod needs_valkey {
            $(#[test] #[ignore = "needs valkey"] fn $test() { super::$test(tenure_servers::Flavour::Valkey); })*
        }
    };
}

/// The server of this flavour that all tests of this process share; it ends with the last of those that use it.
pub fn shared(flavour: Flavour) -> Arc<Redis> {
    static REDIS: Mutex<Weak<Redis>> = Mutex::new(Weak::new());
    static VALKEY: Mutex<Weak<Redis>> = Mutex::new(Weak::new());
    let shared = match flavour {
        Flavour::Valkey => &VALKEY,
        _ => &REDIS,
    };
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Redis::of(flavour));
        *shared = Arc::downgrade(&server);
        server
    })
}

/// The Cluster of three of this flavour that all tests of this process share, like [`shared`].
pub fn shared_cluster(flavour: Flavour) -> Arc<Cluster> {
    static REDIS: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    static VALKEY: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let shared = match flavour {
        Flavour::Valkey => &VALKEY,
        _ => &REDIS,
    };
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Cluster::with(&Config::new().flavour(flavour), 3, 0));
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

/// The primary and the replica, with their Sentinels, that all tests of this process share, like [`shared`].
pub fn shared_sentinel() -> Arc<Sentinel> {
    static SENTINEL: Mutex<Weak<Sentinel>> = Mutex::new(Weak::new());
    let mut shared = SENTINEL.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let sentinel = Arc::new(Sentinel::start());
        *shared = Arc::downgrade(&sentinel);
        sentinel
    })
}

/// A prefix that nobody else has at any server, and that no other one begins with: tests look for the keys that begin with it.
pub fn prefix() -> String {
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

    /// Those that the library was built for, Tokio always among them: without it, futures are polled there all the same.
    pub fn each() -> Vec<Self> {
        let mut each = vec![Self::tokio()];
        each.extend(cfg!(feature = "smol").then_some(Self::Smol));
        each
    }

    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self {
            Self::Tokio(runtime) => runtime.block_on(future),
            Self::Smol => smol::block_on(future),
        }
    }
}

/// Stores at a URL, each with a prefix of its own; `server` is what must live as long.
pub struct At<S> {
    pub runtime: Runtime,
    pub url: String,
    pub server: S,
}

impl At<Arc<Redis>> {
    /// On the server that all share.
    pub fn shared(runtime: Runtime, flavour: Flavour) -> Self {
        let server = shared(flavour);
        Self { runtime, url: server.url(), server }
    }
}

impl At<Arc<Cluster>> {
    /// On the Cluster that all share.
    pub fn shared_cluster(runtime: Runtime, flavour: Flavour) -> Self {
        let server = shared_cluster(flavour);
        Self { runtime, url: server.nodes()[0].url(), server }
    }
}

impl At<Arc<Sentinel>> {
    /// On the primary that all share, as Sentinels name it.
    pub fn shared_sentinel(runtime: Runtime) -> Self {
        let server = shared_sentinel();
        let sentinels: Vec<_> =
            server.sentinel_ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let url = format!("redis+sentinel://{}/{}", sentinels.join(","), server.name());
        Self { runtime, url, server }
    }
}

impl<S> At<S> {
    pub fn open(&self, prefix: &str) -> RedisStore {
        RedisStore::from_url(&format!("{}?prefix={prefix}", self.url)).unwrap()
    }
}

impl<S> Harness for At<S> {
    type Store = RedisStore;

    const TTL: Duration = Duration::from_millis(400);

    fn block_on<F: Future>(&self, property: F) -> F::Output {
        self.runtime.block_on(property)
    }

    async fn fresh(&self) -> RedisStore {
        self.open(&prefix())
    }

    async fn handle(&self, store: &RedisStore) -> RedisStore {
        RedisStore::new(store.options().clone())
    }

    async fn reopen(&self, store: RedisStore) -> RedisStore {
        RedisStore::new(store.options().clone())
    }
}

/// A server of its own, which is started again whenever its stores are opened again.
pub struct Restarted(pub At<Redis>);

impl Harness for Restarted {
    type Store = RedisStore;

    const TTL: Duration = At::<Redis>::TTL;

    fn block_on<F: Future>(&self, property: F) -> F::Output {
        self.0.block_on(property)
    }

    async fn fresh(&self) -> RedisStore {
        self.0.fresh().await
    }

    async fn handle(&self, store: &RedisStore) -> RedisStore {
        self.0.handle(store).await
    }

    async fn reopen(&self, store: RedisStore) -> RedisStore {
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
