//! The state machines of Tenure: pure, deterministic, without I/O, clock, thread or runtime.
//!
//! Programs use the crate `tenure`, which drives these machines and has stores for them. This crate is for those who write a
//! driver of their own: in another runtime, in a loop without any, or in a simulation. A [`Node`] holds all machines of a
//! process, and has two methods:
//!
//! - [`handle`](Node::handle) takes an [`Event`]: what has happened, and when. It may be called at any time.
//! - [`poll`](Node::poll) gives an [`Output`]: a [`Command`] for the store or the work, a [`Notice`] for the application, or, once
//!   there is nothing else, how long to [`Wait`](Output::Wait) unless an event comes before.
//!
//! What the application wants is a plain method, such as [`acquire`](Node::acquire) or [`start_worker`](Node::start_worker).
//! Time is what the driver says it is, on a clock that must go on while the machine sleeps. So a test can let it pass as it
//! likes: here the store grants a lease, and then never answers again.
//!
//! ```
//! use core::time::Duration;
//! use tenure_core::{
//!     Command, Event, Identity, Incarnation, Instant, LeaseConfig, LeaseName, LeaseOptions, Node, Notice, Output, Reply,
//!     SplitMix, StoreClock, Token,
//! };
//!
//! let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default())?;
//! let mut node = Node::new(Identity::new("host:1234", Incarnation::new(42))?, SplitMix::new(7));
//! let mut now = Instant::ZERO;
//!
//! let lease = node.acquire(now, LeaseName::new("backup")?, LeaseOptions::new(timing))?;
//! let Output::Command(Command::Acquire { id, .. }) = node.poll() else { panic!("it asks the store") };
//! node.handle(now, Event::Reply { id, reply: Reply::Granted { token: Token::new(1) } })?;
//! assert!(matches!(node.poll(), Output::Notice(Notice::Acquired { .. })));
//! assert_eq!(node.valid(now, lease), Some(Token::new(1)));
//!
//! let mut renewals = 0;
//! loop {
//!     match node.poll() {
//!         Output::Command(Command::Renew { .. }) => renewals += 1,
//!         Output::Notice(Notice::Lost { .. }) => break,
//!         Output::Command(_) | Output::Notice(_) => {}
//!         Output::Wait(Some(until)) => {
//!             now = until;
//!             node.handle(now, Event::Timeout)?;
//!         }
//!         Output::Wait(None) => panic!("a lease ends"),
//!     }
//! }
//! assert_eq!(node.valid(now, lease), None);
//! assert!(renewals >= 4 && now < Instant::ZERO + timing.ttl());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `tenure-store` makes operations of commands, and events of their outcomes, and describes a driver that speaks to a store.
//!
//! The machines are one file each, from `lease.rs` on, and each file opens with the graph of its states. ARCHITECTURE.md of the
//! repository has the invariants, the table of commands and replies, and how they were proven.

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
pub use time::{Instant, Rate, Timestamp, readable};
pub use timer::{DueTick, Missed, NextSchedule, TickMiss, TimerChange, TimerEnd, TimerOptions, TimerView};
pub use timing::{ConfigError, LeaseConfig, LeaseTiming, StoreClock};
pub use worker::{Restart, RestartPolicy, WorkerOptions};
