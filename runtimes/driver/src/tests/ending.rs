//! Shutting down, in order and otherwise.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tenure_core::{LeaseName, ReleaseOutcome, StopReason};

use super::*;
use crate::{AcquireError, Interrupted, LostReason, RequestError, StillHeld};

#[test]
fn shutdown_gives_everything_back_closes_the_store_and_ends_the_task() {
    let world = World::new();
    let tenure = world.tenure();
    let other = world.tenure();
    let held = world.acquire(&other, "b");
    let lease = world.acquire(&tenure, "a");
    let waiting = spawn(&world.runtime, tenure.acquire("b").into_future());
    let work = spawn(&world.runtime, async move {
        let why = lease.stopping().await;
        assert!(lease.is_valid(), "the lease is kept while the work ends");
        (why, lease.release().await)
    });
    world.settle();
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    assert_eq!(*work.lock().unwrap(), Some((StopReason::Drain, Ok(ReleaseOutcome::Released))));
    let waited = waiting.lock().unwrap().take().unwrap().unwrap_err();
    assert_eq!(waited, AcquireError::ShuttingDown { lease: LeaseName::new("b").unwrap() });
    assert_eq!(world.records().len(), 1);
    assert_eq!(world.plan.closed(), 1);
    assert_eq!(world.runtime.tasks(), 1, "that of the other process");

    // And once more.
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    assert_eq!(world.plan.closed(), 1);
    let error = world.runtime.block_on(tenure.acquire("a").into_future()).unwrap_err();
    assert_eq!(error, AcquireError::Closed);
    let error = world.runtime.block_on(tenure.inspect("a")).unwrap_err();
    assert_eq!(error, RequestError::Closed(crate::Closed));
    assert!(held.is_valid());
}

#[test]
fn shutdown_names_what_is_still_held_after_its_budget_and_goes_on_renewing_it() {
    let world = World::new();
    let tenure = world.builder().shutdown_budget(3 * SECOND).store(world.faulty()).start().unwrap();
    let lease = world.acquire(&tenure, "a");
    drop(world.acquire(&tenure, "b"));
    let began = world.now();
    let error = world.runtime.block_on(tenure.shutdown()).unwrap_err();
    assert_eq!(world.now(), began + 3 * SECOND);
    assert_eq!(error.leases, [LeaseName::new("a").unwrap()]);
    assert!(error.to_string().starts_with("lease \"a\" was not given back within 3s"), "{error}");
    assert!(lease.is_valid());
    assert!(lease.signal().is_stopping());
    // Work that goes on keeps its lease, until its grace is over, and the record until it has ended.
    world.runtime.advance(20 * SECOND);
    assert!(lease.is_valid());
    world.runtime.advance(60 * SECOND);
    assert_eq!(world.runtime.block_on(lease.lost()).why, LostReason::Stopped(StopReason::Drain));
    assert_eq!(world.records().len(), 1);
    let again = spawn(&world.runtime, {
        let tenure = tenure.clone();
        async move { tenure.shutdown().await }
    });
    world.settle();
    drop(lease);
    world.settle();
    assert_eq!(*again.lock().unwrap(), Some(Ok(())));
    assert_eq!((world.records().len(), world.runtime.tasks()), (0, 0));
}

#[test]
fn shutdown_ends_though_the_store_does_not_answer() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    world.plan.all(Fault::Hang);
    drop(lease);
    let began = world.now();
    let result = world.runtime.block_on(tenure.shutdown());
    let leases = vec![LeaseName::new("a").unwrap()];
    assert_eq!(result, Err(StillHeld { leases, ticks: Vec::new(), budget: 2 * SECOND }));
    assert_eq!(world.now(), began + 2 * SECOND);
    // The task ends once the record is over by its TTL.
    world.runtime.advance(3 * TTL);
    assert_eq!(world.runtime.tasks(), 0);
}

