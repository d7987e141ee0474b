//! Workers in trouble: with the store, with their runtime, with the user's own code.

use std::any::Any;
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use tenure_core::{Jitter, Restart, SplitMix};

use super::*;
use crate::{Closed, Ctx, DrainError, Outcome, Worker, WorkerStatus};

/// Work that ends as soon as it is told to.
async fn dutiful(ctx: Ctx) {
    ctx.draining().await;
}

async fn stubborn(_: Ctx) {
    std::future::pending().await
}

fn works(worker: &Worker) -> bool {
    matches!(worker.status(), WorkerStatus::Working { .. })
}

fn drained(world: &World, worker: &Worker) -> Result<(), DrainError> {
    world.runtime.block_on(worker.drain())
}

#[test]
fn work_that_ends_by_itself_at_the_fence_was_stopped_and_is_started_again() {
    let world = World::new();
    let tenure = world.tenure();
    let worker = tenure.worker("a", dutiful).restart(Restart::OnFailure).start().unwrap();
    world.settle();
    assert!(works(&worker));
    world.plan.all(Fault::Hang);
    world.runtime.advance(TTL);
    world.plan.heal();
    world.runtime.advance(2 * TTL);
    assert!(works(&worker), "{worker:?}");
    assert_eq!((tenure.stats().runs, tenure.stats().failed_runs), (2, 0));
}

#[test]
fn drained_means_given_back_also_when_an_earlier_run_s_candidacy_comes_to_its_end_late() {
    let world = World::new();
    let tenure = world.tenure();
    // The first attempt is never answered: its candidacy stays until no late answer can come any more.
    let mut first = true;
    world.plan.set(move |_| if std::mem::take(&mut first) { Fault::HangAfter } else { Fault::None });
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let work = move |ctx: Ctx| {
        let run = count.fetch_add(1, Ordering::Relaxed);
        async move {
            if run > 0 {
                ctx.draining().await;
            }
        }
    };
    let worker = tenure.worker("a", work).start().unwrap();
    world.runtime.advance(3 * TTL);
    assert!(works(&worker) && runs.load(Ordering::Relaxed) == 2, "{worker:?}");
    world.plan.only("release", Fault::Late(SECOND));
    assert_eq!(drained(&world, &worker), Ok(()));
    assert_eq!(world.records(), []);
}

#[test]
fn work_whose_runtime_has_ended_ends_its_worker_and_gives_the_lease_back() {
    let world = World::new();
    let tenure = world.tenure();
    let guest = TestRuntime::new();
    world.runtime.lend(&guest);
    let worker = tenure.worker("a", stubborn).start().unwrap();
    world.settle();
    guest.run_until_stalled();
    assert!(works(&worker));
    guest.shut_down();
    world.settle();
    assert_eq!((worker.status(), world.records()), (WorkerStatus::Ended, Vec::new()), "others can take over");
    assert!(worker.last_error().unwrap().contains("runtime"), "{worker:?}");
    assert_eq!(drained(&world, &worker), Ok(()));
    // The next one finds out when it has the lease.
    let worker = tenure.worker("a", stubborn).start().unwrap();
    world.settle();
    assert_eq!((worker.status(), world.records()), (WorkerStatus::Ended, Vec::new()));
    assert_eq!(tenure.stats().workers, 0);
}

