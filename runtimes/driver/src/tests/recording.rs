//! The records of runs: what is reported, when, and what that may not disturb.

use tenure_core::Overlap;
use tenure_store::{RunOutcome, RunRecord, RunReport, RunState, StoreErrorKind};

use super::*;
use crate::{Closed, Ctx, Jobs, RequestError};

const MINUTE: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_secs(10);

fn history(world: &World, jobs: &Jobs, job: &str) -> Vec<RunRecord> {
    world.runtime.block_on(jobs.history(job)).unwrap()
}

/// What became of each run, the latest first.
fn states(runs: &[RunRecord]) -> Vec<(Option<u64>, RunState)> {
    runs.iter().map(|run| (run.index, run.state)).collect()
}

#[test]
fn a_run_is_recorded_from_its_begin_to_its_end() {
    let world = World::new();
    let tenure = world.tenure();
    let jobs = tenure.jobs();
    let begun = world.wall();
    let run = world.runtime.block_on(jobs.begin("import").index(7).text("april").start()).unwrap();
    assert_eq!(run.job().as_str(), "import");
    // It goes on for much longer than its TTL.
    world.runtime.advance(10 * MINUTE);
    let [record] = &history(&world, &jobs, "import")[..] else { panic!() };
    assert_eq!((record.index, record.state, record.started), (Some(7), RunState::Running, begun));
    assert_eq!(record.text.as_deref(), Some("april"));
    assert!(record.owner.starts_with(tenure.identity().instance()));

    run.text("april, half of it");
    world.settle();
    assert_eq!(history(&world, &jobs, "import")[0].text.as_deref(), Some("april, half of it"));
    world.runtime.block_on(run.succeed()).unwrap();
    let [record] = &history(&world, &jobs, "import")[..] else { panic!() };
    assert_eq!(record.state, RunState::Ended(RunOutcome::Succeeded));
    assert_eq!((record.ended, record.text.as_deref()), (Some(world.wall()), Some("april, half of it")));
    assert_eq!(tenure.stats().recording, 0);
    let reports = world.plan.reported().len();
    assert!((31..=34).contains(&reports), "three per TTL, and not {reports} in ten minutes");
}

#[test]
fn a_run_fails_with_its_text_cut_to_fit_and_one_that_is_dropped_was_stopped() {
    let world = World::new();
    let tenure = world.tenure();
    let jobs = tenure.jobs();
    let run = world.runtime.block_on(jobs.begin("import").index(1).start()).unwrap();
    world.runtime.block_on(run.fail("ö".repeat(1000))).unwrap();
    let run = world.runtime.block_on(jobs.begin("import").index(2).start()).unwrap();
    drop(run);
    world.settle();
    let runs = history(&world, &jobs, "import");
    let expected =
        [(Some(2), RunState::Ended(RunOutcome::Stopped)), (Some(1), RunState::Ended(RunOutcome::Failed))];
    assert_eq!(states(&runs), expected);
    let text = runs[1].text.as_ref().unwrap();
    assert!(text.len() <= RunReport::MAX_TEXT_BYTES && text.ends_with("ö…"), "{text}");
    assert_ne!(runs[0].owner, runs[1].owner);
}

#[test]
fn a_process_that_dies_leaves_an_abandoned_run_which_stays_one() {
    let world = World::new();
    let (reader, plan) = (world.tenure(), Plan::default());
    let tenure = world.tenure_with(&plan);
    let run = world.runtime.block_on(tenure.jobs().begin("import").ttl(30 * SECOND).start()).unwrap();
    plan.reports(Fault::Hang);
    let last = world.wall();
    world.runtime.advance(29 * SECOND);
    assert_eq!(history(&world, &reader.jobs(), "import")[0].state, RunState::Running);
    world.runtime.advance(2 * SECOND);
    let [record] = &history(&world, &reader.jobs(), "import")[..] else { panic!() };
    assert_eq!((record.state, record.ended), (RunState::Abandoned, Some(last + 30 * SECOND)));
    drop(run);
}

