//! The drain of a whole instance: by its program, by an operator, by a signal.

use std::collections::BTreeMap;

use tenure_core::StopReason;

use super::sharing::{Works, dutiful};
use super::*;
use crate::{AcquireError, Closed, CoordinatorStatus, Ctx, DrainReason, NotDrained, Stuck, WorkerStatus};

/// How long it takes until all have heard of a change: heartbeats keep some distance.
const HINTED: Duration = Duration::from_millis(250);

fn drained(world: &World, tenure: &Tenure) -> Result<(), NotDrained> {
    world.runtime.block_on(tenure.drain())
}

#[test]
fn a_drain_ends_all_that_is_held_and_others_go_on_at_once() {
    let world = World::new();
    let works = Works::default();
    let (first, second) = (world.tenure(), world.tenure());
    let a = dutiful(&first, "a", &works, 6).start().unwrap();
    let b = dutiful(&second, "b", &works, 6).start().unwrap();
    let setup = |tenure: &Tenure| {
        tenure.worker("leader", |ctx: Ctx| async move {
            ctx.draining().await;
        })
    };
    let (leader, heir) = (setup(&first).start().unwrap(), setup(&second).start().unwrap());
    world.runtime.advance(5 * SECOND);
    assert_eq!((a.mine().len(), b.mine().len()), (3, 3));
    let draining = spawn(&world.runtime, first.draining());
    let begun = world.now();
    assert_eq!(drained(&world, &first), Ok(()));
    assert_eq!(world.now(), begun);
    world.runtime.advance(HINTED);
    assert_eq!(*draining.lock().unwrap(), Some(DrainReason::Program));
    assert!(first.is_draining() && !second.is_draining());
    assert_eq!((b.mine().len(), works.running().len()), (6, 6));
    assert!(matches!(heir.status(), WorkerStatus::Working { .. }));
    assert!(
        matches!(leader.status(), WorkerStatus::Resting { .. }),
        "it goes on when the drain is taken back"
    );
    assert_eq!(a.status(), CoordinatorStatus::Sharing { assigned: 0, working: 0 });
    let view = second.view().unwrap();
    let draining: BTreeMap<_, _> =
        view.iter().map(|member| (member.identity.clone(), member.draining)).collect();
    assert_eq!((draining[first.identity()], draining[second.identity()]), (true, false));
    world.runtime.block_on(first.drained());

    first.resume();
    world.runtime.advance(10 * SECOND);
    assert!(!first.is_draining());
    assert_eq!((a.mine().len(), b.mine().len()), (3, 3));
}

#[test]
fn nothing_is_acquired_while_it_drains_and_waiting_candidates_are_told() {
    let world = World::new();
    let (tenure, other) = (world.tenure(), world.tenure());
    let held = world.acquire(&other, "held");
    let waiting = spawn(&world.runtime, tenure.acquire("held").into_future());
    world.settle();
    assert!(waiting.lock().unwrap().is_none());
    assert_eq!(drained(&world, &tenure), Ok(()));
    world.settle();
    let refused = waiting.lock().unwrap().take();
    assert!(matches!(refused, Some(Err(AcquireError::Draining { .. }))), "{refused:?}");
    let refused = world.runtime.block_on(tenure.acquire("free").into_future());
    assert!(matches!(refused, Err(AcquireError::Draining { .. })), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("drains"));
    drop(held);
    tenure.resume();
    assert!(world.acquire(&tenure, "free").is_valid());
}

#[test]
fn a_periodic_job_claims_nothing_while_it_drains_and_goes_on_afterwards() {
    let world = World::new();
    let tenure = world.tenure();
    let job = tenure.periodic("job", 10 * SECOND, |_: Ctx| async {}).start().unwrap();
    world.runtime.advance(35 * SECOND);
    let runs = tenure.stats().runs;
    assert_eq!(runs, 3);
    assert_eq!(drained(&world, &tenure), Ok(()));
    world.runtime.advance(60 * SECOND);
    assert_eq!(tenure.stats().runs, runs);
    tenure.resume();
    world.runtime.advance(20 * SECOND);
    assert!(tenure.stats().runs > runs);
    drop(job);
}

