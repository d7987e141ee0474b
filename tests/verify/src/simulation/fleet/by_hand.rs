//! A fleet whose course is decided from outside, step by step.

use std::time::Duration;

use tenure_core::{Exit, Failure, LeaseKey, Reply, Restart, Token};

use super::{Condition, Faults, Fleet, Happening};
use crate::simulation::{Plant, Settings, Tape, Violation};

/// When a message arrives that waits for a decision.
const HELD: u64 = u64::MAX;

impl Fleet {
    /// A fleet in which nothing goes wrong by itself, except for what is planted, and nobody stands for anything yet. Messages stay under way until
    /// one of [`deliver`](Self::deliver), [`drop`](Self::drop) or [`heal_and_recover`](Self::heal_and_recover).
    #[must_use]
    pub fn by_hand(members: usize, names: usize, plant: Option<Plant>) -> Self {
        let settings = Settings { faults: Some(Faults::NONE), plant, ..Settings::default() };
        Self::build(Tape::from_choices(Vec::new()), &settings, members, names, true)
    }

    /// The first property that was violated.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: Duration) {
        self.run_for(by.as_nanos() as u64);
    }

    /// How many messages are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.agenda.range((HELD, 0)..).count()
    }

    /// Lets one of the messages under way arrive.
    pub fn deliver(&mut self, nth: usize) {
        let Some(key) = self.nth(nth) else { return };
        if let Some(message) = self.agenda.remove(&key) {
            self.events += 1;
            self.happen(message);
            self.check();
        }
    }

    /// Loses one of the messages under way. A driver answers a watch itself in the end.
    pub fn drop(&mut self, nth: usize) {
        let Some(key) = self.nth(nth) else { return };
        match self.agenda.remove(&key) {
            Some(Happening::Request { life, command, .. }) => self.lose(life, &command, "request"),
            Some(Happening::Answer { life, id, reply: Reply::Watching | Reply::Failed(_) }) => {
                self.hold_message(Happening::Answer { life, id, reply: Reply::Failed(Failure::Unknown) });
            }
            _ => {}
        }
    }

    /// One of the messages under way will arrive twice.
    pub fn duplicate(&mut self, nth: usize) {
        let copy = match self.nth(nth).and_then(|key| self.agenda.get(&key)) {
            Some(Happening::Request { life, name, command, served }) => {
                Happening::Request { life: *life, name: *name, command: command.clone(), served: *served }
            }
            Some(Happening::Answer { life, id, reply }) => {
                Happening::Answer { life: *life, id: *id, reply: *reply }
            }
            Some(Happening::Hint { life, event }) => Happening::Hint { life: *life, event: event.clone() },
            _ => return,
        };
        self.hold_message(copy);
    }

    /// A process enters a candidacy.
    pub fn acquire(&mut self, member: usize, name: usize) {
        if self.world.members[member].is_up() {
            self.stand(member, name);
            self.pump(member, None);
            self.check();
        }
    }

    /// A process makes a worker, which starts its workload again however it ends.
    pub fn start_worker(&mut self, member: usize, name: usize) {
        if self.world.members[member].is_up() {
            self.add_worker(member, name, Restart::Always);
            self.pump(member, None);
            self.check();
        }
    }

    /// All workers of a member under a lease are drained.
    pub fn drain_workers(&mut self, member: usize, name: usize) {
        let now = self.reads_clock(member);
        let node = &mut self.world.members[member];
        for worker in node.workers.iter_mut().filter(|worker| worker.name == name) {
            worker.draining = true;
            let _ = node.node.drain_worker(now, worker.key);
        }
        self.pump(member, None);
        self.check();
    }

    /// The work of a member under a lease comes to its end, or fails.
    pub fn end_work(&mut self, member: usize, name: usize, exit: Exit) {
        let candidacies = &self.world.members[member].candidacies;
        let works = candidacies.iter().find(|candidacy| candidacy.name == name && candidacy.work.is_some());
        if let Some(lease) = works.map(|candidacy| candidacy.lease) {
            self.exited(member, lease, exit);
            self.pump(member, None);
            self.check();
        }
    }

    /// The application is done with one of a member's candidacies or holds; a worker's are left alone.
    pub fn release(&mut self, member: usize, lease: LeaseKey) {
        if self.is_workers(member, lease) {
            return;
        }
        self.give_up(member, lease);
        self.pump(member, None);
        self.check();
    }

    /// One of a member's candidacies or holds is drained; a worker's are left alone.
    pub fn drain(&mut self, member: usize, lease: LeaseKey) {
        if self.is_workers(member, lease) {
            return;
        }
        let now = self.reads_clock(member);
        let node = &mut self.world.members[member];
        let _ = node.node.drain(now, lease);
        self.pump(member, None);
        self.check();
    }

    /// A process dies.
    pub fn kill(&mut self, member: usize) {
        self.crash(member);
        self.check();
    }

    /// A new process comes in the place of one that died.
    pub fn restart(&mut self, member: usize) {
        self.start(member);
        self.check();
    }

    /// A process is stopped.
    pub fn stop(&mut self, member: usize) {
        self.pause(member, HELD);
        self.check();
    }

    /// A process that was stopped goes on.
    pub fn proceed(&mut self, member: usize) {
        if let Condition::Paused { until } = &mut self.world.members[member].condition {
            *until = self.world.now;
            self.resume(member);
            self.check();
        }
    }

    /// Everybody and everything is healthy from now on, stands for all leases, and must recover.
    pub fn heal_and_recover(&mut self) {
        self.by_hand = false;
        self.heal();
        self.recover();
        self.settled();
    }

    /// What a member stands for or holds, and by which token it may start work now.
    #[must_use]
    pub fn candidacies(&self, member: usize) -> Vec<(LeaseKey, usize, Option<Token>)> {
        let node = &self.world.members[member];
        let local = node.local(self.world.now);
        let shown = |candidacy: &super::super::member::Candidacy| {
            (candidacy.lease, candidacy.name, node.node.valid(local, candidacy.lease))
        };
        node.candidacies.iter().map(shown).collect()
    }

    /// Which process has a lease at the store, and by which token.
    #[must_use]
    pub fn holder(&self, name: usize) -> Option<(usize, Token)> {
        let record = self.world.store.holder(self.world.now, &self.world.names[name])?;
        Some((record.owner.identity().incarnation().as_u128() as usize, record.token))
    }

    /// Users have no say in the leases of workers.
    fn is_workers(&self, member: usize, lease: LeaseKey) -> bool {
        self.world.members[member].candidacy(lease).is_some_and(|candidacy| candidacy.worker.is_some())
    }

    fn nth(&self, nth: usize) -> Option<(u64, u64)> {
        self.agenda.range((HELD, 0)..).nth(nth).map(|(key, _)| *key)
    }

    fn hold_message(&mut self, message: Happening) {
        self.serial += 1;
        self.agenda.insert((HELD, self.serial), message);
    }
}
