//! What a fleet promises of time, order and processes.

use std::cell::Cell;
use std::future::{IntoFuture, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

use tenure::testing::{Fault, Fleet, StoreFault, TestRuntime};
use tenure::{
    AcquireError, Cron, Ctx, Missed, Overlap, Periodic, RunOutcome, RunState, Runtime, Tenure, Timestamp,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

type Log = Arc<Mutex<Vec<String>>>;

fn logged(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

/// What a panic says.
fn panic_of(act: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(act)).expect_err("it panics");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a text")).to_owned(),
    }
}

/// A report each night at two in Berlin.
fn nightly(tenure: &Tenure, log: &Log) -> Periodic {
    let (name, log) = (tenure.identity().instance().to_owned(), Arc::clone(log));
    let work = move |ctx: Ctx| {
        log.lock().unwrap().push(format!("{} by {name}", ctx.tick().unwrap().tick.n));
        async move { ctx.sleep(60 * SECOND).await }
    };
    let schedule = Cron::new("0 2 * * *", "Europe/Berlin").unwrap();
    tenure.periodic("report", schedule, work).start().unwrap()
}

#[test]
fn a_tick_at_two_runs_once_on_three_instances_of_which_one_has_crashed() {
    let fleet = Fleet::new().starting_at("2026-12-01T01:59:00+01:00");
    let log = Log::default();
    let jobs = ["blue", "green", "red"].map(|name| nightly(&fleet.start(name), &log));
    fleet.advance(50 * SECOND);
    fleet.inject("green", Fault::Crashed);
    fleet.advance(9 * SECOND);
    assert_eq!(logged(&log), [""; 0]);
    fleet.advance_to("2026-12-01T02:00:01+01:00");
    let first = logged(&log);
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(!first[0].contains("green"));
    fleet.advance(23 * HOUR);
    assert_eq!(logged(&log), first);
    fleet.advance(HOUR);
    assert_eq!(logged(&log).len(), 2);
    let blue = fleet.start("blue");
    let history = fleet.block_on(blue.jobs().history("report")).unwrap();
    assert_eq!(history.iter().filter(|run| run.state == RunState::Ended(RunOutcome::Succeeded)).count(), 1);
    drop(jobs);
}

#[test]
fn a_night_that_was_spent_frozen_is_made_up_for_as_the_job_says() {
    let fleet = Fleet::new().starting_at("2026-12-01T00:00:00Z");
    let ticks = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ticks);
    let work = move |ctx: Ctx| {
        seen.lock().unwrap().push(ctx.tick().unwrap().tick.n);
        async {}
    };
    let blue = fleet.start("blue");
    let job = blue
        .periodic("hourly", HOUR, work)
        .missed(Missed::CatchUp { at_most: 100 })
        .overlap(Overlap::Queue)
        .start()
        .unwrap();
    // A tick comes once the store's clock has certainly reached it, so a little later.
    fleet.advance(HOUR + 10 * SECOND);
    assert_eq!(*ticks.lock().unwrap(), [1]);
    fleet.inject("blue", Fault::Frozen);
    fleet.advance(5 * HOUR);
    assert_eq!(*ticks.lock().unwrap(), [1]);
    fleet.heal("blue");
    fleet.advance(60 * SECOND);
    assert_eq!(*ticks.lock().unwrap(), [1, 2, 3, 4, 5, 6]);
    drop(job);
}

#[test]
fn a_schedule_that_one_instance_has_registered_is_read_by_the_others() {
    let fleet = Fleet::new().starting_at("2026-12-01T00:30:00Z");
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let schedule = Cron::new("0 2 * * *", "Europe/Berlin").unwrap();
    let _timer = blue.timer("nightly", schedule).start().unwrap();
    fleet.advance(SECOND);
    // Its own schedule is for later; the next tick is one of the schedule that is there.
    let mut ticks = green.timer("nightly", 12 * HOUR).start().unwrap();
    let due = fleet.block_on(ticks.next()).unwrap().unwrap();
    assert_eq!(due.tick.at, Timestamp::from_nanos(1_796_086_800_000_000_000));
    let late = fleet.wall_clock().saturating_since(due.tick.at);
    assert!(fleet.wall_clock() >= due.tick.at && late < 10 * SECOND, "{late:?}");
}

