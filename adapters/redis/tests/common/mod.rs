//! A server for all tests of a process, and stores on it that share nothing.

#![allow(dead_code, unreachable_pub, unused_imports, unused_macros, reason = "each test uses some of it")]

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure_redis::RedisStore;
pub use tenure_servers::candidate::{Candidate, TIMEOUT, after, freed, hears, run, run_batch, until};
use tenure_servers::{Cluster, Config, Flavour, Redis, Sentinel};
use tenure_store::conformance::Harness;

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
