//! Periodic jobs: which ticks are run, where, and what becomes of their runs.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use tenure_core::{LeaseName, Missed, Overlap, StopReason, Token};

use tenure_store::{RunOutcome, RunState};

use super::*;
use crate::{Closed, Ctx, DrainError, Periodic, PeriodicSetup, PeriodicStatus, TimerError};

mod cut_short;

const MILLI: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_secs(10);

/// One run: its tick, where, its token, when it began and, once it has, when it ended by itself.
#[derive(Clone, Debug)]
struct Run {
    tick: u64,
    place: &'static str,
    token: Token,
    from: Instant,
    until: Option<Instant>,
    missed: u64,
}

/// What was run.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<Run>>>);

impl Book {
    fn all(&self) -> Vec<Run> {
        self.0.lock().unwrap().clone()
    }

    fn take(&self) -> Vec<Run> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn ticks(&self) -> Vec<u64> {
        self.all().iter().map(|run| run.tick).collect()
    }

    /// How often each tick was run.
    fn counts(&self) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        for tick in self.ticks() {
            *counts.entry(tick).or_default() += 1;
        }
        counts
    }
}

/// A job that takes this long, and notes its runs.
fn job(world: &World, tenure: &Tenure, book: &Book, place: &'static str, takes: Duration) -> PeriodicSetup {
    let (book, runtime) = (book.clone(), world.runtime.clone());
    tenure.periodic("p", PERIOD, move |ctx: Ctx| {
        let (book, runtime) = (book.clone(), runtime.clone());
        async move {
            let due = ctx.tick().expect("it is a run");
            let from = Runtime::now(&runtime);
            let (tick, missed) = (due.tick.n, due.missed);
            let place = {
                let mut runs = book.0.lock().unwrap();
                runs.push(Run { tick, place, token: ctx.token(), from, until: None, missed });
                runs.len() - 1
            };
            runtime.sleep_until(from + takes).await;
            if let Some(run) = book.0.lock().unwrap().get_mut(place) {
                run.until = Some(Runtime::now(&runtime));
            }
        }
    })
}

fn drained(world: &World, job: &Periodic) -> Result<(), DrainError> {
    world.runtime.block_on(job.drain())
}

/// How many claims live. Those of ticks that were given back unbegun stay as well, and hold up nothing.
fn claims(world: &World) -> usize {
    let timers = world.runtime.block_on(SimpleStore::timers(&world.store, None, 10)).unwrap();
    let claims = timers.iter().flat_map(|entry| &entry.record.claims);
    claims.filter(|claim| claim.ends > world.now()).count()
}

#[test]
fn each_tick_is_run_once_on_one_of_the_instances() {
    let world = World::new();
    let book = Book::default();
    let tenures = [world.tenure(), world.tenure(), world.tenure()];
    let jobs: Vec<_> = tenures
        .iter()
        .zip(["a", "b", "c"])
        .map(|(tenure, place)| job(&world, tenure, &book, place, SECOND).start().unwrap())
        .collect();
    world.runtime.advance(100 * PERIOD + PERIOD / 2);
    assert_eq!(book.counts(), (1..=100).map(|n| (n, 1)).collect());
    let runs = book.all();
    assert!(runs.is_sorted_by(|one, next| one.token < next.token), "tokens rise");
    assert!(runs.iter().all(|run| run.until == Some(run.from + SECOND) && run.missed == 0));
    let run: u64 = tenures.iter().map(|tenure| tenure.stats().claims).sum();
    let skipped: u64 = tenures.iter().map(|tenure| tenure.stats().skipped_ticks).sum();
    assert_eq!((run, skipped, tenures[0].stats().periodics), (100, 0, 1));
    for job in &jobs {
        assert_eq!(drained(&world, job), Ok(()));
    }
    assert_eq!(claims(&world), 0, "drained means that nothing is left");
}

#[test]
fn a_fast_job_runs_once_per_tick_though_an_instance_is_late() {
    let world = World::new();
    for late in [200 * MILLI, SECOND] {
        let book = Book::default();
        let plan = Plan::default();
        let (quick, slow) = (world.tenure(), world.tenure_with(&plan));
        // Whatever it asks gets to the store that much later.
        plan.all(Fault::Late(late));
        let jobs = [
            job(&world, &quick, &book, "quick", MILLI).start().unwrap(),
            job(&world, &slow, &book, "slow", MILLI).start().unwrap(),
        ];
        world.runtime.advance(20 * PERIOD);
        let counts = book.counts();
        assert!(counts.len() >= 19 && counts.values().all(|count| *count == 1), "{late:?}: {counts:?}");
        for job in jobs {
            world.runtime.block_on(job.stop()).unwrap();
        }
    }
}

