//! Workers: when their work runs, how it ends, and what follows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tenure_core::{Restart, StopReason, Token};
use tenure_store::Eviction;

use super::*;
use crate::{Closed, Ctx, DrainError, Worker, WorkerError, WorkerSetup, WorkerStatus};

/// What happened in the work, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Notes when it is dropped.
struct Gone(Diary);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.note("gone");
    }
}

/// Work that notes what happens to it, and ends when it is told that it drains.
fn dutiful(tenure: &Tenure, diary: &Diary) -> WorkerSetup {
    let diary = diary.clone();
    tenure.worker("a", move |ctx: Ctx| {
        let diary = diary.clone();
        async move {
            diary.note("start");
            let why = ctx.draining().await;
            diary.note(format!("{why:?}"));
        }
    })
}

/// Work that never ends by itself.
fn stubborn(tenure: &Tenure, diary: &Diary) -> WorkerSetup {
    let diary = diary.clone();
    tenure.worker("a", move |_: Ctx| {
        let gone = Gone(diary.clone());
        async move {
            gone.0.note("start");
            std::future::pending::<()>().await;
        }
    })
}

/// Started, and its work with it.
fn start(world: &World, setup: WorkerSetup) -> Worker {
    let worker = setup.start().unwrap();
    world.settle();
    assert!(matches!(worker.status(), WorkerStatus::Working { .. }), "{worker:?}");
    worker
}

fn drained(world: &World, worker: &Worker) -> Result<(), DrainError> {
    world.runtime.block_on(worker.drain())
}

#[test]
fn work_runs_with_the_token_of_its_lease_and_the_lease_goes_back_once_it_has_ended() {
    let world = World::new();
    let tenure = world.tenure();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tokens = Arc::clone(&seen);
    let setup = tenure.worker("a", move |ctx: Ctx| {
        assert_eq!(ctx.name(), "a");
        assert!(ctx.is_valid() && !ctx.is_draining());
        tokens.lock().unwrap().push(ctx.token());
        async move {
            ctx.draining().await;
        }
    });
    let worker = start(&world, setup);
    let [record] = &world.records()[..] else { panic!("{:?}", world.records()) };
    assert_eq!(record.holder.token, Some(seen.lock().unwrap()[0]));
    // It is renewed for as long as it takes.
    world.runtime.advance(10 * TTL);
    assert_eq!(worker.status(), WorkerStatus::Working { token: seen.lock().unwrap()[0] });
    assert_eq!(tenure.stats().workers, 1);
    assert_eq!(drained(&world, &worker), Ok(()));
    assert!(world.records().is_empty(), "drained means given back");
    assert_eq!((worker.status(), tenure.stats().runs, tenure.stats().workers), (WorkerStatus::Ended, 1, 0));
}

#[test]
fn a_drain_hands_the_work_over_at_once() {
    let world = World::new();
    let (diary, next) = (Diary::default(), Diary::default());
    let first = start(&world, dutiful(&world.tenure(), &diary));
    let second = dutiful(&world.tenure(), &next).start().unwrap();
    world.runtime.advance(3 * TTL);
    assert_eq!(second.status(), WorkerStatus::Waiting);
    let begun = world.now();
    assert_eq!(drained(&world, &first), Ok(()));
    world.settle();
    assert_eq!((diary.take(), next.take()), (vec!["start".into(), "Drain".into()], vec!["start".to_owned()]));
    assert_eq!(world.now(), begun, "without waiting for any time");
}

#[test]
fn work_that_finishes_in_a_drain_is_not_cut_short() {
    let world = World::new();
    let diary = Diary::default();
    let (runtime, notes) = (world.runtime.clone(), diary.clone());
    let setup = world.tenure().worker("a", move |ctx: Ctx| {
        let (runtime, notes) = (runtime.clone(), notes.clone());
        async move {
            ctx.draining().await;
            assert!(ctx.is_draining() && ctx.is_valid(), "the lease is kept meanwhile");
            runtime.sleep_until(Runtime::now(&runtime) + 20 * SECOND).await;
            notes.note("finished");
        }
    });
    let worker = start(&world, setup);
    let begun = world.now();
    assert_eq!(drained(&world, &worker), Ok(()));
    assert_eq!(diary.take(), ["finished"]);
    assert_eq!(world.now().saturating_since(begun), 20 * SECOND);
}

