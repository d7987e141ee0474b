//! The async driver of Tenure, generic over a runtime, and the handles that users hold.
//!
//! Programs use the crate `tenure`, which brings a runtime and stores along; this crate is for those who write
//! a runtime or a library on top. A [`Builder`] starts one background task, which feeds the state machines of
//! `tenure-core` and carries their commands to a store; the handles ([`Tenure`], [`Lease`], [`Timer`], ...) talk to
//! it by a queue, and judge by the clock alone whether a lease still is valid.
//!
//! No handle has a type parameter for its runtime or its store. So a library that takes a [`Tenure`] works with whatever the
//! program has chosen:
//!
//! ```
//! use tenure_driver::{AcquireError, Tenure};
//!
//! /// Migrates the tables, unless another instance does so just now.
//! pub async fn migrate(tenure: &Tenure) -> Result<bool, AcquireError> {
//!     match tenure.try_acquire("migrate").await {
//!         Ok(lease) => Ok(lease.run(async { /* ... */ }).await.is_ok()),
//!         Err(AcquireError::Busy { .. }) => Ok(false),
//!         Err(error) => Err(error),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let tenure = tenure::connect("memory:").await?;
//! assert!(migrate(&tenure).await?);
//! # tenure.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod acquire;
#[doc(hidden)]
pub mod alarm;
pub mod blocking;
mod builder;
mod carrier;
pub mod clock {
    //! The clock of every runtime.
    pub use tenure_store::clock::now;
}
mod coordinator;
mod driver;
mod events;
mod fence;
mod fleet;
mod hold;
mod jobs;
mod lease;
#[cfg_attr(not(feature = "metrics"), path = "metrics/off.rs")]
mod metrics;
mod periodic;
mod reason;
mod request;
mod runtime;
mod span;
mod stats;
mod store;
mod subject;
mod tenure;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
mod timer;
mod trouble;
mod unstarted;
mod wakers;
mod watches;
mod worker;

pub use acquire::{Acquire, AcquireError, Acquiring, Progress};
pub use builder::{Builder, NoStore, StartError};
pub use coordinator::{Coordinator, CoordinatorSetup, CoordinatorStatus, Share};
pub use fence::{Fence, FenceError, Gate};
pub use fleet::{DrainReason, NotDrained, Stuck};
pub use jobs::{JobRun, Jobs, RunSetup};
pub use lease::{Lease, Lost, LostReason, Renewals, Signal};
pub use periodic::{Periodic, PeriodicSetup, PeriodicStatus};
#[doc(hidden)]
pub use runtime::sealed;
pub use runtime::{Alarm, Runtime};
pub use stats::{Durations, Losses, Releases, Stats};
pub use store::AnyStore;
pub use tenure::{Closed, Interrupted, RequestError, StillHeld, Tenure};
pub use tenure_core as core;
pub use tenure_store as store_contract;
pub use timer::{IntoSchedule, Timer, TimerError, TimerSetup};
pub use worker::{Ctx, DrainError, Outcome, Worker, WorkerError, WorkerSetup, WorkerStatus};
