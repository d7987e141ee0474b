//! Connecting: how often, for how long, and to what.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use tenure_servers::{Config, Proxy, Redis, eventually};
use tenure_store::StoreErrorKind::{Rejected, Transient, Unsupported};
use tenure_store::{Acquired, clock};

use crate::ops::{LONG, SHORT, acquire, connections_to, fails, granted, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_thousand_requests_share_one_connection() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    proxy.delay(Duration::from_millis(20));
    let store = store(&proxy.url());
    let names: Vec<_> = (0..1000).map(|n| format!("lease-{n}")).collect();
    let outcomes = join_all(names.iter().map(|name| acquire(&store, name, 1, LONG))).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Acquired::Granted(_)))));
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn requests_without_number_make_few_attempts_to_connect() {
    let server = Redis::start();
    // It accepts connections and closes them at once, since nobody is there.
    let proxy = Proxy::to(server.address());
    server.kill();
    let store = store(&proxy.url());
    let begun = clock::now();
    let mut requests = 0;
    while clock::now().saturating_since(begun) < Duration::from_secs(1) {
        for outcome in join_all((0..200).map(|n| acquire(&store, "a", n, LONG))).await {
            fails(outcome, Transient, "can't connect");
            requests += 1;
        }
    }
    assert!(requests >= 600, "{requests} requests");
    assert!(proxy.accepted() <= 20, "{} connections for {requests} requests", proxy.accepted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn connecting_goes_on_when_a_request_gives_up() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    // A handshake takes longer than the request may.
    proxy.delay(Duration::from_millis(75));
    let store = store(&proxy.url());
    let begun = clock::now();
    fails(acquire(&store, "a", 1, Duration::from_millis(50)).await, Transient, "not connected to");
    let passed = clock::now().saturating_since(begun);
    assert!(passed < Duration::from_secs(5), "it may not wait longer than asked to: {passed:?}");
    granted(&store, "a", 1).await;
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn an_attempt_that_was_made_into_a_hole_is_not_waited_for() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    proxy.stall();
    let store = store(&proxy.url());
    fails(acquire(&store, "a", 1, SHORT).await, Transient, "not connected to");
    assert_eq!(proxy.accepted(), 1);
    proxy.restore();
    // What was begun in the hole stays dead, and would be given up only after five seconds.
    let begun = clock::now();
    granted(&store, "a", 1).await;
    let passed = clock::now().saturating_since(begun);
    assert!(passed < Duration::from_secs(4), "{passed:?}");
    assert_eq!(proxy.accepted(), 2);
    eventually("the dead attempt to be closed", || (connections_to(proxy.port()) == 1).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_server_without_scripts_is_refused_at_once_and_says_so() {
    let server = Redis::with(Config::new().set("rename-command", "EVAL gone"));
    let store = store(&server.url());
    let message = fails(acquire(&store, "a", 1, LONG).await, Unsupported, "scripts can't be run");
    assert!(message.contains("unknown command 'EVAL'") && message.contains("scripting"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_user_who_may_run_no_scripts_is_told_the_command() {
    let server = Redis::with(Config::new().user("some", "on >secret ~* &* -@all +ping"));
    let store = store(&format!("redis://some:secret@{}", server.address()));
    let message = fails(acquire(&store, "a", 1, LONG).await, Rejected, "scripts can't be run");
    assert!(message.contains("'eval'") && message.contains("permission"), "{message}");
    assert!(!message.contains("secret"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_wrong_password_is_rejected_without_being_told() {
    let server = Redis::with(Config::new().password("right"));
    let wrong = store(&format!("redis://:hunter2@{}", server.address()));
    let message = fails(acquire(&wrong, "a", 1, LONG).await, Rejected, "WRONGPASS");
    assert!(!message.contains("hunter2"), "{message}");
    let none = store(&format!("redis://{}", server.address()));
    fails(acquire(&none, "a", 1, LONG).await, Rejected, "NOAUTH");
    granted(&store(&server.url()), "a", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_replica_is_used_once_it_is_the_primary() {
    let server = Redis::start();
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).ok();
    let store = store(&server.url());
    fails(acquire(&store, "a", 1, LONG).await, Transient, "is a replica");
    server.command(&["REPLICAOF", "NO", "ONE"]).ok();
    granted(&store, "a", 1).await;
}

/// A server that says this to everything; its port.
fn saying(answer: &'static str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { break };
            thread::spawn(move || {
                while stream.read(&mut [0; 1024]).is_ok_and(|length| length > 0) {
                    if stream.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis, as those beside it"]
async fn what_is_no_server_of_redis_is_told_from_one_that_is_too_old() {
    let web = store(&format!("redis://127.0.0.1:{}", saying("HTTP/1.1 400 Bad Request\r\n\r\n")));
    fails(acquire(&web, "a", 1, LONG).await, Rejected, "does not speak the protocol of Redis");
    let line =
        "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `hunter2`, \r\n";
    let old = store(&format!("redis://:hunter2@127.0.0.1:{}", saying(line)));
    let message = fails(acquire(&old, "a", 1, LONG).await, Unsupported, "Redis 6 or newer");
    assert!(!message.contains("hunter2"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis, as those beside it"]
async fn a_name_that_nobody_knows_may_be_known_later() {
    let store = store("redis://no-such-host.invalid:6379");
    fails(acquire(&store, "a", 1, LONG).await, Transient, "can't connect to no-such-host.invalid:6379");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis, as those beside it"]
async fn a_server_that_stays_silent_takes_the_connect_timeout_and_no_longer() {
    let server = Redis::start();
    server.freeze();
    let store = store(&format!("{}?connect_timeout=300ms", server.url()));
    let message = fails(acquire(&store, "a", 1, LONG).await, Transient, "took longer than 300ms");
    assert!(message.contains(&server.address().to_string()), "{message}");
    server.thaw();
    granted(&store, "a", 1).await;
}
