//! Operations for the store, and where they come from.

use tenure_core::{CommandId, Instant, LeaseKey, TimerKey};
use tenure_store::{Operation, OperationKind};

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
    pub(crate) kind: OperationKind,
    /// When it was ordered.
    pub(crate) since: Instant,
}

impl Order {
    pub(super) fn origin(&self, since: Instant) -> Origin {
        let kind = self.operation.kind();
        Origin { id: self.id, by: self.by, subject: self.subject.clone(), kind, since }
    }
}
