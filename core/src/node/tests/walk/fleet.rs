//! What the walk does with the membership, coordinators, and the drain of the whole instance.

use alloc::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::assign::{AnyAssigner, Balanced, Digest, Primary};
use crate::coordinator::{CoordinatorOptions, Rebalance};
use crate::member::{Member, MemberOptions, Presence};
use crate::name::CoordinatorKey;
use crate::time::Timestamp;

/// The fleet, as the store has it and as the node has told of it.
#[derive(Default)]
pub(super) struct Fleet {
    joined: bool,
    leaves: bool,
    left: bool,
    /// The views that there were; the version of each is its place.
    views: Vec<(bool, Vec<Member>)>,
    coordinators: BTreeSet<CoordinatorKey>,
    ended: usize,
    /// The workers of coordinators, and whether each was told of as dropped.
    shares: BTreeMap<WorkerKey, (CoordinatorKey, bool)>,
    draining: bool,
    drained: bool,
    pub(super) marks: Marks,
}

/// How often what is rare has happened.
#[derive(Default, Debug)]
pub(super) struct Marks {
    assigned: usize,
    dropped: usize,
    drained: usize,
    by_operator: usize,
    resumed: usize,
    left: usize,
}

impl Marks {
    pub(super) fn add(&mut self, more: &Self) {
        self.assigned += more.assigned;
        self.dropped += more.dropped;
        self.drained += more.drained;
        self.by_operator += more.by_operator;
        self.resumed += more.resumed;
        self.left += more.left;
    }

    /// A walk that never comes to where it matters shows nothing.
    pub(super) fn check(&self) {
        let Self { assigned, dropped, drained, by_operator, resumed, left } = self;
        let least = [assigned, dropped, drained, by_operator, resumed, left].into_iter().min();
        assert!(least.is_some_and(|least| *least >= 50), "{self:?}");
    }
}

impl Walk {
    pub(super) fn do_something_in_the_fleet(&mut self) {
        let some = self.below(self.fleet.coordinators.len().max(1));
        let coordinator = self.fleet.coordinators.iter().nth(some).copied();
        match (self.below(12), coordinator) {
            (0 | 1, _) if !self.fleet.joined => {
                self.fleet.joined = true;
                self.node.join(self.now, MemberOptions::default()).expect("not shutting down");
            }
            (0..=2, _) if self.fleet.joined && self.fleet.coordinators.len() < 2 => self.coordinate(),
            (3 | 4, Some(key)) => {
                let name = self.some_name();
                self.node.add_workload(self.now, key, name).expect("known");
            }
            (5, Some(key)) => {
                let name = self.some_name();
                self.node.remove_workload(self.now, key, &name).expect("known");
            }
            (6, Some(key)) if self.below(4) == 0 => {
                self.node.drain_coordinator(self.now, key).expect("known");
            }
            (6, Some(key)) if self.below(4) == 0 => {
                self.node.stop_coordinator(self.now, key).expect("known");
            }
            (7, _) if self.below(4) == 0 => self.node.drain_all(self.now),
            (7, _) if self.below(20) == 0 => self.node.stop_all(self.now),
            (8, _) => self.node.resume(self.now),
            (9 | 10, _) => self.change_the_view(),
            (11, _) => self.node.handle(self.now, Event::MembersHint).expect("never misuse"),
            _ => {}
        }
    }

    fn coordinate(&mut self) {
        let assigner: AnyAssigner = if self.below(2) == 0 { Balanced.into() } else { Primary.into() };
        let mut worker = WorkerOptions::new(options());
        worker.restart = RestartPolicy::new([Restart::Always, Restart::Never][self.below(2)]);
        let mut options = CoordinatorOptions::new(assigner, worker);
        options.hold_down = Duration::from_secs(self.below(3) as u64 * 5);
        options.rebalance = [Rebalance::Stop, Rebalance::Drain][self.below(2)];
        let names = ["a", "b", "c"].into_iter().filter(|_| self.dice.below(2) == 0).map(name);
        let names: Vec<_> = names.collect();
        let key = self.node.start_coordinator(self.now, names, options).expect("it has joined");
        self.fleet.coordinators.insert(key);
    }

    /// Members come, go, grow older, and an operator makes up his mind.
    fn change_the_view(&mut self) {
        let marked = self.fleet.views.last().is_some_and(|(marked, _)| *marked);
        let marked = if self.below(8) == 0 { !marked } else { marked };
        let digests: Vec<Digest> = self.node.members().map_or_else(Vec::new, |(members, _)| {
            members.iter().flat_map(|member| member.digests.iter().copied()).collect()
        });
        let mut members = Vec::new();
        for n in 0..self.below(4) {
            let identity = Identity::new("other", Incarnation::new(n as u128)).expect("a fine name");
            let mut member = Member::new(identity, Timestamp::from_nanos(self.dice.below(100) as i64));
            member.age = Duration::from_millis(self.dice.below(20_000));
            member.draining = self.below(4) == 0;
            let digests = digests.iter().copied().filter(|_| self.dice.below(3) > 0);
            member.digests = digests.collect();
            members.push(member);
        }
        self.fleet.views.push((marked, members));
    }

