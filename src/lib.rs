// The README is the front page. Its links to the repository lead into this documentation here: of two definitions of a
// link the first one counts.
//!
//! [guide]: crate::guide
//! [leases]: crate::guide::leases
//! [timers]: crate::guide::timers
//! [assignment]: crate::guide::assignment
//! [drain]: crate::guide::drain
//! [fencing]: crate::guide::fencing
//! [choosing TTLs]: crate::guide::choosing_ttls
//! [guarantees]: crate::guide::guarantees
//! [redis]: crate::guide::redis
//! [nats]: crate::guide::nats
//! [observing]: crate::guide::observing
//! [testing]: crate::guide::testing
//! [the program]: crate::guide::command_line
//! [migrating]: crate::guide::migrating
//! [writing an adapter]: crate::guide::writing_an_adapter
//!
// Its program needs what is on by default.
#![cfg_attr(
    any(not(doctest), all(feature = "tokio", feature = "memory")),
    doc = include_str!("../README.md")
)]

#[cfg(any(feature = "tokio", feature = "smol"))]
pub mod blocking;
// Its examples need most features.
#[cfg(any(
    all(doc, not(doctest)),
    all(
        doctest,
        feature = "tokio",
        feature = "memory",
        feature = "cron",
        feature = "testing",
        feature = "metrics"
    )
))]
pub mod guide;
pub mod prelude;
#[cfg(feature = "smol")]
pub mod smol;
mod url;

// The handles, and what sets them up.
pub use tenure_driver::{
    Acquire, Acquiring, Builder, Coordinator, CoordinatorSetup, CoordinatorStatus, Ctx, Durations, Fence,
    Gate, JobRun, Jobs, Lease, Losses, NoStore, Outcome, Periodic, PeriodicSetup, PeriodicStatus, Progress,
    Releases, Renewals, RunSetup, Share, Signal, Stats, Tenure, Timer, TimerSetup, Worker, WorkerSetup,
    WorkerStatus,
};

// Settings and rules.
#[cfg(feature = "cron")]
pub use tenure_cron::{Cron, CronError};
pub use tenure_driver::IntoSchedule;
pub use tenure_driver::core::{
    AnyAssigner, AnySchedule, Assigner, Balanced, Every, Labels, LeaseConfig, Missed, Overlap, Primary, Rate,
    Rebalance, Rendezvous, Restart, RestartPolicy, Schedule,
};

// Names, times and what else is told.
pub use tenure_driver::clock;
pub use tenure_driver::core::{
    Deadlines, Digest, DueTick, Identity, Incarnation, Instant, JobName, LeaseName, LeaseTiming, Member,
    ReleaseOutcome, StopReason, StoreClock, Tick, TimerName, Timestamp, Token,
};
pub use tenure_driver::store_contract::{
    DrainMark, Eviction, Holder, JobRecord, LeaseRecord, MemberEntry, Metadata, RunOutcome, RunRecord,
    RunState, TimerEntry, TimerRecord,
};

// What can go wrong.
pub use tenure_driver::core::{ConfigError, NameError};
pub use tenure_driver::store_contract::{StoreError, StoreErrorKind};
pub use tenure_driver::{
    AcquireError, Closed, DrainError, DrainReason, FenceError, Interrupted, Lost, LostReason, NotDrained,
    RequestError, StartError, StillHeld, Stuck, TimerError, WorkerError,
};
pub use url::ConnectError;

// Stores, and what one of your own needs.
pub use tenure_driver::AnyStore;
#[doc(no_inline)]
pub use tenure_driver::store_contract;
pub use tenure_driver::store_contract::{Limits, SimpleStore, Store};
#[cfg(feature = "memory")]
pub use tenure_memory::MemoryStore;
#[cfg(feature = "nats")]
pub use tenure_nats::{NatsOptions, NatsStore};
#[cfg(all(feature = "redis", any(feature = "tokio", feature = "smol")))]
pub use tenure_redis::{RedisOptions, RedisStore};
#[cfg(all(feature = "sqlite", unix))]
pub use tenure_sqlite::{SqliteOptions, SqliteStore};
pub use url::store;

// Runtimes.
pub use tenure_driver::Runtime;
#[cfg(feature = "tokio")]
pub use tenure_tokio::Tokio;

#[cfg(feature = "testing")]
#[doc(inline)]
pub use tenure_testing as testing;

/// Starts with the store that a URL names and all else by default, on the current tokio runtime; see [`store`]
/// for the URLs and [`builder`] for more say.
///
/// The store is not asked for anything yet: a server that is down shows when a lease is acquired.
///
/// # Errors
/// [`ConnectError`].
#[cfg(feature = "tokio")]
#[expect(clippy::unused_async, reason = "it belongs into a runtime, and stores may come that connect here")]
pub async fn connect(url: &str) -> Result<Tenure, ConnectError> {
    Ok(builder().store(store(url)?).start()?)
}

/// Starts with the embedded store of a program of this name, for all its processes that one user runs on this machine.
///
/// Those of another user, or with another `XDG_STATE_HOME` or `HOME`, have a store of their own: no lease keeps them apart
/// from these.
///
/// # Errors
/// [`ConnectError`].
#[cfg(feature = "tokio")]
#[expect(clippy::unused_async, reason = "as `connect`")]
pub async fn embedded(app: &str) -> Result<Tenure, ConnectError> {
    Ok(builder().store(url::embedded_store(app)?).start()?)
}

/// Sets up a [`Tenure`] on the current tokio runtime: give it a store, then start it.
///
#[cfg_attr(feature = "memory", doc = "```")]
#[cfg_attr(not(feature = "memory"), doc = "```ignore")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tenure::{LeaseConfig, MemoryStore};
///
/// let tenure = tenure::builder()
///     .store(MemoryStore::new())
///     .instance("worker-7")
///     .lease(LeaseConfig::new(Duration::from_secs(30)))
///     .start()?;
/// # tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "tokio")]
pub fn builder() -> Builder<Tokio> {
    Builder::new(Tokio::current()).schedules(schedule)
}

/// Reads the text of a schedule as a store keeps it: a fixed period, and with the feature `cron` a cron expression in a
/// time zone. `None` if it is neither. For programs that look at [`TimerRecord`]s.
#[must_use]
pub fn schedule(text: &str) -> Option<AnySchedule> {
    #[cfg(feature = "cron")]
    return tenure_cron::schedules(text);
    #[cfg(not(feature = "cron"))]
    AnySchedule::parse(text)
}
