//! Coordinators: who works on what, and how work moves between instances.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use tenure_core::{Balanced, Rebalance, Rendezvous, Restart, Token};
use tenure_store::StoreErrorKind;

use super::*;
use crate::{
    Closed, Coordinator, CoordinatorSetup, CoordinatorStatus, Ctx, NotDrained, WorkerError, WorkerStatus,
};

const HOLD_DOWN: Duration = Duration::from_secs(5);

/// Who works on what; panics if a workload runs twice, or under a token that does not rise.
#[derive(Clone, Default)]
pub(super) struct Works(Arc<Mutex<Board>>);

#[derive(Default)]
struct Board {
    running: BTreeMap<String, &'static str>,
    tokens: BTreeMap<String, Token>,
    /// How often any work has begun.
    starts: usize,
}

/// Takes its work off the board.
pub(super) struct Running(Works, String);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().running.remove(&self.1);
    }
}

impl Works {
    pub(super) fn begin(&self, who: &'static str, ctx: &Ctx) -> Running {
        let mut board = self.0.lock().unwrap();
        let name = ctx.name().to_owned();
        assert_eq!(board.running.insert(name.clone(), who), None, "{name} runs twice");
        let before = board.tokens.insert(name.clone(), ctx.token());
        assert!(before.is_none_or(|before| before < ctx.token()), "{name} runs under an old token");
        board.starts += 1;
        Running(self.clone(), name)
    }

    pub(super) fn running(&self) -> BTreeMap<String, &'static str> {
        self.0.lock().unwrap().running.clone()
    }

    fn of(&self, who: &str) -> usize {
        self.running().values().filter(|by| **by == who).count()
    }

    fn starts(&self) -> usize {
        self.0.lock().unwrap().starts
    }
}

pub(super) fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("w{n:02}")).collect()
}

/// Work that ends when it is told that it drains.
pub(super) fn dutiful(tenure: &Tenure, who: &'static str, works: &Works, count: usize) -> CoordinatorSetup {
    let works = works.clone();
    let setup = tenure.coordinate(names(count), move |ctx: Ctx| {
        let running = works.begin(who, &ctx);
        async move {
            ctx.draining().await;
            drop(running);
        }
    });
    setup.assign(Balanced)
}

/// Work that never ends by itself.
fn stubborn(tenure: &Tenure, who: &'static str, works: &Works, count: usize) -> CoordinatorSetup {
    let works = works.clone();
    let setup = tenure.coordinate(names(count), move |ctx: Ctx| {
        let running = works.begin(who, &ctx);
        async move {
            let _running = running;
            std::future::pending::<()>().await;
        }
    });
    setup.assign(Balanced)
}

fn mine(coordinator: &Coordinator) -> Vec<String> {
    coordinator.mine().into_iter().map(|share| share.workload.as_str().to_owned()).collect()
}

#[test]
fn instances_that_start_together_share_the_work_evenly_and_nothing_moves_afterwards() {
    let world = World::new();
    let works = Works::default();
    let tenures = [world.tenure(), world.tenure(), world.tenure()];
    let whos = ["a", "b", "c"];
    let coordinators: Vec<_> =
        tenures.iter().zip(whos).map(|(t, who)| dutiful(t, who, &works, 12).start().unwrap()).collect();
    world.runtime.advance(HOLD_DOWN);
    assert_eq!(whos.map(|who| works.of(who)), [4, 4, 4], "{:?}", works.running());
    let starts = works.starts();
    world.runtime.advance(20 * TTL);
    assert_eq!(works.starts(), starts, "a healthy fleet moves nothing");
    for (tenure, coordinator) in tenures.iter().zip(&coordinators) {
        assert_eq!(mine(coordinator).len(), 4);
        assert_eq!(coordinator.status(), CoordinatorStatus::Sharing { assigned: 4, working: 4 });
        assert!(coordinator.mine().iter().all(|share| matches!(share.status, WorkerStatus::Working { .. })));
        let stats = tenure.stats();
        assert_eq!((stats.members, stats.coordinators, stats.workers, stats.held), (3, 1, 4, 4));
        assert_eq!(tenure.view().unwrap().len(), 3);
    }
    assert_eq!(coordinators[0].workloads().len(), 12);
}

