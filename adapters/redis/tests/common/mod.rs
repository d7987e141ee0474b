//! A server for all tests of a process, and stores on it that share nothing.

#![allow(dead_code, reason = "each test uses some of it")]

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure_redis::RedisStore;
use tenure_servers::{Flavour, Redis};
use tenure_store::conformance::Harness;

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

/// A prefix that nobody else has at any server.
pub fn prefix() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("test-{}", MADE.fetch_add(1, Ordering::Relaxed))
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
