//! What goes wrong at a store, split by who can mend it.

use std::fmt;

use tenure_core::{Failure, Identity, JobName, LeaseName, TimerName};

use crate::Subject;

/// An operation on a store that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}{}: {message}", About(topic.as_ref()))]
#[non_exhaustive]
pub struct StoreError {
    /// Who can mend it, and what is known of the operation.
    pub kind: StoreErrorKind,
    /// What the operation was about, if it was about one thing.
    pub topic: Option<Topic>,
    /// What happened, in the store's own words where it has some, and what to do. Without secrets.
    pub message: String,
}

/// Who can mend a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store could not do it now; nothing was done. Time may mend it: try again.
    Transient,
    /// The store did not answer: it may or may not have been done, or may yet be. Time may mend it.
    Unknown,
    /// The store refuses: a permission, a foreign record, a value it can't take. The user must change something.
    Rejected,
    /// The store lacks something that is needed, or is of a kind or version that can't be used. Whoever runs
    /// the store must change something.
    Unsupported,
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transient => "the store can't do it now",
            Self::Unknown => "no answer from the store",
            Self::Rejected => "the store refuses",
            Self::Unsupported => "the store can't be used",
        })
    }
}

/// What an operation was about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topic {
    /// This lease.
    Lease(LeaseName),
    /// This timer, or one of its ticks.
    Timer(TimerName),
    /// The records of this job.
    Job(JobName),
    /// This member of the fleet.
    Member(Identity),
}

impl From<&LeaseName> for Topic {
    fn from(name: &LeaseName) -> Self {
        Self::Lease(name.clone())
    }
}

impl From<&TimerName> for Topic {
    fn from(name: &TimerName) -> Self {
        Self::Timer(name.clone())
    }
}

impl From<&JobName> for Topic {
    fn from(name: &JobName) -> Self {
        Self::Job(name.clone())
    }
}

impl From<&Identity> for Topic {
    fn from(identity: &Identity) -> Self {
        Self::Member(identity.clone())
    }
}

impl From<Subject<'_>> for Topic {
    fn from(subject: Subject<'_>) -> Self {
        match subject {
            Subject::Lease(name) => name.into(),
            Subject::Timer(name) => name.into(),
            Subject::Member(identity) => identity.into(),
        }
    }
}

struct About<'a>(Option<&'a Topic>);

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Topic::Lease(name)) => write!(f, " (lease {name:?})"),
            Some(Topic::Timer(name)) => write!(f, " (timer {name:?})"),
            Some(Topic::Job(name)) => write!(f, " (job {name:?})"),
            Some(Topic::Member(identity)) => write!(f, " (instance {:?})", identity.instance()),
            None => Ok(()),
        }
    }
}

impl StoreError {
    /// An error of this kind, about nothing in particular.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, topic: None, message: message.into() }
    }

    /// Nothing was done; time may mend it.
    #[must_use]
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Transient, message)
    }

    /// It may or may not have been done.
    #[must_use]
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unknown, message)
    }

    /// The store refuses, and will again.
    #[must_use]
    pub fn rejected(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Rejected, message)
    }

    /// The store can't be used as it is.
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unsupported, message)
    }

    /// The same error, about this lease, timer, job or member.
    #[must_use]
    pub fn about(mut self, topic: impl Into<Topic>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// The lease that the operation was about, if it was about one.
    #[must_use]
    pub const fn lease(&self) -> Option<&LeaseName> {
        match &self.topic {
            Some(Topic::Lease(name)) => Some(name),
            Some(Topic::Timer(_) | Topic::Job(_) | Topic::Member(_)) | None => None,
        }
    }

    /// What the core needs to know of it.
    #[must_use]
    pub const fn failure(&self) -> Failure {
        match self.kind {
            StoreErrorKind::Transient => Failure::NotExecuted,
            StoreErrorKind::Unknown => Failure::Unknown,
            StoreErrorKind::Rejected | StoreErrorKind::Unsupported => Failure::Refused,
        }
    }
}
