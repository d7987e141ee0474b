//! The form that a state shares with all states that behave the same.
//!
//! | what | becomes | because |
//! |---|---|---|
//! | a clock | [`START`] | only differences are ever looked at, in whole ticks |
//! | the end of time | itself | it never comes |
//! | a deadline that has passed | a nanosecond ago, two, .. | which of them came first is all that is asked |
//! | an emission | as long ago, but at most beyond [`outlived_after`] | from then on nothing that was asked can count |
//! | the token of a grant | its rank among those in sight | they are only compared, and the next is above all |
//! | a high water | the highest grant in sight that is not above it | that is all it is compared with |
//! | a floor | the highest grant to this process in sight that is not above it | likewise |
//! | an acquisition, a command, a machine, an incarnation | its rank among those in sight of its process | likewise |
//! | a message that nobody waits for and that matches nothing | nothing | its arrival would change nothing |
//! | failures in a row | at most the number from which on the delay does not grow | the first is told, the others only delay |
//! | the store's wall clock | [`WALL`] | like the other clocks, with which it runs |
//! | the number of a tick | the last one that was due is a thousand; an older one its rank among those in sight, a later one as much more | they are compared, and those to come are numbered on |
//! | the time of a tick | what the schedule says for that number | the schedule never changes |
//! | a reading of the store's time | one that was taken now | all clocks run alike where there are any |
//! | how late a tick was, how many were missed before it | nothing | it decides nothing |
//! | unresolved attempts | those that may still be resolved, and one if there are more | more never get resolved |
//!
//! [`outlived_after`]: tenure_core::LeaseTiming::outlived_after

use std::rc::Rc;
use std::time::Duration;

use tenure_core::model::Visitor;
use tenure_core::{
    Acquisition, AnySchedule, Command, CommandId, Identity, Incarnation, Instant, LeaseTiming, Reply, Tick,
    Timestamp, Token,
};
use tenure_store::{Claim, TimerRecord};

use super::config::TICK;
use super::digest::digest;
use super::numbers::{Rewrite, Survey};
use super::world::{Member, Message, Run, START, WALL, What, World};
use crate::store::{ModelStore, Record};

/// Rewrites a world into its canonical form. What is said of messages that change nothing takes a sound store.
pub(super) fn canonical(world: &mut World, timing: &LeaseTiming, is_sound: bool) {
    let mut tables = Tables::new(world, timing);
    tables.survey(world, is_sound);
    tables.sort();
    tables.forget_unfinished(world);
    tables.rewrite(world);
    if world.network.len() > 1 {
        world.network.sort_by_cached_key(digest);
    }
}

/// The numbers in sight.
pub(super) struct Tables {
    pub(super) tokens: Vec<Token>,
    /// All incarnations, those of one member together.
    pub(super) processes: Vec<Process>,
    pub(super) valid_for: Duration,
    /// An emission that lies this long back, or longer, is as good as any older one.
    pub(super) horizon: Duration,
    /// Failures beyond this number change nothing.
    pub(super) failures: u32,
    /// The numbers of ticks.
    pub(super) ticks: Vec<u64>,
    /// Those of them that a node or a message speaks of.
    watched: Vec<u64>,
    /// What the store's wall clock shows.
    pub(super) wall: Timestamp,
    /// The last tick that was due, and the time between two, if there is a timer.
    pub(super) latest: Option<(Tick, Duration)>,
}

/// The number that the last due tick gets.
const LATEST: u64 = 1_000;
/// So many unfinished ticks are kept that nobody has in sight.
const UNFINISHED: usize = 1;

/// What is in sight of one incarnation.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) member: usize,
    pub(super) identity: Identity,
    /// Its clock; that of one which is gone stands still.
    pub(super) clock: Instant,
    pub(super) acquisitions: Vec<Acquisition>,
    /// The tokens of its grants.
    pub(super) grants: Vec<Token>,
    pub(super) machines: Vec<u64>,
    pub(super) sequences: Vec<(u64, u64)>,
    /// Commands that may still be answered.
    pub(super) answerable: Vec<(u64, u64)>,
    /// Deadlines before its clock.
    pub(super) passed: Vec<Instant>,
    pub(super) emissions: Vec<Instant>,
    pub(super) old: Vec<Instant>,
}

impl Process {
    fn new(member: usize, identity: Identity, clock: Instant) -> Self {
        Self {
            member,
            identity,
            clock,
            acquisitions: Vec::new(),
            grants: Vec::new(),
            machines: Vec::new(),
            sequences: Vec::new(),
            answerable: Vec::new(),
            passed: Vec::new(),
            emissions: Vec::new(),
            old: Vec::new(),
        }
    }
}

