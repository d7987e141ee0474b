//! Clients and connections that are the program's own.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tenure_redis::{RedisOptions, RedisStore, redis};
use tenure_servers::{Cluster, Proxy, Redis};
use tenure_store::StoreErrorKind::{Transient, Unknown};
use tenure_store::core::Wake;
use tenure_store::{Acquired, Hint, Released, Renewed, Store};

use crate::ops::{LONG, SHORT, acquire, fails, granted, name, release, renew, store, until_renewed};

async fn connection(url: &str) -> redis::aio::MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

fn on(connection: redis::aio::MultiplexedConnection) -> RedisStore {
    RedisStore::new(RedisOptions::from_connection(connection).prefix("own").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn everything_goes_on_the_programs_own_connection() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    // In the older protocol and in the newer one.
    for url in [proxy.url(), format!("{}?protocol=resp3", proxy.url())] {
        let before = proxy.accepted();
        let own = on(connection(&url).await);
        let token = granted(&own, "a", 1).await;
        assert!(server.command(&["GET", "own:a"]).text().starts_with(&token.to_string()));
        assert_eq!(renew(&own, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
        assert!(matches!(acquire(&own, "a", 2, LONG).await, Ok(Acquired::Held(_))));
        assert_eq!(own.list(None, 10).await.unwrap().len(), 1);
        let released = release(&own, "a", 1, Some(token), LONG).await;
        assert_eq!(released, Ok(Released::Released { others_chosen: false }));
        assert_eq!(proxy.accepted(), before + 1, "no connection but that of the program");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_connection_of_the_program_brings_no_hints_and_is_subscribed_to_nothing() {
    let server = Redis::start();
    let own = on(connection(&server.url()).await);
    assert!(own.hints().is_none());
    granted(&own, "a", 1).await;
    assert!(own.watch(name("a")).await.is_err());
    assert_eq!(server.command(&["PUBSUB", "CHANNELS"]).array().len(), 0);
    // One of the store's own does.
    let with_hints = store(&server.url());
    assert!(with_hints.hints().is_some());
    with_hints.watch(name("a")).await.unwrap();
    assert_eq!(server.command(&["PUBSUB", "CHANNELS"]).array().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_connection_of_the_program_that_is_dead_stays_dead_and_one_that_heals_is_used_again() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let own = on(connection(&proxy.url()).await);
    let token = granted(&own, "a", 1).await;
    proxy.stall();
    for _ in 0..3 {
        let error = renew(&own, "a", 1, token, SHORT).await.unwrap_err();
        assert!(matches!(error.kind, Unknown | Transient), "{error}");
    }
    proxy.close();
    proxy.restore();
    for _ in 0..3 {
        fails(renew(&own, "a", 1, token, LONG).await, Transient, "the program's own connection");
    }
    // The program's business: here it makes another one, for another handle.
    let again = on(connection(&proxy.url()).await);
    assert_eq!(renew(&again, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_client_of_the_program_says_how_to_connect_and_the_connection_heals() {
    let server = Redis::with(tenure_servers::Config::new().password("hunter2"));
    let proxy = Proxy::to(server.address());
    let client = redis::Client::open(format!("redis://:hunter2@{}/3", proxy.address())).unwrap();
    let own = RedisStore::new(RedisOptions::from_client(&client).prefix("own").unwrap());
    assert!(!format!("{:?}", own.options()).contains("hunter2"));
    let token = granted(&own, "a", 1).await;
    let mut third = server.client();
    third.command(&["SELECT", "3"]).ok();
    assert_eq!(third.command(&["EXISTS", "own:a"]).integer(), 1);
    proxy.close();
    assert!(until_renewed(&own, "a", 1, token).await <= 1);
    let mut hints = own.hints().expect("its connections are the store's own");
    assert!(hints.next().now_or_never().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn keys_are_laid_out_for_a_cluster_if_the_programs_connection_leads_to_one() {
    let cluster = Cluster::start(1);
    let own = on(connection(&cluster.nodes()[0].url()).await);
    let token = granted(&own, "a", 1).await;
    let keys = cluster.nodes()[0].keys();
    assert!(keys.iter().any(|key| key.starts_with("own:{") && key.ends_with("}:a")), "{keys:?}");
    assert_eq!(renew(&own, "a", 1, token, Duration::from_secs(30)).await, Ok(Renewed::Renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_release_on_the_programs_connection_is_heard_by_those_who_wait_in_the_same_database() {
    let server = Redis::start();
    let url = format!("{}/3", server.url());
    let (own, waits) = (on(connection(&url).await), store(&format!("{url}?prefix=own")));
    let mut hints = waits.hints().expect("nobody has them yet");
    let token = granted(&own, "a", 1).await;
    waits.watch(name("a")).await.unwrap();
    let released = release(&own, "a", 1, Some(token), LONG).await;
    assert_eq!(released, Ok(Released::Released { others_chosen: true }));
    let hint = tokio::time::timeout(LONG, hints.next()).await.expect("it is heard");
    let wake = Wake::Free { chosen: true };
    assert_eq!(hint, Some(Hint::Lease { name: name("a"), wake }));
}
