//! What each assigner promises, over random fleets.

use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::assign::Digest;
use crate::member::Labels;

const SEEDS: u64 = 1_000;

/// A fleet of up to 12 instances with up to 60 workloads.
fn random_fleet(seed: u64) -> (Vec<LeaseName>, Vec<Member>) {
    let mut source = SplitMix::new(seed);
    let (workloads, members) = (between(&mut source, 0, 60), between(&mut source, 1, 12));
    fleet(seed, workloads, members)
}

/// C3.
#[test]
fn every_workload_has_one_owner_and_nobody_more_than_promised() {
    for seed in 0..SEEDS {
        let (workloads, members) = random_fleet(seed);
        let (count, most) = (workloads.len(), bound(workloads.len(), members.len()));
        let loads = |rule: &dyn Assigner| loads(&owners(rule, &workloads, &members), &members);

        let balanced = loads(&Balanced);
        let (least, greatest) = (balanced.iter().min(), balanced.iter().max());
        let apart = greatest.zip(least).map_or(0, |(greatest, least)| greatest - least);
        assert!(apart <= 1, "seed {seed}: {balanced:?} by balanced");

        let primary = loads(&Primary);
        assert_eq!(primary[0], count, "seed {seed}: primary gives all to the eldest");

        let rendezvous = loads(&Rendezvous::new());
        assert!(rendezvous.iter().all(|load| *load <= most), "seed {seed}: {rendezvous:?}, at most {most}");
        assert_eq!(loads(&Rendezvous::unbounded()).iter().sum::<usize>(), count, "seed {seed}");
    }
}

/// C3.
#[test]
fn a_hundred_thousand_small_fleets_of_any_names_get_a_plan() {
    let mut source = SplitMix::new(1);
    for _ in 0..100_000 {
        // Few names, so that instances share them and workloads are called like instances.
        let members: Vec<_> = (0..between(&mut source, 1, 6) as u64)
            .map(|joined| member(["a", "b", "c", "d"][between(&mut source, 0, 3)], joined))
            .collect();
        let mut names: Vec<_> = (0..between(&mut source, 0, 9))
            .map(|_| LeaseName::new(format!("{:x}", source.below(12))).expect("a fine name"))
            .collect();
        names.sort();
        names.dedup();
        for rule in all_rules() {
            let loads = loads(&owners(&*rule, &names, &members), &members);
            let most = bound(names.len(), members.len());
            let bounded = matches!(rule.text(), "balanced" | "rendezvous");
            assert!(
                !bounded || loads.iter().all(|load| *load <= most),
                "{rule}: {loads:?}, {members:?}, {names:?}"
            );
        }
    }
}

/// C4.
#[test]
fn nothing_moves_while_the_members_stay_what_they_are() {
    for seed in 0..SEEDS {
        let (workloads, members) = random_fleet(seed);
        let mut later = members.clone();
        for member in &mut later {
            member.age = Duration::from_secs(seed + 1);
            member.labels = Labels::new([("build", "2")]).expect("a fine label");
            member.digests = Arc::from([Digest::new(seed)]);
        }
        for rule in all_rules() {
            let plan = rule.assign(&workloads, &members);
            assert_eq!(plan, rule.assign(&workloads, &members), "seed {seed}: {rule} again");
            assert_eq!(plan, rule.assign(&workloads, &later), "seed {seed}: {rule} later");
        }
    }
}

#[test]
fn a_join_that_is_taken_back_restores_the_plan() {
    for seed in 0..SEEDS {
        let (workloads, mut members) = random_fleet(seed);
        for rule in all_rules() {
            let before = owners(&*rule, &workloads, &members);
            let newcomer = member("flapping", 1_000);
            members.push(newcomer);
            let _with_it = owners(&*rule, &workloads, &members);
            members.pop();
            assert_eq!(before, owners(&*rule, &workloads, &members), "seed {seed}: {rule}");
        }
    }
}

#[test]
fn a_rendezvous_hangs_on_nobody_s_place() {
    for seed in 0..SEEDS {
        let (workloads, members) = random_fleet(seed);
        let turned: (Vec<_>, Vec<_>) =
            (workloads.iter().rev().cloned().collect(), members.iter().rev().cloned().collect());
        for rule in [Rendezvous::new(), Rendezvous::unbounded()] {
            let mut owners_of_turned = owners(&rule, &turned.0, &turned.1);
            owners_of_turned.reverse();
            assert_eq!(owners(&rule, &workloads, &members), owners_of_turned, "seed {seed}: {}", rule.text());
        }
    }
}

