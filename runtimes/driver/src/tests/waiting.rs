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
