//! All machines of a process behind one `handle` and one `poll` (being written).
use crate::command::{Deadlines, Event, Misuse, Output};
use crate::jitter::Jitter;
use crate::lease::LeaseOptions;
use crate::name::{Acquisition, Identity, LeaseKey, LeaseName, Owner};
use crate::time::Instant;
use alloc::sync::Arc;

/// Counts of what was ignored.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Replies of a past epoch or given twice, dropped.
    pub stale_replies: u64,
    /// Times that `now` was earlier than before, and was clamped.
    pub clock_backwards: u64,
}

/// All machines of a process.
#[derive(Debug)]
pub struct Node<J> {
    identity: Identity,
    jitter: J,
}

#[expect(clippy::todo, unused_variables, reason = "signatures first")]
impl<J: Jitter> Node<J> {
    /// A node for this process.
    #[must_use]
    pub fn new(identity: Identity, jitter: J) -> Self {
        Self { identity, jitter }
    }
    /// Enters a candidacy.
    /// # Errors
    /// [`Misuse::ShuttingDown`].
    pub fn acquire(
        &mut self,
        now: Instant,
        name: LeaseName,
        options: LeaseOptions,
    ) -> Result<LeaseKey, Misuse> {
        todo!()
    }
    /// Gives a candidacy up, or says that the work under a hold has ended and gives the lease back. Harmless when repeated.
    /// # Errors
    /// [`Misuse::UnknownLease`] for a key that was never made.
    pub fn release(&mut self, now: Instant, lease: LeaseKey) -> Result<(), Misuse> {
        todo!()
    }
    /// Asks the work under a hold to end (the lease is renewed until `release`); a candidacy is given up.
    /// # Errors
    /// [`Misuse::UnknownLease`] for a key that was never made.
    pub fn drain(&mut self, now: Instant, lease: LeaseKey) -> Result<(), Misuse> {
        todo!()
    }
    /// Takes no new candidacies, gives those that wait up, drains all holds.
    pub fn shutdown(&mut self, now: Instant) {
        todo!()
    }
    /// Takes an event in. Legal at any time.
    /// # Errors
    /// [`Misuse`]
    pub fn handle(&mut self, now: Instant, event: Event) -> Result<(), Misuse> {
        todo!()
    }
    /// What to do next.
    pub fn poll(&mut self) -> Output {
        todo!()
    }
    /// The name of a lease; `None` once it has ended and all its commands were polled.
    #[must_use]
    pub fn name(&self, lease: LeaseKey) -> Option<&LeaseName> {
        todo!()
    }
    /// The text to keep with a lease's record.
    #[must_use]
    pub fn text(&self, lease: LeaseKey) -> Option<&Arc<str>> {
        todo!()
    }
    /// The owner of an acquisition.
    #[must_use]
    pub fn owner(&self, n: Acquisition) -> Owner {
        self.identity.owner(n)
    }
    /// When a hold ends; `None` if the lease is not held.
    #[must_use]
    pub fn deadlines(&self, lease: LeaseKey) -> Option<Deadlines> {
        todo!()
    }
    /// Counts of what was ignored.
    #[must_use]
    pub fn counters(&self) -> Counters {
        todo!()
    }
    /// How many holds and candidacies there are.
    #[must_use]
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}
