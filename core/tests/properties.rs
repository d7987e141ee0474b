//! What holds whatever happens: any sequence of events, honest or hostile, into the machines.

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

    #[test]
    fn no_sequence_of_events_panics_and_misuse_changes_nothing(steps in prop::collection::vec(step(), 1..200)) {
        hostile(&steps)?;
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

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        name: u8,
        wait: u8,
        max_hold: bool,
    },
    Release(u8),
    Drain(u8),
    Exited(u8),
    Timeout,
    Reply {
        command: u8,
        reply: Reply,
    },
    Forged {
        machine: u8,
        reply: Reply,
    },
    Hint {
        name: u8,
        wake: Wake,
    },
    Resync,
    Shutdown,
    /// Milliseconds, forwards or backwards.
    Time(i32),
    Drained,
}

fn reply() -> impl Strategy<Value = Reply> {
    let token = || (0..20_u64).prop_map(Token::new);
    let millis = prop_oneof![(0..3_000_u64).prop_map(Duration::from_millis), Just(Duration::MAX)];
    prop_oneof![
        4 => token().prop_map(|token| Reply::Granted { token }),
        2 => (prop::option::of(token()), prop::option::of(millis))
            .prop_map(|(token, remaining)| Reply::Held { token, remaining }),
        3 => Just(Reply::Renewed),
        1 => Just(Reply::NotYours),
        2 => any::<bool>().prop_map(|others_chosen| Reply::Released { others_chosen }),
        1 => Just(Reply::Watching),
        1 => Just(Reply::Failed(Failure::Unknown)),
        1 => Just(Reply::Failed(Failure::NotExecuted)),
        1 => Just(Reply::Failed(Failure::Refused)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let wake = prop_oneof![
        any::<bool>().prop_map(|chosen| Wake::Free { chosen }),
        (0..20_u64, any::<u64>())
            .prop_map(|(token, ttl)| Wake::Held { token: Token::new(token), ttl: Duration::from_nanos(ttl) }),
    ];
    prop_oneof![
        3 => (0..3_u8, 0..3_u8, any::<bool>())
            .prop_map(|(name, wait, max_hold)| Step::Acquire { name, wait, max_hold }),
        1 => any::<u8>().prop_map(Step::Release),
        1 => any::<u8>().prop_map(Step::Drain),
        1 => any::<u8>().prop_map(Step::Exited),
        4 => Just(Step::Timeout),
        8 => (any::<u8>(), reply()).prop_map(|(command, reply)| Step::Reply { command, reply }),
        1 => (any::<u8>(), reply()).prop_map(|(machine, reply)| Step::Forged { machine, reply }),
        2 => (0..3_u8, wake).prop_map(|(name, wake)| Step::Hint { name, wake }),
        1 => Just(Step::Resync),
        1 => (0..100_u8).prop_map(|rare| if rare == 0 { Step::Shutdown } else { Step::Drained }),
        4 => (-500..2_000_i32).prop_map(Step::Time),
        1 => any::<i32>().prop_map(|by| Step::Time(by.saturating_abs())),
        4 => Just(Step::Drained),
    ]
}

struct Hostile {
    node: Node<SplitMix>,
    commands: Vec<CommandId>,
    keys: Vec<LeaseKey>,
    wait: Option<Instant>,
}

impl Hostile {
    /// Polls until there is nothing more, which must be soon.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            match self.node.poll() {
                Output::Command(command) => self.commands.extend(command.id()),
                Output::Notice(_) => {}
                Output::Wait(wait) => {
                    self.wait = wait;
                    return;
                }
            }
        }
        panic!("poll never comes to an end");
    }
}

