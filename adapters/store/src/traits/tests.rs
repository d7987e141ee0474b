//! How a batch runs on a store that has one function per operation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::channel::{mpsc, oneshot};
use futures::executor::block_on;
use futures::future::poll_immediate;
use tenure_core::{Acquisition, Identity, Incarnation, Owner, Token};

use super::*;
use crate::{Holder, Metadata};

/// A renewal that was asked for: of which lease, with which token, and where its outcome goes.
type Ask = (String, Token, oneshot::Sender<Result<Renewed, StoreError>>);

/// A store whose renewals end when the test says so.
struct Gated {
    asked: mpsc::UnboundedSender<Ask>,
    running: Arc<AtomicUsize>,
    most_running: Arc<AtomicUsize>,
}

impl SimpleStore for Gated {
    async fn acquire(&self, request: Acquire) -> Result<Acquired, StoreError> {
        Ok(Acquired::Held(Holder::new(request.name.as_str())))
    }

    async fn renew(&self, request: Renew) -> Result<Renewed, StoreError> {
        let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_running.fetch_max(running, Ordering::Relaxed);
        let (done, wait) = oneshot::channel();
        self.asked
            .unbounded_send((request.name.as_str().to_owned(), request.token, done))
            .map_err(|_| StoreError::transient("the test is over"))?;
        let outcome = wait.await.unwrap_or_else(|_| Err(StoreError::unknown("the test dropped it")));
        self.running.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    async fn release(&self, _: Release) -> Result<Released, StoreError> {
        Ok(Released::NotYours)
    }

    async fn inspect(&self, _: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(None)
    }

    async fn list(&self, _: Option<LeaseName>, _: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn evict(&self, _: LeaseName, _: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(None)
    }
}

fn gated() -> (Gated, mpsc::UnboundedReceiver<Ask>) {
    let (asked, asks) = mpsc::unbounded();
    (Gated { asked, running: Arc::default(), most_running: Arc::default() }, asks)
}

fn name(name: &str) -> LeaseName {
    LeaseName::new(name).expect("a short name")
}

fn owner() -> Owner {
    Identity::new("here", Incarnation::new(1)).expect("a short name").owner(Acquisition(0))
}

fn renew(lease: &str, token: u64) -> Operation {
    let timeout = Duration::from_secs(1);
    let (name, owner, token) = (name(lease), owner(), Token::new(token));
    Renew { name, owner, token, ttl: Duration::from_secs(10), timeout }.into()
}

/// What was delivered, and where.
#[derive(Clone, Default)]
struct Delivered(Arc<Mutex<Vec<(usize, Outcome)>>>);

impl Delivered {
    fn replies(&self, operations: usize) -> Replies {
        let delivered = self.clone();
        Replies::new(operations, move |index, outcome| {
            delivered.0.lock().expect("no panic").push((index, outcome));
        })
    }

    fn take(&self) -> Vec<(usize, Outcome)> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

const RENEWED: Outcome = Ok(Answer::Renew(Renewed::Renewed));

#[test]
fn leases_run_side_by_side_and_each_in_its_order() {
    let (store, mut asks) = gated();
    let delivered = Delivered::default();
    let batch = vec![renew("a", 1), renew("b", 1), renew("a", 2), renew("b", 2)];
    let mut execution = Box::pin(store.execute(batch, delivered.replies(4)));
    let mut turn = || block_on(poll_immediate(&mut execution));
    let mut next = || asks.next().now_or_never().flatten().expect("the store was asked");

    assert_eq!(turn(), None);
    let (first_a, first_b) = (next(), next());
    assert_eq!((&*first_a.0, first_a.1.get()), ("a", 1));
    assert_eq!((&*first_b.0, first_b.1.get()), ("b", 1));
    assert!(asks.next().now_or_never().is_none(), "the second ones wait for the first");

    first_b.2.send(Ok(Renewed::Renewed)).expect("the store waits");
    assert_eq!(turn(), None);
    assert_eq!(delivered.take(), [(1, RENEWED)], "delivered as soon as it is known");
    let second_b = asks.next().now_or_never().flatten().expect("b goes on while a waits");
    assert_eq!((&*second_b.0, second_b.1.get()), ("b", 2));

    let failure = StoreError::transient("not now");
    first_a.2.send(Err(failure.clone())).expect("the store waits");
    second_b.2.send(Ok(Renewed::NotYours)).expect("the store waits");
    assert_eq!(turn(), None);
    let (second_a_name, token, second_a) = asks.next().now_or_never().flatten().expect("a goes on");
    assert_eq!((&*second_a_name, token.get()), ("a", 2));
    second_a.send(Ok(Renewed::Renewed)).expect("the store waits");
    assert_eq!(turn(), Some(()));
    let mut rest = delivered.take();
    rest.sort_by_key(|(index, _)| *index);
    assert_eq!(rest, [(0, Err(failure)), (2, RENEWED), (3, Ok(Answer::Renew(Renewed::NotYours)))]);
}

#[test]
fn at_most_sixteen_leases_run_at_once_and_all_run() {
    let (store, mut asks) = gated();
    let most_running = store.most_running.clone();
    let delivered = Delivered::default();
    let batch = (0..100).map(|number| renew(&number.to_string(), 1)).collect();
    let execution = store.execute(batch, delivered.replies(100));
    let answering = async {
        for _ in 0..100 {
            let (_, _, done) = asks.next().await.expect("every renewal is asked for");
            done.send(Ok(Renewed::Renewed)).expect("the store waits");
        }
    };
    block_on(futures::future::join(execution, answering));
    assert_eq!(most_running.load(Ordering::Relaxed), MOST_AT_ONCE);
    let mut outcomes = delivered.take();
    outcomes.sort_by_key(|(index, _)| *index);
    assert!(outcomes.into_iter().eq((0..100).map(|index| (index, RENEWED))));
}

#[test]
fn what_runs_or_waits_when_a_batch_is_dropped_is_unknown() {
    let (store, mut asks) = gated();
    let delivered = Delivered::default();
    let acquire = Acquire {
        name: name("b"),
        owner: owner(),
        ttl: Duration::from_secs(10),
        floor: Token::ZERO,
        wait: false,
        metadata: Metadata::new(),
        timeout: Duration::from_secs(1),
    };
    let batch = vec![renew("a", 1), renew("a", 2), acquire.into()];
    let mut execution = Box::pin(store.execute(batch, delivered.replies(3)));
    assert_eq!(block_on(poll_immediate(&mut execution)), None);
    assert!(asks.next().now_or_never().is_some(), "the first one runs");
    drop(execution);
    let mut outcomes = delivered.take();
    outcomes.sort_by_key(|(index, _)| *index);
    let kinds: Vec<_> =
        outcomes.into_iter().map(|(_, outcome)| outcome.map_err(|error| error.kind)).collect();
    assert_eq!(
        kinds,
        [
            Err(crate::StoreErrorKind::Unknown),
            Err(crate::StoreErrorKind::Unknown),
            Ok(Answer::Acquire(Acquired::Held(Holder::new("b")))),
        ]
    );
}
