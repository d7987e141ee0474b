//! The state machines of Tenure: pure, deterministic, without I/O, clock, thread or runtime.

#![no_std]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]
#![warn(clippy::float_arithmetic)] // its results differ between platforms

extern crate alloc;

mod command;
mod jitter;
mod lease;
#[cfg(feature = "model")]
pub mod model;
mod name;
mod node;
#[cfg(not(tenure_planted))]
mod planted;
#[cfg(tenure_planted)]
#[doc(hidden)]
pub mod planted;
mod time;
mod timing;
mod untracked;
mod worker;

pub use command::{
    AcquireFailure, Command, Deadlines, Event, Exit, Failure, LossReason, Misuse, Notice, Output,
    ReleaseOutcome, Reply, Stop, StopReason, Wake,
};
pub use jitter::{Jitter, SplitMix};
pub use lease::{Lease, LeaseOptions, WaitLimit};
pub use name::{
    Acquisition, CommandId, Identity, Incarnation, LeaseKey, LeaseName, NameError, Owner, Token, WorkerKey,
};
pub use node::{Counters, Node};
pub use time::{Instant, Rate};
pub use timing::{ConfigError, LeaseConfig, LeaseTiming, StoreClock};
pub use worker::{Restart, RestartPolicy, WorkerOptions};