#[test]
fn a_job_is_taken_over_by_whoever_is_left_and_no_tick_is_lost_over_a_drain() {
    let world = World::new();
    let book = Book::default();
    let (one, other) = (world.tenure(), world.tenure());
    let first = job(&world, &one, &book, "one", SECOND).start().unwrap();
    world.runtime.advance(3 * PERIOD - SECOND);
    assert_eq!(book.ticks(), [1, 2]);
    // A second before the tick one goes, and another comes after it.
    assert_eq!(drained(&world, &first), Ok(()));
    world.runtime.advance(1700 * MILLI);
    let _second = job(&world, &other, &book, "other", SECOND).start().unwrap();
    world.runtime.advance(PERIOD);
    assert_eq!(book.ticks(), [1, 2, 3, 4]);
    assert!(book.all()[2..].iter().all(|run| run.place == "other"));
}

#[test]
fn what_becomes_of_ticks_during_a_run_is_the_policy_s() {
    for (overlap, expected) in [
        (Overlap::Skip, vec![1, 4, 7, 10]),
        // The latest of those that came meanwhile.
        (Overlap::Queue, vec![1, 3, 5, 7]),
        (Overlap::Allow, (1..=10).collect()),
    ] {
        let world = World::new();
        let book = Book::default();
        let (one, other) = (world.tenure(), world.tenure());
        let takes = 23 * SECOND;
        let _jobs = [(&one, "one"), (&other, "other")].map(|(tenure, place)| {
            job(&world, tenure, &book, place, takes).overlap(overlap).start().unwrap()
        });
        world.runtime.advance(10 * PERIOD + PERIOD / 10);
        assert_eq!(book.ticks(), expected, "{overlap:?}");
        let runs = book.all();
        let overlaps = runs.windows(2).any(|pair| pair[0].until.is_none_or(|until| pair[1].from < until));
        assert_eq!(overlaps, overlap == Overlap::Allow, "{overlap:?}");
        if overlap == Overlap::Skip {
            assert!(one.stats().skipped_ticks + other.stats().skipped_ticks > 0);
        }
    }
}

#[test]
fn runs_that_overlap_are_shown_as_that() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    let setup = job(&world, &tenure, &book, "here", 5 * PERIOD / 2).overlap(Overlap::Allow);
    let job = setup.start().unwrap();
    assert_eq!(job.status(), PeriodicStatus::Waiting);
    world.runtime.advance(3 * PERIOD + SECOND);
    let token = book.all()[2].token;
    assert_eq!(job.status(), PeriodicStatus::Working { runs: 3, tick: 3, token });
    assert_eq!(tenure.stats().held, 3);
}

#[test]
fn the_run_of_a_dead_instance_is_repeated_elsewhere_only_where_attempts_are_left() {
    for attempts in [1, 3] {
        let world = World::new();
        let book = Book::default();
        let plan = Plan::default();
        let (dying, healthy) = (world.tenure_with(&plan), world.tenure());
        let setup = job(&world, &dying, &book, "dying", 3600 * SECOND).attempts(attempts);
        let _gone = setup.start().unwrap();
        world.runtime.advance(PERIOD + SECOND);
        assert_eq!(book.ticks(), [1]);
        // From now on nobody hears of it.
        plan.all(Fault::Hang);
        let begun = world.now();
        let _heir = job(&world, &healthy, &book, "healthy", SECOND).attempts(attempts).start().unwrap();
        world.runtime.advance(3 * TTL);
        let again: Vec<_> = book.all().into_iter().filter(|run| run.tick == 1).collect();
        if attempts == 1 {
            assert_eq!(again.len(), 1, "at most once");
        } else {
            let [first, second] = &again[..] else { panic!("{again:?}") };
            assert_eq!((first.place, second.place), ("dying", "healthy"));
            assert!(second.token > first.token);
            let waited = second.from.saturating_since(begun);
            assert!(waited <= TTL + 2 * SECOND, "{waited:?}");
        }
        assert!(book.all().iter().any(|run| run.place == "healthy" && run.tick > 1), "{:?}", book.all());
        assert_eq!(dying.stats().held, 0, "it has stopped by its own clock");
    }
}

