//! Runs that are cut short: by a drain, or with their runtime.

use super::*;
use crate::Tenure;

/// Runs on a runtime of its own, that a test can end.
fn guest(world: &World, tenure: &Tenure, setup: PeriodicSetup) -> (TestRuntime, Periodic) {
    let guest = TestRuntime::new();
    world.runtime.lend(&guest);
    let job = setup.start().unwrap();
    world.runtime.lend(&world.runtime);
    assert_eq!(tenure.stats().runs, 0);
    (guest, job)
}

/// What was said of the first tick's run, and with which text.
fn first_run(world: &World, tenure: &Tenure) -> (RunState, Option<String>) {
    let history = world.runtime.block_on(tenure.jobs().history("p")).unwrap();
    let run = history.iter().rev().find(|run| run.index == Some(1)).unwrap();
    (run.state, run.text.as_deref().map(ToOwned::to_owned))
}

#[test]
fn a_run_that_ends_with_its_runtime_was_stopped_and_is_repeated_elsewhere_where_attempts_are_left() {
    for (attempts, repeated) in [(1, None), (2, Some(&1))] {
        let world = World::new();
        let book = Book::default();
        let (dying, healthy) = (world.tenure(), world.tenure());
        let setup = dying.periodic("p", PERIOD, |_| std::future::pending::<()>()).attempts(attempts);
        let (guest, lost) = guest(&world, &dying, setup);
        world.runtime.advance(PERIOD + SECOND);
        guest.run_until_stalled();
        let _heir = job(&world, &healthy, &book, "healthy", SECOND).attempts(attempts).start().unwrap();
        world.settle();
        guest.shut_down();
        world.settle();
        assert_eq!(lost.status(), PeriodicStatus::Ended);
        let (state, text) = first_run(&world, &healthy);
        assert_eq!(state, RunState::Ended(RunOutcome::Stopped));
        assert!(text.is_some_and(|text| text.contains("its runtime has ended")));
        assert_eq!(dying.stats().failed_runs, 0);
        world.runtime.advance(PERIOD * 2);
        assert_eq!(book.counts().get(&1), repeated, "{attempts}: {:?}", book.ticks());
    }
}

#[test]
fn a_run_whose_runtime_ends_before_it_begins_is_no_attempt() {
    let world = World::new();
    let dying = world.tenure();
    let setup = dying.periodic("p", PERIOD, |_| std::future::pending::<()>());
    let (guest, lost) = guest(&world, &dying, setup);
    // Claimed, and its task is there, but was never polled.
    world.runtime.advance(PERIOD + SECOND);
    assert_eq!((dying.stats().claims, claims(&world)), (1, 1));
    guest.shut_down();
    world.settle();
    assert_eq!((lost.status(), claims(&world)), (PeriodicStatus::Ended, 0));
    assert!(lost.last_error().is_some_and(|error| error.contains("its runtime has ended")));
    let entries = world.runtime.block_on(SimpleStore::timers(&world.store, None, 10)).unwrap();
    let begun: Vec<_> = entries[0].record.claims.iter().map(|claim| (claim.tick, claim.begun)).collect();
    assert_eq!(begun, [(1, 0)], "it may be begun as often as before");
}

/// How many attempts at each tick count whose claim is kept.
fn attempts(world: &World) -> Vec<(u64, u32)> {
    let entries = world.runtime.block_on(SimpleStore::timers(&world.store, None, 10)).unwrap();
    entries[0].record.claims.iter().map(|claim| (claim.tick, claim.begun)).collect()
}

#[test]
fn a_run_that_drains_and_says_that_it_has_not_begun_is_no_attempt() {
    for (begins, counted) in [(false, vec![(1, 0)]), (true, vec![(1, 1)])] {
        let world = World::new();
        let tenure = world.tenure();
        let work = move |ctx: Ctx| async move {
            ctx.draining().await;
            if !begins {
                ctx.leave_unbegun();
            }
        };
        let job = tenure.periodic("p", PERIOD, work).attempts(2).start().unwrap();
        world.runtime.advance(PERIOD + SECOND);
        assert_eq!(drained(&world, &job), Ok(()));
        assert_eq!(attempts(&world), counted);
        world.settle();
        assert_eq!(first_run(&world, &tenure).0, RunState::Ended(RunOutcome::Stopped));
    }
}

#[test]
fn a_run_that_does_not_drain_can_not_be_left_unbegun() {
    let world = World::new();
    let (here, there) = (world.tenure(), world.tenure());
    let work = |ctx: Ctx| async move { ctx.leave_unbegun() };
    let jobs = [&here, &there].map(|tenure| tenure.periodic("p", PERIOD, work).attempts(2).start().unwrap());
    world.runtime.advance(PERIOD + SECOND);
    assert_eq!((here.stats().runs + there.stats().runs, attempts(&world)), (1, vec![]));
    drop(jobs);
}

#[test]
fn a_run_that_something_else_has_cut_short_is_repeated_where_attempts_are_left() {
    for cut in [true, false] {
        let world = World::new();
        let tenure = world.tenure();
        let work = move |ctx: Ctx| async move {
            if cut {
                ctx.cut_short();
            }
            Err::<(), _>("what it needs is gone")
        };
        let _job = tenure.periodic("p", PERIOD, work).attempts(2).start().unwrap();
        world.runtime.advance(PERIOD + SECOND);
        let outcome = if cut { RunOutcome::Stopped } else { RunOutcome::Failed };
        let text = Some("what it needs is gone".to_owned());
        assert_eq!(first_run(&world, &tenure), (RunState::Ended(outcome), text));
        assert_eq!(attempts(&world), if cut { vec![(1, 1)] } else { vec![] });
    }
}

#[test]
fn a_run_that_ends_with_an_error_because_it_drains_was_stopped_and_is_repeated_too() {
    for listens in [true, false] {
        let world = World::new();
        let book = Book::default();
        let (leaving, staying) = (world.tenure(), world.tenure());
        let runtime = world.runtime.clone();
        let work = move |ctx: Ctx| {
            let until = Runtime::now(&runtime) + 3 * SECOND;
            let runtime = runtime.clone();
            async move {
                if listens {
                    ctx.draining().await;
                } else {
                    runtime.sleep_until(until).await;
                }
                Err::<(), _>("no more")
            }
        };
        let first = leaving.periodic("p", PERIOD, work).attempts(2).start().unwrap();
        world.runtime.advance(PERIOD + SECOND);
        let _heir = job(&world, &staying, &book, "staying", SECOND).attempts(2).start().unwrap();
        world.settle();
        assert_eq!(drained(&world, &first), Ok(()));
        let outcome = if listens { RunOutcome::Stopped } else { RunOutcome::Failed };
        world.settle();
        assert_eq!(
            first_run(&world, &staying),
            (RunState::Ended(outcome), Some("no more".to_owned())),
            "the text is kept"
        );
        assert_eq!(first.last_error().as_deref(), Some("no more"));
        assert_eq!(leaving.stats().failed_runs, u64::from(!listens));
        world.runtime.advance(3 * TTL);
        assert_eq!(book.counts().get(&1), listens.then_some(&1), "{:?}", book.ticks());
    }
}
