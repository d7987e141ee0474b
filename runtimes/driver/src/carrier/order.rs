//! Operations for the store, and where they come from.

use tenure_core::{CommandId, Instant, LeaseKey, TimerKey};
use tenure_store::{Answer, Operation, TimerAct, TimerAnswer, TimerRequest};

use crate::subject::Subject;

/// One operation for the store, and the command that it comes from.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) id: CommandId,
    pub(crate) by: By,
    pub(crate) subject: Subject,
    pub(crate) operation: Operation,
}

/// Which of the node's machines has sent a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// A lease, or the claim of a tick.
    Lease(LeaseKey),
    Timer(TimerKey),
    /// The membership of this instance.
    Member,
}

impl By {
    pub(crate) const fn lease(self) -> Option<LeaseKey> {
        match self {
            Self::Lease(lease) => Some(lease),
            Self::Timer(_) | Self::Member => None,
        }
    }
}

/// Where an operation came from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) id: CommandId,
    pub(crate) by: By,
    pub(crate) subject: Subject,
    pub(crate) what: What,
    /// When it was ordered.
    pub(crate) since: Instant,
}

/// Which operation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Acquire,
    Renew,
    Release,
    ReadTimer,
    ChangeTimer,
    ClaimTick,
    RenewClaim,
    FinishTick,
    ForgetTimer,
    Heartbeat,
    Leave,
}

impl What {
    pub(super) const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Acquire(_) => Self::Acquire,
            Operation::Renew(_) => Self::Renew,
            Operation::Release(_) => Self::Release,
            Operation::Timer(TimerRequest { act, .. }) => match act {
                TimerAct::Read { .. } => Self::ReadTimer,
                TimerAct::Change { .. } => Self::ChangeTimer,
                TimerAct::Claim(_) => Self::ClaimTick,
                TimerAct::Renew { .. } => Self::RenewClaim,
                TimerAct::Finish { .. } => Self::FinishTick,
                TimerAct::Forget => Self::ForgetTimer,
            },
            Operation::Heartbeat(_) => Self::Heartbeat,
            Operation::Leave(_) => Self::Leave,
        }
    }

    /// For a field in the log and a label of a metric.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::ReadTimer => "read_timer",
            Self::ChangeTimer => "change_timer",
            Self::ClaimTick => "claim_tick",
            Self::RenewClaim => "renew_claim",
            Self::FinishTick => "finish_tick",
            Self::ForgetTimer => "forget_timer",
            Self::Heartbeat => "heartbeat",
            Self::Leave => "leave",
        }
    }

    /// Whether an answer is one to this operation.
    pub(crate) const fn fits(self, answer: &Answer) -> bool {
        use TimerAnswer as Timer;
        match self {
            Self::Acquire => matches!(answer, Answer::Acquire(_)),
            Self::Renew => matches!(answer, Answer::Renew(_)),
            Self::Release => matches!(answer, Answer::Release(_)),
            Self::ReadTimer => matches!(answer, Answer::Timer(Timer::Read { .. })),
            Self::ChangeTimer => matches!(answer, Answer::Timer(Timer::Read { .. } | Timer::Gone)),
            Self::ClaimTick => matches!(
                answer,
                Answer::Timer(Timer::Granted(_) | Timer::Held { .. } | Timer::Taken | Timer::Overlaps)
            ),
            Self::RenewClaim => matches!(answer, Answer::Timer(Timer::Renewed | Timer::NotYours)),
            Self::FinishTick | Self::ForgetTimer => {
                matches!(answer, Answer::Timer(Timer::Removed | Timer::NotYours))
            }
            Self::Heartbeat => matches!(answer, Answer::Heartbeat(_)),
            Self::Leave => matches!(answer, Answer::Leave),
        }
    }

    pub(super) const fn is_renewal(self) -> bool {
        matches!(self, Self::Renew | Self::RenewClaim)
    }
}

impl Order {
    pub(super) fn origin(&self, since: Instant) -> Origin {
        let what = What::of(&self.operation);
        Origin { id: self.id, by: self.by, subject: self.subject.clone(), what, since }
    }
}
