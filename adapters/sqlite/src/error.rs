//! What SQLite and the file system say, put into the words and classes of the store contract.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use tenure_store::{StoreError, StoreErrorKind};

/// Whether another process has the database locked, so that waiting a little may help.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed)
    )
}

/// Whether the file can't be trusted any more as it is open now.
pub(crate) fn is_broken(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// An error of SQLite's while it did something that has certainly not been committed.
pub(crate) fn store_error(path: &Path, doing: &str, error: &rusqlite::Error) -> StoreError {
    let (kind, advice) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            (StoreErrorKind::Transient, "another process has the store locked; try again")
        }
        Some(ErrorCode::DiskFull) => (StoreErrorKind::Transient, "the disk is full: make room on it"),
        Some(ErrorCode::OutOfMemory) => (StoreErrorKind::Transient, "there is no memory left"),
        Some(ErrorCode::SystemIoFailure) => {
            (StoreErrorKind::Transient, "the disk does not work, or is full: check it")
        }
        Some(ErrorCode::ReadOnly) => (
            StoreErrorKind::Rejected,
            "this process may only read it: it needs to write to the file and to its folder",
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => (
            StoreErrorKind::Rejected,
            "it can't be opened: check that this process may read and write the file and its folder",
        ),
        Some(ErrorCode::NotADatabase) => (
            StoreErrorKind::Unsupported,
            "it is not an SQLite database, so it was left as it is: choose another path",
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            StoreErrorKind::Unsupported,
            "the file is damaged, so no lease is granted from it: stop all programs that use it, and move \
             it away together with its -wal and -shm files; tokens go on rising in a new one",
        ),
        _ => (StoreErrorKind::Unsupported, "the store does not have the expected tables"),
    };
    StoreError::new(kind, format!("{}: {doing}: {error}: {advice}", path.display()))
}

/// An error of the file system's, before anything was done.
pub(crate) fn file_error(path: &Path, doing: &str, error: &io::Error) -> StoreError {
    let (kind, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (StoreErrorKind::Rejected, "check the permissions of the file and of its folder")
        }
        io::ErrorKind::NotFound => (StoreErrorKind::Rejected, "create the folder, or choose another path"),
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidFilename => (StoreErrorKind::Rejected, "choose another path"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (StoreErrorKind::Transient, "make room on the disk")
        }
        _ => (StoreErrorKind::Transient, "try again"),
    };
    StoreError::new(kind, format!("{}: {doing}: {error}: {advice}", path.display()))
}