#[test]
fn whoever_comes_back_under_its_name_gets_what_it_had() {
    for seed in 0..SEEDS {
        let (workloads, members) = random_fleet(seed);
        let gone = between(&mut SplitMix::new(seed), 0, members.len() - 1);
        let name = members[gone].identity.instance();
        let mut after = members.clone();
        after.remove(gone);
        after.push(member(name, 1_000));
        for rule in [Rendezvous::new(), Rendezvous::unbounded()] {
            let names = |members: &[Member]| -> Vec<_> {
                owners(&rule, &workloads, members).iter().map(|owner| owner.instance().to_string()).collect()
            };
            assert_eq!(names(&members), names(&after), "seed {seed}: {}", rule.text());
        }
    }
}

#[test]
fn beside_its_predecessor_a_restarted_instance_takes_nothing_from_others() {
    let rule = Rendezvous::unbounded();
    let (mut kept, mut taken) = (0, 0);
    for seed in 0..SEEDS {
        let (workloads, members) = random_fleet(seed);
        let name = members[0].identity.instance();
        let mut both = members.clone();
        both.push(member(name, 1_000));
        let (before, after) = (owners(&rule, &workloads, &members), owners(&rule, &workloads, &both));
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.instance(), after.instance(), "seed {seed}: from name to name nothing moves");
            if before.instance() == name {
                kept += usize::from(before == after);
                taken += usize::from(before != after);
            }
        }
    }
    assert!(kept * 9 < taken * 10 && taken * 9 < kept * 10, "each has half of it: {kept} and {taken}");
}

#[test]
fn instances_of_one_name_share_as_any_others() {
    let workloads = workloads(1_000, |index| format!("job-{index}"));
    let members: Vec<_> = (0..4).map(|joined| member("worker", joined)).collect();
    for rule in [Rendezvous::new(), Rendezvous::unbounded()] {
        let loads = loads(&owners(&rule, &workloads, &members), &members);
        assert!(loads.iter().all(|load| (200..=300).contains(load)), "{}: {loads:?}", rule.text());
    }
}

#[test]
fn names_that_count_up_are_spread_evenly() {
    // Where each of 100 instances has 100 of 10,000 on average, by chance alone, 99.99 % have between 64 and 142.
    let workloads = workloads(10_000, |index| format!("shard-{index}"));
    for name in ["host-", "10.0.0.", "worker:", "shard-"] {
        let members: Vec<_> = (0..100).map(|index| member(&format!("{name}{index}"), index)).collect();
        let loads = loads(&owners(&Rendezvous::unbounded(), &workloads, &members), &members);
        let chance: usize = loads.iter().map(|load| load.abs_diff(100).pow(2)).sum();
        assert!(loads.iter().all(|load| (60..=145).contains(load)), "{name}: {loads:?}");
        // The sum of their squared distances is 9,900 ± 1,400 by chance.
        assert!((5_000..15_000).contains(&chance), "{name}: {chance}");
    }
}

#[test]
fn a_workload_is_not_partial_to_an_instance_of_its_own_name() {
    let names: Vec<_> = (0..1_000).map(|index| format!("n{index}")).collect();
    let itself = |name: &&alloc::string::String| {
        let workload = LeaseName::new(name).expect("a fine name");
        let members = [member(name, 1), member("another", 2)];
        owners(&Rendezvous::unbounded(), &[workload], &members)[0] == members[0].identity
    };
    let own = names.iter().filter(itself).count();
    assert!((430..=570).contains(&own), "{own} of 1,000");
}

#[test]
fn where_there_is_nobody_nothing_is_planned() {
    let (workloads, members) = fleet(1, 3, 2);
    for rule in all_rules() {
        assert_eq!(rule.assign(&[], &members), vec![], "{rule}");
    }
    for rule in [Balanced.into(), Rendezvous::new().into(), AnyAssigner::from(Rendezvous::unbounded())] {
        assert!(rule.assign(&workloads, &[]).iter().all(Option::is_none), "{rule}");
    }
}

#[test]
fn a_rule_is_read_from_its_text() {
    for name in AnyAssigner::NAMES {
        assert_eq!(name.parse::<AnyAssigner>().expect(name).text(), name);
    }
    let expected: [AnyAssigner; 4] =
        [Rendezvous::new().into(), Rendezvous::unbounded().into(), Balanced.into(), Primary.into()];
    assert_eq!(all_rules(), expected);
    assert_eq!(AnyAssigner::default(), expected[0]);
    for wrong in ["", "Balanced", "rendezvous ", "random"] {
        let error = wrong.parse::<AnyAssigner>().expect_err(wrong);
        let names = "rendezvous, rendezvous-unbounded, balanced, primary";
        assert_eq!(error.to_string(), format!("assigner is {wrong:?}, but it must be one of {names}"));
    }
}
