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
//! | unresolved attempts | those that may still be resolved, and one if there are more | more never get resolved |
//!
//! [`outlived_after`]: tenure_core::LeaseTiming::outlived_after

use std::rc::Rc;
use std::time::Duration;

use tenure_core::model::Visitor;
use tenure_core::{Acquisition, Command, CommandId, Identity, Instant, LeaseTiming, Reply, Token};

use super::config::TICK;
use super::digest::digest;
use super::numbers::{Rewrite, Survey};
use super::world::{Member, Message, START, What, World};
use crate::store::{ModelStore, Record};

/// Rewrites a world into its canonical form. What is said of messages that change nothing takes a sound store.
pub(super) fn canonical(world: &mut World, timing: &LeaseTiming, is_sound: bool) {
    let mut tables = Tables::new(world, timing);
    tables.survey(world, is_sound);
    tables.sort();
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
}

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
        }
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
        let World { store, store_clock: _, members, network, told: _ } = world;
        for Message { member, identity, age: _, what } in &*network {
            let (What::Request(_) | What::Answer(..)) = what else { continue };
            let place = self.process(*member, identity);
            let id = match what {
                What::Request(command) => command.id(),
                What::Answer(id, _) => Some(*id),
                What::Hint(_) => None,
            };
            self.processes[place].answerable.extend(id.map(|id| (id.machine(), id.sequence())));
        }
        for (place, member) in members.iter_mut().enumerate() {
            let Member { node, clock: _, parts: _, alarm: _, worker: _, lease: _, grant, work: _ } = member;
            let mut survey = Survey { tables: self, place, in_flight: false };
            Rc::make_mut(node).visit(&mut survey);
            if let Some(grant) = grant {
                survey.acquisition(&mut grant.n);
                survey.token(&mut grant.token);
            }
        }
        network.retain(|message| self.matters(message, store, is_sound));
        for Message { member, identity, age: _, what } in &mut *network {
            let place = self.process(*member, identity);
            // The numbers of commands and machines are in sight if the node remembers them.
            let mut survey = Survey { tables: self, place, in_flight: true };
            match what {
                What::Request(command) => command.visit(&mut survey),
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
    }

    /// Whether it could change anything, if it arrived.
    fn matters(&mut self, message: &Message, store: &ModelStore, is_sound: bool) -> bool {
        let Message { member, identity, age: _, what } = message;
        let place = self.process(*member, identity);
        let Process { sequences, machines, .. } = &self.processes[place];
        let waits = |id: CommandId| sequences.contains(&(id.machine(), id.sequence()));
        let matches = |n, token| {
            let ours = |record: &Record| record.owner == identity.owner(n) && record.token == token;
            store.records.values().any(ours)
        };
        match what {
            // No grant is ever given twice, so what does not match now never will.
            What::Request(Command::Renew { id, n, token, .. })
            | What::Request(Command::Release { id, n, token: Some(token), .. }) => {
                waits(*id) || !is_sound || matches(*n, *token)
            }
            What::Request(_) | What::Hint(_) => true,
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

    fn rewrite(&mut self, world: &mut World) {
        let World { store, store_clock, members, network, told } = world;
        for message in network.iter_mut() {
            let Message { member, identity, age: _, what } = message;
            let place = self.process(*member, identity);
            let mut rewrite = Rewrite { tables: self, place };
            rewrite.identity(identity);
            match what {
                What::Request(command) => command.visit(&mut rewrite),
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
        *store_clock = START;
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
            let Member { node, clock, parts: _, alarm, worker, lease, grant, work: _ } = member;
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
            if let Some(grant) = grant {
                rewrite.acquisition(&mut grant.n);
                rewrite.token(&mut grant.token);
            }
            *clock = START;
        }
    }
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
