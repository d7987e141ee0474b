//! Coordinators, joined with the membership and the workers.

use super::members::{Fleet, count, notices, told};
use super::*;
use crate::assign::{Balanced, Digest};
use crate::coordinator::{CoordinatorOptions, DropReason, Rebalance};
use crate::member::{Member, MemberOptions};
use crate::name::CoordinatorKey;

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

fn coordinator_options() -> CoordinatorOptions {
    CoordinatorOptions::new(Balanced, WorkerOptions::new(options()))
}

/// One that has all five workloads, alone in its fleet.
fn alone(options: CoordinatorOptions) -> (Fleet, CoordinatorKey) {
    let mut fleet = Fleet::new();
    let key = fleet.node.start_coordinator(ms(0), FIVE.map(name), options).expect("it has joined");
    fleet.settle();
    assert_eq!(fleet.running(), FIVE);
    (fleet, key)
}

fn old(fleet: &Fleet, instance: &str) -> Member {
    fleet.other(instance, Duration::from_secs(60))
}

fn is_drain(command: &Command) -> bool {
    matches!(command, Command::DrainWorkload { .. })
}

fn is_hard(command: &Command) -> bool {
    matches!(command, Command::StopWorkload { how: Stop::Hard, .. })
}

fn is_start(command: &Command) -> bool {
    matches!(command, Command::StartWorkload { .. })
}

fn is_acquire(command: &Command) -> bool {
    matches!(command, Command::Acquire { .. })
}

fn dropped(outputs: &[Output]) -> Vec<DropReason> {
    let why = |notice: &&Notice| match notice {
        Notice::WorkloadDropped { why, .. } => Some(*why),
        _ => None,
    };
    notices(outputs).iter().filter_map(why).collect()
}

fn digests_said(outputs: &[Output]) -> Vec<usize> {
    let said = |command: &Command| match command {
        Command::Heartbeat { digests, .. } => Some(digests.len()),
        _ => None,
    };
    commands(outputs).iter().filter_map(said).collect()
}

#[test]
fn each_workload_that_belongs_here_gets_a_worker_whose_lease_has_its_name() {
    let mut fleet = Fleet::new();
    let key = fleet.node.start_coordinator(ms(0), [name("a")], coordinator_options()).expect("it has joined");
    let outputs = fleet.settle();
    let all = notices(&outputs);
    let [
        Notice::MembersChanged { .. },
        Notice::WorkloadAssigned { coordinator, worker },
        Notice::Campaigning { worker: campaigns, lease },
        ..,
    ] = all[..]
    else {
        panic!("{outputs:?}")
    };
    assert_eq!((*coordinator, campaigns), (key, worker));
    assert_eq!(fleet.node.name(*lease), Some(&name("a")));
    assert_eq!(fleet.node.worker_name(*worker), Some(&name("a")));
    assert_eq!(fleet.node.worker_coordinator(*worker), Some(key));
    assert!(fleet.node.workloads(key).eq([&name("a")]));
    assert_eq!(digests_said(&outputs), [1]);
    let guard = fleet.node.start_worker(ms(0), name("x"), WorkerOptions::new(options())).expect("fine");
    assert_eq!(fleet.node.worker_coordinator(guard), None);
}

#[test]
fn a_coordinator_needs_members_and_there_are_no_more_than_can_be_said() {
    let mut node = node();
    let start = |node: &mut Node<SplitMix>, text: &str| {
        node.start_coordinator(ms(0), [name(text)], coordinator_options())
    };
    assert_eq!(start(&mut node, "a"), Err(Misuse::NotJoined));
    node.join(ms(0), MemberOptions::default()).expect("fine");
    let keys: Vec<_> = (0..CoordinatorOptions::MOST)
        .map(|n| start(&mut node, &format!("w-{n}")).expect("there is room"))
        .collect();
    let before = node.clone();
    assert!(matches!(start(&mut node, "one-more"), Err(Misuse::Config(_))));
    assert_eq!(node, before);
    // Their digests are said in full; of those before a change as many as there is room for.
    for key in &keys {
        node.add_workload(ms(0), *key, name("extra")).expect("known");
    }
    assert_eq!(digests_said(&drain(&mut node)), [CoordinatorOptions::MOST]);
    node.shutdown(ms(0));
    assert_eq!(start(&mut node, "a"), Err(Misuse::ShuttingDown));
}