#[test]
fn each_lease_goes_back_as_its_own_work_ends() {
    let world = World::new();
    let tenure = world.tenure();
    let runtime = world.runtime.clone();
    let setup = tenure.coordinate(["quick", "slow"], move |ctx: Ctx| {
        let (runtime, slow) = (runtime.clone(), ctx.name() == "slow");
        async move {
            ctx.draining().await;
            assert!(ctx.is_valid(), "it is renewed meanwhile");
            if slow {
                runtime.sleep_until(Runtime::now(&runtime) + 25 * SECOND).await;
            }
        }
    });
    let _coordinator = setup.start().unwrap();
    world.settle();
    let done = spawn(&world.runtime, {
        let tenure = tenure.clone();
        async move { tenure.drain().await }
    });
    world.settle();
    let names: Vec<_> = world.records().iter().map(|record| record.name.as_str().to_owned()).collect();
    assert_eq!(names, ["slow"]);
    world.runtime.advance(24 * SECOND);
    assert!(done.lock().unwrap().is_none() && world.records().len() == 1);
    world.runtime.advance(SECOND);
    assert_eq!(*done.lock().unwrap(), Some(Ok(())));
    assert!(world.records().is_empty());
}

#[test]
fn a_drain_that_takes_too_long_names_what_is_stuck_and_a_second_call_joins_the_first() {
    let world = World::new();
    let tenure = world.tenure();
    // A guard that is kept stands for work that blocks its thread.
    let lease = world.runtime.block_on(tenure.acquire("kept").grace(10 * SECOND).into_future()).unwrap();
    let _dutiful = tenure
        .worker("b", |ctx: Ctx| async move {
            ctx.draining().await;
        })
        .start()
        .unwrap();
    world.settle();
    let begun = world.now();
    let first = spawn(&world.runtime, {
        let tenure = tenure.clone();
        async move { tenure.drain().await }
    });
    world.runtime.advance(5 * SECOND);
    let stuck = drained(&world, &tenure).unwrap_err();
    let NotDrained::Stuck(Stuck { leases, ticks }) = &stuck else { panic!("{stuck}") };
    assert_eq!((&leases[..], &ticks[..]), (&[(lease.name().clone(), lease.token())][..], &[][..]));
    assert!(stuck.to_string().contains(&format!("lease \"kept\" (token {})", lease.token())), "{stuck}");
    assert_eq!(*first.lock().unwrap(), Some(Err(stuck.clone())));
    let took = world.now().saturating_since(begun);
    assert_eq!(took, 12 * SECOND, "the grace, and the stop budget");
    assert_eq!(drained(&world, &tenure), Err(stuck), "and whoever asks then is told at once");
    assert_eq!(world.now().saturating_since(begun), took);

    assert_eq!(world.records().len(), 1, "what is stuck keeps its lease");
    world.runtime.advance(4 * TTL);
    assert_eq!(world.records().len(), 1);
    drop(lease);
    world.runtime.block_on(tenure.drained());
    assert_eq!(drained(&world, &tenure), Ok(()));
}

#[test]
fn a_stop_ends_a_drain_before_its_time() {
    let world = World::new();
    let tenure = world.tenure();
    let worker = tenure.worker("a", |_: Ctx| std::future::pending::<()>()).start().unwrap();
    let shared = tenure.coordinate(["b", "c"], |_: Ctx| std::future::pending::<()>()).start().unwrap();
    world.settle();
    assert_eq!(world.records().len(), 3);
    let mut draining = Box::pin(tenure.drain());
    assert!(poll_once(draining.as_mut()).is_pending());
    world.runtime.advance(SECOND);
    let begun = world.now();
    assert_eq!(world.runtime.block_on(tenure.stop()), Ok(()));
    assert_eq!(world.now(), begun);
    assert_eq!(world.runtime.block_on(draining), Ok(()));
    assert!(world.records().is_empty());
    tenure.resume();
    world.runtime.advance(2 * SECOND);
    assert!(matches!(worker.status(), WorkerStatus::Working { .. }), "a stop can be taken back, too");
    assert_eq!(shared.mine().len(), 2);
}

