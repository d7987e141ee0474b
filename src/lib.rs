//! Leases that are safe: who runs a job across the instances of a program.
//!
//! A lease is held by one process at a time, for as long as it is renewed. It passes on when it is given back,
//! and when its holder dies; a holder that is cut off from the store stops by its own clock before anybody else
//! starts. Each grant has a fencing token, greater than all before it.
//!
#![cfg_attr(all(feature = "tokio", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "tokio", feature = "memory")), doc = "```ignore")]
//! # async fn nightly_backup() {}
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   // A store that leaves nothing behind.
//! #   let tenure = tenure::connect("memory:").await?;
//! #   /*
//!     let tenure = tenure::embedded("example").await?;
//! #   */
//!     let lease = tenure.acquire("nightly-backup").await?;
//!     // Ends at its next await point should the lease be lost.
//!     lease.run(nightly_backup()).await?;
//!     lease.release().await?;
//!     tenure.shutdown().await?;
//!     Ok(())
//! }
//! ```
//!
//! # Leader election, and whatever runs once in a fleet
//! Whoever has the lease leads. A [worker](Tenure::worker) leads whenever it has it: its work is started then, stopped
//! before another instance may start it, and started again when it has ended. On Ctrl-C and SIGTERM
//! [`Tenure::scope`] drains it: the work ends in order, and the next instance goes on at once.
//!
#![cfg_attr(all(feature = "tokio", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "tokio", feature = "memory")), doc = "```ignore")]
//! # async fn schedule(_: tenure::Token) -> Result<(), std::io::Error> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let tenure = tenure::connect("memory:").await?;
//! tenure
//!     .scope(async |tenure| {
//!         let scheduler = tenure
//!             .worker("scheduler", |ctx| async move {
//!                 while !ctx.is_draining() {
//!                     // Whatever it changes gets the token, and refuses a lower one than it has seen.
//!                     schedule(ctx.token()).await?;
//! #                   tokio::task::yield_now().await;
//!                 }
//!                 Ok::<_, std::io::Error>(())
//!             })
//!             .start()?;
//!         // ... the rest of the program; this one has nothing else to do.
//! #       tenure.begin_shutdown();
//!         scheduler.ended().await;
//!         Ok::<_, tenure::WorkerError>(())
//!     })
//!     .await??;
//! # Ok(())
//! # }
//! ```
//!
//! Where the program itself is to wait, lead and go on, it acquires the lease in a loop. Once it has lost it, it campaigns
//! again when the guard is gone: every `acquire` is a candidate of its own, and would wait for a lease that its own
//! program holds.
//!
#![cfg_attr(all(feature = "tokio", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "tokio", feature = "memory")), doc = "```ignore")]
//! # async fn lead(_: tenure::Token) {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let tenure = tenure::connect("memory:").await?;
//! loop {
//!     let lease = tenure.acquire("leader").await?;
//!     match lease.run(lead(lease.token())).await {
//!         Ok(()) => break,
//!         Err(lost) => eprintln!("{lost}"),
//!     }
//! }
//! # tenure.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! On Ctrl-C and SIGTERM, [`Tenure::scope`] asks the work to stop, and gives back what is held as it ends. Work that
//! does not listen to [`Lease::stopping`] is dropped only after its [grace](Acquire::grace).
//!
//! # Timers, and whatever runs now and then in a fleet
//! A [periodic job](Tenure::periodic) is run at each tick of a schedule, on one of the instances that have it: the store
//! grants every tick once. Its schedule lives at the store and goes by the store's clock, so a restart or a deploy
//! changes nothing: not the ticks, and not their numbers. A run is protected as work under a lease is, and recorded:
//! who ran which tick, when, and how it ended.
//!
#![cfg_attr(all(feature = "tokio", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "tokio", feature = "memory")), doc = "```ignore")]
//! # async fn send_reports(_: tenure::Tick, _: tenure::Token) -> Result<(), std::io::Error> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let tenure = tenure::connect("memory:").await?;
//! use std::time::Duration;
//!
//! let reports = tenure
//!     .periodic("reports", Duration::from_secs(600), |ctx: tenure::Ctx| async move {
//!         let due = ctx.tick().expect("a run has a tick");
//!         send_reports(due.tick, ctx.token()).await
//!     })
//!     .start()?;
//! // ... the rest of the program, and in the end:
//! reports.drain().await?;
//! for run in tenure.jobs().history("reports").await? {
//!     println!("{:?}: {:?}", run.index, run.state);
//! }
//! # tenure.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! What happens to ticks while no instance is there, or while a run takes longer than the period, is up to
//! [`missed`](PeriodicSetup::missed) and [`overlap`](PeriodicSetup::overlap); whether a run is repeated whose instance
//! has died, to [`attempts`](PeriodicSetup::attempts). A [timer](Tenure::timer) alone gives its ticks to every instance,
//! as a stream. What else is to be on record, the program [says itself](Jobs).
//!
//! With the feature `cron` there are schedules like `Cron::new("30 1 * * *", "Europe/Berlin")`, too; one of a time zone
//! lives at the store with its zone, so that whoever takes over computes in the same one.
//!
//! # A fleet that shares its work
//! A [coordinator](Tenure::coordinate) shares workloads out among the instances that have the same: partitions, shards,
//! tenants, queues. Each workload runs on one instance, under a lease of its own name; each instance has about as many as
//! the others. An instance that comes takes its part over, what one had that died goes on elsewhere, and one that
//! [drains](Tenure::drain) hands over in order. [`Tenure::until_terminated`] does that at SIGTERM.
//!
#![cfg_attr(all(feature = "tokio", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "tokio", feature = "memory")), doc = "```ignore")]
//! # async fn consume(_: &str, _: tenure::Token) -> Result<(), std::io::Error> { tokio::task::yield_now().await; Ok(()) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let tenure = tenure::connect("memory:").await?;
//! let partitions = tenure
//!     .coordinate((0..12).map(|n| format!("orders-{n}")), |ctx: tenure::Ctx| async move {
//!         while !ctx.is_draining() {
//!             consume(ctx.name(), ctx.token()).await?;
//!         }
//!         Ok::<_, std::io::Error>(())
//!     })
//!     .start()?;
//! # partitions.changed().await;
//! for share in partitions.mine() {
//!     println!("{}: {:?}", share.workload, share.status);
//! }
//! # tenure.begin_shutdown();
//! tenure.until_terminated().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Tenure::members`] lists the instances; an operator has one drained, and takes that back, with [`Tenure::mark`]. Which
//! workload belongs to which instance is up to an [`Assigner`], and everybody may write their own. A rule decides about
//! balance alone: that no workload runs twice is the affair of its lease.
//!
//! # Features
//! `tokio`: the runtime. `sqlite`: the embedded store, for the processes of one machine. `memory`: the store in
//! one process. These are on by default. `cron`: cron schedules with time zones.