#[test]
fn a_run_whose_claim_cannot_be_renewed_ends_by_its_own_clock_before_another_begins() {
    let world = World::new();
    let plan = Plan::default();
    let (cut_off, healthy) = (world.tenure_with(&plan), world.tenure());
    let ends = Arc::new(Mutex::new(None));
    let (place, runtime) = (Arc::clone(&ends), world.runtime.clone());
    let _job = cut_off
        .periodic("p", PERIOD, move |ctx: Ctx| {
            let (place, runtime) = (Arc::clone(&place), runtime.clone());
            async move {
                let why = ctx.draining().await;
                assert!(!ctx.is_valid());
                *place.lock().unwrap() = Some((why, Runtime::now(&runtime)));
            }
        })
        .attempts(2)
        .start()
        .unwrap();
    world.runtime.advance(PERIOD + SECOND);
    plan.all(Fault::Hang);
    let book = Book::default();
    let _heir = job(&world, &healthy, &book, "healthy", SECOND).attempts(2).start().unwrap();
    world.runtime.advance(2 * TTL);
    let (why, ended) = ends.lock().unwrap().expect("it was told");
    let run = book.all().into_iter().find(|run| run.tick == 1).expect("it is run again");
    assert!(why == StopReason::Fence && ended < run.from);
}

#[test]
fn runs_under_a_lease_are_beside_nothing_else_that_has_it() {
    let world = World::new();
    let book = Book::default();
    let (tenure, other) = (world.tenure(), world.tenure());
    let setup = job(&world, &tenure, &book, "here", SECOND).under("database");
    let job = setup.start().unwrap();
    world.runtime.advance(PERIOD + SECOND / 2);
    let [run] = &book.take()[..] else { panic!() };
    let [record] = &world.records()[..] else { panic!("{:?}", world.records()) };
    assert_eq!(record.name, LeaseName::new("database").unwrap());
    assert_eq!(record.holder.token, Some(run.token), "its token is the lease's");
    world.runtime.advance(SECOND);
    assert!(world.records().is_empty() && claims(&world) == 0);

    // Somebody else has it at the next tick.
    let lease = world.acquire(&other, "database");
    world.runtime.advance(PERIOD);
    assert_eq!((book.ticks(), tenure.stats().skipped_ticks), (vec![], 1));
    drop(lease);
    world.runtime.advance(PERIOD);
    assert_eq!(book.ticks(), [3]);
    assert_eq!(drained(&world, &job), Ok(()));
}

#[test]
fn a_drain_waits_for_the_run_and_then_nothing_is_run() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    let job = job(&world, &tenure, &book, "here", 5 * SECOND).start().unwrap();
    world.runtime.advance(PERIOD + SECOND);
    let begun = world.now();
    assert_eq!(drained(&world, &job), Ok(()));
    assert_eq!(book.all()[0].until, Some(world.now()), "it has come to its end");
    assert!(world.now() > begun);
    world.runtime.advance(5 * PERIOD);
    assert_eq!((book.ticks(), job.status()), (vec![1], PeriodicStatus::Ended));
    assert_eq!(world.runtime.block_on(job.ended()), Ok(()));
    assert_eq!((claims(&world), tenure.stats().open, tenure.stats().periodics), (0, 0, 0));
    assert_eq!(drained(&world, &job), Ok(()), "again");
}

#[test]
fn a_run_that_a_drain_cuts_short_is_repeated_and_one_that_came_to_its_end_is_not() {
    for listens in [true, false] {
        let world = World::new();
        let (leaving, staying) = (world.tenure(), world.tenure());
        let clock = world.runtime.clone();
        let job = leaving
            .periodic("p", PERIOD, move |ctx: Ctx| {
                let end = Runtime::now(&clock) + 5 * SECOND;
                let clock = clock.clone();
                async move {
                    // To wait for the loss is not to hear of the drain.
                    let mut lost = pin!(ctx.lost());
                    if listens {
                        ctx.draining().await;
                    } else {
                        let mut sleep = clock.sleep_until(end);
                        std::future::poll_fn(|cx| {
                            assert!(lost.as_mut().poll(cx).is_pending());
                            sleep.as_mut().poll(cx)
                        })
                        .await;
                    }
                }
            })
            .attempts(2)
            .start()
            .unwrap();
        world.runtime.advance(PERIOD + SECOND);
        let book = Book::default();
        let _other = self::job(&world, &staying, &book, "other", SECOND).attempts(2).start().unwrap();
        assert_eq!(drained(&world, &job), Ok(()));
        // Whoever waits for it looks again when the TTL that it was told of is over.
        world.runtime.advance(2 * TTL);
        assert_eq!(book.counts().get(&1), listens.then_some(&1));
        let history = world.runtime.block_on(leaving.jobs().history("p")).unwrap();
        let first = history.iter().rev().find(|run| run.index == Some(1)).unwrap();
        let expected = if listens { RunOutcome::Stopped } else { RunOutcome::Succeeded };
        assert_eq!(first.state, RunState::Ended(expected));
    }
}

