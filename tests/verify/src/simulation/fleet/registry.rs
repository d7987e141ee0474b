//! Heartbeats: how they get to the store, what it makes of them, and who hears that the members have changed.

use tenure_core::{Command, CommandId, Event, Failure, Reply};
use tenure_store::{DrainMark, MemberEntry, StoreErrorKind};

use super::super::store::Absence;
use super::{Condition, Fact, Fault, Fleet, Happening, MS, What};
use crate::store::{MemberAct, member_act};

impl Fleet {
    /// A node has something to say to the store about its membership.
    pub(super) fn send_member(&mut self, member: usize, command: &Command) {
        let node = &self.world.members[member];
        let life = node.life;
        let (Some(id), Some(act)) = (command.id(), member_act(node.node.identity(), command)) else { return };
        let (asks, silent) = (node.asks, node.part.silent);
        if self.chance(Fault::Loss, member, 8) || !asks || silent {
            return self.note(&Fact::Lost { life, id: Some(id), what: "request" });
        }
        let at = self.world.now + self.delay(member);
        if self.chance(Fault::Duplication, member, 8) {
            let later = at + self.delay(member);
            let again = Box::new(act.clone());
            self.plan(later, Happening::MemberRequest { life, id, act: again, served: false });
        }
        self.plan(at, Happening::MemberRequest { life, id, act: Box::new(act), served: false });
    }

    /// It reaches the store.
    pub(super) fn arrive_member(&mut self, life: usize, id: CommandId, act: Box<MemberAct>, served: bool) {
        let (now, member) = (self.world.now, self.place(life));
        let failed = |failure| Event::Reply { id, reply: Reply::Failed(failure) };
        if now < self.world.store.down_until {
            let swallowed = match self.world.store.absence {
                Absence::Mixed => self.tape.at(Fault::Restart, member).one_in(2),
                Absence::Refuses => false,
                Absence::Swallows => true,
            };
            return if swallowed {
                self.note(&Fact::Lost { life, id: Some(id), what: "request" })
            } else {
                self.answer_member(life, failed(Failure::NotExecuted))
            };
        }
        if now < self.world.store.slow_until && !served {
            let at = now + self.tape.at(Fault::Slow, member).below(500 * MS);
            return self.plan(at, Happening::MemberRequest { life, id, act, served: true });
        }
        if self.chance(Fault::Trouble, member, 12) {
            let refused = self.tape.at(Fault::Trouble, member).one_in(8);
            let failure = if refused { Failure::Refused } else { Failure::NotExecuted };
            return self.answer_member(life, failed(failure));
        }
        let event = self.execute_member(life, id, &act);
        let hears = self.world.members[member].hears && !self.world.members[member].part.silent;
        if self.chance(Fault::ReplyLost, member, 10) || !hears {
            return self.note(&Fact::Lost { life, id: Some(id), what: "answer" });
        }
        let unsure = self.chance(Fault::Trouble, member, 12);
        self.answer_member(life, if unsure { failed(Failure::Unknown) } else { event });
    }

    fn execute_member(&mut self, life: usize, id: CommandId, act: &MemberAct) -> Event {
        let world = &mut self.world;
        let (now, identity) = (world.now, world.lives[life].1.clone());
        let own =
            |entries: Vec<MemberEntry>| entries.into_iter().find(|entry| entry.member.identity == identity);
        let before = own(world.store.members(now));
        let (outcome, changed) = world.store.execute_member(now, act);
        let listed = world.store.members(now);
        self.note(&Fact::MemberExecuted {
            life,
            act,
            before: before.as_ref(),
            outcome: &outcome,
            listed: &listed,
        });
        if changed {
            self.members_changed();
        }
        match outcome {
            Ok(answer) => answer.event(id),
            Err(error) => {
                let refused = error.kind == StoreErrorKind::Rejected;
                let failure = if refused { Failure::Refused } else { Failure::NotExecuted };
                Event::Reply { id, reply: Reply::Failed(failure) }
            }
        }
    }

    fn answer_member(&mut self, life: usize, event: Event) {
        let member = self.place(life);
        let at = self.world.now + self.delay(member);
        if self.chance(Fault::Duplication, member, 10) {
            let later = at + self.delay(member);
            let event = event.clone();
            self.plan(later, Happening::Read { life, event });
        }
        self.plan(at, Happening::Read { life, event });
    }

    /// All who are there get a hint.
    pub(super) fn members_changed(&mut self) {
        for member in 0..self.world.members.len() {
            let node = &self.world.members[member];
            let life = node.life;
            if node.condition == Condition::Down {
                continue;
            }
            let hears = node.hears && !node.part.silent;
            if self.chance(Fault::Loss, member, 4) || !hears {
                self.note(&Fact::Lost { life, id: None, what: "hint" });
                continue;
            }
            let at = self.world.now + self.delay(member);
            self.plan(at, Happening::Hint { life, event: Event::MembersHint });
        }
    }

    /// An operator marks a process, or all of them, or takes it back.
    pub(super) fn mark(&mut self, life: Option<usize>, drain: bool) {
        let world = &mut self.world;
        let incarnation = life.map(|life| world.lives[life].1.incarnation());
        let mark = DrainMark { instance: "node".into(), incarnation, drain };
        let (concerned, changed) = world.store.mark(world.now, &mark);
        let what = if drain { What::Marked } else { What::Unmarked };
        if !concerned.is_empty() {
            self.struck(life.map(|life| self.place(life)), what);
        }
        if changed {
            self.members_changed();
        }
    }

    /// The store loses its members, and nothing else.
    pub(super) fn forget_members(&mut self) {
        self.world.store.model.members = tenure_store::Fleet::default();
        self.struck(None, What::MembersForgotten);
    }
}
