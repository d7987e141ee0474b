//! Many candidates.

use super::*;

#[test]
fn a_hand_over_among_five_hundred_waiters_costs_a_few_writes() {
    let world = World::new();
    let tenure = world.tenure();
    let mut lease = world.acquire(&tenure, "a");
    let waiters: Vec<_> =
        (0..500).map(|_| spawn(&world.runtime, tenure.acquire("a").into_future())).collect();
    world.runtime.advance(SECOND);
    assert_eq!(tenure.stats().open, 501);
    world.plan.forget();
    for hand_over in 1..=500 {
        drop(lease);
        world.runtime.advance(SECOND);
        let next = waiters.iter().find_map(|waiter| waiter.lock().unwrap().take());
        lease = next.expect("the lease passes on within a second").unwrap();
        assert!(lease.is_valid());
        assert_eq!(tenure.stats().held, 1);
        assert_eq!(world.plan.count("release"), hand_over);
        let tries = world.plan.count("acquire");
        assert!(tries <= hand_over * 2, "{tries} tries for {hand_over} hand-overs");
    }
    drop(lease);
    world.settle();
    assert!(world.records().is_empty());
    assert_eq!(tenure.stats().open, 0);
}

#[test]
fn a_hand_over_among_fifty_processes_costs_a_few_writes() {
    let world = World::new();
    let holder = world.tenure();
    let lease = world.acquire(&holder, "a");
    let others: Vec<_> = (0..50).map(|_| world.tenure()).collect();
    let waiters: Vec<_> =
        others.iter().map(|other| spawn(&world.runtime, other.acquire("a").into_future())).collect();
    world.runtime.advance(SECOND);
    world.plan.forget();
    drop(lease);
    world.runtime.advance(SECOND);
    let got = waiters.iter().filter(|waiter| waiter.lock().unwrap().is_some()).count();
    assert_eq!(got, 1);
    let tries = world.plan.count("acquire");
    assert!(tries <= 8, "{tries} tries for one hand-over");
}

/// L1.
#[test]
fn a_waiter_whose_holder_dies_gets_the_lease_after_the_ttl() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&one, "a");
    let got = spawn(&world.runtime, other.acquire("a").into_future());
    world.settle();
    // As if killed: nothing of it reaches the store any more.
    world.plan.set({
        let owner = lease.owner();
        move |operation| match operation {
            tenure_store::Operation::Renew(renew) if renew.owner.to_string() == owner => Fault::Hang,
            _ => Fault::None,
        }
    });
    let valid_until = lease.deadlines().valid_until;
    world.runtime.advance(2 * TTL);
    let next = got.lock().unwrap().take().unwrap().unwrap();
    assert!(next.token() > lease.token());
    assert!(world.now() > valid_until);
    assert!(!lease.is_valid() && next.is_valid());
}

#[test]
fn many_leases_are_renewed_in_few_requests() {
    let world = World::new();
    let tenure = world.tenure();
    let leases: Vec<_> = (0..1000).map(|n| world.acquire(&tenure, &n.to_string())).collect();
    world.runtime.advance(TTL);
    let before = tenure.stats();
    world.runtime.advance(10 * TTL);
    let after = tenure.stats();
    assert!(leases.iter().all(Lease::is_valid));
    let (operations, batches) = (after.operations - before.operations, after.batches - before.batches);
    assert!(operations >= 30_000, "{operations}");
    assert!(batches * 50 < operations, "{operations} operations in {batches} batches");
}

#[test]
fn when_a_winner_resigns_at_once_the_others_settle_on_one_of_them() {
    let world = World::new();
    let processes: Vec<_> = (0..3).map(|_| world.tenure()).collect();
    let first = world.acquire(&processes[0], "a");
    let waiters: Vec<_> =
        processes.iter().map(|tenure| spawn(&world.runtime, tenure.acquire("a").into_future())).collect();
    world.runtime.advance(SECOND);
    drop(first);
    world.runtime.advance(SECOND);
    world.plan.forget();
    let winners = || waiters.iter().filter_map(|waiter| waiter.lock().unwrap().take()).collect::<Vec<_>>();
    let resigned = winners().pop().expect("one of the three").unwrap();
    drop(resigned);
    world.runtime.advance(SECOND);
    let [Ok(lease)] = &winners()[..] else { panic!("one of the two others") };
    for _ in 0..60 {
        world.runtime.advance(60 * SECOND);
        assert!(lease.is_valid());
        assert!(waiters.iter().all(|waiter| waiter.lock().unwrap().is_none()));
    }
    assert_eq!(world.plan.count("release"), 1);
    // Whoever still waits looks when the time is over that it was told, which a renewal has shortened.
    let tries = world.plan.count("acquire");
    assert!(tries <= 400, "{tries} tries in an hour");
}

#[test]
fn waiters_that_died_hold_nobody_up() {
    let world = World::new();
    let holder = world.tenure();
    let lease = world.acquire(&holder, "a");
    let others: Vec<_> = (0..5).map(|_| world.tenure()).collect();
    let waiters: Vec<_> =
        others.iter().map(|other| spawn(&world.runtime, other.acquire("a").into_future())).collect();
    world.runtime.advance(SECOND);
    // Those that have waited longest are the ones that a release chooses. They were killed: nothing of them
    // reaches the store any more.
    let dead: Vec<_> = others[..2].iter().map(|other| other.identity().clone()).collect();
    world.plan.set(move |operation| match operation {
        tenure_store::Operation::Acquire(acquire) if dead.contains(acquire.owner.identity()) => Fault::Hang,
        _ => Fault::None,
    });
    drop(lease);
    world.runtime.advance(SECOND);
    let got: Vec<_> = waiters.iter().map(|waiter| waiter.lock().unwrap().is_some()).collect();
    assert_eq!(got[..2], [false, false]);
    assert_eq!(
        got.iter().filter(|got| **got).count(),
        1,
        "one of those that live, without waiting for a TTL"
    );
}