#[test]
fn work_that_takes_too_long_to_drain_is_dropped_and_then_the_lease_goes_back() {
    let world = World::new();
    let diary = Diary::default();
    let worker = start(&world, stubborn(&world.tenure(), &diary).drain_timeout(5 * SECOND));
    let begun = world.now();
    assert_eq!(drained(&world, &worker), Ok(()));
    assert_eq!(world.now().saturating_since(begun), 5 * SECOND);
    assert_eq!(diary.take(), ["start", "gone"]);
    assert!(world.records().is_empty());
}

#[test]
fn a_stop_leaves_no_time_also_while_it_drains() {
    let world = World::new();
    let diary = Diary::default();
    let worker = start(&world, stubborn(&world.tenure(), &diary));
    let mut draining = Box::pin(worker.drain());
    assert!(poll_once(draining.as_mut()).is_pending());
    world.runtime.advance(SECOND);
    assert!(diary.take() == ["start"] && poll_once(draining.as_mut()).is_pending());
    let begun = world.now();
    assert_eq!(world.runtime.block_on(worker.stop()), Ok(()));
    assert_eq!((diary.take(), world.now()), (vec!["gone".to_owned()], begun));
    assert_eq!(world.runtime.block_on(draining), Ok(()));
}

#[test]
fn work_that_fails_or_panics_is_started_again_after_growing_rests_and_harms_nobody() {
    let world = World::new();
    let tenure = world.tenure();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let setup = tenure.worker("a", move |_: Ctx| {
        let run = count.fetch_add(1, Ordering::Relaxed);
        assert_ne!(run, 1, "in the closure");
        async move {
            match run {
                0 => Err("no luck"),
                2 => panic!("in the future"),
                _ => std::future::pending().await,
            }
        }
    });
    let worker = setup.start().unwrap();
    let bystander = world.acquire(&tenure, "b");
    let mut errors = Vec::new();
    for failures in 1..=3 {
        world.settle();
        let WorkerStatus::Resting { failures: counted, until } = worker.status() else {
            panic!("{worker:?}")
        };
        assert_eq!(counted, failures);
        let rest = until.saturating_since(world.now());
        let most = SECOND * (1 << (failures - 1));
        assert!(most / 2 <= rest && rest <= most, "{rest:?} after failure {failures}");
        assert!(world.records().iter().all(|record| record.name.as_str() != "a"), "others may try meanwhile");
        errors.push(worker.last_error().unwrap().to_string());
        world.runtime.advance(rest);
    }
    world.settle();
    assert!(errors[0] == "no luck" && errors[1].contains("in the closure"), "{errors:?}");
    assert_eq!(errors[2], "it panicked: in the future");
    assert!(matches!(worker.status(), WorkerStatus::Working { .. }), "{worker:?}");
    assert_eq!((tenure.stats().runs, tenure.stats().failed_runs), (4, 3));
    assert!(bystander.is_valid());
}

#[test]
fn an_error_of_work_that_was_told_to_end_is_kept_and_is_no_failure() {
    let world = World::new();
    let tenure = world.tenure();
    let work = |ctx: Ctx| async move {
        ctx.draining().await;
        Err::<(), _>("cut short")
    };
    let worker = start(&world, tenure.worker("a", work).max_hold(60 * SECOND));
    for _ in 0..3 {
        world.runtime.advance(61 * SECOND);
        assert_eq!(worker.last_error().as_deref(), Some("cut short"));
    }
    assert_eq!((tenure.stats().runs, tenure.stats().failed_runs), (4, 0));
    assert_eq!(drained(&world, &worker), Ok(()));
    assert_eq!(tenure.stats().failed_runs, 0);
}

#[test]
fn the_policy_ends_a_worker_whose_work_is_done() {
    for (when, ends) in [(Restart::Never, true), (Restart::OnFailure, true), (Restart::Always, false)] {
        let world = World::new();
        let worker = world.tenure().worker("a", |_| async {}).restart(when).start().unwrap();
        world.settle();
        assert_eq!(worker.status() == WorkerStatus::Ended, ends, "{when:?}");
        assert!(world.records().is_empty());
        if ends {
            world.runtime.block_on(worker.ended());
            assert_eq!(drained(&world, &worker), Ok(()), "what has ended is drained");
        }
    }
}

