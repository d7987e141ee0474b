//! Failovers, by processes of Redis and Sentinel.

use std::net::SocketAddr;
use std::time::Duration;

use tenure_redis::RedisStore;
use tenure_servers::{Client, Redis, Sentinel, eventually};
use tenure_store::StoreErrorKind::{Rejected, Transient, Unknown};
use tenure_store::{Acquired, Renewed, clock};

use crate::ops::{LONG, SHORT, acquire, fails, granted, renew, store, until_renewed};

fn url(ports: &[u16], service: &str) -> String {
    let sentinels: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+sentinel://{}/{service}", sentinels.join(","))
}

fn store_of(sentinel: &Sentinel) -> RedisStore {
    store(&url(&sentinel.sentinel_ports(), sentinel.name()))
}

/// Waits until the primary is the only server that a store is connected to.
fn only_the_primary_is_used(sentinel: &Sentinel) {
    let primary = [sentinel.primary_address()];
    eventually("the primary to be all that is used", || (used(sentinel.servers()) == primary).then_some(()));
}

/// The servers that somebody but a Sentinel is connected to.
fn used(servers: &[Redis]) -> Vec<SocketAddr> {
    let used = |server: &&Redis| {
        let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).text();
        // Sentinels have names, and one connection is that of the question.
        clients.lines().any(|client| client.contains(" name= ") && !client.contains(" cmd=client"))
    };
    servers.iter().filter(|server| server.pid().is_some()).filter(used).map(Redis::address).collect()
}

/// All replicas have what the primary has.
fn replicated(sentinel: &Sentinel) {
    let replicas = sentinel.replicas().len().to_string();
    // It waits for what was written on the same connection, and so for all before that.
    let mut client = sentinel.primary().client();
    client.command(&["SET", "written", "last"]).ok();
    assert_eq!(client.command(&["WAIT", &replicas, "30000"]).integer().to_string(), replicas);
}

