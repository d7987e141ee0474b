//! The same on smol: leases, timers, workers and jobs for programs whose futures smol runs.
//!
//! What these functions start is the same [`Tenure`] as on tokio, with the same handles. A program may have both.
//!
#![cfg_attr(feature = "memory", doc = "```")]
#![cfg_attr(not(feature = "memory"), doc = "```ignore")]
//! # async fn nightly_backup() {}
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     smol::block_on(async {
//! #       // A store that leaves nothing behind.
//! #       let tenure = tenure::smol::connect("memory:").await?;
//! #       /*
//!         let tenure = tenure::smol::embedded("example").await?;
//! #       */
//!         let lease = tenure.acquire("nightly-backup").await?;
//!         // Ends at its next await point should the lease be lost.
//!         lease.run(nightly_backup()).await?;
//!         lease.release().await?;
//!         tenure.shutdown().await?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # On which executor
//! [`connect`], [`embedded`] and [`builder`] take smol's own executor, that of `smol::spawn`. It has one thread unless the
//! variable `SMOL_THREADS` says otherwise: work that blocks it keeps the leases from being renewed. A program that can't
//! rule that out has them renewed [on a thread of their own](Builder::on_own_thread). [`builder_on`] takes an executor of
//! the program, which has to be run for as long as there are leases.
//!
//! smol does not tell where a call comes from. So the work of workers, coordinators and periodic jobs always runs on the
//! executor that the [`Tenure`] was started on, wherever it was set up.

use std::sync::Arc;

use tenure_driver::{Builder, Tenure};
use tenure_smol::Executor;
pub use tenure_smol::Smol;

use crate::{ConnectError, schedule, store, url};

/// Starts with the store that a URL names and all else by default, on smol's own executor; see [`store`] for the URLs and
/// [`builder`] for more say.
///
/// The store is not asked for anything yet: a server that is down shows when a lease is acquired.
///
/// # Errors
/// [`ConnectError`].
#[expect(clippy::unused_async, reason = "as `tenure::connect`: stores may come that connect here")]
pub async fn connect(url: &str) -> Result<Tenure, ConnectError> {
    Ok(builder().store(store(url)?).start()?)
}

/// Starts with the embedded store of a program of this name, for all its processes that one user runs on this machine, on
/// smol's own executor. Those of another user, or with another `XDG_STATE_HOME` or `HOME`, have a store of their own.
///
/// # Errors
/// [`ConnectError`].
#[expect(clippy::unused_async, reason = "as `connect`")]
pub async fn embedded(app: &str) -> Result<Tenure, ConnectError> {
    Ok(builder().store(url::embedded_store(app)?).start()?)
}

/// Sets up a [`Tenure`] on smol's own executor: give it a store, then start it. That may be done anywhere.
///
#[cfg_attr(feature = "memory", doc = "```")]
#[cfg_attr(not(feature = "memory"), doc = "```ignore")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tenure::{LeaseConfig, MemoryStore};
///
/// let tenure = tenure::smol::builder()
///     .on_own_thread()
///     .store(MemoryStore::new())
///     .lease(LeaseConfig::new(Duration::from_secs(30)))
///     .start()?;
/// smol::block_on(async {
///     let lease = tenure.acquire("report").await?;
///     // Blocks smol's thread for a while, and keeps the lease all the same.
///     let report = smol::spawn(async { std::thread::sleep(Duration::from_millis(20)) });
///     lease.run(report).await?;
///     lease.release().await?;
///     tenure.shutdown().await?;
///     Ok(())
/// })
/// # }
/// ```
pub fn builder() -> Builder<Smol> {
    Builder::new(Smol::global()).schedules(schedule)
}

/// As [`builder`], on an executor of the program. See [`Smol::on`] for what happens when that is dropped.
///
#[cfg_attr(feature = "memory", doc = "```")]
#[cfg_attr(not(feature = "memory"), doc = "```ignore")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use tenure::MemoryStore;
///
/// let executor = Arc::new(smol::Executor::new());
/// let tenure = tenure::smol::builder_on(&executor).store(MemoryStore::new()).start()?;
/// smol::block_on(executor.run(async {
///     let worker = tenure
///         .worker("queue", |ctx| async move {
///             ctx.draining().await;
///         })
///         .start()?;
///     worker.drain().await?;
///     tenure.shutdown().await?;
///     Ok(())
/// }))
/// # }
/// ```
pub fn builder_on(executor: &Arc<Executor<'static>>) -> Builder<Smol> {
    Builder::new(Smol::on(executor)).schedules(schedule)
}