#[test]
fn by_default_few_workloads_move_and_nobody_has_much_more_than_its_share() {
    let world = World::new();
    let works = Works::default();
    // Of these names the shares follow, always the same ones.
    let tenures =
        ["a", "b", "c"].map(|name| world.builder().instance(name).store(world.faulty()).start().unwrap());
    let rule = Rendezvous::new();
    let first = dutiful(&tenures[0], "a", &works, 12).assign(rule).start().unwrap();
    let second = dutiful(&tenures[1], "b", &works, 12).assign(rule).start().unwrap();
    world.runtime.advance(2 * HOLD_DOWN);
    assert!((4..=8).contains(&works.of("a")), "{:?}", works.running());
    let starts = works.starts();
    // The default is this rule: instances of different rules do not count for each other.
    let count = works.clone();
    let setup = tenures[2].coordinate(names(12), move |ctx: Ctx| {
        let running = count.begin("c", &ctx);
        async move {
            let _running = running;
            ctx.draining().await;
        }
    });
    let third = setup.start().unwrap();
    world.runtime.advance(2 * HOLD_DOWN);
    let shares = [&first, &second, &third].map(|coordinator| coordinator.mine().len());
    assert!(
        shares.iter().sum::<usize>() == 12 && shares.iter().all(|share| (2..=5).contains(share)),
        "{shares:?}"
    );
    assert_eq!(works.running().len(), 12);
    assert!(works.starts() - starts <= shares[2] + 2, "{} moved, for {shares:?}", works.starts() - starts);
}

#[test]
fn an_instance_that_joins_later_gets_its_share_after_the_hold_down_and_each_workload_moves_once_at_most() {
    let world = World::new();
    let works = Works::default();
    let (first, second) = (world.tenure(), world.tenure());
    let a = dutiful(&first, "a", &works, 12).start().unwrap();
    world.runtime.advance(10 * HOLD_DOWN);
    assert_eq!((works.of("a"), works.starts()), (12, 12));

    let b = dutiful(&second, "b", &works, 12).start().unwrap();
    world.runtime.advance(HOLD_DOWN - SECOND);
    assert_eq!((works.of("a"), works.of("b")), (12, 0), "not before it has stayed");
    world.runtime.advance(2 * SECOND);
    assert_eq!((works.of("a"), works.of("b")), (6, 6));
    assert_eq!(works.starts(), 12 + 6, "what stays where it is goes on");
    assert_eq!((mine(&a), mine(&b)), (names(12)[..6].to_vec(), names(12)[6..].to_vec()));
    assert_eq!((first.stats().assigned, first.stats().dropped, second.stats().assigned), (12, 6, 6));
}

#[test]
fn an_instance_that_keeps_coming_and_going_moves_nothing() {
    let world = World::new();
    let works = Works::default();
    let steady = world.tenure();
    let _a = dutiful(&steady, "a", &works, 6).start().unwrap();
    world.runtime.advance(10 * HOLD_DOWN);
    for _ in 0..10 {
        let flaky = world.tenure();
        let _b = dutiful(&flaky, "b", &works, 6).start().unwrap();
        world.runtime.advance(HOLD_DOWN - SECOND);
        world.runtime.block_on(flaky.shutdown()).unwrap();
    }
    assert_eq!((works.of("a"), works.starts()), (6, 6));
}

#[test]
fn what_an_instance_had_that_died_goes_on_elsewhere_once_its_leases_are_over() {
    let world = World::new();
    let works = Works::default();
    let survivor = world.tenure();
    let _a = dutiful(&survivor, "a", &works, 6).start().unwrap();
    // A process of its own, with a runtime that can die.
    let plan = Plan::default();
    let dead = world.tenure_with(&plan);
    let _b = dutiful(&dead, "b", &works, 6).start().unwrap();
    world.runtime.advance(HOLD_DOWN);
    assert_eq!((works.of("a"), works.of("b")), (3, 3));
    plan.all(Fault::Hang);
    world.runtime.advance(3 * TTL);
    assert_eq!((works.of("a"), works.of("b")), (6, 0));
    plan.heal();
    world.runtime.advance(HOLD_DOWN + TTL);
    assert_eq!((works.of("a"), works.of("b")), (3, 3), "once it is back it has its share again");
}

#[test]
fn a_rebalance_stops_work_a_stop_budget_later_or_waits_for_it_as_it_is_set() {
    for (how, patience) in [(Rebalance::Stop, 2 * SECOND), (Rebalance::Drain, 20 * SECOND)] {
        let world = World::new();
        let works = Works::default();
        let (first, second) = (world.tenure(), world.tenure());
        let setup = stubborn(&first, "a", &works, 2).on_rebalance(how).drain_timeout(20 * SECOND);
        let a = setup.start().unwrap();
        world.runtime.advance(10 * HOLD_DOWN);
        let _b = dutiful(&second, "b", &works, 2).start().unwrap();
        world.runtime.advance(HOLD_DOWN - SECOND);
        world.runtime.block_on(a.changed());
        let begun = world.now();
        assert_eq!((a.mine().len(), a.leaving().len()), (1, 1));
        assert_eq!(works.of("a"), 2, "{how:?}");
        world.runtime.block_on(async {
            while !a.leaving().is_empty() {
                let runtime = &world.runtime;
                runtime.sleep_until(Runtime::now(runtime) + Duration::from_millis(10)).await;
            }
        });
        let took = world.now().saturating_since(begun);
        assert!(took >= patience - SECOND / 10 && took <= patience + SECOND / 10, "{how:?} took {took:?}");
        world.settle();
        assert_eq!((works.of("a"), works.of("b")), (1, 1));
    }
}