#[test]
fn keys_that_were_never_given_out_are_misuse_those_that_have_ended_are_not() {
    let (mut fleet, key) = alone(coordinator_options());
    let node = &mut fleet.node;
    let before = node.clone();
    let guard = LeaseKey(1);
    for unknown in [CoordinatorKey(99_999), CoordinatorKey(guard.0)] {
        let error = Misuse::UnknownCoordinator(unknown);
        assert_eq!(node.add_workload(ms(9), unknown, name("z")), Err(error.clone()));
        assert_eq!(node.remove_workload(ms(9), unknown, &name("z")), Err(error.clone()));
        assert_eq!(node.drain_coordinator(ms(9), unknown), Err(error.clone()));
        assert_eq!(node.stop_coordinator(ms(9), unknown), Err(error));
    }
    let id = CommandId { machine: key.0, sequence: 0 };
    let event = Event::Reply { id, reply: GRANTED };
    assert_eq!(node.handle(ms(9), event), Err(Misuse::UnknownCommand(id)));
    assert_eq!(*node, before);
    node.drain_coordinator(ms(9), key).expect("known");
    fleet.now = ms(9);
    fleet.settle();
    let outputs = fleet.work_ends(Exit::Completed);
    assert_eq!(told(&outputs, &Notice::CoordinatorEnded { coordinator: key }), 1);
    let node = &mut fleet.node;
    assert_eq!(node.add_workload(ms(10), key, name("z")), Ok(false));
    assert_eq!(node.remove_workload(ms(10), key, &name("a")), Ok(false));
    assert_eq!(node.drain_coordinator(ms(10), key), Ok(()));
    assert_eq!(node.workloads(key).count(), 0);
    let event = Event::Reply { id, reply: GRANTED };
    node.handle(ms(10), event).expect("it has ended, and is dropped");
    assert_eq!(fleet.settle(), []);
}

#[test]
fn what_belongs_elsewhere_is_asked_to_end_at_once_and_stopped_hard_a_stop_budget_later() {
    let (mut fleet, _) = alone(coordinator_options());
    let other = old(&fleet, "other");
    let budget = options().timing.stop_budget();
    let outputs = fleet.see([other]);
    assert_eq!(dropped(&outputs), [DropReason::Rebalance; 2]);
    assert_eq!((count(&outputs, is_drain), count(&outputs, is_hard)), (2, 0));
    let first = outputs.iter().position(|o| matches!(o, Output::Command(command) if is_drain(command)));
    let told = outputs.iter().rposition(|o| matches!(o, Output::Notice(Notice::WorkloadDropped { .. })));
    assert!(told < first, "{outputs:?}");
    assert_eq!(count(&fleet.after(budget - Duration::from_millis(201)), is_hard), 0);
    assert_eq!(count(&fleet.after(Duration::from_millis(201)), is_hard), 2);
    assert_eq!(fleet.running(), FIVE, "until they have ended");
}

#[test]
fn what_belongs_elsewhere_may_have_the_whole_grace_if_that_is_wanted() {
    let mut options = coordinator_options();
    options.rebalance = Rebalance::Drain;
    let (mut fleet, _) = alone(options);
    let other = old(&fleet, "other");
    let outputs = fleet.see([other]);
    assert_eq!(count(&outputs, is_drain), 2);
    assert_eq!(count(&fleet.after(Duration::from_millis(29_700)), is_hard), 0);
    assert_eq!(count(&fleet.after(Duration::from_millis(300)), is_hard), 2);
}

#[test]
fn work_that_has_ended_elsewhere_comes_back_when_its_instance_is_gone() {
    let (mut fleet, _) = alone(coordinator_options());
    let other = old(&fleet, "other");
    fleet.see([other]);
    let ends: Vec<_> =
        fleet.working.keys().copied().filter(|lease| fleet.node.valid(fleet.now, *lease).is_none()).collect();
    assert_eq!(ends.len(), 2);
    for lease in ends {
        fleet.working.remove(&lease);
        fleet.node.handle(fleet.now, Event::WorkloadExited { lease, exit: Exit::Stopped }).expect("known");
    }
    let outputs = fleet.settle();
    assert_eq!(count(&outputs, is_acquire), 0);
    assert_eq!(fleet.running(), ["a", "b", "c"]);
    let outputs = fleet.see([]);
    assert_eq!(count(&outputs, is_start), 2);
    assert_eq!(fleet.running(), FIVE);
}

