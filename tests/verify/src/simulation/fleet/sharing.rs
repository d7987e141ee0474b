//! Members and coordinators: what instances share out, what programs and operators do with them, and what goes wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::{
    CoordinatorKey, CoordinatorOptions, LeaseName, LeaseOptions, MemberOptions, Notice, Rebalance, Restart,
    RestartPolicy, WorkerOptions,
};

use super::super::member::Worker;
use super::super::shares::{Kind, Rule, Shares};
use super::super::{FIRST_DELAY, LONGEST_DELAY, MOST_WORKLOADS, Violation};
use super::driver::LATE;
use super::users::GRACE;
use super::{Condition, Fact, Fault, Fleet, Happening, MS, SECOND, What};

/// How long it takes until everybody was told of a change of the workloads.
const ROLLOUT: u64 = 2 * SECOND;

impl Fleet {
    /// What the fleet shares out.
    pub(super) fn make_shares(&mut self) {
        let first = self.world.names.len();
        let lane = self.tape.of(Fault::Sharing);
        let mut member = MemberOptions::default();
        member.ttl = [1_500, 3_000, 3_000, 1_000].map(Duration::from_millis)[lane.pick(4)];
        let count = 1 + lane.pick(MOST_WORKLOADS);
        let mut kind = || Kind {
            rule: Rule::ALL[lane.pick(Rule::ALL.len())],
            hold_down: [1_000, 300, 0].map(Duration::from_millis)[lane.pick(3)],
            rebalance: [Rebalance::Stop, Rebalance::Drain][lane.pick(2)],
            workloads: (first..first + count).collect(),
        };
        let mut kinds = vec![kind()];
        if self.faults.has(Fault::Deploys) {
            let mut next = kind();
            // The next version has one workload less, one that is new, or another rule for the same.
            match self.tape.of(Fault::Deploys).pick(3) {
                0 => next.workloads.retain(|name| *name > first),
                1 => next.workloads.extend([first + count]),
                _ => {}
            }
            // However its workloads change, it is never the same as the one before.
            next.hold_down += Duration::from_millis(1);
            kinds.push(next);
        }
        let names = (0..=MOST_WORKLOADS).filter_map(|i| LeaseName::new(format!("work-{i}")).ok());
        self.world.names.extend(names);
        self.expiring.resize(self.world.names.len(), false);
        self.world.shares = Some(Shares { member, kinds });
    }

    /// A process becomes a member, and takes part.
    pub(super) fn take_part(&mut self, member: usize) {
        let Some(shares) = &self.world.shares else { return };
        let (options, kinds) = (shares.member.clone(), shares.kinds.len());
        let now = self.reads_clock(member);
        let node = &mut self.world.members[member];
        if node.node.join(now, options).is_err() || node.part.coordinator.is_some() {
            return;
        }
        let kind = if kinds > 1 { self.tape.at(Fault::Deploys, member).pick(kinds) } else { 0 };
        let worker = self.share_options(member);
        let Some(shares) = &self.world.shares else { return };
        let Kind { rule, hold_down, rebalance, workloads } = &shares.kinds[kind];
        let names = workloads.iter().map(|name| self.world.names[*name].clone());
        let mut options = CoordinatorOptions::new(rule.assigner(), worker.clone());
        (options.hold_down, options.rebalance) = (*hold_down, *rebalance);
        let node = &mut self.world.members[member];
        if let Ok(key) = node.node.start_coordinator(now, names, options) {
            node.part.coordinator = Some(key);
            (node.part.kind, node.part.options) = (kind, Some(worker));
        }
    }

    fn share_options(&mut self, member: usize) -> WorkerOptions {
        let mut lease = LeaseOptions::new(self.world.timing);
        lease.grace = GRACE;
        if self.chance(Fault::Limits, member, 3) {
            lease.grace = [Duration::ZERO, self.world.timing.ttl() * 3 / 4]
                [self.tape.at(Fault::Limits, member).pick(2)];
        }
        let mut options = WorkerOptions::new(lease);
        options.restart =
            RestartPolicy::new(Restart::Always).delays(FIRST_DELAY, LONGEST_DELAY).expect("they fit");
        options
    }

