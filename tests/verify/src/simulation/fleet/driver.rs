//! What a driver does with a node: events in, outputs out, a timer, and the work under its leases.

use std::time::Duration;

use tenure_core::{Command, Event, Instant, LeaseKey, Notice, Output, Stop, StopReason};

use super::{Condition, Fact, Fault, Fleet, Happening, Phase, SECOND, Violation, What};
use crate::simulation::member::Work;

/// One event brings a node to say this much at most.
const MOST_OUTPUTS: usize = 10_000;
/// How late a driver may be where messages are slow.
const LATE: Duration = Duration::from_millis(20);

impl Fleet {
    pub(super) fn input(&mut self, member: usize, event: Event) {
        match self.world.members[member].condition {
            Condition::Down => {}
            Condition::Paused { .. } => self.world.members[member].inbox.push(event),
            Condition::Up => {
                if self.faults.has(Fault::Pause) && self.tape.one_in(80) {
                    self.world.members[member].inbox.push(event);
                    let length = 1 + self.tape.below(4 * SECOND);
                    return self.pause(member, self.world.now + length);
                }
                if self.faults.has(Fault::Crash) && self.tape.one_in(800) {
                    return self.crash(member);
                }
                self.handle(member, event);
            }
        }
    }

    /// Hands an event in, whatever comes of it.
    pub(super) fn handle(&mut self, member: usize, event: Event) {
        self.note(&Fact::Heard { member, event: &event });
        let cause = event.clone();
        let node = &mut self.world.members[member];
        if let Err(misuse) = node.node.handle(node.clock.at(self.world.now), event) {
            let what = format!("node {member} calls {cause:?} a misuse: {misuse}");
            self.violation.get_or_insert(Violation::new("an honest driver makes no mistakes", what));
        }
        self.pump(member, Some(&cause));
    }

    /// Carries out what a node says, until it has nothing more to say.
    pub(super) fn pump(&mut self, member: usize, cause: Option<&Event>) {
        for _ in 0..MOST_OUTPUTS {
            if self.violation.is_some() {
                return;
            }
            match self.world.members[member].node.poll() {
                Output::Command(command) => self.command(member, command),
                Output::Notice(notice) => self.notice(member, &notice, cause),
                Output::Wait(wait) => {
                    self.note(&Fact::Polled { member, wait });
                    self.arm(member, wait);
                    let node = &self.world.members[member];
                    if node.shut && node.node.is_empty() && self.world.phase == Phase::Trouble {
                        self.crash(member);
                    }
                    return;
                }
            }
        }
        let what = format!("node {member} never comes to an end");
        self.violation.get_or_insert(Violation::new("poll ends", what));
    }

    /// Time jumps exactly to the deadline, or, where messages are slow, a driver may be as well.
    fn arm(&mut self, member: usize, wait: Option<Instant>) {
        let Some(wait) = wait else { return self.world.members[member].alarm = None };
        let due = self.world.members[member].clock.when(wait).max(self.world.now);
        let late = self.faults.has(Fault::Delay) && self.tape.one_in(16);
        let at = if late { due + self.tape.below(LATE.as_nanos() as u64) } else { due };
        if self.world.members[member].alarm != Some(at) {
            self.world.members[member].alarm = Some(at);
            self.plan(at, Happening::Wake { member });
        }
    }

    fn command(&mut self, member: usize, command: Command) {
        self.note(&Fact::Emitted { member, command: &command });
        match &command {
            Command::Acquire { lease, .. }
            | Command::Renew { lease, .. }
            | Command::Release { lease, .. } => match self.world.members[member].candidacy(*lease) {
                Some(candidacy) => self.send(member, candidacy.name, command),
                None => self.unknown(member, *lease),
            },
            Command::Watch { name, .. } | Command::Unwatch { name } => {
                let index = self.world.names.iter().position(|other| other == name);
                self.send(member, index.expect("only names of ours are asked for"), command);
            }
            Command::StopWorkload { lease, how: Stop::Ask, why } => self.ask_to_stop(member, *lease, *why),
            Command::StopWorkload { lease, how: Stop::Hard, .. } => self.stop_hard(member, *lease),
        }
    }

