//! A fleet of real nodes in virtual time, with one store and a network between them.
//!
//! Time jumps from one happening to the next. Whatever is random comes from the tape.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{
    Command, CommandId, Event, Identity, Incarnation, Instant, LeaseConfig, LeaseKey, LeaseName, Node, Rate,
    Reply, SplitMix, StoreClock, Token,
};
use tenure_store::TimerAct;

use super::clock::Clock;
use super::faults::{Fault, Faults};
use super::invariant::Invariants;
use super::marks::{Marks, Watcher};
use super::member::{Candidacy, Condition, Member, Part, Source};
use super::store::Store;
use super::tape::Tape;
use super::world::{Fact, MS, Phase, Resource, SECOND, What, World};
use super::{MOST_MEMBERS, MOST_NAMES, Plant, Settings, TTLS, Violation};
use crate::store::MemberAct;

mod by_hand;
mod driver;
mod healing;
mod jobs;
mod network;
mod registry;
mod sharing;
mod trouble;
mod users;
mod work;

use trouble::STRIKES;

/// A fleet, and what is known of its run.
pub struct Fleet {
    pub(super) world: World,
    tape: Tape,
    /// What the nodes' jitter follows from.
    jitter: u64,
    faults: Faults,
    settings: Settings,
    /// Messages wait for a decision; see [`Fleet::by_hand`].
    by_hand: bool,
    agenda: BTreeMap<(u64, u64), Happening>,
    serial: u64,
    invariants: Invariants,
    watcher: Watcher,
    /// The leases whose expiry is on the agenda.
    expiring: Vec<bool>,
    /// By how much the store's clock was set, within what is assumed.
    offset: i64,
    /// Until when what was broken beyond the assumptions goes on to hurt.
    hurts_until: u64,
    pub(super) events: u64,
    pub(super) grants: u64,
    pub(super) trace: Option<Vec<String>>,
    pub(super) violation: Option<Violation>,
}

/// What is going to happen. A life that is over hears nothing.
#[derive(Debug)]
enum Happening {
    Wake { member: usize },
    Request { life: usize, name: usize, command: Command, served: bool },
    Answer { life: usize, id: CommandId, reply: Reply },
    Hint { life: usize, event: Event },
    TimerRequest { life: usize, schedule: usize, id: CommandId, act: TimerAct, served: bool },
    Read { life: usize, event: Event },
    MemberRequest { life: usize, id: CommandId, act: Box<MemberAct>, served: bool },
    Job { life: usize, schedule: usize },
    Finish { life: usize, lease: LeaseKey },
    Work { life: usize, lease: LeaseKey },
    Write { life: usize, name: usize, token: Token },
    Stand { life: usize, name: usize },
    Act { member: usize },
    Strike { fault: Fault },
    Unmark { life: Option<usize> },
    GoOn { life: usize },
    Configure { life: usize },
    Flap { member: usize, times: u64 },
    Loud { life: usize },
    Resume { member: usize },
    Start { member: usize },
    Link { member: usize },
    StoreUp,
    Expire { name: usize },
}

impl Fleet {
    /// A fleet whose size, faults and course all follow from the tape.
    pub(super) fn new(mut tape: Tape, settings: &Settings) -> Self {
        let faults = settings.faults.unwrap_or_else(|| Faults::swarm(&mut tape));
        let members = 3 + tape.base().pick(1 + MOST_MEMBERS - 3);
        let names = 1 + tape.base().pick(MOST_NAMES);
        let ttl = settings.ttl.unwrap_or(TTLS[tape.base().pick(TTLS.len())]);
        let settings = Settings { ttl: Some(ttl), faults: Some(faults), ..settings.clone() };
        Self::build(tape, &settings, members, names, false)
    }

