//! Those who want leases.

use std::time::Duration;

use tenure_core::{Exit, LeaseKey, LeaseOptions, Restart, RestartPolicy, WaitLimit, WorkerOptions};

use super::{Condition, Fact, Fault, Fleet, Happening, Phase, SECOND, What};
use crate::simulation::member::{Candidacy, Worker};
use crate::simulation::{FIRST_DELAY, LONGEST_DELAY};

/// How long work may take to end when its holder chooses to stop.
pub(super) const GRACE: Duration = Duration::from_millis(300);

impl Fleet {
    /// A process enters what it stands for.
    pub(super) fn campaign(&mut self, member: usize) {
        for name in 0..self.world.leases {
            let crowd =
                if self.faults.has(Fault::Crowd) { self.tape.at(Fault::Crowd, member).below(3) } else { 0 };
            for _ in 0..=crowd {
                self.stand(member, name);
            }
        }
        self.take_part(member);
        self.start_missing(member);
        self.pump(member, None);
    }

    /// Somebody stands for a lease: a user, or a worker.
    pub(super) fn stand(&mut self, member: usize, name: usize) {
        if self.chance(Fault::Workers, member, 2) {
            let when = [Restart::Always, Restart::OnFailure, Restart::Never];
            let choice = self.tape.at(Fault::Workers, member).pick(when.len());
            return self.add_worker(member, name, when[choice]);
        }
        let mut options = self.lease_options(member);
        if self.faults.has(Fault::Crowd) {
            let crowd = self.tape.at(Fault::Crowd, member);
            options.wait = match crowd.below(4) {
                1 => WaitLimit::No,
                2 => WaitLimit::AtMost(Duration::from_nanos(1 + crowd.below(2 * SECOND))),
                _ => WaitLimit::Forever,
            };
        }
        let now = self.reads_clock(member);
        let node = &mut self.world.members[member];
        let Ok(lease) = node.node.acquire(now, self.world.names[name].clone(), options.clone()) else {
            return;
        };
        let decide_by = match options.wait {
            WaitLimit::AtMost(limit) => Some(now + limit),
            WaitLimit::Forever | WaitLimit::No => None,
        };
        node.candidacies.push(Candidacy { decide_by, ..Candidacy::new(lease, name, options) });
    }

    pub(super) fn add_worker(&mut self, member: usize, name: usize, when: Restart) {
        let mut options = WorkerOptions::new(self.lease_options(member));
        options.restart = RestartPolicy::new(when).delays(FIRST_DELAY, LONGEST_DELAY).expect("they fit");
        let now = self.reads_clock(member);
        let node = &mut self.world.members[member];
        let Ok(key) = node.node.start_worker(now, self.world.names[name].clone(), options.clone()) else {
            return;
        };
        node.workers.push(Worker { key, name, options, draining: false, share: false });
    }

    pub(super) fn lease_options(&mut self, member: usize) -> LeaseOptions {
        let mut options = LeaseOptions::new(self.world.timing);
        options.grace = GRACE;
        if self.chance(Fault::Limits, member, 3) {
            options.grace = [Duration::ZERO, self.world.timing.ttl() * 3 / 4]
                [self.tape.at(Fault::Limits, member).pick(2)];
        }
        if self.chance(Fault::Limits, member, 3) {
            options.max_hold =
                Some(Duration::from_nanos(self.tape.at(Fault::Limits, member).below(2 * SECOND)));
        }
        options
    }

    /// Whoever ended comes again, after a while.
    pub(super) fn plan_stand(&mut self, life: usize, name: usize) {
        if !self.by_hand {
            let draining = self.world.members[self.place(life)].node.is_draining();
            let at = self.world.now + if draining { SECOND } else { SECOND / 50 };
            let spread = if self.faults.has(Fault::Crowd) { SECOND / 2 } else { 0 };
            let at = at + self.tape.at(Fault::Crowd, self.place(life)).below(spread);
            self.plan(at, Happening::Stand { life, name });
        }
    }

    pub(super) fn stand_again(&mut self, life: usize, name: usize) {
        if !self.world.lives(life) {
            return;
        }
        let member = self.place(life);
        match self.world.members[member].condition {
            Condition::Paused { until } if until < u64::MAX => {
                self.plan(until, Happening::Stand { life, name })
            }
            Condition::Up if !self.world.members[member].shut => {
                self.stand(member, name);
                self.pump(member, None);
            }
            _ => {}
        }
    }

    pub(super) fn plan_act(&mut self, member: usize) {
        let next = self.world.now + SECOND * 31 / 10 - self.tape.at(Fault::Users, member).below(3 * SECOND);
        self.plan(next, Happening::Act { member });
    }

    /// A user does something, now and then.
    pub(super) fn act(&mut self, member: usize) {
        if !self.faults.has(Fault::Users) || self.world.phase != Phase::Trouble {
            return;
        }
        self.plan_act(member);
        let count = self.world.members[member].candidacies.len();
        if !self.world.members[member].is_up() || count == 0 {
            return;
        }
        let users = self.tape.at(Fault::Users, member);
        let (index, action, little) = (users.pick(count), users.below(6), users.one_in(4));
        let Candidacy { lease, worker, name, work, run, .. } = self.world.members[member].candidacies[index];
        if run.is_some() {
            return self.act_on_job(member, lease, work.is_some(), action, little);
        }
        if name >= self.world.leases {
            // What a coordinator has started is its own affair.
            if action == 1 && work.is_some() {
                self.exited(member, lease, Exit::Completed);
                self.pump(member, None);
            }
            return;
        }
        let now = self.reads_clock(member);
        match (action, worker) {
            (1, _) if work.is_some() => self.exited(member, lease, Exit::Completed),
            (2 | 3, Some(worker)) => {
                self.struck(member, What::Drain);
                let node = &mut self.world.members[member];
                node.workers.iter_mut().filter(|other| other.key == worker).for_each(|it| it.draining = true);
                let _ = if little {
                    node.node.stop_worker(now, worker)
                } else {
                    node.node.drain_worker(now, worker)
                };
            }
            (1 | 2, None) => {
                self.struck(member, What::GiveUp);
                self.give_up(member, lease);
            }
            (3, None) => {
                self.struck(member, What::Drain);
                let _ = self.world.members[member].node.drain(now, lease);
            }
            (4, _) if little => self.shut(member),
            (5, _) if count < 4 * self.world.names.len() => {
                self.struck(member, What::Stand);
                self.stand(member, name);
            }
            _ => return,
        }
        self.pump(member, None);
    }

    /// The application is done with a candidacy or a hold.
    pub(super) fn give_up(&mut self, member: usize, lease: LeaseKey) {
        let now = self.reads_clock(member);
        let Some(candidacy) = self.world.members[member].candidacy_mut(lease) else { return };
        if candidacy.work.take().is_some() {
            self.note(&Fact::WorkEnded { member, lease, worker: None, exit: Exit::Completed });
        }
        let _ = self.world.members[member].node.release(now, lease);
    }

    /// A process is told to end.
    pub(super) fn shut(&mut self, member: usize) {
        self.struck(member, What::Shutdown);
        let now = self.reads_clock(member);
        let node = &mut self.world.members[member];
        node.shut = true;
        node.workers.iter_mut().for_each(|worker| worker.draining = true);
        node.node.shutdown(now);
    }
}
