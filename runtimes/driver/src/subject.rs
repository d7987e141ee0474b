//! What operations, holds and lines in the log are about.

use std::fmt;

use tenure_core::{Identity, JobName, LeaseName, TimerName};
use tenure_store::{Operation, TickClaim, TimerAct, Topic};

/// What an operation, a hold or a line in the log is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    /// A lease.
    Lease(LeaseName),
    /// A timer.
    Timer(TimerName),
    /// A tick of a timer, and the claim of it.
    Tick(TimerName, u64),
    /// A job whose runs are recorded.
    Job(JobName),
    /// An instance among the members of the fleet.
    Member(Identity),
}

impl Subject {
    /// What an operation is about; of a claim the tick, too.
    pub(crate) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Acquire(acquire) => Self::Lease(acquire.name.clone()),
            Operation::Renew(renew) => Self::Lease(renew.name.clone()),
            Operation::Release(release) => Self::Lease(release.name.clone()),
            Operation::Timer(request) => match request.act {
                TimerAct::Claim(TickClaim { tick, .. })
                | TimerAct::Renew { tick, .. }
                | TimerAct::Finish { tick, .. } => Self::Tick(request.name.clone(), tick),
                TimerAct::Read { .. } | TimerAct::Change { .. } | TimerAct::Forget => {
                    Self::Timer(request.name.clone())
                }
            },
            Operation::Heartbeat(heartbeat) => Self::Member(heartbeat.identity.clone()),
            Operation::Leave(leave) => Self::Member(leave.identity.clone()),
        }
    }

    /// Whether it is a lease, and not a claim or anything else.
    pub(crate) const fn is_lease(&self) -> bool {
        matches!(self, Self::Lease(_))
    }

    /// For the field `lease` of a line in the log.
    pub(crate) fn lease(&self) -> Option<&str> {
        match self {
            Self::Lease(name) => Some(name.as_str()),
            Self::Timer(_) | Self::Tick(..) | Self::Job(_) | Self::Member(_) => None,
        }
    }

    /// For the field `timer` of a line in the log.
    pub(crate) fn timer(&self) -> Option<&str> {
        match self {
            Self::Timer(name) | Self::Tick(name, _) => Some(name.as_str()),
            Self::Lease(_) | Self::Job(_) | Self::Member(_) => None,
        }
    }

    /// For the field `tick` of a line in the log.
    pub(crate) const fn tick(&self) -> Option<u64> {
        match self {
            Self::Tick(_, tick) => Some(*tick),
            Self::Lease(_) | Self::Timer(_) | Self::Job(_) | Self::Member(_) => None,
        }
    }

    /// For the field `job` of a line in the log.
    pub(crate) fn job(&self) -> Option<&str> {
        match self {
            Self::Job(name) => Some(name.as_str()),
            Self::Lease(_) | Self::Timer(_) | Self::Tick(..) | Self::Member(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(name) => write!(f, "lease {name:?}"),
            Self::Timer(name) => write!(f, "timer {name:?}"),
            Self::Tick(name, tick) => write!(f, "tick {tick} of timer {name:?}"),
            Self::Job(name) => write!(f, "job {name:?}"),
            Self::Member(identity) => write!(f, "instance {:?}", identity.instance()),
        }
    }
}

impl From<&Subject> for Topic {
    fn from(subject: &Subject) -> Self {
        match subject {
            Subject::Lease(name) => name.into(),
            Subject::Timer(name) | Subject::Tick(name, _) => name.into(),
            Subject::Job(name) => name.into(),
            Subject::Member(identity) => identity.into(),
        }
    }
}
