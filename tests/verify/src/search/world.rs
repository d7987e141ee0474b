//! The system that is searched: nodes, a store, and what is under way between them.

use std::collections::BTreeMap;
use std::rc::Rc;

use tenure_core::{
    Acquisition, Command, CommandId, Deadlines, Identity, Incarnation, Instant, LeaseKey, LeaseName, Misuse,
    Node, PeriodicKey, Reply, TimerName, Timestamp, Token, Wake, WorkerKey,
};

use super::canonical::canonical;
use super::choice::{Chosen, Tape};
use super::config::{Config, Store, TICK};
use super::explore::Violation;
use super::job::check_claims;
use super::step::Step;
use crate::store::ModelStore;

/// A state of the system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) store: ModelStore,
    pub(super) store_clock: Instant,
    /// By which its timers go.
    pub(super) wall: Timestamp,
    pub(super) members: Vec<Member>,
    /// Requests and answers under way.
    pub(super) network: Vec<Message>,
    /// The highest token of a grant that any application has heard of.
    pub(super) told: Token,
    /// How often each tick of the job was begun, as long as it is in sight.
    pub(super) begun: BTreeMap<u64, u32>,
}

/// A process: its node, its clock, and what its application believes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) node: Rc<Node<Chosen>>,
    pub(super) clock: Instant,
    /// The parts of a tick that have passed since the clock was read last.
    pub(super) parts: u8,
    /// When the node wants to be woken.
    pub(super) alarm: Option<Instant>,
    /// The worker, if the application leaves it to one to ask for leases.
    pub(super) worker: Option<WorkerKey>,
    /// The latest candidacy or hold.
    pub(super) lease: Option<LeaseKey>,
    /// The grant that it was told of, until it is released.
    pub(super) grant: Option<Grant>,
    pub(super) work: Work,
    /// Its periodic job, if it has one.
    pub(super) job: Option<PeriodicKey>,
    /// The candidacies and runs of that.
    pub(super) runs: Vec<Run>,
}

/// A tick that is claimed, to be claimed, or run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) worker: WorkerKey,
    pub(super) lease: LeaseKey,
    pub(super) tick: u64,
    pub(super) grant: Option<Grant>,
    pub(super) work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) n: Acquisition,
    pub(super) token: Token,
    pub(super) lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    None,
    Running,
    /// It was asked to end.
    Asked,
    /// It was stopped hard, and has not ended yet.
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) member: usize,
    /// Which incarnation of it.
    pub(super) identity: Identity,
    /// How many ticks it has been under way, where that is bounded.
    pub(super) age: u8,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Request(Command),
    /// About the claim of this tick.
    Claim(Command, u64),
    Answer(CommandId, Reply),
    Hint(Wake),
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Arrive(usize),
    Wake(usize),
    EndWork(usize),
    /// Of one of its runs.
    EndRun(usize, usize),
    Drain(usize),
    GiveUp(usize),
    Crash(usize),
    Tick,
}

/// Where all clocks begin, and where they are brought back to: far enough from the epoch to look back.
pub(super) const START: Instant = Instant::from_nanos(1_000 * TICK.as_nanos() as u64);
/// Where the store's wall clock begins, and is brought back to.
pub(super) const WALL: Timestamp = Timestamp::from_nanos(START.as_nanos() as i64);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Makes worlds go on.
#[derive(Clone, Debug)]
pub(super) struct Laws {
    pub(super) config: Config,
    pub(super) name: LeaseName,
    pub(super) timer: TimerName,
    pub(super) tape: Tape,
}

pub(super) fn identity(member: usize, incarnation: u128) -> Identity {
    Identity::new(NAMES[member], Incarnation::new(incarnation)).expect("a fine name")
}

impl Laws {
    /// All applications ask for the lease at once.
    pub(super) fn start(&self) -> World {
        self.tape.clear();
        let empty = World {
            store: ModelStore::default(),
            store_clock: START,
            wall: WALL,
            members: Vec::new(),
            network: Vec::new(),
            told: Token::ZERO,
            begun: BTreeMap::new(),
        };
        let mut step = Step { laws: self, world: empty, story: None, calm: false };
        for index in 0..self.config.members {
            step.world.members.push(self.newcomer(index, 0, START));
            step.join(index).expect("nothing can be wrong yet");
        }
        step.world
    }

    /// A process that has just begun, and has not asked for anything.
    pub(super) fn newcomer(&self, index: usize, incarnation: u128, clock: Instant) -> Member {
        let chosen = Chosen { tape: self.tape.clone(), tick: TICK };
        Member {
            node: Rc::new(Node::new(identity(index, incarnation), chosen)),
            clock,
            parts: 0,
            alarm: None,
            worker: None,
            lease: None,
            grant: None,
            work: Work::None,
            job: None,
            runs: Vec::new(),
        }
    }