impl Tables {
    fn new(world: &World, timing: &LeaseTiming) -> Self {
        let processes = world.members.iter().enumerate();
        let process = |(index, member): (usize, &Member)| {
            Process::new(index, member.node.identity().clone(), member.clock)
        };
        // The delay doubles from a sixteenth of the attempt timeout, a millisecond at least, up to the whole. A state
        // with f failures draws its next delay for f + 1, so f and all above are one where that is the longest; the
        // first failure is told, so none is not one with some.
        let (mut delay, mut failures) = ((timing.attempt_timeout() / 16).max(Duration::from_millis(1)), 1);
        while delay < timing.attempt_timeout() {
            delay *= 2;
            failures += 1;
        }
        Self {
            tokens: Vec::new(),
            processes: processes.map(process).collect(),
            valid_for: timing.valid_for(),
            horizon: ticks_up(timing.outlived_after()),
            failures: (failures - 1).max(1),
            ticks: Vec::new(),
            watched: Vec::new(),
            wall: world.wall,
            latest: world.store.timers.values().next().and_then(|record| latest(record, world.wall)),
        }
    }

    /// The tick with this number, numbered anew.
    pub(super) fn tick(&self, n: u64) -> Tick {
        let Some((latest, period)) = self.latest else { return Tick { n, at: WALL } };
        let last = WALL.saturating_sub(self.wall.saturating_since(latest.at));
        if n > latest.n {
            let ahead = n - latest.n;
            return Tick { n: LATEST + ahead, at: last + period * ahead as u32 };
        }
        let later = self.ticks.len() - self.ticks.partition_point(|other| *other <= n);
        let future = self.ticks.iter().rev().take_while(|other| **other > latest.n).count();
        let before = later - future;
        Tick { n: LATEST - before as u64, at: last.saturating_sub(period * before as u32) }
    }

    /// Where an incarnation stands in the table.
    fn process(&mut self, member: usize, identity: &Identity) -> usize {
        match self.processes.iter().position(|process| process.identity == *identity) {
            Some(place) => place,
            None => {
                self.processes.push(Process::new(member, identity.clone(), START));
                self.processes.len() - 1
            }
        }
    }

    fn survey(&mut self, world: &mut World, is_sound: bool) {
        let World { store, store_clock: _, wall: _, members, network, told: _, begun: _ } = world;
        self.ticks.extend(self.latest.map(|(tick, _)| tick.n));
        for Message { member, identity, age: _, what } in &*network {
            let (What::Request(_) | What::Claim(..) | What::Answer(..)) = what else { continue };
            let place = self.process(*member, identity);
            let id = match what {
                What::Request(command) | What::Claim(command, _) => command.id(),
                What::Answer(id, _) => Some(*id),
                What::Hint(_) => None,
            };
            self.processes[place].answerable.extend(id.map(|id| (id.machine(), id.sequence())));
        }
        for (place, member) in members.iter_mut().enumerate() {
            let Member {
                node,
                clock: _,
                parts: _,
                alarm: _,
                worker: _,
                lease: _,
                grant,
                work: _,
                job: _,
                runs,
            } = member;
            let mut survey = Survey { tables: self, place, in_flight: false };
            Rc::make_mut(node).visit(&mut survey);
            for grant in runs.iter_mut().filter_map(|run| run.grant.as_mut()).chain(grant) {
                survey.acquisition(&mut grant.n);
                survey.token(&mut grant.token);
            }
            runs.iter_mut().for_each(|run| survey.tick_number(&mut run.tick));
        }
        network.retain(|message| self.matters(message, store, is_sound));
        for Message { member, identity, age: _, what } in &mut *network {
            let place = self.process(*member, identity);
            // The numbers of commands and machines are in sight if the node remembers them.
            let mut survey = Survey { tables: self, place, in_flight: true };
            match what {
                What::Request(command) => command.visit(&mut survey),
                What::Claim(command, tick) => {
                    command.visit(&mut survey);
                    survey.tick_number(tick);
                }
                What::Answer(_, reply) => reply.visit(&mut survey),
                What::Hint(wake) => wake.visit(&mut survey),
            }
        }
        for record in store.records.values() {
            let member = self.member_of(record.owner.identity());
            let place = self.process(member, record.owner.identity());
            self.processes[place].acquisitions.push(record.owner.acquisition());
            self.processes[place].grants.push(record.token);
            self.tokens.push(record.token);
        }
        self.watched.clone_from(&self.ticks);
        for record in store.timers.values() {
            self.ticks.extend([record.base.n, record.last, record.claimed]);
            for claim in &record.claims {
                self.ticks.push(claim.tick);
                self.tokens.push(claim.token);
                if let Some((identity, n)) = parse(&claim.owner) {
                    let member = self.member_of(&identity);
                    let place = self.process(member, &identity);
                    self.processes[place].acquisitions.push(n);
                    self.processes[place].grants.push(claim.token);
                }
            }
        }
    }

