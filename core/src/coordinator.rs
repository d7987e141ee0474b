//! A set of workloads that the fleet shares out among its instances: a worker for each of those that belong here.
//!
//! ```text
//!                 belongs here                  belongs elsewhere, removed, drains
//!   Elsewhere ------------------> Here(worker) -----------------------------------> Ending(worker)
//!      ^  ^                          |                                                   |
//!      |  |                          | the worker ends by its policy                      | the worker has ended
//!      |  | belongs elsewhere        v                                                   |
//!      |  '---------------------- Done                                                   |
//!      '---------------------------------------------------------------------------------'
//! ```
//!
//! | what happens | what follows |
//! |---|---|
//! | the members, what they say, or the workloads change | a plan is made anew, before the next wait |
//! | a member has settled | likewise |
//! | a workload belongs here | a worker campaigns for its lease, which another instance may still have |
//! | a workload belongs elsewhere | its worker is asked to stop at once, or drained |
//! | the instance drains | all workers are drained, within their grace; nothing is started |
//! | the store is out of reach | nothing: the last plan stands |
//!
//! **Who counts.** Members that say the same digest: of the same rule, hold-down and workloads. A member that joins
//! counts once it is older than the hold-down, unless it came within the hold-down of the eldest one: so instances that
//! start together share the work at once, one that keeps coming and going moves nothing, and nobody who counts ceases
//! to by the mere passing of time. Whoever drains or leaves ceases to count at once, whoever is not heard of when the
//! store says that its TTL is over. The eldest one may change: when members change what they say, or when a drain is
//! undone. Then those who count only because they came soon after another one may cease to, until they are older than
//! the hold-down. A member that was not heard of for its TTL comes back as a newcomer: it drops its work until it has
//! settled. A newcomer that is killed within its hold-down counts from the end of that until its TTL is over.
//!
//! **Changes of the workloads.** An instance whose workloads change says its old digest besides the new one for the
//! time of a hold-down. So instances that change theirs one after the other go on to count for each other. After many
//! changes it says the oldest and the latest of those digests.
//!
//! **This instance** counts for itself by what it knows of itself. What the view says of it may have been overtaken, and
//! nobody is to lose work because the store has not heard of a change.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::time::Duration;

use crate::assign::{AnyAssigner, Digest};
use crate::member::Member;
use crate::name::{Identity, LeaseName, WorkerKey};
use crate::planted::{Bug, planted};
use crate::time::Instant;
use crate::worker::WorkerOptions;

#[cfg(feature = "model")]
mod model;
#[cfg(test)]
mod tests;

/// What a coordinator does, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CoordinatorOptions {
    /// The rule by which the workloads are shared out.
    pub assigner: AnyAssigner,
    /// The lease and the restart policy of each workload. The grace of the lease is the drain timeout.
    pub worker: WorkerOptions,
    /// How old a member must be to count. Joins within this time cause one change of plan, not one each.
    pub hold_down: Duration,
    /// What becomes of work that belongs elsewhere from now on, while this instance is healthy.
    pub rebalance: Rebalance,
}

impl CoordinatorOptions {
    /// The most coordinators that an instance has: what each of them says travels to every other instance.
    pub const MOST: usize = 64;
    /// 5 s: what it takes the instances of a deployment to start one after the other.
    pub const DEFAULT_HOLD_DOWN: Duration = Duration::from_secs(5);

    /// With the default hold-down; work that belongs elsewhere is stopped at once.
    #[must_use]
    pub fn new(assigner: impl Into<AnyAssigner>, worker: WorkerOptions) -> Self {
        Self {
            assigner: assigner.into(),
            worker,
            hold_down: Self::DEFAULT_HOLD_DOWN,
            rebalance: Rebalance::Stop,
        }
    }
}

/// What becomes of work that belongs elsewhere from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are no other ways to hand work over")]
pub enum Rebalance {
    /// It is asked to end at once, and stopped hard a stop budget later, or after its grace if that is shorter.
    #[default]
    Stop,
    /// It may come to its end, within the grace of its lease.
    Drain,
}

/// Why a workload does not belong to this instance any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// It belongs to another instance now.
    Rebalance,
    /// This instance drains.
    Drain,
    /// It was removed from the coordinator's workloads.
    Removed,
    /// The coordinator is to end.
    Ended,
}

/// The machine of a coordinator; its states and transitions stand at the head of its source file. The node joins it with
/// the members and the workers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Coordinator {
    pub(crate) options: CoordinatorOptions,
    workloads: BTreeMap<LeaseName, Workload>,
    digest: Digest,
    /// Digests of earlier sets of workloads, the oldest first, and until when they are said.
    earlier: Vec<(Digest, Instant)>,
    /// A plan is to be made.
    stale: bool,
    /// When somebody settles.
    settles_at: Option<Instant>,
    pub(crate) ending: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Workload {
    state: State,
    /// It is forgotten once it has ended.
    removed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Elsewhere,
    Here(WorkerKey),
    Ending(WorkerKey),
    /// Its worker has ended by its policy.
    Done,
}

