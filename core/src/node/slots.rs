//! The names that a node is interested in: who of its candidates talks to the store, and which names are watched.

use alloc::collections::BTreeSet;

use super::{Machine, Node, move_deadline};
use crate::command::{Command, Failure, Misuse, Output, Reply};
use crate::jitter::Jitter;
use crate::lease::Phase;
use crate::name::{CommandId, LeaseKey, LeaseName, Token};
use crate::notice::AcquireFailure;
use crate::planted::{Bug, planted};
use crate::time::Instant;

/// A name, and who is interested in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) name: LeaseName,
    /// How many machines know it by this name.
    pub(super) leases: usize,
    /// The candidates (and the holder), first come first.
    pub(super) candidates: BTreeSet<LeaseKey>,
    /// Those of them that don't want to wait.
    pub(super) impatient: BTreeSet<LeaseKey>,
    /// The one that talks to the store.
    pub(super) active: Option<LeaseKey>,
    /// Whether the last release here woke other processes, which are to have a start.
    pub(super) courtesy: bool,
    /// The highest token heard of.
    pub(super) seen: Token,
    pub(super) watch: Watch,
    /// Whether the store may count us among the waiters.
    pub(super) registered: bool,
    /// The number of the next watch command.
    pub(super) sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watch {
    Off,
    Asked {
        sequence: u64,
    },
    On,
    /// The store has no hints.
    Never,
}

impl Slot {
    pub(super) fn new(name: LeaseName) -> Self {
        Self {
            name,
            leases: 0,
            candidates: BTreeSet::new(),
            impatient: BTreeSet::new(),
            active: None,
            courtesy: false,
            seen: Token::ZERO,
            watch: Watch::Off,
            registered: false,
            sequence: 0,
        }
    }
}

impl<J: Jitter> Node<J> {
    /// Brings everything that depends on a lease in line with it, after it was touched.
    pub(super) fn settle(&mut self, key: LeaseKey) {
        match self.refresh(key) {
            Some(slot) => self.settle_slot(slot),
            None => self.settle_claim(key),
        }
        self.settle_run(key);
    }

    /// The deadline and the readiness of one lease; returns its slot, if it has one.
    pub(super) fn refresh(&mut self, key: LeaseKey) -> Option<u64> {
        let entry = self.leases.get_mut(&key)?;
        move_deadline(&mut self.deadlines, Machine::Lease(key), &mut entry.deadline, entry.lease.deadline());
        if !entry.ready && entry.lease.has_output() {
            entry.ready = true;
            self.ready.push_back(Machine::Lease(key));
        }
        let id = entry.slot()?;
        let slot = self.slots.get_mut(&id)?;
        slot.seen = slot.seen.max(entry.lease.seen());
        if entry.lease.phase() == Phase::Done && slot.candidates.remove(&key) {
            slot.impatient.remove(&key);
            slot.registered |= entry.lease.registered();
            if slot.active == Some(key) {
                slot.active = None;
                slot.courtesy = entry.lease.others_chosen();
            }
        }
        Some(id)
    }

    /// Chooses who talks to the store about a name, and whether it is watched.
    pub(super) fn settle_slot(&mut self, slot_id: u64) {
        loop {
            let Some(slot) = self.slots.get_mut(&slot_id) else { return };
            let Some(active) = slot.active.or_else(|| slot.candidates.first().copied()) else { break };
            slot.active = Some(active);
            let (floor, courtesy) = (self.floor.max(slot.seen), slot.courtesy);
            let Some(entry) = self.leases.get_mut(&active) else { return };
            match entry.lease.phase() {
                Phase::Idle => {
                    slot.courtesy = false;
                    slot.impatient.remove(&active);
                    self.last_n.0 += 1;
                    entry.lease.campaign(self.now, self.last_n, floor, courtesy);
                    self.refresh(active);
                }
                Phase::Deciding => break,
                Phase::Waiting(verdict) => match slot.impatient.pop_first() {
                    Some(key) => self.refuse(key, verdict),
                    None => break,
                },
                Phase::Holding => match slot.impatient.pop_first() {
                    Some(key) => self.refuse(key, AcquireFailure::Busy),
                    None => break,
                },
                Phase::Done => {
                    self.refresh(active);
                }
            }
        }
        self.settle_watch(slot_id);
    }

