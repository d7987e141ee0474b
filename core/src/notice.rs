//! What the machines tell the application.

use core::time::Duration;

use crate::command::{Deadlines, Failure};
use crate::coordinator::DropReason;
use crate::name::{Acquisition, CoordinatorKey, LeaseKey, PeriodicKey, TimerKey, Token, WorkerKey};
use crate::schedule::AnySchedule;
use crate::time::{Instant, Timestamp};
use crate::timer::{DueTick, TickMiss, TimerEnd};

/// Something that the application should know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Notice {
    /// The lease is held: work may start while `now < deadlines.fence_at`.
    Acquired {
        /// The hold.
        lease: LeaseKey,
        /// Its acquisition, part of the owner.
        n: Acquisition,
        /// Its fencing token.
        token: Token,
        /// When it ends, unless it is renewed.
        deadlines: Deadlines,
    },
    /// The store acknowledged a renewal. Once the work was asked to stop it only covers the stop: a hold that
    /// has passed its fence stays invalid, whatever these deadlines say.
    Renewed {
        /// The hold.
        lease: LeaseKey,
        /// When it ends now.
        deadlines: Deadlines,
    },
    /// A renewal failed or was not answered in time; it is tried again. Reported at the first one in a row.
    InDoubt {
        /// The hold.
        lease: LeaseKey,
        /// When the lease ends unless a renewal succeeds.
        deadlines: Deadlines,
    },
    /// A renewal was sent later than planned by more than half of the attempt timeout: whatever drives the
    /// core was kept from running.
    RenewalStarved {
        /// The hold.
        lease: LeaseKey,
        /// How late it was.
        late_by: Duration,
    },
    /// The lease is no longer this process's, for good.
    Lost {
        /// The hold.
        lease: LeaseKey,
        /// The token that is worth nothing now.
        token: Token,
        /// How it came about.
        why: LossReason,
    },
    /// The candidacy waits: the lease is held elsewhere. Reported whenever that changes.
    Waiting {
        /// The candidacy.
        lease: LeaseKey,
        /// The holder's token, if it is known.
        token: Option<Token>,
        /// When the candidacy looks again at the latest.
        until: Instant,
    },
    /// A try to acquire failed; it is tried again. Reported at the first failure in a row.
    Retrying {
        /// The candidacy.
        lease: LeaseKey,
        /// What is known of the failed try.
        failure: Failure,
    },
    /// The store granted the lease so late that no time for work was left; it was given back.
    GrantedTooLate {
        /// The candidacy.
        lease: LeaseKey,
        /// The token of the grant.
        token: Token,
    },
    /// The candidacy is over without a lease.
    Failed {
        /// The candidacy.
        lease: LeaseKey,
        /// Why.
        why: AcquireFailure,
    },
    /// The lease was given back, or at least everything for it was tried.
    Released {
        /// The hold.
        lease: LeaseKey,
        /// What the store said.
        outcome: ReleaseOutcome,
    },
    /// Nothing more will be said of this key.
    Ended {
        /// The hold or candidacy.
        lease: LeaseKey,
    },
    /// A worker has entered a candidacy; the notices about that lease are about the worker from now on.
    Campaigning {
        /// The worker.
        worker: WorkerKey,
        /// The candidacy.
        lease: LeaseKey,
    },
    /// A worker's workload has ended, or its candidacy was refused; it campaigns again, later.
    Restarting {
        /// The worker.
        worker: WorkerKey,
        /// Failures in a row.
        failures: u32,
        /// When it campaigns again; later if the instance drains until then.
        at: Instant,
    },
    /// A worker's workload was stopped hard, and has not ended within the stop budget. Its lease is renewed until it
    /// does, unless it was taken away or its maximum hold is over.
    Stuck {
        /// The worker.
        worker: WorkerKey,
        /// The hold.
        lease: LeaseKey,
    },
    /// The worker has nothing running and starts nothing any more. Its last lease may still be on its way back.
    WorkerEnded {
        /// The worker.
        worker: WorkerKey,
    },
    /// A tick is due. Each number comes at most once, and they come in order.
    Ticked {
        /// The timer.
        timer: TimerKey,
        /// The tick.
        due: DueTick,
    },
    /// Ticks were missed, and are not delivered.
    TicksMissed {
        /// The timer.
        timer: TimerKey,
        /// The number of the last of them.
        last: u64,
        /// How many.
        count: u64,
        /// Why.
        why: TickMiss,
    },
    /// Another instance has changed the schedule; it is followed from the change on.
    ScheduleChanged {
        /// The timer.
        timer: TimerKey,
        /// What is followed.
        schedule: AnySchedule,
    },
    /// The store has a schedule for the timer that can't be read here: no ticks before that changes.
    ScheduleUnreadable {
        /// The timer.
        timer: TimerKey,
    },
    /// The store's clock has stepped back below the last tick: the timer is to be based anew.
    Rebased {
        /// The timer.
        timer: TimerKey,
        /// The last tick that is known.
        last: u64,
    },
    /// A request of the timer failed; it is tried again, and ticks go on by what is known. Reported at the first
    /// failure in a row.
    TimerRetrying {
        /// The timer.
        timer: TimerKey,
        /// What is known of the failed request.
        failure: Failure,
    },
    /// Nothing more will be said of this timer.
    TimerEnded {
        /// The timer.
        timer: TimerKey,
        /// Why.
        why: TimerEnd,
    },
    /// A tick of a periodic job is not run by this instance, though nobody else is known to have it.
    TickSkipped {
        /// The job.
        periodic: PeriodicKey,
        /// The number of the tick.
        tick: u64,
        /// Why.
        why: TickMiss,
    },
    /// The periodic job has nothing running and starts nothing any more.
    PeriodicEnded {
        /// The job.
        periodic: PeriodicKey,
        /// Why.
        why: TimerEnd,
    },
    /// The store has answered the first heartbeat: this instance is listed.
    Joined {
        /// When it joined, by the store's wall clock.
        joined: Timestamp,
    },
    /// The members, or what they say of themselves, are not what they were; see [`Node::members`](crate::Node::members).
    MembersChanged {
        /// The version of the view.
        version: u64,
        /// How many members there are, this instance included.
        count: usize,
    },
    /// A heartbeat failed or was not answered in time; it is tried again. Reported at the first failure in a row.
    HeartbeatFailed {
        /// What is known of the failed request.
        failure: Failure,
    },
    /// This instance is not a member any more.
    Left,
    /// This instance drains from now on.
    Draining {
        /// Whether an operator wants it, and the program does not.
        by_operator: bool,
    },
    /// This instance drains, and holds nothing any more.
    Drained,
    /// The drain was taken back: work is taken again.
    Resumed,
    /// A workload belongs to this instance from now on. What its worker and its leases say is told by notices about
    /// them.
    WorkloadAssigned {
        /// The coordinator.
        coordinator: CoordinatorKey,
        /// The worker that was made for it; [`Node::worker_name`](crate::Node::worker_name) gives the workload.
        worker: WorkerKey,
    },
    /// A workload does not belong to this instance any more; its worker ends.
    WorkloadDropped {
        /// The coordinator.
        coordinator: CoordinatorKey,
        /// The worker.
        worker: WorkerKey,
        /// Why.
        why: DropReason,
    },
    /// The coordinator has nothing running and starts nothing any more.
    CoordinatorEnded {
        /// The coordinator.
        coordinator: CoordinatorKey,
    },
}

