//! Few moves: each workload has its own order of preference among the instances.

use alloc::collections::BinaryHeap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Assigner, Digest};
use crate::jitter::mix;
use crate::member::Member;
use crate::name::{Identity, LeaseName};

#[cfg(test)]
mod tests;

/// Gives each workload to the instance that a hash of both prefers, as far as that one has room: highest random weight
/// (Thaler, Ravishankar 1996) with bounded loads. The default of a coordinator.
///
/// - **Bounded**, as [`Rendezvous::new`] makes it: no instance has more than ⌈1.25 × fair share⌉ workloads, the fair share
///   being the number of workloads divided by that of the instances. All pairs of a workload and an instance are taken in
///   the order of their weight, and the workload goes to the instance if it has no owner yet and there is room.
/// - **Unbounded**: a workload goes to where its weight is highest, however many others do. Where ten instances share a
///   hundred workloads, the fullest commonly has 15, and seldom more than 20; where each has a hundred, about 125.
///
/// There is no bound below: an instance may have few workloads, and none at all where there are no more than some three for
/// each. Choose [`Balanced`](super::Balanced) for few workloads that are heavy.
///
/// **What moves.** Unbounded, the least possible: when an instance leaves, only what it had; when one joins, only what
/// it gets. Bounded, more than that: workloads that were turned away go back to where they preferred, and a join lowers
/// the bound. For random fleets that grow from one instance to a number of them and shrink again, whoever it is that leaves,
/// the moves were on average this multiple of the least possible, which is, for a leave, what the instance had, and for a
/// join what the newcomer gets, or what the others have above the new bound if that is more:
///
/// | workloads | 4 | 12 | 12 | 100 | 100 | 100 | 1,000 | 1,000 |
/// |---|---|---|---|---|---|---|---|---|
/// | instances, up to | 3 | 4 | 12 | 10 | 20 | 100 | 30 | 100 |
/// | moves | 1.03 | 1.05 | 1.13 | 1.03 | 1.08 | 1.19 | 1.01 | 1.05 |
///
/// From 95 to 100 instances with 10,000 workloads it is 1.00. The fewer workloads there are for each instance, the more it
/// is: from 90 to 110 instances with 1,000 workloads, 1.3. Where the bound falls or rises by one, it does so for all instances at once, and
/// that one change may move twice the least, and more where an instance has one or two.
///
/// **A restart moves little.** The weights hang on the *name* of an instance: whoever comes back under its name gets what
/// it had. While the predecessor is still listed, both share that part, by their incarnations; unbounded, the others keep
/// theirs. So instances should have names of their own that stay: unbounded, those of one name get one share together.
///
/// **Cost**: a weight for each pair of an instance and a workload, and again one for each instance whenever a workload is
/// turned away, once for each of them at the most. 10,000 workloads on 100 instances take some milliseconds.
///
/// **The weights**, for programs in other languages: let D be [`Digest`] and M the finalizer of SplitMix64 (Steele, Lea,
/// Flood 2014). The weight of an instance for a workload is M(M(D("workload", its name)) xor M(D("instance", its name))).
/// Among instances of one name it is M(M(D("workload", its name)) xor M(D("incarnation", the instance's name, the
/// incarnation in 32 hexadecimal digits))). The highest wins. Should two be equal, the one that stands first does: of
/// instances by when they joined and their identity, of workloads by their name.
///
/// ```
/// use tenure_core::{Assigner, Identity, Incarnation, LeaseName, Member, Rendezvous, Timestamp};
///
/// let names = ["a", "b", "c", "d"].map(|name| LeaseName::new(name).expect("a fine name"));
/// let member = |name: &str, joined| {
///     let identity = Identity::new(name, Incarnation::new(7)).expect("a fine name");
///     Member::new(identity, Timestamp::from_nanos(joined))
/// };
/// let members = [member("host:1", 1), member("host:2", 2)];
/// let plan = Rendezvous::new().assign(&names, &members);
/// let of_the_first = plan.iter().filter(|owner| **owner == Some(0)).count();
/// assert!((1..=3).contains(&of_the_first), "1.25 times two is two and a half");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rendezvous {
    bounded: bool,
}

impl Rendezvous {
    /// With at most 1.25 times the fair share for each instance.
    #[must_use]
    pub const fn new() -> Self {
        Self { bounded: true }
    }