#[test]
fn what_work_keeps_is_dropped_in_its_own_runtime_and_the_end_waits_for_that() {
    /// Counts that it is dropped.
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let world = World::new();
    let (tenure, guest) = (world.tenure(), TestRuntime::new());
    let dropped = Arc::<AtomicUsize>::default();
    let counts = Counts(Arc::clone(&dropped));
    world.runtime.lend(&guest);
    let work = move |_: Ctx| {
        let _kept = &counts;
        async {}
    };
    let worker = tenure.worker("a", work).start().unwrap();
    world.runtime.lend(&world.runtime);
    world.settle();
    guest.run_until_stalled();
    let ending = tenure.clone();
    let told = Arc::<AtomicUsize>::default();
    let tells = Counts(Arc::clone(&told));
    world.runtime.spawn(Box::pin(async move {
        ending.shutdown().await.unwrap();
        drop(tells);
    }));
    world.settle();
    // The driver is done with it, and does not call what may take its time.
    assert_eq!(worker.status(), WorkerStatus::Ended);
    let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    assert_eq!((count(&dropped), count(&told)), (0, 0));
    guest.run_until_stalled();
    world.settle();
    assert_eq!((count(&dropped), count(&told)), (1, 1));
    // One that is never let run is not waited for for ever.
    let (tenure, stuck) = (world.tenure(), Counts(Arc::default()));
    world.runtime.lend(&guest);
    let work = move |_: Ctx| {
        let _kept = &stuck;
        async {}
    };
    let _worker = tenure.worker("a", work).start().unwrap();
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
}

/// Panics when it is dropped, with something that does so again.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if !std::thread::panicking() {
            let again: Box<dyn Any + Send> = Box::new(Bomb(Arc::clone(&self.0)));
            panic_any(again);
        }
    }
}

struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

#[test]
fn no_panic_of_the_users_code_reaches_the_driver_not_even_of_what_is_dropped() {
    for place in ["closure", "captured", "future", "cut", "error", "payload"] {
        let world = World::new();
        let tenure = world.tenure();
        let bystander = world.acquire(&tenure, "b");
        let exploded = Arc::new(AtomicUsize::new(0));
        let bomb = || Bomb(Arc::clone(&exploded));
        let captured = (place == "captured").then(bomb);
        let count = Arc::clone(&exploded);
        let work = move |_: Ctx| {
            let _captured = &captured;
            let bomb = Bomb(Arc::clone(&count));
            if place == "closure" {
                panic_any(bomb);
            }
            async move {
                match place {
                    "future" => drop(bomb),
                    "payload" => panic_any(bomb),
                    "cut" => {
                        let _bomb = bomb;
                        std::future::pending().await
                    }
                    _ => std::mem::forget(bomb),
                }
                if place == "error" { Err(Unspeakable) } else { Ok(()) }
            }
        };
        let worker = tenure.worker("a", work).restart(Restart::Never).start().unwrap();
        world.settle();
        if place == "cut" {
            assert_eq!(world.runtime.block_on(worker.stop()), Ok(()), "{place}");
        }
        world.settle();
        assert_eq!(worker.status(), WorkerStatus::Ended, "{place}");
        assert_eq!(exploded.load(Ordering::Relaxed) > 0, place != "error", "{place}");
        let failed = place != "captured";
        assert_eq!(
            (worker.last_error().is_some(), tenure.stats().failed_runs > 0),
            (failed, failed),
            "{place}"
        );
        world.runtime.advance(TTL);
        assert!(bystander.is_valid(), "{place}");
        drop(bystander);
        assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()), "{place}");
    }
}

#[test]
fn a_worker_whose_driver_is_gone_has_ended_only_once_its_work_has() {
    let world = World::new();
    let guest = TestRuntime::new();
    let tenure = world.tenure();
    world.runtime.lend(&guest);
    let worker = tenure.worker("a", stubborn).start().unwrap();
    world.settle();
    guest.run_until_stalled();
    let mut ended = Box::pin(worker.ended());
    world.runtime.shut_down();
    // Nobody waits in vain for what the driver would say, but the work still is there.
    assert_eq!(drained(&world, &worker), Err(DrainError::Closed(Closed)));
    guest.run_until_stalled();
    assert!(works(&worker) && poll_once(ended.as_mut()).is_pending(), "{worker:?}");
    // It ends by its own clock.
    world.runtime.advance(TTL);
    guest.run_until_stalled();
    assert_eq!(worker.status(), WorkerStatus::Ended);
    assert!(poll_once(ended.as_mut()).is_ready());
}

