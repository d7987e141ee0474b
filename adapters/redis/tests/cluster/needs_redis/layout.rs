//! Where the keys of a Cluster are.

use std::collections::BTreeSet;

use tenure_redis::RedisStore;
use tenure_servers::{Cluster, Flavour, Redis};
use tenure_store::core::LeaseName;
use tenure_store::{Renewed, Store, StoreErrorKind, clock};

use super::held::{all_renewed, hold, renew};
use crate::common::{At, Candidate, Runtime, TIMEOUT, prefix, run_batch, until};

#[test]
#[ignore = "needs redis"]
fn all_that_belongs_to_a_name_lies_in_one_slot_near_that_of_the_name() {
    let at = At::shared_cluster(Runtime::tokio(), Flavour::Redis);
    let prefix = prefix();
    let store = at.open(&prefix);
    at.runtime.block_on(async {
        let candidates: Vec<_> =
            (0..1_000).map(|number| Candidate::new(&format!("lease-{number}"), 1)).collect();
        let outcomes = run_batch(&store, candidates.iter().map(|one| one.acquire().into()).collect()).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    });
    let keys: Vec<String> = at.server.keys().into_iter().filter(|key| key.starts_with(&*prefix)).collect();
    let mut tags = BTreeSet::new();
    let mut leases = 0;
    for key in &keys {
        let rest = key.strip_prefix(&*prefix).unwrap();
        let (kind, tagged) = rest.split_once('{').unwrap();
        let (tag, name) = tagged.split_once("}:").unwrap();
        tags.insert(tag.to_owned());
        if kind == ":" {
            leases += 1;
            assert_eq!(at.server.slot(key) / 256, at.server.slot(name) / 256, "{key}");
        } else {
            assert_eq!((kind, name), ("!token", ""), "{key}");
        }
    }
    assert_eq!((leases, keys.len(), tags.len()), (1_000, 1_064, 64));
    let slots: BTreeSet<u16> = tags.iter().map(|tag| at.server.slot(tag) / 256).collect();
    assert_eq!(slots, (0..64).collect());
}

#[test]
#[ignore = "needs redis"]
fn names_with_braces_are_like_any_others() {
    let at = At::shared_cluster(Runtime::tokio(), Flavour::Redis);
    let store = at.open(&prefix());
    let names = ["{user}:1", "{}", "a{b}c{d}", "}{", "{{x}}", "{mm}:", "{", "}:", "tenure:{mm}:x"];
    at.runtime.block_on(async {
        for name in names {
            let (one, other) = (Candidate::new(name, 1), Candidate::new(name, 2));
            let token = one.gets(&store).await;
            assert_eq!(other.is_refused(&store).await.owner, one.owner.to_string());
            assert_eq!(one.renews(&store, token).await, Renewed::Renewed);
        }
        let listed = store.list(None, 100).await.unwrap();
        let listed: BTreeSet<_> = listed.into_iter().map(|lease| lease.name).collect();
        assert_eq!(listed, names.map(|name| LeaseName::new(name).unwrap()).into());
    });
}

#[test]
#[ignore = "needs redis"]
fn a_batch_of_a_thousand_renewals_is_one_call_for_each_tag() {
    let server = Cluster::start(3);
    let at = At { runtime: Runtime::tokio(), url: server.nodes()[0].url(), server };
    let store = at.open(&prefix());
    let calls = || {
        let calls = at.server.nodes().iter().map(|node| {
            let text = node.command(&["INFO", "commandstats"]).text();
            let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        });
        calls.sum::<u64>()
    };
    at.runtime.block_on(async {
        let held = hold(&store, (0..1_000).map(|number| format!("lease-{number}"))).await;
        // Once, for the script.
        all_renewed(&renew(&store, &held, TIMEOUT).await);
        let (before, began) = (calls(), clock::now());
        all_renewed(&renew(&store, &held, TIMEOUT).await);
        println!("renewing 1,000 leases over 64 tags took {:?}", clock::now().saturating_since(began));
        assert_eq!(calls() - before, 64);
    });
}

#[test]
#[ignore = "needs redis"]
fn one_connection_to_each_node_is_enough() {
    let server = Cluster::start(3);
    let at = At { runtime: Runtime::tokio(), url: server.nodes()[0].url(), server };
    // Another name of the node than that by which the others call it.
    let url = at.url.replace("127.0.0.1", "localhost");
    let at = At { url, ..at };
    let store = at.open(&prefix());
    at.runtime.block_on(async {
        let held = hold(&store, (0..200).map(|number| format!("lease-{number}"))).await;
        all_renewed(&renew(&store, &held, TIMEOUT).await);
        let clients = |node: &Redis| {
            let text = node.command(&["CLIENT", "LIST", "TYPE", "NORMAL"]).text();
            text.lines().filter(|line| line.contains("resp=3")).count()
        };
        until("one connection to each node", async || {
            at.server.nodes().iter().all(|node| clients(node) == 1).then_some(())
        })
        .await;
        store.close().await;
        until("no connection", async || {
            at.server.nodes().iter().all(|node| clients(node) == 0).then_some(())
        })
        .await;
        let refused = Candidate::new("late", 1).tries(&store).await;
        assert_eq!(refused.unwrap_err().kind, StoreErrorKind::Rejected);
    });
}

#[test]
#[ignore = "needs redis"]
fn any_node_leads_to_the_cluster_and_several_servers_alone_to_none() {
    let at = At::shared_cluster(Runtime::tokio(), Flavour::Redis);
    let (first, last) = (at.server.nodes()[0].port(), at.server.nodes()[2].port());
    let (gone, alone) = (Redis::start(), Redis::start());
    let dead = gone.port();
    gone.kill();
    let prefix = prefix();
    let open = |url: String| RedisStore::from_url(&format!("{url}?prefix={prefix}")).unwrap();
    at.runtime.block_on(async {
        let candidate = Candidate::new("reports", 1);
        let token = candidate.gets(&at.open(&prefix)).await;
        for url in [
            format!("redis://127.0.0.1:{last}"),
            format!("redis+cluster://127.0.0.1:{last}"),
            format!("redis+cluster://127.0.0.1:{dead},localhost:{first},127.0.0.1:{last}"),
        ] {
            assert_eq!(candidate.renews(&open(url), token).await, Renewed::Renewed);
        }
        // One that is alone is used as such, however it is called; of several, which has the lease?
        let single = open(format!("redis+cluster://127.0.0.1:{}", alone.port()));
        candidate.gets(&single).await;
        assert_eq!(alone.keys(), [format!("{prefix}!token"), format!("{prefix}:reports")]);
        let several = open(format!("redis+cluster://127.0.0.1:{},127.0.0.1:{dead}", alone.port()));
        let refused = candidate.tries(&several).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Rejected);
        assert!(refused.message.contains("is not a node of a Cluster"), "{refused}");
    });
}
