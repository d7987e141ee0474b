//! What ends the program before its time: a code, and a line that says why.

use tenure::{AcquireError, RequestError, StartError, StoreError, StoreErrorKind, TimerError, WorkerError};

use crate::exit;
use crate::holder::held_by;

/// A failure, as the program's user sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// What happened and what to do.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The same, about this store if it is a store's failure that does not name it.
    pub(crate) fn at(mut self, store: &str) -> Self {
        if matches!(self.code, exit::UNREACHABLE | exit::REFUSED) && !self.message.contains(store) {
            self.message.push_str(&format!(" (store {store})"));
        }
        self
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let code = match &error {
            AcquireError::Busy { .. } => exit::BUSY,
            AcquireError::Unreachable { .. } | AcquireError::TooLate { .. } => exit::UNREACHABLE,
            AcquireError::Refused { .. } | AcquireError::StoreRegressed { .. } => exit::REFUSED,
            AcquireError::Config(_) | AcquireError::Name(_) => exit::USAGE,
            _ => exit::INTERNAL,
        };
        let message = match &error {
            AcquireError::Busy { lease, holder: Some(holder) } => {
                format!("lease {lease:?} is held by {}", held_by(holder))
            }
            error => error.to_string(),
        };
        Self::new(code, message)
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let code = match &error {
            RequestError::Name(_) => exit::USAGE,
            RequestError::Store(error) => of_store(error),
            _ => exit::INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}

impl From<TimerError> for Failure {
    fn from(error: TimerError) -> Self {
        let code = match &error {
            TimerError::Config(_) | TimerError::Name(_) => exit::USAGE,
            TimerError::Refused { .. } => exit::REFUSED,
            _ => exit::INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        let code = match &error {
            WorkerError::Config(_) | WorkerError::Name(_) => exit::USAGE,
            _ => exit::INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = match &error {
            StartError::Config(_) | StartError::Name(_) => exit::USAGE,
            _ => exit::INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(of_store(&error), error.to_string())
    }
}

/// The code for a store's error: whether time may mend it.
fn of_store(error: &StoreError) -> u8 {
    match error.kind {
        StoreErrorKind::Transient | StoreErrorKind::Unknown => exit::UNREACHABLE,
        _ => exit::REFUSED,
    }
}
