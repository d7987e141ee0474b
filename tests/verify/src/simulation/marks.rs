//! Rare situations that a run of the suite must have seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tenure_core::{
    AcquireFailure, Acquisition, ClaimEnd, Command, CommandId, Event, Exit, LeaseKey, LossReason, Notice,
    ReleaseOutcome, Reply, Stop, StopReason, TickMiss, WaitLimit, Wake, WorkerKey,
};
use tenure_store::{TimerAct, TimerAnswer, TimerRecord};

use super::member::{CLAIM, Candidacy, Condition, Worker};
use super::world::{Fact, MS, What, World};

mod sharing;

macro_rules! marks {
    ($($(#[$doc:meta])+ $mark:ident),+ $(,)?) => {
        /// A rare situation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Mark { $($(#[$doc])+ $mark),+ }

        impl Mark {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$mark),+];
        }
    };
}

marks! {
    /// A grant arrived when its candidacy was over, and was given back.
    LateGrantReleased,
    /// A request to acquire was executed after the release that was to undo it.
    OrphanAcquire,
    /// The store said "not yours" to a holder whose work had not been asked to stop.
    NotYoursWhileHeld,
    /// A grant came so late that no time for work was left.
    GrantedTooLate,
    /// A renewal was acknowledged after the fence that it would have moved.
    ReplyAfterDeadline,
    /// A renewal after the fence covers the stop.
    StopCovered,
    /// A lease was lost while its work was drained.
    LossDuringDrain,
    /// A hint came while a request to acquire was under way.
    HintWhileAcquiring,
    /// The store gave a token that was too low.
    StoreRegressed,
    /// Work outlived its maximum hold, and renewing ended.
    AbandonedMaxHold,
    /// Work did not stop when it was stopped hard.
    StuckWork,
    /// A lease of a process that had died was granted to another.
    TakeoverAfterCrash,
    /// A lease of a process that was paused was granted to another.
    TakeoverFromPaused,
    /// A waiter that a release had chosen got the lease.
    ChosenWaiterTakesOver,
    /// The next candidate of the same process got the lease.
    HandedOverInProcess,
    /// An acquisition was asked for again and confirmed.
    AcquireConfirmed,
    /// An answer to an older attempt was the grant.
    OlderAttemptCounts,
    /// A request was executed and its answer lost.
    ReplyLost,
    /// A process was continued after the fence of its hold.
    PausedAcrossFence,
    /// What the leases protect refused an old holder's write.
    WriteRefused,
    /// A renewal succeeded after one had failed.
    RenewedAfterDoubt,
    /// A renewal was sent late.
    RenewalStarved,
    /// Work was stopped hard because its lease could not be renewed.
    StoppedHard,
    /// A release was never answered, and the TTL ended the record.
    ReleaseUnanswered,
    /// A release found that the record was gone.
    ReleaseFoundNothing,
    /// A lease was held all through a restart of the store.
    HeldThroughRestart,
    /// A process was told to end while it held a lease.
    ShutdownWhileHeld,
    /// A candidacy was given up while its request was under way.
    GivenUpWhileAcquiring,
    /// A candidacy with a limited wait ended without the lease.
    WaitRanOut,
    /// A candidacy was refused by the store.
    Refused,
    /// A worker campaigned again after its workload had failed.
    RestartAfterFailure,
    /// A workload failed again and again, and its worker rested for longer each time.
    FailuresInARow,
    /// A worker campaigned again after its lease was lost.
    RestartAfterLoss,
    /// A worker's lease was granted, and its workload never began.
    WorkloadNotStarted,
    /// A worker was reported to be stuck.
    StuckWorker,
    /// A worker was drained while its workload ran.
    WorkerDrainedWhileRunning,
    /// A worker ended by its policy.
    WorkerEndedByPolicy,
    /// A driver was stopped between two outputs, and heard of something new before it went on.
    HeardBetweenOutputs,
    /// A timer was based anew, since the clock had stepped back.
    TimerRebased,
    /// The schedule of another instance was followed.
    ScheduleFollowed,
    /// A forgotten timer was made anew by an instance that had it.
    TimerMadeAnew,
    /// Several ticks were delivered late, in order.
    CaughtUp,
    /// A tick was delivered with the number of those before it that were missed.
    MissedTicksCounted,
    /// Ticks were told to have been missed, since they were too late.
    TicksTooLate,
    /// A tick was not run, since it was too late by then.
    RunTooLate,
    /// A tick was not run, since a later one came before it could be claimed.
    TickSuperseded,
    /// A tick was not run, since a run was going on.
    OverlapSkipped,
    /// A tick whose claimant was gone was claimed again.
    ClaimRetried,
    /// A tick was not claimed again, since its runs were used up.
    RetryExhausted,
    /// The claim of a tick was granted too late for work.
    ClaimGrantedTooLate,
    /// A run was stopped, and its tick left to another attempt.
    RunInterrupted,
    /// A claim was given back before its run began.
    ClaimGivenBack,
    /// A run began under a lease.
    RunUnderLease,
    /// A heartbeat was refused, since its process had left or its time was over.
    LateBeatRefused,
    /// An instance was listed no longer, and came back.
    ListedAgain,
    /// The store took over from a process when that had joined.
    JoinedAdopted,
    /// All members drained.
    AllDrain,
    /// A process had to say more than once that it leaves.
    LeavesAgain,
    /// Work was stopped hard at the end of its grace while its instance drained.
    DrainTimedOut,
    /// An answer with an older view came late.
    OlderViewHeard,
    /// A store that had lost its members began with lower versions.
    ViewsBeganAnew,
    /// An instance with work saw that it was not listed.
    UnlistedWithWork,
    /// An instance died while it handed work over.
    DiedWhileHandingOver,
    /// An operator drained an instance.
    DrainedByOperator,
    /// A program drained its instance.
    DrainedByProgram,
    /// A drain was taken back.
    Resumed,
    /// A drain was taken back before all work had ended.
    ResumedWhileEnding,
    /// Work that ran came to belong elsewhere.
    MovedWhileWorking,
    /// A workload was removed while it ran.
    RemovedWhileWorking,
    /// What somebody had who is gone was taken over.
    TakenOverFromTheGone,
    /// An instance that had had to wait settled, and took a workload.
    Settled,
    /// Members of two kinds were there, and shared out.
    TwoKinds,
    /// Two processes were valid at once, since the assumptions were broken: only tokens protected.
    TwoHoldersBeyondAssumptions,
}