#[test]
fn shutdown_does_not_call_held_what_the_store_has_no_record_of() {
    // Of one candidate an answer is still out, which nobody waits for; the other's lease is lost.
    let world = World::new();
    let (tenure, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&tenure, "a");
    world.runtime.block_on(other.evict("a", tenure_store::Eviction::Delete)).unwrap();
    world.runtime.block_on(lease.lost());
    world.plan.only("acquire", Fault::Hang);
    let mut acquiring = Box::pin(tenure.acquire("b").into_future());
    assert!(poll_once(acquiring.as_mut()).is_pending());
    world.settle();
    drop(acquiring);
    world.settle();
    let began = world.now();
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    assert_eq!(world.now(), began + SECOND / 2);
    assert_eq!(world.runtime.tasks(), 1, "that of the other process");
    assert_eq!(world.runtime.block_on(lease.release()), Ok(ReleaseOutcome::NotHeld));
}

#[test]
fn a_candidacy_that_failed_does_not_hold_up_the_end_and_is_not_called_held() {
    for fault in [Fault::Hang, Fault::Fail] {
        let world = World::new();
        let tenure = world.tenure();
        if matches!(fault, Fault::Hang) {
            world.plan.hang_close();
        }
        world.plan.all(fault);
        let acquiring = tenure.acquire("a").wait_at_most(SECOND / 10).into_future();
        let error = world.runtime.block_on(acquiring).unwrap_err();
        assert!(matches!(error, AcquireError::Unreachable { .. }), "{error}");
        let began = world.now();
        assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
        assert!(world.now() <= began + SECOND / 2);
        assert_eq!((world.runtime.tasks(), world.runtime.sleepers()), (0, 0));
    }
}

#[test]
fn what_was_granted_to_a_candidate_that_gave_up_is_given_back_by_a_shutdown() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.all(Fault::Slow(SECOND / 5));
    let mut acquiring = Box::pin(tenure.acquire("a").into_future());
    assert!(poll_once(acquiring.as_mut()).is_pending());
    world.settle();
    assert_eq!(world.records().len(), 1);
    drop(acquiring);
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    assert_eq!(world.records(), []);
}

#[test]
fn the_late_answer_to_an_earlier_release_does_not_hide_that_the_lease_is_held() {
    let world = World::new();
    let tenure = world.tenure();
    let mut releases = 0;
    world.plan.set(move |operation| match operation {
        // Granted, but told so late that it is of no use: it is given back, and acquired again.
        tenure_store::Operation::Acquire(_) if releases == 0 => Fault::Slow(SECOND * 8 / 10),
        tenure_store::Operation::Release(_) => {
            releases += 1;
            if releases == 1 { Fault::Slow(SECOND / 2) } else { Fault::None }
        }
        _ => Fault::None,
    });
    let acquiring = spawn(&world.runtime, tenure.acquire("a").ttl(SECOND).into_future());
    world.runtime.advance(3 * SECOND);
    assert!(world.plan.count("release") > 1);
    let lease = acquiring.lock().unwrap().take().unwrap().unwrap();
    let error = world.runtime.block_on(tenure.shutdown()).unwrap_err();
    assert_eq!(error.leases, [lease.name().clone()]);
    assert!(lease.is_valid());
}

#[test]
fn without_anybody_who_waits_for_the_end_what_may_have_been_granted_is_given_back_patiently() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.all(Fault::Hang);
    let mut acquiring = Box::pin(tenure.acquire("a").into_future());
    assert!(poll_once(acquiring.as_mut()).is_pending());
    world.settle();
    drop((acquiring, tenure));
    world.runtime.advance(3 * SECOND);
    assert_eq!(world.runtime.tasks(), 1);
    world.runtime.advance(3 * TTL);
    assert_eq!(world.runtime.tasks(), 0);
}