#[test]
fn a_stop_of_what_is_stuck_gives_up_after_a_stop_budget() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "kept");
    let signal = lease.signal();
    let begun = world.now();
    let stuck = world.runtime.block_on(tenure.stop()).unwrap_err();
    assert!(matches!(&stuck, NotDrained::Stuck(stuck) if stuck.leases.len() == 1), "{stuck}");
    assert_eq!(world.now().saturating_since(begun), 2 * SECOND);
    assert!(signal.is_stopping() && !lease.is_valid());
}

#[test]
fn a_drain_that_the_driver_does_not_survive_is_not_told_as_done() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.runtime.block_on(tenure.acquire("a").grace(TTL).into_future()).unwrap();
    let (mut draining, mut stopping) = (Box::pin(tenure.drain()), Box::pin(tenure.stop()));
    assert!(poll_once(draining.as_mut()).is_pending());
    world.settle();
    assert!(lease.signal().is_stopping());
    assert!(poll_once(stopping.as_mut()).is_pending());
    world.runtime.shut_down();
    assert_eq!(world.runtime.block_on(draining), Err(NotDrained::Closed(Closed)));
    assert_eq!(world.runtime.block_on(stopping), Err(NotDrained::Closed(Closed)));

    // What was drained before its end stays so.
    let world = World::new();
    let tenure = world.tenure();
    assert_eq!(drained(&world, &tenure), Ok(()));
    let mut again = Box::pin(tenure.drain());
    assert!(poll_once(again.as_mut()).is_pending());
    world.runtime.shut_down();
    assert_eq!(world.runtime.block_on(again), Ok(()));
}

#[test]
fn a_drain_that_is_taken_back_tells_whoever_waits_for_it() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.runtime.block_on(tenure.acquire("a").grace(TTL).into_future()).unwrap();
    let mut draining = Box::pin(tenure.drain());
    assert!(poll_once(draining.as_mut()).is_pending());
    world.settle();
    assert!(lease.signal().is_stopping());
    tenure.resume();
    assert_eq!(world.runtime.block_on(draining), Err(NotDrained::Resumed));
    assert!(!tenure.is_draining());
}

#[test]
fn work_that_fails_by_itself_while_it_drains_is_told_as_failed_or_stopped_with_its_error() {
    let world = World::new();
    let tenure = world.tenure();
    let setup = tenure.coordinate(["panics", "errs"], |ctx: Ctx| async move {
        ctx.draining().await;
        assert_ne!(ctx.name(), "panics", "out of luck");
        Err::<(), _>("no luck")
    });
    let coordinator = setup.start().unwrap();
    let job = tenure.worker("leader", |ctx: Ctx| async move {
        ctx.draining().await;
        panic!("out of luck");
    });
    let worker = job.start().unwrap();
    world.settle();
    assert_eq!(drained(&world, &tenure), Ok(()));
    // The panics count as failures; the error of work that was told to end is only told.
    assert_eq!(tenure.stats().failed_runs, 2);
    assert!(worker.last_error().unwrap().contains("out of luck"));
    assert_eq!(coordinator.mine(), []);
    assert!(world.records().is_empty());
}