#[test]
fn work_that_is_cut_off_from_the_store_is_told_at_the_fence_and_dropped_at_the_kill() {
    let world = World::new();
    let diary = Diary::default();
    let notes = diary.clone();
    let setup = world.tenure().worker("a", move |ctx: Ctx| {
        let gone = Gone(notes.clone());
        async move {
            ctx.stopping().await;
            gone.0.note(format!("stopping, draining: {}, valid: {}", ctx.is_draining(), ctx.is_valid()));
            std::future::pending::<()>().await;
        }
    });
    let worker = start(&world, setup);
    let begun = world.now();
    world.plan.all(Fault::Hang);
    world.runtime.advance(12 * SECOND);
    assert!(diary.take().is_empty(), "there still is time");
    // With a TTL of 15 s the fence is at 12.70 s, the kill at 14.45 s.
    world.runtime.advance(SECOND);
    assert_eq!(diary.take(), ["stopping, draining: true, valid: false"]);
    world.runtime.advance(SECOND);
    assert!(diary.take().is_empty(), "it may save what it has");
    world.runtime.advance(SECOND / 2);
    assert_eq!(diary.take(), ["gone"]);
    assert!(world.now().saturating_since(begun) < TTL);
    // It is not a follower for ever.
    world.plan.heal();
    world.runtime.advance(2 * TTL);
    assert!(matches!(worker.status(), WorkerStatus::Working { .. }), "{worker:?}");
}

#[test]
fn work_ends_by_the_clock_alone_when_its_driver_is_stuck_or_gone() {
    let world = World::new();
    let diary = Diary::default();
    let tenure = world.tenure();
    let worker = start(&world, stubborn(&tenure, &diary));
    // A runtime that is kept from running anything for longer than the lease lives.
    world.runtime.block(2 * TTL);
    world.settle();
    assert_eq!(diary.take(), ["start", "gone"]);
    world.runtime.advance(2 * TTL);
    assert!(matches!(worker.status(), WorkerStatus::Working { .. }), "{worker:?}");
    world.runtime.shut_down();
    assert_eq!(diary.take(), ["start", "gone"]);
    assert_eq!(worker.status(), WorkerStatus::Ended);
    assert_eq!(drained(&world, &worker), Err(DrainError::Closed(Closed)));
    world.runtime.block_on(worker.ended());
}

#[test]
fn work_is_not_begun_under_a_lease_that_is_over_by_then() {
    let world = World::new();
    let diary = Diary::default();
    let tenure = world.tenure();
    let worker = stubborn(&tenure, &diary).restart(Restart::Never).start().unwrap();
    // The answer to the acquisition is there, but nothing runs for a long while.
    let runtime = world.runtime.clone();
    let mut first = true;
    world.plan.set(move |_| {
        if std::mem::take(&mut first) {
            runtime.block(13 * SECOND);
        }
        Fault::None
    });
    world.settle();
    assert!(diary.take().is_empty(), "{worker:?}");
    world.runtime.advance(2 * SECOND);
    assert_eq!(diary.take(), ["start"], "the one run is still to come");
}

#[test]
fn work_whose_lease_is_taken_away_is_dropped_at_once_and_campaigns_again() {
    let world = World::new();
    let diary = Diary::default();
    let tenure = world.tenure();
    let worker = start(&world, stubborn(&tenure, &diary));
    let WorkerStatus::Working { token: before } = worker.status() else { panic!("{worker:?}") };
    world.runtime.block_on(tenure.evict("a", Eviction::Delete)).unwrap();
    // It is heard of at the next renewal.
    world.runtime.advance(5 * SECOND);
    assert_eq!(diary.take()[..2], ["start", "gone"]);
    world.runtime.advance(SECOND);
    let WorkerStatus::Working { token: after } = worker.status() else { panic!("{worker:?}") };
    assert!(before < after && before > Token::ZERO);
}

