//! What a driver does with a node: events in, outputs out, a timer, and the work under its leases.

use std::time::Duration;

use tenure_core::{
    Command, Deadlines, Event, Exit, Instant, LeaseKey, Notice, Output, Stop, Token, WorkerKey,
};

use super::super::member::CLAIM;
use super::{Condition, Fact, Fault, Fleet, Happening, Phase, SECOND, Violation};

/// One event brings a node to say this much at most.
const MOST_OUTPUTS: usize = 10_000;
/// How late a driver may be where messages are slow.
pub(super) const LATE: Duration = Duration::from_millis(20);

impl Fleet {
    pub(super) fn input(&mut self, member: usize, event: Event) {
        match self.world.members[member].condition {
            Condition::Down => {}
            Condition::Paused { .. } => self.world.members[member].inbox.push(event),
            Condition::Up => {
                if self.chance(Fault::Pause, member, 80) {
                    self.world.members[member].inbox.push(event);
                    let length = 1 + self.tape.at(Fault::Pause, member).below(4 * SECOND);
                    return self.pause(member, self.world.now + length);
                }
                if self.chance(Fault::Crash, member, 800) {
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
        let now = self.reads_clock(member);
        if let Err(misuse) = self.world.members[member].node.handle(now, event) {
            let what = format!("node {member} calls {cause:?} a misuse: {misuse}");
            self.violation.get_or_insert(Violation::new("an honest driver makes no mistakes", what));
        }
        self.pump(member, Some(&cause));
    }

    /// What a member's clock shows, for something that goes into its node.
    pub(super) fn reads_clock(&mut self, member: usize) -> Instant {
        let node = &mut self.world.members[member];
        node.heard_at = node.clock.at(self.world.now);
        node.heard_at
    }

    /// Carries out what a node says, until it has nothing more to say.
    pub(super) fn pump(&mut self, member: usize, cause: Option<&Event>) {
        for nth in 0..MOST_OUTPUTS {
            if self.violation.is_some() {
                return;
            }
            if nth > 0 && self.chance(Fault::Interruption, member, 300) {
                let length = 1 + self.tape.at(Fault::Interruption, member).below(3 * SECOND);
                self.world.members[member].interrupted = true;
                return self.pause(member, self.world.now + length);
            }
            match self.world.members[member].node.poll() {
                Output::Command(command) => self.command(member, command),
                Output::Notice(notice) => self.notice(member, &notice, cause),
                Output::Wait(wait) => {
                    self.note(&Fact::Polled { member, wait });
                    self.arm(member, wait);
                    self.world.members[member].interrupted = false;
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
        let late = self.chance(Fault::Delay, member, 16);
        let at =
            if late { due + self.tape.at(Fault::Delay, member).below(LATE.as_nanos() as u64) } else { due };
        if self.world.members[member].alarm != Some(at) {
            self.world.members[member].alarm = Some(at);
            self.plan(at, Happening::Wake { member });
        }
    }

    fn command(&mut self, member: usize, command: Command) {
        self.note(&Fact::Emitted { member, command: &command });
        match &command {
            Command::ReadTimer { .. }
            | Command::ChangeTimer { .. }
            | Command::ClaimTick { .. }
            | Command::FinishTick { .. } => self.send_timer(member, &command),
            Command::Heartbeat { .. } | Command::Leave { .. } => self.send_member(member, &command),
            Command::Renew { lease, .. } if self.world.members[member].node.claim(*lease).is_some() => {
                self.send_timer(member, &command);
            }
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
            Command::StartWorkload { worker, lease, token, deadlines, .. } => {
                self.begin(member, *lease, Some(*worker), *token, *deadlines);
            }
            Command::DrainWorkload { lease, why } | Command::StopWorkload { lease, how: Stop::Ask, why } => {
                self.ask_to_stop(member, *lease, *why);
            }
            Command::StopWorkload { lease, how: Stop::Hard, .. } => self.stop_hard(member, *lease),
        }
    }

    fn unknown(&mut self, member: usize, lease: LeaseKey) {
        let what = format!("node {member} speaks of {lease}, which has ended");
        self.violation.get_or_insert(Violation::new("what has ended stays silent", what));
    }

    fn notice(&mut self, member: usize, notice: &Notice, cause: Option<&Event>) {
        match notice {
            Notice::Campaigning { worker, .. }
            | Notice::Restarting { worker, .. }
            | Notice::Stuck { worker, .. }
            | Notice::WorkerEnded { worker } => self.worker_notice(member, *worker, notice),
            Notice::Joined { .. }
            | Notice::MembersChanged { .. }
            | Notice::HeartbeatFailed { .. }
            | Notice::Left
            | Notice::Draining { .. }
            | Notice::Drained
            | Notice::Resumed
            | Notice::WorkloadAssigned { .. }
            | Notice::WorkloadDropped { .. }
            | Notice::CoordinatorEnded { .. } => self.member_notice(member, notice),
            _ => match notice.lease() {
                Some(lease) => self.lease_notice(member, lease, notice, cause),
                None => self.timer_notice(member, notice),
            },
        }
    }

    fn lease_notice(&mut self, member: usize, lease: LeaseKey, notice: &Notice, cause: Option<&Event>) {
        let node = &self.world.members[member];
        let (life, now, late) = (node.life, node.heard_at, node.interrupted);
        let Some(name) = node.candidacy(lease).map(|candidacy| candidacy.name) else {
            return self.unknown(member, lease);
        };
        let run = self.world.members[member].candidacy(lease).and_then(|candidacy| candidacy.run);
        match run.filter(|_| name == CLAIM) {
            Some(run) => self.note(&Fact::ClaimNoticed { member, run, notice }),
            None => self.note(&Fact::Noticed { member, name, notice, cause }),
        }
        let Some(candidacy) = self.world.members[member].candidacy_mut(lease) else { return };
        match notice {
            Notice::Acquired { token, deadlines, .. } => {
                candidacy.decide_by = None;
                let stop_by = |limit| now + limit + candidacy.options.grace + LATE * 3;
                // What was stopped in between is late.
                candidacy.stop_by = candidacy.options.max_hold.filter(|_| !late).map(stop_by);
                candidacy.held = Some(*token);
                // A worker's workload, and a job's run, is started by a command of its own.
                if candidacy.worker.is_none() {
                    self.begin(member, lease, None, *token, *deadlines);
                }
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
                let of_worker = candidacy.worker.is_some();
                self.world.members[member].candidacies.retain(|candidacy| candidacy.lease != lease);
                if !of_worker && name != CLAIM {
                    self.plan_stand(life, name);
                }
            }
            _ => {}
        }
    }

    fn worker_notice(&mut self, member: usize, key: WorkerKey, notice: &Notice) {
        let node = &mut self.world.members[member];
        let life = node.life;
        if let Notice::Campaigning { lease, .. } = notice
            && let Some((periodic, due)) = node.node.run(key)
        {
            return self.claims(member, key, *lease, periodic, due.tick.n);
        }
        if !node.workers.iter().any(|worker| worker.key == key) && node.node.worker_name(key).is_none() {
            return self.run_notice(member, key, notice);
        }
        let Some(worker) = node.workers.iter().find(|worker| worker.key == key).cloned() else {
            let what = format!("node {member} speaks of {key}, which has ended");
            self.violation.get_or_insert(Violation::new("what has ended stays silent", what));
            return;
        };
        if let Notice::Campaigning { lease, .. } = notice {
            self.world.members[member].candidacies.push(worker.candidacy(*lease));
        }
        self.note(&Fact::WorkerNoticed { member, worker: &worker, notice });
        if let Notice::WorkerEnded { .. } = notice {
            self.world.members[member].workers.retain(|worker| worker.key != key);
            if !worker.share {
                self.plan_stand(life, worker.name);
            }
        }
    }

    fn begin(
        &mut self,
        member: usize,
        lease: LeaseKey,
        worker: Option<WorkerKey>,
        token: Token,
        deadlines: Deadlines,
    ) {
        let node = &self.world.members[member];
        let local = node.local(self.world.now);
        // Whoever was stopped in between looks at the clock. A start that leaves the node after it was told the time is
        // in time.
        let late = if worker.is_some() { local > node.heard_at } else { node.interrupted };
        if late && local >= deadlines.fence_at {
            return self.exited(member, lease, Exit::NotStarted);
        }
        if worker.is_some() && self.chance(Fault::Users, member, 10) {
            return self.exited(member, lease, Exit::Failed);
        }
        self.note(&Fact::Started { member, lease, worker, token, deadlines });
        self.begin_work(member, lease, token);
    }
}
