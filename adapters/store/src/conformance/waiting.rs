//! What waiters hear, for stores that have hints.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use tenure_core::{LeaseName, Token, Wake};

use super::Harness;
use super::candidate::{Candidate, PATIENCE, held, lease, long_ttl, run};
use crate::{Eviction, Hint, Hints, Released, Store};

/// A handle of another process that listens.
pub(super) struct Listener<S> {
    pub(super) store: S,
    hints: Hints,
}

impl<S: Store> Listener<S> {
    pub(super) async fn new<H: Harness<Store = S>>(h: &H, store: &S) -> Self {
        let store = h.handle(store).await;
        let hints = store.hints().expect("the store has no hints: ignore this property");
        Self { store, hints }
    }

    async fn watch(&self, name: &LeaseName) {
        self.store.watch(name.clone()).await.expect("watching works");
    }

    /// Waits as the core does: a try that registers, a watch, and a try after it.
    async fn wait(&self, candidate: &Candidate) {
        for round in 0..2 {
            let mut request = candidate.acquire();
            request.wait = true;
            held(run(&self.store, request).await);
            if round == 0 {
                self.watch(&candidate.name).await;
            }
        }
    }

    /// The next hint that is wanted, whatever else comes before it.
    pub(super) async fn hears<H: Harness, T>(
        &mut self,
        h: &H,
        what: &str,
        wanted: impl Fn(Hint) -> Option<T>,
    ) -> T {
        let limit = h.now() + PATIENCE;
        let mut heard = Vec::new();
        loop {
            let passed = pin!(h.pass(Duration::from_millis(100)));
            match select(self.hints.next(), passed).await {
                Either::Left((Some(hint), _)) => match wanted(hint.clone()) {
                    Some(found) => return found,
                    None => heard.push(hint),
                },
                Either::Left((None, _)) => panic!("the hints ended without {what}: {heard:?}"),
                Either::Right(_) => assert!(h.now() < limit, "no hint of {what} came, only {heard:?}"),
            }
        }
    }

    /// Waits to hear that a lease is free; tells whether this one is chosen. To be told that something may
    /// have been missed is as good.
    async fn hears_free<H: Harness>(&mut self, h: &H, name: &LeaseName) -> bool {
        self.hears(h, "a release", |hint| match hint {
            Hint::Lease { name: of, wake: Wake::Free { chosen } } if of == *name => Some(chosen),
            Hint::Resync => Some(false),
            Hint::Lease { .. } | Hint::Members => None,
        })
        .await
    }

    /// Takes the hints that are there, so that an old one is not mistaken for a new one.
    pub(super) async fn drain<H: Harness>(&mut self, h: &H) {
        loop {
            let passed = pin!(h.pass(Duration::from_millis(50)));
            match select(self.hints.next(), passed).await {
                Either::Left((Some(_), _)) => {}
                Either::Left((None, _)) => panic!("the hints ended"),
                Either::Right(_) => return,
            }
        }
    }
}

/// Who watches hears of a release.
pub fn a_release_reaches_a_watching_handle<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("watched");
        let holder = Candidate::new(&name, 1, 0, long_ttl(&store));
        let token = holder.gets(&store).await;
        let mut listener = Listener::new(h, &store).await;
        listener.watch(&name).await;
        listener.drain(h).await;
        holder.gives_back(&store, token).await;
        listener.hears_free(h, &name).await;
    });
}

/// Who watches hears of a grant to another, with its token and what there is of its TTL.
pub fn a_grant_reaches_a_watching_handle<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("taken");
        let mut listener = Listener::new(h, &store).await;
        listener.watch(&name).await;
        listener.drain(h).await;
        let ttl = long_ttl(&store);
        let granted = Candidate::new(&name, 1, 0, ttl).gets(&store).await;
        let (token, told): (Token, Duration) = listener
            .hears(h, "a grant", |hint| match hint {
                Hint::Lease { name: of, wake: Wake::Held { token, ttl } } if of == name => Some((token, ttl)),
                Hint::Lease { .. } | Hint::Members | Hint::Resync => None,
            })
            .await;
        assert_eq!(token, granted);
        assert!(!told.is_zero() && told <= ttl, "{told:?} of {ttl:?}");
    });
}

/// Who watches hears that an operator deleted the lease.
pub fn a_deletion_reaches_a_watching_handle<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("deleted under watch");
        Candidate::new(&name, 1, 0, long_ttl(&store)).gets(&store).await;
        let mut listener = Listener::new(h, &store).await;
        listener.watch(&name).await;
        listener.drain(h).await;
        store.evict(name.clone(), Eviction::Delete).await.expect("evicting works");
        listener.hears_free(h, &name).await;
    });
}

/// A release right after `watch` returned is heard: who then tries once, and waits if that fails, misses
/// nothing.
pub fn no_release_is_missed_once_watch_has_returned<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let mut listener = Listener::new(h, &store).await;
        for round in 0..50 {
            let holder = Candidate::new(&lease(format!("round {round}")), 1, round, long_ttl(&store));
            let token = holder.gets(&store).await;
            listener.watch(&holder.name).await;
            holder.gives_back(&store, token).await;
            listener.hears_free(h, &holder.name).await;
            listener.store.unwatch(holder.name).await;
        }
    });
}

/// Of many waiters a release names one or two to try at once, and says that it did.
pub fn at_most_two_waiters_are_chosen<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("waited for");
        let ttl = long_ttl(&store);
        let holder = Candidate::new(&name, 1, 0, ttl);
        let token = holder.gets(&store).await;
        let mut listeners = Vec::new();
        for process in 2..7 {
            let mut listener = Listener::new(h, &store).await;
            listener.wait(&Candidate::new(&name, process, 0, ttl)).await;
            listener.drain(h).await;
            listeners.push(listener);
        }
        let released = holder.gives_back(&store, token).await;
        assert_eq!(released, Released::Released { others_chosen: true });
        let mut chosen = 0;
        for listener in &mut listeners {
            chosen += usize::from(listener.hears_free(h, &name).await);
        }
        assert!((1..=2).contains(&chosen), "{chosen} of {} were chosen", listeners.len());
    });
}

/// The handle that releases is not among those that it names: what else waits in its process knows at once.
pub fn a_release_does_not_choose_its_own_handle<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("waited for at home");
        let holding = Listener::new(h, &store).await;
        let holder = Candidate::new(&name, 1, 0, long_ttl(&store));
        let token = holder.gets(&holding.store).await;
        holding.wait(&Candidate::new(&name, 1, 1, long_ttl(&store))).await;
        let released = holder.gives_back(&holding.store, token).await;
        assert_eq!(released, Released::Released { others_chosen: false });
    });
}

/// Who has ended its watch is no longer chosen.
pub fn unwatch_ends_the_waiting<H: Harness>(h: &H) {
    h.block_on(async {
        let store = h.fresh().await;
        let name = lease("not waited for any more");
        let ttl = long_ttl(&store);
        let holder = Candidate::new(&name, 1, 0, ttl);
        let token = holder.gets(&store).await;
        let listener = Listener::new(h, &store).await;
        listener.wait(&Candidate::new(&name, 2, 0, ttl)).await;
        listener.store.unwatch(name.clone()).await;
        let released = holder.gives_back(&store, token).await;
        assert_eq!(released, Released::Released { others_chosen: false });
    });
}
