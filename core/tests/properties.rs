//! What holds whatever happens to a fleet.

#![allow(unreachable_pub, reason = "a module of a test is no crate")]

mod world;

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::*;
use world::{Faults, LONG_DELAY, SECOND, TTL, World};

fn timing() -> LeaseTiming {
    LeaseConfig::new(TTL).resolve(&StoreClock::default()).unwrap()
}

fn options() -> LeaseOptions {
    let mut options = LeaseOptions::new(timing());
    options.grace = Duration::from_millis(300);
    options
}

fn faults() -> impl Strategy<Value = Faults> {
    // Swarm: each class of faults is on in half of the runs.
    any::<[bool; 11]>().prop_map(
        |[loss, duplication, delay, pause, crash, drift, actions, trouble, crowd, limits, lies]| Faults {
            loss,
            duplication,
            delay,
            pause,
            crash,
            drift,
            actions,
            trouble,
            crowd,
            limits,
            lies,
        },
    )
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..4_000)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// S1, S2, S3, S4, S5, S6, S7, S9: the world checks them at every step, and repeats and loses messages, which is
    /// S8; see there.
    #[test]
    fn belief_implies_ownership_whatever_the_network_the_clocks_and_the_pauses_do(
        nodes in 1_usize..4, names in 1_usize..3, faults in faults(), choices in choices()
    ) {
        let mut world = World::new(nodes, names, faults, options(), choices);
        world.run_until(20 * SECOND);
        prop_assert!(world.events > 0);
    }

    /// L3, sampled: after any trouble, once it is over, somebody holds each lease within a TTL and a backoff.
    #[test]
    fn after_any_trouble_every_lease_finds_a_holder(
        nodes in 2_usize..4, names in 1_usize..3, faults in faults(), choices in choices()
    ) {
        // Who holds for a limited time hands over at any time, also in the moment in which we look.
        let faults = Faults { limits: false, ..faults };
        let mut world = World::new(nodes, names, faults, options(), choices);
        world.run_until(10 * SECOND);
        world.heal();
        // Requests that were under way may land late, and then again.
        world.run_until(world.now + 2 * LONG_DELAY + 3 * SECOND);
        for name in world.names() {
            prop_assert_eq!(world.valid_holders(&name), 1, "nobody, or two, under {}", name);
        }
    }

    #[test]
    fn after_an_orderly_end_nothing_is_left(
        nodes in 1_usize..4, names in 1_usize..3, faults in faults(), choices in choices()
    ) {
        let mut world = World::new(nodes, names, faults, options(), choices);
        world.run_until(5 * SECOND);
        world.heal();
        world.shutdown();
        // What was under way has landed, and what nobody can give back is over by its TTL.
        world.run_until(world.now + 2 * LONG_DELAY + 2 * SECOND);
        for member in &world.members {
            prop_assert!(member.node.is_empty(), "{} leases never end", member.node.len());
            prop_assert!(member.working.is_empty());
        }
        prop_assert!(world.valid_records() == 0, "records are left");
    }
}

/// S5: at a resource that compares tokens, what an old holder had under way when it was paused comes to nothing.
#[test]
fn a_write_under_way_in_a_paused_holder_is_refused_once_the_next_one_has_written() {
    let mut refused = 0;
    for seed in 0..100_u16 {
        let choices: Vec<u16> =
            (0..2_000).map(|i| seed.wrapping_mul(131).wrapping_add(i).wrapping_mul(40_503)).collect();
        let mut world = World::new(3, 1, Faults { pause: true, ..Faults::default() }, options(), choices);
        // The world panics if a write of an earlier grant is accepted after one of a later grant.
        world.run_until(20 * SECOND);
        refused += world.refused_writes;
    }
    assert!(refused > 10, "the situation hardly occurs: {refused}");
}

/// L1: takeover within TTL/(1 - rho) + retry/(1 - rho) + 2d after the last renewal of a holder that died.
#[test]
fn a_dead_holders_lease_is_taken_over_in_time() {
    for seed in 0..200_u16 {
        let choices: Vec<u16> =
            (0..500).map(|i| seed.wrapping_mul(31).wrapping_add(i).wrapping_mul(2_473)).collect();
        let faults = Faults { drift: true, ..Faults::default() };
        let mut world = World::new(3, 1, faults, options(), choices);
        world.run_until(5 * SECOND);
        let name = world.names()[0].clone();
        assert_eq!(world.valid_holders(&name), 1);
        let holder = (0..3).find(|index| !world.members[*index].working.is_empty()).unwrap();
        // It is paused for ever: as good as dead.
        world.members[holder].paused = true;
        let expires = world.records[&name].expires;
        let before = world.grants;
        // The spread of an expiry is at most an eighth of the TTL, a round trip at most 25 ms.
        let bound =
            world.when_store(expires) + SECOND / 8 + 2 * SECOND / 1_000 + 2 * SECOND / 40 + SECOND / 50;
        world.run_until(bound);
        assert_eq!(world.grants, before + 1, "seed {seed}");
        assert_eq!(world.valid_holders(&name), 1, "seed {seed}");
    }
}

/// L2: with a healthy store and clocks within their bounds nobody loses a lease, ever.
#[test]
fn nobody_loses_a_lease_without_need() {
    for seed in 0..50_u16 {
        let choices: Vec<u16> =
            (0..4_000).map(|i| seed.wrapping_mul(77).wrapping_add(i).wrapping_mul(9_973)).collect();
        let mut world = World::new(3, 2, Faults { drift: true, ..Faults::default() }, options(), choices);
        world.run_until(120 * SECOND);
        assert_eq!(world.members.iter().map(|member| member.losses).sum::<u64>(), 0, "seed {seed}");
        assert_eq!(world.grants, 2, "one grant for each lease, kept for good (seed {seed})");
    }
}

/// Nothing runs hot: the events of an hour are bounded.
#[test]
fn an_hour_of_an_idle_fleet_costs_a_bounded_number_of_events() {
    let mut world = World::new(3, 1, Faults::default(), options(), Vec::new());
    world.run_until(3_600 * SECOND);
    // Renewals every 0.24 s with request, reply, expiry check and wake-up; two waiters that ask once a TTL.
    assert!(world.events < 120_000, "{}", world.events);
    assert!(world.events > 3_600, "{}", world.events);
}