/// How often each situation was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks([u64; Mark::ALL.len()]);

impl Default for Marks {
    fn default() -> Self {
        Self([0; Mark::ALL.len()])
    }
}

impl Marks {
    /// How often this one was seen.
    #[must_use]
    pub fn count(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }

    /// Those that were not seen.
    pub fn missing(&self) -> impl Iterator<Item = Mark> {
        Mark::ALL.iter().copied().filter(|mark| self.count(*mark) == 0)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    fn hit(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Mark::ALL.iter().try_for_each(|mark| writeln!(f, "{:>9}  {mark:?}", self.count(*mark)))
    }
}

/// Watches one fleet for rare situations.
#[derive(Default)]
pub(super) struct Watcher {
    pub(super) marks: Marks,
    /// Releases of acquisitions whose grant was not known, by process.
    compensated: BTreeSet<(usize, Acquisition)>,
    /// The last holder of each lease that did not give it back.
    holders: BTreeMap<usize, usize>,
    /// The acquisition under way, by process and lease.
    acquiring: BTreeMap<(usize, usize), CommandId>,
    /// The latest renewal of a hold.
    renewing: BTreeMap<(usize, CommandId), LeaseKey>,
    /// Who was chosen by a release and when, by process and lease.
    chosen: BTreeMap<(usize, usize), u64>,
    /// Who released last, by lease.
    released: BTreeMap<usize, usize>,
    /// How workloads ended, and whether their leases were lost, by process and worker.
    ends: BTreeMap<(usize, WorkerKey), (Exit, bool)>,
    /// Holds by process: in doubt, granted in vain, drained.
    doubted: BTreeSet<(usize, LeaseKey)>,
    spoiled: BTreeSet<(usize, LeaseKey)>,
    drained: BTreeSet<(usize, LeaseKey)>,
    sharing: sharing::Watcher,
}

impl Watcher {
    pub(super) fn observe(&mut self, fact: &Fact<'_>, world: &World) {
        self.sharing.observe(fact, world, &mut self.marks);
        match fact {
            Fact::Executed { life, name, command, before, reply, .. } => {
                let own = |n| before.is_some_and(|before| before.owner == world.lives[*life].1.owner(n));
                self.executed(world, *life, *name, command, *reply, &own);
            }
            Fact::Heard { member, event } => self.heard(world, *member, event),
            Fact::Emitted { member, command } => self.emitted(world, *member, command),
            Fact::Noticed { member, name, notice, cause } => {
                self.noticed(world, *member, *name, notice, *cause)
            }
            Fact::Written { accepted: false, .. } => self.marks.hit(Mark::WriteRefused),
            Fact::Lost { what: "answer", .. } => self.marks.hit(Mark::ReplyLost),
            Fact::Struck { member, what } => self.struck(world, *member, *what),
            Fact::TimerExecuted { act, before, answer, .. } => self.timer_executed(act, *before, answer),
            Fact::TimerNoticed { notice, .. } => self.timer_noticed(notice),
            Fact::ClaimNoticed { notice: Notice::GrantedTooLate { .. }, .. } => {
                self.marks.hit(Mark::ClaimGrantedTooLate);
            }
            Fact::ClaimNoticed { .. } | Fact::MemberExecuted { .. } | Fact::MemberNoticed { .. } => {}
            Fact::Started { member, lease, .. } => {
                let candidacy = world.members[*member].candidacy(*lease);
                if candidacy.is_some_and(|candidacy| candidacy.run.is_some() && candidacy.name != CLAIM) {
                    self.marks.hit(Mark::RunUnderLease);
                }
            }
            Fact::Written { .. } | Fact::Lost { .. } | Fact::Polled { .. } => {}
            Fact::WorkEnded { member, lease, worker: Some(worker), exit } => {
                self.workload_ended(world, *member, *lease, *worker, *exit);
            }
            Fact::WorkEnded { .. } => {}
            Fact::WorkerNoticed { member, worker, notice } => {
                self.worker_noticed(world, *member, worker, notice)
            }
        }
    }

