//! What the handles know of this instance among the others: the members, and the drain of the whole instance.

use std::fmt;
use std::sync::Arc;

use tenure_core::{LeaseName, Member, TimerName, Token};
use tenure_store::StoreError;

use crate::subject::Subject;
use crate::tenure::StillHeld;
use crate::wakers::Watched;

/// Why this instance drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DrainReason {
    /// The program has called [`Tenure::drain`](crate::Tenure::drain) or [`Tenure::stop`](crate::Tenure::stop).
    Program,
    /// An operator wants it, by [`Tenure::mark`](crate::Tenure::mark). It ends when that is taken back.
    Operator,
    /// The program shuts down, or what drives the leases has ended.
    Shutdown,
}

impl fmt::Display for DrainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "the program wants it",
            Self::Operator => "an operator wants it",
            Self::Shutdown => "the program shuts down",
        })
    }
}

/// Work that was stopped, and does not end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// The leases under which it works, with their tokens.
    pub leases: Vec<(LeaseName, Token)>,
    /// The ticks that are claimed by it: the names of their timers, their numbers, and the tokens of the claims.
    pub ticks: Vec<(TimerName, u64, Token)>,
}

impl Stuck {
    pub(crate) fn new(held: impl IntoIterator<Item = (Subject, Token)>) -> Self {
        let mut stuck = Self::default();
        for (subject, token) in held {
            match subject {
                Subject::Lease(name) => stuck.leases.push((name, token)),
                Subject::Tick(name, tick) => stuck.ticks.push((name, tick, token)),
                Subject::Timer(_) | Subject::Job(_) | Subject::Member(_) => {}
            }
        }
        stuck
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.ticks.is_empty()
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More than a message has room for.
        const MOST: usize = 10;
        let leases = self.leases.iter().map(|(name, token)| (format!("lease {name:?}"), token));
        let ticks = self.ticks.iter().map(|(name, tick, token)| (format!("tick {tick} of {name:?}"), token));
        for (n, (what, token)) in leases.chain(ticks).take(MOST).enumerate() {
            let between = if n == 0 { "" } else { ", " };
            write!(f, "{between}{what} (token {token})")?;
        }
        match (self.leases.len() + self.ticks.len()).saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// An instance, or a coordinator, that could not be drained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDrained {
    /// The time is over, and work has not ended: it blocks its thread, or its guard is kept. Its leases are renewed
    /// until it ends, and with the process at the latest.
    #[error(
        "work was stopped and does not end: {0}; it blocks its thread, or its guard is kept; its leases are not given \
         back before it ends"
    )]
    Stuck(Stuck),
    /// The drain was taken back before it was done.
    #[error("the drain was taken back before it was done")]
    Resumed,
    /// It was drained, and leases or claims were not given back at the shutdown after it.
    #[error(transparent)]
    StillHeld(#[from] StillHeld),
    /// What drives the leases has ended.
    #[error(transparent)]
    Closed(#[from] crate::Closed),
}

/// What the driver and the handles share about this instance.
pub(crate) type Shared = Watched<State>;

#[derive(Debug, Default)]
pub(crate) struct State {
    /// As last heard.
    pub(crate) members: Option<Arc<[Member]>>,
    /// What the last heartbeat failed with, if none was answered since.
    pub(crate) error: Option<StoreError>,
    /// Why it drains, if it does.
    pub(crate) drain: Option<DrainReason>,
    /// It drains, and holds nothing any more.
    pub(crate) drained: bool,
    /// The driver is gone.
    pub(crate) closed: bool,
}

impl State {
    /// Why it drains, if it does.
    pub(crate) fn draining(&self) -> Option<DrainReason> {
        self.drain.or(self.closed.then_some(DrainReason::Shutdown))
    }
}

/// The driver's end of a [`Shared`].
#[derive(Debug)]
pub(crate) struct Tie(pub(crate) Arc<Shared>);

impl Drop for Tie {
    fn drop(&mut self) {
        self.0.change(|state| state.closed = true);
    }
}