    fn build(mut tape: Tape, settings: &Settings, members: usize, names: usize, by_hand: bool) -> Self {
        let faults = settings.faults.unwrap_or(Faults::NONE);
        let step = if faults.has(Fault::Step) { STEP } else { Duration::ZERO };
        let ttl = LeaseConfig::new(settings.ttl.unwrap_or(TTLS[0]));
        let (config, assumed) = match settings.plant {
            Some(Plant::NoMargin) => {
                let perfect = StoreClock { drift: Rate::ZERO, quantum: Duration::ZERO, step: Duration::ZERO };
                (ttl.drift(Rate::ZERO), perfect)
            }
            _ => (ttl, StoreClock { step, ..StoreClock::default() }),
        };
        let config = varied(&mut tape, config, &assumed);
        let jitter = tape.base().below(1 << 32) << 32;
        let clock = clock(&mut tape, faults, MOST_MEMBERS);
        let wall = Clock::new(jobs::WALL, drift(&mut tape, faults, MOST_MEMBERS));
        let world = World {
            now: 0,
            phase: Phase::Trouble,
            benign: !by_hand && faults.minus(Faults::BENIGN) == Faults::NONE,
            has_workers: by_hand || faults.has(Fault::Workers),
            names: (0..names).filter_map(|i| LeaseName::new(format!("lease-{i}")).ok()).collect(),
            leases: names,
            shares: None,
            timing: config.resolve(&assumed).expect("they fit"),
            schedules: Vec::new(),
            jobs: 0,
            exact: !faults.has(Fault::WildDrift),
            claims_trusted_from: Vec::new(),
            forgotten: Vec::new(),
            wall_set_back: None,
            store: Store::new(clock, wall, settings.plant),
            members: Vec::new(),
            lives: Vec::new(),
            resource: Resource::default(),
            trusted_from: 0,
            tokens_kept: true,
        };
        let mut fleet = Self {
            world,
            tape,
            jitter,
            faults,
            settings: settings.clone(),
            by_hand,
            agenda: BTreeMap::new(),
            serial: 0,
            invariants: Invariants::default(),
            watcher: Watcher::default(),
            expiring: vec![false; names],
            offset: 0,
            hurts_until: 0,
            events: 0,
            grants: 0,
            trace: None,
            violation: None,
        };
        if faults.has(Fault::Jobs) {
            fleet.make_schedules();
        }
        if faults.has(Fault::Sharing) {
            fleet.make_shares();
        }
        for index in 0..members {
            let clock = self::clock(&mut fleet.tape, faults, index);
            let (life, node) = fleet.born(index);
            fleet.world.members.push(Member {
                life,
                node,
                clock,
                condition: Condition::Up,
                asks: true,
                hears: true,
                candidacies: Vec::new(),
                workers: Vec::new(),
                jobs: Vec::new(),
                timers: Vec::new(),
                part: Part::default(),
                heard_at: Instant::ZERO,
                interrupted: false,
                shut: false,
                trusted_from: 0,
                core: false,
                alarm: None,
                inbox: Vec::new(),
            });
            if !by_hand {
                fleet.campaign(index);
                fleet.plan_act(index);
            }
        }
        for fault in STRIKES {
            fleet.plan_strike(fault);
        }
        fleet
    }

