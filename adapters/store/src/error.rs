//! What goes wrong at a store, split by who can mend it.

use std::fmt;

use tenure_core::{Failure, LeaseName};

/// An operation on a store that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}{}: {message}", OfLease(lease.as_ref()))]
#[non_exhaustive]
pub struct StoreError {
    /// Who can mend it, and what is known of the operation.
    pub kind: StoreErrorKind,
    /// The lease that the operation was about, if it was about one.
    pub lease: Option<LeaseName>,
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

struct OfLease<'a>(Option<&'a LeaseName>);

impl fmt::Display for OfLease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, " (lease {name:?})"))
    }
}

impl StoreError {
    /// An error of this kind, about no lease in particular.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, lease: None, message: message.into() }
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

    /// The same error, about this lease.
    #[must_use]
    pub fn about(mut self, lease: &LeaseName) -> Self {
        self.lease = Some(lease.clone());
        self
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
