//! All machines of a process behind one `handle`, one `poll` and one heap of deadlines.
//!
//! Candidates of one process for one lease queue here, in the order in which they came: the first of them
//! talks to the store, and the others cost it nothing. A name is watched while anyone waits for it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;

use crate::command::{Deadlines, Event, Exit, Misuse, Output, Reply};
use crate::jitter::Jitter;
use crate::lease::{Lease, LeaseOptions, WaitLimit};
use crate::name::{
    Acquisition, CommandId, CoordinatorKey, Identity, LeaseKey, LeaseName, MemberKey, Owner, PeriodicKey,
    TimerKey, TimerName, Token, WorkerKey,
};
use crate::notice::{AcquireFailure, Notice};
use crate::time::Instant;
use crate::untracked::Untracked;

mod coordinators;
mod members;
#[cfg(feature = "model")]
mod model;
mod periodics;
mod slots;
#[cfg(test)]
mod tests;
mod timers;
mod workers;

use coordinators::CoordinatorEntry;
use members::{Drain, MemberEntry};
use periodics::{Claim, PeriodicEntry};
use slots::Slot;
use timers::TimerEntry;
use workers::WorkerEntry;

/// Counts of what was ignored. They decide nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Replies of a past epoch, or given a second time: dropped.
    pub stale_replies: u64,
    /// How often `now` was earlier than before: clamped.
    pub clock_backwards: u64,
}

/// All machines of a process.
///
/// Drive it with [`Node::handle`] and [`Node::poll`]: hand in what has happened, then poll until the answer is
/// [`Output::Wait`], and come back at that instant at the latest.
///
/// ```
/// use core::time::Duration;
/// use tenure_core::*;
///
/// let identity = Identity::new("host:1234", Incarnation::new(42))?;
/// let mut node = Node::new(identity, SplitMix::new(7));
/// let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default())?;
///
/// let now = Instant::ZERO;
/// let lease = node.acquire(now, LeaseName::new("backup")?, LeaseOptions::new(timing))?;
/// let Output::Command(Command::Acquire { id, n, .. }) = node.poll() else { panic!() };
/// assert_eq!(node.owner(n).to_string(), "host:1234/0000000000000000000000000000002a.1");
///
/// // ... the store says yes:
/// node.handle(now, Event::Reply { id, reply: Reply::Granted { token: Token::new(1) } })?;
/// assert!(matches!(node.poll(), Output::Notice(Notice::Acquired { .. })));
/// assert!(matches!(node.poll(), Output::Wait(Some(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node<J> {
    identity: Identity,
    now: Instant,
    /// The number of the last lease, worker, timer, periodic job or name.
    next_machine: u64,
    /// The number of the last acquisition.
    last_n: Acquisition,
    leases: BTreeMap<LeaseKey, Entry<J>>,
    names: BTreeMap<LeaseName, u64>,
    slots: BTreeMap<u64, Slot>,
    workers: BTreeMap<WorkerKey, WorkerEntry<J>>,
    timers: BTreeMap<TimerKey, TimerEntry<J>>,
    periodics: BTreeMap<PeriodicKey, PeriodicEntry>,
    member: Option<(MemberKey, MemberEntry<J>)>,
    coordinators: BTreeMap<CoordinatorKey, CoordinatorEntry>,
    drain: Drain,
    deadlines: BTreeSet<(Instant, Machine)>,
    /// Machines with outputs, each once.
    ready: VecDeque<Machine>,
    /// Commands of the node's own: watches.
    output: VecDeque<Output>,
    /// The watched names that have not yet looked for themselves after a resync: those from here on.
    resync_from: Option<u64>,
    watched: BTreeSet<u64>,
    /// Above every token that was granted to a lease that is forgotten by now.
    floor: Token,
    shutting_down: bool,
    jitter: Untracked<J>,
    counters: Untracked<Counters>,
}

/// Of machines that are due at once the leases come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Machine {
    Lease(LeaseKey),
    Worker(WorkerKey),
    Timer(TimerKey),
    Member,
    Coordinator(CoordinatorKey),
}

/// What a lease stands for at the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The lease of this name.
    Slot(u64),
    /// The claim of a tick of this timer.
    Claim { claim: Claim, name: TimerName },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry<J> {
    lease: Lease<J>,
    place: Place,
    /// The worker whose run it is for.
    worker: Option<WorkerKey>,
    /// Where it stands among the deadlines.
    deadline: Option<Instant>,
    /// Whether it stands among the ready.
    ready: bool,
}