#[test]
fn a_drain_hands_the_work_over_at_once() {
    let fleet = Fleet::new();
    let log = Log::default();
    let [blue, green] = ["blue", "green"].map(|name| {
        let tenure = fleet.start(name);
        let (log, name) = (Arc::clone(&log), name.to_owned());
        let work = move |ctx: Ctx| {
            let (log, name) = (Arc::clone(&log), name.clone());
            async move {
                log.lock().unwrap().push(format!("{name} starts"));
                ctx.draining().await;
                ctx.sleep(5 * SECOND).await;
                log.lock().unwrap().push(format!("{name} has ended"));
            }
        };
        let worker = tenure.worker("leader", work).start().unwrap();
        fleet.run_until_stalled();
        (tenure, worker)
    });
    fleet.advance(SECOND);
    let began = fleet.elapsed();
    fleet.block_on(blue.1.drain()).unwrap();
    assert_eq!(fleet.elapsed() - began, 5 * SECOND);
    fleet.advance(SECOND);
    assert_eq!(logged(&log), ["blue starts", "blue has ended", "green starts"]);
    drop(green);
}

#[test]
fn a_process_that_is_told_to_end_ends_in_order_and_the_others_hear_nothing() {
    let fleet = Fleet::new();
    let runs = ["blue", "green"].map(|name| {
        let tenure = fleet.start(name);
        fleet.spawn(name, async move {
            let lease = name.to_owned();
            tenure
                .scope(async |tenure| {
                    let lease = tenure.acquire(lease).await.unwrap();
                    lease.stopping().await;
                })
                .await
        })
    });
    fleet.advance(SECOND);
    assert_eq!(fleet.leases().len(), 2);
    fleet.terminate("blue");
    fleet.run_until_stalled();
    assert_eq!(fleet.holder("blue"), None);
    assert_eq!(fleet.holder("green").as_deref(), Some("green"));
    assert!(runs[0].is_finished() && !runs[1].is_finished());
}

/// A story in which much is left to chance.
fn story(seed: u64) -> Vec<String> {
    let fleet = Fleet::seeded(seed);
    let log = Log::default();
    let mut handles = Vec::new();
    let start = |name: &str| {
        let tenure = fleet.start(name);
        log.lock().unwrap().push(tenure.identity().to_string());
        let (own, entries) = (tenure.clone(), Arc::clone(&log));
        let work = move |ctx: Ctx| {
            let (own, entries) = (own.clone(), Arc::clone(&entries));
            async move {
                entries.lock().unwrap().push(format!("{} {} {:?}", own.identity(), ctx.name(), own.now()));
                ctx.sleep(7 * SECOND).await;
            }
        };
        let shared = tenure.coordinate((0..5).map(|n| format!("part-{n}")), work.clone()).start().unwrap();
        (tenure.worker("leader", work).start().unwrap(), shared)
    };
    for name in ["blue", "green", "red"] {
        handles.push(start(name));
    }
    for fault in Fault::ALL {
        fleet.advance(11 * SECOND);
        fleet.inject("blue", *fault);
        fleet.advance(11 * SECOND);
        fleet.inject("red", *fault);
        fleet.advance(11 * SECOND);
        fleet.heal_all();
    }
    handles.push(start("blue"));
    fleet.inject_store(StoreFault::Wiped);
    fleet.advance(60 * SECOND);
    let holders = fleet.leases();
    log.lock()
        .unwrap()
        .extend(holders.iter().map(|record| format!("{} {:?}", record.name, record.holder.token)));
    logged(&log)
}

#[test]
fn the_same_seed_gives_the_same_order_and_another_one_another() {
    let first = story(7);
    assert!(first.len() > 100, "{}", first.len());
    for _ in 0..3 {
        assert_eq!(story(7), first);
    }
    assert_ne!(story(8), first);
}

#[test]
fn a_sleep_takes_as_long_as_it_says_and_begins_with_the_call() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    let sleep = blue.sleep(10 * SECOND);
    fleet.advance(4 * SECOND);
    fleet.block_on(sleep);
    assert_eq!(fleet.elapsed(), 10 * SECOND);
    fleet.block_on(fleet.sleep(SECOND));
    assert_eq!(fleet.elapsed(), 11 * SECOND);
    fleet.block_on(blue.sleep(Duration::ZERO));
    assert_eq!(fleet.elapsed(), 11 * SECOND);
}

#[test]
fn the_test_may_wait_for_what_is_not_send_and_borrow() {
    let fleet = Fleet::new();
    let blue = fleet.start("blue");
    let seen = Rc::new(Cell::new(0));
    let name = String::from("leader");
    fleet.block_on(async {
        let lease = blue.acquire(&name).await.unwrap();
        blue.sleep(40 * SECOND).await;
        seen.set(u32::from(lease.is_valid()));
    });
    assert_eq!(seen.get(), 1);
}