#[test]
fn a_run_that_takes_too_long_to_drain_is_dropped_and_stop_drops_it_at_once() {
    for (hard, expected) in [(false, 3 * SECOND), (true, Duration::ZERO)] {
        let world = World::new();
        let book = Book::default();
        let tenure = world.tenure();
        let setup = job(&world, &tenure, &book, "here", 3600 * SECOND).drain_timeout(3 * SECOND);
        let job = setup.start().unwrap();
        world.runtime.advance(PERIOD + SECOND);
        let begun = world.now();
        let ended = async { if hard { job.stop().await } else { job.drain().await } };
        assert_eq!(world.runtime.block_on(ended), Ok(()));
        assert_eq!(world.now().saturating_since(begun), expected);
        assert_eq!(book.all()[0].until, None);
    }
}

#[test]
fn a_run_that_blocks_its_thread_is_named_by_the_drain() {
    let world = World::new();
    // Its tasks run somewhere else, and there nothing moves.
    let guest = TestRuntime::new();
    world.runtime.lend(&guest);
    let tenure = world.tenure();
    let job =
        tenure.periodic("p", PERIOD, |_| std::future::pending::<()>()).drain_timeout(SECOND).start().unwrap();
    world.runtime.advance(PERIOD + SECOND);
    guest.run_until_stalled();
    let PeriodicStatus::Working { runs: 1, tick: 1, token } = job.status() else { panic!("{job:?}") };
    let stuck = DrainError::RunStuck { timer: job.name().clone(), tick: 1, token };
    assert_eq!(drained(&world, &job), Err(stuck.clone()));
    assert_eq!(job.status(), PeriodicStatus::Stuck { tick: 1, token });
    assert!(stuck.to_string().starts_with("the run of tick 1 of \"p\" (token "), "{stuck}");
    // It is renewed until it ends after all.
    world.runtime.advance(5 * TTL);
    assert_eq!(claims(&world), 1);
    guest.run_until_stalled();
    assert_eq!(drained(&world, &job), Ok(()));
    assert_eq!(claims(&world), 0);
}

#[test]
fn a_panic_or_an_error_is_a_failed_run_and_the_next_tick_is_run() {
    let world = World::new();
    let tenure = world.tenure();
    let job = tenure
        .periodic("p", PERIOD, |ctx: Ctx| async move {
            match ctx.tick().map(|due| due.tick.n) {
                Some(1) => panic!("oh"),
                Some(2) => Err("no luck"),
                _ => Ok(()),
            }
        })
        .attempts(3)
        .start()
        .unwrap();
    for (failed, error) in [(1, Some("it panicked: oh")), (2, Some("no luck")), (2, None)] {
        world.runtime.advance(PERIOD + 30 * MILLI);
        assert_eq!((tenure.stats().failed_runs, job.last_error().as_deref()), (failed, error));
    }
    assert_eq!(tenure.stats().runs, 3, "a run that fails is not repeated");
}

#[test]
fn after_an_outage_of_the_whole_fleet_ticks_are_made_up_for_by_the_policy() {
    for (missed, expected) in [
        (Missed::Skip, vec![(144, 142)]),
        (Missed::CatchUp { at_most: 3 }, vec![(142, 140), (143, 0), (144, 0)]),
    ] {
        let world = World::new();
        let book = Book::default();
        let tenure = world.tenure();
        let first = job(&world, &tenure, &book, "first", SECOND).start().unwrap();
        world.runtime.advance(PERIOD + 2 * SECOND);
        world.runtime.block_on(tenure.shutdown()).unwrap();
        assert_eq!(first.status(), PeriodicStatus::Ended);
        world.runtime.advance(143 * PERIOD);
        book.take();
        let again = world.tenure();
        let _job = job(&world, &again, &book, "again", SECOND).missed(missed).start().unwrap();
        world.runtime.advance(5 * SECOND);
        let runs = book.all();
        let seen: Vec<_> = runs.iter().map(|run| (run.tick, run.missed)).collect();
        assert_eq!(seen, expected, "{missed:?}");
        let after = runs.windows(2).all(|pair| pair[0].until.is_some_and(|until| pair[1].from >= until));
        assert!(after, "one after the other");
    }
}