impl<J: Jitter> Node<J> {
    /// A node for this process.
    #[must_use]
    pub fn new(identity: Identity, jitter: J) -> Self {
        Self {
            identity,
            now: Instant::ZERO,
            next_machine: 0,
            last_n: Acquisition(0),
            leases: BTreeMap::new(),
            workers: BTreeMap::new(),
            timers: BTreeMap::new(),
            periodics: BTreeMap::new(),
            member: None,
            coordinators: BTreeMap::new(),
            drain: Drain::default(),
            names: BTreeMap::new(),
            slots: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            output: VecDeque::new(),
            resync_from: None,
            watched: BTreeSet::new(),
            floor: Token::ZERO,
            shutting_down: false,
            jitter: Untracked(jitter),
            counters: Untracked(Counters::default()),
        }
    }

    /// Enters a candidacy. What becomes of it is told by notices with the returned key; when the work under
    /// the lease has ended, or to give the candidacy up, call [`Node::release`]. While the instance drains it fails with
    /// [`AcquireFailure::Draining`].
    ///
    /// # Errors
    /// [`Misuse::ShuttingDown`] after [`Node::shutdown`].
    pub fn acquire(
        &mut self,
        now: Instant,
        name: LeaseName,
        options: LeaseOptions,
    ) -> Result<LeaseKey, Misuse> {
        if self.shutting_down {
            return Err(Misuse::ShuttingDown);
        }
        self.clamp(now);
        Ok(self.enter(name, options, None))
    }

    fn enter(&mut self, name: LeaseName, options: LeaseOptions, worker: Option<WorkerKey>) -> LeaseKey {
        let slot_id = match self.names.get(&name) {
            Some(&slot) => slot,
            None => {
                let slot = self.next_machine();
                self.names.insert(name.clone(), slot);
                self.slots.insert(slot, Slot::new(name));
                slot
            }
        };
        let key = LeaseKey(self.next_machine());
        let lease = Lease::new(self.now, key, options, self.jitter.0.fork());
        let impatient = lease.options().wait == WaitLimit::No;
        self.insert_lease(key, lease, Place::Slot(slot_id), worker);
        if let Some(slot) = self.slots.get_mut(&slot_id) {
            slot.leases += 1;
            slot.candidates.insert(key);
            if impatient {
                slot.impatient.insert(key);
            }
        }
        if self.drain.on {
            // The store is not asked.
            self.refuse(key, AcquireFailure::Draining);
        }
        self.settle(key);
        key
    }

    fn insert_lease(&mut self, key: LeaseKey, lease: Lease<J>, place: Place, worker: Option<WorkerKey>) {
        self.leases.insert(key, Entry { lease, place, worker, deadline: None, ready: false });
    }

    /// Says that the work under a hold has ended, and gives the lease back; or gives a candidacy up. Harmless
    /// when repeated, and for a key that has ended. A worker's lease needs none of this: it goes back with
    /// [`Event::WorkloadExited`].
    ///
    /// # Errors
    /// [`Misuse::UnknownLease`] for a key that this node never made.
    pub fn release(&mut self, now: Instant, lease: LeaseKey) -> Result<(), Misuse> {
        self.with(now, lease, Lease::end)?;
        self.work_ended(lease, Exit::Completed);
        Ok(())
    }

    /// Asks the work under a hold to end, within the grace of its options; the lease is renewed until
    /// [`Node::release`]. A candidacy is given up.
    ///
    /// # Errors
    /// [`Misuse::UnknownLease`] for a key that this node never made.
    pub fn drain(&mut self, now: Instant, lease: LeaseKey) -> Result<(), Misuse> {
        self.with(now, lease, Lease::drain)
    }

    /// Takes no new candidacies, ends those there are, and drains all holds. Costs O(n log n), once.
    pub fn shutdown(&mut self, now: Instant) {
        self.clamp(now);
        self.shutting_down = true;
        self.end_timers();
        self.drain_workers();
        self.drain_leases(AcquireFailure::ShuttingDown);
        self.end_coordinators();
        self.drain_for_good();
    }

