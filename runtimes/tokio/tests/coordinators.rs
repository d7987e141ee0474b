//! Coordinators on tokio, in real time and on several threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tenure_driver::store_contract::SimpleStore;
use tenure_driver::{Builder, Coordinator, Ctx, NotDrained, Tenure, WorkerStatus};
use tenure_memory::MemoryStore;
use tenure_tokio::Tokio;
use tokio::runtime::Runtime;

/// No wait in these tests ends by it unless something is wrong.
const GENEROUS: Duration = Duration::from_secs(60);
const WORKLOADS: usize = 12;

fn threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

fn start(store: &MemoryStore) -> Tenure {
    Builder::new(Tokio::current()).store(store.handle()).start().unwrap()
}

fn working(coordinator: &Coordinator) -> usize {
    let mine = coordinator.mine().into_iter();
    mine.filter(|share| matches!(share.status, WorkerStatus::Working { .. })).count()
}

/// Waits until all workloads run on these.
async fn until_all_run(coordinators: &[&Coordinator]) {
    let all = async {
        while coordinators.iter().map(|coordinator| working(coordinator)).sum::<usize>() < WORKLOADS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(GENEROUS, all).await.expect("it takes for ever");
}

/// A workload: whether it runs, and the highest token so far.
#[derive(Default)]
struct Slot {
    runs: AtomicBool,
    token: AtomicU64,
}

#[test]
fn no_workload_runs_twice_while_instances_drain_and_come_back_in_turn() {
    let runtime = threads();
    let store = MemoryStore::new();
    let slots: Arc<Vec<Slot>> = Arc::new((0..WORKLOADS).map(|_| Slot::default()).collect());
    let problems = Arc::new(Mutex::new(Vec::new()));
    runtime.block_on(async {
        let tenures = [start(&store), start(&store), start(&store)];
        let coordinators = tenures.each_ref().map(|tenure| {
            let (slots, problems) = (Arc::clone(&slots), Arc::clone(&problems));
            let work = move |ctx: Ctx| {
                let (slots, problems) = (Arc::clone(&slots), Arc::clone(&problems));
                async move {
                    let slot = &slots[ctx.name()[1..].parse::<usize>().unwrap()];
                    if slot.runs.swap(true, Ordering::SeqCst) {
                        problems.lock().unwrap().push(format!("{} runs twice", ctx.name()));
                    }
                    if slot.token.swap(ctx.token().get(), Ordering::SeqCst) >= ctx.token().get() {
                        problems.lock().unwrap().push(format!("{}: an old token", ctx.name()));
                    }
                    ctx.draining().await;
                    tokio::task::yield_now().await;
                    slot.runs.store(false, Ordering::SeqCst);
                }
            };
            let names = (0..WORKLOADS).map(|n| format!("w{n}"));
            tenure.coordinate(names, work).hold_down(Duration::from_millis(100)).start().unwrap()
        });
        until_all_run(&coordinators.each_ref()).await;
        for round in 0..9 {
            let away = round % 3;
            tenures[away].drain().await.unwrap();
            assert!(tenures[away].is_draining() && coordinators[away].mine().is_empty());
            let [one, other] = [1, 2].map(|n| &coordinators[(away + n) % 3]);
            until_all_run(&[one, other]).await;
            tenures[away].resume();
            until_all_run(&coordinators.each_ref()).await;
        }
        for tenure in &tenures {
            tenure.drain().await.unwrap();
            tenure.shutdown().await.unwrap();
        }
        let left = SimpleStore::members(&store, None, 10).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    });
    assert_eq!(*problems.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn a_drain_names_each_workload_that_blocks_its_thread_and_the_others_are_handed_over() {
    let runtime = threads();
    let store = MemoryStore::new();
    let (unblock, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(Some(blocked));
    runtime.block_on(async {
        let tenure = start(&store);
        let work = move |ctx: Ctx| {
            let blocked = if ctx.name() == "stuck" { blocked.lock().unwrap().take() } else { None };
            async move {
                if let Some(blocked) = blocked {
                    // The other end is dropped to end it.
                    let _ended = blocked.recv();
                }
                ctx.draining().await;
            }
        };
        let setup = tenure.coordinate(["fine", "stuck"], work).drain_timeout(Duration::from_millis(50));
        let coordinator = setup.start().unwrap();
        let both = async {
            while working(&coordinator) < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(GENEROUS, both).await.expect("it takes for ever");
        for result in [tenure.drain().await, coordinator.drain().await, tenure.stop().await] {
            let Err(NotDrained::Stuck(stuck)) = &result else { panic!("{result:?}") };
            let names: Vec<_> = stuck.leases.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["stuck"]);
        }
        let held = tenure.leases().await.unwrap();
        assert_eq!(held.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(), ["stuck"]);
        drop(unblock);
        tokio::time::timeout(GENEROUS, tenure.drained()).await.expect("it takes for ever");
        assert_eq!(tenure.drain().await, Ok(()));
        coordinator.ended().await;
        tenure.shutdown().await.unwrap();
    });
}
