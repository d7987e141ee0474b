//! The real nodes against an abstract model: who may hold which lease, whatever is done to them and to their messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tenure_core::{Exit, Token};
use tenure_verify::simulation::{Fleet, Plant};

const MEMBERS: usize = 3;
const NAMES: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Advance(Duration),
    /// Messages are counted from the oldest; what is not there is not done.
    Deliver(usize),
    Drop(usize),
    Duplicate(usize),
    Acquire {
        member: usize,
        name: usize,
    },
    /// The application is done with all that a member stands for under a name.
    Release {
        member: usize,
        name: usize,
    },
    Drain {
        member: usize,
        name: usize,
    },
    /// A worker whose workload is started again however it ends.
    StartWorker {
        member: usize,
        name: usize,
    },
    DrainWorkers {
        member: usize,
        name: usize,
    },
    /// What a member does under a name comes to its end, or fails.
    EndWork {
        member: usize,
        name: usize,
        failed: bool,
    },
    Crash(usize),
    Restart(usize),
    Pause(usize),
    Resume(usize),
}

/// What is known without looking at the machines.
#[derive(Clone, Debug)]
struct Reference {
    processes: Vec<Process>,
    /// Who ever asked for which lease: nobody else is ever granted it.
    asked: BTreeSet<(usize, usize)>,
    /// How many processes there were.
    lives: usize,
}

#[derive(Clone, Debug)]
struct Process {
    life: usize,
    up: bool,
    paused: bool,
    /// The leases that it wants or holds, and was not told to give up: it may hold these, and no others.
    wants: BTreeSet<usize>,
    /// The leases for which it has a worker that was not told to end: it may hold these as well.
    works: BTreeSet<usize>,
}

impl ReferenceStateMachine for Reference {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let process =
            |life| Process { life, up: true, paused: false, wants: BTreeSet::new(), works: BTreeSet::new() };
        let processes = (0..MEMBERS).map(process).collect();
        Just(Self { processes, asked: BTreeSet::new(), lives: MEMBERS }).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let (member, name) = (|| 0..MEMBERS, || 0..NAMES);
        prop_oneof![
            6 => (1..400_u64).prop_map(|ms| Step::Advance(Duration::from_millis(ms))),
            1 => (400..3_000_u64).prop_map(|ms| Step::Advance(Duration::from_millis(ms))),
            // Mostly in order.
            14 => (0..3_usize).prop_map(Step::Deliver),
            2 => (0..20_usize).prop_map(Step::Deliver),
            2 => (0..20_usize).prop_map(Step::Drop),
            1 => (0..20_usize).prop_map(Step::Duplicate),
            4 => (member(), name()).prop_map(|(member, name)| Step::Acquire { member, name }),
            1 => (member(), name()).prop_map(|(member, name)| Step::Release { member, name }),
            1 => (member(), name()).prop_map(|(member, name)| Step::Drain { member, name }),
            3 => (member(), name()).prop_map(|(member, name)| Step::StartWorker { member, name }),
            1 => (member(), name()).prop_map(|(member, name)| Step::DrainWorkers { member, name }),
            1 => (member(), name(), any::<bool>())
                .prop_map(|(member, name, failed)| Step::EndWork { member, name, failed }),
            1 => member().prop_map(Step::Crash),
            2 => member().prop_map(Step::Restart),
            1 => member().prop_map(Step::Pause),
            2 => member().prop_map(Step::Resume),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, step: &Step) -> bool {
        let runs = |member: usize| state.processes[member].up && !state.processes[member].paused;
        match step {
            Step::Acquire { member, .. }
            | Step::StartWorker { member, .. }
            | Step::EndWork { member, .. } => runs(*member),
            Step::DrainWorkers { member, name } => {
                runs(*member) && state.processes[*member].works.contains(name)
            }
            Step::Release { member, name } | Step::Drain { member, name } => {
                runs(*member) && state.processes[*member].wants.contains(name)
            }
            Step::Crash(member) => state.processes[*member].up,
            Step::Pause(member) => runs(*member),
            Step::Restart(member) => !state.processes[*member].up,
            Step::Resume(member) => state.processes[*member].paused,
            Step::Advance(_) | Step::Deliver(_) | Step::Drop(_) | Step::Duplicate(_) => true,
        }
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        match step {
            Step::Acquire { member, name } => {
                let process = &mut state.processes[*member];
                process.wants.insert(*name);
                state.asked.insert((process.life, *name));
            }
            Step::Release { member, name } | Step::Drain { member, name } => {
                state.processes[*member].wants.remove(name);
            }
            Step::StartWorker { member, name } => {
                let process = &mut state.processes[*member];
                process.works.insert(*name);
                state.asked.insert((process.life, *name));
            }
            Step::DrainWorkers { member, name } => {
                state.processes[*member].works.remove(name);
            }
            Step::Crash(member) => {
                let process = &mut state.processes[*member];
                (process.up, process.paused) = (false, false);
                process.wants.clear();
                process.works.clear();
            }
            Step::Restart(member) => {
                let process = &mut state.processes[*member];
                (process.life, process.up) = (state.lives, true);
                state.lives += 1;
            }
            Step::Pause(member) => state.processes[*member].paused = true,
            Step::Resume(member) => state.processes[*member].paused = false,
            Step::EndWork { .. }
            | Step::Advance(_)
            | Step::Deliver(_)
            | Step::Drop(_)
            | Step::Duplicate(_) => {}
        }
        state
    }
}

