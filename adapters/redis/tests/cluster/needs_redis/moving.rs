//! Slots that are moved from one node to another.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tenure_servers::{Cluster, LIMIT};
use tenure_store::core::{LeaseName, Token};
use tenure_store::{Acquired, Answer, Hint, Released, Store, StoreErrorKind, clock};

use super::held::{Held, alike, all_renewed, hold, is_transient, renew, slot};
use crate::common::{At, Candidate, Runtime, TIMEOUT, after, freed, hears, prefix, run, run_batch};

fn at() -> At<Cluster> {
    let server = Cluster::start(3);
    At { runtime: Runtime::tokio(), url: server.nodes()[0].url(), server }
}

#[test]
#[ignore = "needs redis"]
fn leases_are_renewed_while_their_slot_is_moved() {
    let at = at();
    let cluster = &at.server;
    let (prefix, names) = (prefix(), alike(cluster, "reports", 21));
    let (store, other) = (at.open(&prefix), at.open(&prefix));
    at.runtime.block_on(async {
        let held = hold(&store, names[..20].iter().cloned()).await;
        let slot = slot(cluster, &names[0]);
        let from = cluster.owner(slot);
        let to = (from + 1) % 3;

        cluster.begin_move(slot, from, to);
        all_renewed(&renew(&store, &held, TIMEOUT).await);
        assert_eq!(cluster.move_keys(slot, from, to, 8), 8);
        // Half here, half there.
        all_renewed(&renew(&store, &held, TIMEOUT).await);
        let others = names[..20].iter().map(|name| Candidate::new(name, 2).acquire().into()).collect();
        for (outcome, name) in run_batch(&other, others).await.iter().zip(&names) {
            let held = matches!(outcome, Ok(Answer::Acquire(Acquired::Held(_))));
            assert!(held || is_transient(outcome), "{name}: {outcome:?}");
        }
        while cluster.move_keys(slot, from, to, 8) > 0 {}
        // All there, though it is still this one's.
        all_renewed(&renew(&store, &held, TIMEOUT).await);
        cluster.finish_move(slot, from, to);

        all_renewed(&renew(&store, &held, TIMEOUT).await);
        let mut last = Token::ZERO;
        for Held(candidate, token) in &held {
            let holder = Candidate::new(candidate.name.as_str(), 2).is_refused(&other).await;
            assert_eq!((holder.token, holder.owner), (Some(*token), candidate.owner.to_string()));
            last = last.max(*token);
        }
        let next = Candidate::new(&names[20], 2).gets(&other).await;
        assert!(next > last, "the high water has moved, too: {next} after {last}");
        for Held(candidate, token) in &held {
            assert!(matches!(candidate.releases(&store, *token).await, Released::Released { .. }));
        }
        let listed: Vec<LeaseName> =
            other.list(None, 100).await.unwrap().into_iter().map(|lease| lease.name).collect();
        assert_eq!(listed, [LeaseName::new(&names[20]).unwrap()]);
    });
}

#[test]
#[ignore = "needs redis"]
fn a_lease_has_one_holder_while_its_slot_goes_back_and_forth() {
    let at = at();
    let (cluster, prefix) = (&at.server, prefix());
    let stores: Vec<_> = (0..3).map(|_| at.open(&prefix)).collect();
    let moved = AtomicBool::new(false);
    let (holder, last, grants) = (Cell::new(None), Cell::new(Token::ZERO), &AtomicU32::new(0));
    at.runtime.block_on(async {
        hold(&stores[0], ["other".to_owned()]).await;
    });
    let slot = {
        let name = alike(cluster, "other", 1);
        slot(cluster, &name[0])
    };
    let contested = &alike(cluster, "other", 2)[1];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Told even if it panics: the others end with it.
            struct Tell<'a>(&'a AtomicBool);
            impl Drop for Tell<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::SeqCst);
                }
            }
            let _tell = Tell(&moved);
            let began = clock::now();
            for moves in 1..=6 {
                let from = cluster.owner(slot);
                cluster.move_slot(slot, from, (from + 1) % 3);
                // Some go on where it is now.
                while grants.load(Ordering::SeqCst) < 3 * moves {
                    assert!(
                        clock::now().saturating_since(began) < LIMIT,
                        "nobody gets the lease after {moves} moves"
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        at.runtime.block_on(futures::future::join_all(stores.iter().enumerate().map(
            async |(number, store)| {
                let candidate = Candidate::new(contested, number as u128 + 10);
                while !moved.load(Ordering::SeqCst) {
                    match candidate.tries(store).await {
                        Ok(Acquired::Granted(token)) => {
                            assert_eq!(holder.replace(Some(number)), None, "two hold it");
                            assert!(token > last.replace(token), "tokens rise");
                            grants.fetch_add(1, Ordering::SeqCst);
                            after(Duration::from_millis(1)).await;
                            holder.set(None);
                            while let outcome = run(store, release(&candidate, token)).await
                                && outcome.is_err()
                            {
                                assert!(is_transient(&outcome), "{outcome:?}");
                            }
                        }
                        Ok(Acquired::Held(_)) => after(Duration::from_millis(1)).await,
                        Err(error) => assert_eq!(error.kind, StoreErrorKind::Transient, "{error}"),
                    }
                }
            },
        )));
    });
    assert!(grants.load(Ordering::SeqCst) >= 18);
}

fn release(candidate: &Candidate, token: Token) -> tenure_store::Operation {
    tenure_store::Release {
        name: candidate.name.clone(),
        owner: candidate.owner.clone(),
        token: Some(token),
        timeout: TIMEOUT,
    }
    .into()
}

#[test]
#[ignore = "needs redis"]
fn a_waiter_listens_at_the_node_that_a_slot_was_moved_to_and_at_the_old_one_no_more() {
    let at = at();
    let (cluster, prefix) = (&at.server, prefix());
    let (store, other) = (at.open(&prefix), at.open(&prefix));
    at.runtime.block_on(async {
        let mut hints = Store::hints(&other).unwrap();
        let held = hold(&store, ["reports".to_owned()]).await;
        let waiter = Candidate::new("reports", 2);
        other.watch(waiter.name.clone()).await.unwrap();
        let slot = slot(cluster, "reports");
        let from = cluster.owner(slot);
        let to = (from + 1) % 3;
        cluster.move_slot(slot, from, to);
        // Nothing is known of it until a request meets it; then it is listened to at the new place.
        waiter.is_refused(&other).await;
        hears(&mut hints, "a resync", |hint| matches!(hint, Hint::Resync).then_some(())).await;
        let channels = |node: usize| cluster.nodes()[node].command(&["PUBSUB", "CHANNELS"]).texts().len();
        assert_eq!((channels(from), channels(to)), (0, 1));
        let Held(candidate, token) = &held[0];
        let released = candidate.releases(&store, *token).await;
        assert_eq!(released, Released::Released { others_chosen: true });
        assert!(hears(&mut hints, "the release", freed(&waiter.name)).await);
        assert!(waiter.gets(&other).await > *token);
        other.unwatch(waiter.name.clone()).await;
        assert_eq!((channels(from), channels(to)), (0, 0), "nothing is left behind");
    });
}