    fn timer_executed(&mut self, act: &TimerAct, before: Option<&TimerRecord>, answer: &TimerAnswer) {
        match (act, answer) {
            (TimerAct::Read { last: Some(_), .. }, _) if before.is_none() => {
                self.marks.hit(Mark::TimerMadeAnew)
            }
            (TimerAct::Claim(claim), _) => {
                let claims = before.into_iter().flat_map(|record| &record.claims);
                let Some(other) = claims.into_iter().find(|other| other.tick == claim.tick) else { return };
                let own = other.owner == claim.owner.to_string();
                match answer {
                    TimerAnswer::Granted(token) if *token != other.token && !own => {
                        self.marks.hit(Mark::ClaimRetried);
                    }
                    TimerAnswer::Taken if claim.attempts > 1 => self.marks.hit(Mark::RetryExhausted),
                    _ => {}
                }
            }
            (TimerAct::Finish { end: ClaimEnd::Interrupted, .. }, TimerAnswer::Removed) => {
                self.marks.hit(Mark::RunInterrupted);
            }
            (TimerAct::Finish { end: ClaimEnd::NotStarted, token: Some(_), .. }, TimerAnswer::Removed) => {
                self.marks.hit(Mark::ClaimGivenBack);
            }
            _ => {}
        }
    }

