//! A seeded simulation of fleets of real nodes, in virtual time.
//!
//! Each fleet has three to six processes, some leases, half of them periodic jobs and a timer, a store, and a network, clocks, users, workers and work that
//! misbehave. A course begins with trouble, in which each class of [faults](Fault) is on in half of the fleets. Then a
//! core of the fleet is healed, at least a majority and the store, and must make progress though the rest stays broken:
//! recover, lose nothing, take over from a holder that dies, and end in order.
//!
//! The properties are in `simulation/invariant`, one file each, and are judged all along. Some faults go beyond what a
//! lease can stand; then what still must hold is judged, and nothing else:
//!
//! | beyond the assumptions | excused | for how long |
//! |---|---|---|
//! | a member's clock runs too fast or slow | that member, from S2 and S4 | as long as it does, and a TTL |
//! | the store's clock does, or is set too far, or the store loses its data | all, from S2 and S4 | a TTL longer |
//! | the store forgets its highest token | the store, from S6; S5 is that accepted tokens never go down | until it is mended |
//! | a process is paused inside its work | its work, from S4 | as long as it is |
//! | work does not end when it is stopped hard | that work, from S4 | until it ends |
//!
//! Everything random is drawn from a [`Tape`]. A failing tape is shrunk and told as a trace. So a fleet is repeated by
//! its seed alone, on every platform. [`Mark`]s count the rare situations that a run of many fleets must have seen.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

mod clock;
mod faults;
mod fleet;
mod invariant;
mod marks;
mod member;
mod shares;
mod shrink;
mod store;
mod tape;
mod world;

pub use faults::{Fault, Faults};
pub use fleet::Fleet;
pub use marks::{Mark, Marks};
pub use shrink::shrink;
pub use tape::Tape;

/// The most processes that a fleet has at a time.
const MOST_MEMBERS: usize = 6;
/// The most leases that a fleet has.
const MOST_NAMES: usize = 3;
/// The TTLs of fleets; the driver's delays in trouble are too long for shorter ones.
const TTLS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(1), Duration::from_millis(300), Duration::from_secs(4)];
/// The most periodic jobs that a fleet has.
const MOST_JOBS: usize = 2;
/// The most workloads that a fleet shares out, but for one that comes with a new version.
const MOST_WORKLOADS: usize = 4;
/// How long workers rest.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_millis(800);

/// What fleets are like.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The TTL of all leases; drawn for each fleet if there is none here.
    pub ttl: Option<Duration>,
    /// How many of them the trouble lasts.
    pub trouble: u32,
    /// The faults; drawn for each fleet if there are none here.
    pub faults: Option<Faults>,
    /// A bug, to see it found.
    pub plant: Option<Plant>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { ttl: None, trouble: 50, faults: None, plant: None }
    }
}

/// A bug outside of the core that is planted to see it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plant {
    /// V = TTL: nothing is kept back for the drift of the clocks.
    NoMargin,
    /// The source of jitter draws once, and repeats its first draw.
    RepeatedJitter,
    /// A store that gives a new token to a request that is repeated.
    AcquireRaisesToken,
    /// A store that renews by the owner alone.
    RenewIgnoresToken,
    /// A store that lets anybody release.
    ReleaseIgnoresOwner,
    /// A store that gives tokens again after a restart.
    TokensAgain,
    /// A store that renews the claim of a tick for anybody.
    RenewsAnyClaim,
    /// A store that lets anybody finish the claim of a tick.
    FinishesAnyClaim,
    /// A store that grants ticks below the last one, and those that were run.
    ClaimsBelowLast,
    /// A store whose heartbeats clear an operator's mark.
    BeatClearsMark,
    /// A store that forgets who has left at once.
    NoTombstone,
    /// A store that tells everybody who has ever seen a view that it is unchanged.
    VersionStays,
    /// A store that says with each heartbeat that its sender has only just joined.
    JoinedAnew,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::NoMargin,
        Self::RepeatedJitter,
        Self::AcquireRaisesToken,
        Self::RenewIgnoresToken,
        Self::ReleaseIgnoresOwner,
        Self::TokensAgain,
        Self::RenewsAnyClaim,
        Self::FinishesAnyClaim,
        Self::ClaimsBelowLast,
        Self::BeatClearsMark,
        Self::NoTombstone,
        Self::VersionStays,
        Self::JoinedAnew,
    ];
}

/// What came of fleets whose courses were as they must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many there were.
    pub fleets: u64,
    /// How long they ran, in virtual time.
    pub simulated: Duration,
    /// What happened in them.
    pub events: u64,
    /// How often a lease was granted.
    pub grants: u64,
    /// The rare situations that they came into.
    pub marks: Marks,
}

impl Report {
    fn add(&mut self, other: &Self) {
        self.fleets += other.fleets;
        self.simulated += other.simulated;
        self.events += other.events;
        self.grants += other.grants;
        self.marks.add(&other.marks);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fleets, simulated, events, grants, marks } = self;
        let hours = simulated.as_secs_f64() / 3_600.0;
        writeln!(f, "{fleets} fleets, {hours:.1} simulated hours, {events} events, {grants} grants")?;
        write!(f, "{marks}")
    }
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Which.
    pub property: &'static str,
    /// What was seen.
    pub what: String,
}