#[test]
fn a_candidacy_for_what_belongs_elsewhere_is_given_up() {
    let (mut fleet, _) = alone(coordinator_options());
    fleet.work_ends(Exit::Completed);
    // They rest, and then campaign in vain.
    fleet.grants = false;
    let outputs = fleet.after(Duration::from_millis(1_100));
    assert_eq!(count(&outputs, is_acquire), 5);
    let other = old(&fleet, "other");
    let outputs = fleet.see([other]);
    assert_eq!(dropped(&outputs).len(), 2);
    assert_eq!(failures(&outputs).len(), 2);
    let ended = |notice: &&Notice| matches!(notice, Notice::WorkerEnded { .. });
    assert_eq!(notices(&outputs).iter().copied().filter(ended).count(), 2);
}

#[test]
fn workloads_come_and_go_while_the_others_run_on() {
    let (mut fleet, key) = alone(coordinator_options());
    assert_eq!(fleet.node.add_workload(ms(1), key, name("f")), Ok(true));
    assert_eq!(fleet.node.add_workload(ms(1), key, name("f")), Ok(false));
    let outputs = fleet.settle();
    assert_eq!((count(&outputs, is_start), dropped(&outputs)), (1, Vec::new()));
    assert_eq!(digests_said(&outputs), [2], "and the one before the change");
    assert_eq!(fleet.node.remove_workload(ms(2), key, &name("a")), Ok(true));
    assert_eq!(fleet.node.remove_workload(ms(2), key, &name("a")), Ok(false));
    let outputs = fleet.settle();
    assert_eq!(dropped(&outputs), [DropReason::Removed]);
    assert_eq!(count(&outputs, is_drain), 1);
    // It is wanted again before it has ended.
    assert_eq!(fleet.node.add_workload(ms(3), key, name("a")), Ok(true));
    assert_eq!(count(&fleet.settle(), is_start), 0);
    let lease = fleet.working.keys().copied().find(|lease| fleet.node.name(*lease) == Some(&name("a")));
    let lease = lease.expect("it still runs");
    fleet.working.remove(&lease);
    fleet.node.handle(ms(4), Event::WorkloadExited { lease, exit: Exit::Stopped }).expect("known");
    assert_eq!(count(&fleet.settle(), is_start), 1);
    // The digests of before are said for the time of a hold-down.
    let outputs = fleet.to(ms(5_100));
    assert_eq!(digests_said(&outputs).last(), Some(&1), "{outputs:?}");
}

#[test]
fn a_coordinator_that_drains_gives_its_work_the_grace_and_one_that_is_stopped_then_does_not() {
    let (mut fleet, key) = alone(coordinator_options());
    fleet.node.drain_coordinator(ms(1), key).expect("known");
    let outputs = fleet.settle();
    assert_eq!(dropped(&outputs), [DropReason::Ended; 5]);
    assert_eq!((count(&outputs, is_drain), count(&outputs, is_hard)), (5, 0));
    assert_eq!(digests_said(&outputs), [0], "it takes part in no plan any more");
    fleet.node.drain_coordinator(ms(2), key).expect("harmless");
    assert_eq!(count(&fleet.settle(), is_drain), 0);
    fleet.node.stop_coordinator(ms(3), key).expect("known");
    let outputs = fleet.settle();
    assert_eq!((count(&outputs, is_hard), dropped(&outputs).len()), (5, 0));
    let mut outputs = fleet.work_ends(Exit::Stopped);
    outputs.extend(fleet.after(Duration::from_secs(60)));
    assert_eq!(told(&outputs, &Notice::CoordinatorEnded { coordinator: key }), 1);
    assert_eq!(count(&outputs, is_acquire), 0);
    assert_eq!(fleet.node.len(), 1, "the membership");
}