#[test]
fn workloads_are_added_and_removed_while_others_go_on() {
    let world = World::new();
    let works = Works::default();
    let (first, second) = (world.tenure(), world.tenure());
    let coordinators =
        [dutiful(&first, "a", &works, 4).start().unwrap(), dutiful(&second, "b", &works, 4).start().unwrap()];
    world.runtime.advance(HOLD_DOWN);
    assert_eq!((works.of("a"), works.of("b")), (2, 2));
    let starts = works.starts();
    // One after the other, as in a deploy.
    for coordinator in &coordinators {
        assert_eq!(world.runtime.block_on(coordinator.add("w99")), Ok(true));
        assert_eq!(world.runtime.block_on(coordinator.add("w99")), Ok(false));
        world.runtime.advance(SECOND);
    }
    world.runtime.advance(HOLD_DOWN);
    assert_eq!(works.running().len(), 5, "{:?}", works.running());
    assert!(works.starts() <= starts + 2, "the new one, and at most one that moves for it");
    assert_eq!(coordinators[0].workloads().len(), 5);
    for coordinator in &coordinators {
        assert_eq!(world.runtime.block_on(coordinator.remove("w99")), Ok(true));
        assert_eq!(world.runtime.block_on(coordinator.remove("w99")), Ok(false));
        assert!(world.runtime.block_on(coordinator.remove("")).is_err());
    }
    world.runtime.advance(HOLD_DOWN);
    assert_eq!(works.running().keys().cloned().collect::<Vec<_>>(), names(4));
}

#[test]
fn work_that_panics_is_started_again_and_harms_no_other_workload() {
    let world = World::new();
    let tenure = world.tenure();
    let runs = Arc::new(AtomicUsize::new(0));
    let (works, count) = (Works::default(), Arc::clone(&runs));
    let noted = works.clone();
    let setup = tenure.coordinate(["bad", "good"], move |ctx: Ctx| {
        let run = if ctx.name() == "bad" { count.fetch_add(1, Ordering::Relaxed) } else { 2 };
        assert_ne!(run, 0, "in the closure");
        let running = noted.begin("a", &ctx);
        async move {
            let _running = running;
            assert_ne!(run, 1, "in the future");
            ctx.draining().await;
        }
    });
    let coordinator = setup.restart_delays(SECOND, SECOND).start().unwrap();
    world.settle();
    assert_eq!(works.running().keys().collect::<Vec<_>>(), ["good"]);
    let [bad, good] = &coordinator.mine()[..] else { panic!("{coordinator:?}") };
    assert!(matches!(bad.status, WorkerStatus::Resting { failures: 1, .. }), "{bad:?}");
    assert!(bad.last_error.as_deref().unwrap().contains("in the closure"), "{bad:?}");
    assert_eq!(good.last_error, None);
    world.runtime.advance(5 * SECOND);
    assert_eq!((works.running().len(), tenure.stats().failed_runs), (2, 2));
}

#[test]
fn work_that_is_done_for_good_is_not_started_again_and_is_none_of_ours_any_more() {
    let world = World::new();
    let tenure = world.tenure();
    let setup = tenure.coordinate(["once"], |_: Ctx| async {}).restart(Restart::OnFailure);
    let coordinator = setup.start().unwrap();
    world.runtime.advance(10 * TTL);
    assert_eq!((tenure.stats().runs, coordinator.mine()), (1, Vec::new()));
    assert!(world.records().is_empty());
    assert_eq!(coordinator.status(), CoordinatorStatus::Sharing { assigned: 0, working: 0 });
    assert_eq!(world.runtime.block_on(coordinator.drain()), Ok(()));
}