#[test]
fn while_a_process_is_frozen_time_passes_for_the_others_and_its_sleeps_are_over_when_it_goes_on() {
    let fleet = Fleet::new();
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    let log = Log::default();
    for (name, tenure) in [("blue", blue), ("green", green)] {
        let log = Arc::clone(&log);
        fleet.spawn(name, async move {
            for _ in 0..2 {
                tenure.sleep(10 * SECOND).await;
                log.lock().unwrap().push(name.to_owned());
            }
        });
    }
    fleet.run_until_stalled();
    fleet.inject("blue", Fault::Frozen);
    fleet.block_on(fleet.sleep(15 * SECOND));
    assert_eq!(logged(&log), ["green"]);
    fleet.heal("blue");
    fleet.run_until_stalled();
    // Its second sleep begins only now.
    assert_eq!(logged(&log), ["green", "blue"]);
    fleet.advance(9 * SECOND);
    assert_eq!(logged(&log), ["green", "blue", "green"]);
    fleet.advance(SECOND);
    assert_eq!(logged(&log).len(), 4);
}

#[test]
fn a_process_may_end_itself_and_what_it_had_is_dropped() {
    struct Noted(Log);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("dropped".to_owned());
        }
    }
    let fleet = Arc::new(Fleet::new());
    let log = Log::default();
    let (noted, own, blue) = (Noted(Arc::clone(&log)), Arc::downgrade(&fleet), fleet.start("blue"));
    let run = fleet.spawn("blue", async move {
        own.upgrade().unwrap().inject("blue", Fault::Crashed);
        blue.sleep(HOUR).await;
        drop(noted);
    });
    fleet.run_until_stalled();
    assert!(matches!(run.take(), Some(Err(_))));
    assert_eq!(logged(&log), ["dropped"]);
    // Nothing of it comes back by itself.
    assert!(fleet.spawn("blue", async {}).is_finished());
    fleet.inject("blue", Fault::Frozen);
    assert_eq!(fleet.faults("blue"), [Fault::Crashed]);
    let again = fleet.start("blue");
    assert!(fleet.block_on(again.acquire("a").into_future()).is_ok());
}

#[test]
fn a_fleet_that_is_dropped_drops_what_its_processes_have() {
    let kept = Arc::new(());
    let fleet = Fleet::new();
    let mut handles = Vec::new();
    for name in ["blue", "green"] {
        let tenure = fleet.start(name);
        let (in_task, in_work) = (Arc::clone(&kept), Arc::clone(&kept));
        let task = fleet.spawn(name, async move {
            let _kept = in_task;
            pending::<()>().await
        });
        let work = move |ctx: Ctx| {
            let _kept = Arc::clone(&in_work);
            async move {
                ctx.draining().await;
            }
        };
        handles.push((task, tenure.worker("leader", work).start().unwrap()));
    }
    fleet.advance(SECOND);
    fleet.inject("green", Fault::Frozen);
    fleet.advance(20 * SECOND);
    assert!(Arc::strong_count(&kept) > 1);
    drop(fleet);
    assert_eq!(Arc::strong_count(&kept), 1);
    drop(handles);
}

#[test]
fn faults_are_there_before_the_start_and_for_the_next_process() {
    let fleet = Fleet::new();
    fleet.inject("blue", Fault::Unavailable);
    for _ in 0..2 {
        let blue = fleet.start("blue");
        assert!(fleet.block_on(blue.try_acquire("a").into_future()).is_err());
        fleet.inject("blue", Fault::Crashed);
    }
    fleet.heal("blue");
    let blue = fleet.start("blue");
    assert!(fleet.block_on(blue.try_acquire("a").into_future()).is_ok());
}

#[test]
fn a_fault_with_a_time_takes_the_place_of_one_of_its_kind() {
    let fleet = Fleet::new();
    for fault in [Fault::RequestsLate(SECOND), Fault::CutOff, Fault::RequestsLate(2 * SECOND), Fault::CutOff]
    {
        fleet.inject("blue", fault);
    }
    assert_eq!(fleet.faults("blue"), [Fault::RequestsLate(2 * SECOND), Fault::CutOff]);
    assert_eq!(fleet.faults("green"), []);
}

