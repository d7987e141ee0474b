//! Which classes of faults there are.

use super::tape::Tape;

/// A class of faults. Each is on in half of the fleets, so that rare combinations occur, and none hides the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever runs fleets chooses among them")]
pub enum Fault {
    /// Messages take different times, and overtake each other.
    Reordering,
    /// Some take much longer than others.
    Delay,
    /// Requests and hints get lost.
    Loss,
    /// Requests and answers arrive twice.
    Duplication,
    /// A request is executed, and its answer lost.
    ReplyLost,
    /// The store says that it failed, before or after it has done what was asked, or refuses.
    Trouble,
    /// Some nodes are cut off from the store, in one direction or both.
    Partition,
    /// Processes die, and come again as strangers.
    Crash,
    /// Processes are stopped and continued.
    Pause,
    /// Clocks run fast and slow, as far as is assumed.
    Drift,
    /// The clocks of some run further off than is assumed: only tokens protect against these.
    WildDrift,
    /// The store is down for a while, and forgets who waits.
    Restart,
    /// The store comes again without its data: only tokens protect, and, if it forgot those as well, only what each
    /// process has seen.
    Wipe,
    /// The store's clock is set, as far as is assumed.
    Step,
    /// The store's clock is set further than is assumed: only tokens protect for as long as a lease may last.
    WildStep,
    /// The store takes its time.
    Slow,
    /// Hints that are wrong.
    Lies,
    /// Users give up, drain, release, and shut down; work completes.
    Users,
    /// A driver is stopped between two of the outputs that it carries out, and goes on where it was.
    Interruption,
    /// Workers are among those who want leases.
    Workers,
    /// Several candidates for each name in each process, not all of them patient.
    Crowd,
    /// Some hold for a limited time only.
    Limits,
    /// Work that does not stop when it is stopped hard.
    Stuck,
    /// Everybody has periodic jobs and a timer, too.
    Jobs,
    /// The store's wall clock is set in both directions, timers are forgotten, and not all instances ask for the same
    /// schedule.
    Wall,
    /// Everybody is a member, too, and takes part in sharing workloads out.
    Sharing,
    /// Not all instances share out the same workloads by the same rule, as while a new version is rolled out.
    Deploys,
    /// Some instances come and go again and again.
    Flapping,
    /// Operators and programs drain instances, one or all, and take it back.
    Drains,
    /// Workloads are added and removed, and not everybody hears of it at the same time.
    Workloads,
    /// The heartbeats of some are lost, and nothing else.
    Silence,
    /// The store forgets its members.
    Forgets,
    /// Many instances come at once.
    Bursts,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::Reordering,
        Self::Delay,
        Self::Loss,
        Self::Duplication,
        Self::ReplyLost,
        Self::Trouble,
        Self::Partition,
        Self::Crash,
        Self::Pause,
        Self::Drift,
        Self::WildDrift,
        Self::Restart,
        Self::Wipe,
        Self::Step,
        Self::WildStep,
        Self::Slow,
        Self::Lies,
        Self::Users,
        Self::Interruption,
        Self::Workers,
        Self::Crowd,
        Self::Limits,
        Self::Stuck,
        Self::Jobs,
        Self::Wall,
        Self::Sharing,
        Self::Deploys,
        Self::Flapping,
        Self::Drains,
        Self::Workloads,
        Self::Silence,
        Self::Forgets,
        Self::Bursts,
    ];
}

/// The classes of faults that are on.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults(u64);

impl Faults {
    /// None.
    pub const NONE: Self = Self(0);
    /// What a healthy fleet lives with.
    pub const BENIGN: Self = Self(
        1 << Fault::Reordering as u32
            | 1 << Fault::Drift as u32
            | 1 << Fault::Workers as u32
            | 1 << Fault::Jobs as u32
            | 1 << Fault::Sharing as u32,
    );

    /// Each with an even chance.
    pub fn swarm(tape: &mut Tape) -> Self {
        Fault::ALL.into_iter().filter(|_| tape.base().one_in(2)).collect()
    }

    /// These without those.
    #[must_use]
    pub const fn minus(self, those: Self) -> Self {
        Self(self.0 & !those.0)
    }

    /// Whether this one is on.
    #[must_use]
    pub fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u32) != 0
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        Self(faults.into_iter().fold(0, |set, fault| set | (1 << fault as u32)))
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(Fault::ALL.into_iter().filter(|fault| self.has(*fault))).finish()
    }
}
