//! The contract between Tenure and its stores.

mod check;
mod error;
mod operation;
mod replies;
mod traits;

pub use check::check_floor;
pub use error::{StoreError, StoreErrorKind};
pub use operation::{
    Acquire, Acquired, Answer, Eviction, Holder, LeaseRecord, Metadata, Operation, Outcome, Release,
    Released, Renew, Renewed,
};
pub use replies::Replies;
pub use tenure_core as core;
pub use traits::{Hint, Hints, Limits, SimpleStore, Store};
