//! Nodes that die, and replicas that take their place.

use std::time::Duration;

use tenure_servers::{Cluster, Config};
use tenure_store::core::Token;
use tenure_store::{Hint, Released, Store, StoreErrorKind, clock};

use super::held::{Held, all_renewed, hold, is_renewed, renew, woken};
use crate::common::{At, Candidate, Runtime, TIMEOUT, hears, prefix, until};

fn at() -> At<Cluster> {
    let server = Cluster::with(&Config::new(), 3, 1);
    At { runtime: Runtime::tokio(), url: server.nodes()[0].url(), server }
}

/// Waits until the replica of this primary has all that it has.
fn replicated(cluster: &Cluster, primary: usize) {
    assert_eq!(cluster.nodes()[primary].command(&["WAIT", "1", "10000"]).integer(), 1);
}

/// Which of the leases are at a node.
fn are_at(cluster: &Cluster, held: &[Held], node: usize) -> Vec<bool> {
    let keys = cluster.nodes()[node].keys();
    let here = |name: &str| keys.iter().any(|key| !key.contains('!') && key.ends_with(&format!("}}:{name}")));
    held.iter().map(|Held(candidate, _)| here(candidate.name.as_str())).collect()
}

#[test]
#[ignore = "needs redis"]
fn a_dead_primary_costs_nobody_else_anything_and_its_leases_are_back_with_its_replica() {
    let at = at();
    let (cluster, prefix) = (&at.server, prefix());
    let (store, other) = (at.open(&prefix), at.open(&prefix));
    at.runtime.block_on(async {
        let held = hold(&store, (0..128).map(|number| format!("lease-{number}"))).await;
        let lost = are_at(cluster, &held, 0);
        let (of_the_dead, of_others) =
            (lost.iter().filter(|lost| **lost).count(), lost.iter().filter(|lost| !**lost).count());
        assert!(of_the_dead > 20 && of_others > 60, "{of_the_dead} and {of_others}");
        let watched = lost.iter().position(|lost| *lost).unwrap();
        let Held(watched, token) = &held[watched];
        let mut hints = Store::hints(&other).unwrap();
        other.watch(watched.name.clone()).await.unwrap();
        replicated(cluster, 0);

        cluster.nodes()[0].kill();
        for _ in 0..2 {
            let outcomes = renew(&store, &held, Duration::from_millis(500)).await;
            for ((outcome, lost), Held(candidate, _)) in outcomes.iter().zip(&lost).zip(&held) {
                assert_eq!(is_renewed(outcome), !lost, "{:?}: {outcome:?}", candidate.name);
                let kind = outcome.as_ref().err().map(|error| error.kind);
                let known = matches!(kind, None | Some(StoreErrorKind::Transient | StoreErrorKind::Unknown));
                assert!(known, "{outcome:?}");
            }
        }
        cluster.promote(cluster.replica(0));
        let promoted = clock::now();
        until("all leases to be renewed", async || {
            renew(&store, &held, Duration::from_millis(500)).await.iter().all(is_renewed).then_some(())
        })
        .await;
        println!("all leases are renewed {:?} after the promotion", clock::now().saturating_since(promoted));

        hears(&mut hints, "a resync", |hint| matches!(hint, Hint::Resync).then_some(())).await;
        let waiter = Candidate::new(watched.name.as_str(), 2);
        assert_eq!(waiter.is_refused(&other).await.token, Some(*token));
        let released = watched.releases(&store, *token).await;
        assert_eq!(released, Released::Released { others_chosen: true });
        hears(&mut hints, "the release", woken(&waiter.name)).await;
        assert!(waiter.gets(&other).await > *token);
        let highest = held.iter().map(|held| held.1).max().unwrap_or(Token::ZERO);
        assert!(Candidate::new("another", 3).gets(&other).await > highest);
        assert_eq!(other.list(None, 1_000).await.unwrap().len(), 129);
    });
}

#[test]
#[ignore = "needs redis"]
fn a_frozen_primary_is_left_once_its_replica_has_taken_over() {
    let at = at();
    let (cluster, store) = (&at.server, at.open(&prefix()));
    at.runtime.block_on(async {
        let held = hold(&store, (0..64).map(|number| format!("lease-{number}"))).await;
        let lost = are_at(cluster, &held, 1);
        replicated(cluster, 1);
        cluster.nodes()[1].freeze();
        let outcomes = renew(&store, &held, Duration::from_millis(300)).await;
        for (outcome, lost) in outcomes.iter().zip(&lost) {
            match outcome {
                // It was sent, and whether it was done can't be known.
                Err(error) => assert_eq!((error.kind, *lost), (StoreErrorKind::Unknown, true), "{error}"),
                Ok(_) => assert!(is_renewed(outcome) && !lost, "{outcome:?}"),
            }
        }
        // The frozen one does not answer those who want to know whether all is well.
        cluster.nodes()[cluster.replica(1)].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).ok();
        until("all leases to be renewed", async || {
            renew(&store, &held, Duration::from_millis(300)).await.iter().all(is_renewed).then_some(())
        })
        .await;
        cluster.nodes()[1].thaw();
        cluster.settled();
        all_renewed(&renew(&store, &held, TIMEOUT).await);
        for Held(candidate, token) in &held {
            let other = Candidate::new(candidate.name.as_str(), 2);
            assert_eq!(other.is_refused(&store).await.token, Some(*token));
        }
    });
}

#[test]
#[ignore = "needs redis"]
fn who_has_asked_only_the_node_that_died_asks_the_others() {
    let at = at();
    let (cluster, store) = (&at.server, at.open(&prefix()));
    at.runtime.block_on(async {
        // All that is asked for is at the node of the URL: no other is connected to.
        let name = (0..).map(|number| format!("lease-{number}")).find(|name| {
            let span = cluster.slot(name) / 256;
            // Slots are divided evenly, and a tag lies in the middle of its span.
            cluster.owner(span * 256 + 128) == 0
        });
        let held = hold(&store, name).await;
        assert_eq!(are_at(cluster, &held, 0), [true]);
        replicated(cluster, 0);
        cluster.nodes()[0].kill();
        cluster.promote(cluster.replica(0));
        until("the lease to be renewed", async || {
            renew(&store, &held, Duration::from_millis(500)).await.iter().all(is_renewed).then_some(())
        })
        .await;
    });
}
