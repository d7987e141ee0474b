//! The same for plain threads: leases, timers, workers and jobs whose calls block instead of being awaited. The module
//! `blocking` of the crate `tenure` is the page about them.
//!
//! [`Builder::start_blocking`](crate::Builder::start_blocking) starts one thread in the background, which drives the
//! leases. A call polls its future on the thread that called, and sleeps in between. It enters no runtime and needs
//! none, so it may be made anywhere but on the thread in the background itself: by a store's adapter, an assigner, or
//! a waker. What goes by the clock is found by the caller's own, while that thread is stuck or gone, too.
//!
//! Each run of work has a thread of its own. That can't be stopped: the run has ended when the work has returned, and
//! only then its lease is given back.

mod acquire;
mod coordinator;
mod jobs;
mod lease;
mod periodic;
mod plain;
mod signals;
mod tenure;
#[cfg(test)]
mod tests;
mod timer;
mod wait;
mod worker;

pub use acquire::Acquire;
pub use coordinator::{Coordinator, CoordinatorSetup};
pub use jobs::{JobRun, Jobs, RunSetup};
pub use lease::{Lease, Renewals, Signal};
pub use periodic::{Periodic, PeriodicSetup};
pub(crate) use plain::Plain;
pub use tenure::Tenure;
pub use timer::{Timer, TimerSetup};
pub(crate) use wait::wait;
pub use worker::{Ctx, Worker, WorkerSetup};

/// What was waited for has not come within the time that was given. It still may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has not come within the time that was given")]
#[non_exhaustive]
pub struct TimedOut;