#[test]
fn a_message_about_many_leases_stays_short() {
    let leases = (0..12).map(|n| LeaseName::new(n.to_string()).unwrap()).collect();
    let text = StillHeld { leases, ticks: Vec::new(), budget: SECOND }.to_string();
    assert!(text.starts_with("leases \"0\", \"1\", \"2\""), "{text}");
    assert!(text.contains("\"9\" and 2 more were not given back within 1s"), "{text}");
}

#[test]
fn dropping_all_handles_gives_everything_back_and_ends_the_task() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    drop(tenure);
    world.runtime.advance(10 * TTL);
    assert!(lease.is_valid(), "a guard is a handle too");
    drop(lease);
    world.settle();
    assert_eq!(world.records(), []);
    assert_eq!((world.runtime.tasks(), world.runtime.sleepers()), (0, 0));
    assert_eq!(world.plan.closed(), 1);
}

#[test]
fn a_driver_that_is_destroyed_answers_everybody() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.all(Fault::Hang);
    world.plan.hang_looks();
    let mut acquiring = Box::pin(tenure.acquire("a").into_future());
    let mut looking = Box::pin(tenure.inspect("a"));
    let mut leaving = Box::pin(tenure.shutdown());
    assert!(poll_once(acquiring.as_mut()).is_pending() && poll_once(looking.as_mut()).is_pending());
    world.settle();
    assert!(poll_once(leaving.as_mut()).is_pending());
    world.runtime.shut_down();
    assert_eq!(world.runtime.block_on(acquiring).unwrap_err(), AcquireError::Closed);
    assert!(world.runtime.block_on(looking).is_err());
    assert_eq!(world.runtime.block_on(leaving), Ok(()));
    assert_eq!(
        world.runtime.block_on(tenure.try_acquire("a").into_future()).unwrap_err(),
        AcquireError::Closed
    );
}

#[test]
fn a_scope_flushes_when_its_work_returns_fails_or_panics() {
    for end in ["return", "error", "panic"] {
        let world = World::new();
        let scope = world.tenure().scope(async |tenure| {
            let lease = tenure.acquire("a").await.unwrap();
            // Kept by a task of its own: only the flush waits for it.
            spawn(&world.runtime, async move {
                lease.stopping().await;
            });
            match end {
                "return" => Ok(1),
                "error" => Err("no"),
                _ => panic!("the work's bug"),
            }
        });
        let result = catch_unwind(AssertUnwindSafe(|| world.runtime.block_on(scope)));
        match end {
            "return" => assert_eq!(result.unwrap(), Ok(Ok(1))),
            "error" => assert_eq!(result.unwrap(), Ok(Err("no"))),
            _ => assert!(result.is_err()),
        }
        assert_eq!(world.records(), [], "{end}");
        assert_eq!(world.plan.closed(), 1, "{end}");
    }
}

#[test]
fn a_signal_asks_the_work_of_a_scope_to_end_and_a_second_one_drops_it() {
    for signals in 1..=2 {
        let world = World::new();
        let runtime = world.runtime.clone();
        let result = spawn(
            &world.runtime,
            world.tenure().scope(async move |tenure| {
                let lease = tenure.acquire("a").await.unwrap();
                let why = lease.stopping().await;
                if signals == 2 {
                    lease.run(std::future::pending::<()>()).await.unwrap();
                }
                runtime.sleep_until(tenure.now() + 5 * SECOND).await;
                assert!(lease.is_valid());
                why
            }),
        );
        world.runtime.advance(60 * SECOND);
        assert!(result.lock().unwrap().is_none());
        world.runtime.interrupt();
        world.runtime.advance(4 * SECOND);
        assert!(result.lock().unwrap().is_none());
        if signals == 2 {
            world.runtime.interrupt();
        }
        world.runtime.advance(2 * SECOND);
        let expected = if signals == 1 { Ok(StopReason::Drain) } else { Err(Interrupted) };
        assert_eq!(*result.lock().unwrap(), Some(expected));
        assert_eq!(world.records(), []);
    }
}
