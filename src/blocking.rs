//! The same for plain threads: leases, timers, workers and jobs whose calls block instead of being awaited.
//!
//! One thread in the background renews all leases. The calls may be made on any thread: where there is no async runtime, and
//! inside of one. There they block it, as any blocking call does, but they need nothing of it.
//!
#![cfg_attr(feature = "memory", doc = "```")]
#![cfg_attr(not(feature = "memory"), doc = "```ignore")]
//! use std::time::Duration;
//!
//! # fn next_row(n: u32) -> Option<u32> { (n < 3).then_some(n) }
//! # fn copy(_: u32, _: tenure::Token) {}
//! # fn send_reports(_: u64, _: tenure::Token) -> Result<(), std::io::Error> { Ok(()) }
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   // A store that leaves nothing behind.
//! #   let tenure = tenure::blocking::connect("memory:")?;
//! #   /*
//!     let tenure = tenure::blocking::embedded("example")?;
//! #   */
//!     // Gives everything back in the end, whatever happens, and on SIGTERM and Ctrl-C asks the work to stop.
//!     tenure.scope(|tenure| {
//!         // Work in a thread of its own, at each tick on one instance of the program.
//!         tenure
//!             .periodic("reports", Duration::from_secs(600), |ctx| {
//!                 let due = ctx.tick().expect("a run has a tick");
//!                 send_reports(due.tick.n, ctx.token())
//!             })
//!             .start()?;
//!
//!         // And work right here, while this program has the lease.
//!         let lease = tenure.acquire("copy").wait_at_most(Duration::from_secs(60)).wait()?;
//!         let rows = lease.run(|signal| {
//!             let mut rows = 0;
//!             // Nobody stops a thread: it looks before each step.
//!             while !signal.is_stopping()
//!                 && let Some(row) = next_row(rows)
//!             {
//!                 // Whatever it changes gets the token, and refuses a lower one than it has seen.
//!                 copy(row, signal.token());
//!                 rows += 1;
//!             }
//!             rows
//!         })?;
//!         println!("{rows} rows");
//!         lease.release()?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # When to use which
//! This, in a program that has no async runtime, or whose work blocks: a batch job, a command, a server of threads. The async
//! handles, where the work is futures: those can be stopped at any await point, and a thousand of them need no thousand
//! threads. Both speak the same to the store, so a fleet may have instances of either kind.
//!
//! Names and errors are the same. What is awaited there is a call here, and what is awaited for long has a second form with
//! a limit, whose name ends in `_timeout`; [`TimedOut`] tells that it is over. To wait for a lease there is
//! [`Acquire::wait`], in the place of `.await`, and [`wait_at_most`](Acquire::wait_at_most): nobody else ends the wait of a
//! thread, but for the [shutdown](Tenure::shutdown) and the [drain](Tenure::drain) of the instance. What is a stream
//! there is an iterator here. [`Interrupted`](crate::Interrupted) is not there: see [`Tenure::scope`].
//!
//! # A thread can't be stopped
//! A future is dropped when its lease is lost. A thread goes on until it looks: at [`Signal::is_stopping`],
//! [`Ctx::is_draining`], or [`is_valid`](Lease::is_valid), which goes by the caller's own clock and is right even while the
//! thread in the background is stuck or gone. Look before each step that must not be done twice, and hand the
//! [token](Lease::token) to whatever the step changes: a thread that is slow between the look and the step is stopped by
//! nothing else. [`run`](Lease::run) returns what the work returned, also where the lease was lost meanwhile: work that was
//! cut short says so by its result. Instead of `sleep` there is [`Ctx::draining_timeout`], which ends early when the work is
//! to end.
//!
//! What was started keeps its lease until it has returned: a [drain](Tenure::drain) waits for it, tells that it is stuck when
//! its time is over, and gives nothing back beside work that runs.
//!
//! # The end
//! End with [`Tenure::shutdown`], or run in [`Tenure::scope`]. When `main` returns without, the process ends and all of its
//! threads with it, in the midst of whatever they do: nothing is given back, and others wait for the TTL, or on one machine
//! with the embedded store until the operating system says that the process is gone. When the last handle goes before, what
//! is held is given back as its work ends, and then the thread in the background ends. A thread in the background that ends
//! while something is held (by a bug) is told as [`LostReason::Closed`](crate::LostReason::Closed) by guards and contexts
//! at once, and as [`Closed`](crate::Closed) by calls; work that runs goes on until it looks.
//!
//! Don't call what blocks here from within a [store](crate::Store) of your own, or from an
//! [assigner](crate::Assigner): they run on the thread in the background, which would wait for itself.

use tenure_driver::{Builder, Runtime};

pub use tenure_driver::blocking::{
    Acquire, Coordinator, CoordinatorSetup, Ctx, JobRun, Jobs, Lease, Periodic, PeriodicSetup, Renewals,
    RunSetup, Signal, Tenure, TimedOut, Timer, TimerSetup, Worker, WorkerSetup,
};

use crate::{ConnectError, schedule, store, url};

/// Starts with the store that a URL names and all else by default; see [`store`] for the URLs and [`builder`] for more say.
///
/// The store is not asked for anything yet: a server that is down shows when a lease is acquired.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(url: &str) -> Result<Tenure, ConnectError> {
    Ok(builder().store(store(url)?).start_blocking()?)
}

/// Starts with the embedded store of a program of this name, for all its processes that one user runs on this machine. Those of
/// another user, or with another `XDG_STATE_HOME` or `HOME`, have a store of their own.
///
/// # Errors
/// [`ConnectError`].
pub fn embedded(app: &str) -> Result<Tenure, ConnectError> {
    Ok(builder().store(url::embedded_store(app)?).start_blocking()?)
}

/// Sets up a [`Tenure`]: give it a store, then [start](Builder::start_blocking) it. Which runtime the thread in the background
/// has is its own affair.
///
#[cfg_attr(feature = "memory", doc = "```")]
#[cfg_attr(not(feature = "memory"), doc = "```ignore")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tenure::{LeaseConfig, MemoryStore};
///
/// let tenure = tenure::blocking::builder()
///     .store(MemoryStore::new())
///     .instance("worker-7")
///     .lease(LeaseConfig::new(Duration::from_secs(30)))
///     .start_blocking()?;
/// # tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
pub fn builder() -> Builder<impl Runtime> {
    Builder::new(runtime()).schedules(schedule)
}

#[cfg(feature = "tokio")]
fn runtime() -> impl Runtime {
    tenure_tokio::Tokio::current()
}

#[cfg(not(feature = "tokio"))]
fn runtime() -> impl Runtime {
    tenure_smol::Smol::global()
}
