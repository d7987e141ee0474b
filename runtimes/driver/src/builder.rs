//! Setting up a [`Tenure`].

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::mpsc;
use tenure_core::{
    AnySchedule, ConfigError, Identity, Incarnation, Labels, LeaseConfig, MemberOptions, NameError, SplitMix,
};
use tenure_store::{Metadata, Store};

use crate::blocking::{self, Plain};
use crate::driver::{Driver, Me, Members};
use crate::fleet;
use crate::runtime::Runtime;
use crate::stats::Stats;
use crate::store::AnyStore;
use crate::tenure::{Shared, Tenure, resolve};

/// Sets up a [`Tenure`] on a runtime: give it a [`store`](Builder::store), then [`start`](Builder::start) it.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Builder<R, S = NoStore> {
    runtime: R,
    own_thread: bool,
    store: S,
    instance: Option<String>,
    lease: LeaseConfig,
    shutdown_budget: Duration,
    member: MemberOptions,
    labels: Vec<(String, String)>,
    schedules: fn(&str) -> Option<AnySchedule>,
}

/// In place of a store, as long as none was given to the [`Builder`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NoStore;

impl<R: Runtime> Builder<R> {
    /// Enough for a release to travel and be answered, and short enough for whoever waits for a program to end.
    pub const DEFAULT_SHUTDOWN_BUDGET: Duration = Duration::from_secs(2);

    /// On this runtime.
    pub fn new(runtime: R) -> Self {
        Self {
            runtime,
            own_thread: false,
            store: NoStore,
            instance: None,
            lease: LeaseConfig::default(),
            shutdown_budget: Self::DEFAULT_SHUTDOWN_BUDGET,
            member: MemberOptions::default(),
            labels: Vec::new(),
            schedules: AnySchedule::parse,
        }
    }

    /// Keeps the leases, timers and records in this store.
    pub fn store<S: Store>(self, store: S) -> Builder<R, S> {
        let Self {
            runtime,
            own_thread,
            store: NoStore,
            instance,
            lease,
            shutdown_budget,
            member,
            labels,
            schedules,
        } = self;
        Builder { runtime, own_thread, store, instance, lease, shutdown_budget, member, labels, schedules }
    }
}

impl<R: Runtime, S> Builder<R, S> {
    /// Names this instance of the program, for people. Default `{machine}:{process id}:{random}`. Two processes
    /// with the same name still are strangers to each other.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Renews the leases on a thread of their own, which does nothing else and ends with the [`Tenure`]: for programs that
    /// block their runtime's threads for longer than a lease lives. The program's work stays where it is.
    pub const fn on_own_thread(mut self) -> Self {
        self.own_thread = true;
        self
    }

    /// Sets the timing of leases that don't say otherwise.
    pub const fn lease(mut self, config: LeaseConfig) -> Self {
        self.lease = config;
        self
    }

    /// Sets how long [`Tenure::shutdown`] tries to give everything back. Default 2 s.
    pub const fn shutdown_budget(mut self, budget: Duration) -> Self {
        self.shutdown_budget = budget;
        self
    }

    /// Sets how long the store lists this instance as a member of the fleet after its last heartbeat, so how long the
    /// others take to notice that it died. It has nothing to do with the TTL of leases. Default 15 s. See
    /// [`Tenure::join`].
    pub const fn member_ttl(mut self, ttl: Duration) -> Self {
        self.member.ttl = ttl;
        self
    }

    /// Sets the time between heartbeats, at most half of the [`member_ttl`](Builder::member_ttl). Default a third of it.
    pub const fn heartbeat(mut self, interval: Duration) -> Self {
        self.member.heartbeat = Some(interval);
        self
    }

    /// Has the other members, and operators, see this about the instance. See [`Labels`].
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Sets how the text of a schedule is read that another instance has registered at the store. A timer whose schedule
    /// can't be read has no ticks here. Default [`AnySchedule::parse`], which reads fixed periods.
    pub const fn schedules(mut self, parse: fn(&str) -> Option<AnySchedule>) -> Self {
        self.schedules = parse;
        self
    }
}

impl<R: Runtime, S: Store> Builder<R, S> {
    /// Starts a thread that drives the leases, for a program of plain threads; see [`blocking`](crate::blocking). The store is
    /// not asked for anything yet.
    ///
    /// It may be called anywhere, inside of a runtime and outside of any. What is waited for is waited for in real time.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_blocking(self) -> Result<blocking::Tenure, StartError> {
        let Self {
            runtime,
            own_thread: _,
            store,
            instance,
            lease,
            shutdown_budget,
            member,
            labels,
            schedules,
        } = self;
        let own = runtime.on_own_thread().map_err(|error| StartError::Thread(error.to_string()))?;
        let (runtime, own_thread) = (Plain(own), false);
        let builder = Builder {
            runtime,
            own_thread,
            store,
            instance,
            lease,
            shutdown_budget,
            member,
            labels,
            schedules,
        };
        Ok(blocking::Tenure::new(builder.start()?))
    }

    /// Starts the task that drives the leases. The store is not asked for anything yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(self) -> Result<Tenure, StartError> {
        let runtime = if self.own_thread {
            self.runtime.on_own_thread().map_err(|error| StartError::Thread(error.to_string()))?
        } else {
            self.runtime
        };
        runtime.check().map_err(StartError::Runtime)?;
        let store = AnyStore::new(self.store);
        let limits = store.limits();
        resolve(&self.lease, &limits)?;
        let mut member = self.member;
        member.labels = Labels::new(self.labels)?;
        member.check()?;

        let random = runtime.random().map_err(StartError::Random)?;
        let [incarnation, seed] = [&random[..16], &random[16..]]
            .map(|half| half.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte)));
        let incarnation = Incarnation::new(incarnation);
        let machine = machine();
        let instance = self.instance.unwrap_or_else(|| {
            let unique = (seed >> 64) as u32;
            format!("{machine}:{}:{unique:08x}", std::process::id())
        });
        let identity = Identity::new(instance, incarnation)?;

        let mut metadata = Metadata::new();
        metadata.host = Some(machine.into());
        metadata.pid = Some(std::process::id());

        let (requests, inbox) = mpsc::unbounded();
        let stats = Arc::new(Mutex::new(Stats::default()));
        let fleet = Arc::<fleet::Shared>::default();
        let members = Members::new(member, fleet::Tie(Arc::clone(&fleet)));
        let jitter = SplitMix::new(seed as u64);
        let driver = Driver::new(
            runtime.clone(),
            store,
            Me { identity: identity.clone(), metadata, members },
            jitter,
            inbox,
            Arc::clone(&stats),
        );
        runtime.spawn(Box::pin(driver));
        Ok(Tenure::new(Shared {
            identity,
            clock: Arc::new(runtime),
            requests,
            limits,
            config: self.lease,
            shutdown_budget: self.shutdown_budget,
            schedules: self.schedules,
            tickets: AtomicU64::new(0),
            stats,
            fleet,
        }))
    }
}

/// The machine's name, fit for an instance's name.
fn machine() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    // Leaves room for the process id and the random part.
    let mut name: String = name.chars().filter(|c| !c.is_control()).collect();
    while name.len() > 150 {
        name.pop();
    }
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// A [`Tenure`] that could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The runtime can't be used from here.
    #[error("{0}")]
    Runtime(String),
    /// There is no thread for the renewals.
    #[error("the operating system gave no thread to renew the leases on: {0}")]
    Thread(String),
    /// The instance's name can't be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A setting breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The operating system gave no random numbers.
    #[error("the operating system gave no random numbers, without which no process is unique: {0}")]
    Random(String),
}