impl Violation {
    fn new(property: &'static str, what: String) -> Self {
        Self { property, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is violated: {}", self.property, self.what)
    }
}

/// A fleet with a violation, told as shortly as possible.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The seed that found it.
    pub seed: u64,
    /// What is violated.
    pub violation: Violation,
    /// How many choices the course had up to the violation.
    pub drawn: usize,
    /// The choices that are left, and lead to a violation of the same property.
    pub choices: Vec<Vec<u32>>,
    /// What the fleet with these is like.
    pub fleet: String,
    /// Its course.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, violation, drawn, choices, fleet, trace } = self;
        writeln!(f, "{}\n{fleet}", trace.join("\n"))?;
        writeln!(f, "{violation}")?;
        let left: usize = choices.iter().map(Vec::len).sum();
        writeln!(f, "(seed {seed}, shrunk from {drawn} choices to {left})")
    }
}

/// Runs the fleet of a seed through its course.
///
/// # Errors
/// The first violation.
pub fn run(seed: u64, settings: &Settings) -> Result<Report, Violation> {
    let mut fleet = Fleet::new(Tape::from_seed(seed), settings);
    watched(&mut fleet, settings)
}

/// Runs a fleet through its course by the choices of a tape.
///
/// # Errors
/// The first violation.
pub fn replay(tape: Tape, settings: &Settings) -> Result<Report, Violation> {
    let mut fleet = Fleet::new(tape, settings);
    watched(&mut fleet, settings)
}

/// Runs the fleets of many seeds on two threads. The outcome does not depend on how these are scheduled.
///
/// # Errors
/// The violation with the lowest seed, shrunk.
pub fn run_many(seeds: Range<u64>, settings: &Settings) -> Result<Report, Box<Failure>> {
    const THREADS: u64 = 2;
    let lowest = AtomicU64::new(u64::MAX);
    let part = |nth: u64| {
        let mut report = Report::default();
        for seed in seeds.clone().skip(nth as usize).step_by(THREADS as usize) {
            if lowest.load(Ordering::Relaxed) < seed {
                break;
            }
            match run(seed, settings) {
                Ok(fleet) => report.add(&fleet),
                Err(_) => {
                    lowest.fetch_min(seed, Ordering::Relaxed);
                    break;
                }
            }
        }
        report
    };
    let mut report = Report::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|nth| scope.spawn(move || part(nth))).collect();
        for thread in threads {
            report.add(&thread.join().expect("a fleet's panic is caught"));
        }
    });
    match lowest.into_inner() {
        u64::MAX => Ok(report),
        seed => Err(Box::new(investigate(seed, settings).expect("the same seed fails again"))),
    }
}

/// Shrinks the failing course of a seed; `None` if it does not fail.
#[must_use]
pub fn investigate(seed: u64, settings: &Settings) -> Option<Failure> {
    const TRIES: usize = 3_000;
    let course = |tape: Tape, trace: bool| {
        let mut fleet = Fleet::new(tape, settings);
        fleet.trace = trace.then(Vec::new);
        let violation = watched(&mut fleet, settings).err();
        (violation, fleet)
    };
    let (violation, fleet) = course(Tape::from_seed(seed), false);
    let property = violation?.property;
    let drawn = fleet.drawn().iter().map(Vec::len).sum();
    let choices = shrink(fleet.drawn(), TRIES, |choices| {
        let (violation, fleet) = course(Tape::from_choices(choices.to_vec()), false);
        violation.filter(|violation| violation.property == property).map(|_| fleet.drawn())
    });
    let (violation, fleet) = course(Tape::from_choices(choices.clone()), true);
    let description = fleet.describe();
    let trace = fleet.trace.unwrap_or_default();
    Some(Failure { seed, violation: violation?, drawn, choices, fleet: description, trace })
}

/// Runs a course to its end, or to the first violation. A panic is one.
fn watched(fleet: &mut Fleet, settings: &Settings) -> Result<Report, Violation> {
    let panicked = quietly(|| course(fleet, settings));
    if let Err(what) = panicked {
        fleet.violation = Some(Violation::new("nothing panics", what));
    }
    match fleet.violation.clone() {
        Some(violation) => Err(violation),
        None => Ok(Report {
            fleets: 1,
            simulated: Duration::from_nanos(fleet.world.now),
            events: fleet.events,
            grants: fleet.grants,
            marks: fleet.marks().clone(),
        }),
    }
}

fn course(fleet: &mut Fleet, settings: &Settings) {
    let ttl = fleet.world.timing.ttl().as_nanos() as u64;
    fleet.run_for(ttl * u64::from(settings.trouble));
    fleet.heal();
    fleet.recover();
    fleet.settled();
    fleet.run_for((5 * ttl).max(fleet.patience()));
    fleet.bereave();
    fleet.mourn();
    fleet.settled();
    fleet.run_for(2 * ttl);
    fleet.end();
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs something whose panics are told by the caller, and not on the terminal.
fn quietly(run: impl FnOnce()) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
    })
}