impl Notice {
    /// The hold or candidacy that it is about, if it is about one.
    #[must_use]
    pub const fn lease(&self) -> Option<LeaseKey> {
        match self {
            Self::Acquired { lease, .. }
            | Self::Renewed { lease, .. }
            | Self::InDoubt { lease, .. }
            | Self::RenewalStarved { lease, .. }
            | Self::Lost { lease, .. }
            | Self::Waiting { lease, .. }
            | Self::Retrying { lease, .. }
            | Self::GrantedTooLate { lease, .. }
            | Self::Failed { lease, .. }
            | Self::Released { lease, .. }
            | Self::Ended { lease }
            | Self::Campaigning { lease, .. }
            | Self::Stuck { lease, .. } => Some(*lease),
            Self::Restarting { .. }
            | Self::WorkerEnded { .. }
            | Self::Ticked { .. }
            | Self::TicksMissed { .. }
            | Self::ScheduleChanged { .. }
            | Self::ScheduleUnreadable { .. }
            | Self::Rebased { .. }
            | Self::TimerRetrying { .. }
            | Self::TimerEnded { .. }
            | Self::TickSkipped { .. }
            | Self::PeriodicEnded { .. }
            | Self::Joined { .. }
            | Self::MembersChanged { .. }
            | Self::HeartbeatFailed { .. }
            | Self::Left
            | Self::Draining { .. }
            | Self::Drained
            | Self::Resumed
            | Self::WorkloadAssigned { .. }
            | Self::WorkloadDropped { .. }
            | Self::CoordinatorEnded { .. } => None,
        }
    }
}

/// How a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Its time ran out without an acknowledged renewal.
    Expired,
    /// The store said that it is not ours any more.
    NotYours,
    /// It was held for the maximum time and its work did not end: renewing stopped, and from here on only
    /// the token keeps the next holder apart from that work.
    Abandoned,
}

/// Why a candidacy ended without a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireFailure {
    /// Somebody else has the lease, and waiting was not wanted or took too long.
    Busy,
    /// The store did not answer well in the time that was given.
    Unreachable,
    /// The store refuses the request, and will again.
    Refused,
    /// The grant's token is not above one that this process had seen before: the store has lost its memory.
    StoreRegressed {
        /// The token of the grant, which was given back.
        token: Token,
        /// The token that it should have been above.
        floor: Token,
    },
    /// The tick was claimed by another, or run, or passed over.
    TickTaken,
    /// Another tick of the job still runs.
    TickOverlaps,
    /// The grant came so late that no time for work was left, and waiting was not wanted.
    GrantedTooLate,
    /// The candidacy was given up by the application.
    GivenUp,
    /// The instance drains.
    Draining,
    /// The node is shutting down.
    ShuttingDown,
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The store removed the record.
    Released,
    /// The record was not ours any more.
    NotHeld,
    /// The store never answered; by now the record is over by its TTL.
    Expired,
}