#[test]
fn a_drained_coordinator_hands_over_at_once_and_its_instance_stays_a_member() {
    let world = World::new();
    let works = Works::default();
    let (first, second) = (world.tenure(), world.tenure());
    let a = dutiful(&first, "a", &works, 6).start().unwrap();
    let _b = dutiful(&second, "b", &works, 6).start().unwrap();
    world.runtime.advance(HOLD_DOWN);
    let begun = world.now();
    assert_eq!(world.runtime.block_on(a.drain()), Ok(()));
    assert_eq!(world.now(), begun);
    world.runtime.advance(SECOND / 4);
    assert_eq!(works.of("b"), 6, "hints tell of it");
    assert_eq!(a.status(), CoordinatorStatus::Ended);
    assert!(a.mine().is_empty() && a.leaving().is_empty());
    world.runtime.block_on(a.ended());
    assert_eq!(second.view().unwrap().len(), 2);
    assert_eq!((first.stats().coordinators, first.stats().workers), (0, 0));
    assert_eq!(world.runtime.block_on(a.drain()), Ok(()), "again");
}

#[test]
fn a_stopped_coordinator_drops_its_work_at_once() {
    let world = World::new();
    let works = Works::default();
    let tenure = world.tenure();
    let coordinator = stubborn(&tenure, "a", &works, 3).start().unwrap();
    world.settle();
    assert_eq!(works.of("a"), 3);
    let begun = world.now();
    let mut draining = Box::pin(coordinator.drain());
    assert!(poll_once(draining.as_mut()).is_pending());
    world.settle();
    assert_eq!(works.of("a"), 3, "it has its time");
    assert_eq!(world.runtime.block_on(coordinator.stop()), Ok(()));
    assert_eq!(world.runtime.block_on(draining), Ok(()));
    assert_eq!((works.of("a"), world.now()), (0, begun));
    assert!(world.records().is_empty());
}

#[test]
fn a_store_without_members_is_told_of_in_the_status_and_nothing_runs() {
    let world = World::new();
    let tenure = world.builder().store(Lonely(world.store.handle())).start().unwrap();
    let coordinator = tenure.coordinate(["a"], |_: Ctx| async { panic!("nothing runs") }).start().unwrap();
    world.settle();
    let CoordinatorStatus::Joining { error: Some(error) } = coordinator.status() else {
        panic!("{coordinator:?}")
    };
    assert_eq!(error.kind, StoreErrorKind::Unsupported);
    assert!(error.to_string().contains("keeps no members"), "{error}");
    let error = world.runtime.block_on(tenure.join()).unwrap_err();
    assert!(error.to_string().contains("keeps no members"), "{error}");
    world.runtime.advance(10 * TTL);
    assert!(tenure.stats().failed_heartbeats > 10);
    assert_eq!(world.runtime.block_on(coordinator.drain()), Ok(()));
    assert_eq!(world.runtime.block_on(tenure.shutdown()), Ok(()));
}

#[test]
fn a_coordinator_may_begin_with_no_workloads() {
    let world = World::new();
    let tenure = world.tenure();
    let none: [&str; 0] = [];
    let coordinator =
        tenure.coordinate(none, |ctx: Ctx| async move { _ = ctx.draining().await }).start().unwrap();
    world.settle();
    assert_eq!(coordinator.status(), CoordinatorStatus::Sharing { assigned: 0, working: 0 });
    assert_eq!(world.runtime.block_on(coordinator.add("a")), Ok(true));
    world.settle();
    assert_eq!(coordinator.status(), CoordinatorStatus::Sharing { assigned: 1, working: 1 });
}

#[test]
fn a_workload_of_two_coordinators_waits_in_the_second_until_the_first_gives_it_back() {
    let world = World::new();
    let tenure = world.tenure();
    let start = || tenure.coordinate(["a"], |ctx: Ctx| async move { _ = ctx.draining().await }).start();
    let first = start().unwrap();
    world.settle();
    let second = start().unwrap();
    world.runtime.advance(10 * SECOND);
    assert_eq!(first.status(), CoordinatorStatus::Sharing { assigned: 1, working: 1 });
    assert_eq!(second.status(), CoordinatorStatus::Sharing { assigned: 1, working: 0 });
    world.runtime.block_on(first.drain()).unwrap();
    world.runtime.advance(10 * SECOND);
    assert_eq!(second.status(), CoordinatorStatus::Sharing { assigned: 1, working: 1 });
}