#[test]
fn work_that_never_ends_has_a_type_too() {
    fn fits<F: Future<Output: Outcome>>(_: fn(Ctx) -> F) {}
    fits(|ctx| async move {
        loop {
            ctx.draining().await;
        }
    });
    fits(|_| async { Ok::<(), std::io::Error>(()) });
    fits(|_| async { Err::<(), Box<dyn std::error::Error>>("no".into()) });
    fits(|_| async {});
}

#[test]
fn a_shutdown_that_is_shorter_than_a_drain_names_the_lease_and_cuts_nothing_short() {
    let world = World::new();
    let tenure = world.tenure();
    let (runtime, finished) = (world.runtime.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&finished);
    let work = move |ctx: Ctx| {
        let (runtime, count) = (runtime.clone(), Arc::clone(&count));
        async move {
            ctx.draining().await;
            runtime.sleep_until(Runtime::now(&runtime) + 20 * SECOND).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let worker = tenure.worker("a", work).start().unwrap();
    world.settle();
    let error = world.runtime.block_on(tenure.shutdown()).unwrap_err();
    assert_eq!(error.leases, [worker.name().clone()]);
    world.runtime.block_on(worker.ended());
    assert_eq!((finished.load(Ordering::Relaxed), world.records()), (1, Vec::new()));
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    assert_eq!(world.runtime.tasks(), 0);
}

#[test]
fn a_drain_that_nobody_waits_for_any_more_goes_on() {
    let world = World::new();
    let worker = world.tenure().worker("a", dutiful).start().unwrap();
    world.settle();
    assert!(is_pending(worker.drain()));
    world.settle();
    assert_eq!((worker.status(), world.records()), (WorkerStatus::Ended, Vec::new()));
    // What was not polled has not begun.
    let worker = world.tenure().worker("a", dutiful).start().unwrap();
    drop(worker.drain());
    world.settle();
    assert!(works(&worker));
}

#[test]
fn workers_and_candidates_of_one_process_have_the_lease_in_turn() {
    let world = World::new();
    let tenure = world.tenure();
    let [first, second, third] = [(); 3].map(|()| tenure.worker("a", dutiful).start().unwrap());
    let candidate = spawn(&world.runtime, tenure.acquire("a").into_future());
    world.settle();
    assert_eq!((works(&first), second.status()), (true, WorkerStatus::Waiting));
    assert_eq!(drained(&world, &third), Ok(()), "it need not have its turn for that");
    assert_eq!(drained(&world, &first), Ok(()));
    world.runtime.advance(SECOND);
    assert!(works(&second) && candidate.lock().unwrap().is_none());
    assert_eq!(world.runtime.block_on(second.stop()), Ok(()));
    world.runtime.advance(SECOND);
    assert!(candidate.lock().unwrap().take().unwrap().unwrap().is_valid());
}

#[test]
fn a_store_that_lost_its_memory_starts_no_work_under_a_token_of_the_past() {
    let world = World::new();
    let tenure = world.tenure();
    let tokens = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&tokens);
    let work = move |ctx: Ctx| {
        seen.lock().unwrap().push(ctx.token());
        async {}
    };
    let worker = tenure.worker("a", work).start().unwrap();
    world.settle();
    world.plan.only("acquire", Fault::Grant(1));
    world.runtime.advance(2 * TTL);
    let WorkerStatus::Resting { failures, .. } = worker.status() else { panic!("{worker:?}") };
    assert!(failures > 1 && tokens.lock().unwrap().len() == 1);
    world.plan.heal();
    world.runtime.advance(60 * SECOND);
    let tokens = tokens.lock().unwrap();
    assert!(tokens.len() > 1 && tokens.is_sorted(), "{tokens:?}");
}

#[test]
fn ten_thousand_workers_that_end_in_whatever_way_leave_nothing_behind() {
    end_at_random(1, 10_000, |_| Fault::None);
}

#[test]
fn workers_over_a_bad_store_never_work_beside_each_other_and_leave_nothing_behind() {
    for seed in 0..4 {
        end_at_random(seed, 500, |chance| match chance {
            50..52 => Fault::Refuse,
            _ => Fault::of_a_bad_store(chance),
        });
    }
}

/// How many runs of each name are inside, and the most that ever were.
#[derive(Clone, Default)]
struct Inside(Arc<[(AtomicUsize, AtomicUsize); 5]>);

impl Inside {
    fn enter(&self, name: usize) -> Entered {
        let (inside, most) = &self.0[name];
        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Entered(self.clone(), name)
    }
}

struct Entered(Inside, usize);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.0[self.1].0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts workers in two processes, and ends them at random points and in random ways.
fn end_at_random(seed: u64, rounds: u64, mut fault: impl FnMut(u64) -> Fault + Send + 'static) {
    println!("seed {seed}");
    let world = World::new();
    let processes = [world.tenure(), world.tenure()];
    let mut choice = SplitMix::new(seed);
    let mut faults = choice.fork();
    world.plan.set(move |_| fault(faults.below(100)));
    let inside = Inside::default();
    let mut kept: Vec<Worker> = Vec::new();
    let mut waits = Vec::new();
    for _ in 0..rounds {
        let (name, kind, inside) = (choice.below(5), choice.below(6), inside.clone());
        let work = move |ctx: Ctx| {
            let entered = inside.enter(name as usize);
            async move {
                let _entered = entered;
                match kind {
                    0 => Ok(()),
                    1 => Err("no luck"),
                    2 => panic!("what a pity"),
                    3 => std::future::pending().await,
                    _ => {
                        ctx.draining().await;
                        Ok(())
                    }
                }
            }
        };
        let restart = [Restart::Always, Restart::OnFailure, Restart::Never][choice.below(3) as usize];
        let setup = processes[choice.below(2) as usize].worker(name.to_string(), work).restart(restart);
        kept.push(setup.drain_timeout(3 * SECOND).start().unwrap());
        match choice.below(4) {
            0 => world.runtime.advance(Duration::from_millis(choice.below(2_000))),
            1 => world.settle(),
            _ => {}
        }
        while kept.len() > 8 {
            let worker = kept.swap_remove(choice.below(kept.len() as u64) as usize);
            let (how, ending) = (choice.below(4), worker.clone());
            let mut end: BoxFuture<'static, _> = if how == 0 {
                Box::pin(async move { ending.stop().await })
            } else {
                Box::pin(async move { ending.drain().await })
            };
            // Some are not waited for, and some are asked twice.
            if poll_once(end.as_mut()).is_pending() && how != 1 {
                waits.push(spawn(&world.runtime, end));
            }
            if how == 3 {
                waits.push(spawn(&world.runtime, async move { worker.drain().await }));
            }
        }
    }
    waits.extend(kept.into_iter().map(|worker| spawn(&world.runtime, async move { worker.drain().await })));
    world.plan.heal();
    world.runtime.advance(4 * TTL);
    assert!(waits.iter().all(|wait| *wait.lock().unwrap() == Some(Ok(()))));
    for tenure in &processes {
        let stats = tenure.stats();
        assert_eq!((stats.workers, stats.open, stats.held, stats.in_flight), (0, 0, 0, 0), "{stats:?}");
        assert!(stats.runs > rounds / 20 && stats.failed_runs > rounds / 100, "{stats:?}");
    }
    assert_eq!((world.records(), world.runtime.tasks()), (Vec::new(), 2), "the drivers, and nothing else");
    assert!(world.runtime.sleepers() <= 2 && world.plan.watched().is_empty());
    for (inside, most) in &*inside.0 {
        assert_eq!((inside.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 1));
    }
}
