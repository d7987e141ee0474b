//! Holding a lease: renewals, doubts, the fence, and how the guard tells of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use tenure_core::{ReleaseOutcome, StopReason, Token};
use tenure_store::Operation;

use super::*;
use crate::LostReason;

#[test]
fn a_lease_is_renewed_for_as_long_as_it_is_held() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    for _ in 0..100 {
        world.runtime.advance(TTL / 3);
        assert!(lease.is_valid());
        assert_eq!(world.records().len(), 1);
    }
    assert!(!lease.is_in_doubt());
    let renewed = tenure.stats().renewed;
    assert!((100..=150).contains(&renewed), "{renewed} renewals in 33 TTLs");
}

#[test]
fn the_second_lease_of_a_process_is_renewed_like_the_first() {
    let world = World::new();
    let tenure = world.tenure();
    let first = world.acquire(&tenure, "a");
    world.plan.all(Fault::Fail);
    world.runtime.advance(2 * TTL);
    assert!(!first.is_valid());
    world.plan.heal();
    drop(first);
    let second = world.acquire(&tenure, "a");
    for _ in 0..30 {
        world.runtime.advance(TTL / 10);
        assert!(second.is_valid());
    }
}

#[test]
fn renewals_that_fail_put_the_lease_in_doubt_and_then_end_it_at_the_fence() {
    for fault in
        [Fault::Fail, Fault::LoseAnswer, Fault::Hang, Fault::HangAfter, Fault::Nonsense, Fault::Panic]
    {
        let world = World::new();
        let tenure = world.tenure();
        let lease = world.acquire(&tenure, "a");
        world.plan.only("renew", fault.clone());
        let deadlines = lease.deadlines();
        let stopping = spawn(&world.runtime, lease.stopping());

        let left = deadlines.fence_at.saturating_since(world.now());
        world.runtime.advance(left - Duration::from_nanos(1));
        assert!(lease.is_valid() && lease.is_in_doubt(), "{fault:?}");
        assert_eq!(lease.deadlines(), deadlines, "{fault:?}: what is unknown extends nothing");
        assert!(world.plan.count("renew") >= 3, "{fault:?}: several attempts fit before the fence");
        assert!(is_pending(lease.lost()));
        assert_eq!(*stopping.lock().unwrap(), None);

        let lost = world.runtime.block_on(lease.lost());
        assert_eq!(world.now(), deadlines.fence_at, "{fault:?}");
        assert_eq!(lost.why, LostReason::Expired);
        assert_eq!((lost.lease.as_str(), lost.token), ("a", lease.token()));
        assert!(!lease.is_valid());
        world.settle();
        assert_eq!(*stopping.lock().unwrap(), Some(StopReason::Fence));
    }
}

/// S7.
#[test]
fn nothing_revives_a_lease_after_its_fence() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    world.plan.only("renew", Fault::Fail);
    let fence_at = lease.deadlines().fence_at;
    world.runtime.advance(fence_at.saturating_since(world.now()));
    assert!(!lease.is_valid());
    world.plan.heal();
    world.runtime.advance(5 * TTL);
    assert!(!lease.is_valid());
    assert!(world.runtime.block_on(lease.run(async { 1 })).is_err());
}

#[test]
fn a_guard_that_was_seen_invalid_stays_invalid_whatever_the_driver_does_later() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    // The answer to a renewal is there in time, but the driver handles it only later.
    let hold = lease.deadlines();
    world.runtime.block(hold.fence_at.saturating_since(world.now()));
    assert!(!lease.is_valid());
    world.settle();
    world.runtime.advance(TTL / 2);
    assert!(!lease.is_valid());
    assert_eq!(world.runtime.block_on(lease.lost()).why, LostReason::Expired);
}

#[test]
fn one_slow_answer_does_not_end_a_hold() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let mut first = true;
    world.plan.set(move |_| if std::mem::take(&mut first) { Fault::Slow(6 * SECOND) } else { Fault::None });
    for _ in 0..40 {
        world.runtime.advance(SECOND);
        assert!(lease.is_valid());
    }
    assert_eq!(tenure.stats().lost, 0);
}

#[test]
fn a_hold_survives_a_block_of_half_its_ttl_and_the_delay_is_reported() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    world.runtime.block(TTL / 2);
    world.settle();
    assert!(lease.is_valid());
    assert_eq!(tenure.stats().starved, 1);
    world.runtime.advance(10 * TTL);
    assert!(lease.is_valid());
}