    pub(super) fn refuse(&mut self, key: LeaseKey, why: AcquireFailure) {
        if let Some(entry) = self.leases.get_mut(&key) {
            entry.lease.refuse(self.now, why);
            self.refresh(key);
        }
    }

    pub(super) fn settle_watch(&mut self, slot_id: u64) {
        let Some(slot) = self.slots.get_mut(&slot_id) else { return };
        let active = slot.active.and_then(|key| self.leases.get(&key)).map(|entry| &entry.lease);
        let phase = active.map(|lease| lease.phase());
        let queued = slot.candidates.len() > 1;
        let waits = match phase {
            Some(Phase::Waiting(_) | Phase::Deciding | Phase::Idle) => true,
            Some(Phase::Holding) => queued,
            Some(Phase::Done) | None => false,
        };
        // Whoever only leaves others a start was not refused; the answer to a watch would cut the start short.
        let refused = matches!(phase, Some(Phase::Waiting(AcquireFailure::Busy)))
            && active.is_some_and(|lease| lease.registered());
        if refused && slot.watch == Watch::Off {
            let sequence = slot.sequence;
            slot.sequence += 1;
            slot.watch = Watch::Asked { sequence };
            self.watched.insert(slot_id);
            let id = CommandId { machine: slot_id, sequence };
            self.output.push_back(Output::Command(Command::Watch { id, name: slot.name.clone() }));
        } else if !waits && (slot.registered || matches!(slot.watch, Watch::Asked { .. } | Watch::On)) {
            slot.registered = false;
            if slot.watch != Watch::Never {
                slot.watch = Watch::Off;
            }
            self.watched.remove(&slot_id);
            self.output.push_back(Output::Command(Command::Unwatch { name: slot.name.clone() }));
        }
    }

    pub(super) fn watch_reply(&mut self, now: Instant, id: CommandId, reply: Reply) -> Result<(), Misuse> {
        let Some(slot) = self.slots.get_mut(&id.machine) else { return Ok(()) };
        if id.sequence >= slot.sequence {
            return Err(Misuse::UnknownCommand(id));
        }
        let watch = match reply {
            Reply::Watching => Watch::On,
            Reply::Failed(Failure::Refused) => Watch::Never,
            Reply::Failed(Failure::NotExecuted | Failure::Unknown) => Watch::Off,
            Reply::Granted { .. }
            | Reply::Held { .. }
            | Reply::Renewed
            | Reply::Released { .. }
            | Reply::TickTaken
            | Reply::TickOverlaps
            | Reply::Left
            | Reply::NotYours => {
                return Err(Misuse::WrongReply { id, reply });
            }
        };
        let current = slot.watch == Watch::Asked { sequence: id.sequence };
        let active = slot.active;
        if current {
            slot.watch = watch;
            // It may have been begun all the same.
            slot.registered |= reply == Reply::Failed(Failure::Unknown);
        }
        self.clamp(now);
        if !current {
            self.counters.0.stale_replies += 1;
        } else if watch == Watch::On
            && let Some(key) = active
        {
            // Whatever happened between the refusal and the watch was not heard.
            if !planted(Bug::NoLookAfterWatch) {
                self.look_again(key, true);
            }
        } else {
            self.watched.remove(&id.machine);
        }
        Ok(())
    }

    /// What whoever has the turn for this lease's name was told.
    pub(super) fn verdict_before(&self, key: LeaseKey) -> AcquireFailure {
        let slot = self.leases.get(&key).and_then(super::Entry::slot).and_then(|slot| self.slots.get(&slot));
        let active = slot.and_then(|slot| slot.active).and_then(|active| self.leases.get(&active));
        active.map_or(AcquireFailure::Busy, |entry| entry.lease.verdict())
    }

    pub(super) fn look_again(&mut self, key: LeaseKey, at_once: bool) {
        if let Some(entry) = self.leases.get_mut(&key) {
            entry.lease.look_again(self.now, at_once);
            self.settle(key);
        }
    }

    pub(super) fn resync_one(&mut self, from: u64) {
        match self.watched.range(from..).next().copied() {
            Some(slot) => {
                self.resync_from = Some(slot + 1);
                if let Some(key) = self.slots.get(&slot).and_then(|slot| slot.active) {
                    self.look_again(key, false);
                }
            }
            None => self.resync_from = None,
        }
    }
}