    pub(super) fn member_notice(&mut self, member: usize, notice: &Notice) {
        self.note(&Fact::MemberNoticed { member, notice });
        let (now, late) = (self.world.members[member].heard_at, self.world.members[member].interrupted);
        match notice {
            Notice::WorkloadAssigned { coordinator, worker } => {
                let node = &self.world.members[member];
                let name = node.node.worker_name(*worker).cloned();
                let name = name.and_then(|name| self.world.names.iter().position(|other| *other == name));
                let (Some(name), Some(options)) = (name, node.part.options.clone()) else {
                    return self.unknown_share(member, *coordinator);
                };
                let worker = Worker { key: *worker, name, options, draining: false, share: true };
                self.world.members[member].workers.push(worker);
            }
            Notice::WorkloadDropped { coordinator, worker: key, why } => {
                let budget = self.world.timing.stop_budget();
                let Some(shares) = &self.world.shares else { return };
                let node = &mut self.world.members[member];
                let Some(worker) = node.workers.iter_mut().find(|worker| worker.key == *key) else {
                    return self.unknown_share(member, *coordinator);
                };
                worker.draining = true;
                let grace = worker.options.lease.grace;
                let soon = shares.kinds[node.part.kind].rebalance == Rebalance::Stop;
                let moves =
                    matches!(why, tenure_core::DropReason::Rebalance | tenure_core::DropReason::Removed);
                let limit = if soon && moves { budget.min(grace) } else { grace };
                let of_worker = |it: &&mut super::Candidacy| it.worker == Some(*key);
                for candidacy in node.candidacies.iter_mut().filter(of_worker).filter(|_| !late) {
                    let by = now + limit + LATE * 3;
                    candidacy.stop_by = Some(candidacy.stop_by.map_or(by, |at| at.min(by)));
                }
            }
            Notice::CoordinatorEnded { .. } => self.world.members[member].part.coordinator = None,
            Notice::Draining { .. } => {
                for candidacy in self.world.members[member].candidacies.iter_mut().filter(|_| !late) {
                    let by = now + candidacy.options.grace + LATE * 3;
                    candidacy.stop_by = Some(candidacy.stop_by.map_or(by, |at| at.min(by)));
                }
            }
            _ => {}
        }
    }

    fn unknown_share(&mut self, member: usize, coordinator: CoordinatorKey) {
        let what = format!("node {member} speaks of a worker of {coordinator} that is not there");
        self.violation.get_or_insert(Violation::new("what has ended stays silent", what));
    }

    /// A program or an operator drains somebody, or everybody, and takes it back later.
    pub(super) fn strike_drain(&mut self, member: usize) {
        let now = self.world.now;
        let lane = self.tape.of(Fault::Drains);
        let (choice, back) = (lane.pick(5), now + lane.below(5 * SECOND));
        let life = self.world.members[member].life;
        match choice {
            0 | 1 => {
                self.mark(Some(life), true);
                self.plan(back, Happening::Unmark { life: Some(life) });
            }
            2 => {
                self.mark(None, true);
                self.plan(back, Happening::Unmark { life: None });
            }
            _ => {
                if self.world.members[member].is_up() {
                    self.drain_all(member, true);
                    self.plan(back, Happening::GoOn { life });
                }
            }
        }
    }

    /// A program drains its instance, or takes that back.
    pub(super) fn drain_all(&mut self, member: usize, on: bool) {
        let now = self.reads_clock(member);
        self.struck(member, if on { What::DrainAll } else { What::GoOn });
        let node = &mut self.world.members[member];
        node.part.asked = on;
        if on {
            node.node.drain_all(now)
        } else {
            node.node.resume(now)
        }
        self.pump(member, None);
    }

    pub(super) fn go_on(&mut self, life: usize) {
        let member = self.place(life);
        if !self.world.lives(life) {
            return;
        }
        match self.world.members[member].condition {
            Condition::Paused { until } if until < u64::MAX => self.plan(until, Happening::GoOn { life }),
            Condition::Up => self.drain_all(member, false),
            Condition::Paused { .. } | Condition::Down => {}
        }
    }

