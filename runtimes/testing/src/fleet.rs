//! The instances of a program, on one store and one time.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_driver::core::{AnySchedule, Instant, Timestamp};
use tenure_driver::store_contract::LeaseRecord;
use tenure_driver::testing::{Stalled, TestRuntime};
use tenure_driver::{Builder, Runtime, Tenure};

use crate::fault::{Fault, StoreFault};
use crate::link::Link;
use crate::server::Server;
use crate::store::InstanceStore;
use crate::task::{Task, task};
use crate::wall::{Utc, WallTime};

mod report;

/// Instances of a program, each a process of its own, on one store and one time that the test lets pass.
///
/// Time stands still until the test moves it: by [`advance`](Fleet::advance), or while [`block_on`](Fleet::block_on)
/// waits for something. So hours take no time, and the same test gives the same order of events each time it is run.
/// Everything runs on the thread of the test.
///
/// ```
/// use std::time::Duration;
/// use tenure::testing::{Fault, Fleet};
///
/// let fleet = Fleet::new();
/// let blue = fleet.start("blue");
/// let lease = fleet.block_on(async { blue.acquire("leader").await }).unwrap();
///
/// fleet.inject("blue", Fault::CutOff);
/// fleet.advance(Duration::from_secs(12));
/// assert!(lease.is_valid());
/// fleet.advance(Duration::from_secs(1));
/// assert!(!lease.is_valid());
///
/// // Nobody has renewed it: after its TTL of 15 s somebody else gets it.
/// let green = fleet.start("green");
/// let later = fleet.block_on(async { green.acquire("leader").await }).unwrap();
/// assert!(later.token() > lease.token());
/// ```
///
/// The methods that let time pass panic when they can't come to an end, and say what is waited for. They must not be
/// called from within what they run.
pub struct Fleet {
    server: Arc<Server>,
    instances: Mutex<BTreeMap<String, Instance>>,
    began: Instant,
    patience: Duration,
    /// Time is being moved.
    moving: AtomicBool,
}

struct Instance {
    runtime: TestRuntime,
    link: Arc<Link>,
    crashed: bool,
}

impl Fleet {
    /// A fleet without instances, with an empty store, at midnight UTC on the first of January 2026.
    #[must_use]
    pub fn new() -> Self {
        Self::seeded(0)
    }

