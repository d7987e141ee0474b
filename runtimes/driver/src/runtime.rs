//! What the driver needs of an async runtime.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use futures::future::BoxFuture;
use tenure_core::Instant;

/// An async runtime: it runs tasks, waits, and tells the time.
///
/// Sealed until 1.0: the runtimes of this workspace implement it, `tenure-tokio` for tokio and `tenure-smol`
/// for smol.
pub trait Runtime: sealed::Sealed + Clone + Send + Sync + 'static {
    /// See [`Runtime::alarm`].
    type Alarm: Alarm;

    /// The time on a clock that goes on while the machine sleeps; see [`clock::now`](crate::clock::now).
    fn now(&self) -> Instant;

    /// Runs a task. May be called from any thread. A runtime that can't run it drops it.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// The runtime in which this is called, for work of whoever calls it; this very one outside of any.
    fn here(&self) -> Self;

    /// A new one of the same kind, on a thread of its own, for the driver and nothing else. The thread ends with the driver.
    ///
    /// # Errors
    /// What the operating system says if it has no descriptors or no threads left.
    fn on_own_thread(&self) -> io::Result<Self>;

    /// Waits until the clock has reached `at`; late after a sleep of the machine by at most a second.
    ///
    /// It may be called and awaited from any thread, inside of the runtime or not, and never panics. If the
    /// runtime is gone it never resolves.
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()>;

    /// An alarm of its own for the driver, which also wakes at once when the machine wakes from sleep, where
    /// the platform allows it. Called inside of the runtime.
    fn alarm(&self) -> Self::Alarm;

    /// Waits until the process is asked to end (SIGINT or SIGTERM); never resolves where that can't be told.
    fn interrupted(&self) -> BoxFuture<'static, ()>;

    /// Whether it can be used from here. Asked once, before anything else.
    ///
    /// # Errors
    /// What is missing and what to do, as a sentence.
    fn check(&self) -> Result<(), String>;

    /// The wall clock, for what people are shown. `None` if it shows what is no time.
    #[doc(hidden)]
    fn wall(&self) -> Option<SystemTime> {
        Some(SystemTime::now())
    }

    /// Random numbers, by which a process is unique.
    ///
    /// # Errors
    /// What the operating system says if it has none.
    #[doc(hidden)]
    fn random(&self) -> Result<[u8; 32], String> {
        system_random()
    }
}

/// The random numbers of the operating system.
pub(crate) fn system_random() -> Result<[u8; 32], String> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| error.to_string())?;
    Ok(random)
}

/// An alarm that is set again and again.
pub trait Alarm: Send + 'static {
    /// Ready once the clock has reached `at`. Only the `at` of the last call counts.
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()>;

    /// Nothing is waited for until the next call of [`poll_at`](Alarm::poll_at). One that goes off all the same wakes
    /// without need, and does no harm.
    fn clear(&mut self) {}
}

/// Seals [`Runtime`].
#[doc(hidden)]
pub mod sealed {
    /// Only runtimes of this workspace implement it.
    pub trait Sealed {}
}

/// A [`Runtime`] without its type, as the handles hold it.
pub(crate) trait Clock: Send + Sync {
    fn now(&self) -> Instant;
    fn spawn(&self, task: BoxFuture<'static, ()>);
    fn here(&self) -> SharedClock;
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()>;
    fn interrupted(&self) -> BoxFuture<'static, ()>;
}

impl<R: Runtime> Clock for R {
    fn now(&self) -> Instant {
        Runtime::now(self)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        Runtime::spawn(self, task);
    }

    fn here(&self) -> SharedClock {
        Arc::new(Runtime::here(self))
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Runtime::sleep_until(self, at)
    }

    fn interrupted(&self) -> BoxFuture<'static, ()> {
        Runtime::interrupted(self)
    }
}

pub(crate) type SharedClock = Arc<dyn Clock>;
