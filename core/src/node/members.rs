//! The membership of a node, and the drain of the whole instance.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Machine, Node, move_deadline};
use crate::assign::Digest;
use crate::command::{Misuse, Output, Reply};
use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::jitter::Jitter;
use crate::member::{Heard, Member, MemberOptions, Membership, Presence, Says};
use crate::name::{CommandId, MemberKey};
use crate::notice::{AcquireFailure, Notice};
use crate::planted::{Bug, planted};
use crate::time::Instant;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MemberEntry<J> {
    pub(super) membership: Membership<J>,
    /// Where it stands among the deadlines.
    pub(super) deadline: Option<Instant>,
    /// Whether it stands among the ready.
    pub(super) ready: bool,
}

/// Whether this instance drains, and how far that has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Drain {
    /// The program wants it.
    asked: bool,
    /// It is under way.
    pub(super) on: bool,
    /// It was told that nothing runs any more.
    told: bool,
}

impl<J: Jitter> Node<J> {
    /// Joins the fleet: from now on heartbeats show that this instance is alive, and bring back who else is. Harmless
    /// when repeated; the first options hold.
    ///
    /// # Errors
    /// [`Misuse::ShuttingDown`] after [`Node::shutdown`]; [`Misuse::Config`] if a setting breaks a rule.
    pub fn join(&mut self, now: Instant, options: MemberOptions) -> Result<(), Misuse> {
        if self.shutting_down {
            return Err(Misuse::ShuttingDown);
        }
        options.check()?;
        self.clamp(now);
        if self.member.is_none() {
            let key = MemberKey(self.next_machine());
            let says = Says { draining: self.drain.asked, digests: Arc::from([]) };
            let membership = Membership::new(self.now, key, options, says, self.jitter.0.fork());
            self.member = Some((key, MemberEntry { membership, deadline: None, ready: false }));
            self.settle_member();
        }
        Ok(())
    }

    /// The members of the fleet as last heard, this instance among them, sorted by identity, and when their ages were
    /// true; `None` before the first heartbeat was answered.
    #[must_use]
    pub fn members(&self) -> Option<(&[Member], Instant)> {
        let (_, entry) = self.member.as_ref()?;
        entry.membership.members().map(|(members, at)| (&**members, at))
    }

    /// Drains the whole instance: nothing is started or claimed any more, candidacies are given up, and all work is told
    /// to end in order, within the grace of its lease's options. [`Notice::Drained`] tells when nothing is held any
    /// more. Harmless when repeated, and after [`Node::shutdown`], which drains by itself and tells of no drain.
    ///
    /// The instance stays a member, one that drains, until [`Node::shutdown`]; [`Node::resume`] takes the drain back.
    /// Costs O(n log n), once.
    pub fn drain_all(&mut self, now: Instant) {
        self.clamp(now);
        self.ask_for_drain(true);
    }

    /// Like [`Node::drain_all`], without a grace: all work is stopped hard at once. Also for a drain that is under way.
    pub fn stop_all(&mut self, now: Instant) {
        self.drain_all(now);
        // The last ones first, as for a drain.
        let leases: Vec<_> = self.leases.keys().rev().copied().collect();
        for key in leases {
            if let Some(entry) = self.leases.get_mut(&key) {
                entry.lease.stop_now(self.now);
                self.settle(key);
            }
        }
    }

    /// Takes [`Node::drain_all`] back: workers, jobs and coordinators go on. An operator's drain stays.
    pub fn resume(&mut self, now: Instant) {
        self.clamp(now);
        self.ask_for_drain(false);
    }

    fn ask_for_drain(&mut self, asked: bool) {
        self.drain.asked = asked;
        self.say();
        self.settle_drain();
    }