/// S3.
#[test]
fn after_a_block_of_twice_the_ttl_the_guard_is_invalid_before_anything_else_runs() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let polls = AtomicUsize::new(0);
    let mut run = Box::pin(lease.run(std::future::poll_fn(|_| {
        polls.fetch_add(1, Ordering::Relaxed);
        Poll::<()>::Pending
    })));
    assert!(poll_once(run.as_mut()).is_pending());
    world.runtime.block(2 * TTL);
    assert!(!lease.is_valid());
    let Poll::Ready(Err(lost)) = poll_once(run.as_mut()) else { panic!("the work goes on") };
    assert_eq!(lost.why, LostReason::Expired);
    assert_eq!(polls.load(Ordering::Relaxed), 1, "the work is not polled after the fence");
    world.settle();
    assert!(tenure.stats().starved >= 1);
}

#[test]
fn the_guard_ends_by_itself_though_its_driver_is_gone() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let signal = lease.signal();
    world.runtime.shut_down();
    assert_eq!(world.runtime.tasks(), 0);
    assert!(!lease.is_valid());
    assert!(signal.is_stopping());
    assert_eq!(world.runtime.block_on(lease.lost()).why, LostReason::Closed);
    assert!(world.runtime.block_on(lease.run(async { 1 })).is_err());
    assert_eq!(world.runtime.block_on(lease.release()), Err(crate::Closed));
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
}

#[test]
fn work_that_ends_in_time_gives_its_result_even_if_the_lease_ended_during_its_last_step() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    world.plan.all(Fault::Hang);
    let runtime = world.runtime.clone();
    // One step that takes longer than the lease lives.
    let result = world.runtime.block_on(lease.run(async move {
        runtime.block(2 * TTL);
        "done"
    }));
    assert_eq!(result, Ok("done"));
    assert!(!lease.is_valid());
    world.plan.heal();
    world.runtime.advance(TTL);
    let outcome = world.runtime.block_on(lease.release());
    assert_eq!(outcome, Ok(ReleaseOutcome::NotHeld), "a late release is no failure");
}

/// S3.
#[test]
fn run_does_not_begin_work_under_a_lease_that_is_over() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    world.runtime.block(2 * TTL);
    let mut begun = false;
    let result = world.runtime.block_on(lease.run(async { begun = true }));
    assert!(result.is_err());
    assert!(!begun);
}

/// S4.
#[test]
fn run_drops_the_work_at_the_fence() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    world.plan.all(Fault::Hang);
    let fence_at = lease.deadlines().fence_at;
    let result = world.runtime.block_on(lease.run(std::future::pending::<()>()));
    assert_eq!(result.unwrap_err().why, LostReason::Expired);
    assert_eq!(world.now(), fence_at);
}

#[test]
fn a_panic_of_the_work_gives_the_lease_back() {
    let world = World::new();
    let tenure = world.tenure();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        world.runtime.block_on(async {
            let lease = tenure.acquire("a").await.unwrap();
            lease.run(async { panic!("the work's bug") }).await
        })
    }));
    assert!(caught.is_err());
    world.settle();
    assert!(world.records().is_empty());
    assert!(world.acquire(&tenure, "a").is_valid());
}

#[test]
fn a_lease_that_was_lost_can_be_campaigned_for_again() {
    let world = World::new();
    let tenure = world.tenure();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let lease = world.acquire(&tenure, "a");
        tokens.push(lease.token());
        world.plan.all(Fault::Fail);
        world.runtime.block_on(lease.lost());
        world.plan.heal();
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn the_store_saying_so_ends_a_hold_at_once() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let lease = world.acquire(&one, "a");
    world.runtime.block_on(other.evict("a", tenure_store::Eviction::Delete)).unwrap();
    let stopping = spawn(&world.runtime, lease.stopping());
    let lost = world.runtime.block_on(lease.lost());
    assert_eq!(lost.why, LostReason::NotYours);
    assert!(world.now() < lease.deadlines().fence_at);
    world.settle();
    assert_eq!(*stopping.lock().unwrap(), Some(StopReason::Lost));
    assert_eq!(one.stats().lost, 1);
    assert_eq!(world.runtime.block_on(lease.release()), Ok(ReleaseOutcome::NotHeld));
}

