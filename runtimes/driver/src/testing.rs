//! A runtime for tests: one thread, virtual time, and the same order in each run.
//!
//! Time stands still until a test moves it, so that a test may wait for hours and take no time, and what it
//! asserts does not depend on the machine.
//!
//! Its tasks belong to processes, which share the time. One can be frozen, and one can end, without the others.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::Location;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use tenure_core::{Instant, Jitter, SplitMix, Timestamp};

use crate::runtime::{Alarm, Runtime, sealed};

/// The runtime, as one process has it; cloning shares it. Only one thread may run it at a time.
#[derive(Clone, Default)]
pub struct TestRuntime {
    inner: Arc<Inner>,
    process: usize,
}

#[derive(Default)]
struct Inner(Mutex<State>);

struct State {
    now: Instant,
    ready: VecDeque<Arc<Task>>,
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next: u64,
    /// The first one is that of the test.
    processes: Vec<Process>,
    /// Runs what belongs to whoever calls, in place of this one.
    guest: Option<TestRuntime>,
    /// Without it the operating system gives random numbers.
    random: Option<SplitMix>,
    /// What the wall clock showed when the time was zero. Without it that of the operating system is read.
    wall_at_zero: Option<Timestamp>,
    /// How often anything was polled since the time last moved, or the test last began to run it.
    polls_now: u64,
    /// How often tasks were polled in all.
    polls: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            // Far from zero, as a real clock is.
            now: Instant::ZERO + Duration::from_secs(1_000_000),
            ready: VecDeque::new(),
            sleepers: BTreeMap::new(),
            next: 0,
            processes: vec![Process::default()],
            guest: None,
            random: None,
            wall_at_zero: None,
            polls_now: 0,
            polls: 0,
        }
    }
}

#[derive(Default)]
struct Process {
    /// All tasks that were spawned and have not ended, in this order.
    tasks: BTreeMap<u64, Arc<Task>>,
    frozen: bool,
    /// What would run if the process were not frozen.
    held: Vec<Arc<Task>>,
    ended: bool,
    interrupts: usize,
    listeners: Vec<Waker>,
}

struct Task {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    queued: AtomicBool,
    runtime: Arc<Inner>,
    process: usize,
    number: u64,
    /// Where it was spawned, if by a test.
    origin: Option<&'static Location<'static>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let runtime = Arc::clone(&self.runtime);
            runtime.lock().ready.push_back(self);
        }
    }
}

impl Task {
    /// Takes the future out, unless it is being polled.
    fn take(&self) -> Option<BoxFuture<'static, ()>> {
        match self.future.try_lock() {
            Ok(mut future) => future.take(),
            Err(TryLockError::Poisoned(future)) => future.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a future has not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "for the crate `tenure-testing` alone")]
pub enum Stalled {
    /// Nothing runs, and nothing waits for a time.
    Forever,
    /// The time is over that it had.
    Late,
}

/// What runs this often while no time passes never waits.
const MOST_POLLS: u64 = 1_000_000;

