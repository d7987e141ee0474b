//! Futures that are dropped at any point.

use tenure_core::{Jitter, ReleaseOutcome, SplitMix};

use super::*;
use crate::{AcquireError, LostReason};

/// Everything is as if nothing had happened.
fn assert_clean(world: &World, tenure: &Tenure) {
    // What went astray arrives more than a TTL later, and a grant of that lasts for another one.
    world.runtime.advance(3 * TTL);
    assert_eq!(world.records(), []);
    let stats = tenure.stats();
    assert_eq!((stats.open, stats.held, stats.in_flight), (0, 0, 0), "{stats:?}");
    assert!(world.plan.watched().is_empty(), "nothing is watched any more: {:?}", world.plan.watched());
    assert_eq!(world.runtime.tasks(), 1, "the driver, and nothing else");
    assert!(world.runtime.sleepers() <= 1, "the driver's timer at most");
}

/// Cancels acquisitions and releases at random points, `rounds` times.
fn cancel_at_random(seed: u64, rounds: u64, mut fault: impl FnMut(u64) -> Fault + Send + 'static) {
    println!("seed {seed}");
    let world = World::new();
    let tenure = world.tenure();
    let mut choice = SplitMix::new(seed);
    let mut faults = choice.fork();
    world.plan.set(move |_| fault(faults.below(100)));
    let mut kept: Vec<Lease> = Vec::new();
    for _ in 0..rounds {
        let name = choice.below(5).to_string();
        let candidate = if choice.below(2) == 0 { tenure.acquire(&name) } else { tenure.try_acquire(&name) };
        let mut acquiring = Box::pin(candidate.into_future());
        let mut lease = None;
        for _ in 0..choice.below(6) {
            match choice.below(4) {
                0 => world.runtime.advance(Duration::from_millis(choice.below(3_000))),
                1 => world.settle(),
                _ => {
                    if let Poll::Ready(result) = poll_once(acquiring.as_mut()) {
                        lease = result.ok();
                        break;
                    }
                }
            }
        }
        drop(acquiring);
        if let Some(lease) = lease {
            match choice.below(4) {
                0 => drop(lease),
                1 => kept.push(lease),
                polls => {
                    let mut releasing = Box::pin(lease.release());
                    for _ in 0..polls - 1 {
                        if poll_once(releasing.as_mut()).is_ready() {
                            break;
                        }
                        world.settle();
                    }
                }
            }
        }
        if kept.len() > 3 {
            drop(kept.remove(0));
        }
    }
    drop(kept);
    world.plan.heal();
    assert_clean(&world, &tenure);
    assert!(tenure.stats().acquired > rounds / 20, "{:?}", tenure.stats());
}

#[test]
fn ten_thousand_cancellations_leave_nothing_behind() {
    cancel_at_random(1, 10_000, |_| Fault::None);
}

#[test]
fn cancellations_over_a_bad_store_leave_nothing_behind() {
    for seed in 0..4 {
        cancel_at_random(seed, 1_000, Fault::of_a_bad_store);
    }
}

#[test]
fn ten_thousand_waits_that_ran_out_leave_nothing_behind() {
    let world = World::new();
    let tenure = world.tenure();
    let holder = world.builder().store(world.store.handle()).start().unwrap();
    let names: Vec<_> = (0..10_000).map(|n| n.to_string()).collect();
    let held: Vec<_> = names.iter().map(|name| world.acquire(&holder, name)).collect();
    let waiting: Vec<_> = names
        .iter()
        .map(|name| spawn(&world.runtime, tenure.acquire(name).wait_at_most(5 * SECOND).into_future()))
        .collect();
    world.runtime.advance(4 * SECOND);
    assert_eq!(world.plan.watched().len(), names.len());
    world.runtime.advance(2 * SECOND);
    assert!(waiting.iter().all(|got| matches!(*got.lock().unwrap(), Some(Err(AcquireError::Busy { .. })))));
    drop(held);
    world.runtime.block_on(holder.shutdown()).unwrap();
    assert_clean(&world, &tenure);
}

#[test]
fn an_acquisition_that_is_dropped_before_its_first_poll_does_nothing() {
    let world = World::new();
    let tenure = world.tenure();
    drop(tenure.acquire("a").into_future());
    drop(tenure.acquire("a"));
    world.settle();
    assert_eq!(world.plan.log(), []);
}