    fn timer_noticed(&mut self, notice: &Notice) {
        match notice {
            Notice::Ticked { due, .. } => {
                if due.catching_up {
                    self.marks.hit(Mark::CaughtUp);
                }
                if due.missed > 0 {
                    self.marks.hit(Mark::MissedTicksCounted);
                }
            }
            Notice::TicksMissed { .. } => self.marks.hit(Mark::TicksTooLate),
            Notice::Rebased { .. } => self.marks.hit(Mark::TimerRebased),
            Notice::ScheduleChanged { .. } => self.marks.hit(Mark::ScheduleFollowed),
            Notice::TickSkipped { why: TickMiss::TooLate, .. } => self.marks.hit(Mark::RunTooLate),
            Notice::TickSkipped { why: TickMiss::Superseded, .. } => self.marks.hit(Mark::TickSuperseded),
            Notice::TickSkipped { why: TickMiss::Overlap, .. } => self.marks.hit(Mark::OverlapSkipped),
            _ => {}
        }
    }

    fn executed(
        &mut self,
        world: &World,
        life: usize,
        name: usize,
        command: &Command,
        reply: Option<Reply>,
        own: &dyn Fn(Acquisition) -> bool,
    ) {
        match (command, reply) {
            (Command::Acquire { n, .. }, Some(Reply::Granted { .. })) => {
                if own(*n) {
                    self.marks.hit(Mark::AcquireConfirmed);
                    return;
                }
                if self.compensated.contains(&(life, *n)) {
                    self.marks.hit(Mark::OrphanAcquire);
                }
                if let Some(last) = self.holders.insert(name, life) {
                    if !world.lives(last) {
                        self.marks.hit(Mark::TakeoverAfterCrash);
                    } else if matches!(world.members[world.lives[last].0].condition, Condition::Paused { .. })
                    {
                        self.marks.hit(Mark::TakeoverFromPaused);
                    }
                }
            }
            (Command::Release { n, token, .. }, Some(reply)) => {
                if token.is_none() {
                    self.compensated.insert((life, *n));
                }
                if matches!(reply, Reply::Released { .. }) {
                    self.holders.remove(&name);
                    self.released.insert(name, life);
                }
            }
            _ => {}
        }
    }

    fn heard(&mut self, world: &World, member: usize, event: &Event) {
        let node = &world.members[member];
        if node.interrupted {
            self.marks.hit(Mark::HeardBetweenOutputs);
        }
        match event {
            Event::Hint { name, wake } => {
                let Some(name) = world.names.iter().position(|other| other == name) else { return };
                if self.acquiring.contains_key(&(node.life, name)) {
                    self.marks.hit(Mark::HintWhileAcquiring);
                }
                if matches!(wake, Wake::Free { chosen: true }) {
                    self.chosen.insert((node.life, name), world.now);
                }
            }
            Event::Reply { id, reply } => {
                if let Some(lease) = self.renewing.remove(&(node.life, *id))
                    && *reply == Reply::Renewed
                    && node.candidacy(lease).is_some_and(|candidacy| candidacy.held.is_some())
                    && node.node.deadlines(lease).is_some_and(|ends| ends.fence_at <= node.local(world.now))
                {
                    self.marks.hit(Mark::ReplyAfterDeadline);
                }
            }
            Event::Timeout
            | Event::Resync
            | Event::WorkloadExited { .. }
            | Event::TimerRead { .. }
            | Event::Present { .. }
            | Event::MembersHint => {}
        }
    }

