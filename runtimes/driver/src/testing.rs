//! A runtime for tests: one thread, virtual time, and the same order in each run.
//!
//! Time stands still until a test moves it, so that a test may wait for hours and take no time, and what it
//! asserts does not depend on the machine.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_core::Instant;

use crate::runtime::{Alarm, Runtime, sealed};

/// The runtime; cloning shares it. Only one thread may run it at a time.
#[derive(Clone, Default)]
pub struct TestRuntime(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    tasks: AtomicUsize,
    polls: AtomicU64,
}

struct State {
    now: Instant,
    ready: VecDeque<Arc<Task>>,
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next: u64,
    /// All tasks that were spawned and have not ended.
    spawned: Vec<Weak<Task>>,
    interrupts: usize,
    listeners: Vec<Waker>,
    /// Runs what belongs to whoever calls, in place of this one.
    guest: Option<TestRuntime>,
    ended: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            // Far from zero, as a real clock is.
            now: Instant::ZERO + Duration::from_secs(1_000_000),
            ready: VecDeque::new(),
            sleepers: BTreeMap::new(),
            next: 0,
            spawned: Vec::new(),
            interrupts: 0,
            listeners: Vec::new(),
            guest: None,
            ended: false,
        }
    }
}

struct Task {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    queued: AtomicBool,
    runtime: Arc<Inner>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let runtime = Arc::clone(&self.runtime);
            runtime.lock().ready.push_back(self);
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TestRuntime {
    /// A runtime with nothing to do, some days after its epoch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs all tasks until each waits for something, without moving the time.
    pub fn run_until_stalled(&self) {
        loop {
            let Some(task) = self.0.lock().ready.pop_front() else { return };
            task.queued.store(false, Ordering::Release);
            let waker = Waker::from(Arc::clone(&task));
            let mut future = task.future.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.polls.fetch_add(1, Ordering::Relaxed);
            if let Some(running) = future.as_mut()
                && running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                *future = None;
                self.0.tasks.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Lets this much time pass, with all tasks running when they are due.
    pub fn advance(&self, duration: Duration) {
        let end = Runtime::now(self) + duration;
        self.run_until_stalled();
        while let Some(at) = self.next_sleeper()
            && at <= end
        {
            self.wake_sleepers(at);
            self.run_until_stalled();
        }
        self.wake_sleepers(end);
        self.run_until_stalled();
    }

    /// Lets this much time pass while nothing runs: the executor is blocked, or the machine sleeps.
    pub fn block(&self, duration: Duration) {
        let mut state = self.0.lock();
        state.now = state.now + duration;
    }

    /// Runs a future to its end, with all tasks; time passes when everything waits.
    ///
    /// # Panics
    /// If everything waits for something that no passing of time brings about.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            while woken.0.swap(false, Ordering::AcqRel) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return output;
                }
                self.run_until_stalled();
            }
            self.run_until_stalled();
            if woken.0.load(Ordering::Acquire) {
                continue;
            }
            let Some(at) = self.next_sleeper() else { panic!("nothing runs, and nothing waits for a time") };
            self.wake_sleepers(at);
            self.run_until_stalled();
        }
    }

    /// From now on whoever calls does so from `guest`.
    pub fn lend(&self, guest: &Self) {
        self.0.lock().guest = Some(guest.clone());
    }

    /// Drops all tasks, as a runtime does that is shut down, and all that are spawned later.
    pub fn shut_down(&self) {
        let spawned = {
            let mut state = self.0.lock();
            state.ended = true;
            std::mem::take(&mut state.spawned)
        };
        for task in spawned.iter().filter_map(Weak::upgrade) {
            let future = task.future.lock().unwrap_or_else(PoisonError::into_inner).take();
            if future.is_some() {
                self.0.tasks.fetch_sub(1, Ordering::Relaxed);
            }
            drop(future);
        }
    }

    /// How many tasks have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.0.tasks.load(Ordering::Relaxed)
    }

    /// How often tasks were polled so far.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.0.polls.load(Ordering::Relaxed)
    }

    /// How many sleeps are waited for.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.0.lock().sleepers.len()
    }

    /// Asks the process to end, as a signal would.
    pub fn interrupt(&self) {
        let listeners = {
            let mut state = self.0.lock();
            state.interrupts += 1;
            std::mem::take(&mut state.listeners)
        };
        listeners.into_iter().for_each(Waker::wake);
    }

    fn next_sleeper(&self) -> Option<Instant> {
        self.0.lock().sleepers.first_key_value().map(|(&(at, _), _)| at)
    }

    fn wake_sleepers(&self, at: Instant) {
        let mut woken = Vec::new();
        {
            let mut state = self.0.lock();
            state.now = state.now.max(at);
            while let Some(entry) = state.sleepers.first_entry()
                && entry.key().0 <= at
            {
                woken.push(entry.remove());
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for TestRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestRuntime").field("now", &self.0.lock().now).finish_non_exhaustive()
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl sealed::Sealed for TestRuntime {}

impl Runtime for TestRuntime {
    type Alarm = Sleep;

    fn now(&self) -> Instant {
        self.0.lock().now
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let ended = self.0.lock().ended;
        if ended {
            return drop(task);
        }
        self.0.tasks.fetch_add(1, Ordering::Relaxed);
        let future = Mutex::new(Some(task));
        let task = Arc::new(Task { future, queued: AtomicBool::new(false), runtime: Arc::clone(&self.0) });
        {
            let mut state = self.0.lock();
            state.spawned.retain(|task| task.strong_count() > 0);
            state.spawned.push(Arc::downgrade(&task));
        }
        task.wake();
    }

    fn here(&self) -> Self {
        self.0.lock().guest.clone().unwrap_or_else(|| self.clone())
    }

    fn on_own_thread(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let mut sleep = self.alarm();
        Box::pin(std::future::poll_fn(move |cx| sleep.poll_at(at, cx)))
    }

    fn alarm(&self) -> Sleep {
        Sleep { runtime: Arc::clone(&self.0), place: None }
    }

    fn interrupted(&self) -> BoxFuture<'static, ()> {
        let runtime = Arc::clone(&self.0);
        let seen = runtime.lock().interrupts;
        Box::pin(std::future::poll_fn(move |cx| {
            let mut state = runtime.lock();
            if state.interrupts > seen {
                return Poll::Ready(());
            }
            state.listeners.push(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A sleep in virtual time, or an alarm.
pub struct Sleep {
    runtime: Arc<Inner>,
    place: Option<(Instant, u64)>,
}

impl Alarm for Sleep {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.runtime.lock();
        let old = self.place.take().and_then(|place| state.sleepers.remove(&place));
        let poll = if state.now >= at {
            Poll::Ready(())
        } else {
            state.next += 1;
            let place = (at, state.next);
            state.sleepers.insert(place, cx.waker().clone());
            self.place = Some(place);
            Poll::Pending
        };
        drop(state);
        drop(old);
        poll
    }

    fn clear(&mut self) {
        let old = self.place.take().and_then(|place| self.runtime.lock().sleepers.remove(&place));
        drop(old);
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("place", &self.place).finish_non_exhaustive()
    }
}
