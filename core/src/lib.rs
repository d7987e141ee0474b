//! The state machines of Tenure: pure, deterministic, without I/O, clock, thread or runtime.
//!
//! [`Node`] holds all of a process's. It is told what has happened by [`Node::handle`], with the time, and says what is to
//! be done by [`Node::poll`]. Whoever drives it, does that, and comes back: the async driver of the crate `tenure`, or a
//! loop of one's own. `tenure-store` has what the two need to speak to a store, and describes such a loop.

#![no_std]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]
#![warn(clippy::float_arithmetic)] // its results differ between platforms

extern crate alloc;

mod assign;
mod command;
mod coordinator;
mod jitter;
mod lease;
mod member;
#[cfg(feature = "model")]
pub mod model;
mod name;
mod node;
mod notice;
mod periodic;
#[cfg(not(tenure_planted))]
mod planted;
#[cfg(tenure_planted)]
#[doc(hidden)]
pub mod planted;
mod schedule;
mod time;
mod timer;
mod timing;
mod untracked;
mod worker;

pub use assign::{AnyAssigner, Assigner, Balanced, Digest, Primary, Rendezvous};
pub use command::{
    ClaimEnd, Command, Deadlines, Event, Exit, Failure, Misuse, Output, Reply, Stop, StopReason, Wake,
};
pub use coordinator::{CoordinatorOptions, DropReason, Rebalance};
pub use jitter::{Jitter, SplitMix};
pub use lease::{Lease, LeaseOptions, WaitLimit};
pub use member::{Labels, Member, MemberOptions, Presence};
pub use name::{
    Acquisition, CommandId, CoordinatorKey, Identity, Incarnation, JobName, LeaseKey, LeaseName, NameError,
    Owner, PeriodicKey, TimerKey, TimerName, Token, WorkerKey,
};
pub use node::{Counters, Node};
pub use notice::{AcquireFailure, LossReason, Notice, ReleaseOutcome};
pub use periodic::{Overlap, PeriodicOptions};
pub use schedule::{AnySchedule, Every, MIN_TOLERANCE, Schedule, Tick};
pub use time::{Instant, Rate, Timestamp};
pub use timer::{DueTick, Missed, NextSchedule, TickMiss, TimerChange, TimerEnd, TimerOptions, TimerView};
pub use timing::{ConfigError, LeaseConfig, LeaseTiming, StoreClock};
pub use worker::{Restart, RestartPolicy, WorkerOptions};
