//! The requests whose answers still matter.

use core::cmp::Reverse;
use core::mem::discriminant;

use crate::name::{Acquisition, Token};
use crate::time::Instant;

/// A request without an answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) sequence: u64,
    /// The epoch it belongs to.
    pub(super) n: Acquisition,
    /// When the core emitted it: the only time from which validity is counted.
    pub(super) emitted: Instant,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The grant must have a token above `floor`.
    Acquire {
        floor: Token,
    },
    Renew,
    Release,
}

/// The latest requests without an answer. Bounded: what the oldest of many unanswered requests would say is
/// said again by a later one, since acquiring is idempotent per owner and a renewal by its token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Attempts(pub(super) [Option<Attempt>; 4]);

impl Attempts {
    /// Keeps an attempt. If there are too many, the oldest of the kind that there are most of is forgotten, so
    /// that the latest of each kind stays: releases that nobody answers must not hide a late grant.
    pub(super) fn push(&mut self, attempt: Attempt) {
        if self.0.iter().all(Option::is_some) {
            let kinds = || self.0.iter().flatten().chain([&attempt]).map(|kept| discriminant(&kept.kind));
            let many = |kept: &Attempt| kinds().filter(|kind| *kind == discriminant(&kept.kind)).count();
            let victim = self.0.iter().flatten().max_by_key(|kept| (many(kept), Reverse(kept.sequence)));
            if let Some(sequence) = victim.map(|kept| kept.sequence) {
                self.remove(sequence);
            }
        }
        if let Some(free) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(attempt);
        }
    }

    /// The attempt with this number, if it still matters.
    pub(super) fn find(&self, sequence: u64) -> Option<&Attempt> {
        self.0.iter().flatten().find(|attempt| attempt.sequence == sequence)
    }

    /// Removes the attempt with this number.
    pub(super) fn remove(&mut self, sequence: u64) {
        for slot in &mut self.0 {
            if slot.is_some_and(|attempt| attempt.sequence == sequence) {
                *slot = None;
            }
        }
        // Free places stay at the end, so that equal contents are equal, and the oldest comes first.
        self.0.sort_by_key(|slot| slot.map_or(u64::MAX, |attempt| attempt.sequence));
    }

    /// When the latest acquisition without an answer was emitted.
    pub(super) fn latest_acquire(&self) -> Option<Instant> {
        let acquires = self.0.iter().flatten().filter(|attempt| matches!(attempt.kind, Kind::Acquire { .. }));
        acquires.map(|attempt| attempt.emitted).max()
    }
}