#[test]
fn what_is_too_late_is_not_run() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    let _job = job(&world, &tenure, &book, "here", SECOND).late_limit(SECOND).start().unwrap();
    world.settle();
    world.runtime.block(3 * PERIOD + 5 * SECOND);
    world.runtime.advance(4 * SECOND);
    assert_eq!((book.ticks(), tenure.stats().skipped_ticks), (vec![], 3));
    world.runtime.advance(PERIOD);
    assert_eq!(book.ticks(), [4]);
}

#[test]
fn a_store_that_fails_one_instance_over_several_ticks_leaves_them_to_the_other() {
    for fault in [Fault::Hang, Fault::Fail] {
        let world = World::new();
        let book = Book::default();
        let plan = Plan::default();
        let (one, other) = (world.tenure_with(&plan), world.tenure());
        let _one = job(&world, &one, &book, "one", SECOND).start().unwrap();
        world.settle();
        let _other = job(&world, &other, &book, "other", SECOND).start().unwrap();
        world.runtime.advance(3 * PERIOD + 2 * SECOND);
        plan.all(fault.clone());
        world.runtime.advance(5 * PERIOD);
        plan.heal();
        world.runtime.advance(3 * PERIOD);
        assert_eq!(book.counts(), (1..=11).map(|n| (n, 1)).collect(), "{fault:?}");
        assert!(book.all().iter().filter(|run| (4..=8).contains(&run.tick)).all(|run| run.place == "other"));
    }
}

#[test]
fn a_store_that_is_down_for_all_over_several_ticks_is_survived() {
    for fault in [Fault::Hang, Fault::Fail] {
        let world = World::new();
        let book = Book::default();
        let tenures = [world.tenure(), world.tenure()];
        let _jobs = [(&tenures[0], "one"), (&tenures[1], "other")]
            .map(|(tenure, place)| job(&world, tenure, &book, place, SECOND).start().unwrap());
        world.runtime.advance(2 * PERIOD + SECOND);
        world.plan.all(fault.clone());
        world.runtime.advance(5 * PERIOD);
        assert_eq!(book.ticks(), [1, 2], "{fault:?}");
        world.plan.heal();
        world.runtime.advance(3 * PERIOD);
        let counts = book.counts();
        assert!(counts.values().all(|count| *count == 1), "{fault:?}: {counts:?}");
        assert_eq!(book.ticks()[2..].iter().filter(|tick| **tick >= 8).count(), 3, "{fault:?}: {counts:?}");
    }
}

#[test]
fn a_store_that_refuses_the_job_ends_it_and_says_why() {
    let world = World::new();
    world.plan.only("read", Fault::Refuse);
    let book = Book::default();
    let job = job(&world, &world.tenure(), &book, "here", SECOND).start().unwrap();
    let Err(TimerError::Refused { timer, error }) = world.runtime.block_on(job.ended()) else {
        panic!("refused")
    };
    assert_eq!((timer.as_str(), &*error.message), ("p", "not allowed"));
    assert_eq!(job.status(), PeriodicStatus::Ended);
    assert!(job.last_error().is_some_and(|error| error.contains("not allowed")));
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let world = World::new();
    let tenure = world.tenure();
    let setup = || tenure.periodic("p", PERIOD, |_| async {});
    let field = |setup: PeriodicSetup| match setup.start() {
        Err(TimerError::Config(error)) => error.field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(setup().attempts(0)), "attempts");
    assert_eq!(field(setup().under("a").overlap(Overlap::Allow)), "overlap");
    assert_eq!(field(setup().ttl(Duration::ZERO)), "ttl");
    assert_eq!(field(tenure.periodic("p", Duration::ZERO, |_| async {})), "period");
    assert!(matches!(setup().under("").start(), Err(TimerError::Name(_))));
    assert!(matches!(tenure.periodic("", PERIOD, |_| async {}).start(), Err(TimerError::Name(_))));
    world.settle();
    assert_eq!(world.plan.log(), []);
}