#[test]
fn jobs_are_listed_and_forgotten() {
    let world = World::new();
    let tenure = world.tenure();
    let jobs = tenure.jobs();
    let _goes_on = world.runtime.block_on(jobs.begin("b").start()).unwrap();
    world.runtime.block_on(async { jobs.begin("a").start().await.unwrap().succeed().await.unwrap() });
    let all = world.runtime.block_on(jobs.all()).unwrap();
    let all: Vec<_> = all.iter().map(|job| (job.name.as_str(), job.kept, job.running)).collect();
    assert_eq!(all, [("a", 1, 0), ("b", 1, 1)]);
    assert_eq!(world.runtime.block_on(jobs.forget("a")), Ok(true));
    assert_eq!(world.runtime.block_on(jobs.forget("a")), Ok(false));
    assert_eq!(history(&world, &jobs, "a"), []);
    assert!(matches!(world.runtime.block_on(jobs.history("")), Err(RequestError::Name(_))));
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let world = World::new();
    let jobs = world.tenure().jobs();
    let refused = |error: RequestError| match error {
        RequestError::Config(error) => error.field,
        other => panic!("{other}"),
    };
    let start = |setup: crate::RunSetup| world.runtime.block_on(setup.start()).map(drop);
    assert_eq!(start(jobs.begin("a").ttl(Duration::ZERO)).map_err(refused), Err("ttl"));
    assert_eq!(start(jobs.begin("a").text("x".repeat(256))).map_err(refused), Err("text"));
    assert!(matches!(start(jobs.begin("")), Err(RequestError::Name(_))));
    assert_eq!(world.plan.reported(), []);
}

#[test]
fn a_store_that_keeps_no_records_says_so_to_whoever_begins_a_run() {
    let world = World::new();
    world.plan.reports(Fault::Refuse);
    let tenure = world.tenure();
    let error = world.runtime.block_on(tenure.jobs().begin("a").start()).unwrap_err();
    assert!(matches!(error, RequestError::Store(error) if error.kind == StoreErrorKind::Unsupported));
    world.settle();
    assert_eq!((tenure.stats().recording, world.plan.reported().len()), (0, 1));
}

#[test]
fn a_begin_that_nobody_waits_for_any_more_is_a_run_that_was_stopped() {
    let world = World::new();
    let tenure = world.tenure();
    {
        let start = tenure.jobs().begin("a").start();
        assert!(is_pending(start));
    }
    world.settle();
    let runs = history(&world, &tenure.jobs(), "a");
    assert_eq!(states(&runs), [(None, RunState::Ended(RunOutcome::Stopped))]);
    assert_eq!(tenure.stats().recording, 0);
}

#[test]
fn the_end_of_a_run_is_told_though_the_store_fails_for_a_while() {
    for fault in [Fault::Fail, Fault::Hang] {
        let world = World::new();
        let tenure = world.tenure();
        let run = world.runtime.block_on(tenure.jobs().begin("a").start()).unwrap();
        world.plan.reports(fault.clone());
        let ended = spawn(&world.runtime, run.succeed());
        world.runtime.advance(3 * SECOND);
        assert!(ended.lock().unwrap().is_none());
        world.plan.heal();
        world.runtime.advance(10 * SECOND);
        assert_eq!(*ended.lock().unwrap(), Some(Ok(())), "{fault:?}");
        let runs = history(&world, &tenure.jobs(), "a");
        assert_eq!(states(&runs), [(None, RunState::Ended(RunOutcome::Succeeded))]);
    }
}

#[test]
fn a_store_that_never_takes_the_end_is_given_up_and_whoever_waits_hears_of_it() {
    let world = World::new();
    let tenure = world.tenure();
    let run = world.runtime.block_on(tenure.jobs().begin("a").start()).unwrap();
    world.plan.reports(Fault::Fail);
    let begun = world.now();
    let error = world.runtime.block_on(run.succeed()).unwrap_err();
    assert!(matches!(error, RequestError::Store(_)));
    let took = world.now().saturating_since(begun);
    assert!(took >= 5 * SECOND && took <= MINUTE, "{took:?}");
    assert_eq!(tenure.stats().recording, 0);
}

#[test]
fn runs_of_periodic_jobs_are_recorded_by_their_ticks() {
    let world = World::new();
    let tenure = world.tenure();
    let clock = world.runtime.clone();
    let job = tenure
        .periodic("p", PERIOD, move |ctx: Ctx| {
            let clock = clock.clone();
            async move {
                clock.sleep_until(Runtime::now(&clock) + SECOND).await;
                match ctx.tick().map(|due| due.tick.n) {
                    Some(1) => Ok(()),
                    Some(2) => Err("no luck"),
                    Some(3) => panic!("oh"),
                    _ => std::future::pending().await,
                }
            }
        })
        .text("nightly")
        .start()
        .unwrap();
    world.runtime.advance(4 * PERIOD + 2 * SECOND);
    let runs = history(&world, &tenure.jobs(), "p");
    let failed = RunState::Ended(RunOutcome::Failed);
    let done = (Some(1), RunState::Ended(RunOutcome::Succeeded));
    assert_eq!(states(&runs), [(Some(4), RunState::Running), (Some(3), failed), (Some(2), failed), done]);
    let texts: Vec<_> = runs.iter().map(|run| run.text.as_deref().unwrap()).collect();
    assert_eq!(texts, ["nightly", "it panicked: oh", "no luck", "nightly"]);
    let timers = world.runtime.block_on(tenure.timers()).unwrap();
    assert_eq!(timers[0].record.claims[0].owner, runs[0].owner, "its owner is the claim's");
    let took = runs[3].ended.unwrap().saturating_since(runs[3].started);
    assert_eq!(took, SECOND);

    world.runtime.advance(10 * TTL);
    assert_eq!(history(&world, &tenure.jobs(), "p")[0].state, RunState::Running, "it is kept alive");
    world.runtime.block_on(job.stop()).unwrap();
    world.runtime.block_on(tenure.shutdown()).unwrap();
    let reader = world.tenure();
    assert_eq!(history(&world, &reader.jobs(), "p")[0].state, RunState::Ended(RunOutcome::Stopped));
}