#[test]
fn every_workload_is_told_of_as_dropped_when_a_coordinator_ends_also_those_that_only_wait() {
    for shuts_down in [false, true] {
        let (mut fleet, key) = alone(coordinator_options());
        let lease = *fleet.working.keys().next().expect("five run");
        fleet.working.remove(&lease);
        fleet.node.handle(ms(1), Event::WorkloadExited { lease, exit: Exit::Failed }).expect("known");
        fleet.settle();
        if shuts_down {
            fleet.node.shutdown(ms(2));
        } else {
            fleet.node.drain_coordinator(ms(2), key).expect("known");
        }
        let mut outputs = fleet.settle();
        assert_eq!(dropped(&outputs), [DropReason::Ended; 5]);
        outputs.extend(fleet.work_ends(Exit::Completed));
        assert_eq!(
            outputs.iter().filter(|o| matches!(o, Output::Notice(Notice::WorkerEnded { .. }))).count(),
            5
        );
        assert_eq!(told(&outputs, &Notice::CoordinatorEnded { coordinator: key }), 1);
        assert_eq!(fleet.node.is_empty(), shuts_down);
    }
}

#[test]
fn a_coordinator_without_work_ends_at_once() {
    let mut fleet = Fleet::new();
    let key = fleet.node.start_coordinator(ms(0), [], coordinator_options()).expect("it has joined");
    assert_eq!(count(&fleet.settle(), is_acquire), 0);
    fleet.node.drain_coordinator(ms(0), key).expect("known");
    assert_eq!(told(&fleet.settle(), &Notice::CoordinatorEnded { coordinator: key }), 1);
}

#[test]
fn an_instance_that_drains_has_its_work_dropped_at_once_and_back_afterwards() {
    let (mut fleet, key) = alone(coordinator_options());
    fleet.node.drain_all(ms(1));
    let outputs = fleet.settle();
    let draining = outputs.iter().position(|o| matches!(o, Output::Notice(Notice::Draining { .. })));
    let first = outputs.iter().position(|o| matches!(o, Output::Command(command) if is_drain(command)));
    assert!(draining < first && first.is_some(), "{outputs:?}");
    assert_eq!(dropped(&outputs), [DropReason::Drain; 5]);
    let outputs = fleet.work_ends(Exit::Completed);
    assert_eq!(told(&outputs, &Notice::Drained), 1);
    assert_eq!(told(&outputs, &Notice::CoordinatorEnded { coordinator: key }), 0);
    let mut outputs = fleet.after(Duration::from_secs(60));
    fleet.node.start_coordinator(fleet.now, [name("late")], coordinator_options()).expect("it waits");
    outputs.extend(fleet.after(Duration::from_secs(60)));
    assert_eq!((count(&outputs, is_acquire), told(&outputs, &Notice::Drained)), (0, 0));
    fleet.node.resume(fleet.now);
    fleet.settle();
    assert_eq!(fleet.running(), ["a", "b", "c", "d", "e", "late"]);
}

#[test]
fn a_drain_that_is_taken_back_brings_the_work_back_once_it_has_ended() {
    let (mut fleet, _) = alone(coordinator_options());
    fleet.node.drain_all(ms(1));
    fleet.node.resume(ms(1));
    let outputs = fleet.settle();
    assert_eq!((count(&outputs, is_drain), count(&outputs, is_start)), (5, 0));
    let outputs = fleet.work_ends(Exit::Stopped);
    assert_eq!((count(&outputs, is_start), told(&outputs, &Notice::Drained)), (5, 0));
}

#[test]
fn what_was_granted_and_not_yet_polled_is_not_started_on_an_instance_that_drains() {
    let mut fleet = Fleet::new();
    fleet.grants = false;
    fleet.node.start_coordinator(ms(0), [name("a")], coordinator_options()).expect("it has joined");
    let outputs = fleet.settle();
    let acquire = commands(&outputs).into_iter().find(is_acquire).and_then(|command| command.id());
    let event = Event::Reply { id: acquire.expect("an attempt"), reply: GRANTED };
    fleet.node.handle(ms(1), event).expect("it fits");
    fleet.node.drain_all(ms(1));
    let outputs = fleet.settle();
    assert_eq!((count(&outputs, is_start), count(&outputs, is_drain)), (0, 0), "{outputs:?}");
}

#[test]
fn a_rest_that_is_over_when_the_plan_changes_brings_no_candidacy_for_what_belongs_elsewhere() {
    let (mut fleet, _) = alone(coordinator_options());
    fleet.to(ms(200));
    fleet.work_ends(Exit::Completed);
    let other = old(&fleet, "other");
    fleet.node.handle(fleet.now, Event::MembersHint).expect("never misuse");
    fleet.hears = false;
    let outputs = fleet.settle();
    let beat = commands(&outputs).iter().find_map(Command::id).expect("a heartbeat");
    // All rests are over by now, and nothing was polled.
    fleet.now = ms(2_000);
    let (mine, _) = fleet.node.members().expect("it has joined");
    let members = mine.iter().cloned().chain([other]);
    let presence = crate::member::Presence::new(mine[0].joined, 99, members.collect::<Vec<_>>());
    fleet.node.handle(fleet.now, Event::Present { id: beat, presence }).expect("it fits");
    let outputs = fleet.settle();
    assert_eq!(count(&outputs, is_acquire), 3, "{outputs:?}");
}

