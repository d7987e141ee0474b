//! What is searched: who takes part, by which clocks, and what may go wrong.

use std::time::Duration;

use tenure_core::{
    Every, LeaseConfig, LeaseOptions, LeaseTiming, PeriodicOptions, Rate, RestartPolicy, StoreClock,
    TimerOptions, WorkerOptions,
};

/// A system to be searched.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many nodes want the lease.
    pub members: usize,
    /// How the lease is timed. All clocks are read in whole ticks.
    pub timing: LeaseTiming,
    /// How fast the nodes' clocks may run beside the store's.
    pub clocks: Clocks,
    /// What the network may do.
    pub network: Network,
    /// Whether a node may be late with everything: it was paused, or has much to do.
    pub pauses: bool,
    /// Whether a process may end at any moment, and start again as a new incarnation.
    pub crashes: bool,
    /// Whether applications leave it to workers to ask for leases and to start their work.
    pub workers: bool,
    /// A periodic job that all have, in place of the lease.
    pub job: Option<Job>,
    /// What the applications do.
    pub application: Application,
    /// What is wrong with the store.
    pub store: Store,
    /// What recovery is looked for from each state.
    pub recovery: Recovery,
    /// More states than this are a mistake.
    pub limit: usize,
}

/// The grain of all clocks: above the longest delay that the core draws below it, and in line with the slots of
/// renewals.
pub const TICK: Duration = Duration::from_millis(100);

/// How far a node's clock may go for each tick of the store's, in parts of a tick. The choice is made anew for each
/// tick and node, so that any course within the extremes is there.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// The parts of a tick.
    pub parts: u8,
    /// How many of them may pass.
    pub advance: Vec<u8>,
}

impl Clocks {
    /// All clocks are the same.
    #[must_use]
    pub fn even() -> Self {
        Self { parts: 1, advance: vec![1] }
    }
}

/// The network between nodes and store. Messages overtake each other at will.
#[derive(Clone, Debug)]
pub struct Network {
    /// How many messages are under way at most, requests and answers. One of them gets lost if there are more, any
    /// of them. Without a bound on the delay, that a message is lost is the same as that it never arrives.
    pub in_flight: usize,
    /// Within how many ticks a message arrives; `None`: at any time.
    pub delay: Option<u8>,
    /// Whether a message that has arrived stays under way, to arrive again until it is lost.
    pub repeats: bool,
    /// Whether the store sends hints.
    pub hints: bool,
}

/// What an application may do with its lease at any time. It always wants it again.
#[derive(Clone, Copy, Debug)]
pub struct Application {
    /// Its work ends by itself, not only after it was stopped.
    pub ends: bool,
    /// It asks its work to end.
    pub drains: bool,
    /// It gives a candidacy up, and begins another one.
    pub gives_up: bool,
    /// It begins the next candidacy as soon as it has heard the outcome of the last one, not only once nothing of that
    /// is left. So a node has several leases for the name.
    pub hasty: bool,
}

/// A periodic job without overlap. All clocks run alike, and the store's wall clock is never set.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// How many ticks of the clocks lie between two of the job.
    pub period: u32,
    /// How many runs of one tick may be begun.
    pub attempts: u32,
    /// Whether a run may turn out not to have begun.
    pub fails_to_start: bool,
    /// How many ticks may be left to another attempt at a time; `None`: as many as the store keeps. With as many of
    /// them, runs do begin, and end before a tick of the clocks has passed; with more claims, no process crashes.
    pub unfinished: Option<usize>,
}

/// What is wrong with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Store {
    /// Nothing.
    Sound,
    /// It raises the token when the owner asks again.
    RaisesOnRepeat,
    /// It renews by writing the record anew, without a look at what is there.
    RenewsBlindly,
    /// It releases by removing the record, without a look at whose it is.
    ReleasesBlindly,
    /// It lets a record end a tick too early.
    ExpiresEarly,
    /// It renews the claim of a tick without a look at whose it is.
    RenewsAnyClaim,
    /// It finishes the claim of a tick without a look at whose it is.
    FinishesAnyClaim,
    /// It grants a tick although a later one was claimed, and although that very tick was run.
    ClaimsBelowLast,
}

/// From each state all trouble ends: what is paused goes on, nothing more is lost or repeated, clocks run evenly, a
/// message takes no time, and stopped work ends. Then somebody must be valid for good within the bound.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The bound in ticks of the store's clock; `None`: not looked at.
    pub within: Option<usize>,
    /// Whether what was under way may also be lost in the last moment.
    pub losing: bool,
    /// Whether any one node may be dead for good.
    pub without_one: bool,
}

impl Config {
    /// Clocks that may be off by a seventh, so that a node's may run at three quarters of the store's.
    pub const DRIFT: Rate = Rate::from_ppm(142_858);

    /// The timing that all searches share: a TTL of four ticks, of which three are usable with such clocks; the fence
    /// after two, the kill after three, a renewal each tick.
    ///
    /// # Panics
    /// If the core refuses it.
    #[must_use]
    pub fn timing(drift: Rate) -> LeaseTiming {
        let clock = StoreClock { drift, quantum: Duration::ZERO, step: Duration::ZERO };
        LeaseConfig::new(4 * TICK)
            .drift(drift)
            .stop_budget(TICK)
            .renew_interval(TICK * 4 / 5)
            .attempt_timeout(Duration::from_millis(1))
            .resolve(&clock)
            .expect("a timing that fits")
    }

    /// A brisk timing for clocks that may be off by 20 % here and there: a TTL of three ticks, of which two are usable;
    /// the fence, the kill and the end all come with the second.
    ///
    /// # Panics
    /// If the core refuses it.
    #[must_use]
    pub fn brisk(drift: Rate) -> LeaseTiming {
        let clock = StoreClock { drift, quantum: Duration::ZERO, step: Duration::ZERO };
        LeaseConfig::new(3 * TICK)
            .drift(drift)
            .stop_budget(TICK / 2)
            .renew_interval(TICK / 2)
            .attempt_timeout(Duration::from_millis(1))
            .resolve(&clock)
            .expect("a timing that fits")
    }

    pub(super) fn worker(&self) -> WorkerOptions {
        let mut options = WorkerOptions::new(self.options());
        options.restart = RestartPolicy::default().delays(TICK, TICK).expect("a policy that fits");
        options
    }

    /// The timing for jobs, whose clocks are all the same: a TTL of two ticks, all of them usable; the fence after one.
    ///
    /// # Panics
    /// If the core refuses it.
    #[must_use]
    pub fn exact() -> LeaseTiming {
        let clock = StoreClock { drift: Rate::ZERO, quantum: Duration::ZERO, step: Duration::ZERO };
        LeaseConfig::new(2 * TICK)
            .drift(Rate::ZERO)
            .stop_budget(TICK)
            .renew_interval(TICK / 2)
            .attempt_timeout(Duration::from_millis(1))
            .resolve(&clock)
            .expect("a timing that fits")
    }

    pub(super) fn periodic(&self, job: Job) -> PeriodicOptions {
        let every = Every::new(TICK * job.period).expect("a period that fits");
        let mut timer = TimerOptions::new(every);
        timer.clock = StoreClock { drift: Rate::ZERO, quantum: Duration::ZERO, step: Duration::ZERO };
        timer.drift = Rate::ZERO;
        let mut options = PeriodicOptions::new(timer, self.options());
        options.attempts = job.attempts;
        options
    }

    pub(super) fn options(&self) -> LeaseOptions {
        let mut options = LeaseOptions::new(self.timing);
        options.grace = TICK;
        options
    }
}