#[cfg(any(feature = "tokio", feature = "smol"))]
pub mod blocking;
#[cfg(doc)]
pub mod guide;
pub mod prelude;
#[cfg(feature = "smol")]
pub mod smol;
mod url;

#[cfg(feature = "cron")]
pub use tenure_cron::{Cron, CronError};
pub use tenure_driver::core::{
    AnyAssigner, AnySchedule, Assigner, Balanced, ConfigError, Deadlines, Digest, DueTick, Every, Identity,
    Incarnation, Instant, JobName, Labels, LeaseConfig, LeaseName, Member, Missed, NameError, Overlap,
    Primary, Rate, Rebalance, ReleaseOutcome, Rendezvous, Restart, RestartPolicy, Schedule, StopReason,
    StoreClock, Tick, TimerName, Timestamp, Token,
};
#[doc(no_inline)]
pub use tenure_driver::store_contract;
pub use tenure_driver::store_contract::{
    DrainMark, Eviction, Holder, JobRecord, LeaseRecord, Limits, MemberEntry, Metadata, RunOutcome,
    RunRecord, RunState, SimpleStore, Store, StoreError, StoreErrorKind, TimerEntry, TimerRecord,
};
pub use tenure_driver::{
    Acquire, AcquireError, Acquiring, AnyStore, Builder, Closed, Coordinator, CoordinatorSetup,
    CoordinatorStatus, Ctx, DrainError, DrainReason, Interrupted, IntoSchedule, JobRun, Jobs, Lease, Lost,
    LostReason, NoStore, NotDrained, Outcome, Periodic, PeriodicSetup, PeriodicStatus, Progress, Renewals,
    RequestError, RunSetup, Runtime, Share, Signal, StartError, Stats, StillHeld, Stuck, Tenure, Timer,
    TimerError, TimerSetup, Worker, WorkerError, WorkerSetup, WorkerStatus, clock,
};
#[cfg(feature = "memory")]
pub use tenure_memory::MemoryStore;
#[cfg(all(feature = "sqlite", unix))]
pub use tenure_sqlite::{SqliteOptions, SqliteStore};
#[cfg(feature = "testing")]
#[doc(inline)]
pub use tenure_testing as testing;
#[cfg(feature = "tokio")]
pub use tenure_tokio::Tokio;
pub use url::{ConnectError, store};

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

/// Starts with the embedded store of a program of this name, for all its processes on this machine.
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

/// The example of the README, to be compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