#[test]
fn of_many_runs_the_last_hundred_are_kept_and_no_report_is_left_over() {
    let world = World::new();
    let tenure = world.tenure();
    let _job = tenure.periodic("p", SECOND, |_| async {}).start().unwrap();
    world.runtime.advance(300 * SECOND + SECOND / 2);
    let runs = history(&world, &tenure.jobs(), "p");
    let done = RunState::Ended(RunOutcome::Succeeded);
    assert_eq!(states(&runs), (201..=300).rev().map(|n| (Some(n), done)).collect::<Vec<_>>());
    assert_eq!((tenure.stats().recording, tenure.stats().lost_reports), (0, 0));
}

#[test]
fn a_job_without_records_has_none() {
    let world = World::new();
    let tenure = world.tenure();
    let _job = tenure.periodic("p", SECOND, |_| async {}).without_records().start().unwrap();
    world.runtime.advance(10 * SECOND);
    assert!(tenure.stats().runs >= 9);
    assert_eq!(world.plan.reported(), []);
}

#[test]
fn reports_that_fail_disturb_no_run_and_do_not_pile_up() {
    for fault in [Fault::Fail, Fault::Hang, Fault::Refuse] {
        let world = World::new();
        let tenure = world.tenure();
        world.plan.reports(fault.clone());
        let _job = tenure.periodic("p", SECOND, |_| async {}).overlap(Overlap::Allow).start().unwrap();
        world.runtime.advance(600 * SECOND + SECOND / 2);
        let stats = tenure.stats();
        assert_eq!((stats.runs, stats.failed_runs), (600, 0), "{fault:?}");
        // A run is given up after half a minute.
        assert!(stats.recording <= 60, "{fault:?}: {stats:?}");
        match fault {
            // It is not asked for ever for what it has not got.
            Fault::Refuse => assert!(world.plan.reported().len() <= 2, "{}", world.plan.reported().len()),
            _ => assert!(stats.lost_reports > 500, "{stats:?}"),
        }
        world.plan.heal();
        world.runtime.advance(60 * SECOND);
        assert!(tenure.stats().recording <= 1, "{fault:?}");
    }
}

#[test]
fn so_many_runs_wait_for_a_store_that_takes_no_reports_and_no_more() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.reports(Fault::Hang);
    let _job = tenure.periodic("p", SECOND / 50, |_| async {}).overlap(Overlap::Allow).start().unwrap();
    world.runtime.advance(MINUTE);
    let stats = tenure.stats();
    assert!(stats.runs > 2500 && stats.recording <= 1000 && stats.lost_reports > 1000, "{stats:?}");
}

#[test]
fn a_shutdown_tells_the_ends_of_runs_before_it_closes_the_store() {
    let world = World::new();
    let tenure = world.tenure();
    let run = world.runtime.block_on(tenure.jobs().begin("own").start()).unwrap();
    let _job = tenure
        .periodic("p", PERIOD, |ctx: Ctx| async move {
            ctx.draining().await;
        })
        .start()
        .unwrap();
    world.runtime.advance(PERIOD + SECOND);
    world.runtime.block_on(tenure.shutdown()).unwrap();
    let jobs = world.tenure().jobs();
    let [periodic] = &history(&world, &jobs, "p")[..] else { panic!() };
    assert_eq!(periodic.state, RunState::Ended(RunOutcome::Stopped));
    let [own] = &history(&world, &jobs, "own")[..] else { panic!() };
    assert_eq!(own.state, RunState::Ended(RunOutcome::Stopped), "nobody is there to say that it goes on");
    assert_eq!(world.runtime.block_on(run.succeed()), Err(RequestError::Closed(Closed)));
}

#[test]
fn a_store_that_takes_no_reports_delays_a_shutdown_by_seconds_at_most() {
    for fault in [Fault::Fail, Fault::Hang] {
        let world = World::new();
        let tenure = world.tenure();
        let _run = world.runtime.block_on(tenure.jobs().begin("own").start()).unwrap();
        world.plan.reports(fault);
        let begun = world.now();
        world.runtime.block_on(tenure.shutdown()).unwrap();
        assert!(world.now().saturating_since(begun) <= 3 * SECOND);
        assert_eq!(world.runtime.tasks(), 0);
    }
}
