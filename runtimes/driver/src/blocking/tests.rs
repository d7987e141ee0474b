//! The handles of plain threads, in real time, over a runtime of threads.

mod foreign;
mod stuck;
mod threads;
mod waiting;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_core::{Instant, LeaseConfig};
use tenure_memory::MemoryStore;

use super::Tenure;
use super::wait::wake_at;
use crate::runtime::{Alarm, Runtime, sealed};
use crate::{Builder, clock};

/// No wait in these tests ends by it unless something is wrong.
const GENEROUS: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(2);
/// Long enough for something to go wrong, if it does.
const A_WHILE: Duration = Duration::from_millis(300);

/// Runs each task on a thread of its own.
#[derive(Clone, Default)]
struct Threads {
    /// How many sleeps were to be waited for by the runtime.
    sleeps: Arc<AtomicUsize>,
}

impl sealed::Sealed for Threads {}

impl Runtime for Threads {
    type Alarm = ByWait;

    fn now(&self) -> Instant {
        clock::now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        thread::spawn(|| super::wait(task));
    }

    fn here(&self) -> Self {
        panic!("nothing is spawned where the caller is")
    }

    fn on_own_thread(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        let mut alarm = self.alarm();
        Box::pin(std::future::poll_fn(move |cx| {
            let waker = cx.waker().clone();
            thread::spawn(move || {
                thread::sleep(at.saturating_since(clock::now()));
                waker.wake();
            });
            alarm.poll_at(at, cx)
        }))
    }

    fn alarm(&self) -> ByWait {
        ByWait
    }

    fn interrupted(&self) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

struct ByWait;

impl Alarm for ByWait {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if clock::now() >= at {
            return Poll::Ready(());
        }
        wake_at(at, cx);
        Poll::Pending
    }
}

fn start(store: &MemoryStore) -> Tenure {
    let lease = LeaseConfig::new(TTL);
    Builder::new(Threads::default()).lease(lease).store(store.handle()).start_blocking().unwrap()
}

/// Waits until the condition holds; looks again every few milliseconds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = clock::now() + GENEROUS;
    while !condition() {
        assert!(clock::now() < end, "still not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