#[test]
fn the_maximum_hold_asks_then_stops_then_abandons() {
    let world = World::new();
    let tenure = world.tenure();
    let hold = tenure.acquire("a").max_hold(60 * SECOND).grace(10 * SECOND);
    let lease = world.runtime.block_on(hold.into_future()).unwrap();
    let signal = lease.signal();
    let granted = world.now();
    assert!(!signal.is_stopping());
    assert_eq!(world.runtime.block_on(signal.stopped()), StopReason::MaxHold);
    assert_eq!(world.now(), granted + 60 * SECOND);
    assert!(lease.is_valid() && signal.is_stopping(), "the grace has begun; the lease is kept");
    let lost = world.runtime.block_on(lease.lost());
    assert_eq!(world.now(), granted + 70 * SECOND);
    assert_eq!(lost.why, LostReason::Stopped(StopReason::MaxHold));
    assert!(!lease.is_valid());
    assert_eq!(world.records().len(), 1, "the work may still run, so nobody else gets it");
    world.runtime.advance(2 * TTL);
    assert!(world.records().is_empty(), "in the end only the token protects");
    assert_eq!(tenure.stats().lost, 1);
}

#[test]
fn renewals_are_told_as_a_stream_of_deadlines() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let mut renewals = lease.renewals();
    let first = world.runtime.block_on(renewals.next()).unwrap();
    assert_eq!(first, lease.deadlines());
    let second = world.runtime.block_on(StreamExt::next(&mut renewals)).unwrap();
    assert!(second.kill_at > first.kill_at);
    // Whoever does not read hears only of the newest, and holds nobody up.
    world.runtime.advance(20 * TTL);
    assert_eq!(world.runtime.block_on(renewals.next()), Some(lease.deadlines()));
    drop(lease);
    assert_eq!(world.runtime.block_on(renewals.next()), None);
}

#[test]
fn a_signal_tells_tasks_that_the_guard_is_gone() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let signal = lease.signal();
    let lost = lease.lost();
    assert!(signal.is_valid() && !signal.is_stopping());
    assert_eq!(signal.token(), lease.token());
    drop(lease);
    assert!(!signal.is_valid() && signal.is_stopping());
    assert_eq!(world.runtime.block_on(signal.stopped()), StopReason::Drain);
    assert_eq!(world.runtime.block_on(lost).why, LostReason::Released);
}

#[test]
fn waiting_for_the_end_leaves_no_sleeps_behind() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let before = world.runtime.sleepers();
    for _ in 0..1000 {
        assert!(is_pending(lease.lost()));
        assert!(is_pending(lease.stopping()));
        assert!(is_pending(lease.run(std::future::pending::<()>())));
        let mut renewals = lease.renewals();
        assert!(is_pending(renewals.next()));
    }
    assert_eq!(world.runtime.sleepers(), before);
}

/// A process that is killed, or cut off for good: nothing of this owner's reaches the store any more.
fn cut_off(world: &World, lease: &Lease) {
    let owner = lease.owner();
    world.plan.set(move |operation| match operation {
        Operation::Renew(renew) if renew.owner.to_string() == owner => Fault::Hang,
        Operation::Release(release) if release.owner.to_string() == owner => Fault::Hang,
        _ => Fault::None,
    });
}

/// S5.
#[test]
fn a_write_that_a_pause_parted_from_its_check_is_refused_by_its_token() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let mut highest = Token::ZERO;
    let mut write = |token: Token| {
        let accepted = token >= highest;
        highest = highest.max(token);
        accepted
    };
    let old = world.acquire(&one, "a");
    assert!(write(old.token()));
    assert!(old.is_valid(), "it looks, and then its process is paused");
    cut_off(&world, &old);
    let next = world.acquire(&other, "a");
    assert!(write(next.token()));
    assert!(!write(old.token()), "it writes without looking again");
    assert!(write(next.token()));
    assert!(!old.is_valid() && next.is_valid());
}

/// S9.
#[test]
fn a_late_release_leaves_the_next_holder_alone() {
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let old = world.acquire(&one, "a");
    cut_off(&world, &old);
    let next = world.acquire(&other, "a");
    world.plan.heal();
    assert_eq!(world.runtime.block_on(old.release()), Ok(ReleaseOutcome::NotHeld));
    let holder = world.records().remove(0).holder;
    assert_eq!((holder.owner, holder.token), (next.owner(), Some(next.token())));
    world.runtime.advance(2 * TTL);
    assert!(next.is_valid());
}