    fn emitted(&mut self, world: &World, member: usize, command: &Command) {
        let node = &world.members[member];
        match command {
            Command::Acquire { id, lease, .. } => {
                if let Some(candidacy) = node.candidacy(*lease) {
                    self.acquiring.insert((node.life, candidacy.name), *id);
                }
            }
            Command::Renew { id, lease, .. } => {
                self.renewing.insert((node.life, *id), *lease);
            }
            Command::Release { lease, token: Some(_), .. } => {
                let over = |candidacy: &Candidacy| candidacy.over && candidacy.lost.is_none();
                if node.candidacy(*lease).is_some_and(over) && !self.spoiled.contains(&(node.life, *lease)) {
                    self.marks.hit(Mark::LateGrantReleased);
                }
            }
            Command::DrainWorkload { lease, why: StopReason::Drain } => {
                self.drained.insert((node.life, *lease));
            }
            Command::StopWorkload { how, why, .. } => {
                if (*how, *why) == (Stop::Hard, StopReason::Fence) {
                    self.marks.hit(Mark::StoppedHard);
                }
            }
            Command::Release { .. }
            | Command::Watch { .. }
            | Command::Unwatch { .. }
            | Command::ReadTimer { .. }
            | Command::ChangeTimer { .. }
            | Command::ClaimTick { .. }
            | Command::FinishTick { .. }
            | Command::Heartbeat { .. }
            | Command::Leave { .. }
            | Command::StartWorkload { .. }
            | Command::DrainWorkload { .. } => {}
        }
    }

    fn noticed(&mut self, world: &World, member: usize, name: usize, notice: &Notice, cause: Option<&Event>) {
        let node = &world.members[member];
        let life = node.life;
        let Some(lease) = notice.lease() else { return };
        let candidacy = node.candidacy(lease);
        match notice {
            Notice::Acquired { .. } => {
                let asked = self.acquiring.remove(&(life, name));
                if let Some(Event::Reply { id, .. }) = cause
                    && asked.is_some_and(|latest| latest != *id)
                {
                    self.marks.hit(Mark::OlderAttemptCounts);
                }
                if self.chosen.remove(&(life, name)).is_some_and(|at| world.now - at < 50 * MS) {
                    self.marks.hit(Mark::ChosenWaiterTakesOver);
                }
                if self.released.remove(&name) == Some(life) {
                    self.marks.hit(Mark::HandedOverInProcess);
                }
                if (0..world.members.len())
                    .any(|other| other != member && world.members[other].is_valid(world.now, name))
                {
                    self.marks.hit(Mark::TwoHoldersBeyondAssumptions);
                }
            }
            Notice::Renewed { .. } => {
                if self.doubted.remove(&(life, lease)) {
                    self.marks.hit(Mark::RenewedAfterDoubt);
                }
                let asked = candidacy.and_then(|candidacy| candidacy.work).and_then(|work| work.asked);
                if asked == Some(StopReason::Fence) {
                    self.marks.hit(Mark::StopCovered);
                }
            }
            Notice::InDoubt { .. } => {
                self.doubted.insert((life, lease));
            }
            Notice::RenewalStarved { .. } => self.marks.hit(Mark::RenewalStarved),
            Notice::Lost { why, .. } => {
                if self.drained.contains(&(life, lease)) {
                    self.marks.hit(Mark::LossDuringDrain);
                }
                let asked = candidacy.and_then(|candidacy| candidacy.work).and_then(|work| work.asked);
                match why {
                    LossReason::NotYours if asked.is_none() => self.marks.hit(Mark::NotYoursWhileHeld),
                    LossReason::Abandoned => self.marks.hit(Mark::AbandonedMaxHold),
                    _ => {}
                }
            }
            Notice::Waiting { .. } | Notice::Retrying { .. } => {
                self.acquiring.remove(&(life, name));
            }
            Notice::GrantedTooLate { .. } => self.marks.hit(Mark::GrantedTooLate),
            Notice::Failed { why, .. } => {
                self.acquiring.remove(&(life, name));
                if matches!(why, AcquireFailure::StoreRegressed { .. } | AcquireFailure::GrantedTooLate) {
                    self.spoiled.insert((life, lease));
                }
                match why {
                    AcquireFailure::StoreRegressed { .. } => self.marks.hit(Mark::StoreRegressed),
                    AcquireFailure::Refused => self.marks.hit(Mark::Refused),
                    AcquireFailure::Busy
                        if candidacy.is_some_and(|c| matches!(c.options.wait, WaitLimit::AtMost(_))) =>
                    {
                        self.marks.hit(Mark::WaitRanOut);
                    }
                    _ => {}
                }
            }
            Notice::Released { outcome: ReleaseOutcome::Expired, .. } => {
                self.marks.hit(Mark::ReleaseUnanswered)
            }
            Notice::Released { outcome: ReleaseOutcome::NotHeld, .. } => {
                self.marks.hit(Mark::ReleaseFoundNothing)
            }
            Notice::Ended { .. } => {
                self.doubted.remove(&(life, lease));
                self.drained.remove(&(life, lease));
                self.spoiled.remove(&(life, lease));
            }
            _ => {}
        }
    }

