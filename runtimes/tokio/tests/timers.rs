//! Timers, periodic jobs and records on tokio, in real time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use tenure_driver::core::{LeaseConfig, Overlap};
use tenure_driver::store_contract::{RunOutcome, RunState};
use tenure_driver::{Builder, Ctx, PeriodicStatus, Runtime as _, Tenure, clock};
use tenure_memory::MemoryStore;
use tenure_tokio::Tokio;

/// Long enough for a machine that is busy with other things.
const TTL: Duration = Duration::from_secs(4);
const PERIOD: Duration = Duration::from_millis(50);
/// No wait in these tests ends by it unless something is wrong.
const GENEROUS: Duration = Duration::from_secs(60);

fn start(runtime: Tokio, store: &MemoryStore) -> Tenure {
    Builder::new(runtime).lease(LeaseConfig::new(TTL)).store(store.handle()).start().unwrap()
}

/// Runs a test on one thread, on several, and with the driver on a thread of its own.
fn everywhere<F: Future<Output = ()>>(test: impl Fn(fn() -> Tokio) -> F) {
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    for runtime in [&one, &many] {
        for tokio in [Tokio::current, || Tokio::current().on_own_thread().unwrap()] {
            let test = async { tokio::time::timeout(GENEROUS, test(tokio)).await };
            runtime.block_on(test).expect("it takes for ever");
        }
    }
}

#[test]
fn a_timer_is_a_stream_of_ticks() {
    everywhere(|tokio| async move {
        let tenure = start(tokio(), &MemoryStore::new());
        let timer = tenure.timer("t", PERIOD).start().unwrap();
        let begun = clock::now();
        let ticks: Vec<_> = timer.take(5).map(|tick| tick.unwrap()).collect().await;
        assert!(ticks.is_sorted_by(|one, next| one.tick.n < next.tick.n), "{ticks:?}");
        let seen: u64 = ticks.iter().map(|due| due.missed + 1).sum();
        assert_eq!(ticks.last().unwrap().tick.n, seen, "what was not seen is told as missed");
        assert!(clock::now().saturating_since(begun) >= 4 * PERIOD, "never early");
        tenure.shutdown().await.unwrap();
    });
}

#[test]
fn each_tick_is_run_once_by_several_instances_and_recorded() {
    everywhere(|tokio| async move {
        let store = MemoryStore::new();
        let tenures = [start(tokio(), &store), start(tokio(), &store), start(tokio(), &store)];
        let runs = Arc::new(Mutex::new(BTreeMap::<u64, usize>::new()));
        let (done, mut enough) = tokio::sync::watch::channel(0);
        let jobs: Vec<_> = tenures
            .iter()
            .map(|tenure| {
                let (runs, done) = (Arc::clone(&runs), done.clone());
                let work = move |ctx: Ctx| {
                    let (runs, done) = (Arc::clone(&runs), done.clone());
                    async move {
                        let n = ctx.tick().unwrap().tick.n;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        let mut runs = runs.lock().unwrap();
                        *runs.entry(n).or_default() += 1;
                        done.send_replace(runs.len());
                    }
                };
                tenure.periodic("p", PERIOD, work).overlap(Overlap::Allow).start().unwrap()
            })
            .collect();
        enough.wait_for(|runs| *runs >= 10).await.unwrap();
        for job in &jobs {
            job.drain().await.unwrap();
            assert_eq!(job.status(), PeriodicStatus::Ended);
        }
        let runs = runs.lock().unwrap().clone();
        assert!(runs.values().all(|count| *count == 1), "{runs:?}");
        for tenure in &tenures[1..] {
            tenure.shutdown().await.unwrap();
        }
        // The ends of the last runs may be on their way.
        let history = loop {
            let history = tenures[0].jobs().history("p").await.unwrap();
            if history.iter().all(|run| run.state == RunState::Ended(RunOutcome::Succeeded)) {
                break history;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let mut recorded: Vec<_> = history.iter().map(|run| run.index.unwrap()).collect();
        recorded.sort_unstable();
        assert_eq!(recorded, runs.into_keys().collect::<Vec<_>>());
        tenures[0].shutdown().await.unwrap();
    });
}

#[test]
fn a_run_that_blocks_its_thread_for_a_while_holds_up_no_other_job() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let tenure = start(Tokio::current().on_own_thread().unwrap(), &MemoryStore::new());
        let (unblock, blocked) = std::sync::mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let blocking = tenure
            .periodic("blocking", PERIOD, move |_| {
                let blocked = Arc::clone(&blocked);
                async move {
                    // The other end is dropped to end it.
                    let _ended = blocked.lock().unwrap().recv();
                }
            })
            .start()
            .unwrap();
        let (done, mut enough) = tokio::sync::watch::channel(0);
        let work = move |_| {
            done.send_modify(|runs| *runs += 1);
            async {}
        };
        let other = tenure.periodic("other", PERIOD, work).start().unwrap();
        let many = enough.wait_for(|runs| *runs >= 10);
        tokio::time::timeout(GENEROUS, many).await.expect("it goes on").unwrap();
        assert!(matches!(blocking.status(), PeriodicStatus::Working { runs: 1, .. }), "{blocking:?}");
        drop(unblock);
        other.drain().await.unwrap();
        blocking.drain().await.unwrap();
        tenure.shutdown().await.unwrap();
    });
}

#[test]
fn a_run_that_the_user_begins_is_recorded() {
    everywhere(|tokio| async move {
        let tenure = start(tokio(), &MemoryStore::new());
        let run = tenure.jobs().begin("import").index(3).start().await.unwrap();
        assert_eq!(tenure.jobs().history("import").await.unwrap()[0].state, RunState::Running);
        run.fail("no luck").await.unwrap();
        let history = tenure.jobs().history("import").await.unwrap();
        assert_eq!(history[0].state, RunState::Ended(RunOutcome::Failed));
        assert_eq!((history[0].index, history[0].text.as_deref()), (Some(3), Some("no luck")));
        tenure.shutdown().await.unwrap();
    });
}
