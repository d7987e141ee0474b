//! Those who want leases, and work under them.

use std::time::Duration;

use tenure_core::{LeaseKey, LeaseOptions, WaitLimit};

use super::{Condition, Fault, Fleet, Happening, MS, Phase, SECOND, What};
use crate::simulation::member::Candidacy;

/// How long work may take to end when its holder chooses to stop.
const GRACE: Duration = Duration::from_millis(300);

impl Fleet {
    /// A process enters what it stands for.
    pub(super) fn campaign(&mut self, member: usize) {
        for name in 0..self.world.names.len() {
            let crowd = if self.faults.has(Fault::Crowd) { self.tape.below(3) } else { 0 };
            for _ in 0..=crowd {
                self.stand(member, name);
            }
        }
        self.pump(member, None);
    }

    pub(super) fn stand(&mut self, member: usize, name: usize) {
        let mut options = LeaseOptions::new(self.world.timing);
        options.grace = GRACE;
        if self.faults.has(Fault::Crowd) {
            options.wait = match self.tape.below(4) {
                1 => WaitLimit::No,
                2 => WaitLimit::AtMost(Duration::from_nanos(1 + self.tape.below(2 * SECOND))),
                _ => WaitLimit::Forever,
            };
        }
        if self.faults.has(Fault::Limits) && self.tape.one_in(3) {
            options.max_hold = Some(Duration::from_nanos(self.tape.below(2 * SECOND)));
        }
        let node = &mut self.world.members[member];
        let now = node.clock.at(self.world.now);
        let decide_by = match options.wait {
            WaitLimit::AtMost(limit) => Some(now + limit),
            WaitLimit::Forever | WaitLimit::No => None,
        };
        let Ok(lease) = node.node.acquire(now, self.world.names[name].clone(), options.clone()) else {
            return;
        };
        node.candidacies.push(Candidacy {
            lease,
            name,
            options,
            decide_by,
            stop_by: None,
            held: None,
            lost: None,
            work: None,
            over: false,
        });
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

    pub(super) fn begin_work(&mut self, life: usize, lease: LeaseKey) {
        if self.faults.has(Fault::Users) && self.tape.one_in(3) {
            let at = self.world.now + 1 + self.tape.below(5 * SECOND);
            self.plan(at, Happening::Finish { life, lease });
        }
        self.plan(self.world.now, Happening::Work { life, lease });
    }

    /// Work writes to what the lease protects, as long as it goes on. A write takes its time.
    pub(super) fn work(&mut self, life: usize, lease: LeaseKey) {
        if !self.world.lives(life) {
            return;
        }
        let member = self.place(life);
        if let Condition::Paused { until } = self.world.members[member].condition {
            // It was about to write when it was paused.
            return if until < u64::MAX {
                self.plan(until, Happening::Work { life, lease })
            };
        }
        let Some(candidacy) = self.world.members[member].candidacy(lease) else { return };
        let Some(work) = candidacy.work else { return };
        let (name, token) = (candidacy.name, work.token);
        let at = self.world.now + self.delay();
        self.plan(at, Happening::Write { life, name, token });
        let next = self.world.now + 400 * MS + self.tape.below(SECOND);
        self.plan(next, Happening::Work { life, lease });
    }

    /// A user does something, now and then.
    pub(super) fn act(&mut self, member: usize) {
        if !self.faults.has(Fault::Users) || self.world.phase != Phase::Trouble {
            return;
        }
        let next = self.world.now + SECOND / 10 + self.tape.below(3 * SECOND);
        self.plan(next, Happening::Act { member });
        let count = self.world.members[member].candidacies.len();
        if !self.world.members[member].is_up() || count == 0 {
            return;
        }
        let index = self.tape.pick(count);
        let Candidacy { lease, name, work, .. } = self.world.members[member].candidacies[index];
        let now = self.world.members[member].local(self.world.now);
        match self.tape.below(6) {
            // What the work under a hold says when it has ended is what gives a candidacy up.
            1 if work.is_some() => self.exited(member, lease),
            1 | 2 => {
                self.strike_note(member, What::GiveUp);
                let _ = self.world.members[member].node.release(now, lease);
                if let Some(candidacy) = self.world.members[member].candidacy_mut(lease) {
                    candidacy.work = None;
                }
            }
            3 => {
                self.strike_note(member, What::Drain);
                let _ = self.world.members[member].node.drain(now, lease);
            }
            4 if self.tape.one_in(4) => self.shut(member),
            5 if count < 4 * self.world.names.len() => {
                self.strike_note(member, What::Stand);
                self.stand(member, name);
            }
            _ => return,
        }
        self.pump(member, None);
    }

    /// A process is told to end.
    pub(super) fn shut(&mut self, member: usize) {
        self.strike_note(member, What::Shutdown);
        let node = &mut self.world.members[member];
        node.shut = true;
        node.node.shutdown(node.clock.at(self.world.now));
    }
}
