//! The processes of a fleet.

use tenure_core::{
    CoordinatorKey, Event, Instant, Jitter, LeaseKey, LeaseOptions, LossReason, Node, PeriodicKey, SplitMix,
    StopReason, TimerKey, Token, WorkerKey, WorkerOptions,
};

use super::clock::Clock;

/// A place in the fleet, and the process that runs there.
#[derive(Debug)]
pub(super) struct Member {
    /// Which start of a process it is; see [`World::lives`](super::World::lives).
    pub(super) life: usize,
    /// The real thing.
    pub(super) node: Node<Source>,
    /// The clock of its machine.
    pub(super) clock: Clock,
    /// Whether it runs.
    pub(super) condition: Condition,
    /// Whether its requests reach the store.
    pub(super) asks: bool,
    /// Whether the store's answers and hints reach it.
    pub(super) hears: bool,
    /// What it stands for, holds, and works on.
    pub(super) candidacies: Vec<Candidacy>,
    /// Its workers.
    pub(super) workers: Vec<Worker>,
    /// Its periodic jobs, and which of the fleet's each is.
    pub(super) jobs: Vec<(PeriodicKey, usize)>,
    /// Its timers that are no job's, and which of the fleet's each is.
    pub(super) timers: Vec<(TimerKey, usize)>,
    /// Its part in sharing workloads out.
    pub(super) part: Part,
    /// What its clock showed when an event last went in.
    pub(super) heard_at: Instant,
    /// It was stopped while it carried out outputs, and some are left.
    pub(super) interrupted: bool,
    /// It was told to end, and takes nothing new.
    pub(super) shut: bool,
    /// Since when its clock runs as far as is assumed; what it believed before counts for nothing.
    pub(super) trusted_from: u64,
    /// It is among those that must make progress.
    pub(super) core: bool,
    /// When it wakes up by itself, in true time.
    pub(super) alarm: Option<u64>,
    /// What came in while it was paused.
    pub(super) inbox: Vec<Event>,
}

/// The part of a process in sharing workloads out.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Which kind of coordinator it has.
    pub(super) kind: usize,
    /// Its coordinator.
    pub(super) coordinator: Option<CoordinatorKey>,
    /// What its coordinator was asked for.
    pub(super) options: Option<WorkerOptions>,
    /// How often its workloads were changed.
    pub(super) changes: u64,
    /// Its program wants it to drain.
    pub(super) asked: bool,
    /// Its heartbeats don't get through.
    pub(super) silent: bool,
}

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It does.
    Up,
    /// It is stopped until then, in true time.
    Paused {
        /// When it is continued.
        until: u64,
    },
    /// There is none.
    Down,
}

/// What a member stands for, or holds.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    /// Its key.
    pub(super) lease: LeaseKey,
    /// The worker that it is of.
    pub(super) worker: Option<WorkerKey>,
    /// The index of its name; [`CLAIM`] for the claim of a tick.
    pub(super) name: usize,
    /// The job and the number of the tick, if it is for a run.
    pub(super) run: Option<(usize, u64)>,
    /// What was asked for.
    pub(super) options: LeaseOptions,
    /// By when it must be decided, on its member's clock.
    pub(super) decide_by: Option<Instant>,
    /// By when its work must have been stopped hard, on its member's clock.
    pub(super) stop_by: Option<Instant>,
    /// The token under which it holds the lease, until that is lost or given back.
    pub(super) held: Option<Token>,
    /// How it was lost.
    pub(super) lost: Option<LossReason>,
    /// What it does under the lease.
    pub(super) work: Option<Work>,
    /// Its work was told to end.
    pub(super) asked: bool,
    /// The application gave it up, or was told that it is over.
    pub(super) over: bool,
}

/// In place of the name of a lease: it is the claim of a tick.
pub(super) const CLAIM: usize = usize::MAX;

/// A worker.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    /// Its key.
    pub(super) key: WorkerKey,
    /// The index of the name of its lease.
    pub(super) name: usize,
    /// What was asked for.
    pub(super) options: WorkerOptions,
    /// It was told to end.
    pub(super) draining: bool,
    /// A coordinator has made it.
    pub(super) share: bool,
}

impl Worker {
    /// The candidacy of its next run.
    pub(super) fn candidacy(&self, lease: LeaseKey) -> Candidacy {
        Candidacy { worker: Some(self.key), ..Candidacy::new(lease, self.name, self.options.lease.clone()) }
    }
}

impl Candidacy {
    pub(super) fn new(lease: LeaseKey, name: usize, options: LeaseOptions) -> Self {
        Self {
            lease,
            worker: None,
            name,
            run: None,
            options,
            decide_by: None,
            stop_by: None,
            held: None,
            lost: None,
            work: None,
            asked: false,
            over: false,
        }
    }
}

/// Work under a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// The token of its grant.
    pub(super) token: Token,
    /// Why it was asked to stop, the last time.
    pub(super) asked: Option<StopReason>,
    /// When it was stopped hard and did not end, on its member's clock.
    pub(super) stuck: Option<Instant>,
}

impl Member {
    /// What its clock shows.
    pub(super) fn local(&self, now: u64) -> Instant {
        self.clock.at(now)
    }

    /// Whether it runs.
    pub(super) fn is_up(&self) -> bool {
        self.condition == Condition::Up
    }

    /// The candidacy with this key.
    pub(super) fn candidacy(&self, lease: LeaseKey) -> Option<&Candidacy> {
        self.candidacies.iter().find(|candidacy| candidacy.lease == lease)
    }

    pub(super) fn candidacy_mut(&mut self, lease: LeaseKey) -> Option<&mut Candidacy> {
        self.candidacies.iter_mut().find(|candidacy| candidacy.lease == lease)
    }

    /// The workloads that belong to it, as it sees it.
    pub(super) fn shares(&self) -> impl Iterator<Item = usize> {
        self.workers.iter().filter(|worker| worker.share && !worker.draining).map(|worker| worker.name)
    }

    /// Whether work may start there under this name now.
    pub(super) fn is_valid(&self, now: u64, name: usize) -> bool {
        let valid = |candidacy: &Candidacy| {
            candidacy.held.is_some() && self.node.valid(self.local(now), candidacy.lease).is_some()
        };
        self.is_up() && self.candidacies.iter().any(|candidacy| candidacy.name == name && valid(candidacy))
    }
}

/// Where the nodes take their jitter from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A new number for each draw.
    Fresh(SplitMix),
    /// A planted bug: the first number, again and again.
    Repeated {
        /// Where the first one comes from.
        source: SplitMix,
        /// The first one, in parts of 2^32.
        first: Option<u64>,
    },
}

impl Jitter for Source {
    fn below(&mut self, bound: u64) -> u64 {
        match self {
            Self::Fresh(source) => source.below(bound),
            Self::Repeated { source, first } => {
                let part = *first.get_or_insert_with(|| source.below(1 << 32));
                ((u128::from(part) * u128::from(bound)) >> 32) as u64
            }
        }
    }

    fn fork(&mut self) -> Self {
        match self {
            Self::Fresh(source) => Self::Fresh(source.fork()),
            Self::Repeated { source, .. } => Self::Repeated { source: source.fork(), first: None },
        }
    }
}