    /// The same, where what is left to chance follows from `seed`: who a process is to the others, and the jitter of what
    /// is tried again. For tests that are to hold whatever happens: run them with many seeds.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let server = Arc::new(Server::new(TestRuntime::seeded(seed)));
        server.set_wall("2026-01-01T00:00:00Z".timestamp());
        Self {
            began: server.now(),
            server,
            instances: Mutex::default(),
            patience: Self::DEFAULT_PATIENCE,
            moving: AtomicBool::new(false),
        }
    }

    /// Sets the store's wall clock, by which timers and schedules go, for the beginning. See [`WallTime`] for how to write
    /// a time.
    ///
    /// # Panics
    /// If the text names no time.
    #[must_use]
    pub fn starting_at(self, time: impl WallTime) -> Self {
        self.server.set_wall(time.timestamp());
        self
    }

    /// So much time passes in [`block_on`](Fleet::block_on) and [`advance_until`](Fleet::advance_until) at most: a day and
    /// an hour, so that whatever happens daily does. A day of a small fleet, with all of its renewals, takes some seconds.
    pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(25 * 3600);

    /// Sets how much time may pass in [`block_on`](Fleet::block_on) and [`advance_until`](Fleet::advance_until). Default
    /// [`DEFAULT_PATIENCE`](Self::DEFAULT_PATIENCE).
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts a process of this name, with all settings by default.
    ///
    /// A name that runs already gets a second [`Tenure`] in its process, which is a stranger to the first. After
    /// [`Fault::Crashed`] it is a new process: what the former one held is not its own.
    ///
    /// # Panics
    /// If it is no name for an instance; see [`Identity::new`](tenure_driver::core::Identity::new).
    #[must_use]
    #[track_caller]
    pub fn start(&self, name: &str) -> Tenure {
        match self.builder(name).start() {
            Ok(tenure) => tenure,
            Err(error) => panic!("{name:?} can't be started: {error}"),
        }
    }

    /// Sets up a process of this name, on the store and the time of the fleet: give it what
    /// [`start`](Fleet::start) does not, then start it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::LeaseConfig;
    /// use tenure::testing::Fleet;
    ///
    /// let fleet = Fleet::new();
    /// let blue = fleet.builder("blue").lease(LeaseConfig::new(Duration::from_secs(60))).start().unwrap();
    /// # fleet.block_on(blue.shutdown()).unwrap();
    /// ```
    pub fn builder(&self, name: &str) -> Builder<TestRuntime, InstanceStore> {
        let (runtime, link) = self.with(name, |instance| {
            if std::mem::take(&mut instance.crashed) {
                instance.runtime = self.server.network().process();
            }
            (instance.runtime.clone(), Arc::clone(&instance.link))
        });
        let store = InstanceStore::new(Arc::clone(&self.server), link);
        Builder::new(runtime).store(store).instance(name).schedules(schedules)
    }

    /// Runs a future as a task of the process of this name: it is frozen with it, and dropped when it crashes.
    ///
    /// For what a program does beside its workers and jobs, or for all of it:
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tenure::Tenure;
    /// use tenure::testing::Fleet;
    ///
    /// async fn program(tenure: Tenure) -> u32 {
    ///     tenure.sleep(Duration::from_secs(3600)).await;
    ///     42
    /// }
    ///
    /// let fleet = Fleet::new();
    /// let run = fleet.spawn("blue", program(fleet.start("blue")));
    /// fleet.advance(Duration::from_secs(3599));
    /// assert!(!run.is_finished());
    /// assert_eq!(fleet.block_on(run), Ok(42));
    /// ```
    ///
    /// A panic of it is one of the test.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let runtime = self.with(name, |instance| instance.runtime.clone());
        let (run, handle) = task(future);
        runtime.spawn_at(Box::pin(run), Some(Location::caller()));
        handle
    }

    /// Asks the process of this name to end, as SIGTERM and Ctrl-C do: [`Tenure::scope`] and
    /// [`Tenure::until_terminated`] hear it.
    pub fn terminate(&self, name: &str) {
        self.with(name, |instance| instance.runtime.clone()).interrupt();
    }

    /// Has something go wrong with the instance of this name, until it is [healed](Fleet::heal). Faults add up; one with a
    /// time takes the place of one of its kind. It may be called before the instance is started.
    ///
    /// The way to the store belongs to the name, so a fault of it is there for the next process of this name, too.
    pub fn inject(&self, name: &str, fault: Fault) {
        let (runtime, link) = self.with(name, |instance| {
            instance.crashed |= fault == Fault::Crashed;
            (instance.runtime.clone(), Arc::clone(&instance.link))
        });
        match fault {
            // Of what has crashed there is nothing left to freeze.
            Fault::Frozen if runtime.has_ended() => {}
            Fault::Frozen => {
                link.add(fault);
                runtime.freeze();
            }
            Fault::Crashed => {
                link.remove(|other| *other == Fault::Frozen);
                runtime.shut_down();
            }
            Fault::CutOff
            | Fault::RequestsLost
            | Fault::RepliesLost
            | Fault::HintsLost
            | Fault::RequestsLate(_)
            | Fault::RepliesLate(_)
            | Fault::RequestsRepeated(_)
            | Fault::ConnectionBroken
            | Fault::Unavailable
            | Fault::Refused => link.add(fault),
        }
    }

    /// Ends what is wrong with the instance of this name. A frozen process goes on, at the time that it is now; one that
    /// has crashed is to be [started](Fleet::start). What was lost stays lost, and what is late stays late.
    pub fn heal(&self, name: &str) {
        let (runtime, link) =
            self.with(name, |instance| (instance.runtime.clone(), Arc::clone(&instance.link)));
        link.remove(|_| true);
        runtime.thaw();
    }

    /// [Injects](Fleet::inject) a fault into all instances.
    pub fn inject_all(&self, fault: Fault) {
        for name in self.names() {
            self.inject(&name, fault);
        }
    }

    /// [Heals](Fleet::heal) all instances and the [store](Fleet::heal_store).
    pub fn heal_all(&self) {
        for name in self.names() {
            self.heal(&name);
        }
        self.heal_store();
    }

    /// What is wrong with the instance of this name now, the latest last.
    #[must_use]
    pub fn faults(&self, name: &str) -> Vec<Fault> {
        let instances = self.lock();
        let Some(instance) = instances.get(name) else { return Vec::new() };
        let mut faults = instance.link.faults();
        faults.extend(instance.crashed.then_some(Fault::Crashed));
        faults
    }

    /// Has something go wrong with the store, for all.
    ///
    /// ```
    /// use tenure::AcquireError;
    /// use tenure::testing::{Fleet, StoreFault};
    ///
    /// let fleet = Fleet::new();
    /// let blue = fleet.start("blue");
    /// fleet.inject_store(StoreFault::Down);
    /// let error = fleet.block_on(async { blue.try_acquire("leader").await }).unwrap_err();
    /// assert!(matches!(error, AcquireError::Unreachable { .. }));
    ///
    /// fleet.heal_store();
    /// assert!(fleet.block_on(async { blue.try_acquire("leader").await }).is_ok());
    /// ```
    pub fn inject_store(&self, fault: StoreFault) {
        match fault {
            StoreFault::Down => self.server.set_down(true),
            StoreFault::Wiped => self.server.wipe(),
            StoreFault::ClockAhead(time) => self.server.set_wall(self.wall_clock() + time),
            StoreFault::ClockBack(time) => self.server.set_wall(self.wall_clock().saturating_sub(time)),
        }
        self.look_for_hints();
    }

    /// Lets a store that is down work again. What was forgotten stays forgotten, and the wall clock stays as it is.
    pub fn heal_store(&self) {
        self.server.set_down(false);
        self.look_for_hints();
    }

    /// The time since the fleet was made, as the instances' clocks count it. The wall clock may step; this does not.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.server.now().saturating_since(self.began)
    }

    /// The time on the store's wall clock.
    #[must_use]
    pub fn wall_clock(&self) -> Timestamp {
        self.server.wall()
    }

    /// All leases that are held, as the store has them, in the order of their names.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseRecord> {
        self.server.leases()
    }

    /// The name of the instance that has a lease, as the store has it; `None` if nobody does.
    #[must_use]
    pub fn holder(&self, lease: &str) -> Option<String> {
        let record = self.leases().into_iter().find(|record| record.name.as_str() == lease)?;
        let owner = record.holder.owner;
        Some(owner.rsplit_once('/').map_or(owner.as_str(), |(instance, _)| instance).to_owned())
    }

    /// Runs everything that can run, until all wait for something, without letting time pass.
    ///
    /// # Panics
    /// If a task never waits.
    #[track_caller]
    pub fn run_until_stalled(&self) {
        self.advance(Duration::ZERO);
    }

    /// Lets this much time pass. Whatever is due in it runs when it is due.
    ///
    /// # Panics
    /// If a task never waits.
    #[track_caller]
    pub fn advance(&self, duration: Duration) {
        let _moving = self.moves();
        self.server.network().advance(duration);
    }

    /// Lets time pass until the store's wall clock shows this. See [`WallTime`] for how to write a time.
    ///
    /// # Panics
    /// If it shows a later time already, if the text names no time, or if a task never waits.
    #[track_caller]
    pub fn advance_to(&self, time: impl WallTime) {
        let (now, time) = (self.wall_clock(), time.timestamp());
        assert!(now <= time, "it is {} already, which is later than {}", Utc(now), Utc(time));
        self.advance(time.saturating_since(now));
    }

    /// Lets time pass until `condition` holds, and no longer: it is asked whenever everything has run that is due.
    ///
    /// ```
    /// use tenure::testing::{Fault, Fleet};
    ///
    /// let fleet = Fleet::new();
    /// for name in ["blue", "green"] {
    ///     let tenure = fleet.start(name);
    ///     let work = |ctx: tenure::Ctx| async move { ctx.draining().await; };
    ///     fleet.spawn(name, async move { tenure.worker("leader", work).start().unwrap().ended().await });
    /// }
    /// fleet.advance_until(|| fleet.holder("leader").is_some());
    /// assert_eq!(fleet.holder("leader").as_deref(), Some("blue"));
    /// fleet.inject("blue", Fault::Crashed);
    /// fleet.advance_until(|| fleet.holder("leader").as_deref() == Some("green"));
    /// assert_eq!(fleet.elapsed().as_secs(), 15);
    /// ```
    ///
    /// # Panics
    /// If it does not hold within the [`patience`](Fleet::patience), or ever, or if a task never waits.
    #[track_caller]
    pub fn advance_until(&self, mut condition: impl FnMut() -> bool) {
        let _moving = self.moves();
        let (network, limit) = (self.server.network(), self.limit());
        network.run_until_stalled();
        while !condition() {
            if let Err(stalled) = network.step(limit) {
                self.give_up(stalled, "the condition of `advance_until` does not hold");
            }
        }
    }

    /// Runs a future to its end, on behalf of the test and of no instance. Time passes whenever everything waits.
    ///
    /// # Panics
    /// If it does not end within the [`patience`](Fleet::patience), or ever; the message says who waits. If a task never
    /// waits.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _moving = self.moves();
        match self.server.network().try_block_on(future, self.limit()) {
            Ok(output) => output,
            Err(stalled) => self.give_up(stalled, "the future that `block_on` runs has not ended"),
        }
    }

    /// Waits, from this call on, in a future that [`block_on`](Fleet::block_on) runs. What belongs to an instance sleeps by
    /// [`Tenure::sleep`].
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.server.network().sleep_until(self.server.now() + duration)
    }

    fn limit(&self) -> Instant {
        self.server.now() + self.patience
    }

    /// Nobody else moves the time as long as this is there.
    #[track_caller]
    fn moves(&self) -> Moving<'_> {
        assert!(
            !self.moving.swap(true, Ordering::AcqRel),
            "the time of this fleet is being moved already, by another thread or by what calls this: tasks sleep instead"
        );
        Moving(&self.moving)
    }

    #[track_caller]
    fn give_up(&self, stalled: Stalled, what: &str) -> ! {
        let when = match stalled {
            Stalled::Forever => {
                "and never will: nothing runs, and nothing waits for a time. Does it wait for another \
                                 thread, a socket, or a timer that is not its `Tenure`'s?"
                    .to_owned()
            }
            Stalled::Late => format!("though {:?} have passed; see `Fleet::patience`", self.patience),
        };
        panic!("{what}, {when}\n{}", self.report())
    }

    /// Acts on an instance, which is made if there is none.
    fn with<T>(&self, name: &str, act: impl FnOnce(&mut Instance) -> T) -> T {
        let mut instances = self.lock();
        let instance = instances.entry(name.to_owned()).or_insert_with(|| Instance {
            runtime: self.server.network().process(),
            link: Arc::default(),
            crashed: false,
        });
        act(instance)
    }

    fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn look_for_hints(&self) {
        let links: Vec<_> = self.lock().values().map(|instance| Arc::clone(&instance.link)).collect();
        links.iter().for_each(|link| link.look_for_hints());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instance>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the text of a schedule is read that another instance has registered.
fn schedules(text: &str) -> Option<AnySchedule> {
    #[cfg(feature = "cron")]
    return tenure_cron::schedules(text);
    #[cfg(not(feature = "cron"))]
    AnySchedule::parse(text)
}

struct Moving<'a>(&'a AtomicBool);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("wall_clock", &format_args!("{}", Utc(self.wall_clock())))
            .field("instances", &self.names())
            .finish_non_exhaustive()
    }
}

/// Ends all processes.
impl Drop for Fleet {
    fn drop(&mut self) {
        // A test that fails is told by its own panic, and a second one would hide it.
        if std::thread::panicking() {
            return;
        }
        let runtimes: Vec<_> = self.lock().values().map(|instance| instance.runtime.clone()).collect();
        runtimes.iter().for_each(TestRuntime::shut_down);
        self.server.network().shut_down();
    }
}
