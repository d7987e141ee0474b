//! What a candidate asks for.

use alloc::sync::Arc;
use core::time::Duration;

use crate::timing::LeaseTiming;

/// How long a candidacy may wait for its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are no other ways to wait")]
pub enum WaitLimit {
    /// As long as it takes.
    Forever,
    /// At most this long, the requests included. No time at all is the same as [`WaitLimit::No`].
    AtMost(Duration),
    /// One try; not at all.
    No,
}

/// What a candidate asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaseOptions {
    /// The timing of the lease.
    pub timing: LeaseTiming,
    /// How long to wait for it.
    pub wait: WaitLimit,
    /// The longest time from the grant after which the work is stopped, for good. `None`: no limit.
    pub max_hold: Option<Duration>,
    /// How long work that is stopped by the holder's choice (drain, maximum hold) may take to end by itself
    /// before it is stopped hard. The lease is renewed meanwhile.
    pub grace: Duration,
    /// A short text kept with the record for whoever inspects it.
    pub text: Option<Arc<str>>,
}

impl LeaseOptions {
    /// The default grace: what most process supervisors allow between SIGTERM and SIGKILL.
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(30);

    /// Waits as long as it takes, holds without a limit, with the default grace.
    #[must_use]
    pub const fn new(timing: LeaseTiming) -> Self {
        Self { timing, wait: WaitLimit::Forever, max_hold: None, grace: Self::DEFAULT_GRACE, text: None }
    }
}
