//! A runtime that counts what is asked of it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tenure_driver::core::Instant;
use tenure_driver::{Alarm, Runtime, sealed};

/// A runtime, with all that a [`Tenure`](tenure_driver::Tenure) has of it counted: also where the runtime itself can't tell.
#[derive(Clone, Debug)]
pub struct Counted<R> {
    runtime: R,
    counts: Arc<Counts>,
}

/// What a [`Counted`] has counted.
#[derive(Debug, Default)]
pub struct Counts {
    tasks: AtomicUsize,
    sleeps: AtomicUsize,
    alarms: AtomicUsize,
    polls: AtomicU64,
}

impl Counts {
    /// Tasks that are not dropped.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.load(Ordering::SeqCst)
    }

    /// Sleeps, and waits for a signal, that are not dropped.
    #[must_use]
    pub fn sleeps(&self) -> usize {
        self.sleeps.load(Ordering::SeqCst)
    }

    /// Alarms that are not dropped.
    #[must_use]
    pub fn alarms(&self) -> usize {
        self.alarms.load(Ordering::SeqCst)
    }

    /// How often tasks were polled: the wake-ups of the driver, where nothing else was spawned.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::SeqCst)
    }
}

/// One more, until it is dropped.
struct One(Arc<Counts>, fn(&Counts) -> &AtomicUsize);

impl One {
    fn new(counts: &Arc<Counts>, of: fn(&Counts) -> &AtomicUsize) -> Self {
        of(counts).fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(counts), of)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, Ordering::SeqCst);
    }
}

struct Task {
    /// Dropped before it is counted as gone.
    future: BoxFuture<'static, ()>,
    one: One,
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.one.0.polls.fetch_add(1, Ordering::SeqCst);
        self.future.as_mut().poll(cx)
    }
}

impl<R> Counted<R> {
    /// Counts from nothing.
    pub fn new(runtime: R) -> Self {
        Self { runtime, counts: Arc::default() }
    }

    /// What was counted, from now on too.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    fn wait(&self, wait: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let one = One::new(&self.counts, |counts| &counts.sleeps);
        Box::pin(async move {
            wait.await;
            drop(one);
        })
    }
}

impl<R> sealed::Sealed for Counted<R> {}

impl<R: Runtime> Runtime for Counted<R> {
    type Alarm = CountedAlarm<R::Alarm>;

    fn now(&self) -> Instant {
        self.runtime.now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let one = One::new(&self.counts, |counts| &counts.tasks);
        self.runtime.spawn(Box::pin(Task { future: task, one }));
    }

    fn here(&self) -> Self {
        Self { runtime: self.runtime.here(), counts: self.counts() }
    }

    fn on_own_thread(&self) -> io::Result<Self> {
        Ok(Self { runtime: self.runtime.on_own_thread()?, counts: self.counts() })
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.wait(self.runtime.sleep_until(at))
    }

    fn alarm(&self) -> CountedAlarm<R::Alarm> {
        let _one = One::new(&self.counts, |counts| &counts.alarms);
        CountedAlarm { alarm: self.runtime.alarm(), _one }
    }

    fn interrupted(&self) -> BoxFuture<'static, ()> {
        self.wait(self.runtime.interrupted())
    }

    fn check(&self) -> Result<(), String> {
        self.runtime.check()
    }
}

/// An alarm of a [`Counted`].
pub struct CountedAlarm<A> {
    alarm: A,
    _one: One,
}

impl<A: Alarm> Alarm for CountedAlarm<A> {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll_at(at, cx)
    }

    fn clear(&mut self) {
        self.alarm.clear();
    }
}
