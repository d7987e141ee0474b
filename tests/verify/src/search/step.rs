//! One step of the system: an action, and all that nodes and store make of it.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use tenure_core::{
    Command, Event, Exit, Failure, Identity, Instant, Misuse, Node, Notice, Output, Reply, Stop,
};

use super::canonical::tick_of;
use super::choice::Chosen;
use super::config::{Store, TICK};
use super::explore::Violation;
use super::world::What::{Answer, Claim, Hint, Request};
use super::world::{Action, Grant, Laws, Member, Message, START, What, Work, World, violation};

/// One step under way: the world that it changes, and the story of it if it is to be told.
pub(super) struct Step<'a> {
    pub(super) laws: &'a Laws,
    pub(super) world: World,
    pub(super) story: Option<String>,
    /// Whether nothing gets lost for what else is under way.
    pub(super) calm: bool,
}

impl Step<'_> {
    /// Lets something happen.
    pub(super) fn act(&mut self, action: Action) -> Result<(), Violation> {
        match action {
            Action::Arrive(place) => self.arrive(place, self.laws.config.network.repeats),
            Action::Wake(member) => {
                self.tell(|world| format!("{} wakes up", world.members[member].name()));
                self.handle(member, Event::Timeout)
            }
            Action::EndWork(member) => self.end_work(member),
            Action::EndRun(member, run) => self.end_run(member, run),
            Action::Drain(member) => {
                self.tell(|world| format!("{} drains", world.members[member].name()));
                let Member { worker, lease, .. } = self.world.members[member];
                self.with(member, |node, now| match (worker, lease) {
                    (Some(worker), _) => node.drain_worker(now, worker),
                    (None, Some(lease)) => node.drain(now, lease),
                    (None, None) => Ok(()),
                })
            }
            Action::GiveUp(member) => {
                self.tell(|world| format!("{} gives its candidacy up", world.members[member].name()));
                let lease = self.world.members[member].lease;
                self.with(member, |node, now| lease.map_or(Ok(()), |lease| node.release(now, lease)))
            }
            Action::Crash(member) => self.crash(member),
            Action::Tick => self.tick(),
        }
    }

    /// A message arrives at the store or at a node.
    pub(super) fn arrive(&mut self, place: usize, stays: bool) -> Result<(), Violation> {
        let message = self.world.network[place].clone();
        if !stays {
            self.world.network.remove(place);
        }
        let member = message.member;
        match message.what {
            Request(command) => {
                self.tell(|_| format!("the store executes {}'s {command}", message.identity.instance()));
                self.execute(member, message.identity, &command);
                Ok(())
            }
            Claim(command, tick) => {
                self.tell(|_| format!("the store executes {}'s {command}", message.identity.instance()));
                self.execute_claim(member, message.identity, &command, tick)
            }
            Answer(id, reply) => {
                self.tell(|_| format!("{} hears of {id}: {reply:?}", message.identity.instance()));
                if *self.world.members[member].node.identity() != message.identity {
                    return Ok(());
                }
                self.handle(member, Event::Reply { id, reply })
            }
            Hint(wake) => {
                self.tell(|_| format!("{} gets a hint: {wake:?}", message.identity.instance()));
                if *self.world.members[member].node.identity() != message.identity {
                    return Ok(());
                }
                self.handle(member, Event::Hint { name: self.laws.name.clone(), wake })
            }
        }
    }

    pub(super) fn end_work(&mut self, index: usize) -> Result<(), Violation> {
        let member = &mut self.world.members[index];
        let Some(lease) = member.lease else { return Ok(()) };
        let exit = match member.work {
            Work::Running if self.laws.config.workers => {
                [Exit::Completed, Exit::Failed][self.laws.tape.choose(2)]
            }
            Work::Running | Work::None => Exit::Completed,
            Work::Asked | Work::Stopped => Exit::Stopped,
        };
        member.work = Work::None;
        self.tell(|world| format!("the work of {} ends: {exit:?}", world.members[index].name()));
        self.handle(index, Event::WorkloadExited { lease, exit })
    }

    /// The process ends, and another one starts in its place.
    fn crash(&mut self, index: usize) -> Result<(), Violation> {
        self.tell(|world| format!("{} crashes and starts again", world.members[index].name()));
        let World { members, network, store, .. } = &mut self.world;
        let before = &members[index];
        let gone = before.node.identity().clone();
        // Nobody is there any more for what is on its way back.
        network.retain(|message| message.identity != gone || matches!(message.what, Request(_) | Claim(..)));
        for waiters in store.waiters.values_mut() {
            waiters.remove(&(index, gone.clone()));
        }
        store.waiters.retain(|_, waiters| !waiters.is_empty());
        let mut newcomer = self.laws.newcomer(index, gone.incarnation().as_u128() + 1, before.clock);
        newcomer.parts = before.parts;
        members[index] = newcomer;
        self.join(index)
    }

    /// A process that has just begun asks for the lease.
    pub(super) fn join(&mut self, index: usize) -> Result<(), Violation> {
        self.ask_for_it(index)?;
        self.settle(index)
    }

    /// The store's clock goes on by a tick, and each node's by what its drift allows.
    fn tick(&mut self) -> Result<(), Violation> {
        self.tell(|_| "a tick passes".into());
        let clocks = &self.laws.config.clocks;
        self.pass();
        for index in 0..self.world.members.len() {
            let advance = clocks.advance[self.laws.tape.choose(clocks.advance.len())];
            self.pass_at(index, advance)?;
        }
        Ok(())
    }

    /// Time passes at the store, and for what is under way.
    pub(super) fn pass(&mut self) {
        let World { store, store_clock, wall, network, .. } = &mut self.world;
        *store_clock = *store_clock + TICK;
        *wall = *wall + TICK;
        if self.laws.config.network.delay.is_some() {
            network.iter_mut().for_each(|message| message.age += 1);
        }
        let early = if self.laws.config.store == Store::ExpiresEarly { TICK } else { Duration::ZERO };
        store.records.retain(|_, record| *store_clock + early < record.expires);
    }

    /// Time passes at a node. One that is not paused does at once what is due.
    pub(super) fn pass_at(&mut self, index: usize, parts: u8) -> Result<(), Violation> {
        let whole = self.laws.config.clocks.parts;
        self.world.members[index].parts += parts;
        while self.world.members[index].parts >= whole {
            let member = &mut self.world.members[index];
            member.parts -= whole;
            member.clock = member.clock + TICK;
            if member.is_due() && !self.laws.config.pauses {
                self.handle(index, Event::Timeout)?;
            }
        }
        Ok(())
    }

    pub(super) fn handle(&mut self, member: usize, event: Event) -> Result<(), Violation> {
        self.with(member, |node, now| node.handle(now, event))
    }

    fn with(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut Node<Chosen>, Instant) -> Result<(), Misuse>,
    ) -> Result<(), Violation> {
        let member = &mut self.world.members[index];
        call(Rc::make_mut(&mut member.node), member.clock)
            .map_err(|misuse| violation("misuse", format!("{}: {misuse}", member.name())))?;
        self.settle(index)
    }

    /// Takes from a node what it has to say, until it only waits.
    pub(super) fn settle(&mut self, index: usize) -> Result<(), Violation> {
        // No input leads to more than a handful of outputs.
        for _ in 0..100 {
            let member = &mut self.world.members[index];
            match Rc::make_mut(&mut member.node).poll() {
                Output::Command(command) => self.command(index, command)?,
                Output::Notice(notice) => self.notice(index, &notice)?,
                Output::Wait(alarm) => {
                    member.alarm = alarm;
                    return self.settled(index);
                }
            }
        }
        Err(violation("bounded", format!("{} never comes to rest", self.world.members[index].name())))
    }

    fn command(&mut self, index: usize, command: Command) -> Result<(), Violation> {
        self.tell(|world| format!("    {}: {command}", world.members[index].name()));
        let hints = self.laws.config.network.hints;
        let member = &mut self.world.members[index];
        let identity = member.node.identity().clone();
        match command {
            Command::ReadTimer { .. } | Command::ChangeTimer { .. } => self.timer_command(index, &command),
            Command::ClaimTick { lease, .. }
            | Command::FinishTick { lease, .. }
            | Command::Renew { lease, .. }
                if member.node.claim(lease).is_some() =>
            {
                self.claim_command(index, command, lease)
            }
            Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, .. }
                if member.job.is_some() =>
            {
                let to = match command {
                    Command::StopWorkload { how: Stop::Hard, .. } => Work::Stopped,
                    _ => Work::Asked,
                };
                self.stop_run(index, lease, to);
                Ok(())
            }
            Command::StartWorkload { lease, token, .. } if member.job.is_some() => {
                self.start_run(index, lease, token)
            }
            Command::DrainWorkload { lease, why: _ } => {
                member.stop_work(lease, Work::Asked);
                Ok(())
            }
            Command::StopWorkload { lease, how, why: _ } => {
                let to = match how {
                    Stop::Ask => Work::Asked,
                    Stop::Hard => Work::Stopped,
                };
                member.stop_work(lease, to);
                Ok(())
            }
            Command::StartWorkload { token, .. } => member.start_work(token),
            Command::Heartbeat { .. } | Command::Leave { .. } => {
                Err(violation("misuse", format!("{} is no member", member.name())))
            }
            Command::Watch { id, .. } if !hints => {
                let reply = Reply::Failed(Failure::Refused);
                let node = Rc::make_mut(&mut member.node);
                node.handle(member.clock, Event::Reply { id, reply })
                    .map_err(|misuse| violation("misuse", misuse.to_string()))
            }
            Command::Unwatch { .. } => {
                let from = (index, identity);
                let World { store, store_clock, .. } = &mut self.world;
                store.execute(*store_clock, &from, &self.laws.name, &command);
                Ok(())
            }
            Command::Release { lease, n, token, .. } => {
                let ends = |grant: Grant| grant.n == n && token.is_none_or(|token| token == grant.token);
                if Some(lease) == member.lease && member.grant.is_some_and(ends) {
                    let name = member.name();
                    if member.work != Work::None {
                        return Err(violation("S9", format!("{name} releases before its work has ended")));
                    }
                    if member.valid().is_some() {
                        return Err(violation("S9", format!("{name} is valid while it releases")));
                    }
                    member.grant = None;
                }
                self.send(index, identity, Request(command));
                Ok(())
            }
            Command::Acquire { .. } | Command::Renew { .. } | Command::Watch { .. } => {
                self.send(index, identity, Request(command));
                Ok(())
            }
            Command::ClaimTick { .. } | Command::FinishTick { .. } => {
                Err(violation("misuse", format!("{} has no such claim: {command}", member.name())))
            }
        }
    }

    fn notice(&mut self, index: usize, notice: &Notice) -> Result<(), Violation> {
        if self.world.members[index].job.is_some() {
            return self.job_notice(index, notice);
        }
        let workers = self.laws.config.workers;
        let told = self.world.told;
        let member = &mut self.world.members[index];
        self.story.as_mut().map(|story| writeln!(story, "    {}: {}", member.name(), brief(notice)));
        match *notice {
            Notice::Campaigning { lease, .. } => {
                if member.work != Work::None {
                    let what = format!("{} campaigns before its work has ended", member.name());
                    return Err(violation("C1", what));
                }
                (member.lease, member.grant) = (Some(lease), None);
            }
            Notice::Restarting { at, .. } if at <= member.clock => {
                return Err(violation("C1", format!("the worker of {} takes no rest", member.name())));
            }
            Notice::WorkerEnded { .. } => {
                if member.work != Work::None {
                    let what = format!("the worker of {} ends before its work has", member.name());
                    return Err(violation("C1", what));
                }
                self.ask_for_it(index)?;
            }
            _ if notice.lease().is_none() || notice.lease() != member.lease => {}
            Notice::Acquired { n, token, .. } => {
                if token <= told {
                    let what = format!("{} was granted {token} after {told}", member.name());
                    return Err(violation("S6", what));
                }
                member.grant = Some(Grant { n, token, lost: false });
                self.world.told = token;
                if !workers {
                    self.world.members[index].start_work(token)?;
                }
            }
            Notice::Lost { .. } => {
                if let Some(grant) = &mut member.grant {
                    grant.lost = true;
                }
            }
            Notice::Failed { .. } | Notice::Released { .. } | Notice::Ended { .. } if !workers => {
                member.grant = None;
                if matches!(notice, Notice::Ended { .. }) != self.laws.config.application.hasty {
                    self.ask_for_it(index)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn ask_for_it(&mut self, index: usize) -> Result<(), Violation> {
        let member = &mut self.world.members[index];
        self.laws.ask(member).map_err(|misuse| violation("misuse", misuse.to_string()))
    }

    /// What must hold for a node that has just handled something.
    fn settled(&mut self, index: usize) -> Result<(), Violation> {
        let member = &self.world.members[index];
        let name = member.name();
        if member.is_due() {
            return Err(violation("S3", format!("{name} is due at {:?} after it was woken", member.alarm)));
        }
        self.runs_settled(index)?;
        let holds = member.grant.is_some_and(|grant| !grant.lost);
        if !holds && matches!(member.work, Work::Running | Work::Asked) {
            return Err(violation("S3", format!("the work of {name} outlives its lease")));
        }
        let Some(deadlines) = member.deadlines() else { return Ok(()) };
        let past = |at: Instant| at <= member.clock;
        if past(deadlines.fence_at) && member.work == Work::Running {
            return Err(violation("S3", format!("the work of {name} is not asked to stop at the fence")));
        }
        if past(deadlines.kill_at) && matches!(member.work, Work::Running | Work::Asked) {
            return Err(violation("S3", format!("the work of {name} is not stopped hard in time")));
        }
        let too_late = |alarm: Instant| tick_of(alarm) > tick_of(deadlines.fence_at);
        if member.valid().is_some() && member.alarm.is_none_or(too_late) {
            return Err(violation("S3", format!("{name} would sleep beyond its fence")));
        }
        Ok(())
    }

    /// Something goes on its way. If too much is under way, any of it gets lost.
    pub(super) fn send(&mut self, member: usize, identity: Identity, what: What) {
        let message = Message { member, identity, age: 0, what };
        let network = &mut self.world.network;
        if self.laws.config.network.repeats && network.contains(&message) {
            return;
        }
        network.push(message);
        if !self.calm && network.len() > self.laws.config.network.in_flight {
            let lost = network.len() - 1 - self.laws.tape.choose(network.len());
            let message = network.remove(lost);
            self.tell(|_| format!("    lost: {}", message.what));
        }
    }

    fn execute(&mut self, index: usize, identity: Identity, command: &Command) {
        let mut command = command.clone();
        if let Command::Acquire { wait, .. } = &mut command {
            *wait &= self.laws.config.network.hints;
        }
        let from = (index, identity.clone());
        let World { store, store_clock, .. } = &mut self.world;
        let (now, name) = (*store_clock, &self.laws.name);
        let (reply, woken) = self.laws.config.store.execute(store, now, &from, name, &command);
        if let (Some(id), Some(reply)) = (command.id(), reply)
            && self.world.members[index].node.identity() == &identity
        {
            self.send(index, identity, Answer(id, reply));
        }
        for hint in woken {
            let (index, identity) = hint.waiter;
            if self.laws.config.network.hints && self.world.members[index].node.identity() == &identity {
                self.send(index, identity, Hint(hint.wake));
            }
        }
    }

    pub(super) fn tell(&mut self, line: impl FnOnce(&World) -> String) {
        let Some(story) = &mut self.story else { return };
        let line = line(&self.world);
        let indented = line.starts_with(' ');
        if indented {
            let _ = writeln!(story, "{line}");
        } else {
            let ticks = |at: Instant| at.saturating_since(START).as_nanos() / TICK.as_nanos();
            let clocks: Vec<_> = self.world.members.iter().map(|member| ticks(member.clock)).collect();
            let _ = writeln!(story, "{:3} {clocks:?} {line}", ticks(self.world.store_clock));
        }
    }
}

/// A notice without the numbers that its time gives anyway.
pub(super) fn brief(notice: &Notice) -> String {
    match notice {
        Notice::Acquired { token, .. } => format!("acquired with token {token}"),
        Notice::Lost { token, why, .. } => format!("lost token {token}: {why:?}"),
        Notice::Failed { why, .. } => format!("failed: {why:?}"),
        Notice::Released { outcome, .. } => format!("released: {outcome:?}"),
        other => {
            let text = format!("{other:?}");
            text.split(' ').next().unwrap_or_default().to_lowercase()
        }
    }
}