    /// Takes an event in. Legal at any time, also with outputs waiting; O(log n).
    ///
    /// # Errors
    /// [`Misuse`] for a key or an id that this node never gave out, and for a reply that its command can't
    /// have. The node is as it was before.
    pub fn handle(&mut self, now: Instant, event: Event) -> Result<(), Misuse> {
        match event {
            Event::Timeout => self.clamp(now),
            Event::Reply { id, reply } => self.reply(now, id, reply)?,
            Event::TimerRead { id, view, at } => self.timer_read(now, id, view, at)?,
            Event::Present { id, presence } => self.present(now, id, presence)?,
            Event::MembersHint => {
                self.clamp(now);
                self.members_hinted();
            }
            Event::Hint { name, wake } => {
                self.clamp(now);
                if let Some(key) = self.names.get(&name).and_then(|slot| self.slots[slot].active)
                    && let Some(entry) = self.leases.get_mut(&key)
                {
                    entry.lease.handle(self.now, Event::Hint { name, wake })?;
                    self.settle(key);
                }
            }
            Event::Resync => {
                self.clamp(now);
                self.resync_from = Some(0);
                self.members_hinted();
            }
            Event::WorkloadExited { lease, exit } => {
                self.with(now, lease, |_, _| {})?;
                self.work_ended(lease, exit);
            }
        }
        Ok(())
    }

    /// The next thing to do; [`Output::Wait`] once there is nothing. O(log n).
    pub fn poll(&mut self) -> Output {
        loop {
            if let Some(output) = self.output.pop_front() {
                return output;
            }
            if let Some(&machine) = self.ready.front() {
                let output = match machine {
                    Machine::Lease(key) => self.poll_lease(key),
                    Machine::Worker(key) => self.poll_worker(key),
                    Machine::Timer(key) => self.poll_timer(key),
                    Machine::Member => self.poll_member(),
                    Machine::Coordinator(_) => {
                        // It has no outputs of its own, and never stands here.
                        self.ready.pop_front();
                        None
                    }
                };
                match output {
                    Some(output) => return output,
                    None => continue,
                }
            }
            match self.deadlines.first() {
                Some(&(deadline, Machine::Worker(key))) if deadline <= self.now => self.worker_due(key),
                Some(&(deadline, Machine::Timer(key))) if deadline <= self.now => self.timer_due(key),
                Some(&(deadline, Machine::Member)) if deadline <= self.now => self.member_due(),
                Some(&(deadline, Machine::Coordinator(key))) if deadline <= self.now => {
                    self.coordinator_due(key);
                }
                Some(&(deadline, Machine::Lease(key))) if deadline <= self.now => {
                    let verdict = self.verdict_before(key);
                    if let Some(entry) = self.leases.get_mut(&key) {
                        entry.lease.timeout(self.now, verdict);
                    }
                    self.settle(key);
                }
                next => {
                    let wait = Output::Wait(next.map(|&(deadline, _)| deadline));
                    let resync_from = self.resync_from;
                    match resync_from {
                        Some(from) => self.resync_one(from),
                        None => match self.drained() {
                            Some(drained) => return drained,
                            None if self.leave_if_last() => {}
                            None => return wait,
                        },
                    }
                }
            }
        }
    }

    /// The name of a lease; `None` for a claim, and once [`Notice::Ended`] was polled.
    #[must_use]
    pub fn name(&self, lease: LeaseKey) -> Option<&LeaseName> {
        let slot = self.leases.get(&lease)?.slot()?;
        self.slots.get(&slot).map(|slot| &slot.name)
    }

    /// The text to keep with a lease's record.
    #[must_use]
    pub fn text(&self, lease: LeaseKey) -> Option<&Arc<str>> {
        self.leases.get(&lease)?.lease.options().text.as_ref()
    }

    /// The owner of an acquisition of this process.
    #[must_use]
    pub fn owner(&self, n: Acquisition) -> Owner {
        self.identity.owner(n)
    }

    /// Who this process is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// When a hold ends; `None` if the lease is not held.
    #[must_use]
    pub fn deadlines(&self, lease: LeaseKey) -> Option<Deadlines> {
        self.leases.get(&lease)?.lease.deadlines()
    }

    /// The token under which work may start at `now`; `None` if it may not, also while earlier work is stopped.
    #[must_use]
    pub fn valid(&self, now: Instant, lease: LeaseKey) -> Option<Token> {
        self.leases.get(&lease)?.lease.valid(now)
    }

