//! What goes in and out of the machines: commands, events, replies.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::assign::Digest;
use crate::member::{Labels, Presence};
use crate::name::{
    Acquisition, CommandId, CoordinatorKey, LeaseKey, LeaseName, PeriodicKey, TimerKey, Token, WorkerKey,
};
use crate::notice::Notice;
use crate::periodic::Overlap;
use crate::schedule::AnySchedule;
use crate::time::{Instant, Timestamp};
use crate::timer::{TimerChange, TimerView};
use crate::timing::ConfigError;

/// What a machine says next. Ask with `poll` until the answer is [`Output::Wait`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a driver must handle every one")]
pub enum Output {
    /// Do this.
    Command(Command),
    /// Tell the application this.
    Notice(Notice),
    /// Nothing more for now. Come back with [`Event::Timeout`] at this instant, or with any other event
    /// before it; `None` means that only an event can bring something new.
    Wait(Option<Instant>),
}

/// Something that the driver must do.
///
/// Commands to the store carry the keys of what they concern; [`Node::name`](crate::Node::name) and
/// [`Node::owner`](crate::Node::owner) give the texts, so that a renewal copies none. Every command with
/// an id wants exactly one reply in the end, [`Reply::Failed`] if nothing else is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a driver must handle every one")]
pub enum Command {
    /// Take the lease if it is free, or confirm (and extend) it if this very owner has it.
    Acquire {
        /// To be handed back with the reply.
        id: CommandId,
        /// The candidacy.
        lease: LeaseKey,
        /// The acquisition, part of the owner.
        n: Acquisition,
        /// How long the store keeps the record.
        ttl: Duration,
        /// The token must come out above this one.
        floor: Token,
        /// Whether to register this process as a waiter if the lease is held.
        wait: bool,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// Extend the record if it is this owner's with this token; never create it.
    Renew {
        /// To be handed back with the reply.
        id: CommandId,
        /// The hold.
        lease: LeaseKey,
        /// The acquisition, part of the owner.
        n: Acquisition,
        /// The token of the grant.
        token: Token,
        /// How long the store keeps the record from now on.
        ttl: Duration,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// Remove the record if it is this owner's (and has this token, if one is given), and wake waiters.
    Release {
        /// To be handed back with the reply.
        id: CommandId,
        /// The hold, or the candidacy that was given up.
        lease: LeaseKey,
        /// The acquisition, part of the owner.
        n: Acquisition,
        /// The token of the grant, `None` if it never became known.
        token: Option<Token>,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// Tell the timer's record and the store's time; make the record if there is none. Answer with
    /// [`Event::TimerRead`].
    ReadTimer {
        /// To be handed back with the reply.
        id: CommandId,
        /// The timer.
        timer: TimerKey,
        /// The schedule of a record that has to be made: its base is the store's time and the number `last`.
        schedule: AnySchedule,
        /// The last tick that this instance knows of; the record's is raised to it.
        last: Option<u64>,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// Change the timer's record, if it still has this revision. Answer with [`Event::TimerRead`], whether it was
    /// changed or not.
    ChangeTimer {
        /// To be handed back with the reply.
        id: CommandId,
        /// The timer.
        timer: TimerKey,
        /// The revision that is to be changed.
        revision: u64,
        /// The change.
        change: TimerChange,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// Claim a tick, or confirm (and extend) the claim if it is this very owner's. A claim is renewed by
    /// [`Command::Renew`]; [`Node::claim`](crate::Node::claim) tells which leases are claims.
    ClaimTick {
        /// To be handed back with the reply.
        id: CommandId,
        /// The claim.
        lease: LeaseKey,
        /// The acquisition, part of the owner.
        n: Acquisition,
        /// The number of the tick.
        tick: u64,
        /// How long the store keeps the claim.
        ttl: Duration,
        /// The token must come out above this one.
        floor: Token,
        /// How many runs of the tick may be begun at most.
        attempts: u32,
        /// What becomes of it while another tick's claim lives.
        overlap: Overlap,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// End the claim that is this owner's (and has this token, if one is given).
    FinishTick {
        /// To be handed back with the reply.
        id: CommandId,
        /// The claim.
        lease: LeaseKey,
        /// The acquisition, part of the owner.
        n: Acquisition,
        /// The number of the tick.
        tick: u64,
        /// The token of the claim, `None` if it never became known.
        token: Option<Token>,
        /// What became of the run.
        end: ClaimEnd,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// Show that this instance is alive, and say what it says of itself. Answer with [`Event::Present`].
    Heartbeat {
        /// To be handed back with the reply.
        id: CommandId,
        /// Rises with each heartbeat: the highest counts, in whatever order they come.
        sequence: u64,
        /// When the instance joined, if that is known: adopted by a store that does not know it.
        joined: Option<Timestamp>,
        /// Whether it drains by its own will. What an operator wants the store knows by itself.
        draining: bool,
        /// The kinds of plans that it takes part in; sorted, each once.
        digests: Arc<[Digest]>,
        /// What its program says of it.
        labels: Labels,
        /// The version of the view that is known here; it is not sent again.
        known: Option<u64>,
        /// How long the store lists the instance from now on.
        ttl: Duration,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// List this instance no longer, and none of its heartbeats that come later.
    Leave {
        /// To be handed back with the reply.
        id: CommandId,
        /// For how long heartbeats that come late are to be ignored.
        ttl: Duration,
        /// After this long the core takes the outcome as unknown.
        timeout: Duration,
    },
    /// Send hints about this lease, and register this process as a waiter.
    Watch {
        /// To be handed back with the reply, which is due once nothing will be missed any more.
        id: CommandId,
        /// The lease.
        name: LeaseName,
    },
    /// No more hints about this lease are needed; forget that this process waits. Wants no reply.
    Unwatch {
        /// The lease.
        name: LeaseName,
    },
    /// Start a worker's workload, if the clock still reads less than `deadlines.fence_at`. Answer with
    /// [`Event::WorkloadExited`] once it has ended, or at once if it could not be started.
    StartWorkload {
        /// The worker.
        worker: WorkerKey,
        /// The hold under which it works; the stops that follow name it.
        lease: LeaseKey,
        /// The acquisition, part of the owner.
        n: Acquisition,
        /// The fencing token of the grant.
        token: Token,
        /// When the lease ends, unless it is renewed.
        deadlines: Deadlines,
    },
    /// Tell the work done under this lease to come to an end in order; it has the grace of its options for that, and
    /// the lease is renewed meanwhile. Answer with [`Event::WorkloadExited`] once it has ended.
    DrainWorkload {
        /// The hold.
        lease: LeaseKey,
        /// Why.
        why: StopReason,
    },
    /// Stop the work done under this lease. Answer with [`Event::WorkloadExited`] once it has ended.
    StopWorkload {
        /// The hold.
        lease: LeaseKey,
        /// How.
        how: Stop,
        /// Why.
        why: StopReason,
    },
}

impl Command {
    /// The id that the reply must carry, if one is wanted.
    #[must_use]
    pub const fn id(&self) -> Option<CommandId> {
        match self {
            Self::Acquire { id, .. }
            | Self::Renew { id, .. }
            | Self::Release { id, .. }
            | Self::ReadTimer { id, .. }
            | Self::ChangeTimer { id, .. }
            | Self::ClaimTick { id, .. }
            | Self::FinishTick { id, .. }
            | Self::Heartbeat { id, .. }
            | Self::Leave { id, .. }
            | Self::Watch { id, .. } => Some(*id),
            Self::Unwatch { .. }
            | Self::StartWorkload { .. }
            | Self::DrainWorkload { .. }
            | Self::StopWorkload { .. } => None,
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { id, lease, n, floor, .. } => {
                write!(f, "{id} acquire {lease} n={n} floor={floor}")
            }
            Self::Renew { id, lease, n, token, .. } => write!(f, "{id} renew {lease} n={n} token={token}"),
            Self::Release { id, lease, n, token: Some(token), .. } => {
                write!(f, "{id} release {lease} n={n} token={token}")
            }
            Self::Release { id, lease, n, token: None, .. } => write!(f, "{id} release {lease} n={n}"),
            Self::ReadTimer { id, timer, schedule, .. } => write!(f, "{id} read {timer} {schedule}"),
            Self::ChangeTimer { id, timer, revision, change, .. } => {
                write!(f, "{id} change {timer} revision={revision} {change:?}")
            }
            Self::ClaimTick { id, lease, n, tick, floor, .. } => {
                write!(f, "{id} claim tick {tick} {lease} n={n} floor={floor}")
            }
            Self::FinishTick { id, lease, n, tick, token, end, .. } => {
                let token = token.unwrap_or(Token::ZERO);
                write!(f, "{id} finish tick {tick} {lease} n={n} token={token} {end:?}")
            }
            Self::Heartbeat { id, sequence, draining, digests, known, .. } => {
                write!(
                    f,
                    "{id} heartbeat {sequence} draining={draining} digests={} known={known:?}",
                    digests.len()
                )
            }
            Self::Leave { id, .. } => write!(f, "{id} leave"),
            Self::Watch { id, name } => write!(f, "{id} watch {name}"),
            Self::Unwatch { name } => write!(f, "unwatch {name}"),
            Self::StartWorkload { worker, lease, n, token, .. } => {
                write!(f, "start work of {worker} under {lease} n={n} token={token}")
            }
            Self::DrainWorkload { lease, why } => write!(f, "drain work under {lease} {why:?}"),
            Self::StopWorkload { lease, how, why } => write!(f, "stop work under {lease} {how:?} {why:?}"),
        }
    }
}

/// What became of the run of a claimed tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a store must carry out every one")]
pub enum ClaimEnd {
    /// It has ended by itself, well or not: nobody runs this tick again.
    Finished,
    /// It was stopped: it may be run again, if attempts are left.
    Interrupted,
    /// It was never begun: it may be run by another, and this was no attempt.
    NotStarted,
}

/// How work is to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a driver must handle every one")]
pub enum Stop {
    /// Ask it to end: a signal that it may handle.
    Ask,
    /// End it: without its consent, as far as the platform allows.
    Hard,
}

/// Why work is to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The holder chose to stop ([`Node::drain`](crate::Node::drain)).
    Drain,
    /// The lease was held for as long as it may be.
    MaxHold,
    /// No renewal was acknowledged in time: the lease ends before the work would.
    Fence,
    /// The store says that the lease is somebody else's, or nobody's.
    Lost,
}

/// What the driver tells the core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the driver makes them; a new one is a decision for every driver"
)]
pub enum Event {
    /// Time has passed. Harmless when nothing is due.
    Timeout,
    /// The store's answer to a command.
    Reply {
        /// The command's id.
        id: CommandId,
        /// The answer.
        reply: Reply,
    },
    /// The store's answer to [`Command::ReadTimer`] and [`Command::ChangeTimer`]. One that failed is a reply,
    /// [`Reply::Failed`].
    TimerRead {
        /// The command's id.
        id: CommandId,
        /// The timer's record, as it stands after the command.
        view: TimerView,
        /// What the store's wall clock said when the command was executed.
        at: Timestamp,
    },
    /// The store's answer to [`Command::Heartbeat`]. One that failed is a reply, [`Reply::Failed`].
    Present {
        /// The command's id.
        id: CommandId,
        /// What the store says.
        presence: Presence,
    },
    /// A hint from the store that the members have changed. It may be missing, repeated, late or wrong.
    MembersHint,
    /// A hint from the store about a watched lease. It may be missing, repeated, late or wrong.
    Hint {
        /// The lease.
        name: LeaseName,
        /// What seems to have happened.
        wake: Wake,
    },
    /// Hints may have been missed; every waiter should look for itself.
    Resync,
    /// The work under this lease has ended; nothing of it runs any more.
    WorkloadExited {
        /// The hold.
        lease: LeaseKey,
        /// How it ended.
        exit: Exit,
    },
}

/// How work has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "drivers make them, and there are no other ways to end")]
pub enum Exit {
    /// It came to its end.
    Completed,
    /// It returned an error, or panicked.
    Failed,
    /// It was told to end, by a command or by its own clock, and has ended in order; or it was stopped hard.
    Stopped,
    /// It never began: when the driver came to start it, the clock had reached the fence.
    NotStarted,
}

/// A wake message about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "adapters make them, the core handles each")]
pub enum Wake {
    /// The lease seems to be free.
    Free {
        /// Whether the release named this process as one of those to try at once.
        chosen: bool,
    },
    /// Somebody has taken it.
    Held {
        /// The token of the new grant.
        token: Token,
        /// What remains of its TTL.
        ttl: Duration,
    },
}

/// The store's answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a driver must be able to give every one")]
pub enum Reply {
    /// To `Acquire` and `ClaimTick`: this owner has the lease or claim, with its whole TTL ahead.
    Granted {
        /// The fencing token of the grant.
        token: Token,
    },
    /// To `Acquire` and `ClaimTick`: another owner has it, or the claim that it has to wait for.
    Held {
        /// That grant's token, if it is known.
        token: Option<Token>,
        /// What remained of its TTL when the store answered; `None` if the store can't say.
        remaining: Option<Duration>,
    },
    /// To `ClaimTick`, definite: the tick was claimed by another, or run, or passed over; it is not to be had.
    TickTaken,
    /// To `ClaimTick`, definite: another tick's claim lives, and this one is not to wait for its end.
    TickOverlaps,
    /// To `Renew`: extended by the whole TTL.
    Renewed,
    /// To `Release` and `FinishTick`: removed.
    Released {
        /// Whether waiters of other processes were chosen to try next.
        others_chosen: bool,
    },
    /// To `Renew`, `Release` and `FinishTick`, definite: the record is not this owner's with this token.
    NotYours,
    /// To `Leave`: the instance is not listed.
    Left,
    /// To `Watch`: from now on no hint is missed without a [`Event::Resync`].
    Watching,
    /// To any command: it did not work out.
    Failed(Failure),
}

/// What is known of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a driver must be able to give every one")]
pub enum Failure {
    /// It was certainly not executed; trying again may help.
    NotExecuted,
    /// It may or may not have been executed, or may yet be; trying again may help.
    Unknown,
    /// It was refused, and will be again; trying again does not help.
    Refused,
}

/// When what a holder may do ends, all on the driver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadlines {
    /// From here on no work may start, and running work is asked to stop.
    pub fence_at: Instant,
    /// From here on running work is stopped hard.
    pub kill_at: Instant,
    /// From here on another process may hold the lease.
    pub valid_until: Instant,
}

/// A caller's mistake. The node is as it was before the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// No lease with this key was ever made by this node.
    #[error("lease {0} was never made by this node")]
    UnknownLease(LeaseKey),
    /// No worker with this key was ever made by this node.
    #[error("worker {0} was never made by this node")]
    UnknownWorker(WorkerKey),
    /// No timer with this key was ever made by this node.
    #[error("{0} was never made by this node")]
    UnknownTimer(TimerKey),
    /// No periodic job with this key was ever made by this node.
    #[error("{0} was never made by this node")]
    UnknownPeriodic(PeriodicKey),
    /// No coordinator with this key was ever made by this node.
    #[error("{0} was never made by this node")]
    UnknownCoordinator(CoordinatorKey),
    /// There is nobody to share work with before this instance has joined.
    #[error("a coordinator needs the members of the fleet: join first")]
    NotJoined,
    /// The lease of a periodic job lets one run at a time: [`Overlap::Allow`] contradicts it.
    #[error("runs under one lease can't overlap: allow it, or take the lease away")]
    OverlapUnderLease,
    /// A setting breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No command with this id was ever emitted by this node.
    #[error("command {0} was never emitted by this node")]
    UnknownCommand(CommandId),
    /// A reply that this command can't have.
    #[error("the reply {reply:?} does not answer command {id}")]
    WrongReply {
        /// The command.
        id: CommandId,
        /// What was handed in.
        reply: Reply,
    },
    /// The node is shutting down and takes no new candidacies.
    #[error("the node is shutting down and takes no new candidacies")]
    ShuttingDown,
}