fn hostile(steps: &[Step]) -> Result<(), TestCaseError> {
    let identity = Identity::new("hostile", Incarnation::new(1)).unwrap();
    let mut it =
        Hostile { node: Node::new(identity, SplitMix::new(1)), commands: vec![], keys: vec![], wait: None };
    let mut clock = 10 * SECOND;
    let mut latest = Instant::ZERO;
    let pick = |keys: &[LeaseKey], index: u8| keys.get(usize::from(index) % keys.len().max(1)).copied();
    for step in steps {
        let now = Instant::from_nanos(clock);
        latest = latest.max(now);
        let before = it.node.clone();
        let result = match step {
            Step::Acquire { name, wait, max_hold } => {
                let mut options = options();
                options.wait = match wait {
                    0 => WaitLimit::Forever,
                    1 => WaitLimit::AtMost(Duration::from_millis(700)),
                    _ => WaitLimit::No,
                };
                options.max_hold = max_hold.then_some(Duration::from_secs(2));
                let name = LeaseName::new(format!("name-{name}")).unwrap();
                it.node.acquire(now, name, options).map(|key| it.keys.push(key))
            }
            Step::Release(index) => pick(&it.keys, *index).map_or(Ok(()), |key| it.node.release(now, key)),
            Step::Drain(index) => pick(&it.keys, *index).map_or(Ok(()), |key| it.node.drain(now, key)),
            Step::Exited(index) => pick(&it.keys, *index).map_or(Ok(()), |lease| {
                it.node.handle(now, Event::WorkloadExited { lease, exit: Exit::Completed })
            }),
            Step::Timeout => it.node.handle(now, Event::Timeout),
            Step::Reply { command, reply } => {
                let count = it.commands.len().max(1);
                // Mostly the latest commands, sometimes any.
                let index = if *command < 200 {
                    count.saturating_sub(1 + usize::from(*command) % 4)
                } else {
                    usize::from(*command) % count
                };
                match it.commands.get(index).copied() {
                    Some(id) => it.node.handle(now, Event::Reply { id, reply: *reply }),
                    None => Ok(()),
                }
            }
            Step::Forged { machine, reply } => {
                // An id of another node.
                let identity = Identity::new("other", Incarnation::new(2)).unwrap();
                let mut other = Node::new(identity, SplitMix::new(2));
                for _ in 0..=*machine {
                    other.acquire(now, LeaseName::new("x").unwrap(), options()).unwrap();
                }
                let Output::Command(command) = other.poll() else { panic!("an attempt was expected") };
                it.node.handle(now, Event::Reply { id: command.id().unwrap(), reply: *reply })
            }
            Step::Hint { name, wake } => {
                let name = LeaseName::new(format!("name-{name}")).unwrap();
                it.node.handle(now, Event::Hint { name, wake: *wake })
            }
            Step::Resync => it.node.handle(now, Event::Resync),
            Step::Shutdown => {
                it.node.shutdown(now);
                Ok(())
            }
            Step::Time(by) => {
                clock = (clock as i64 + i64::from(*by) * 1_000_000) as u64;
                Ok(())
            }
            Step::Drained => {
                it.drain();
                Ok(())
            }
        };
        if result.is_err() {
            prop_assert_eq!(&it.node, &before, "misuse must change nothing");
        }
        if matches!(step, Step::Timeout) {
            it.drain();
            prop_assert!(
                it.wait.is_none_or(|wait| wait > now),
                "after a timeout at {:?}: {:?}",
                now,
                it.wait
            );
            // Repeated, or early, it does nothing.
            let settled = it.node.clone();
            it.node.handle(now, Event::Timeout).unwrap();
            it.drain();
            prop_assert_eq!(&it.node, &settled);
        }
    }
    // Whatever was done to it, it ends when everything is given up and time passes.
    it.node.shutdown(latest);
    it.drain();
    for key in it.keys.clone() {
        it.node.release(latest, key).unwrap();
    }
    it.drain();
    for _ in 0..10_000 {
        let Some(wait) = it.wait else { break };
        it.node.handle(wait, Event::Timeout).unwrap();
        it.drain();
    }
    prop_assert!(it.node.is_empty(), "{} leases never end", it.node.len());
    Ok(())
}