    fn workload_ended(
        &mut self,
        world: &World,
        member: usize,
        lease: LeaseKey,
        worker: WorkerKey,
        exit: Exit,
    ) {
        let node = &world.members[member];
        let lost = node.candidacy(lease).is_some_and(|candidacy| candidacy.lost.is_some());
        self.ends.insert((node.life, worker), (exit, lost));
        if exit == Exit::NotStarted {
            self.marks.hit(Mark::WorkloadNotStarted);
        }
    }

    fn worker_noticed(&mut self, world: &World, member: usize, worker: &Worker, notice: &Notice) {
        let life = world.members[member].life;
        match notice {
            Notice::Campaigning { .. } => match self.ends.remove(&(life, worker.key)) {
                Some((_, true)) => self.marks.hit(Mark::RestartAfterLoss),
                Some((Exit::Failed, false)) => self.marks.hit(Mark::RestartAfterFailure),
                _ => {}
            },
            Notice::Restarting { failures: 3.., .. } => self.marks.hit(Mark::FailuresInARow),
            Notice::Stuck { .. } => self.marks.hit(Mark::StuckWorker),
            Notice::WorkerEnded { .. } if !worker.draining => self.marks.hit(Mark::WorkerEndedByPolicy),
            _ => {}
        }
    }

    fn struck(&mut self, world: &World, member: Option<usize>, what: What) {
        let node = member.map(|member| &world.members[member]);
        let held = || {
            node.into_iter().flat_map(|node| &node.candidacies).filter(|candidacy| candidacy.held.is_some())
        };
        match what {
            What::Drain if held().any(|candidacy| candidacy.worker.is_some() && candidacy.work.is_some()) => {
                self.marks.hit(Mark::WorkerDrainedWhileRunning);
            }
            What::Stuck => self.marks.hit(Mark::StuckWork),
            What::Shutdown if held().next().is_some() => self.marks.hit(Mark::ShutdownWhileHeld),
            What::GiveUp => {
                let life = node.map(|node| node.life);
                if self.acquiring.keys().any(|(other, _)| Some(*other) == life) {
                    self.marks.hit(Mark::GivenUpWhileAcquiring);
                }
            }
            What::Resume => {
                let past = |candidacy: &Candidacy| {
                    node.is_some_and(|node| {
                        let ends = node.node.deadlines(candidacy.lease);
                        ends.is_some_and(|ends| ends.fence_at <= node.local(world.now))
                    })
                };
                if held().any(past) {
                    self.marks.hit(Mark::PausedAcrossFence);
                }
            }
            What::StoreUp => {
                let valid = |name| world.members.iter().any(|member| member.is_valid(world.now, name));
                if (0..world.names.len()).any(valid) {
                    self.marks.hit(Mark::HeldThroughRestart);
                }
            }
            _ => {}
        }
    }
}
