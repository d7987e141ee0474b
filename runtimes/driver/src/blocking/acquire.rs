//! Acquiring a lease.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::LeaseConfig;

use super::{Lease, wait};
use crate::{AcquireError, Progress};

/// Acquires a lease once it is [waited](Acquire::wait) for; made by [`Tenure::acquire`](super::Tenure::acquire) and
/// [`Tenure::try_acquire`](super::Tenure::try_acquire).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::blocking::connect("memory:")?;
/// use std::time::Duration;
/// let lease = tenure
///     .acquire("backup")
///     .ttl(Duration::from_secs(30))
///     .wait_at_most(Duration::from_secs(60))
///     .text("started by hand")
///     .on_progress(|progress| eprintln!("{progress:?}"))
///     .wait()?;
/// # drop(lease);
/// # tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is acquired before `wait`"]
pub struct Acquire(crate::Acquire);

impl Acquire {
    pub(super) const fn new(inner: crate::Acquire) -> Self {
        Self(inner)
    }

    /// Sets the TTL; the rest of the timing follows from it. See [`LeaseConfig::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Sets the whole timing.
    pub fn timing(self, config: LeaseConfig) -> Self {
        Self(self.0.timing(config))
    }

    /// Waits for the lease at most this long, then fails with [`AcquireError::Busy`] or
    /// [`AcquireError::Unreachable`]. Who may want to give up sooner waits for short times, one after the other: each
    /// of them is a candidacy of its own.
    pub fn wait_at_most(self, limit: Duration) -> Self {
        Self(self.0.wait_at_most(limit))
    }

    /// Asks the work to stop this long after the grant, for good; see the async [`max_hold`](crate::Acquire::max_hold).
    pub fn max_hold(self, limit: Duration) -> Self {
        Self(self.0.max_hold(limit))
    }

    /// How long work that is asked to stop by the holder's choice may take to end before it must have ended. The
    /// lease is renewed meanwhile. Default 30 s.
    pub fn grace(self, grace: Duration) -> Self {
        Self(self.0.grace(grace))
    }

    /// Keeps a text with the record for whoever inspects it; see the async [`text`](crate::Acquire::text).
    pub fn text(self, text: impl Into<Arc<str>>) -> Self {
        Self(self.0.text(text))
    }

    /// Is told what happens while the lease is waited for, on the thread that waits; see the async
    /// [`on_progress`](crate::Acquire::on_progress).
    pub fn on_progress(self, listener: impl FnMut(Progress) + Send + 'static) -> Self {
        Self(self.0.on_progress(listener))
    }

    /// Waits until the lease is acquired, or can't be. It takes the place of the `.await` of the async form, and its
    /// name.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn wait(self) -> Result<Lease, AcquireError> {
        wait(self.0.into_future()).map(Lease::new)
    }
}