#[test]
fn what_never_comes_is_told_with_who_waits() {
    let fleet = Fleet::new();
    let text = panic_of(|| fleet.block_on(pending()));
    assert!(text.contains("never will") && text.contains("2026-01-01T00:00:00Z"), "{text}");

    let blue = fleet.start("blue");
    let _task = fleet.spawn("blue", pending::<()>());
    let line = line!() - 1;
    let lease = fleet.block_on(blue.acquire("leader").into_future()).unwrap();
    fleet.inject("blue", Fault::HintsLost);
    fleet.inject("green", Fault::Crashed);
    let text = panic_of(|| drop(fleet.block_on(blue.acquire("leader").into_future())));
    for part in [
        "though 90000s have passed; see `Fleet::patience`",
        "at 2026-01-02T01:00:00Z",
        "instance \"blue\" is: hints-lost; 2 of its tasks wait",
        &format!("tests/fleet.rs:{line}:"),
        "instance \"green\" has crashed",
        "lease \"leader\" is held by blue/",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    // It can be used on.
    assert!(lease.is_valid());
    let text = panic_of(|| fleet.advance_until(|| false));
    assert!(text.contains("the condition of `advance_until` does not hold"), "{text}");
}

#[test]
fn patience_is_what_the_test_says() {
    let fleet = Fleet::new().patience(10 * SECOND);
    fleet.block_on(fleet.sleep(10 * SECOND));
    assert!(panic_of(|| fleet.block_on(fleet.sleep(11 * SECOND))).contains("10s have passed"));
    assert_eq!(fleet.elapsed(), 20 * SECOND);
}

#[test]
fn what_never_waits_is_told_instead_of_running_for_ever() {
    let fleet = Fleet::new();
    let waker = fleet.spawn("blue", async {
        std::future::poll_fn(|cx| -> Poll<()> {
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    });
    let text = panic_of(|| fleet.advance(SECOND));
    assert!(text.contains("something never waits") && text.contains("tests/fleet.rs"), "{text}");
    drop(waker);
}

#[test]
fn what_does_much_at_one_time_in_many_calls_is_not_taken_for_what_never_waits() {
    let fleet = Fleet::new();
    let wakes = || async {
        let mut left = 600_000;
        std::future::poll_fn(|cx| {
            left -= 1;
            cx.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await
    };
    for _ in 0..2 {
        fleet.block_on(wakes());
        let _task = fleet.spawn("blue", wakes());
        fleet.run_until_stalled();
    }
    assert_eq!(fleet.elapsed(), Duration::ZERO);
}

#[test]
fn who_waits_for_a_signal_is_kept_once_however_often_it_looks() {
    struct Quiet;
    impl Wake for Quiet {
        fn wake(self: Arc<Self>) {}
    }
    let runtime = TestRuntime::new();
    let (quiet, mut signal) = (Arc::new(Quiet), runtime.interrupted());
    let waker = Waker::from(Arc::clone(&quiet));
    for _ in 0..1000 {
        assert!(signal.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&quiet), 3);
    runtime.interrupt();
    assert!(signal.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert_eq!(Arc::strong_count(&quiet), 2);
}

#[test]
fn since_when_a_lease_is_held_is_a_time_of_the_fleet_whoever_tells_it() {
    let fleet = Fleet::new().starting_at("2026-06-01T12:00:00Z");
    let (blue, green) = (fleet.start("blue"), fleet.start("green"));
    fleet.inject_store(StoreFault::ClockAhead(HOUR));
    fleet.advance(SECOND);
    let _lease = fleet.block_on(blue.acquire("leader").into_future()).unwrap();
    let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_315_200 + 3600 + 1);
    fleet.advance(SECOND);
    // Of the holder's own process the store need not be asked.
    for tenure in [blue, green] {
        let error = fleet.block_on(tenure.try_acquire("leader").into_future()).unwrap_err();
        let AcquireError::Busy { holder: Some(holder), .. } = error else { panic!("{error}") };
        assert_eq!(holder.since, Some(since), "{}", tenure.identity());
    }
}

#[test]
fn time_is_moved_by_one_at_a_time_and_never_back() {
    let fleet = Arc::new(Fleet::new());
    let inner = Arc::clone(&fleet);
    let _task = fleet.spawn("blue", async move { inner.advance(SECOND) });
    assert!(panic_of(|| fleet.run_until_stalled()).contains("being moved already"));
    fleet.advance(SECOND);
    let text = panic_of(|| fleet.advance_to("2026-01-01T00:00:00Z"));
    assert!(text.contains("it is 2026-01-01T00:00:01Z already"), "{text}");
    assert!(panic_of(|| fleet.advance_to("two o'clock")).contains("is no time"));
    assert!(panic_of(|| drop(fleet.start(""))).contains("can't be started"));
}

#[test]
fn a_panic_of_a_task_is_one_of_the_test() {
    let fleet = Fleet::new();
    let _task = fleet.spawn("blue", async { panic!("as a test does that fails") });
    assert_eq!(panic_of(|| fleet.run_until_stalled()), "as a test does that fails");
}