    /// The application of this process wants the lease, or it again.
    pub(super) fn ask(&self, member: &mut Member) -> Result<(), Misuse> {
        let node = Rc::make_mut(&mut member.node);
        let (now, name) = (member.clock, self.name.clone());
        if let Some(job) = self.config.job {
            member.job = Some(node.start_periodic(now, self.timer.clone(), self.config.periodic(job))?);
        } else if self.config.workers {
            member.worker = Some(node.start_worker(now, name, self.config.worker())?);
        } else {
            member.lease = Some(node.acquire(now, name, self.config.options())?);
        }
        Ok(())
    }

    /// Rewrites a world into its canonical form.
    pub(super) fn canonical(&self, world: &mut World) {
        canonical(world, &self.config.timing, self.config.store == Store::Sound);
    }

    /// What may happen in this world.
    pub(super) fn actions(&self, world: &World) -> Vec<Action> {
        let Config { network, application, pauses, crashes, .. } = &self.config;
        let mut actions: Vec<_> = (0..world.network.len()).map(Action::Arrive).collect();
        for (index, member) in world.members.iter().enumerate() {
            if *pauses && member.is_due() {
                actions.push(Action::Wake(index));
            }
            for (place, run) in member.runs.iter().enumerate() {
                match run.work {
                    Work::Running if !application.ends => {}
                    Work::Running | Work::Asked | Work::Stopped => actions.push(Action::EndRun(index, place)),
                    Work::None => {}
                }
            }
            match member.work {
                Work::None if member.job.is_some() => {}
                Work::None if application.gives_up && member.grant.is_none() && member.node.len() < 3 => {
                    actions.push(Action::GiveUp(index));
                }
                Work::None => {}
                Work::Running => {
                    if application.ends {
                        actions.push(Action::EndWork(index));
                    }
                    if application.drains {
                        actions.push(Action::Drain(index));
                    }
                }
                Work::Asked | Work::Stopped => actions.push(Action::EndWork(index)),
            }
            if *crashes && self.may_crash(world) {
                actions.push(Action::Crash(index));
            }
        }
        let overdue = |message: &Message| network.delay.is_some_and(|delay| message.age >= delay);
        if !world.network.iter().any(overdue) && !self.runs_must_end(world) {
            actions.push(Action::Tick);
        }
        actions
    }
}

impl Member {
    pub(super) fn is_due(&self) -> bool {
        self.alarm.is_some_and(|at| at <= self.clock)
    }

    /// The token under which its application may begin work right now.
    pub(super) fn valid(&self) -> Option<Token> {
        self.node.valid(self.clock, self.lease?)
    }

    pub(super) fn deadlines(&self) -> Option<Deadlines> {
        self.node.deadlines(self.lease?)
    }

    /// It is to begin work right now.
    pub(super) fn start_work(&mut self, token: Token) -> Result<(), Violation> {
        if self.work != Work::None {
            return Err(violation("C1", format!("{} would start its work twice", self.name())));
        }
        if self.valid() != Some(token) {
            return Err(violation("S3", format!("{} would start its work too late", self.name())));
        }
        self.work = Work::Running;
        Ok(())
    }

    pub(super) fn stop_work(&mut self, lease: LeaseKey, to: Work) {
        if Some(lease) == self.lease && self.work != Work::None {
            self.work = to;
        }
    }

    pub(super) fn name(&self) -> &str {
        self.node.identity().instance()
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(command) | Self::Claim(command, _) => write!(f, "{command}"),
            Self::Answer(id, reply) => write!(f, "{id} {reply:?}"),
            Self::Hint(wake) => write!(f, "{wake:?}"),
        }
    }
}

pub(super) fn violation(rule: &'static str, what: String) -> Violation {
    Violation { rule, what }
}

/// Safety, in every state.
pub(super) fn check(laws: &Laws, world: &World) -> Result<(), Violation> {
    let record = world.store.holder(world.store_clock, &laws.name);
    let mut valid = 0;
    for member in &world.members {
        let name = member.name();
        let owns = |grant: Grant| {
            record.is_some_and(|record| {
                record.token == grant.token
                    && record.owner.acquisition() == grant.n
                    && record.owner.identity() == member.node.identity()
            })
        };
        let grant = member.grant.filter(|grant| !grant.lost);
        if let Some(token) = member.valid() {
            valid += 1;
            let Some(grant) = grant.filter(|grant| grant.token == token) else {
                return Err(violation(
                    "S7",
                    format!("{name} is valid with {token}, of which it was not told"),
                ));
            };
            if !owns(grant) {
                return Err(violation("S2'", format!("{name} is valid with {token}, and does not own it")));
            }
        }
        // Work that began in time, and work that was asked to stop, relies on the whole validity.
        if let (Some(deadlines), Some(grant)) = (member.deadlines(), grant)
            && member.clock < deadlines.valid_until
            && !owns(grant)
        {
            let what = format!("{name} may still work with {}, and does not own it", grant.token);
            return Err(violation("S4", what));
        }
    }
    if valid > 1 {
        return Err(violation("S2", "two are valid at once".into()));
    }
    check_claims(laws, world)
}
