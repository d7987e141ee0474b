//! Connections that end, fall silent, or lose what they carry.

use std::pin::pin;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use tenure_servers::{Proxy, Redis, eventually};
use tenure_store::StoreErrorKind::{Transient, Unknown};
use tenure_store::core::Wake;
use tenure_store::{Acquired, Hint, Released, Renewed, Store, clock};

use crate::ops::{
    LONG, SHORT, acquire, connections_to, fails, granted, name, release, renew, store, until_renewed,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn scripts_that_the_server_has_forgotten_are_sent_again_on_every_path() {
    let server = Redis::start();
    let store = store(&server.url());
    let forget = || server.command(&["SCRIPT", "FLUSH"]).ok();
    forget();
    let token = granted(&store, "a", 1).await;
    forget();
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
    forget();
    assert!(matches!(acquire(&store, "a", 2, LONG).await, Ok(Acquired::Held(_))));
    forget();
    assert_eq!(
        release(&store, "a", 1, Some(token), LONG).await,
        Ok(Released::Released { others_chosen: false })
    );
    assert!(granted(&store, "a", 2).await > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_connection_that_is_closed_costs_at_most_one_request() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let store = store(&proxy.url());
    let token = granted(&store, "a", 1).await;
    for round in 2..5 {
        proxy.close();
        let failures = until_renewed(&store, "a", 1, token).await;
        assert!(failures <= 1, "{failures} requests failed");
        assert_eq!(proxy.accepted(), round, "one connection for each that was closed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_server_that_was_started_again_is_used_again_within_a_second() {
    let server = Redis::start();
    let store = store(&server.url());
    let token = granted(&store, "a", 1).await;
    server.kill();
    // Long enough for the pauses between the attempts to be at their longest.
    let down = clock::now();
    let mut failures = 0;
    while clock::now().saturating_since(down) < Duration::from_millis(1500) {
        let error = renew(&store, "a", 1, token, LONG).await.unwrap_err();
        assert!(matches!(error.kind, Transient | Unknown), "{error}");
        failures += 1;
    }
    assert!(failures < 30, "{failures} attempts to connect: they are not to come without a pause");
    server.restart();
    let up = clock::now();
    // It has lost everything, and says so.
    loop {
        match renew(&store, "a", 1, token, LONG).await {
            Ok(renewed) => break assert_eq!(renewed, Renewed::NotYours),
            Err(error) => assert_eq!(error.kind, Transient, "{error}"),
        }
    }
    let passed = clock::now().saturating_since(up);
    assert!(passed < Duration::from_secs(1), "{passed:?}");
    assert!(granted(&store, "a", 2).await > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn a_half_open_connection_is_replaced_after_two_silences() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let store = store(&proxy.url());
    let token = granted(&store, "a", 1).await;
    // What is open stays dead for good; what is new works.
    proxy.stall();
    proxy.restore();
    for _ in 0..2 {
        assert_eq!(proxy.accepted(), 1);
        fails(renew(&store, "a", 1, token, SHORT).await, Unknown, "did not answer in time");
    }
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
    assert_eq!(proxy.accepted(), 2);
    eventually("the dead connection to be closed", || (connections_to(proxy.port()) == 1).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn requests_that_time_out_side_by_side_are_one_silence() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let store = store(&proxy.url());
    let token = granted(&store, "a", 1).await;
    server.freeze();
    let many = (0..100).map(|_| renew(&store, "a", 1, token, SHORT));
    for outcome in join_all(many).await {
        fails(outcome, Unknown, "did not answer in time");
    }
    server.thaw();
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
    assert_eq!(proxy.accepted(), 1, "a server that was busy for a while keeps its connection");
    // What it answered has ended the silence.
    server.freeze();
    fails(renew(&store, "a", 1, token, SHORT).await, Unknown, "did not answer in time");
    server.thaw();
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn an_acquire_whose_answer_was_lost_is_confirmed_when_asked_again() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let store = store(&proxy.url());
    granted(&store, "other", 1).await;
    proxy.drop_replies();
    fails(acquire(&store, "a", 1, SHORT).await, Unknown, "did not answer in time");
    fails(acquire(&store, "b", 1, SHORT).await, Unknown, "did not answer in time");
    proxy.restore();
    let kept = server.command(&["GET", "tenure:a"]).text();
    let token = granted(&store, "a", 1).await;
    assert!(kept.starts_with(&format!("{token}:")), "{token} is not that of {kept}");
    // Given up, it is released without its token.
    let released = release(&store, "b", 1, None, LONG).await;
    assert_eq!(released, Ok(Released::Released { others_chosen: false }));
    granted(&store, "b", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn requests_that_nobody_waits_for_any_more_do_not_pile_up() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let store = store(&proxy.url());
    let token = granted(&store, "a", 1).await;
    server.freeze();
    for n in 0..5_000 {
        // Begun, and dropped.
        let outcome = pin!(acquire(&store, "a", 2 + n, LONG)).now_or_never();
        assert!(outcome.is_none());
        tokio::task::yield_now().await;
    }
    server.thaw();
    assert_eq!(renew(&store, "a", 1, token, LONG).await, Ok(Renewed::Renewed));
    assert_eq!(proxy.accepted(), 1);
}

#[test]
#[ignore = "needs redis"]
fn a_store_goes_on_in_another_runtime_when_that_of_its_connection_has_ended() {
    let server = Redis::start();
    let store = store(&server.url());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let token = runtime().block_on(granted(&store, "a", 1));
    let failures = runtime().block_on(until_renewed(&store, "a", 1, token));
    assert!(failures <= 1, "{failures} requests failed");
    let failures = runtime().block_on(until_renewed(&store, "a", 1, token));
    assert!(failures <= 1, "{failures} requests failed");
}

#[test]
#[ignore = "needs redis"]
fn an_attempt_to_connect_that_a_runtime_has_left_behind_is_made_again() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // One that stands still, and one that has ended.
    let stands_still = runtime();
    for ended in [false, true] {
        let store = store(&format!("{}?connect_timeout=500ms", proxy.url()));
        proxy.stall();
        let first = async { fails(acquire(&store, "a", 1, SHORT).await, Transient, "not connected to") };
        if ended {
            runtime().block_on(first)
        } else {
            stands_still.block_on(first)
        };
        proxy.restore();
        runtime().block_on(granted(&store, "a", 1));
    }
}

#[test]
#[ignore = "needs redis, as those beside it"]
fn without_a_runtime_the_store_says_so() {
    let store = store("redis://127.0.0.1:1");
    let outcome = smol::block_on(acquire(&store, "a", 1, SHORT));
    // With smol there is one everywhere.
    if cfg!(feature = "smol") {
        fails(outcome, Transient, "can't connect");
    } else {
        fails(outcome, tenure_store::StoreErrorKind::Rejected, "no runtime");
    }
}

#[cfg(feature = "smol")]
#[test]
#[ignore = "needs redis"]
fn connections_are_shared_and_heal_in_smol_as_in_tokio() {
    smol::block_on(async {
        let server = Redis::start();
        let proxy = Proxy::to(server.address());
        let store = store(&proxy.url());
        let tokens = join_all((0..100).map(|n| granted(&store, ["a", "b"][n % 2], (n % 2) as u64))).await;
        assert_eq!(proxy.accepted(), 1);
        proxy.close();
        assert!(until_renewed(&store, "b", 1, tokens[1]).await <= 1);
        assert_eq!(proxy.accepted(), 2);
        proxy.stall();
        proxy.restore();
        for _ in 0..2 {
            fails(renew(&store, "b", 1, tokens[1], SHORT).await, Unknown, "did not answer in time");
        }
        assert_eq!(renew(&store, "b", 1, tokens[1], LONG).await, Ok(Renewed::Renewed));
        assert_eq!(proxy.accepted(), 3);
        eventually("the dead connection to be closed", || (connections_to(proxy.port()) == 1).then_some(()));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn who_only_listens_notices_a_half_open_connection() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let listening = store(&proxy.url());
    let mut hints = listening.hints().expect("nobody has them yet");
    granted(&listening, "other", 1).await;
    listening.watch(name("a")).await.unwrap();
    proxy.stall();
    proxy.restore();
    // Nothing is asked for: it is up to the hints to find out.
    let hint = tokio::time::timeout(LONG, hints.next()).await.expect("it is found out");
    assert_eq!(hint, Some(Hint::Resync));
    assert_eq!(proxy.accepted(), 2);
    let direct = store(&server.url());
    let token = granted(&direct, "a", 2).await;
    let hint = tokio::time::timeout(LONG, hints.next()).await.expect("it is heard again");
    assert!(
        matches!(&hint, Some(Hint::Lease { name, wake: Wake::Held { token: told, .. } })
        if name.as_str() == "a" && *told == token),
        "{hint:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs redis"]
async fn who_only_listens_notices_a_closed_connection_at_once() {
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let listening = store(&proxy.url());
    let mut hints = listening.hints().expect("nobody has them yet");
    listening.watch(name("a")).await.unwrap();
    assert!(hints.next().now_or_never().is_none());
    let begun = clock::now();
    proxy.close();
    let hint = tokio::time::timeout(LONG, hints.next()).await.expect("it is found out");
    assert_eq!(hint, Some(Hint::Resync));
    // It would be asked whether it lives after five seconds.
    let passed = clock::now().saturating_since(begun);
    assert!(passed < Duration::from_secs(4), "{passed:?}");
    assert_eq!(proxy.accepted(), 2);
}