#[test]
fn an_operators_drain_is_heard_at_once_and_can_be_taken_back() {
    let world = World::new();
    let works = Works::default();
    let named = |name: &str| world.builder().instance(name).store(world.faulty()).start().unwrap();
    let (blue, green, operator) = (named("blue"), named("green"), named("operator"));
    let a = dutiful(&blue, "a", &works, 4).start().unwrap();
    let b = dutiful(&green, "b", &works, 4).start().unwrap();
    world.runtime.advance(5 * SECOND);
    assert_eq!((a.mine().len(), b.mine().len()), (2, 2));
    let begun = world.now();
    let draining = spawn(&world.runtime, blue.draining());
    assert_eq!(world.runtime.block_on(operator.mark("blue", true)).unwrap(), [blue.identity().clone()]);
    world.runtime.block_on(blue.drained());
    world.runtime.advance(HINTED);
    assert!(world.now().saturating_since(begun) <= 2 * HINTED, "it is hinted");
    assert_eq!(*draining.lock().unwrap(), Some(DrainReason::Operator));
    assert_eq!((a.mine().len(), b.mine().len()), (0, 4));
    let entries = world.runtime.block_on(operator.members()).unwrap();
    let marked: Vec<_> = entries.iter().map(|entry| (entry.marked, entry.member.draining)).collect();
    assert_eq!(marked, [(true, true), (false, false)], "it stays listed");

    blue.resume();
    world.runtime.advance(TTL);
    assert!(blue.is_draining(), "the program can't take it back");
    assert!(!world.runtime.block_on(operator.mark("blue", false)).unwrap().is_empty());
    world.runtime.advance(TTL);
    assert!(!blue.is_draining());
    assert_eq!((a.mine().len(), b.mine().len()), (2, 2));
    assert!(world.runtime.block_on(operator.mark("nobody", true)).unwrap().is_empty());
    assert!(world.runtime.block_on(operator.mark_process(green.identity(), true)).unwrap());
    world.runtime.block_on(green.drained());
}

#[test]
fn when_all_instances_drain_nothing_starts_and_what_runs_ends() {
    let world = World::new();
    let works = Works::default();
    let tenures = [world.tenure(), world.tenure()];
    let _coordinators: Vec<_> =
        tenures.iter().map(|tenure| dutiful(tenure, "x", &works, 4).start().unwrap()).collect();
    world.runtime.advance(5 * SECOND);
    assert_eq!(works.running().len(), 4);
    for tenure in &tenures {
        assert_eq!(drained(&world, tenure), Ok(()));
    }
    world.runtime.advance(10 * TTL);
    assert!(works.running().is_empty() && world.records().is_empty());
}

#[test]
fn a_signal_drains_and_shuts_down_and_a_second_one_stops() {
    for again in [false, true] {
        let world = World::new();
        let tenure = world.tenure();
        let runtime = world.runtime.clone();
        let setup = tenure.worker("a", move |ctx: Ctx| {
            let runtime = runtime.clone();
            async move {
                assert_eq!(ctx.draining().await, StopReason::Drain);
                runtime.sleep_until(Runtime::now(&runtime) + 20 * SECOND).await;
            }
        });
        let _worker = setup.start().unwrap();
        let done = spawn(&world.runtime, {
            let tenure = tenure.clone();
            async move { tenure.until_terminated().await }
        });
        world.runtime.advance(10 * SECOND);
        assert!(!tenure.is_draining() && done.lock().unwrap().is_none());
        world.runtime.interrupt();
        world.runtime.advance(10 * SECOND);
        assert!(tenure.is_draining() && done.lock().unwrap().is_none() && world.records().len() == 1);
        if again {
            world.runtime.interrupt();
            world.settle();
        } else {
            world.runtime.advance(10 * SECOND);
        }
        assert_eq!(*done.lock().unwrap(), Some(Ok(())));
        assert!(world.records().is_empty());
    }
}

#[test]
fn a_signal_is_answered_by_the_names_of_what_is_stuck_in_the_end() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.runtime.block_on(tenure.acquire("kept").grace(SECOND).into_future()).unwrap();
    let done = spawn(&world.runtime, {
        let tenure = tenure.clone();
        async move { tenure.until_terminated().await }
    });
    world.settle();
    world.runtime.interrupt();
    world.runtime.advance(5 * SECOND);
    let result = done.lock().unwrap().take();
    assert!(matches!(&result, Some(Err(NotDrained::Stuck(stuck))) if stuck.leases.len() == 1), "{result:?}");
    drop(lease);
}