/// S2.
#[test]
fn a_store_that_stood_still_for_two_ttls_makes_no_two_holders_and_no_stampede() {
    const LEASES: usize = 100;
    let world = World::new();
    let (one, other) = (world.tenure(), world.tenure());
    let names: Vec<_> = (0..LEASES).map(|n| n.to_string()).collect();
    let held: Vec<_> = names.iter().map(|name| world.acquire(&one, name)).collect();
    let mut waiting: Vec<_> =
        names.iter().map(|name| spawn(&world.runtime, other.acquire(name).into_future())).collect();
    waiting.extend(names.iter().map(|name| spawn(&world.runtime, one.acquire(name).into_future())));
    world.runtime.advance(SECOND);

    // What reaches it while it is stopped is executed when it goes on, all at once.
    let goes_on = world.now() + 2 * TTL;
    let clock = world.runtime.clone();
    world.plan.set(move |_| match goes_on.saturating_since(Runtime::now(&clock)) {
        Duration::ZERO => Fault::None,
        left => Fault::Late(left),
    });
    world.runtime.advance(2 * TTL - Duration::from_millis(1));
    assert!(held.iter().all(|lease| !lease.is_valid()));
    drop(held);
    // It goes on. Who asked meanwhile is answered, and asks again.
    world.runtime.advance(Duration::from_millis(10));
    world.plan.forget();
    let (mut most, mut before) = (0, 0);
    for _ in 0..3_000 {
        world.runtime.advance(Duration::from_millis(10));
        let now = world.plan.count("acquire");
        most = most.max(now - before);
        before = now;
        let valid = |n: usize| {
            let candidates = [&waiting[n], &waiting[n + LEASES]];
            let valid = candidates
                .map(|got| got.lock().unwrap().as_ref().map(|got| got.as_ref().unwrap().is_valid()));
            valid.into_iter().filter(|valid| *valid == Some(true)).count()
        };
        assert!((0..LEASES).all(|n| valid(n) <= 1), "two holders");
    }
    let got = waiting.iter().filter(|waiter| waiter.lock().unwrap().is_some()).count();
    assert_eq!(got, LEASES, "each lease has its next holder");
    assert!(most <= LEASES / 2, "{most} tries within a hundredth of a second");
}

/// S7.
#[test]
fn every_loss_is_told_with_its_token_however_late_somebody_listens() {
    let world = World::new();
    let tenure = world.tenure();
    let mut losses = Vec::new();
    for _ in 0..3 {
        let lease = world.acquire(&tenure, "a");
        losses.push((lease.token(), lease.signal(), lease.lost()));
        world.plan.all(Fault::Fail);
        // Nobody listens; holding and losing goes on all the same.
        world.runtime.advance(TTL);
        world.plan.heal();
        drop(lease);
    }
    let next = world.acquire(&tenure, "a");
    for (token, signal, lost) in losses {
        assert!(!signal.is_valid());
        assert_eq!(world.runtime.block_on(signal.stopped()), StopReason::Fence);
        let lost = world.runtime.block_on(lost);
        assert_eq!((lost.token, lost.why), (token, LostReason::Expired));
        assert!(lost.token < next.token());
    }
    assert!(next.is_valid());
}

#[test]
fn what_has_come_while_the_driver_was_kept_from_running_is_not_taken_for_missing() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    world.plan.only("renew", Fault::Slow(SECOND));
    while world.plan.count("renew") == 0 {
        world.runtime.advance(SECOND / 10);
    }
    // Longer than any request may take, and less than the lease lasts.
    world.runtime.block(8 * SECOND);
    world.settle();
    assert_eq!(
        (tenure.stats().renewed, tenure.stats().failures, tenure.stats().abandoned_requests),
        (1, 0, 0)
    );
    assert!(lease.is_valid() && !lease.is_in_doubt());
}

#[test]
fn a_lost_guard_that_is_kept_keeps_the_next_candidate_of_its_own_process_waiting_and_no_other() {
    let world = World::new();
    let (tenure, other) = (world.tenure(), world.tenure());
    let lost = world.acquire(&tenure, "a");
    world.runtime.block_on(other.evict("a", tenure_store::Eviction::Delete)).unwrap();
    world.runtime.block_on(lost.lost());
    let next = spawn(&world.runtime, tenure.acquire("a").into_future());
    world.runtime.advance(3 * TTL);
    assert!(next.lock().unwrap().is_none());
    let theirs = world.acquire(&other, "a");
    drop((lost, theirs));
    world.runtime.advance(TTL);
    assert!(next.lock().unwrap().as_ref().is_some_and(Result::is_ok));
}
