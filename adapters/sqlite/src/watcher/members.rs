//! Tells a handle that has sent a heartbeat of other versions of the members' view.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::Instant;
use tenure_store::{Hint, HintQueue};

use super::{PROBES, WRITE_PATIENCE};
use crate::clock;
use crate::database::Database;
use crate::liveness::HandleId;

/// How often the lives of the members' processes are looked at when file events tell of their ends.
const LOOK_WITH_EVENTS: Duration = Duration::from_secs(1);
/// How often when they don't.
const LOOK_WITHOUT_EVENTS: Duration = Duration::from_millis(100);
/// So many are looked at then; if there are more, others the next time.
const TOGETHER: usize = 64;
/// More than end between two looks, unless all do; then the look that comes anyway finds the others.
const MOST_SUSPECTS: usize = 256;

/// What was last told of the members, and when to look again.
#[derive(Debug, Default)]
pub(super) struct MemberWatch {
    /// The version that the caller knows, or has a hint of.
    told: Option<u64>,
    dirty: bool,
    /// When the next member is listed no longer, as far as is known.
    next_end: Option<Instant>,
    /// Handles that seem to have ended. How often each is tried is the watcher's affair.
    suspects: BTreeSet<HandleId>,
    tries: usize,
    next_look: Instant,
}

impl MemberWatch {
    /// The caller has learned this version.
    pub(super) const fn told(&mut self, version: u64) {
        self.told = Some(version);
        self.dirty = true;
    }

    pub(super) const fn look_again(&mut self) {
        self.dirty = true;
    }

    #[cfg(test)]
    pub(super) const fn never_looks(&mut self) {
        self.next_look = Instant::MAX;
    }

    /// These handles ended, or are about to; tells whether their locks are to be tried.
    pub(super) fn suspect(&mut self, ended: &[HandleId]) -> bool {
        if ended.is_empty() {
            return false;
        }
        self.suspects.extend(ended.iter().take(MOST_SUSPECTS.saturating_sub(self.suspects.len())));
        self.tries = PROBES.len();
        true
    }

    /// Does what is due, and says when something will be. `probe`: the locks of the suspects are to be tried.
    pub(super) fn turn(
        &mut self,
        database: &mut Database,
        hints: &HintQueue,
        now: Instant,
        probe: bool,
        events: bool,
    ) -> Option<Instant> {
        let mut suspects = BTreeSet::new();
        if probe && !self.suspects.is_empty() {
            suspects.clone_from(&self.suspects);
            self.tries = self.tries.saturating_sub(1);
            if self.tries == 0 {
                self.suspects.clear();
            }
        }
        if now >= self.next_look {
            self.next_look = now + if events { LOOK_WITH_EVENTS } else { LOOK_WITHOUT_EVENTS };
            suspects.extend(database.member_handles(TOGETHER).unwrap_or_default());
        }
        let dead = if suspects.is_empty() {
            Vec::new()
        } else {
            database.dead_members(suspects).unwrap_or_default()
        };
        let ended = self.next_end.is_some_and(|end| end <= now);
        if !dead.is_empty() || ended {
            // If it can't be written now, whoever sends the next heartbeat does it.
            let until = clock::now() + WRITE_PATIENCE;
            let _ = database.write("can't remove members that are gone", until, |transaction| {
                transaction.end_members()?;
                transaction.remove_the_dead(dead)?;
                Ok(Ok(()))
            });
            self.dirty = true;
        }
        if std::mem::take(&mut self.dirty) {
            self.look(database, hints, now);
        }
        Some(self.next_end.map_or(self.next_look, |end| end.min(self.next_look)))
    }

    /// Looks which version there is, and tells it if it is news.
    fn look(&mut self, database: &mut Database, hints: &HintQueue, now: Instant) {
        let Ok(sight) = database.fleet_sight() else {
            // What can't be read now is looked at with the next poll.
            self.dirty = true;
            return;
        };
        // One that could not be written down as ended is left to others until the next look.
        self.next_end = sight.next_end.filter(|end| *end > now).or(sight.next_end.map(|_| self.next_look));
        if self.told.replace(sight.version).is_some_and(|told| told != sight.version) {
            hints.push(Hint::Members);
        }
    }
}
