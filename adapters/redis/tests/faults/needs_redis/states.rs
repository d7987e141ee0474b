//! Servers that answer that they can't.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tenure_servers::{Config, Redis, eventually};
use tenure_store::StoreErrorKind::{Rejected, Transient};
use tenure_store::{Released, Renewed, StoreError};

use crate::ops::{LONG, acquire, fails, granted, release, renew, store, until_renewed};

/// Ends all connections of stores.
fn disconnect(server: &Redis) {
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).integer();
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]).integer();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_server_that_is_loading_its_data_is_waited_for() {
    let server = Arc::new(Redis::with(
        Config::new()
            .set("enable-debug-command", "yes")
            .set("loading-process-events-interval-bytes", "1024")
            .set("key-load-delay", "200"),
    ));
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    server.command(&["DEBUG", "POPULATE", "5000", "filler", "100"]).ok();
    let reload = {
        let server = Arc::clone(&server);
        thread::spawn(move || server.command(&["DEBUG", "RELOAD"]).ok())
    };
    let mut loading: Option<StoreError> = None;
    while !reload.is_finished() {
        match renew(&store, "a", 1, token, LONG).await {
            Ok(renewed) => assert_eq!(renewed, Renewed::Renewed),
            Err(error) => loading = Some(error),
        }
    }
    reload.join().unwrap();
    fails(Err::<(), _>(loading.expect("it was seen loading")), Transient, "LOADING");
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_server_without_memory_renews_and_releases_what_is_held() {
    let server = Redis::start();
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    fails(acquire(&store, "b", 2, LONG).await, Transient, "out of memory");
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
    // Also for those who connect now, and need to send the scripts again.
    server.command(&["SCRIPT", "FLUSH"]).ok();
    disconnect(&server);
    until_renewed(&store, "a", 1, token).await;
    assert_eq!(
        release(&store, "a", 1, Some(token), LONG).await,
        Ok(Released::Released { others_chosen: false })
    );
    assert_eq!(server.command(&["EXISTS", "tenure:a", "tenure:b"]).integer(), 0);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    assert!(granted(&store, "b", 2).await > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_primary_that_wants_a_replica_and_has_none_renews_nothing() {
    let server = Redis::start();
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).ok();
    for failed in
        [renew(&store, "a", 1, token, LONG).await.map(drop), acquire(&store, "b", 2, LONG).await.map(drop)]
    {
        let message = fails(failed, Transient, "NOREPLICAS");
        assert!(message.contains("min-replicas-to-write"), "{message}");
    }
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).ok();
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
    assert_eq!(server.command(&["EXISTS", "tenure:b"]).integer(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_server_that_became_a_replica_is_left_and_found_again() {
    let server = Redis::start();
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    let connections = || server.info("total_connections_received").parse::<u64>().unwrap();
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).ok();
    let before = connections();
    fails(acquire(&store, "b", 2, LONG).await, Transient, "replica");
    // It connects again, and is told by the greeting.
    fails(acquire(&store, "b", 2, LONG).await, Transient, "is a replica");
    // Of which one is that of the question.
    assert!(connections() - before >= 2, "the old connection is not kept");
    server.command(&["REPLICAOF", "NO", "ONE"]).ok();
    assert_eq!(until_renewed(&store, "a", 1, token).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_script_of_somebody_that_does_not_end_is_waited_for() {
    let server = Arc::new(Redis::with(Config::new().set("busy-reply-threshold", "20")));
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    let endless = {
        let server = Arc::clone(&server);
        thread::spawn(move || server.command(&["EVAL", "while true do end", "0"]).error())
    };
    let error = loop {
        match renew(&store, "a", 1, token, LONG).await {
            Ok(renewed) => assert_eq!(renewed, Renewed::Renewed),
            Err(error) => break error,
        }
    };
    fails(Err::<(), _>(error), Transient, "BUSY");
    server.command(&["SCRIPT", "KILL"]).ok();
    endless.join().unwrap();
    assert_eq!(until_renewed(&store, "a", 1, token).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_server_that_can_not_save_says_so() {
    let server = Redis::start();
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    // It can't put its file where a folder is.
    fs::create_dir(server.folder().join("dump.rdb")).unwrap();
    server.command(&["CONFIG", "SET", "save", "100000 100000"]).ok();
    server.command(&["BGSAVE"]);
    eventually("the failure to save", || (server.info("rdb_last_bgsave_status") == "err").then_some(()));
    let message = fails(acquire(&store, "b", 2, LONG).await, Transient, "MISCONF");
    assert!(message.contains("see its log"), "{message}");
    fs::remove_dir(server.folder().join("dump.rdb")).unwrap();
    server.command(&["CONFIG", "SET", "save", ""]).ok();
    assert!(granted(&store, "b", 2).await > token);
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_server_with_too_many_clients_is_asked_again() {
    let server = Redis::start();
    let store = store(&server.url());
    let client = server.client();
    server.command(&["CONFIG", "SET", "maxclients", "1"]).ok();
    // What it says is lost if it closes the connection before it has read what we send.
    let message = fails(acquire(&store, "a", 1, LONG).await, Transient, "clients");
    assert!(message.contains("max number of clients") || message.contains("too many clients"), "{message}");
    drop(client);
    let begun = tenure_store::clock::now();
    while let Err(error) = acquire(&store, "a", 1, LONG).await {
        assert_eq!(error.kind, Transient, "{error}");
        assert!(tenure_store::clock::now().saturating_since(begun) < LONG, "{error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_login_that_is_not_valid_any_more_is_mended_without_a_restart() {
    let server = Redis::with(Config::new().user("some", "on >secret ~* &* +@all"));
    let store = store(&format!("redis://some:secret@{}", server.address()));
    let token = granted(&store, "a", 1).await;
    // This ends the connections of the user, too.
    server.command(&["ACL", "SETUSER", "some", "off"]).ok();
    disconnect(&server);
    let error = loop {
        match renew(&store, "a", 1, token, LONG).await {
            Err(error) if error.kind == Rejected => break error,
            other => assert!(other != Ok(Renewed::NotYours), "{other:?}"),
        }
    };
    assert!(error.message.contains("WRONGPASS") && !error.message.contains("secret"), "{error}");
    server.command(&["ACL", "SETUSER", "some", "on"]).ok();
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
}