    /// Whether it could change anything, if it arrived.
    fn matters(&mut self, message: &Message, store: &ModelStore, is_sound: bool) -> bool {
        let Message { member, identity, age: _, what } = message;
        let place = self.process(*member, identity);
        let Process { sequences, machines, .. } = &self.processes[place];
        let waits = |id: CommandId| sequences.contains(&(id.machine(), id.sequence()));
        let matches = |n, token| {
            let ours = |record: &Record| record.owner == identity.owner(n) && record.token == token;
            let claims = store.timers.values().flat_map(|timer| &timer.claims);
            let claimed =
                |claim: &Claim| claim.owner == identity.owner(n).to_string() && claim.token == token;
            store.records.values().any(ours) || claims.into_iter().any(claimed)
        };
        match what {
            // No grant is ever given twice, so what does not match now never will.
            What::Request(Command::Renew { id, n, token, .. })
            | What::Request(Command::Release { id, n, token: Some(token), .. })
            | What::Claim(Command::Renew { id, n, token, .. }, _)
            | What::Claim(Command::FinishTick { id, n, token: Some(token), .. }, _) => {
                waits(*id) || !is_sound || matches(*n, *token)
            }
            What::Request(_) | What::Claim(..) | What::Hint(_) => true,
            // A node that hears of a release looks again, whoever asked for it.
            What::Answer(id, Reply::Released { .. }) => machines.contains(&id.machine()),
            What::Answer(id, _) => waits(*id),
        }
    }

    /// The member that an incarnation belongs to.
    fn member_of(&self, identity: &Identity) -> usize {
        let same = |process: &&Process| process.identity.instance() == identity.instance();
        self.processes.iter().find(same).map_or(0, |process| process.member)
    }

    fn sort(&mut self) {
        sort(&mut self.tokens);
        sort(&mut self.ticks);
        for process in &mut self.processes {
            sort(&mut process.acquisitions);
            sort(&mut process.grants);
            sort(&mut process.machines);
            sort(&mut process.sequences);
            sort(&mut process.passed);
            sort(&mut process.emissions);
            sort(&mut process.old);
        }
    }

    /// Of the unfinished ticks that nobody has in sight only the latest are kept: it is as if the store had room for
    /// fewer of them than it has.
    fn forget_unfinished(&mut self, world: &mut World) {
        let World { store, store_clock, .. } = world;
        for record in store.timers.values_mut() {
            let unseen = |claim: &Claim| claim.ends <= *store_clock && !self.watched.contains(&claim.tick);
            let mut surplus =
                record.claims.iter().filter(|claim| unseen(claim)).count().saturating_sub(UNFINISHED);
            record.claims.retain(|claim| {
                let forget = surplus > 0 && unseen(claim);
                surplus -= usize::from(forget);
                !forget
            });
            let kept: Vec<_> = record.claims.iter().map(|claim| claim.tick).collect();
            let counts = [record.base.n, record.last, record.claimed];
            let latest = self.latest.map(|(tick, _)| tick.n);
            let watched = &self.watched;
            self.ticks.retain(|n| {
                watched.contains(n) || kept.contains(n) || counts.contains(n) || latest == Some(*n)
            });
        }
    }