/// The most earlier digests that are said. Two instances that make the same changes one after the other have the oldest
/// in common; the latest are for those that only a few changes lie between.
const MOST_EARLIER: usize = 7;

/// What is to be done for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Start(LeaseName),
    Drop(WorkerKey, DropReason),
}

impl Coordinator {
    pub(crate) fn new(options: CoordinatorOptions, workloads: impl IntoIterator<Item = LeaseName>) -> Self {
        let fresh = |name| (name, Workload { state: State::Elsewhere, removed: false });
        let mut coordinator = Self {
            options,
            workloads: workloads.into_iter().map(fresh).collect(),
            digest: Digest::new(0),
            earlier: Vec::new(),
            stale: true,
            settles_at: None,
            ending: false,
        };
        coordinator.digest = coordinator.compute_digest();
        coordinator
    }

    fn compute_digest(&self) -> Digest {
        let hold_down = alloc::format!("{}", self.options.hold_down.as_nanos());
        let names = self.names().map(LeaseName::as_str);
        Digest::of([self.options.assigner.text(), hold_down.as_str()].into_iter().chain(names))
    }

    /// The workloads that are to be shared out.
    pub(crate) fn names(&self) -> impl Iterator<Item = &LeaseName> {
        self.workloads.iter().filter(|(_, workload)| !workload.removed).map(|(name, _)| name)
    }

    /// The digest that this instance is to say because of it.
    pub(crate) fn digest(&self) -> Option<Digest> {
        Some(self.digest).filter(|_| !self.ending)
    }

    /// Those that it is to say besides, the oldest first.
    pub(crate) fn earlier(&self) -> impl Iterator<Item = Digest> {
        self.earlier.iter().map(|(digest, _)| *digest).filter(|_| !self.ending)
    }

    /// A workload more; tells whether it was not there.
    pub(crate) fn add(&mut self, now: Instant, name: LeaseName) -> bool {
        let added = match self.workloads.entry(name) {
            Entry::Occupied(mut entry) => core::mem::replace(&mut entry.get_mut().removed, false),
            Entry::Vacant(entry) => {
                entry.insert(Workload { state: State::Elsewhere, removed: false });
                true
            }
        };
        self.workloads_changed(now, added);
        added
    }

    /// A workload less; tells whether it was there. What runs of it ends.
    pub(crate) fn remove(&mut self, now: Instant, name: &LeaseName) -> bool {
        let removed = match self.workloads.get_mut(name) {
            Some(workload) => !core::mem::replace(&mut workload.removed, true),
            None => false,
        };
        self.forget_removed(name);
        self.workloads_changed(now, removed);
        removed
    }

    fn forget_removed(&mut self, name: &LeaseName) {
        let idle = |workload: &Workload| matches!(workload.state, State::Elsewhere | State::Done);
        if self.workloads.get(name).is_some_and(|workload| workload.removed && idle(workload)) {
            self.workloads.remove(name);
        }
    }

    fn workloads_changed(&mut self, now: Instant, changed: bool) {
        if changed {
            let digest = self.compute_digest();
            let before = core::mem::replace(&mut self.digest, digest);
            self.earlier.retain(|(earlier, _)| *earlier != before && *earlier != digest);
            self.earlier.push((before, now + self.options.hold_down));
            if self.earlier.len() > MOST_EARLIER {
                // The oldest is what everybody had before the changes began.
                self.earlier.remove(1);
            }
            self.stale = true;
        }
    }

    /// What the plan depends on has changed.
    pub(crate) fn touch(&mut self) {
        self.stale = true;
    }

