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
fn ten_thousand_workers_that_end_in_whatever_way_leave_nothing_behind() {
    let seed = 1;
    println!("seed {seed}");
    let world = World::new();
    let tenure = world.tenure();
    let mut choice = SplitMix::new(seed);
    let inside: Arc<[AtomicUsize; 5]> = Arc::default();
    let mut kept: Vec<(Worker, u64)> = Vec::new();
    let mut waits = Vec::new();
    for _ in 0..10_000 {
        let (name, kind) = (choice.below(5), choice.below(6));
        let guard = Arc::clone(&inside);
        let work = move |ctx: Ctx| {
            let guard = Arc::clone(&guard);
            async move {
                assert_eq!(guard[name as usize].fetch_add(1, Ordering::SeqCst), 0, "beside another one");
                let _inside = Inside(guard, name as usize);
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
        let setup = tenure.worker(name.to_string(), work).restart(restart);
        kept.push((setup.drain_timeout(3 * SECOND).start().unwrap(), choice.below(4)));
        match choice.below(4) {
            0 => world.runtime.advance(Duration::from_millis(choice.below(2_000))),
            1 => world.settle(),
            _ => {}
        }
        while kept.len() > 8 {
            let (worker, how) = kept.swap_remove(choice.below(kept.len() as u64) as usize);
            let worker = Arc::new(worker);
            let ending = Arc::clone(&worker);
            let mut end: BoxFuture<'static, Result<(), DrainError>> = if how == 0 {
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
    for (worker, _) in kept {
        waits.push(spawn(&world.runtime, async move { worker.drain().await }));
    }
    world.runtime.advance(4 * TTL);
    assert!(waits.iter().all(|wait| *wait.lock().unwrap() == Some(Ok(()))));
    let stats = tenure.stats();
    assert_eq!((stats.workers, stats.open, stats.held, stats.in_flight), (0, 0, 0, 0), "{stats:?}");
    assert!(stats.runs > 1000 && stats.failed_runs > 100, "{stats:?}");
    assert_eq!((world.records(), world.runtime.tasks()), (Vec::new(), 1), "the driver, and nothing else");
    assert!(world.runtime.sleepers() <= 1 && world.plan.watched().is_empty());
    assert!(inside.iter().all(|inside| inside.load(Ordering::SeqCst) == 0));
}

struct Inside(Arc<[AtomicUsize; 5]>, usize);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0[self.1].fetch_sub(1, Ordering::SeqCst);
    }
}