    /// Lets everything happen that is due by `end`, in true time.
    pub(super) fn run_until(&mut self, end: u64) {
        while self.violation.is_none() {
            let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= end) else {
                self.world.now = self.world.now.max(end);
                return self.check();
            };
            let ((at, _), what) = entry.remove_entry();
            self.world.now = self.world.now.max(at);
            self.events += 1;
            self.happen(what);
            self.check();
        }
    }

    /// Lets everything happen for this long.
    pub(super) fn run_for(&mut self, length: u64) {
        self.run_until(self.world.now + length);
    }

    /// What was drawn so far.
    pub(super) fn drawn(&self) -> Vec<Vec<u32>> {
        self.tape.drawn()
    }

    /// The rare situations that it came into.
    pub(super) fn marks(&self) -> &Marks {
        &self.watcher.marks
    }

    /// What this fleet is like, in a line.
    pub(super) fn describe(&self) -> String {
        let (members, names) = (self.world.members.len(), self.world.names.len());
        let (timing, faults) = (self.world.timing, self.settings.faults.unwrap_or_default());
        let (ttl, budget, interval) = (timing.ttl(), timing.stop_budget(), timing.renew_interval());
        let shares = match &self.world.shares {
            Some(shares) => format!("{shares:?}\n"),
            None => String::new(),
        };
        format!(
            "{members} nodes, {names} leases, TTL {ttl:?}, stop budget {budget:?}, renewals each {interval:?}\n{shares}{faults:?}"
        )
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Wake { member } => {
                if self.world.members[member].alarm == Some(self.world.now) {
                    self.world.members[member].alarm = None;
                    self.input(member, Event::Timeout);
                }
            }
            Happening::Request { life, name, command, served } => self.arrive(life, name, command, served),
            Happening::Answer { life, id, reply } => self.hear(life, Event::Reply { id, reply }),
            Happening::Hint { life, event } | Happening::Read { life, event } => self.hear(life, event),
            Happening::TimerRequest { life, schedule, id, act, served } => {
                self.arrive_timer(life, schedule, id, act, served);
            }
            Happening::MemberRequest { life, id, act, served } => self.arrive_member(life, id, act, served),
            Happening::Job { life, schedule } => self.start_again(life, schedule),
            Happening::Finish { life, lease } => self.finish(life, lease),
            Happening::Work { life, lease } => self.work(life, lease),
            Happening::Write { life, name, token } => {
                let accepted = self.world.resource.write(name, token);
                self.note(&Fact::Written { life, name, token, accepted });
            }
            Happening::Stand { life, name } => self.stand_again(life, name),
            Happening::Act { member } => self.act(member),
            Happening::Strike { fault } => self.strike(fault),
            Happening::Unmark { life } => self.mark(life, false),
            Happening::GoOn { life } => self.go_on(life),
            Happening::Configure { life } => self.configure(life),
            Happening::Flap { member, times } => self.flap(member, times),
            Happening::Loud { life } => {
                if self.world.lives(life) {
                    let member = self.place(life);
                    self.world.members[member].part.silent = false;
                }
            }
            Happening::Resume { member } => self.resume(member),
            Happening::Start { member } => self.start(member),
            Happening::Link { member } => self.link(member),
            Happening::StoreUp => self.store_up(),
            Happening::Expire { name } => {
                self.expiring[name] = false;
                self.watch_expiry(name);
            }
        }
    }

    fn plan(&mut self, at: u64, what: Happening) {
        let is_message = matches!(
            what,
            Happening::Request { .. }
                | Happening::Answer { .. }
                | Happening::Hint { .. }
                | Happening::TimerRequest { .. }
                | Happening::MemberRequest { .. }
                | Happening::Read { .. }
        );
        let at = if self.by_hand && is_message { u64::MAX } else { at };
        self.serial += 1;
        self.agenda.insert((at, self.serial), what);
    }

    /// Shows what has happened to all who judge it.
    fn note(&mut self, fact: &Fact<'_>) {
        if self.violation.is_some() {
            return;
        }
        if let Some(trace) = &mut self.trace
            && !matches!(fact, Fact::Polled { .. } | Fact::Heard { event: Event::Timeout, .. })
        {
            trace.push(format!("{:>13.6}  {fact}", self.world.now as f64 / SECOND as f64));
        }
        self.watcher.observe(fact, &self.world);
        if let Err(violation) = self.invariants.observe(fact, &self.world) {
            self.violation.get_or_insert(violation);
        }
    }

    /// Something went wrong, or was mended, or a user did something.
    fn struck(&mut self, member: impl Into<Option<usize>>, what: What) {
        self.note(&Fact::Struck { member: member.into(), what });
    }

    fn check(&mut self) {
        if let Err(violation) = self.invariants.check(&self.world) {
            self.violation.get_or_insert(violation);
        }
    }

    /// A new process for this place.
    fn born(&mut self, member: usize) -> (usize, Node<Source>) {
        let life = self.world.lives.len();
        let identity = Identity::new("node", Incarnation::new(life as u128)).expect("a fine name");
        self.world.lives.push((member, identity.clone()));
        let source = SplitMix::new(self.jitter + life as u64);
        let source = match self.settings.plant {
            Some(Plant::RepeatedJitter) => Source::Repeated { source, first: None },
            _ => Source::Fresh(source),
        };
        (life, Node::new(identity, source))
    }

    /// How much longer than usual a message may take; its repetition as much again.
    const LONG_DELAY: u64 = 3 * SECOND;

    fn delay(&mut self, member: usize) -> u64 {
        let short = match self.faults.has(Fault::Reordering) {
            true => MS + self.tape.at(Fault::Reordering, member).below(10 * MS),
            false => 2 * MS,
        };
        match self.chance(Fault::Delay, member, 12) {
            true => short + self.tape.at(Fault::Delay, member).below(Self::LONG_DELAY),
            false => short,
        }
    }

    /// Once in `n` times, if there are such faults.
    fn chance(&mut self, fault: Fault, member: usize, n: u64) -> bool {
        self.faults.has(fault) && self.tape.at(fault, member).one_in(n)
    }
}

/// A clock that started anywhere.
fn clock(tape: &mut Tape, faults: Faults, member: usize) -> Clock {
    let start = tape.base().below(1_000) * SECOND;
    Clock::new(start, drift(tape, faults, member))
}

/// A rate within what is assumed.
fn drift(tape: &mut Tape, faults: Faults, member: usize) -> i64 {
    let most = i64::from(Rate::ONE_PERCENT.ppm());
    if faults.has(Fault::Drift) {
        [0, most, -most, most / 3][tape.at(Fault::Drift, member).pick(4)]
    } else {
        0
    }
}

/// The defaults, or something at the limit of the rules.
fn varied(tape: &mut Tape, config: LeaseConfig, assumed: &StoreClock) -> LeaseConfig {
    let timing = config.resolve(assumed).expect("the defaults fit");
    match tape.base().pick(3) {
        1 => config.renew_interval((timing.valid_for() - timing.stop_budget()) / 2),
        2 => config.stop_budget(timing.valid_for() / 2),
        _ => config,
    }
}

/// The largest step of the store's clock that is assumed.
const STEP: Duration = Duration::from_millis(20);