    fn rewrite(&mut self, world: &mut World) {
        let World { store, store_clock, wall, members, network, told, begun } = world;
        for message in network.iter_mut() {
            let Message { member, identity, age: _, what } = message;
            let place = self.process(*member, identity);
            let mut rewrite = Rewrite { tables: self, place };
            rewrite.identity(identity);
            match what {
                What::Request(command) => command.visit(&mut rewrite),
                What::Claim(command, tick) => {
                    command.visit(&mut rewrite);
                    rewrite.tick_number(tick);
                }
                What::Answer(id, reply) => {
                    id.visit(&mut rewrite);
                    reply.visit(&mut rewrite);
                }
                What::Hint(wake) => wake.visit(&mut rewrite),
            }
        }
        for record in store.records.values_mut() {
            let owner = &record.owner;
            let (mut identity, mut n) = (owner.identity().clone(), owner.acquisition());
            let place = self.process(0, &identity);
            let mut rewrite = Rewrite { tables: self, place };
            rewrite.identity(&mut identity);
            rewrite.acquisition(&mut n);
            rewrite.token(&mut record.token);
            record.owner = identity.owner(n);
            record.expires = START + record.expires.saturating_since(*store_clock);
        }
        for record in store.timers.values_mut() {
            self.rewrite_timer(record, *store_clock);
        }
        *begun = std::mem::take(begun)
            .into_iter()
            .filter(|(tick, _)| self.ticks.binary_search(tick).is_ok())
            .map(|(tick, times)| (self.tick(tick).n, times))
            .collect();
        (*store_clock, *wall) = (START, WALL);
        for waiters in store.waiters.values_mut() {
            let renamed = std::mem::take(waiters).into_iter().map(|(member, mut identity)| {
                let place = self.process(member, &identity);
                Rewrite { tables: self, place }.identity(&mut identity);
                (member, identity)
            });
            *waiters = renamed.collect();
        }
        for mark in [&mut store.high_water, told] {
            *mark = Token::new(self.tokens.partition_point(|grant| grant <= mark) as u64);
        }
        for (place, member) in members.iter_mut().enumerate() {
            let Member { node, clock, parts: _, alarm, worker, lease, grant, work: _, job, runs } = member;
            let mut rewrite = Rewrite { tables: self, place };
            Rc::make_mut(node).visit(&mut rewrite);
            if let Some(alarm) = alarm {
                rewrite.deadline(alarm);
            }
            if let Some(worker) = worker {
                worker.visit(&mut rewrite);
            }
            if let Some(lease) = lease {
                lease.visit(&mut rewrite);
            }
            for grant in runs.iter_mut().filter_map(|run| run.grant.as_mut()).chain(grant) {
                rewrite.acquisition(&mut grant.n);
                rewrite.token(&mut grant.token);
            }
            if let Some(job) = job {
                job.visit(&mut rewrite);
            }
            for Run { worker, lease, tick, grant: _, work: _ } in runs {
                worker.visit(&mut rewrite);
                lease.visit(&mut rewrite);
                rewrite.tick_number(tick);
            }
            *clock = START;
        }
    }

    fn rewrite_timer(&mut self, record: &mut TimerRecord, store_clock: Instant) {
        let TimerRecord { revision: _, base, schedule: _, next: _, last, claimed, claims } = record;
        *base = self.tick(base.n);
        (*last, *claimed) = (self.tick(*last).n, self.tick(*claimed).n);
        for Claim { tick, owner: text, token, ends, since, .. } in claims {
            *tick = self.tick(*tick).n;
            *token = Token::new(self.tokens.binary_search(token).map_or(0, |place| place as u64 + 1));
            *ends = START + ends.saturating_since(store_clock);
            *since = Timestamp::EPOCH;
            if let Some((mut identity, mut n)) = parse(text) {
                let place = self.process(0, &identity);
                let mut rewrite = Rewrite { tables: self, place };
                rewrite.acquisition(&mut n);
                rewrite.identity(&mut identity);
                *text = identity.owner(n).to_string();
            }
        }
    }
}

/// The last tick that is due, and the time between two.
fn latest(record: &TimerRecord, wall: Timestamp) -> Option<(Tick, Duration)> {
    let schedule = AnySchedule::parse(&record.schedule)?;
    let first = schedule.at(record.base, record.base.n + 1);
    Some((schedule.latest(record.base, wall)?, first.saturating_since(record.base.at)))
}

/// Reads an owner's text; `None` if it is nobody's any more.
fn parse(owner: &str) -> Option<(Identity, Acquisition)> {
    let (instance, rest) = owner.rsplit_once('/')?;
    let (incarnation, n) = rest.split_once('.')?;
    let incarnation = Incarnation::new(u128::from_str_radix(incarnation, 16).ok()?);
    Some((Identity::new(instance, incarnation).ok()?, Acquisition(n.parse().ok()?)))
}

fn sort<T: Ord>(values: &mut Vec<T>) {
    values.sort_unstable();
    values.dedup();
}

fn ticks_up(duration: Duration) -> Duration {
    TICK * duration.as_nanos().div_ceil(TICK.as_nanos()) as u32
}

/// The tick in which a deadline shows.
pub(super) fn tick_of(at: Instant) -> Instant {
    let tick = TICK.as_nanos() as u64;
    Instant::from_nanos(at.as_nanos().div_ceil(tick).saturating_mul(tick))
}