    /// A workload more, or one less; everybody is told, one after the other.
    pub(super) fn strike_workloads(&mut self) {
        let Some(shares) = &mut self.world.shares else { return };
        let lane = self.tape.of(Fault::Workloads);
        let kind = lane.pick(shares.kinds.len());
        let name = self.world.names.len() - 1 - lane.pick(MOST_WORKLOADS + 1);
        let workloads = &mut shares.kinds[kind].workloads;
        if !workloads.remove(&name) {
            workloads.insert(name);
        }
        for member in 0..self.world.members.len() {
            let at = self.world.now + self.tape.at(Fault::Workloads, member).below(ROLLOUT);
            self.plan(at, Happening::Configure { life: self.world.members[member].life });
        }
    }

    /// A process hears which workloads there are.
    pub(super) fn configure(&mut self, life: usize) {
        if !self.world.lives(life) {
            return;
        }
        let member = self.place(life);
        match self.world.members[member].condition {
            Condition::Paused { until } if until < u64::MAX => {
                return self.plan(until, Happening::Configure { life });
            }
            Condition::Up => {}
            Condition::Paused { .. } | Condition::Down => return,
        }
        let world = &self.world;
        let node = &world.members[member];
        let (Some(shares), Some(key)) = (&world.shares, node.part.coordinator) else { return };
        let wanted = &shares.kinds[node.part.kind].workloads;
        let has: BTreeSet<&LeaseName> = node.node.workloads(key).collect();
        let names = world.names.iter().enumerate().skip(world.leases);
        let changes: Vec<(LeaseName, bool)> = names
            .map(|(index, name)| (name, wanted.contains(&index)))
            .filter(|(name, wanted)| has.contains(name) != *wanted)
            .map(|(name, wanted)| (name.clone(), wanted))
            .collect();
        // A node that is told nothing knows nothing of the time either.
        if changes.is_empty() {
            return;
        }
        let now = self.reads_clock(member);
        let node = &mut self.world.members[member];
        for (name, wanted) in changes {
            let _ = if wanted {
                node.node.add_workload(now, key, name)
            } else {
                node.node.remove_workload(now, key, &name)
            };
            node.part.changes += 1;
        }
        self.pump(member, None);
    }

    /// Somebody comes and goes a few times, by a crash or in order.
    pub(super) fn flap(&mut self, member: usize, times: u64) {
        if self.world.phase != super::Phase::Trouble || times == 0 {
            return;
        }
        if self.tape.at(Fault::Flapping, member).one_in(3) && self.world.members[member].is_up() {
            self.shut(member);
            self.pump(member, None);
        } else {
            self.crash(member);
        }
        let up = self.world.now + 1 + self.tape.at(Fault::Flapping, member).below(SECOND / 2);
        self.plan(up, Happening::Start { member });
        let next = up + 10 * MS + self.tape.at(Fault::Flapping, member).below(SECOND);
        self.plan(next, Happening::Flap { member, times: times - 1 });
    }

    /// Many die, and come again at the same moment.
    pub(super) fn burst(&mut self) {
        let lane = self.tape.of(Fault::Bursts);
        let (spread, at) = (lane.below(SECOND / 10), self.world.now + lane.below(SECOND));
        for member in 0..self.world.members.len() {
            let lane = self.tape.at(Fault::Bursts, member);
            if lane.one_in(2) {
                let at = at + lane.below(spread);
                self.crash(member);
                self.plan(at, Happening::Start { member });
            }
        }
    }

    /// The heartbeats of somebody don't get through for a while.
    pub(super) fn silence(&mut self, member: usize) {
        let life = self.world.members[member].life;
        self.world.members[member].part.silent = true;
        self.struck(member, What::Silenced);
        let at = self.world.now + self.tape.of(Fault::Silence).below(6 * SECOND);
        self.plan(at, Happening::Loud { life });
    }

    /// What of drains and configurations is left when the trouble is over: everybody knows the workloads; drains are
    /// taken back, or stay, or everybody drains.
    pub(super) fn mend_shares(&mut self) {
        if self.world.shares.is_none() {
            return;
        }
        let left = if self.settings.faults.is_some_and(|faults| faults.has(Fault::Drains)) {
            self.tape.of(Fault::Drains).pick(4)
        } else {
            0
        };
        match left {
            3 => self.mark(None, true),
            2 => {}
            _ => self.mark(None, false),
        }
        for member in 0..self.world.members.len() {
            if self.world.members[member].core {
                if self.world.members[member].part.asked && left != 2 {
                    self.drain_all(member, false);
                }
                self.configure(self.world.members[member].life);
            }
        }
    }
}