/// Waits until a server is told that it is a replica, which closes its connections.
fn demoted(server: &Redis) {
    eventually("the old primary to be a replica", || {
        let role = server.client().try_command(&["ROLE"]).ok()?.array().swap_remove(0).text();
        (role == "slave").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_lease_that_was_replicated_is_renewed_at_the_new_primary() {
    let sentinel = Sentinel::start();
    let store = store_of(&sentinel);
    let token = granted(&store, "a", 1).await;
    only_the_primary_is_used(&sentinel);
    replicated(&sentinel);
    // Planned: the old primary lives on as a replica.
    sentinel.failover();
    demoted(&sentinel.servers()[0]);
    until_renewed(&store, "a", 1, token).await;
    let next = granted(&store, "b", 1).await;
    assert!(next > token);
    only_the_primary_is_used(&sentinel);
    // And not planned.
    sentinel.settled();
    replicated(&sentinel);
    let before = sentinel.kill_primary();
    let dead = clock::now();
    let failures = until_renewed(&store, "a", 1, token).await;
    println!("renewed {:?} after the primary was killed", clock::now().saturating_since(dead));
    assert!(failures > 0, "the primary was dead for a while");
    sentinel.moved(before);
    assert!(granted(&store, "c", 1).await > next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_primary_that_is_frozen_is_left_for_the_new_one() {
    let sentinel = Sentinel::start();
    let store = store_of(&sentinel);
    let token = granted(&store, "a", 1).await;
    replicated(&sentinel);
    let before = sentinel.primary_address();
    let frozen = sentinel.primary();
    frozen.freeze();
    let since = clock::now();
    loop {
        match renew(&store, "a", 1, token, SHORT).await {
            Ok(renewed) => break assert_eq!(renewed, Renewed::Renewed),
            Err(error) => assert!(matches!(error.kind, Transient | Unknown), "{error}"),
        }
        assert!(clock::now().saturating_since(since) < LONG);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("renewed {:?} after the primary was frozen", clock::now().saturating_since(since));
    sentinel.moved(before);
    // Back again it is a replica, and nobody's.
    frozen.thaw();
    demoted(frozen);
    until_renewed(&store, "a", 1, token).await;
    only_the_primary_is_used(&sentinel);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_promoted_replica_that_missed_the_last_grant_gives_a_higher_token() {
    let sentinel = Sentinel::behind_a_proxy();
    let store = store_of(&sentinel);
    let early = granted(&store, "early", 1).await;
    replicated(&sentinel);
    let before = sentinel.primary_address();
    // Who is on the primary's side of the partition goes on there.
    let partitioned = &sentinel.servers()[0];
    let beside_it = crate::ops::store(&partitioned.url());
    sentinel.proxy().cut();
    let missed = granted(&beside_it, "a", 1).await;
    sentinel.moved(before);
    until_renewed(&store, "early", 1, early).await;
    // What Redis can't keep: another one is granted what is held. Its token tells the two apart.
    let again = granted(&store, "a", 2).await;
    assert!(again > missed, "{again} is not above {missed}");
    // Nor does the old primary know: it goes on renewing as long as it is cut off.
    assert_eq!(renew(&beside_it, "a", 1, missed, LONG).await, Ok(Renewed::Renewed));
    sentinel.proxy().restore();
    demoted(partitioned);
    fails(renew(&beside_it, "a", 1, missed, LONG).await, Transient, "replica");
    assert_eq!(renew(&store, "a", 1, missed, LONG).await, Ok(Renewed::NotYours));
    assert_eq!(renew(&store, "a", 2, again, LONG).await, Ok(Renewed::Renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn sentinels_that_are_down_are_passed_over_and_one_that_knows_nothing_says_so() {
    let sentinel = Sentinel::start();
    let ports = sentinel.sentinel_ports();
    sentinel.kill_sentinel(0);
    sentinel.kill_sentinel(1);
    let store_of_one = store_of(&sentinel);
    let token = granted(&store_of_one, "a", 1).await;

    let unknown = store(&url(&ports[2..], "billing"));
    let message = fails(acquire(&unknown, "a", 1, LONG).await, Rejected, "\"billing\"");
    assert!(message.contains(&format!("127.0.0.1:{}", ports[2])), "{message}");
    // One that can't be asked may know better.
    fails(acquire(&store(&url(&ports, "billing")), "a", 1, LONG).await, Transient, "knows no service");

    sentinel.kill_sentinel(2);
    // The connection to the primary needs none of them.
    assert_eq!(renew(&store_of_one, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
    let message = fails(acquire(&store_of(&sentinel), "a", 1, LONG).await, Transient, "no Sentinel");
    for port in &ports {
        assert!(message.contains(&format!("127.0.0.1:{port}")), "{message}");
    }

    // By a URL for a server they are no server.
    sentinel.restart_sentinel(0);
    let plain = store(&format!("redis://127.0.0.1:{}", ports[0]));
    fails(acquire(&plain, "a", 1, LONG).await, Rejected, "is a Sentinel");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_sentinel_that_names_a_server_of_no_use_is_not_the_only_one_that_is_asked() {
    let sentinel = Sentinel::start();
    let ports = sentinel.sentinel_ports();
    let replica = sentinel.replicas()[0].port();
    // Nothing listens there; and one that is no primary.
    for wrong in ["1".to_owned(), replica.to_string()] {
        let mut first = Client::connect(("127.0.0.1", ports[0])).unwrap();
        first.command(&["SENTINEL", "REMOVE", sentinel.name()]).ok();
        first.command(&["SENTINEL", "MONITOR", sentinel.name(), "127.0.0.1", &wrong, "2"]).ok();
        let store = store(&url(&ports, sentinel.name()));
        let since = clock::now();
        let mut outcome = acquire(&store, &wrong, 1, LONG).await;
        while let Err(error) = &outcome {
            assert_eq!(error.kind, Transient, "{error}");
            assert!(clock::now().saturating_since(since) < LONG, "still: {error}");
            outcome = acquire(&store, &wrong, 1, LONG).await;
        }
        assert!(matches!(outcome, Ok(Acquired::Granted(_))), "{outcome:?}");
    }
}