/// The real fleet, and what the store was seen to grant.
struct Real {
    fleet: Fleet,
    granted: BTreeMap<usize, (usize, Token)>,
}

impl StateMachineTest for Real {
    type SystemUnderTest = Self;
    type Reference = Reference;

    fn init_test(_: &Reference) -> Self {
        Self { fleet: Fleet::by_hand(MEMBERS, NAMES, None), granted: BTreeMap::new() }
    }

    fn apply(mut state: Self, _: &Reference, step: Step) -> Self {
        let fleet = &mut state.fleet;
        let under = |fleet: &Fleet, member, name| {
            let all = fleet.candidacies(member).into_iter();
            all.filter(move |(_, other, _)| *other == name).map(|(lease, ..)| lease).collect::<Vec<_>>()
        };
        match step {
            Step::Advance(by) => fleet.advance(by),
            Step::Deliver(nth) => fleet.deliver(nth),
            Step::Drop(nth) => fleet.drop(nth),
            Step::Duplicate(nth) => fleet.duplicate(nth),
            Step::Acquire { member, name } => fleet.acquire(member, name),
            // The last ones first, or each would come to its turn.
            Step::Release { member, name } => {
                under(fleet, member, name).into_iter().rev().for_each(|lease| fleet.release(member, lease));
            }
            Step::Drain { member, name } => {
                under(fleet, member, name).into_iter().rev().for_each(|lease| fleet.drain(member, lease));
            }
            Step::StartWorker { member, name } => fleet.start_worker(member, name),
            Step::DrainWorkers { member, name } => fleet.drain_workers(member, name),
            Step::EndWork { member, name, failed } => {
                fleet.end_work(member, name, if failed { Exit::Failed } else { Exit::Completed });
            }
            Step::Crash(member) => fleet.kill(member),
            Step::Restart(member) => fleet.restart(member),
            Step::Pause(member) => fleet.stop(member),
            Step::Resume(member) => fleet.proceed(member),
        }
        for name in 0..NAMES {
            let Some((life, token)) = state.fleet.holder(name) else { continue };
            let before = state.granted.insert(name, (life, token));
            // One grant, one owner; the next one has a higher token.
            assert!(
                before.is_none_or(|before| before == (life, token) || before.1 < token),
                "{before:?}, {token}"
            );
        }
        state
    }

    fn check_invariants(state: &Self, reference: &Reference) {
        // S1 to S9 are judged all along.
        assert!(state.fleet.violation().is_none(), "{}", state.fleet.violation().unwrap());
        for (name, (life, token)) in &state.granted {
            assert!(reference.asked.contains(&(*life, *name)), "process {life} never asked for lease {name}");
            assert!(*token > Token::ZERO);
        }
        for name in 0..NAMES {
            let mut holders = 0;
            for (member, process) in reference.processes.iter().enumerate() {
                let held = state.fleet.candidacies(member).into_iter().filter(|(_, other, _)| *other == name);
                for token in held.filter_map(|(_, _, valid)| valid) {
                    holders += 1;
                    assert!(
                        process.wants.contains(&name) || process.works.contains(&name),
                        "node {member} holds lease {name}, which it gave up"
                    );
                    assert_eq!(state.granted.get(&name), Some(&(process.life, token)), "never granted");
                }
            }
            assert!(holders < 2, "{holders} holders of lease {name}");
        }
    }

    /// L3: from whatever state it was left in.
    fn teardown(mut state: Self, _: Reference) {
        state.fleet.heal_and_recover();
        assert!(state.fleet.violation().is_none(), "{}", state.fleet.violation().unwrap());
        for name in 0..NAMES {
            assert!(state.fleet.holder(name).is_some(), "nobody holds lease {name}");
        }
    }
}

// More cases with PROPTEST_CASES.
fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        max_local_rejects: 1 << 20,
        ..ProptestConfig::default()
    }
}

prop_state_machine! {
    #![proptest_config(config())]

    /// S1 to S9, L3.
    #[test]
    fn only_who_asked_holds_and_everybody_recovers(sequential 1..150 => Real);
}

/// The same, with a store that gives a new token to a request that is repeated.
struct Planted;

impl StateMachineTest for Planted {
    type SystemUnderTest = Real;
    type Reference = Reference;

    fn init_test(_: &Reference) -> Real {
        let fleet = Fleet::by_hand(MEMBERS, NAMES, Some(Plant::AcquireRaisesToken));
        Real { fleet, granted: BTreeMap::new() }
    }

    fn apply(state: Real, reference: &Reference, step: Step) -> Real {
        Real::apply(state, reference, step)
    }

    fn check_invariants(state: &Real, reference: &Reference) {
        Real::check_invariants(state, reference);
    }
}

prop_state_machine! {
    #![proptest_config(config())]

    #[test]
    #[should_panic(expected = "S8 twice is once is violated")]
    fn a_planted_bug_is_found(sequential 1..150 => Planted);
}
