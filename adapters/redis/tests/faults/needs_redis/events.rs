//! What is logged of the connection.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tenure_servers::{Config, Redis};
use tracing_subscriber::fmt::MakeWriter;

use crate::ops::{LONG, granted, renew, store, until_renewed};

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// The lines of this event.
    fn lines(&self, event: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let field = format!("event=\"{event}\"");
        text.lines().filter(|line| line.contains(&field)).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

// In these everything runs on this thread, which the subscriber is for.

#[tokio::test]
#[ignore = "needs redis"]
async fn a_server_that_may_evict_leases_is_warned_of_once() {
    let (log, _guard) = logged();
    let server = Redis::with(
        Config::new().set("maxmemory", "100mb").set("maxmemory-policy", "volatile-lru").password("hunter2"),
    );
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    let warnings = log.lines("redis.eviction_policy");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in ["WARN tenure_redis", "volatile-lru", "noeviction", &server.address().to_string()] {
        assert!(warnings[0].contains(part), "{part} is not in {}", warnings[0]);
    }
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).integer();
    until_renewed(&store, "a", 1, token).await;
    assert_eq!(log.lines("redis.connected").len(), 2);
    assert_eq!(log.lines("redis.lost").len(), 1);
    assert_eq!(log.lines("redis.eviction_policy").len(), 1, "not with every connection");
    let everything = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!everything.contains("hunter2"), "{everything}");
}

#[tokio::test]
#[ignore = "needs redis"]
async fn nobody_is_warned_of_a_server_that_evicts_nothing_or_does_not_tell() {
    let (log, _guard) = logged();
    let keeps = Redis::with(Config::new().set("maxmemory", "100mb").set("maxmemory-policy", "noeviction"));
    granted(&store(&keeps.url()), "a", 1).await;
    let silent = Redis::with(
        Config::new()
            .set("maxmemory", "100mb")
            .set("maxmemory-policy", "allkeys-lru")
            .user("some", "on >secret ~* &* +@all -info -config"),
    );
    granted(&store(&format!("redis://some:secret@{}", silent.address())), "a", 1).await;
    assert_eq!(log.lines("redis.connected").len(), 2);
    assert_eq!(log.lines("redis.eviction_policy"), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs redis"]
async fn a_server_that_is_down_is_warned_of_once() {
    let (log, _guard) = logged();
    let server = Redis::start();
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    server.kill();
    for _ in 0..6 {
        renew(&store, "a", 1, token, LONG).await.unwrap_err();
    }
    assert_eq!(log.lines("redis.lost").len(), 1);
    assert_eq!(log.lines("redis.cannot_connect").len(), 1);
    assert!(log.lines("redis.cannot_connect_yet").len() >= 3);
    server.restart();
    while renew(&store, "a", 1, token, LONG).await.is_err() {}
    assert_eq!(log.lines("redis.connected").len(), 2);
}
