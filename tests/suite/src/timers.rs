//! Timers, periodic jobs, and the records of runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_driver::core::Overlap;
use tenure_driver::store_contract::{RunOutcome, RunState};
use tenure_driver::{PeriodicStatus, clock};
use tenure_memory::MemoryStore;

use crate::api::{Api, Ctx, GENEROUS, JobRun, Periodic, Setup, Tenure, Timer};
use crate::workers::CtxOf;

const PERIOD: Duration = Duration::from_millis(50);

/// A timer gives its ticks in order, never early; those that nobody saw are counted as missed.
pub fn a_timer_gives_its_ticks_in_order<A: Api>() {
    A::run(async |api: A| {
        let tenure = api.tenure(MemoryStore::new());
        let begun = clock::now();
        let mut timer = tenure.timer("t", PERIOD);
        let mut ticks = Vec::new();
        for _ in 0..5 {
            ticks.push(timer.next().await.unwrap().unwrap());
        }
        assert!(ticks.is_sorted_by(|one, next| one.tick.n < next.tick.n), "{ticks:?}");
        let seen: u64 = ticks.iter().map(|due| due.missed + 1).sum();
        assert_eq!(ticks.last().unwrap().tick.n, seen, "what was not seen is told as missed");
        assert!(clock::now().saturating_since(begun) >= 5 * PERIOD, "never early");
        drop(timer);
        tenure.shutdown().await.unwrap();
    });
}

/// Each tick is run once by one of several instances, and recorded.
pub fn each_tick_is_run_once_by_several_instances_and_recorded<A: Api>() {
    A::run(async |api: A| {
        let store = MemoryStore::new();
        let tenures = [0; 3].map(|_| api.tenure(store.handle()));
        let runs = Arc::new(Mutex::new(BTreeMap::<u64, usize>::new()));
        let jobs = tenures.each_ref().map(|tenure| {
            let (runs, api) = (Arc::clone(&runs), api.clone());
            let work = move |ctx: CtxOf<A>| {
                let (runs, api) = (Arc::clone(&runs), api.clone());
                async move {
                    let n = ctx.tick().unwrap().tick.n;
                    api.sleep(Duration::from_millis(5)).await;
                    *runs.lock().unwrap().entry(n).or_default() += 1;
                }
            };
            let setup = Setup { overlap: Some(Overlap::Allow), ..Setup::default() };
            tenure.periodic("p", PERIOD, work, setup)
        });
        api.until("ten runs", || runs.lock().unwrap().len() >= 10).await;
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
        let end = clock::now() + GENEROUS;
        let history = loop {
            let history = tenures[0].history("p").await.unwrap();
            if history.iter().all(|run| run.state == RunState::Ended(RunOutcome::Succeeded)) {
                break history;
            }
            assert!(clock::now() < end, "{history:?}");
            api.sleep(Duration::from_millis(5)).await;
        };
        let mut recorded: Vec<_> = history.iter().map(|run| run.index.unwrap()).collect();
        recorded.sort_unstable();
        assert_eq!(recorded, runs.into_keys().collect::<Vec<_>>());
        tenures[0].shutdown().await.unwrap();
    });
}

/// A run that the program begins itself is recorded as going on, and as what became of it.
pub fn a_run_that_the_user_begins_is_recorded<A: Api>() {
    A::run(async |api: A| {
        let tenure = api.tenure(MemoryStore::new());
        let run = tenure.begin("import", 3).await.unwrap();
        assert_eq!(tenure.history("import").await.unwrap()[0].state, RunState::Running);
        run.fail("no luck").await.unwrap();
        let history = tenure.history("import").await.unwrap();
        assert_eq!(history[0].state, RunState::Ended(RunOutcome::Failed));
        assert_eq!((history[0].index, history[0].text.as_deref()), (Some(3), Some("no luck")));
        tenure.shutdown().await.unwrap();
    });
}

/// A run that blocks one of several threads is not begun again, and other jobs go on.
pub fn a_run_that_blocks_its_thread_holds_up_no_other_job<A: Api>() {
    A::run(async |api: A| {
        let tenure = api.tenure(MemoryStore::new());
        let (unblock, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let work = move |_| {
            let blocked = Arc::clone(&blocked);
            async move {
                // The other end is dropped to end it.
                let _ended = blocked.lock().unwrap().recv_timeout(GENEROUS);
            }
        };
        let blocking = tenure.periodic("blocking", PERIOD, work, Setup::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let work = move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async {}
        };
        let other = tenure.periodic("other", PERIOD, work, Setup::default());
        api.until("it goes on", || runs.load(Ordering::SeqCst) >= 10).await;
        let status = blocking.status();
        assert!(matches!(status, PeriodicStatus::Working { runs: 1, .. }), "{status:?}");
        drop(unblock);
        other.drain().await.unwrap();
        blocking.drain().await.unwrap();
        tenure.shutdown().await.unwrap();
    });
}
