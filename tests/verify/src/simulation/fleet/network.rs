//! The network, and the store at its other end.

use std::time::Duration;

use tenure_core::{Command, CommandId, Event, Failure, Reply};

use super::{Fact, Fault, Fleet, Happening, MS};
use crate::simulation::store::Absence;
use crate::store::Woken;

impl Fleet {
    /// A node has a request for the store.
    pub(super) fn send(&mut self, member: usize, name: usize, command: Command) {
        let life = self.world.members[member].life;
        let lost = self.chance(Fault::Loss, member, 8);
        if lost || !self.world.members[member].asks {
            return self.lose(life, &command, "request");
        }
        let at = self.world.now + self.delay(member);
        if self.chance(Fault::Duplication, member, 8) {
            let later = at + self.delay(member);
            let command = command.clone();
            self.plan(later, Happening::Request { life, name, command, served: false });
        }
        self.plan(at, Happening::Request { life, name, command, served: false });
    }

    /// A request reaches the store.
    pub(super) fn arrive(&mut self, life: usize, name: usize, command: Command, served: bool) {
        let (now, member) = (self.world.now, self.place(life));
        if now < self.world.store.down_until {
            let swallowed = match self.world.store.absence {
                Absence::Mixed => self.tape.at(Fault::Restart, member).one_in(2),
                Absence::Refuses => false,
                Absence::Swallows => true,
            };
            return match command.id() {
                Some(id) if !swallowed => self.answer(life, id, Reply::Failed(Failure::NotExecuted)),
                _ => self.lose(life, &command, "request"),
            };
        }
        if now < self.world.store.slow_until && !served {
            let at = now + self.tape.at(Fault::Slow, member).below(500 * MS);
            return self.plan(at, Happening::Request { life, name, command, served: true });
        }
        if let Some(id) = command.id()
            && self.chance(Fault::Trouble, member, 12)
        {
            let failure = if self.tape.at(Fault::Trouble, member).one_in(8) {
                Failure::Refused
            } else {
                Failure::NotExecuted
            };
            return self.answer(life, id, Reply::Failed(failure));
        }
        let Some(reply) = self.execute(life, name, &command) else { return };
        let Some(id) = command.id() else { return };
        if self.chance(Fault::ReplyLost, member, 10) || !self.world.members[member].hears {
            return self.lose(life, &command, "answer");
        }
        let unsure = self.chance(Fault::Trouble, member, 12);
        let reply = if unsure { Reply::Failed(Failure::Unknown) } else { reply };
        self.answer(life, id, reply);
    }

    fn execute(&mut self, life: usize, name: usize, command: &Command) -> Option<Reply> {
        let world = &mut self.world;
        let before = world.store.holder(world.now, &world.names[name]).cloned();
        let (reply, woken) = world.store.execute(world.now, &world.lives[life], &world.names[name], command);
        let after = world.store.holder(world.now, &world.names[name]).cloned();
        if matches!(reply, Some(Reply::Granted { .. }))
            && before.as_ref().map(|r| r.token) != after.as_ref().map(|r| r.token)
        {
            self.grants += 1;
        }
        self.note(&Fact::Executed {
            life,
            name,
            command,
            before: before.as_ref(),
            reply,
            after: after.as_ref(),
        });
        self.watch_expiry(name);
        for woken in woken {
            self.wake(woken);
        }
        reply
    }

    /// Sees to it that all is checked at the moment in which a record is over.
    pub(super) fn watch_expiry(&mut self, name: usize) {
        let expires = self.world.store.expires(&self.world.names[name]);
        if let Some(at) = expires.filter(|at| *at > self.world.now)
            && !self.expiring[name]
        {
            self.expiring[name] = true;
            self.plan(at, Happening::Expire { name });
        }
    }

    fn wake(&mut self, woken: Woken) {
        let (member, life) = (woken.waiter.0, woken.waiter.1.incarnation().as_u128() as usize);
        let lost = self.chance(Fault::Loss, member, 4);
        if lost || !self.world.members[member].hears {
            return self.note(&Fact::Lost { life, id: None, what: "hint" });
        }
        let at = self.world.now + self.delay(member);
        self.plan(at, Happening::Hint { life, event: Event::Hint { name: woken.name, wake: woken.wake } });
    }

    fn answer(&mut self, life: usize, id: CommandId, reply: Reply) {
        let member = self.place(life);
        let at = self.world.now + self.delay(member);
        if self.chance(Fault::Duplication, member, 10) {
            let later = at + self.delay(member);
            self.plan(later, Happening::Answer { life, id, reply });
        }
        self.plan(at, Happening::Answer { life, id, reply });
    }

    /// A request or its answer is lost. The core has a timeout for each command but `Watch`, which the driver
    /// answers for the store in the end.
    pub(super) fn lose(&mut self, life: usize, command: &Command, what: &'static str) {
        self.note(&Fact::Lost { life, id: command.id(), what });
        if let Command::Watch { id, .. } = command {
            let at = self.world.now + WATCH_TIMEOUT.as_nanos() as u64;
            self.plan(at, Happening::Answer { life, id: *id, reply: Reply::Failed(Failure::Unknown) });
        }
    }

    pub(super) fn hear(&mut self, life: usize, event: Event) {
        if self.world.lives(life) {
            self.input(self.place(life), event);
        }
    }

    pub(super) fn place(&self, life: usize) -> usize {
        self.world.lives[life].0
    }
}

/// How long a driver waits for the answer to a watch.
const WATCH_TIMEOUT: Duration = Duration::from_millis(300);
