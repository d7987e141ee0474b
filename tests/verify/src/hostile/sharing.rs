//! Members, coordinators and the drain of the whole instance, under attack.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::{
    AnyAssigner, Balanced, Command, CoordinatorKey, CoordinatorOptions, Digest, Event, LeaseName, Member,
    MemberOptions, Misuse, Notice, Primary, RestartPolicy, WorkerKey, WorkerOptions,
};
use tenure_store::{DrainMark, Fleet, StoreTime};

use super::{FIRST_DELAY, LONGEST_DELAY, Run, Step, forged, lease_name, options, pick};

/// What is known of the node's membership and coordinators.
#[derive(Default)]
pub(super) struct Sharing {
    coordinators: Vec<CoordinatorKey>,
    /// What belongs to the node, or has yet to end.
    workers: BTreeMap<WorkerKey, (CoordinatorKey, LeaseName)>,
    dropped: BTreeSet<WorkerKey>,
    /// What it said of itself last.
    digests: std::sync::Arc<[Digest]>,
    version: Option<u64>,
    draining: bool,
    /// It has said that it leaves.
    leaving: bool,
    left: bool,
}

/// A rule that is none: it gives out places that there are not, and fewer workloads than there are.
#[derive(Debug)]
struct Careless;

impl tenure_core::Assigner for Careless {
    fn text(&self) -> &str {
        "careless"
    }

    fn assign(&self, workloads: &[LeaseName], members: &[Member]) -> Vec<Option<usize>> {
        let places = [Some(0), Some(usize::MAX), None, Some(members.len())];
        places.into_iter().cycle().take(workloads.len().saturating_sub(1)).collect()
    }
}

impl Run {
    pub(super) fn take_sharing(&mut self, step: &Step) -> Result<(), Misuse> {
        let time = StoreTime { wall: self.wall, now: self.clock };
        let coordinators = &self.sharing.coordinators;
        match *step {
            Step::Join { short } => {
                let mut options = MemberOptions::default();
                options.ttl = if short { Duration::from_millis(900) } else { Duration::from_secs(15) };
                self.tell(|node, now| node.join(now, options))?;
            }
            Step::StartCoordinator { workloads, share } => {
                let rule: AnyAssigner = match share.rule {
                    0 => Balanced.into(),
                    1 => Primary.into(),
                    _ => Careless.into(),
                };
                let mut worker = WorkerOptions::new(options());
                worker.restart =
                    RestartPolicy::new(share.when).delays(FIRST_DELAY, LONGEST_DELAY).expect("in order");
                let mut options = CoordinatorOptions::new(rule, worker);
                (options.hold_down, options.rebalance) = (share.hold_down, share.rebalance);
                let names = (0..8).filter(|bit| workloads & 1 << bit != 0).map(lease_name);
                let key = self.tell(|node, now| node.start_coordinator(now, names, options))?;
                self.sharing.coordinators.push(key);
            }
            Step::AddWorkload { index, name } => {
                if let Some(key) = pick(coordinators, index) {
                    self.tell(|node, now| node.add_workload(now, key, lease_name(name)))?;
                }
            }
            Step::RemoveWorkload { index, name } => {
                if let Some(key) = pick(coordinators, index) {
                    self.tell(|node, now| node.remove_workload(now, key, &lease_name(name)))?;
                }
            }
            Step::DrainCoordinator(index) => {
                if let Some(key) = pick(coordinators, index) {
                    self.tell(|node, now| node.drain_coordinator(now, key))?;
                }
            }
            Step::StopCoordinator(index) => {
                if let Some(key) = pick(coordinators, index) {
                    self.tell(|node, now| node.stop_coordinator(now, key))?;
                }
            }
            Step::DrainAll => self.tell(|node, now| {
                node.drain_all(now);
                Ok(())
            })?,
            Step::Resume => self.tell(|node, now| {
                node.resume(now);
                Ok(())
            })?,
            Step::Mark { drain } => {
                let instance = self.node.identity().instance().into();
                self.store.members.mark(&DrainMark { instance, incarnation: None, drain }, time);
            }
            Step::Present { command, view } => {
                if let Some(id) = self.command(command) {
                    let presence = self.presence(view);
                    self.event(Event::Present { id, presence })?;
                }
            }
            Step::ForgedPresent { machine, view } => {
                let (id, presence) = (super::forged_id(machine), self.presence(view));
                self.event(Event::Present { id, presence })?;
            }
            Step::MembersHint => self.event(Event::MembersHint)?,
            Step::ForgetMembers => self.store.members = Fleet::default(),
            _ => unreachable!("it is about something else"),
        }
        Ok(())
    }