#[test]
fn a_grant_whose_answer_was_lost_is_recognised_at_the_next_try() {
    let world = World::new();
    let tenure = world.tenure();
    let mut first = true;
    world.plan.set(move |_| if std::mem::take(&mut first) { Fault::LoseAnswer } else { Fault::None });
    let began = world.now();
    let lease = world.acquire(&tenure, "a");
    assert!(world.now().saturating_since(began) < 5 * SECOND, "it did not wait for itself");
    assert_eq!(world.plan.count("acquire"), 2);
    let record = world.records().remove(0);
    assert_eq!((record.holder.owner, record.holder.token), (lease.owner(), Some(lease.token())));
}

#[test]
fn a_grant_whose_answer_was_lost_is_given_back_when_the_candidate_gives_up() {
    for fault in [Fault::LoseAnswer, Fault::HangAfter] {
        let world = World::new();
        let (one, other) = (world.tenure(), world.tenure());
        world.plan.only("acquire", fault.clone());
        let mut acquiring = Box::pin(one.acquire("a").into_future());
        assert!(poll_once(acquiring.as_mut()).is_pending());
        world.settle();
        assert_eq!(world.records().len(), 1);
        drop(acquiring);
        world.plan.heal();
        world.runtime.advance(SECOND);
        assert_eq!(world.records(), [], "{fault:?}");
        assert!(world.acquire(&other, "a").is_valid());
    }
}

#[test]
fn a_release_goes_on_when_its_future_is_dropped_midway() {
    for fault in [Fault::None, Fault::LoseAnswer, Fault::Fail, Fault::Hang] {
        let world = World::new();
        let tenure = world.tenure();
        let lease = world.acquire(&tenure, "a");
        let mut first = true;
        let once = fault.clone();
        world.plan.set(move |_| if std::mem::take(&mut first) { once.clone() } else { Fault::None });
        {
            let mut releasing = pin!(lease.release());
            assert!(poll_once(releasing.as_mut()).is_pending());
            world.settle();
        }
        world.runtime.advance(10 * SECOND);
        assert_eq!(world.records(), [], "{fault:?}");
        assert_clean(&world, &tenure);
    }
}

#[test]
fn a_release_future_that_is_never_polled_gives_the_lease_back() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    drop(lease.release());
    world.settle();
    assert_eq!(world.records(), []);
}

#[test]
fn no_renewal_follows_a_release() {
    let world = World::new();
    let tenure = world.tenure();
    let short = LeaseConfig::new(Duration::from_millis(50))
        .renew_interval(Duration::from_millis(2))
        .attempt_timeout(Duration::from_millis(1));
    for n in 0..500_u32 {
        let lease = world.runtime.block_on(tenure.acquire("a").timing(short).into_future()).unwrap();
        world.runtime.advance(Duration::from_micros(u64::from(n) * 37));
        assert_eq!(world.runtime.block_on(lease.release()), Ok(ReleaseOutcome::Released));
    }
    let mut released = std::collections::BTreeSet::new();
    for (kind, _, token) in world.plan.log() {
        match (kind, token) {
            ("release", Some(token)) => drop(released.insert(token)),
            ("renew", Some(token)) => assert!(!released.contains(&token), "renewed after its release"),
            _ => {}
        }
    }
    assert_eq!(released.len(), 500);
    assert!(world.plan.count("renew") > 1000);
    assert_clean(&world, &tenure);
}

#[test]
fn a_guard_may_be_dropped_outside_of_any_runtime_and_after_its_end() {
    let world = World::new();
    let tenure = world.tenure();
    let (one, other, last) =
        (world.acquire(&tenure, "a"), world.acquire(&tenure, "b"), world.acquire(&tenure, "c"));
    std::thread::spawn(move || drop(one)).join().unwrap();
    world.settle();
    assert_eq!(world.records().len(), 2);
    // Dropped by a task that the end of the runtime drops.
    let lost = other.lost();
    spawn(&world.runtime, async move {
        let _kept = other;
        std::future::pending::<()>().await;
    });
    world.settle();
    world.runtime.shut_down();
    let why = world.runtime.block_on(lost).why;
    assert!(matches!(why, LostReason::Closed | LostReason::Released), "{why}");
    drop(last);
    drop(tenure);
}