    /// Counts of what was ignored.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.0
    }

    /// How many holds, candidacies, workers, timers, periodic jobs and coordinators there are, those included that are
    /// about to end; the membership counts as one.
    #[must_use]
    pub fn len(&self) -> usize {
        let machines = self.leases.len() + self.workers.len() + self.timers.len() + self.periodics.len();
        machines + self.coordinators.len() + usize::from(self.member.is_some())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn clamp(&mut self, now: Instant) {
        if now < self.now {
            self.counters.0.clock_backwards += 1;
        }
        self.now = self.now.max(now);
    }

    fn next_machine(&mut self) -> u64 {
        self.next_machine += 1;
        self.next_machine
    }

    /// Whether a machine with this number was ever made.
    fn was_made(&self, machine: u64) -> bool {
        (1..=self.next_machine).contains(&machine)
    }

    fn with(
        &mut self,
        now: Instant,
        key: LeaseKey,
        call: impl FnOnce(&mut Lease<J>, Instant),
    ) -> Result<(), Misuse> {
        if !self.was_made(key.0) || (self.lives(key.0) && !self.leases.contains_key(&key)) {
            return Err(Misuse::UnknownLease(key));
        }
        self.clamp(now);
        if let Some(entry) = self.leases.get_mut(&key) {
            call(&mut entry.lease, self.now);
            self.settle(key);
        }
        Ok(())
    }

    fn reply(&mut self, now: Instant, id: CommandId, reply: Reply) -> Result<(), Misuse> {
        if !self.was_made(id.machine)
            || self.workers.contains_key(&WorkerKey(id.machine))
            || self.periodics.contains_key(&PeriodicKey(id.machine))
            || self.coordinators.contains_key(&CoordinatorKey(id.machine))
        {
            return Err(Misuse::UnknownCommand(id));
        }
        if self.timers.contains_key(&TimerKey(id.machine)) {
            return self.timer_failed(now, id, reply);
        }
        if self.is_member(id.machine) {
            return self.member_reply(now, id, reply);
        }
        if self.slots.contains_key(&id.machine) {
            return self.watch_reply(now, id, reply);
        }
        let key = LeaseKey(id.machine);
        match self.leases.get_mut(&key) {
            Some(entry) => {
                let before = entry.lease.stale_replies();
                let gone = entry.lease.gone_by(reply);
                entry.lease.handle(self.now.max(now), Event::Reply { id, reply })?;
                self.counters.0.stale_replies += entry.lease.stale_replies() - before;
                let slot = entry.slot();
                let active = slot.and_then(|slot| self.slots.get(&slot)).and_then(|slot| slot.active);
                self.clamp(now);
                self.settle(key);
                if let Some(at_once) = gone
                    && let Some(active) = active.filter(|active| *active != key)
                {
                    // It was our own record that the next candidate here may wait for.
                    self.look_again(active, at_once);
                }
            }
            None => {
                self.clamp(now);
                self.counters.0.stale_replies += 1;
            }
        }
        Ok(())
    }

    /// The next output of a lease that is ready.
    fn poll_lease(&mut self, key: LeaseKey) -> Option<Output> {
        let Some(entry) = self.leases.get_mut(&key) else {
            self.ready.pop_front();
            return None;
        };
        let output = match entry.lease.poll() {
            Output::Wait(_) => None,
            output => Some(output),
        };
        if !entry.lease.has_output() {
            entry.ready = false;
            self.ready.pop_front();
        }
        let worker = entry.worker;
        let claim = if let Place::Claim { claim, .. } = &entry.place { Some(*claim) } else { None };
        let output = match claim {
            Some(claim) => output.map(|output| self.as_claim(claim, output)),
            None => output,
        };
        let beside = claim.is_some_and(|claim| claim.beside);
        if matches!(output, Some(Output::Notice(Notice::Ended { .. }))) {
            self.forget(key);
        }
        let output = match worker {
            Some(worker) => self.through_worker(worker, output?),
            None => output,
        };
        // The run is told of by its lease; nobody has heard of the claim beside it.
        output.filter(|output| !beside || !matches!(output, Output::Notice(_)))
    }

    /// Removes a lease that has ended, and its name with the last of them.
    fn forget(&mut self, key: LeaseKey) {
        let Some(entry) = self.leases.remove(&key) else { return };
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, Machine::Lease(key)));
        }
        self.floor = self.floor.max(entry.lease.granted());
        if let Some(id) = entry.slot()
            && let Some(slot) = self.slots.get_mut(&id)
        {
            slot.leases -= 1;
            if slot.leases == 0 {
                self.names.remove(&slot.name);
                self.slots.remove(&id);
                self.watched.remove(&id);
            }
        }
    }
}

impl<J> Entry<J> {
    /// The slot of the name that it is a lease of; `None` for a claim.
    fn slot(&self) -> Option<u64> {
        match &self.place {
            Place::Slot(slot) => Some(*slot),
            Place::Claim { .. } => None,
        }
    }
}

/// Brings a machine's place among the deadlines in line with what it says.
fn move_deadline(
    deadlines: &mut BTreeSet<(Instant, Machine)>,
    machine: Machine,
    place: &mut Option<Instant>,
    deadline: Option<Instant>,
) {
    if *place != deadline {
        place.map(|old| deadlines.remove(&(old, machine)));
        deadlines.extend(deadline.map(|new| (new, machine)));
        *place = deadline;
    }
}
