//! What moves when somebody comes or goes, and what does not.

use super::*;

#[test]
fn when_a_second_instance_comes_half_of_the_work_moves_once_and_stays() {
    let mut fleet = Fleet::new();
    fleet.join(4, options(Balanced));
    fleet.run_to(MINUTE);
    fleet.join(4, options(Balanced));
    fleet.run_for(10 * MINUTE);
    assert_eq!(fleet.moves_since(MINUTE), 2);
    assert_eq!(fleet.shares(&[0, 1]), [2, 2]);
    let last = fleet.runs.iter().map(|run| run.from).max().expect("some");
    assert!(last < MINUTE + 10 * SECOND, "all of it is one plan: {last}");
}

#[test]
fn nothing_moves_between_two_that_share_alike() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(12, options(Rendezvous::new()));
    }
    fleet.run_to(MINUTE);
    let (before, assigned) = (fleet.runs.len(), fleet.owners());
    // Ten times the TTL of everything.
    fleet.run_for(150 * SECOND);
    assert_eq!((fleet.runs.len(), fleet.owners()), (before, assigned));
}

#[test]
fn when_a_third_instance_comes_only_what_it_gets_moves() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(10, options(Rendezvous::unbounded()));
    }
    fleet.run_to(MINUTE);
    let before = fleet.owners();
    let newcomer = fleet.join(10, options(Rendezvous::unbounded()));
    fleet.run_for(MINUTE);
    let after = fleet.owners();
    assert_eq!(after.len(), 10);
    assert!(fleet.shares(&[newcomer])[0] > 0);
    for (name, owner) in after {
        assert!(owner == newcomer || owner == before[&name], "{name} moved between the first two");
    }
}

/// What must move: the work of whoever goes, and back to whoever comes in its place.
#[test]
fn a_rolling_restart_of_twenty_moves_little_more_than_it_must() {
    let mut fleet = Fleet::new();
    let start = |fleet: &mut Fleet, host: usize| {
        let name = format!("host-{host:02}");
        fleet.join_as(&name, MemberOptions::default(), 100, options(Rendezvous::unbounded()))
    };
    let mut members: Vec<usize> = (0..20).map(|host| start(&mut fleet, host)).collect();
    fleet.run_to(MINUTE);
    assert_eq!(fleet.owners().len(), 100);
    let begin = fleet.now;
    for (host, member) in members.iter_mut().enumerate() {
        fleet.shutdown(*member);
        fleet.run_for(5 * SECOND);
        assert!(fleet.member(*member).node.is_empty(), "it has left");
        fleet.members.remove(member);
        *member = start(&mut fleet, host);
        fleet.run_for(15 * SECOND);
    }
    assert_eq!(fleet.owners().len(), 100);
    let moves = fleet.moves_since(begin);
    assert!(moves <= 220, "{moves}, where 200 must be");
    let gap = fleet.longest_gap(100, begin, fleet.now);
    assert!(gap <= 2 * SECOND, "{gap} ns without an owner");
}

#[test]
fn one_that_keeps_dying_counts_at_most_until_it_is_listed_no_longer() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(6, options(Balanced));
    }
    fleet.run_to(MINUTE);
    for _ in 0..20 {
        let flapping = fleet.join(6, options(Balanced));
        fleet.run_for(4 * SECOND);
        fleet.kill(flapping);
        fleet.run_for(2 * SECOND);
    }
    // The dead are listed for 15 s, and each of them counts once it is older than the hold-down; that the store can't know.
    fleet.run_for(MINUTE);
    assert_eq!(fleet.owners().len(), 6);
    assert!(fleet.moves_since(MINUTE) <= 20, "{} moves", fleet.moves_since(MINUTE));
}

#[test]
fn one_that_keeps_coming_and_leaving_in_order_moves_nothing() {
    let mut fleet = Fleet::new();
    for _ in 0..2 {
        fleet.join(6, options(Balanced));
    }
    fleet.run_to(MINUTE);
    let before = fleet.runs.len();
    for _ in 0..20 {
        let flapping = fleet.join(6, options(Balanced));
        fleet.run_for(4 * SECOND);
        fleet.shutdown(flapping);
        fleet.run_for(2 * SECOND);
        assert!(fleet.member(flapping).node.is_empty());
        fleet.members.remove(&flapping);
    }
    assert_eq!(fleet.runs.len(), before);
}

#[test]
fn a_hand_over_whose_old_owner_dies_is_over_when_its_lease_is() {
    let mut fleet = Fleet::new();
    let mut drained = options(Balanced);
    drained.rebalance = Rebalance::Drain;
    let first = fleet.join(2, drained.clone());
    fleet.member(first).winds_down = 20 * SECOND;
    fleet.run_to(MINUTE);
    let second = fleet.join(2, drained);
    fleet.run_for(8 * SECOND);
    // It was asked to hand one over, and is at it.
    assert!(fleet.member(first).heard(|notice| matches!(notice, Notice::WorkloadDropped { .. })).is_some());
    assert_eq!(fleet.shares(&[first, second]), [2, 0]);
    fleet.kill(first);
    fleet.run_for(16 * SECOND);
    assert!(fleet.shares(&[second])[0] >= 1, "it has the one that it had been waiting for");
    fleet.run_for(16 * SECOND);
    assert_eq!(fleet.shares(&[second]), [2]);
}

#[test]
fn work_that_belongs_elsewhere_is_stopped_within_the_stop_budget_or_ends_within_its_grace() {
    for (rebalance, within) in [(Rebalance::Stop, 2), (Rebalance::Drain, 30)] {
        let mut fleet = Fleet::new();
        let mut options = options(Balanced);
        options.rebalance = rebalance;
        let first = fleet.join(2, options.clone());
        fleet.member(first).winds_down = MINUTE;
        fleet.run_to(MINUTE);
        fleet.join(2, options);
        fleet.run_for(MINUTE);
        let dropped = |notice: &Notice| matches!(notice, Notice::WorkloadDropped { .. });
        let asked = fleet.member(first).heard(dropped).expect("one of two moves");
        let ended: Vec<u64> = fleet.runs.iter().filter_map(|run| Some(run.end?.0)).collect();
        assert_eq!(ended, [asked + within * SECOND], "{rebalance:?}");
        assert_eq!(fleet.shares(&[0, 1]), [1, 1]);
    }
}
