//! How instances end, by their own will and by an operator's.

use super::*;

#[test]
fn the_heartbeat_ends_after_the_work_and_nobody_else_runs_it_meanwhile() {
    let mut fleet = Fleet::new();
    let mut patient = options(Balanced);
    patient.worker.lease.grace = Duration::from_secs(90);
    for _ in 0..2 {
        let member = fleet.join(2, patient.clone());
        fleet.member(member).winds_down = MINUTE;
    }
    fleet.run_to(MINUTE);
    fleet.shutdown(0);
    fleet.run_for(59 * SECOND);
    assert_eq!(fleet.listed(), ["host-0", "host-1"], "it is there as long as its work is");
    assert_eq!(fleet.shares(&[0, 1]), [1, 1]);
    fleet.run_for(2 * SECOND);
    assert_eq!(fleet.listed(), ["host-1"]);
    assert_eq!(fleet.shares(&[0, 1]), [0, 2]);
    let left = fleet.member(0).heard(|notice| *notice == Notice::Left).expect("it has left");
    assert!(left >= 2 * MINUTE);
}

#[test]
fn each_workload_is_handed_over_as_it_ends_not_when_all_have() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(4, options(Balanced));
    }
    fleet.run_to(MINUTE);
    // Of the two that the first has, one ends at once and the other never.
    let slow = *fleet.member(0).working.keys().next().expect("it works");
    fleet.member(0).winds_down = 10 * MINUTE;
    let quick = *fleet.member(0).working.keys().nth(1).expect("it has two");
    fleet.shutdown(0);
    fleet.deliver(0, MINUTE + 100 * MS, Event::WorkloadExited { lease: quick, exit: Exit::Completed });
    fleet.run_for(SECOND);
    assert_eq!(fleet.shares(&[0, 1]), [1, 3]);
    assert!(fleet.member(0).working.contains_key(&slow));
    // The other one is stopped at the end of its grace.
    fleet.run_for(30 * SECOND);
    assert_eq!(fleet.shares(&[0, 1]), [0, 4]);
    assert!(fleet.member(0).node.is_empty());
}

#[test]
fn an_orderly_end_gives_the_leases_back_and_others_have_them_at_once() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(4, options(Rendezvous::new()));
    }
    fleet.run_to(MINUTE);
    fleet.shutdown(0);
    fleet.run_for(SECOND);
    assert_eq!(fleet.shares(&[1]), [4]);
    let gap = fleet.longest_gap(4, MINUTE, fleet.now);
    assert!(gap <= SOON, "{gap} ns without an owner, where the TTL is 15 s");
}

#[test]
fn work_that_fails_while_its_instance_drains_has_failed_and_holds_nothing_up() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        let member = fleet.join(2, options(Balanced));
        fleet.member(member).fails = true;
    }
    fleet.run_to(MINUTE);
    fleet.shutdown(0);
    fleet.run_for(SECOND);
    let ended: Vec<Exit> =
        fleet.runs.iter().filter(|run| run.member == 0).filter_map(|run| Some(run.end?.1)).collect();
    assert!(ended.contains(&Exit::Failed), "{ended:?}");
    assert!(fleet.member(0).node.is_empty());
    assert_eq!(fleet.shares(&[1]), [2]);
}

#[test]
fn an_operators_drain_moves_all_work_and_it_comes_back_when_that_is_taken_back() {
    let mut fleet = Fleet::new();
    for _ in 0..3 {
        fleet.join(6, options(Balanced));
    }
    fleet.run_to(MINUTE);
    fleet.mark("host-1", true);
    fleet.run_for(SECOND);
    assert_eq!(fleet.shares(&[0, 1, 2]), [3, 0, 3]);
    assert_eq!(fleet.listed().len(), 3, "it stays, as one that drains");
    let draining = Notice::Draining { by_operator: true };
    assert!(fleet.member(1).heard(|notice| *notice == draining).is_some());
    assert!(fleet.member(1).heard(|notice| *notice == Notice::Drained).is_some());
    // Its heartbeats don't clear the mark.
    fleet.run_for(MINUTE);
    assert_eq!(fleet.shares(&[0, 1, 2]), [3, 0, 3]);
    fleet.mark("host-1", false);
    fleet.run_for(10 * SECOND);
    assert_eq!(fleet.shares(&[0, 1, 2]), [2, 2, 2]);
    assert!(fleet.member(1).heard(|notice| *notice == Notice::Resumed).is_some());
}

#[test]
fn an_operators_drain_lasts_though_the_store_has_forgotten_the_instance_meanwhile() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(4, options(Balanced));
    }
    fleet.run_to(MINUTE);
    fleet.mark("host-1", true);
    fleet.run_for(SECOND);
    fleet.member(1).silent = true;
    fleet.run_for(2 * MINUTE);
    assert_eq!(fleet.listed(), ["host-0"]);
    fleet.member(1).silent = false;
    fleet.run_for(MINUTE);
    assert_eq!(fleet.listed().len(), 2);
    assert_eq!(fleet.shares(&[0, 1]), [4, 0]);
    assert!(fleet.member(1).heard(|notice| *notice == Notice::Resumed).is_none());
    fleet.mark("host-1", false);
    fleet.run_for(10 * SECOND);
    assert_eq!(fleet.shares(&[0, 1]), [2, 2]);
}

#[test]
fn when_all_drain_nothing_starts_and_what_is_held_ends_in_time() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        let member = fleet.join_as("host", MemberOptions::default(), 4, options(Balanced));
        fleet.member(member).winds_down = 10 * MINUTE;
    }
    fleet.run_to(MINUTE);
    let runs = fleet.runs.len();
    fleet.mark("host", true);
    fleet.run_for(30 * SECOND - SOON);
    assert_eq!(fleet.owners().len(), 4, "they have their grace");
    fleet.run_for(SECOND);
    assert_eq!((fleet.owners().len(), fleet.runs.len()), (0, runs));
    fleet.run_for(MINUTE);
    assert_eq!((fleet.owners().len(), fleet.runs.len()), (0, runs));
    let names: BTreeSet<_> = fleet.listed().into_iter().collect();
    assert_eq!(names, BTreeSet::from(["host".to_owned()]));
}
