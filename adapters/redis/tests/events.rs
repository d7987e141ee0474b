//! What is logged of the connection.

#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "other tests use more of what is shared")]

#[path = "faults/ops.rs"]
mod ops;

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tenure_servers::Redis;
use tracing_subscriber::fmt::MakeWriter;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// The lines of this event at this server.
    fn lines(&self, event: &str, server: &Redis) -> Vec<String> {
        let (field, address) = (format!("event=\"{event}\""), server.address().to_string());
        let all = self.text();
        let lines = all.lines().filter(|line| line.contains(&field) && line.contains(&address));
        lines.map(str::to_owned).collect()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
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

/// What this process logs; to be asked for before anything could be.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log
});

mod needs_redis {
    use std::time::Duration;

    use tenure_servers::{Config, Redis};
    use tenure_store::clock;

    use super::LOG;
    use crate::ops::{LONG, granted, renew, store, until_renewed};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[ignore = "needs redis"]
    async fn a_server_that_may_evict_leases_is_warned_of_once() {
        let log = &*LOG;
        let server = Redis::with(
            Config::new()
                .set("maxmemory", "100mb")
                .set("maxmemory-policy", "volatile-lru")
                .password("hunter2"),
        );
        let store = store(&server.url());
        let token = granted(&store, "a", 1).await;
        let warnings = log.lines("redis.eviction_policy", &server);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for part in ["WARN tenure_redis", "volatile-lru", "noeviction", &server.address().to_string()] {
            assert!(warnings[0].contains(part), "{part} is not in {}", warnings[0]);
        }
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).integer();
        until_renewed(&store, "a", 1, token).await;
        assert_eq!(log.lines("redis.connected", &server).len(), 2);
        assert_eq!(log.lines("redis.lost", &server).len(), 1);
        assert_eq!(log.lines("redis.eviction_policy", &server).len(), 1, "not with every connection");
        assert!(!log.text().contains("hunter2"), "{}", log.text());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[ignore = "needs redis"]
    async fn nobody_is_warned_of_a_server_that_evicts_nothing_or_does_not_tell() {
        let log = &*LOG;
        let keeps =
            Redis::with(Config::new().set("maxmemory", "100mb").set("maxmemory-policy", "noeviction"));
        granted(&store(&keeps.url()), "a", 1).await;
        let silent = Redis::with(
            Config::new()
                .set("maxmemory", "100mb")
                .set("maxmemory-policy", "allkeys-lru")
                .user("some", "on >secret ~* &* +@all -info -config"),
        );
        granted(&store(&format!("redis://some:secret@{}", silent.address())), "a", 1).await;
        for server in [&keeps, &silent] {
            assert_eq!(log.lines("redis.connected", server).len(), 1);
            assert_eq!(log.lines("redis.eviction_policy", server), Vec::<String>::new());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[ignore = "needs redis"]
    async fn a_server_that_is_down_is_warned_of_once() {
        let log = &*LOG;
        let server = Redis::start();
        let store = store(&server.url());
        let token = granted(&store, "a", 1).await;
        server.kill();
        for _ in 0..6 {
            renew(&store, "a", 1, token, LONG).await.unwrap_err();
        }
        assert_eq!(log.lines("redis.lost", &server).len(), 1);
        assert_eq!(log.lines("redis.cannot_connect", &server).len(), 1);
        assert!(log.lines("redis.cannot_connect_yet", &server).len() >= 3);
        server.restart();
        let begun = clock::now();
        while let Err(error) = renew(&store, "a", 1, token, LONG).await {
            assert!(clock::now().saturating_since(begun) < LONG, "{error}");
        }
        assert_eq!(log.lines("redis.connected", &server).len(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[ignore = "needs redis"]
    async fn a_server_that_closes_idle_connections_is_warned_of_once() {
        let log = &*LOG;
        let server = Redis::with(Config::new().set("timeout", "1"));
        let store = store(&server.url());
        for closed in 0..3 {
            granted(&store, &format!("lease-{closed}"), 1).await;
            let lost =
                || log.lines("redis.lost", &server).len() + log.lines("redis.lost_again", &server).len();
            let begun = clock::now();
            while lost() <= closed {
                assert!(clock::now().saturating_since(begun) < LONG, "it was not closed");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let warnings = log.lines("redis.lost", &server);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("set its timeout to 0"), "{warnings:?}");
    }
}