    /// When there is something to do. A plan that is to be made comes before all that is due, so that nothing is begun by
    /// an old one. The end of time never comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let later = self.settles_at.into_iter().chain(self.earlier.iter().map(|(_, until)| *until));
        let later = later.filter(|deadline| *deadline < Instant::MAX);
        self.stale.then_some(Instant::ZERO).into_iter().chain(later).min()
    }

    /// Forgets what is over by now; tells whether other digests are to be said.
    pub(crate) fn timeout(&mut self, now: Instant) -> bool {
        let before = self.earlier.len();
        self.earlier.retain(|(_, until)| *until > now);
        if self.settles_at.is_some_and(|at| at <= now) {
            self.settles_at = None;
            self.stale = true;
        }
        let forgotten = self.earlier.len() != before;
        self.stale |= forgotten;
        forgotten
    }

    /// Makes the plan anew, if it is stale: what is to be done for it. Costs what the rule costs, and a look at each
    /// workload. `view` is what is known of the members, and when their ages were true.
    pub(crate) fn plan(
        &mut self,
        now: Instant,
        me: &Identity,
        view: Option<(&[Member], Instant)>,
        draining: bool,
    ) -> Vec<Step> {
        if !core::mem::take(&mut self.stale) {
            return Vec::new();
        }
        let share = match view {
            _ if self.ending || (draining && !planted(Bug::AssignedWhileDraining)) => Some(Vec::new()),
            Some((members, at)) => self.share(now, me, members, at),
            None => None,
        };
        // Without a place among the members nothing is known, and so nothing changes but what was removed.
        let Some(share) = share else { return self.drop_removed() };
        let why = match (self.ending, draining) {
            (true, _) => DropReason::Ended,
            (false, true) => DropReason::Drain,
            (false, false) => DropReason::Rebalance,
        };
        let mut share = share.into_iter().peekable();
        let mut steps = Vec::new();
        for (name, workload) in &mut self.workloads {
            let mine = !workload.removed && share.next_if(|mine| mine == name).is_some();
            match (workload.state, mine) {
                (State::Elsewhere, true) => steps.push(Step::Start(name.clone())),
                (State::Here(worker), false) => {
                    workload.state = State::Ending(worker);
                    let removed = workload.removed && why == DropReason::Rebalance;
                    steps.push(Step::Drop(worker, if removed { DropReason::Removed } else { why }));
                }
                (State::Done, false) => workload.state = State::Elsewhere,
                (State::Elsewhere | State::Ending(_), false)
                | (State::Here(_) | State::Ending(_) | State::Done, true) => {}
            }
        }
        steps
    }

    fn drop_removed(&mut self) -> Vec<Step> {
        let removed = self.workloads.values_mut().filter(|workload| workload.removed);
        let drop = |workload: &mut Workload| match workload.state {
            State::Here(worker) => {
                workload.state = State::Ending(worker);
                Some(Step::Drop(worker, DropReason::Removed))
            }
            State::Elsewhere | State::Ending(_) | State::Done => None,
        };
        removed.filter_map(drop).collect()
    }

    /// The workloads that belong here, sorted; `None` if this instance is not even listed.
    fn share(
        &mut self,
        now: Instant,
        me: &Identity,
        members: &[Member],
        at: Instant,
    ) -> Option<Vec<LeaseName>> {
        if !members.iter().any(|member| member.identity == *me) {
            return None;
        }
        let mine: Vec<Digest> = self.digest().into_iter().chain(self.earlier()).collect();
        let same = |member: &Member| {
            planted(Bug::DigestIgnored) || member.digests.iter().any(|digest| mine.contains(digest))
        };
        let counts = |member: &Member| !member.draining || planted(Bug::AssignedWhileDraining);
        let of_kind = |member: &&Member| member.identity == *me || (same(member) && counts(member));
        let kind: Vec<&Member> = members.iter().filter(of_kind).collect();
        let eldest = kind.iter().map(|member| member.age).max()?;
        let hold_down = if planted(Bug::NoHoldDown) { Duration::ZERO } else { self.options.hold_down };
        // Everybody has grown older since.
        let since = now.saturating_since(at);
        let settles_in = |member: &Member| {
            let early = eldest.saturating_sub(member.age) <= hold_down;
            if early { Duration::ZERO } else { hold_down.saturating_sub(member.age.saturating_add(since)) }
        };
        let (mut counts, waits): (Vec<&Member>, Vec<&Member>) =
            kind.into_iter().partition(|member| settles_in(member).is_zero());
        self.settles_at = waits.into_iter().map(|member| now + settles_in(member)).min();
        counts.sort_by(|one, other| (one.joined, &one.identity).cmp(&(other.joined, &other.identity)));

        let Some(place) = counts.iter().position(|member| member.identity == *me) else {
            // It has yet to settle, and nothing belongs to it until then.
            return Some(Vec::new());
        };
        let counts: Vec<Member> = counts.into_iter().cloned().collect();
        let names: Vec<LeaseName> = self.names().cloned().collect();
        let plan = self.options.assigner.assign(&names, &counts);
        let share = names.into_iter().zip(plan).filter(|(_, owner)| *owner == Some(place));
        Some(share.map(|(name, _)| name).collect())
    }

    /// A worker was started for this workload.
    pub(crate) fn started(&mut self, name: &LeaseName, worker: WorkerKey) {
        if let Some(workload) = self.workloads.get_mut(name) {
            workload.state = State::Here(worker);
        }
    }

    /// The worker of this workload has ended.
    pub(crate) fn worker_ended(&mut self, name: &LeaseName, worker: WorkerKey) {
        let Some(workload) = self.workloads.get_mut(name) else { return };
        workload.state = match workload.state {
            State::Ending(ending) if ending == worker => {
                // It may belong here again by now.
                self.stale = true;
                State::Elsewhere
            }
            State::Here(here) if here == worker => State::Done,
            state @ (State::Elsewhere | State::Here(_) | State::Ending(_) | State::Done) => state,
        };
        self.forget_removed(name);
    }

    /// The workers there are.
    pub(crate) fn workers(&self) -> impl Iterator<Item = WorkerKey> {
        self.workloads.values().filter_map(|workload| match workload.state {
            State::Here(worker) | State::Ending(worker) => Some(worker),
            State::Elsewhere | State::Done => None,
        })
    }
}