    /// With the fewest moves that there can be, and no bound.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self { bounded: false }
    }

    /// How many workloads one instance may have: ⌈1.25 × `workloads` / `members`⌉, or all of them.
    const fn room(self, workloads: usize, members: usize) -> usize {
        // A slice holds less than a fifth of what can be counted, since a name is larger than five bytes.
        if self.bounded { (5 * workloads).div_ceil(4 * members) } else { workloads }
    }
}

impl Default for Rendezvous {
    fn default() -> Self {
        Self::new()
    }
}

impl Assigner for Rendezvous {
    // Instances of which one has another hash or bound must not count for each other: a change of the rule changes its
    // text.
    fn text(&self) -> &'static str {
        if self.bounded { "rendezvous" } else { "rendezvous-unbounded" }
    }

    fn assign(&self, workloads: &[LeaseName], members: &[Member]) -> Vec<Option<usize>> {
        if members.is_empty() {
            return Vec::new();
        }
        let room = self.room(workloads.len(), members.len());
        let instances: Vec<Instance> = members.iter().map(|member| Instance::of(&member.identity)).collect();
        let hashes: Vec<u64> = workloads.iter().map(workload_hash).collect();
        // Workloads propose in their order of preference, and each instance keeps those of the highest weight (Gale,
        // Shapley 1962). The plan does not hang on who proposes first, and is that of the pairs in the order of their
        // weight, without sorting them. A workload proposes to nobody twice, so this ends; there is room for all, so each
        // of them is kept somewhere.
        let mut last: Vec<Option<Preference>> = vec![None; workloads.len()];
        let mut kept: Vec<BinaryHeap<Reverse<Kept>>> = vec![BinaryHeap::new(); members.len()];
        for first in 0..workloads.len() {
            let mut next = Some(first);
            while let Some(workload) = next {
                let preference = best_after(last[workload], hashes[workload], &instances);
                last[workload] = preference;
                let Some(Preference { weight, place: Reverse(place) }) = preference else { break };
                kept[place].push(Reverse(Kept { weight, workload: Reverse(workload) }));
                next = (kept[place].len() > room)
                    .then(|| kept[place].pop())
                    .flatten()
                    .map(|Reverse(out)| out.workload.0);
            }
        }
        last.into_iter().map(|preference| preference.map(|preference| preference.place.0)).collect()
    }
}

/// What an instance is to the hash.
#[derive(Clone, Copy)]
struct Instance {
    name: u64,
    incarnation: u64,
}

impl Instance {
    fn of(identity: &Identity) -> Self {
        let name = identity.instance();
        let incarnation = format!("{}", identity.incarnation());
        Self {
            name: mix(Digest::of(["instance", name]).get()),
            incarnation: mix(Digest::of(["incarnation", name, &incarnation]).get()),
        }
    }

    const fn name_weight(self, workload: u64) -> u64 {
        mix(workload ^ self.name)
    }

    const fn weight(self, workload: u64) -> Weight {
        Weight { name: self.name_weight(workload), incarnation: mix(workload ^ self.incarnation) }
    }
}

fn workload_hash(name: &LeaseName) -> u64 {
    mix(Digest::of(["workload", name.as_str()]).get())
}

/// How much an instance and a workload belong together. The incarnation decides among instances of one name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    name: u64,
    incarnation: u64,
}

/// An instance in the eyes of a workload: the greatest is the first choice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    weight: Weight,
    place: Reverse<usize>,
}

/// A workload in the eyes of an instance: the least goes first when it has too many.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    weight: Weight,
    workload: Reverse<usize>,
}

/// The next choice of a workload after the last one; `None` after all of them.
fn best_after(last: Option<Preference>, workload: u64, instances: &[Instance]) -> Option<Preference> {
    let mut best: Option<Preference> = None;
    for (place, instance) in instances.iter().enumerate() {
        // Most of them are passed over by half of their weight.
        let name = instance.name_weight(workload);
        if best.is_some_and(|best| name < best.weight.name)
            || last.is_some_and(|last| name > last.weight.name)
        {
            continue;
        }
        let preference = Preference { weight: instance.weight(workload), place: Reverse(place) };
        if last.is_none_or(|last| preference < last) {
            best = best.max(Some(preference));
        }
    }
    best
}
