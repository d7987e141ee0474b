//! The async driver of Tenure, generic over a runtime, and the handles that users hold.
//!
//! Programs use the crate `tenure`, which brings a runtime and stores along; this crate is for those who write
//! a runtime or a library on top. A [`Builder`] starts one background task, which feeds the state machines of
//! `tenure-core` and carries their commands to a store; the handles ([`Tenure`], [`Lease`], [`Signal`]) talk to
//! it by a queue, and judge by the clock alone whether a lease still is valid.

mod acquire;
mod builder;
mod carrier;
pub mod clock {
    //! The clock of every runtime.
    pub use tenure_store::clock::now;
}
mod driver;
mod hold;
mod lease;
mod request;
mod runtime;
mod span;
mod stats;
mod store;
mod tenure;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
mod trouble;
mod wakers;
mod watches;
mod worker;

pub use acquire::{Acquire, AcquireError, Acquiring, Progress};
pub use builder::{Builder, NoStore, StartError};
pub use lease::{Lease, Lost, LostReason, Renewals, Signal};
#[doc(hidden)]
pub use runtime::sealed;
pub use runtime::{Runtime, Timer};
pub use stats::Stats;
pub use store::AnyStore;
pub use tenure::{Closed, Interrupted, RequestError, StillHeld, Tenure};
pub use tenure_core as core;
pub use tenure_store as store_contract;
pub use worker::{Ctx, DrainError, Outcome, Worker, WorkerError, WorkerSetup, WorkerStatus};
