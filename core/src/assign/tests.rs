//! The assigners over fleets that are made from seeds.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::{AnyAssigner, Assigner, Balanced, Primary, Rendezvous};
use crate::jitter::{Jitter, SplitMix};
use crate::member::Member;
use crate::name::{Identity, Incarnation, LeaseName};
use crate::time::Timestamp;

mod moves;
mod plans;
mod promises;

/// A process by this name, which joined as the `joined`th.
fn member(name: &str, joined: u64) -> Member {
    let incarnation = Incarnation::new(u128::from(joined) << 64 | 0x5eed);
    let identity = Identity::new(name, incarnation).expect("a fine name");
    Member::new(identity, Timestamp::from_nanos(i64::try_from(joined).expect("few of them")))
}

fn workloads(count: usize, of: impl Fn(usize) -> alloc::string::String) -> Vec<LeaseName> {
    let mut names: Vec<_> = (0..count).map(|index| LeaseName::new(of(index)).expect("a fine name")).collect();
    names.sort();
    names
}

/// The workloads and members of a seed: other names for each.
fn fleet(seed: u64, workload_count: usize, member_count: usize) -> (Vec<LeaseName>, Vec<Member>) {
    let workloads = workloads(workload_count, |index| format!("job-{seed}-{index}"));
    let members = (0..member_count as u64).map(|index| member(&format!("host-{seed}:{index}"), index));
    (workloads, members.collect())
}

/// Who has each of the workloads; all of them must have an owner.
fn owners(rule: &dyn Assigner, workloads: &[LeaseName], members: &[Member]) -> Vec<Identity> {
    let plan = rule.assign(workloads, members);
    assert_eq!(plan.len(), workloads.len(), "one place for each workload");
    let owner = |place: Option<usize>| members[place.expect("each workload has an owner")].identity.clone();
    plan.into_iter().map(owner).collect()
}

/// How many workloads each of the members has.
fn loads(owners: &[Identity], members: &[Member]) -> Vec<usize> {
    let mut loads: BTreeMap<&Identity, usize> = members.iter().map(|member| (&member.identity, 0)).collect();
    for owner in owners {
        *loads.get_mut(owner).expect("an owner is a member") += 1;
    }
    members.iter().map(|member| loads[&member.identity]).collect()
}

/// How many workloads have another owner.
fn moves(before: &[Identity], after: &[Identity]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

/// ⌈1.25 × the fair share⌉.
fn bound(workloads: usize, members: usize) -> usize {
    (workloads * 5).div_ceil(members * 4)
}

fn all_rules() -> [AnyAssigner; 4] {
    AnyAssigner::NAMES.map(|name| name.parse().expect("one of this crate's"))
}

/// Any number from the first to the last.
fn between(source: &mut SplitMix, first: usize, last: usize) -> usize {
    first + usize::try_from(source.below((last - first + 1) as u64)).expect("no more than the last")
}
