//! What a search of the state space sees of a node.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem::take;

use super::coordinators::CoordinatorEntry;
use super::members::MemberEntry;
use super::periodics::{Claim, PeriodicEntry};
use super::slots::{Slot, Watch};
use super::timers::TimerEntry;
use super::{Entry, Jitter, Machine, Node, Place};
use crate::model::Visitor;
use crate::name::MemberKey;

impl<J: Jitter> Node<J> {
    /// Shows all that would keep this state from being recognised. Everything must have been polled.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self {
            identity,
            now,
            next_machine,
            last_n,
            leases,
            workers,
            timers,
            periodics,
            member,
            coordinators,
            drain: _,
            names,
            slots,
            deadlines,
            ready,
            output,
            resync_from,
            watched,
            floor,
            shutting_down: _,
            jitter: _,
            counters: _,
        } = self;
        debug_assert!(ready.is_empty() && output.is_empty(), "outputs hide what they carry");
        debug_assert!(resync_from.is_none(), "a resync ends before a poll does");
        visitor.identity(identity);
        visitor.now(now);
        visitor.floor(floor);
        visitor.last_acquisition(last_n);
        rekey(leases, |key, entry| {
            entry.visit(visitor);
            let mut key = *key;
            key.visit(visitor);
            key
        });
        rekey(workers, |key, entry| {
            entry.visit(visitor);
            let mut key = *key;
            key.visit(visitor);
            key
        });
        rekey(timers, |key, entry| {
            entry.visit(visitor);
            let mut key = *key;
            key.visit(visitor);
            key
        });
        rekey(periodics, |key, entry| {
            let PeriodicEntry { periodic, name: _ } = entry;
            periodic.visit(visitor);
            let mut key = *key;
            key.visit(visitor);
            key
        });
        rekey(coordinators, |key, entry| {
            entry.visit(visitor);
            let mut key = *key;
            key.visit(visitor);
            key
        });
        if let Some((MemberKey(number), MemberEntry { membership, deadline, ready: _ })) = member {
            membership.visit(visitor);
            if let Some(deadline) = deadline {
                visitor.deadline(deadline);
            }
            visitor.machine(number);
        }
        rekey(slots, |&number, slot| {
            slot.visit(visitor, number);
            renumbered(visitor, number)
        });
        resort(deadlines, |&(mut at, mut machine)| {
            visitor.deadline(&mut at);
            match &mut machine {
                Machine::Lease(key) => key.visit(visitor),
                Machine::Worker(key) => key.visit(visitor),
                Machine::Timer(key) => key.visit(visitor),
                Machine::Coordinator(key) => key.visit(visitor),
                Machine::Member => {}
            }
            (at, machine)
        });
        resort(watched, |&number| renumbered(visitor, number));
        names.values_mut().for_each(|number| visitor.machine(number));
        visitor.last_machine(next_machine);
    }
}

impl<J: Jitter> Entry<J> {
    fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { lease, place, worker, deadline, ready: _ } = self;
        lease.visit(visitor);
        match place {
            Place::Slot(slot) => visitor.machine(slot),
            Place::Claim { claim: Claim { periodic, timer, tick, end: _, beside: _ }, name: _ } => {
                periodic.visit(visitor);
                timer.visit(visitor);
                visitor.tick_number(tick);
            }
        }
        if let Some(worker) = worker {
            worker.visit(visitor);
        }
        if let Some(deadline) = deadline {
            visitor.deadline(deadline);
        }
    }
}

impl<J: Jitter> TimerEntry<J> {
    fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { timer, name: _, periodic, deadline, ready: _ } = self;
        timer.visit(visitor);
        if let Some(periodic) = periodic {
            periodic.visit(visitor);
        }
        if let Some(deadline) = deadline {
            visitor.deadline(deadline);
        }
    }
}

impl CoordinatorEntry {
    fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { coordinator, deadline } = self;
        coordinator.visit(visitor);
        if let Some(deadline) = deadline {
            visitor.deadline(deadline);
        }
    }
}

impl Slot {
    fn visit(&mut self, visitor: &mut impl Visitor, number: u64) {
        let Self {
            name: _,
            leases: _,
            candidates,
            impatient,
            active,
            courtesy: _,
            seen,
            watch,
            registered: _,
            sequence,
        } = self;
        for keys in [candidates, impatient] {
            resort(keys, |&(mut key)| {
                key.visit(visitor);
                key
            });
        }
        if let Some(active) = active {
            active.visit(visitor);
        }
        visitor.floor(seen);
        match watch {
            Watch::Asked { sequence } => visitor.sequence(number, sequence),
            Watch::Off | Watch::On | Watch::Never => {}
        }
        visitor.next_sequence(number, sequence);
    }
}

fn renumbered(visitor: &mut impl Visitor, mut number: u64) -> u64 {
    visitor.machine(&mut number);
    number
}

/// Gives every entry the key that `visit` says. Mostly it is the one that it has.
fn rekey<K: Ord, V>(map: &mut BTreeMap<K, V>, mut visit: impl FnMut(&K, &mut V) -> K) {
    let keys: Vec<K> = map.iter_mut().map(|(key, value)| visit(key, value)).collect();
    if !keys.iter().eq(map.keys()) {
        *map = keys.into_iter().zip(take(map).into_values()).collect();
    }
}

/// Replaces every element by what `visit` says.
fn resort<T: Ord>(set: &mut BTreeSet<T>, visit: impl FnMut(&T) -> T) {
    let elements: Vec<T> = set.iter().map(visit).collect();
    if !elements.iter().eq(&*set) {
        *set = elements.into_iter().collect();
    }
}