#[test]
fn a_maximum_hold_passes_the_work_on() {
    let world = World::new();
    let (diary, next) = (Diary::default(), Diary::default());
    let first = start(&world, dutiful(&world.tenure(), &diary).max_hold(60 * SECOND));
    let second = dutiful(&world.tenure(), &next).start().unwrap();
    world.runtime.advance(61 * SECOND);
    let why = format!("{:?}", StopReason::MaxHold);
    assert_eq!((diary.take(), next.take()), (vec!["start".into(), why], vec!["start".to_owned()]));
    assert!(matches!(second.status(), WorkerStatus::Working { .. }));
    world.runtime.advance(10 * SECOND);
    assert_eq!(first.status(), WorkerStatus::Waiting, "it campaigns again");
}

#[test]
fn a_shutdown_drains_the_workers() {
    let world = World::new();
    let diary = Diary::default();
    let tenure = world.tenure();
    let worker = start(&world, dutiful(&tenure, &diary));
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
    assert_eq!(diary.take(), ["start", "Drain"]);
    assert_eq!(worker.status(), WorkerStatus::Ended);
    assert_eq!(drained(&world, &worker), Ok(()));
    assert!(world.records().is_empty());
    assert_eq!(world.runtime.tasks(), 0);
    assert_eq!(dutiful(&tenure, &diary).start().err(), Some(WorkerError::Closed(Closed)));
}

#[test]
fn a_worker_goes_on_without_its_handle_and_is_drained_when_all_handles_are_gone() {
    let world = World::new();
    let diary = Diary::default();
    let tenure = world.tenure();
    drop(start(&world, dutiful(&tenure, &diary)));
    world.runtime.advance(10 * TTL);
    assert_eq!(diary.take(), ["start"]);
    drop(tenure);
    world.settle();
    assert_eq!(diary.take(), ["Drain"]);
    assert!(world.records().is_empty());
    assert_eq!(world.runtime.tasks(), 0);
}

#[test]
fn a_worker_and_a_candidate_of_one_process_wait_for_each_other() {
    let world = World::new();
    let diary = Diary::default();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let worker = dutiful(&tenure, &diary).start().unwrap();
    world.runtime.advance(3 * TTL);
    assert_eq!((worker.status(), diary.take()), (WorkerStatus::Waiting, Vec::new()));
    drop(lease);
    world.settle();
    assert_eq!(diary.take(), ["start"]);
}

#[test]
fn settings_that_do_not_fit_are_refused_with_their_name() {
    let world = World::new();
    let tenure = world.tenure();
    let setup = || tenure.worker("a", |_| async {});
    let field = |setup: WorkerSetup| match setup.start() {
        Err(WorkerError::Config(error)) => error.field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(setup().ttl(Duration::ZERO)), "ttl");
    assert_eq!(field(setup().restart_delays(Duration::ZERO, SECOND)), "first_delay");
    assert_eq!(field(setup().restart_delays(2 * SECOND, SECOND)), "longest_delay");
    assert!(matches!(tenure.worker("", |_| async {}).start(), Err(WorkerError::Name(_))));
    assert_eq!(tenure.stats().workers, 0);
}

#[test]
fn a_store_that_is_down_at_the_start_is_waited_for() {
    let world = World::new();
    let diary = Diary::default();
    world.plan.all(Fault::Fail);
    let worker = dutiful(&world.tenure(), &diary).start().unwrap();
    world.runtime.advance(10 * TTL);
    assert_eq!((worker.status(), diary.take()), (WorkerStatus::Waiting, Vec::new()));
    world.plan.heal();
    world.runtime.advance(TTL);
    assert_eq!(diary.take(), ["start"]);
}

#[test]
fn a_name_that_the_store_refuses_is_tried_again_ever_more_rarely() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.all(Fault::Refuse);
    let worker = tenure.worker("a", |_| async {}).start().unwrap();
    world.runtime.advance(600 * SECOND);
    let WorkerStatus::Resting { failures, .. } = worker.status() else { panic!("{worker:?}") };
    // 1 + 2 + 4 + ... + 32 + 60 + 60 + ..., half of it at the least.
    assert!((14..30).contains(&failures), "{failures}");
}