#[test]
fn settings_and_names_that_do_not_fit_are_refused_and_so_is_a_driver_that_is_gone() {
    let world = World::new();
    let tenure = world.tenure();
    let works = Works::default();
    let error = tenure.coordinate([""], |_: Ctx| async {}).start().unwrap_err();
    assert!(matches!(error, WorkerError::Name(_)), "{error}");
    let error = dutiful(&tenure, "a", &works, 1).ttl(Duration::ZERO).start().unwrap_err();
    assert!(matches!(error, WorkerError::Config(_)), "{error}");
    let error = dutiful(&tenure, "a", &works, 1).restart_delays(TTL, SECOND).start().unwrap_err();
    assert!(matches!(error, WorkerError::Config(_)), "{error}");

    let coordinator = dutiful(&tenure, "a", &works, 1).start().unwrap();
    world.settle();
    world.runtime.shut_down();
    assert_eq!(coordinator.status(), CoordinatorStatus::Ended);
    assert_eq!(world.runtime.block_on(coordinator.drain()), Err(NotDrained::Closed(Closed)));
    assert!(matches!(dutiful(&tenure, "a", &works, 1).start(), Err(WorkerError::Closed(_))));
    assert!(world.runtime.block_on(coordinator.add("b")).is_err());
}

#[test]
fn a_coordinator_outlives_its_handle_and_ends_with_the_last_one() {
    let world = World::new();
    let works = Works::default();
    let tenure = world.tenure();
    drop(dutiful(&tenure, "a", &works, 2).start().unwrap());
    world.runtime.advance(TTL);
    assert_eq!(works.of("a"), 2);
    drop(tenure);
    world.settle();
    assert!(works.running().is_empty() && world.records().is_empty());
    assert_eq!(world.runtime.tasks(), 0);
}

#[test]
fn work_whose_runtime_has_ended_goes_to_another_instance() {
    let world = World::new();
    let works = Works::default();
    let (first, second) = (world.tenure(), world.tenure());
    let guest = TestRuntime::new();
    world.runtime.lend(&guest);
    let a = dutiful(&first, "a", &works, 4).start().unwrap();
    world.runtime.lend(&world.runtime.clone());
    let _b = dutiful(&second, "b", &works, 4).start().unwrap();
    for _ in 0..5 {
        world.runtime.advance(SECOND);
        guest.run_until_stalled();
    }
    assert_eq!((works.of("a"), works.of("b")), (2, 2));
    guest.shut_down();
    world.runtime.advance(SECOND / 4);
    assert_eq!((works.of("a"), works.of("b")), (0, 4));
    world.runtime.block_on(a.ended());
    assert_eq!(a.status(), CoordinatorStatus::Ended);
}

/// A closure that takes its time holds up the others of its coordinator, and no work starts after its lease is over.
#[test]
fn work_that_had_to_wait_for_its_turn_to_begin_does_not_begin_after_the_fence() {
    let world = World::new();
    let tenure = world.tenure();
    let (runtime, calls) = (world.runtime.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&calls);
    let setup = tenure.coordinate(["a", "b"], move |ctx: Ctx| {
        noted.lock().unwrap().push(ctx.name().to_owned());
        // The first call takes longer than the lease lasts.
        if noted.lock().unwrap().len() == 1 {
            runtime.block(TTL);
        }
        async move {
            ctx.draining().await;
        }
    });
    let _coordinator = setup.start().unwrap();
    world.settle();
    assert_eq!(calls.lock().unwrap().len(), 1, "{calls:?}");
    world.runtime.advance(3 * TTL);
    assert!(calls.lock().unwrap().contains(&"b".to_owned()));
}

/// A store as a user may write one: it knows nothing of members.
struct Lonely(MemoryStore);

impl SimpleStore for Lonely {
    async fn acquire(
        &self,
        request: tenure_store::Acquire,
    ) -> Result<tenure_store::Acquired, tenure_store::StoreError> {
        SimpleStore::acquire(&self.0, request).await
    }

    async fn renew(
        &self,
        request: tenure_store::Renew,
    ) -> Result<tenure_store::Renewed, tenure_store::StoreError> {
        SimpleStore::renew(&self.0, request).await
    }

    async fn release(
        &self,
        request: tenure_store::Release,
    ) -> Result<tenure_store::Released, tenure_store::StoreError> {
        SimpleStore::release(&self.0, request).await
    }

    async fn inspect(
        &self,
        name: tenure_core::LeaseName,
    ) -> Result<Option<LeaseRecord>, tenure_store::StoreError> {
        SimpleStore::inspect(&self.0, name).await
    }

    async fn list(
        &self,
        after: Option<tenure_core::LeaseName>,
        most: usize,
    ) -> Result<Vec<LeaseRecord>, tenure_store::StoreError> {
        SimpleStore::list(&self.0, after, most).await
    }

    async fn evict(
        &self,
        name: tenure_core::LeaseName,
        how: tenure_store::Eviction,
    ) -> Result<Option<LeaseRecord>, tenure_store::StoreError> {
        SimpleStore::evict(&self.0, name, how).await
    }
}
