//! Stores that do what they must not.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use tenure_core::{Identity, JobName, LeaseName, TimerName, Wake};
use tenure_store::{
    DrainMark, Eviction, Hint, Hints, JobRecord, LeaseRecord, Limits, MemberEntry, Operation, Replies,
    RunRecord, RunReport, Store, StoreError, StoreErrorKind, TimerEntry,
};

use super::*;
use crate::{AcquireError, RequestError};

#[test]
fn a_store_that_panics_kills_neither_the_driver_nor_a_lease() {
    let world = World::new();
    let tenure = world.tenure();
    let lease = world.acquire(&tenure, "a");
    let mut n = 0;
    world.plan.set(move |_| {
        n += 1;
        if n % 2 == 0 { Fault::Panic } else { Fault::None }
    });
    for _ in 0..50 {
        world.runtime.advance(TTL / 3);
        assert!(lease.is_valid());
    }
}

#[test]
fn requests_that_hang_are_given_up_and_do_not_pile_up() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.all(Fault::Hang);
    let waiting: Vec<_> =
        (0..1000).map(|n| spawn(&world.runtime, tenure.acquire(n.to_string()).into_future())).collect();
    for _ in 0..120 {
        world.runtime.advance(SECOND);
        let stats = tenure.stats();
        // A candidate has one request that is wanted, and perhaps an older one.
        assert!(stats.in_flight <= 2_100, "{stats:?}");
    }
    assert!(tenure.stats().abandoned_requests > 10);
    world.plan.heal();
    world.runtime.advance(30 * SECOND);
    assert!(waiting.iter().all(|waiter| waiter.lock().unwrap().as_ref().is_some_and(Result::is_ok)));
    let stats = tenure.stats();
    assert_eq!((stats.in_flight, stats.held), (0, 1000));
}

#[test]
fn a_look_at_a_store_that_does_not_answer_ends_in_an_error() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.hang_looks();
    let began = world.now();
    let error = world.runtime.block_on(tenure.inspect("a")).unwrap_err();
    let RequestError::Store(error) = error else { panic!("{error}") };
    assert_eq!(error.kind, StoreErrorKind::Unknown);
    assert!(world.now().saturating_since(began) <= 10 * SECOND);
    assert!(world.acquire(&tenure, "a").is_valid());
}

#[test]
fn answers_that_belong_to_other_operations_count_as_no_answer() {
    let world = World::new();
    let tenure = world.tenure();
    world.plan.all(Fault::Nonsense);
    let error = world.runtime.block_on(tenure.acquire("a").wait_at_most(TTL).into_future()).unwrap_err();
    assert!(matches!(error, AcquireError::Unreachable { .. }), "{error}");
    world.plan.heal();
    assert!(world.acquire(&tenure, "a").is_valid());
}

/// A store whose batches are cut short, and whose hints are what a test wants.
struct Odd<S> {
    inner: S,
    hints: std::sync::Mutex<Option<Hints>>,
    half: Arc<AtomicBool>,
}

impl<S: Store> Store for Odd<S> {
    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        limits.batch = 7;
        limits
    }

    async fn execute(&self, mut batch: Vec<Operation>, mut replies: Replies) {
        assert!(batch.len() <= 7);
        if self.half.load(Ordering::Relaxed) {
            // The first half is executed and answered, of the rest nothing is said.
            batch.truncate(batch.len().div_ceil(2));
        }
        for (index, operation) in batch.into_iter().enumerate() {
            let (sender, answer) = futures::channel::oneshot::channel();
            let mut sender = Some(sender);
            let one = Replies::new(1, move |_, outcome| {
                if let Some(sender) = sender.take() {
                    sender.send(outcome).unwrap();
                }
            });
            self.inner.execute(vec![operation], one).await;
            replies.deliver(index, answer.await.unwrap());
        }
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.inspect(name).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        self.inner.list(after, most).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.evict(name, how).await
    }

    fn hints(&self) -> Option<Hints> {
        self.hints.lock().unwrap().take()
    }

    async fn watch(&self, _name: LeaseName) -> Result<(), StoreError> {
        Ok(())
    }

    async fn unwatch(&self, name: LeaseName) {
        self.inner.unwatch(name).await;
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        self.inner.timers(after, most).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        self.inner.report(report).await
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        self.inner.jobs(after, most).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.runs(job).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        self.inner.forget_job(job).await
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        self.inner.members(after, most).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        self.inner.mark(mark).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[test]
fn half_a_batch_harms_only_those_without_an_answer() {
    let world = World::new();
    let half = Arc::new(AtomicBool::new(false));
    let odd = Odd { inner: world.faulty(), hints: None.into(), half: Arc::clone(&half) };
    let tenure = world.builder().store(odd).start().unwrap();
    let leases: Vec<_> = (0..100).map(|n| world.acquire(&tenure, &n.to_string())).collect();
    half.store(true, Ordering::Relaxed);
    for _ in 0..60 {
        world.runtime.advance(SECOND);
        assert!(leases.iter().all(Lease::is_valid), "the rest is tried again, a half at a time");
    }
}

#[test]
fn hints_that_lie_end_or_panic_change_nothing_but_when_waiters_look() {
    for ending in ["never", "ends", "panics"] {
        let world = World::new();
        let name = LeaseName::new("a").unwrap();
        let lie = [
            Hint::Lease { name: name.clone(), wake: Wake::Free { chosen: true } },
            Hint::Lease { name: LeaseName::new("unheard of").unwrap(), wake: Wake::Free { chosen: false } },
            Hint::Resync,
        ];
        let hints: Hints = match ending {
            "ends" => futures::stream::iter(lie).boxed(),
            "panics" => {
                futures::stream::iter(lie).chain(futures::stream::once(async { panic!("a bug") })).boxed()
            }
            _ => futures::stream::iter(lie).chain(futures::stream::pending()).boxed(),
        };
        let (one, holder) = (world.faulty(), world.tenure());
        let lease = world.acquire(&holder, "a");
        let odd = Odd { inner: one, hints: Some(hints).into(), half: Arc::default() };
        let tenure = world.builder().store(odd).start().unwrap();
        let got = spawn(&world.runtime, tenure.acquire("a").into_future());
        world.runtime.advance(10 * TTL);
        assert!(got.lock().unwrap().is_none() && lease.is_valid(), "{ending}");
        drop(lease);
        world.runtime.advance(2 * TTL);
        assert!(got.lock().unwrap().as_ref().unwrap().is_ok(), "{ending}");
    }
}
