//! Who is listed, for how long, and who counts.

use super::*;

#[test]
fn who_is_killed_is_listed_no_longer_than_its_ttl() {
    let mut fleet = Fleet::new();
    let first = fleet.join(4, options(Balanced));
    fleet.join(4, options(Balanced));
    fleet.run_to(MINUTE);
    assert_eq!(fleet.listed(), ["host-0", "host-1"]);
    fleet.kill(first);
    fleet.run_for(15 * SECOND + SOON);
    assert_eq!(fleet.listed(), ["host-1"]);
    let seen = fleet.member(1).node.members().expect("it is a member").0.len();
    // The store tells nobody of the end of a time; the next heartbeat does.
    fleet.run_for(5 * SECOND);
    assert!(seen <= 2);
    assert_eq!(fleet.member(1).node.members().expect("it is a member").0.len(), 1);
    fleet.run_for(20 * SECOND);
    assert_eq!(fleet.shares(&[1]), [4]);
}

#[test]
fn two_processes_of_one_name_are_two_members_and_share_the_work() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join_as("host", MemberOptions::default(), 4, options(Balanced));
    }
    fleet.run_to(MINUTE);
    assert_eq!(fleet.listed(), ["host", "host"]);
    assert_eq!(fleet.shares(&[0, 1]), [2, 2]);
}

#[test]
fn a_process_that_comes_again_after_a_second_is_another_one_and_waits_for_the_leases_of_the_first() {
    let mut fleet = Fleet::new();
    let first = fleet.join_as("host", MemberOptions::default(), 2, options(Balanced));
    fleet.run_to(MINUTE);
    fleet.kill(first);
    fleet.run_for(SECOND);
    let second = fleet.join_as("host", MemberOptions::default(), 2, options(Balanced));
    fleet.run_for(SECOND);
    // The dead one is still listed, the new one does not count yet, and adopts nothing.
    assert_eq!(fleet.listed().len(), 2);
    assert_eq!(fleet.owners().len(), 0);
    // The leases of 15 s and the heartbeats of 15 s are over at about the same time.
    fleet.run_for(25 * SECOND);
    assert_eq!(fleet.shares(&[second]), [2]);
    assert_eq!(fleet.listed(), ["host"]);
}

#[test]
fn a_newcomer_gets_its_share_of_owners_that_are_busy_and_never_lose_a_race() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        let member = fleet.join(9, options(Balanced));
        fleet.member(member).winds_down = SECOND;
    }
    fleet.run_to(MINUTE);
    let newcomer = fleet.join(9, options(Balanced));
    fleet.run_for(10 * SECOND);
    assert_eq!(fleet.shares(&[0, 1, newcomer]), [3, 3, 3]);
}

#[test]
fn the_time_for_which_the_dead_are_listed_has_nothing_to_do_with_the_leases() {
    let mut fleet = Fleet::new();
    let mut long = options(Balanced);
    long.worker.lease.timing =
        LeaseConfig::new(Duration::from_secs(60)).resolve(&StoreClock::default()).expect("they fit");
    let mut member = MemberOptions::default();
    member.ttl = Duration::from_secs(2);
    for name in ["a", "b"] {
        fleet.join_as(name, member.clone(), 2, long.clone());
    }
    fleet.run_to(MINUTE);
    fleet.kill(0);
    fleet.run_for(2 * SECOND + SOON);
    assert_eq!(fleet.listed(), ["b"]);
    // Its lease stands for its own TTL.
    assert_eq!(fleet.owners().len(), 1);
    fleet.run_for(63 * SECOND);
    assert_eq!(fleet.shares(&[1]), [2]);
}

#[test]
fn leases_that_were_lost_while_the_store_was_away_are_taken_again() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(4, options(Rendezvous::new()));
    }
    fleet.run_to(MINUTE);
    fleet.stalled = true;
    fleet.run_for(40 * SECOND);
    assert_eq!(fleet.owners().len(), 0, "nobody works without a lease");
    fleet.stalled = false;
    fleet.run_for(40 * SECOND);
    assert_eq!(fleet.owners().len(), 4);
    assert_eq!(fleet.listed(), ["host-0", "host-1"]);
}

#[test]
fn whose_heartbeats_get_lost_keeps_its_work_as_long_as_it_renews() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(4, options(Balanced));
    }
    fleet.run_to(MINUTE);
    let before = fleet.runs.len();
    fleet.member(0).silent = true;
    fleet.run_for(MINUTE);
    assert_eq!(fleet.listed(), ["host-1"]);
    assert_eq!((fleet.shares(&[0, 1]), fleet.runs.len()), (vec![2, 2], before));
    // Back again it is a newcomer: it lets go of its work until it has settled.
    fleet.member(0).silent = false;
    fleet.run_for(MINUTE);
    assert_eq!(fleet.shares(&[0, 1]), [2, 2]);
    assert!(fleet.runs.len() <= before + 4, "its share goes and comes back once: {}", fleet.runs.len());
}
