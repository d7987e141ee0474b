//! The same for plain threads: leases, timers, workers and jobs whose calls block instead of being awaited.
//!
//! One thread in the background renews all leases. The calls may be made on any thread: where there is no async runtime,
//! and inside of one. There they block it, as any blocking call does, but they need nothing of it.
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
//! This, in a program that has no async runtime, or whose work blocks: a batch job, a command, a server of threads. The
//! async handles, where the work is futures: those can be stopped at any await point, and a thousand of them need no
//! thousand threads. Both say the same to the store, so a fleet may have instances of either kind.
//!
//! Names and errors are the same. What is awaited there is a call here. What may take long has a second form with a
//! limit, whose name ends in `_timeout`; it tells by [`TimedOut`] that the limit came first. What is a stream there is an
//! iterator here. To wait for a lease there is [`Acquire::wait`], in the place of `.await`. A future is cancelled by
//! dropping it; a thread that waits gives up after [`wait_at_most`](Acquire::wait_at_most), or when this instance is
//! [drained](Tenure::drain) or [shut down](Tenure::shutdown). [`Interrupted`](crate::Interrupted) is not there: see
//! [`Tenure::scope`]. Nor are there handles for virtual time: a thread waits in real time.
//!
//! # A thread can't be stopped
//! A future is dropped when its lease is lost. A thread goes on until it looks: at [`Signal::is_stopping`] or
//! [`Ctx::is_draining`], which say that the work is to end in order, and at [`Lease::is_valid`] or [`Ctx::is_valid`],
//! which say that it must have ended. All of them go by the caller's own clock, and are right even while the thread in
//! the background is stuck or gone. Look before each step that must not be done twice, and hand the
//! [token](Lease::token) to whatever the step changes: a thread that is slow between the look and the step is kept from
//! it by nothing else. [`run`](Lease::run) returns what the work returned, also where the lease was lost meanwhile: work
//! that was cut short says so by its result. Instead of a sleep there is [`Ctx::draining_timeout`], which ends early when the work is to end.
//!
//! A run of a worker, a coordinator or a periodic job has ended when its work has returned, and all that it had is
//! dropped; not before, whatever was asked of it. Until then its lease is renewed, unless it was lost or its maximum hold
//! is over: a [drain](Tenure::drain) waits for the thread, says that it is stuck when the time is over, and gives nothing
//! back beside work that runs. Threads that the work has started are its own to join before it returns; and what the
//! destructors of thread-locals do comes after the run.
//!
//! # The end
//! End with [`Tenure::shutdown`], or run in [`Tenure::scope`]. When `main` returns without, the process ends, and all of
//! its threads with it in the midst of whatever they do: nothing is given back, and others wait for the TTL, or with the
//! embedded store until the operating system says that the process is gone. When the last handle goes before that, what
//! is held is given back as its work ends, and then the thread in the background ends, too.
//!
//! Should that thread end while something is held (it would be a bug), guards and contexts say
//! [`LostReason::Closed`](crate::LostReason::Closed) at once, and calls [`Closed`](crate::Closed); work that runs goes on
//! until it looks.
//!
//! Don't call what blocks here from within a [store](crate::Store) or an [assigner](crate::Assigner) of your own: they
//! run on the thread in the background, which would wait for itself. What the closure of a worker, a periodic job or a
//! coordinator keeps is dropped on a thread of its own when that has ended, and the shutdown waits for it, two seconds at
//! most.

use tenure_driver::{Builder, Runtime};

pub use tenure_driver::blocking::{
    Acquire, Coordinator, CoordinatorSetup, Ctx, JobRun, Jobs, Lease, Periodic, PeriodicSetup, Renewals,
    RunSetup, Signal, Tenure, TimedOut, Timer, TimerSetup, Worker, WorkerSetup,
};

use crate::{ConnectError, schedule, store, url};

/// Starts with the store that a URL names and all else by default; see [`store`] for the URLs and [`builder`] for more
/// say.
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

/// Sets up a [`Tenure`]: give it a store, then [start](Builder::start_blocking) it. Which runtime the thread in the
/// background has is its own affair.
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