#[test]
fn an_instance_that_was_taken_for_dead_settles_anew() {
    let (mut fleet, _) = alone(coordinator_options());
    let other = old(&fleet, "other");
    // It was not heard of for too long, and is listed as just come.
    fleet.age = Duration::ZERO;
    let outputs = fleet.see([other]);
    assert_eq!(dropped(&outputs), [DropReason::Rebalance; 5]);
    let mut outputs = fleet.work_ends(Exit::Stopped);
    outputs.extend(fleet.to(ms(4_990)));
    assert_eq!(count(&outputs, is_acquire), 0);
    let outputs = fleet.to(ms(5_000));
    assert_eq!(count(&outputs, is_start), 3, "{outputs:?}");
}

#[test]
fn in_calm_a_fleet_costs_each_instance_its_heartbeats_and_renewals_and_nothing_else() {
    let (mut fleet, _) = alone(coordinator_options());
    let other = fleet.other("other", Duration::from_millis(0));
    fleet.see([other]);
    let outputs = fleet.to(ms(3_600_000));
    let beats = count(&outputs, |c| matches!(c, Command::Heartbeat { .. }));
    assert!((715..=725).contains(&beats), "{beats}");
    let renewals = count(&outputs, |c| matches!(c, Command::Renew { .. }));
    assert_eq!(
        commands(&outputs).len() - beats - renewals,
        4,
        "two rebalanced, asked to end and stopped hard"
    );
    let said = notices(&outputs).into_iter().filter(|notice| !matches!(notice, Notice::Renewed { .. }));
    assert_eq!(said.count(), 2 + 2, "what was dropped, and stuck");
}

#[test]
fn while_the_store_is_out_of_reach_little_is_asked_and_the_plan_stands() {
    let (mut fleet, _) = alone(coordinator_options());
    let other = old(&fleet, "other");
    fleet.see([other]);
    (fleet.hears, fleet.grants) = (false, false);
    fleet.work_ends(Exit::Stopped);
    let outputs = fleet.to(ms(3_600_000));
    assert_eq!(dropped(&outputs), []);
    let asked = commands(&outputs).len();
    assert!((500..20_000).contains(&asked), "{asked}");
}

#[test]
fn the_same_seed_and_the_same_events_give_the_same_fleet() {
    let run = || {
        let (mut fleet, _) = alone(coordinator_options());
        let other = old(&fleet, "other");
        let mut all = fleet.see([other]);
        all.extend(fleet.mark(true));
        all.extend(fleet.work_ends(Exit::Stopped));
        all.extend(fleet.mark(false));
        all.extend(fleet.to(ms(100_000)));
        (all, fleet.node)
    };
    assert_eq!(run(), run());
}

#[test]
fn at_the_end_of_time_a_fleet_is_at_rest() {
    let (mut fleet, key) = alone(coordinator_options());
    fleet.hears = false;
    fleet.node.add_workload(Instant::MAX, key, name("f")).expect("known");
    fleet.now = Instant::MAX;
    let outputs = fleet.settle();
    assert!(outputs.len() < 100, "{outputs:?}");
    assert_eq!(fleet.node.poll(), Output::Wait(None));
    fleet.node.drain_all(Instant::MAX);
    fleet.node.shutdown(Instant::MAX);
    fleet.settle();
    assert!(matches!(fleet.node.poll(), Output::Wait(None)));
}

#[test]
fn two_coordinators_of_one_kind_say_one_digest() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.node.start_coordinator(ms(0), [name("a")], coordinator_options()).expect("it has joined");
    }
    let outputs = fleet.settle();
    assert_eq!(digests_said(&outputs), [1], "{outputs:?}");
    let digest = fleet.own.as_ref().expect("listed").digests[0];
    assert_eq!(digest, Digest::of(["balanced", "5000000000", "a"]));
    assert_eq!(fleet.running(), ["a"], "the lease lets one of them work");
}
