//! What can go wrong with a request, and at the end.

use std::time::Duration;

use tenure_core::{ConfigError, LeaseName, NameError, TimerName};
use tenure_store::StoreError;

use crate::subject::Subject;

/// A request about a lease, a timer or a job that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The name can't be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A setting breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What drives the leases has ended.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// What drives the leases has ended, with its runtime or by [`Tenure::shutdown`](super::Tenure::shutdown).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver of the leases has ended, with its runtime or by `shutdown`")]
#[non_exhaustive]
pub struct Closed;

/// Leases, and claims of ticks, that were not given back within the time for it. Others get them when their guards go, or when their
/// TTL runs out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} not given back within {budget:?}: work goes on, or the store does not answer; others have their turn \
     when the work has ended, or by the TTL once this program ends",
    Names(&held(leases, ticks))
)]
#[non_exhaustive]
pub struct StillHeld {
    /// The names of the leases.
    pub leases: Vec<LeaseName>,
    /// The ticks that are claimed, by the names of their timers and their numbers.
    pub ticks: Vec<(TimerName, u64)>,
    /// How long there was time.
    pub budget: Duration,
}

impl StillHeld {
    pub(super) fn new(held: Vec<Subject>, budget: Duration) -> Self {
        let (mut leases, mut ticks) = (Vec::new(), Vec::new());
        for subject in held {
            match subject {
                Subject::Lease(name) => leases.push(name),
                Subject::Tick(name, tick) => ticks.push((name, tick)),
                Subject::Timer(_) | Subject::Job(_) | Subject::Member(_) => {}
            }
        }
        Self { leases, ticks, budget }
    }
}

fn held(leases: &[LeaseName], ticks: &[(TimerName, u64)]) -> Vec<Subject> {
    let leases = leases.iter().cloned().map(Subject::Lease);
    leases.chain(ticks.iter().map(|(name, tick)| Subject::Tick(name.clone(), *tick))).collect()
}

/// "lease \"a\" was", "leases \"a\", \"b\" and 3 more were". Claims of ticks come after the leases.
pub(crate) struct Names<'a>(pub(crate) &'a [Subject]);

impl std::fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// More than a message has room for.
        const MOST: usize = 10;
        let leases = self.0.iter().filter(|subject| subject.lease().is_some()).count();
        for (n, subject) in self.0.iter().take(MOST).enumerate() {
            let between = if n == 0 { "" } else { ", " };
            match subject {
                Subject::Lease(name) if n == 0 && leases > 1 => write!(f, "leases {name:?}")?,
                Subject::Lease(name) if n > 0 => write!(f, "{between}{name:?}")?,
                subject => write!(f, "{between}{subject}")?,
            }
        }
        if self.0.len() > MOST {
            write!(f, " and {} more", self.0.len() - MOST)?;
        }
        f.write_str(if self.0.len() == 1 { " was" } else { " were" })
    }
}

/// The work of a [`scope`](super::Tenure::scope) was dropped because the process was asked to end twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work was ended before its time: the process was asked to end a second time")]
#[non_exhaustive]
pub struct Interrupted;
