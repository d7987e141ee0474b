//! The store that all instances share, and what is wrong with it.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tenure_driver::Runtime;
use tenure_driver::core::{Instant, Timestamp};
use tenure_driver::store_contract::{LeaseRecord, SimpleStore};
use tenure_driver::testing::TestRuntime;
use tenure_memory::MemoryStore;

/// The store, on the time of the test.
pub(crate) struct Server {
    /// What is on its way between instances and store runs here: it arrives though who sent it has crashed.
    network: TestRuntime,
    wall: Arc<Wall>,
    store: Mutex<MemoryStore>,
    /// Rises with each store that takes the place of one that was wiped.
    age: AtomicU64,
    down: AtomicBool,
}

impl Server {
    pub(crate) fn new(network: TestRuntime) -> Self {
        let wall = Arc::new(Wall { runtime: network.clone(), at_zero: AtomicI64::new(0) });
        let store = Mutex::new(empty(&wall));
        Self { network, wall, store, age: AtomicU64::new(0), down: AtomicBool::new(false) }
    }

    pub(crate) const fn network(&self) -> &TestRuntime {
        &self.network
    }

    pub(crate) fn now(&self) -> Instant {
        Runtime::now(&self.network)
    }

    pub(crate) fn wall(&self) -> Timestamp {
        self.wall.read()
    }

    pub(crate) fn set_wall(&self, time: Timestamp) {
        let passed = nanos(self.now().saturating_since(Instant::ZERO));
        self.wall.at_zero.store(time.as_nanos().saturating_sub(passed), Ordering::Relaxed);
        self.network.set_wall(time);
    }

    pub(crate) fn age(&self) -> u64 {
        self.age.load(Ordering::Relaxed)
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    /// Another handle on it, for a process.
    pub(crate) fn handle(&self) -> MemoryStore {
        self.lock().handle()
    }

    pub(crate) fn wipe(&self) {
        let fresh = empty(&self.wall);
        let _wiped = std::mem::replace(&mut *self.lock(), fresh);
        self.age.fetch_add(1, Ordering::Relaxed);
    }

    /// All leases that are held, in the order of their names.
    pub(crate) fn leases(&self) -> Vec<LeaseRecord> {
        let store = self.handle();
        // A store in this process answers at once.
        let listed = SimpleStore::list(&store, None, usize::MAX).now_or_never();
        listed.and_then(Result::ok).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, MemoryStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn empty(wall: &Arc<Wall>) -> MemoryStore {
    let (runtime, wall) = (wall.runtime.clone(), Arc::clone(wall));
    MemoryStore::with_clocks(move || Runtime::now(&runtime), move || wall.read())
}

/// The wall clock: it goes with the time of the test, and may be set.
struct Wall {
    runtime: TestRuntime,
    /// What it showed when the time of the test was zero, in nanoseconds since 1970.
    at_zero: AtomicI64,
}

impl Wall {
    fn read(&self) -> Timestamp {
        Timestamp::from_nanos(self.at_zero.load(Ordering::Relaxed))
            + Runtime::now(&self.runtime).saturating_since(Instant::ZERO)
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