    /// The store's answer: now and then by an older view, and now and then without this instance.
    pub(super) fn presence(&mut self, draining: bool, digests: &[Digest], known: Option<u64>) -> Presence {
        if self.fleet.views.is_empty() {
            self.change_the_view();
        }
        let late = if self.below(6) == 0 { self.below(3) } else { 0 };
        let version = self.fleet.views.len().saturating_sub(1 + late);
        let (marked, mut members) = self.fleet.views[version].clone();
        let joined = Timestamp::from_nanos(50);
        if self.below(10) > 0 {
            let mut own = Member::new(self.node.identity().clone(), joined);
            own.age = Duration::from_millis(self.dice.below(20_000));
            (own.draining, own.digests) = (draining || marked, digests.into());
            members.push(own);
        }
        // What this instance says of itself makes versions, too.
        let version = version as u64 * 1_000 + digests.len() as u64 * 2 + u64::from(draining);
        let presence = if known == Some(version) {
            Presence::unchanged(joined, version)
        } else {
            Presence::new(joined, version, members)
        };
        Presence { drain: marked, ..presence }
    }

    /// What is told of the fleet.
    pub(super) fn fleet_of(&mut self, output: &Output) {
        let fleet = &mut self.fleet;
        match output {
            Output::Command(Command::Heartbeat { digests, .. }) => {
                assert!(fleet.joined && !fleet.left && !fleet.leaves, "a heartbeat after the end");
                assert!(digests.is_sorted() && digests.len() <= CoordinatorOptions::MOST);
            }
            Output::Command(Command::Leave { .. }) => {
                assert!(self.node.shutting_down && self.node.len() == 1, "it leaves too early");
                fleet.leaves = true;
            }
            Output::Command(
                Command::Acquire { .. } | Command::ClaimTick { .. } | Command::StartWorkload { .. },
            ) => assert!(!fleet.draining, "begun while it drains: {output:?}"),
            Output::Notice(Notice::Left) => {
                assert!(!core::mem::replace(&mut fleet.left, true), "it leaves twice");
                fleet.marks.left += 1;
            }
            Output::Notice(Notice::Draining { by_operator }) => {
                assert!(!core::mem::replace(&mut fleet.draining, true), "it drains already");
                fleet.drained = false;
                fleet.marks.by_operator += usize::from(*by_operator);
            }
            Output::Notice(Notice::Resumed) => {
                assert!(core::mem::replace(&mut fleet.draining, false), "there was no drain");
                fleet.marks.resumed += 1;
            }
            Output::Notice(Notice::Drained) => {
                assert!(fleet.draining && !core::mem::replace(&mut fleet.drained, true), "it was told");
                assert!(self.node.leases.is_empty() && self.working.is_empty(), "something is held");
                fleet.marks.drained += 1;
            }
            Output::Notice(Notice::WorkloadAssigned { coordinator, worker }) => {
                assert!(fleet.coordinators.contains(coordinator), "{coordinator} has ended");
                assert!(!fleet.draining, "assigned while it drains");
                assert_eq!(fleet.shares.insert(*worker, (*coordinator, false)), None);
                fleet.marks.assigned += 1;
            }
            Output::Notice(Notice::WorkloadDropped { coordinator, worker, .. }) => {
                let share = fleet.shares.get_mut(worker).expect("it was assigned, and has not ended");
                assert_eq!(*share, (*coordinator, false), "{worker} is dropped twice");
                share.1 = true;
                fleet.marks.dropped += 1;
            }
            Output::Notice(Notice::WorkerEnded { worker }) => {
                fleet.shares.remove(worker);
            }
            Output::Notice(Notice::CoordinatorEnded { coordinator }) => {
                assert!(fleet.coordinators.remove(coordinator), "{coordinator} ends twice");
                assert!(fleet.shares.values().all(|(of, _)| of != coordinator), "{coordinator} has work");
                fleet.ended += 1;
            }
            Output::Notice(_) | Output::Command(_) | Output::Wait(_) => {}
        }
    }

    /// What holds of members and coordinators whenever everything was polled; returns their deadlines.
    pub(super) fn check_fleet(&self) -> Vec<(Instant, Machine)> {
        let (node, fleet) = (&self.node, &self.fleet);
        let mut deadlines = Vec::new();
        if let Some((_, entry)) = &node.member {
            deadlines.extend(entry.check(self.now).map(|at| (at, Machine::Member)));
        }
        assert_eq!(node.member.is_some(), fleet.joined && !fleet.left);
        for (key, entry) in &node.coordinators {
            deadlines.extend(entry.check(self.now).map(|at| (at, Machine::Coordinator(*key))));
            let mut workers: Vec<_> = entry.coordinator.workers().collect();
            workers.sort_unstable();
            let mine = node.workers.keys().copied();
            assert!(mine.filter(|worker| node.worker_coordinator(*worker) == Some(*key)).eq(workers));
        }
        assert!(node.coordinators.keys().eq(&fleet.coordinators));
        for (worker, (coordinator, dropped)) in &fleet.shares {
            assert_eq!(node.worker_coordinator(*worker), Some(*coordinator));
            assert!(*dropped || !fleet.draining, "{worker} goes on while the instance drains");
        }
        if !node.shutting_down {
            assert_eq!(node.is_draining(), fleet.draining);
        }
        if node.is_draining() {
            assert!(node.leases.values().all(|entry| !entry.lease.is_candidate()), "a candidacy goes on");
            assert_eq!(fleet.draining && node.leases.is_empty(), fleet.draining && fleet.drained);
        }
        deadlines
    }

    /// In the end nothing is left, and whoever had joined has left.
    pub(super) fn check_fleet_ends(&self) {
        let fleet = &self.fleet;
        assert_eq!(fleet.joined, fleet.left);
        assert!(fleet.coordinators.is_empty() && fleet.shares.is_empty());
    }
}
