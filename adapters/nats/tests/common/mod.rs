//! A server for all tests of a process, and stores on it that share nothing.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses some of it")]

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure_nats::NatsStore;
pub use tenure_servers::candidate::{Candidate, TIMEOUT, after, freed, hears, run, run_batch, until};
use tenure_servers::{Nats, NatsCluster};
use tenure_store::conformance::Harness;

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