    fn unknown(&mut self, member: usize, lease: LeaseKey) {
        let what = format!("node {member} speaks of {lease}, which has ended");
        self.violation.get_or_insert(Violation::new("what has ended stays silent", what));
    }

    fn ask_to_stop(&mut self, member: usize, lease: LeaseKey, why: StopReason) {
        let life = self.world.members[member].life;
        let candidacy = self.world.members[member].candidacy_mut(lease);
        let Some(work) = candidacy.and_then(|candidacy| candidacy.work.as_mut()) else { return };
        work.asked = Some(why);
        // Some work does not listen.
        if !(self.faults.has(Fault::Stuck) && self.tape.one_in(2)) {
            let at = self.world.now + self.tape.below(SECOND / 2);
            self.plan(at, Happening::Finish { life, lease });
        }
    }

    fn stop_hard(&mut self, member: usize, lease: LeaseKey) {
        let (now, life) = (self.world.now, self.world.members[member].life);
        let sticks = self.faults.has(Fault::Stuck) && self.tape.one_in(3);
        let candidacy = self.world.members[member].candidacy_mut(lease);
        let work = candidacy.and_then(|candidacy| candidacy.work.as_mut());
        match work {
            Some(work) if sticks => {
                work.stuck = Some(now);
                let at = now + self.tape.below(4 * SECOND);
                self.plan(at, Happening::Finish { life, lease });
                self.strike_note(member, What::Stuck);
            }
            _ => self.exited(member, lease),
        }
    }

    /// Work has come to its end by itself.
    pub(super) fn finish(&mut self, life: usize, lease: LeaseKey) {
        if !self.world.lives(life) {
            return;
        }
        let member = self.place(life);
        match self.world.members[member].condition {
            Condition::Down => {}
            Condition::Paused { until } if until == u64::MAX => {}
            Condition::Paused { until } => self.plan(until, Happening::Finish { life, lease }),
            Condition::Up => {
                let candidacy = self.world.members[member].candidacy(lease);
                if candidacy.is_some_and(|candidacy| candidacy.work.is_some()) {
                    self.exited(member, lease);
                    self.pump(member, None);
                }
            }
        }
    }

    /// The work under a lease is over, if there was any: the node is told.
    pub(super) fn exited(&mut self, member: usize, lease: LeaseKey) {
        let now = self.world.members[member].local(self.world.now);
        if let Some(candidacy) = self.world.members[member].candidacy_mut(lease) {
            candidacy.work = None;
            candidacy.stop_by = None;
        }
        self.note(&Fact::WorkEnded { member, lease });
        let _ = self.world.members[member].node.handle(now, Event::WorkloadExited { lease });
    }

    fn notice(&mut self, member: usize, notice: &Notice, cause: Option<&Event>) {
        let lease = notice.lease();
        let (life, now) = (self.world.members[member].life, self.world.members[member].local(self.world.now));
        let Some(name) = self.world.members[member].candidacy(lease).map(|candidacy| candidacy.name) else {
            return self.unknown(member, lease);
        };
        self.note(&Fact::Noticed { member, name, notice, cause });
        let Some(candidacy) = self.world.members[member].candidacy_mut(lease) else { return };
        match notice {
            Notice::Acquired { token, .. } => {
                candidacy.decide_by = None;
                candidacy.stop_by =
                    candidacy.options.max_hold.map(|limit| now + limit + candidacy.options.grace + LATE);
                candidacy.held = Some(*token);
                candidacy.work = Some(Work { token: *token, asked: None, stuck: None });
                self.begin_work(life, lease);
            }
            Notice::Lost { why, .. } => {
                candidacy.held = None;
                candidacy.lost = Some(*why);
            }
            Notice::Released { .. } => candidacy.held = None,
            Notice::Failed { .. } => {
                candidacy.decide_by = None;
                candidacy.over = true;
            }
            Notice::Ended { .. } => {
                self.world.members[member].candidacies.retain(|candidacy| candidacy.lease != lease);
                if self.by_hand {
                    return;
                }
                let at = self.world.now + SECOND / 50;
                let at = if self.faults.has(Fault::Crowd) { at + self.tape.below(SECOND / 2) } else { at };
                self.plan(at, Happening::Stand { life, name });
            }
            _ => {}
        }
    }
}
