use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Instance, Rendezvous, Weight, workload_hash};
use crate::assign::Assigner;
use crate::jitter::{Jitter, SplitMix};
use crate::member::Member;
use crate::name::{Identity, Incarnation, LeaseName};
use crate::time::Timestamp;

#[test]
fn the_weights_are_those_that_other_programs_work_out() {
    // From an implementation in Python, by the description in the docs.
    for (workload, instance, incarnation, name_weight, incarnation_weight) in [
        ("job", "host:1", 7, 0xa534_86d0_1ff0_d88c, 0xcc9a_d32b_f4da_eb35),
        ("é", "a", 0, 0xde41_d171_ca9c_cc95, 0xa98e_55a0_a54c_727e),
        ("job", "host:2", u128::MAX, 0xcfb5_d5cd_d485_63f0, 0x2f24_2096_e03f_9ac9),
    ] {
        let workload = workload_hash(&LeaseName::new(workload).expect("a fine name"));
        let identity = Identity::new(instance, Incarnation::new(incarnation)).expect("a fine name");
        let weight = Instance::of(&identity).weight(workload);
        assert!(weight == Weight { name: name_weight, incarnation: incarnation_weight }, "{identity}");
    }
}

/// All pairs in the order of their weight: each workload goes to the instance if it has no owner yet, and there is room.
fn by_weight(workloads: &[LeaseName], members: &[Member], room: usize) -> Vec<Option<usize>> {
    let instances: Vec<_> = members.iter().map(|member| Instance::of(&member.identity)).collect();
    let hashes = workloads.iter().map(workload_hash).enumerate();
    let pairs = hashes.flat_map(|(workload, hash)| {
        let weights = instances.iter().map(move |instance| instance.weight(hash)).enumerate();
        weights.map(move |(place, weight)| (Reverse(weight), workload, place))
    });
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort();
    let mut plan = vec![None; workloads.len()];
    let mut loads = vec![0; members.len()];
    for (_, workload, place) in pairs {
        if plan[workload].is_none() && loads[place] < room {
            plan[workload] = Some(place);
            loads[place] += 1;
        }
    }
    plan
}

#[test]
fn the_pairs_of_greater_weight_come_first() {
    for seed in 0..1_000 {
        let mut source = SplitMix::new(seed);
        let (workloads, members) = (source.below(61), source.below(12) + 1);
        let workloads = (0..workloads).map(|index| LeaseName::new(alloc::format!("{seed}-{index:02}")));
        let workloads: Vec<_> = workloads.map(|name| name.expect("a fine name")).collect();
        let members = (0..members).map(|joined| {
            let name = ["a", "b", "c", "d", "e", "f", "g", "h"][source.below(8) as usize];
            let identity = Identity::new(name, Incarnation::new(u128::from(joined))).expect("a fine name");
            Member::new(identity, Timestamp::from_nanos(joined as i64))
        });
        let members: Vec<_> = members.collect();
        for rule in [Rendezvous::new(), Rendezvous::unbounded()] {
            let room = rule.room(workloads.len(), members.len());
            let plan = rule.assign(&workloads, &members);
            assert_eq!(plan, by_weight(&workloads, &members, room), "seed {seed}: {}", rule.text());
        }
    }
}

#[test]
fn the_room_is_a_quarter_more_than_the_fair_share_rounded_up() {
    let room = |workloads, members| Rendezvous::new().room(workloads, members);
    assert_eq!([room(12, 3), room(12, 2), room(4, 2), room(10, 3)], [5, 8, 3, 5]);
    assert_eq!([room(100, 10), room(101, 10), room(0, 3), room(1, 3), room(7, 1)], [13, 13, 0, 1, 9]);
    assert_eq!(Rendezvous::unbounded().room(12, 3), 12);
}