#[test]
fn a_shutdown_drains_and_tells_what_does_not_end() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    let first = job(&world, &tenure, &book, "here", 1500 * MILLI).start().unwrap();
    world.runtime.advance(PERIOD + SECOND);
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    assert_eq!(book.all()[0].until, Some(world.now()), "it had the time to end");
    assert_eq!((first.status(), claims(&world), world.runtime.tasks()), (PeriodicStatus::Ended, 0, 0));
    assert_eq!(drained(&world, &first), Ok(()));
    let late = job(&world, &tenure, &book, "here", SECOND).start();
    assert!(matches!(late, Err(TimerError::Closed(Closed))));

    let tenure = world.tenure();
    let _stubborn = job(&world, &tenure, &book, "here", 3600 * SECOND).start().unwrap();
    world.runtime.advance(PERIOD);
    let error = world.runtime.block_on(tenure.shutdown()).unwrap_err();
    let [(timer, 2)] = &error.ticks[..] else { panic!("{error:?}") };
    assert_eq!((timer.as_str(), error.leases.len()), ("p", 0));
    assert!(error.to_string().starts_with("tick 2 of timer \"p\" was not given back within 2s"), "{error}");
}

#[test]
fn a_job_goes_on_without_its_handle_and_ends_with_the_last_one_of_its_tenure() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    drop(job(&world, &tenure, &book, "here", SECOND).start().unwrap());
    world.runtime.advance(2 * PERIOD + SECOND / 2);
    assert_eq!(book.ticks(), [1, 2]);
    drop(tenure);
    world.runtime.advance(5 * PERIOD);
    assert_eq!((book.ticks(), world.runtime.tasks(), claims(&world)), (vec![1, 2], 0, 0));
}

#[test]
fn a_job_ends_with_the_runtime_of_its_runs() {
    let world = World::new();
    let guest = TestRuntime::new();
    world.runtime.lend(&guest);
    let tenure = world.tenure();
    let job = tenure.periodic("p", PERIOD, |_| std::future::pending::<()>()).start().unwrap();
    world.runtime.advance(PERIOD + SECOND);
    guest.run_until_stalled();
    guest.shut_down();
    world.settle();
    assert_eq!(job.status(), PeriodicStatus::Ended);
    assert!(job.last_error().is_some_and(|error| error.contains("runtime has ended")));
    assert_eq!(claims(&world), 0);
}

#[test]
fn a_driver_that_is_destroyed_says_so_to_the_job() {
    let world = World::new();
    let book = Book::default();
    let job = job(&world, &world.tenure(), &book, "here", SECOND).start().unwrap();
    world.settle();
    world.runtime.shut_down();
    assert_eq!(drained(&world, &job), Err(DrainError::Closed(Closed)));
    assert_eq!(world.runtime.block_on(job.ended()), Ok(()));
}

#[test]
fn a_forgotten_timer_takes_the_claim_from_the_run_which_is_stopped() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    let job = job(&world, &tenure, &book, "here", 3600 * SECOND).start().unwrap();
    world.runtime.advance(PERIOD + SECOND);
    assert_eq!(world.runtime.block_on(tenure.forget_timer("p")), Ok(true));
    world.runtime.advance(TTL);
    assert_eq!(tenure.stats().lost, 1);
    assert!(!matches!(job.status(), PeriodicStatus::Working { tick: 1, .. }), "{job:?}");
}

#[test]
fn the_work_is_made_anew_for_each_run_and_kept_between() {
    let world = World::new();
    let tenure = world.tenure();
    let (mut made, gone) = (0, Arc::new(AtomicUsize::new(0)));
    let seen = Arc::new(AtomicUsize::new(0));
    struct Gone(Arc<AtomicUsize>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (guard, place) = (Gone(Arc::clone(&gone)), Arc::clone(&seen));
    let job = tenure
        .periodic("p", PERIOD, move |ctx: Ctx| {
            let _kept = &guard;
            made += 1;
            assert_eq!((ctx.name(), ctx.tick().map(|due| due.tick.n)), ("p", Some(made)));
            place.fetch_add(1, Ordering::Relaxed);
            async {}
        })
        .start()
        .unwrap();
    world.runtime.advance(5 * PERIOD + SECOND);
    assert_eq!((seen.load(Ordering::Relaxed), gone.load(Ordering::Relaxed)), (5, 0));
    assert_eq!(tenure.stats().failed_runs, 0);
    assert_eq!(drained(&world, &job), Ok(()));
    assert_eq!(gone.load(Ordering::Relaxed), 1);
}

#[test]
fn thousands_of_runs_leave_nothing_behind() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    let _job = job(&world, &tenure, &book, "here", SECOND).start().unwrap();
    let count =
        || (world.runtime.tasks(), tenure.stats().open, tenure.stats().held, tenure.stats().recording);
    world.runtime.advance(PERIOD + 2 * SECOND);
    let (before, sleepers) = (count(), world.runtime.sleepers());
    world.runtime.advance(2000 * PERIOD);
    assert_eq!(book.ticks().len(), 2001);
    assert_eq!(count(), before);
    assert!(world.runtime.sleepers() <= sleepers + 1);
    assert_eq!(claims(&world), 0);
}