    /// Whether the instance drains, by the program's will or an operator's.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.drain.on
    }

    /// Brings the drain in line with who wants it.
    fn settle_drain(&mut self) {
        let marked = self.member.as_ref().is_some_and(|(_, entry)| entry.membership.is_marked());
        let on = self.drain.asked || marked || self.shutting_down;
        if self.drain.on == on {
            return;
        }
        self.drain = Drain { on, told: false, ..self.drain };
        let by_operator = marked && !self.drain.asked;
        self.output.push_back(Output::Notice(if on {
            Notice::Draining { by_operator }
        } else {
            Notice::Resumed
        }));
        if on {
            self.drain_each();
        } else {
            self.resume_workers();
            self.touch_coordinators();
        }
    }

    fn drain_each(&mut self) {
        self.pause_workers();
        self.drain_jobs();
        self.drain_leases(AcquireFailure::Draining);
        self.drain_coordinators();
    }

    /// Ends all candidacies with this verdict, and drains all holds.
    pub(super) fn drain_leases(&mut self, why: AcquireFailure) {
        // The last ones first: whoever queues must not come to its turn only because those before it have left.
        let keys: Vec<_> = self.leases.keys().rev().copied().collect();
        for key in keys {
            if let Some(entry) = self.leases.get_mut(&key) {
                entry.lease.refuse(self.now, why);
                entry.lease.drain(self.now);
                self.settle(key);
            }
        }
    }

    /// A node that shuts down drains, and drains its machines by itself. Whoever waits for a drain that is under way
    /// still hears of its end.
    pub(super) fn drain_for_good(&mut self) {
        let told = self.drain.told || !self.drain.on;
        self.drain = Drain { on: true, told, ..self.drain };
        self.say();
    }

    /// What is to be told before the node waits: that nothing is held any more.
    pub(super) fn drained(&mut self) -> Option<Output> {
        let drained = self.drain.on && self.leases.is_empty();
        (drained && !core::mem::replace(&mut self.drain.told, true))
            .then_some(Output::Notice(Notice::Drained))
    }

    /// Leaves the fleet once nothing else is left of a node that shuts down: the heartbeat ends last.
    pub(super) fn leave_if_last(&mut self) -> bool {
        let nothing_else = self.leases.is_empty()
            && self.workers.is_empty()
            && self.timers.is_empty()
            && self.periodics.is_empty()
            && self.coordinators.is_empty();
        let last = self.shutting_down && (nothing_else || planted(Bug::LeavesFirst));
        let Some((_, entry)) = self.member.as_mut().filter(|_| last) else { return false };
        let leaves = entry.membership.leave(self.now);
        self.settle_member();
        leaves
    }

    /// What this instance says of itself may have to change. That an operator wants a drain the store knows by itself.
    pub(super) fn say(&mut self) {
        let coordinators = self.coordinators.values().map(|entry| &entry.coordinator);
        let mut digests: BTreeSet<Digest> = coordinators.clone().filter_map(Coordinator::digest).collect();
        for earlier in coordinators.flat_map(Coordinator::earlier) {
            if digests.len() < CoordinatorOptions::MOST {
                digests.insert(earlier);
            }
        }
        let digests = digests.into_iter().collect();
        let draining = self.drain.asked || self.shutting_down;
        let Some((_, entry)) = &mut self.member else { return };
        entry.membership.say(self.now, Says { draining, digests });
        self.settle_member();
    }

    pub(super) fn members_hinted(&mut self) {
        if let Some((_, entry)) = &mut self.member {
            entry.membership.hinted(self.now);
            self.settle_member();
        }
    }

    /// The deadline and the readiness of the membership.
    fn settle_member(&mut self) {
        let Some((_, entry)) = &mut self.member else { return };
        let machine = Machine::Member;
        move_deadline(&mut self.deadlines, machine, &mut entry.deadline, entry.membership.deadline());
        if !entry.ready && entry.membership.has_output() {
            entry.ready = true;
            self.ready.push_back(machine);
        }
    }

    pub(super) fn member_due(&mut self) {
        if let Some((_, entry)) = &mut self.member {
            entry.membership.timeout(self.now);
            self.settle_member();
        }
    }

    pub(super) fn poll_member(&mut self) -> Option<Output> {
        let entry = self.member.as_mut().map(|(_, entry)| entry);
        let output = entry.and_then(|entry| entry.membership.next_output());
        let entry = self.member.as_mut().map(|(_, entry)| entry);
        if entry.as_ref().is_none_or(|entry| !entry.membership.has_output()) {
            self.ready.pop_front();
            if let Some(entry) = entry {
                entry.ready = false;
            }
        }
        if output == Some(Output::Notice(Notice::Left)) {
            self.member = None;
        }
        self.settle_member();
        output
    }

    /// Whether this is the number of the membership, alive or not.
    pub(super) fn is_member(&self, machine: u64) -> bool {
        self.member.as_ref().is_some_and(|(key, _)| key.0 == machine)
    }

    pub(super) fn present(&mut self, now: Instant, id: CommandId, presence: Presence) -> Result<(), Misuse> {
        if !self.is_member(id.machine) {
            return self.late_answer(now, id);
        }
        let now = self.now.max(now);
        let Some((_, entry)) = &mut self.member else { return Ok(()) };
        entry.membership.check(id)?;
        let Heard { view, mark, stale } = entry.membership.present(now, id, presence);
        self.clamp(now);
        self.counters.0.stale_replies += u64::from(stale);
        self.settle_member();
        if view {
            self.touch_coordinators();
        }
        if mark {
            self.settle_drain();
        }
        Ok(())
    }

    /// A reply to a request of the membership: that it has left, or a failure.
    pub(super) fn member_reply(&mut self, now: Instant, id: CommandId, reply: Reply) -> Result<(), Misuse> {
        let now = self.now.max(now);
        let Some((_, entry)) = &mut self.member else { return Ok(()) };
        entry.membership.check(id)?;
        let used = match reply {
            Reply::Left if entry.membership.is_leave(id) => entry.membership.left(),
            Reply::Failed(failure) => entry.membership.failed(now, id, failure),
            Reply::Granted { .. }
            | Reply::Held { .. }
            | Reply::TickTaken
            | Reply::TickOverlaps
            | Reply::Renewed
            | Reply::Released { .. }
            | Reply::NotYours
            | Reply::Left
            | Reply::Watching => return Err(Misuse::WrongReply { id, reply }),
        };
        self.clamp(now);
        self.counters.0.stale_replies += u64::from(!used);
        self.settle_member();
        Ok(())
    }
}

#[cfg(test)]
impl<J: Jitter> MemberEntry<J> {
    /// What holds whenever everything was polled; returns its deadline.
    pub(super) fn check(&self, now: Instant) -> Option<Instant> {
        assert_eq!(self.deadline, self.membership.deadline());
        assert!(self.deadline.is_none_or(|at| at > now), "the membership is overdue");
        assert!(!self.ready && !self.membership.has_output());
        self.deadline
    }
}
