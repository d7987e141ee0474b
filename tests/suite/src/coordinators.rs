//! Coordinators: a fleet that shares its work, and hands it over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_driver::{NotDrained, WorkerStatus};
use tenure_memory::MemoryStore;

use crate::api::{Api, Coordinator, Ctx, GENEROUS, Setup, Tenure};
use crate::workers::CtxOf;

const WORKLOADS: usize = 12;

/// A workload: whether it runs, and the highest token so far.
#[derive(Default)]
struct Slot {
    runs: AtomicBool,
    token: AtomicU64,
}

/// No workload runs twice, nor under an old token, while instances drain and come back in turn; and all run again each
/// time.
pub fn no_workload_runs_twice_while_instances_drain_and_come_back_in_turn<A: Api>() {
    let slots: Arc<Vec<Slot>> = Arc::new((0..WORKLOADS).map(|_| Slot::default()).collect());
    let problems = Arc::new(Mutex::new(Vec::new()));
    A::run(async |api: A| {
        let store = MemoryStore::new();
        let tenures = [0; 3].map(|_| api.tenure(store.handle()));
        let coordinators = tenures.each_ref().map(|tenure| {
            let (slots, problems, api) = (Arc::clone(&slots), Arc::clone(&problems), api.clone());
            let work = move |ctx: CtxOf<A>| {
                let (slots, problems, api) = (Arc::clone(&slots), Arc::clone(&problems), api.clone());
                async move {
                    let slot = &slots[ctx.name()[1..].parse::<usize>().unwrap()];
                    if slot.runs.swap(true, Ordering::SeqCst) {
                        problems.lock().unwrap().push(format!("{} runs twice", ctx.name()));
                    }
                    if slot.token.swap(ctx.token().get(), Ordering::SeqCst) >= ctx.token().get() {
                        problems.lock().unwrap().push(format!("{}: an old token", ctx.name()));
                    }
                    ctx.draining().await;
                    api.yield_now().await;
                    slot.runs.store(false, Ordering::SeqCst);
                }
            };
            let names: Vec<_> = (0..WORKLOADS).map(|n| format!("w{n}")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let setup = Setup { hold_down: Some(Duration::from_millis(100)), ..Setup::default() };
            tenure.coordinate(&names, work, setup)
        });
        let all_run = async |of: &[&CoordinatorOf<A>]| {
            let running = || of.iter().map(|coordinator| working(*coordinator)).sum::<usize>();
            api.until("all run", || running() == WORKLOADS).await;
        };
        all_run(&coordinators.each_ref()).await;
        for round in 0..9 {
            let away = round % 3;
            tenures[away].drain().await.unwrap();
            assert!(tenures[away].is_draining() && coordinators[away].mine().is_empty());
            all_run(&[1, 2].map(|n| &coordinators[(away + n) % 3])).await;
            tenures[away].resume();
            all_run(&coordinators.each_ref()).await;
        }
        for tenure in &tenures {
            tenure.drain().await.unwrap();
            tenure.shutdown().await.unwrap();
        }
        let another = api.tenure(store.handle());
        assert_eq!(another.members().await.unwrap(), [], "all have left");
        another.shutdown().await.unwrap();
    });
    assert_eq!(*problems.lock().unwrap(), Vec::<String>::new());
}

/// A drain names each workload that blocks one of several threads, and hands over the others.
pub fn a_drain_names_each_workload_that_blocks_its_thread_and_hands_over_the_others<A: Api>() {
    A::run(async |api: A| {
        let tenure = api.tenure(MemoryStore::new());
        let (unblock, blocked) = mpsc::channel::<()>();
        let blocked = Mutex::new(Some(blocked));
        let work = move |ctx: CtxOf<A>| {
            let blocked = if ctx.name() == "stuck" { blocked.lock().unwrap().take() } else { None };
            async move {
                if let Some(blocked) = blocked {
                    // The other end is dropped to end it.
                    let _ended = blocked.recv_timeout(GENEROUS);
                }
                ctx.draining().await;
            }
        };
        let setup = Setup { drain_timeout: Some(Duration::from_millis(50)), ..Setup::default() };
        let coordinator = tenure.coordinate(&["fine", "stuck"], work, setup);
        api.until("both run", || working(&coordinator) == 2).await;
        for result in [tenure.drain().await, coordinator.drain().await, tenure.stop().await] {
            let Err(NotDrained::Stuck(stuck)) = &result else { panic!("{result:?}") };
            let names: Vec<_> = stuck.leases.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["stuck"]);
        }
        let held = tenure.leases().await.unwrap();
        assert_eq!(held.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(), ["stuck"]);
        drop(unblock);
        tenure.drained().await;
        assert_eq!(tenure.drain().await, Ok(()));
        coordinator.ended().await;
        tenure.shutdown().await.unwrap();
    });
}

type CoordinatorOf<A> = <<A as Api>::Tenure as Tenure>::Coordinator;

fn working(coordinator: &impl Coordinator) -> usize {
    let mine = coordinator.mine().into_iter();
    mine.filter(|share| matches!(share.status, WorkerStatus::Working { .. })).count()
}
