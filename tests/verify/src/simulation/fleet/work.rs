//! The work under leases: it writes, ends by itself, stops when it is told to, or does not.

use tenure_core::{Event, Exit, LeaseKey, StopReason, Token};

use super::{Condition, Fact, Fault, Fleet, Happening, MS, SECOND, What};
use crate::simulation::member::Work;

impl Fleet {
    pub(super) fn begin_work(&mut self, member: usize, lease: LeaseKey, token: Token) {
        let life = self.world.members[member].life;
        if let Some(candidacy) = self.world.members[member].candidacy_mut(lease) {
            candidacy.work = Some(Work { token, asked: None, stuck: None });
        }
        if let Some((job, _)) =
            self.world.members[member].candidacy(lease).and_then(|candidacy| candidacy.run)
        {
            return self.plan_end_of_run(member, job, lease);
        }
        if self.chance(Fault::Users, member, 3) {
            let at = self.world.now + 1 + self.tape.at(Fault::Users, member).below(5 * SECOND);
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
        let at = self.world.now + self.delay(member);
        self.plan(at, Happening::Write { life, name, token });
        let next = self.world.now + 700 * MS;
        self.plan(next, Happening::Work { life, lease });
    }

    pub(super) fn ask_to_stop(&mut self, member: usize, lease: LeaseKey, why: StopReason) {
        let life = self.world.members[member].life;
        let Some(candidacy) = self.world.members[member].candidacy_mut(lease) else { return };
        candidacy.asked = true;
        let Some(work) = &mut candidacy.work else { return };
        work.asked = Some(why);
        // Some work does not listen.
        if !(self.chance(Fault::Stuck, member, 2)) {
            let at = self.world.now + self.tape.at(Fault::Users, member).below(SECOND / 2);
            self.plan(at, Happening::Finish { life, lease });
        }
    }

    pub(super) fn stop_hard(&mut self, member: usize, lease: LeaseKey) {
        let (now, life) = (self.world.now, self.world.members[member].life);
        let sticks = self.chance(Fault::Stuck, member, 3);
        let heard_at = self.world.members[member].heard_at;
        let Some(candidacy) = self.world.members[member].candidacy_mut(lease) else { return };
        candidacy.asked = true;
        match &mut candidacy.work {
            Some(work) if sticks => {
                work.stuck = Some(heard_at);
                let at = now + self.tape.at(Fault::Stuck, member).below(4 * SECOND);
                self.plan(at, Happening::Finish { life, lease });
                self.struck(member, What::Stuck);
            }
            _ => self.exited(member, lease, Exit::Stopped),
        }
    }

    /// Work comes to its end by itself, in one way or the other.
    pub(super) fn finish(&mut self, life: usize, lease: LeaseKey) {
        if !self.world.lives(life) {
            return;
        }
        let member = self.place(life);
        match self.world.members[member].condition {
            Condition::Down => {}
            Condition::Paused { until: u64::MAX } => {}
            Condition::Paused { until } => self.plan(until, Happening::Finish { life, lease }),
            Condition::Up => {
                let candidacy = self.world.members[member].candidacy(lease);
                let Some(work) = candidacy.and_then(|candidacy| candidacy.work) else { return };
                let ends = self.tape.at(Fault::Workers, member);
                let exit = match work.asked {
                    None => [Exit::Completed, Exit::Failed][ends.pick(2)],
                    Some(_) => [Exit::Stopped, Exit::Completed, Exit::Failed][ends.pick(3)],
                };
                self.exited(member, lease, exit);
                self.pump(member, None);
            }
        }
    }

    /// The work under a lease is over, if there was any: the node is told.
    pub(super) fn exited(&mut self, member: usize, lease: LeaseKey, exit: Exit) {
        let now = self.reads_clock(member);
        let mut worker = None;
        if let Some(candidacy) = self.world.members[member].candidacy_mut(lease) {
            candidacy.work = None;
            candidacy.stop_by = None;
            worker = candidacy.worker;
        }
        self.note(&Fact::WorkEnded { member, lease, worker, exit });
        let _ = self.world.members[member].node.handle(now, Event::WorkloadExited { lease, exit });
    }
}