#[test]
fn a_signal_drains_the_jobs_of_a_scope() {
    let world = World::new();
    let book = Book::default();
    let tenure = world.tenure();
    let job = job(&world, &tenure, &book, "here", 1500 * MILLI).start().unwrap();
    let ended = job.ended();
    let scope = spawn(&world.runtime, tenure.scope(async move |_| ended.await));
    world.runtime.advance(PERIOD + SECOND);
    world.runtime.interrupt();
    world.runtime.advance(SECOND);
    assert_eq!(*scope.lock().unwrap(), Some(Ok(Ok(()))));
    assert!(book.all()[0].until.is_some());
    assert_eq!((claims(&world), world.runtime.tasks()), (0, 0));
}

#[test]
fn a_bad_store_lets_no_tick_be_run_twice_and_is_survived() {
    for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Allow] {
        let world = World::new();
        let book = Book::default();
        let mut random = tenure_core::SplitMix::new(7);
        world.plan.set(move |_| Fault::of_a_bad_store(tenure_core::Jitter::below(&mut random, 100)));
        let tenures = [world.tenure(), world.tenure(), world.tenure()];
        let _jobs: Vec<_> = tenures
            .iter()
            .map(|tenure| {
                job(&world, tenure, &book, "somewhere", 3 * SECOND).overlap(overlap).start().unwrap()
            })
            .collect();
        world.runtime.advance(300 * PERIOD);
        let counts = book.counts();
        assert!(counts.values().all(|count| *count == 1), "{overlap:?}: {counts:?}");
        assert!(counts.len() > 100, "{overlap:?}: {}", counts.len());
        let sum =
            |what: fn(&crate::Stats) -> u64| tenures.iter().map(|tenure| what(&tenure.stats())).sum::<u64>();
        assert!(sum(|stats| stats.failures) > 500);
        world.plan.heal();
        world.runtime.advance(2 * TTL);
        book.take();
        world.runtime.advance(20 * PERIOD);
        assert_eq!(book.counts().values().sum::<usize>(), 20, "{overlap:?}: {:?}", book.counts());
        assert_eq!(book.counts().len(), 20);
        for tenure in &tenures {
            world.runtime.block_on(tenure.shutdown()).unwrap();
        }
        assert_eq!((claims(&world), world.runtime.tasks()), (0, 0));
    }
}

#[test]
fn jobs_and_timers_that_come_and_go_leave_nothing_behind() {
    for fault in [Fault::None, Fault::Fail, Fault::Slow(300 * MILLI), Fault::LoseAnswer] {
        let world = World::new();
        let book = Book::default();
        let tenure = world.tenure();
        world.plan.all(fault.clone());
        for n in 0..200_u32 {
            let timer = tenure.timer(format!("t{}", n % 7), SECOND).start().unwrap();
            let setup = job(&world, &tenure, &book, "here", SECOND / 3).attempts(1 + n % 3);
            let job = setup.overlap(if n % 2 == 0 { Overlap::Allow } else { Overlap::Skip }).start().unwrap();
            world.runtime.advance(n % 13 * PERIOD / 9);
            let mut drain = pin!(job.drain());
            let _begun = poll_once(drain.as_mut());
            drop(timer);
        }
        world.plan.heal();
        world.runtime.advance(4 * TTL);
        let stats = tenure.stats();
        let left = (stats.open, stats.held, stats.timers, stats.periodics, stats.recording, stats.in_flight);
        assert_eq!(left, (0, 0, 0, 0, 0, 0), "{fault:?}: {stats:?}");
        assert_eq!(world.runtime.tasks(), 1, "{fault:?}");
    }
}
