//! The handles and the driver over a store that can be made to misbehave, in virtual time.

mod acquiring;
mod cancelling;
mod draining;
mod ending;
mod faults;
mod guarding;
mod holding;
mod idle;
mod logging;
#[cfg(feature = "metrics")]
mod measuring;
mod membership;
mod misbehaving;
mod observing;
mod recording;
mod recurring;
mod sharing;
mod ticking;
mod troubled;
mod waiting;
mod working;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::{Instant, LeaseConfig, Timestamp};
use tenure_memory::MemoryStore;
use tenure_store::{LeaseRecord, SimpleStore};

use crate::testing::TestRuntime;
use crate::{Builder, Lease, NoStore, Runtime, Tenure};
use faults::{Fault, Faulty, Plan};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(15);

/// A runtime, a store, and any number of processes that share it.
struct World {
    runtime: TestRuntime,
    store: MemoryStore,
    /// What the store of every process made by `tenure` does.
    plan: Plan,
    /// How far the store's wall clock is set, in nanoseconds, beside the time of the runtime.
    wall: Arc<AtomicI64>,
}

impl World {
    fn new() -> Self {
        let runtime = TestRuntime::new();
        let (clock, steady) = (runtime.clone(), runtime.clone());
        let wall = Arc::new(AtomicI64::new(1_700_000_000_000_000_000));
        let set = Arc::clone(&wall);
        let now = move || {
            let passed = i64::try_from(Runtime::now(&steady).as_nanos()).unwrap();
            Timestamp::from_nanos(set.load(Ordering::Relaxed) + passed)
        };
        let store = MemoryStore::with_clocks(move || Runtime::now(&clock), now);
        Self { runtime, store, plan: Plan::default(), wall }
    }

    fn builder(&self) -> Builder<TestRuntime, NoStore> {
        Builder::new(self.runtime.clone()).lease(LeaseConfig::new(TTL))
    }

    fn faulty(&self) -> Faulty {
        Faulty::new(self.store.handle(), self.plan.clone(), self.runtime.clone())
    }

    /// Another process.
    fn tenure(&self) -> Tenure {
        self.builder().store(self.faulty()).start().unwrap()
    }

    /// Another process, whose store does what this plan says.
    fn tenure_with(&self, plan: &Plan) -> Tenure {
        let store = Faulty::new(self.store.handle(), plan.clone(), self.runtime.clone());
        self.builder().store(store).start().unwrap()
    }

    /// The time on the store's wall clock.
    fn wall(&self) -> Timestamp {
        let passed = i64::try_from(self.now().as_nanos()).unwrap();
        Timestamp::from_nanos(self.wall.load(Ordering::Relaxed) + passed)
    }

    fn acquire(&self, tenure: &Tenure, name: &str) -> Lease {
        self.runtime.block_on(tenure.acquire(name).into_future()).unwrap()
    }

    fn now(&self) -> Instant {
        Runtime::now(&self.runtime)
    }

    fn records(&self) -> Vec<LeaseRecord> {
        self.runtime.block_on(SimpleStore::list(&self.store, None, 1_000_000)).unwrap()
    }

    /// Runs everything that can run or is due, without moving the time.
    fn settle(&self) {
        self.runtime.advance(Duration::ZERO);
    }
}

/// Polls once, with a waker that wakes nothing.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn is_pending(future: impl Future) -> bool {
    poll_once(pin!(future)).is_pending()
}

use std::future::IntoFuture;

/// A future that is run as a task, and its output once there is one.
fn spawn<T: Send + 'static>(
    runtime: &TestRuntime,
    future: impl Future<Output = T> + Send + 'static,
) -> Arc<std::sync::Mutex<Option<T>>> {
    let output = Arc::new(std::sync::Mutex::new(None));
    let place = Arc::clone(&output);
    runtime.spawn(Box::pin(async move {
        let value = future.await;
        *place.lock().unwrap() = Some(value);
    }));
    output
}

/// Waits for a moment, so that work is polled again.
async fn pause() {
    let mut once = false;
    std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut once, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