    fn presence(&self, view: super::Shape) -> tenure_core::Presence {
        let near = self.sharing.version.unwrap_or(1);
        forged::presence(view, self.node.identity(), &self.sharing.digests, near, self.wall)
    }

    pub(super) fn check_sharing_command(&mut self, command: &Command) {
        match command {
            Command::Heartbeat { digests, draining, .. } => {
                assert!(!self.sharing.leaving, "it says that it is there after it has left");
                assert!(digests.is_sorted_by(|one, other| one < other), "{digests:?} is not in order");
                assert!(!draining || self.node.is_draining(), "it says that it drains, and does not");
                self.sharing.digests = digests.clone();
            }
            Command::Leave { .. } => {
                // It may ask again, but nothing else is left.
                assert_eq!(self.node.len(), 1, "it leaves before all has ended");
                assert!(self.working.is_empty(), "it leaves while its work runs");
                self.sharing.leaving = true;
            }
            Command::StartWorkload { .. } => {
                assert!(!self.node.is_draining(), "it drains, and starts something");
            }
            _ => {}
        }
    }

    pub(super) fn check_sharing_notice(&mut self, notice: &Notice) {
        let sharing = &mut self.sharing;
        match notice {
            Notice::MembersChanged { version, .. } => {
                assert_ne!(sharing.version.replace(*version), Some(*version), "nothing has changed");
                assert!(self.node.members().is_some() || self.node.is_empty(), "they were told");
                self.reached.views += 1;
            }
            Notice::WorkloadAssigned { coordinator, worker } => {
                assert!(!self.node.is_draining(), "it drains, and takes a workload");
                let name = self.node.worker_name(*worker).expect("it was just made").clone();
                let twice = sharing.workers.values().any(|other| *other == (*coordinator, name.clone()));
                assert!(!twice, "{name} has two workers");
                assert_eq!(self.node.worker_coordinator(*worker), Some(*coordinator));
                sharing.workers.insert(*worker, (*coordinator, name));
                self.reached.assigned += 1;
            }
            Notice::WorkloadDropped { coordinator, worker, .. } => {
                let (owner, _) = sharing.workers.get(worker).expect("it was assigned");
                assert_eq!(owner, coordinator);
                assert!(sharing.dropped.insert(*worker), "{worker} is dropped twice");
                self.reached.dropped += 1;
            }
            Notice::WorkerEnded { worker } => {
                sharing.workers.remove(worker);
            }
            Notice::CoordinatorEnded { coordinator } => {
                let left = sharing.workers.values().any(|(owner, _)| owner == coordinator);
                assert!(!left, "{coordinator} ended before its workers");
            }
            Notice::Draining { .. } => {
                assert!(!std::mem::replace(&mut sharing.draining, true), "it drains already");
                self.reached.drained += 1;
            }
            Notice::Resumed => {
                assert!(std::mem::replace(&mut sharing.draining, false), "it did not drain");
                self.reached.resumed += 1;
            }
            Notice::Drained => {
                assert!(self.node.is_draining() && self.working.is_empty(), "its work runs on");
                let held = self.held.keys().any(|key| self.node.valid(self.latest, *key).is_some());
                assert!(!held, "it still holds something");
            }
            Notice::Left => {
                assert!(!std::mem::replace(&mut sharing.left, true), "it left before");
                sharing.leaving = true;
                self.reached.left += 1;
            }
            _ => {}
        }
    }
}