impl TestRuntime {
    /// A runtime with nothing to do, some days after its epoch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, whose random numbers all follow from `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let runtime = Self::default();
        runtime.inner.lock().random = Some(SplitMix::new(seed));
        runtime
    }

    /// Another process at the same time.
    #[must_use]
    pub fn process(&self) -> Self {
        let mut state = self.inner.lock();
        state.processes.push(Process::default());
        Self { inner: Arc::clone(&self.inner), process: state.processes.len() - 1 }
    }

    /// Runs all tasks until each waits for something, without moving the time.
    ///
    /// # Panics
    /// If a task never waits.
    pub fn run_until_stalled(&self) {
        while let Some(task) = self.next_ready() {
            task.queued.store(false, Ordering::Release);
            self.count_poll(|| match task.origin {
                Some(origin) => format!("the task that was spawned at {origin}"),
                None => "a task of the library, or of a worker or job".to_owned(),
            });
            let waker = Waker::from(Arc::clone(&task));
            let over = {
                let mut future = task.future.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(running) = future.as_mut() else { continue };
                self.inner.lock().polls += 1;
                let ready = running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
                // A process may have been ended by what it did itself.
                let ended = self.inner.lock().processes[task.process].ended;
                if ready || ended { future.take() } else { None }
            };
            if over.is_some() {
                self.inner.lock().processes[task.process].tasks.remove(&task.number);
            }
        }
    }

    fn next_ready(&self) -> Option<Arc<Task>> {
        let mut state = self.inner.lock();
        loop {
            let task = state.ready.pop_front()?;
            let process = &mut state.processes[task.process];
            if !process.frozen {
                return Some(task);
            }
            process.held.push(task);
        }
    }

    fn count_poll(&self, what: impl FnOnce() -> String) {
        let mut state = self.inner.lock();
        state.polls_now += 1;
        if state.polls_now > MOST_POLLS {
            state.polls_now = 0;
            drop(state);
            panic!(
                "no time passes, since something never waits: {MOST_POLLS} times something ran at the same time, last \
                 {}; have it sleep on the clock of its `Tenure`",
                what()
            );
        }
    }

    /// Lets this much time pass, with all tasks running when they are due.
    ///
    /// # Panics
    /// If a task never waits.
    pub fn advance(&self, duration: Duration) {
        self.inner.lock().polls_now = 0;
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
        let mut state = self.inner.lock();
        state.now = state.now + duration;
        state.polls_now = 0;
    }

    /// Runs a future to its end, with all tasks; time passes when everything waits.
    ///
    /// # Panics
    /// If everything waits for something that no passing of time brings about, or a task never waits.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self.try_block_on(future, Instant::MAX) {
            Ok(output) => output,
            Err(_) => panic!("nothing runs, and nothing waits for a time"),
        }
    }

    /// The same, as long as the time is not later than `limit`.
    ///
    /// # Errors
    /// [`Stalled`].
    ///
    /// # Panics
    /// If a task never waits.
    pub fn try_block_on<F: Future>(&self, future: F, limit: Instant) -> Result<F::Output, Stalled> {
        let mut future = pin!(future);
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        self.inner.lock().polls_now = 0;
        loop {
            while woken.0.swap(false, Ordering::AcqRel) {
                self.count_poll(|| "what the test waits for".to_owned());
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Ok(output);
                }
                self.run_until_stalled();
            }
            self.run_until_stalled();
            if woken.0.load(Ordering::Acquire) {
                continue;
            }
            self.step(limit)?;
        }
    }

    /// Moves the time to when the next sleep ends, if that is not later than `limit`, and runs what is due then.
    ///
    /// # Errors
    /// [`Stalled`].
    ///
    /// # Panics
    /// If a task never waits.
    pub fn step(&self, limit: Instant) -> Result<(), Stalled> {
        let Some(at) = self.next_sleeper() else { return Err(Stalled::Forever) };
        self.wake_sleepers(at.min(limit));
        if at > limit {
            return Err(Stalled::Late);
        }
        self.run_until_stalled();
        Ok(())
    }

    /// Sets the wall clock: it goes with the time from what it shows now.
    pub fn set_wall(&self, time: Timestamp) {
        let mut state = self.inner.lock();
        state.wall_at_zero = Some(time.saturating_sub(state.now.saturating_since(Instant::ZERO)));
    }

    /// From now on whoever calls does so from `guest`.
    pub fn lend(&self, guest: &Self) {
        self.inner.lock().guest = Some(guest.clone());
    }

    /// Runs nothing of this process any more, until it is thawed; what would run is kept. Time passes for it, too.
    pub fn freeze(&self) {
        self.inner.lock().processes[self.process].frozen = true;
    }

    /// Lets the process run again, first of all what would have run.
    pub fn thaw(&self) {
        let mut state = self.inner.lock();
        let process = &mut state.processes[self.process];
        process.frozen = false;
        let held = std::mem::take(&mut process.held);
        state.ready.extend(held);
    }

    /// Drops all tasks of this process, as a runtime does that is shut down, and all that are spawned later.
    pub fn shut_down(&self) {
        // Dropping a task runs anything, so that is done without the lock.
        let (_held, tasks) = {
            let mut state = self.inner.lock();
            let process = &mut state.processes[self.process];
            process.ended = true;
            (std::mem::take(&mut process.held), std::mem::take(&mut process.tasks))
        };
        tasks.into_values().for_each(|task| drop(task.take()));
    }

    /// Whether the process was [shut down](TestRuntime::shut_down).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.inner.lock().processes[self.process].ended
    }

    /// How many tasks of this process have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.inner.lock().processes[self.process].tasks.len()
    }

    /// Where those tasks of this process were spawned that have not ended, and were spawned by [`TestRuntime::spawn_at`].
    #[must_use]
    pub fn origins(&self) -> Vec<&'static Location<'static>> {
        let state = self.inner.lock();
        state.processes[self.process].tasks.values().filter_map(|task| task.origin).collect()
    }

    /// How often tasks were polled so far.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.inner.lock().polls
    }

    /// How many sleeps are waited for.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.inner.lock().sleepers.len()
    }

    /// Asks the process to end, as a signal would.
    pub fn interrupt(&self) {
        let listeners = {
            let mut state = self.inner.lock();
            let process = &mut state.processes[self.process];
            process.interrupts += 1;
            std::mem::take(&mut process.listeners)
        };
        listeners.into_iter().for_each(Waker::wake);
    }

    /// Runs a task that says where it comes from.
    pub fn spawn_at(&self, task: BoxFuture<'static, ()>, origin: Option<&'static Location<'static>>) {
        if self.inner.lock().processes[self.process].ended {
            return drop(task);
        }
        let (runtime, process) = (Arc::clone(&self.inner), self.process);
        let mut state = self.inner.lock();
        state.next += 1;
        let (number, queued) = (state.next, AtomicBool::new(false));
        let future = Mutex::new(Some(task));
        let task = Arc::new(Task { future, queued, runtime, process, number, origin });
        state.processes[process].tasks.insert(number, Arc::clone(&task));
        drop(state);
        task.wake();
    }

    fn next_sleeper(&self) -> Option<Instant> {
        self.inner.lock().sleepers.first_key_value().map(|(&(at, _), _)| at)
    }

    fn wake_sleepers(&self, at: Instant) {
        let mut woken = Vec::new();
        {
            let mut state = self.inner.lock();
            if state.now < at {
                state.now = at;
                state.polls_now = 0;
            }
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
        let now = self.inner.lock().now;
        f.debug_struct("TestRuntime")
            .field("process", &self.process)
            .field("now", &now)
            .finish_non_exhaustive()
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
        self.inner.lock().now
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.spawn_at(task, None);
    }

    fn here(&self) -> Self {
        self.inner.lock().guest.clone().unwrap_or_else(|| self.clone())
    }

    fn on_own_thread(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let mut sleep = self.alarm();
        Box::pin(std::future::poll_fn(move |cx| sleep.poll_at(at, cx)))
    }

    fn alarm(&self) -> Sleep {
        Sleep { runtime: Arc::clone(&self.inner), place: None }
    }

    fn interrupted(&self) -> BoxFuture<'static, ()> {
        let (runtime, process) = (Arc::clone(&self.inner), self.process);
        let seen = runtime.lock().processes[process].interrupts;
        Box::pin(std::future::poll_fn(move |cx| {
            let process = &mut runtime.lock().processes[process];
            if process.interrupts > seen {
                return Poll::Ready(());
            }
            // It may be polled for days without a signal.
            if !process.listeners.iter().any(|other| other.will_wake(cx.waker())) {
                process.listeners.push(cx.waker().clone());
            }
            Poll::Pending
        }))
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn wall(&self) -> Option<SystemTime> {
        let state = self.inner.lock();
        match state.wall_at_zero {
            Some(at_zero) => {
                tenure_store::clock::system_time(at_zero + state.now.saturating_since(Instant::ZERO))
            }
            None => Some(SystemTime::now()),
        }
    }

    fn random(&self) -> Result<[u8; 32], String> {
        let mut state = self.inner.lock();
        let Some(source) = &mut state.random else { return crate::runtime::system_random() };
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).for_each(|eight| {
            eight.copy_from_slice(&source.below(u64::MAX).to_le_bytes());
        });
        Ok(bytes)
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
