//! Leases in a bucket: what ends them, what passes them on, and what of an answer that was lost.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Candidate, Runtime, after, run, until};
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use serde_json::Value;
use tenure_nats::NatsStore;
use tenure_servers::{Nats, NatsCluster, Proxy};
use tenure_store::StoreErrorKind::{Transient, Unknown};
use tenure_store::core::Token;
use tenure_store::{Acquired, Answer, Eviction, Operation, Released, Renewed, Store, clock};

/// Whole seconds: what the server ends and what is asked for are the same then.
const SHORT: Duration = Duration::from_secs(1);

fn store(url: &str) -> NatsStore {
    NatsStore::from_url(url).unwrap()
}

/// What the server says of the bucket.
fn state(server: &Nats) -> Value {
    let info = server.client().request("$JS.API.STREAM.INFO.KV_tenure", b"").expect("an answer");
    let info: Value = serde_json::from_slice(&info).unwrap();
    info["state"].clone()
}

async fn until_over(store: &NatsStore, candidate: &Candidate) {
    until("the end of a lease", async || {
        store.inspect(candidate.name.clone()).await.expect("inspecting works").is_none().then_some(())
    })
    .await;
}

mod needs_nats {
    use super::*;

    /// C036: what is made again over the trace of a record that was removed has an end of its own.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_lease_taken_over_the_trace_of_a_release_ends() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let store = store(&server.url());
            let first = Candidate::new("a", 1).ttl(SHORT);
            let token = first.gets(&store).await;
            first.releases(&store, token).await;
            let next = Candidate::new("a", 2).ttl(SHORT);
            assert!(next.gets(&store).await > token);
            until_over(&store, &next).await;
        });
    }

    /// C037: the same over the trace of one that has ended by itself, more than once.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_lease_taken_over_the_trace_of_an_expired_one_ends() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let store = store(&server.url());
            let mut highest = Token::ZERO;
            for process in 0..3 {
                let holder = Candidate::new("a", process).ttl(SHORT);
                let token = holder.gets(&store).await;
                assert!(token > highest);
                highest = token;
                until_over(&store, &holder).await;
            }
        });
    }

    /// C038: a renewal has an end, too.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_lease_that_was_renewed_ends() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let store = store(&server.url());
            let holder = Candidate::new("a", 1).ttl(SHORT);
            let token = holder.gets(&store).await;
            assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
            assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
            until_over(&store, &holder).await;
            assert_eq!(holder.renews(&store, token).await, Renewed::NotYours);
        });
    }

    /// C021: whoever has seen a write unchanged for longer than its TTL takes over, whether or not the server ends it; and
    /// each write begins the wait anew. A record without a TTL of the server's stands for one that it forgot to end.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_record_that_the_server_never_ends_is_taken_over_once_its_ttl_is_over() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let store = store(&server.url());
            let candidate = Candidate::new("a", 1).ttl(SHORT);
            until_over(&store, &candidate).await;
            let record = br#"{"v":1,"owner":"other/1","ttl":1000000000,"since":0}"#;
            let mut client = server.client();
            let mut write = || client.publish("$KV.tenure.lease.ka", &[], record).expect("an answer");
            let mut written = clock::now();
            write();
            // It is seen, and written again before its time is over.
            candidate.is_refused(&store).await;
            for _ in 0..3 {
                after(SHORT / 2).await;
                written = clock::now();
                write();
                candidate.is_refused(&store).await;
            }
            let token = until("a take-over", async || match candidate.tries(&store).await {
                Ok(Acquired::Granted(token)) => Some(token),
                Ok(Acquired::Held(_)) => None,
                Err(error) => panic!("{error}"),
            })
            .await;
            let waited = clock::now().saturating_since(written);
            assert!(
                waited >= SHORT,
                "its owner relies on it for {SHORT:?}, and it was taken after {waited:?}"
            );
            assert_eq!(candidate.renews(&store, token).await, Renewed::Renewed);
        });
    }

    /// C026: a renewal that was carried out, whose answer was lost, is found by the next one: it is no loss.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_renewal_whose_answer_was_lost_is_found_by_the_next_one() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let proxy = Proxy::to(server.address());
            let store = store(&format!("nats://{}", proxy.address()));
            let holder = Candidate::new("a", 1);
            let token = holder.gets(&store).await;
            let before = state(&server)["last_seq"].as_u64();
            proxy.drop_replies();
            let mut renewal = holder.renew(token);
            renewal.timeout = Duration::from_millis(300);
            let lost = run(&store, renewal.into()).await.expect_err("no answer comes");
            assert_eq!(lost.kind, Unknown, "{lost}");
            let carried_out = async || (state(&server)["last_seq"].as_u64() > before).then_some(());
            until("the renewal to be carried out", carried_out).await;
            proxy.restore();
            proxy.close();
            assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
            assert_eq!(holder.gets(&store).await, token, "it is the same grant");
        });
    }

    /// The same of a grant: whoever asks again has it, with the token that it had.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_grant_whose_answer_was_lost_is_confirmed_with_its_token() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let proxy = Proxy::to(server.address());
            let store = store(&format!("nats://{}", proxy.address()));
            let candidate = Candidate::new("a", 1);
            // What is read before is answered.
            until_over(&store, &candidate).await;
            let mut client = server.client();
            client.subscribe("$KV.tenure.lease.ka").expect("the server is up");
            // Once it has answered it has heard of that, too.
            client.request("$JS.API.STREAM.INFO.KV_tenure", b"").expect("an answer");
            let mut request = candidate.acquire();
            request.timeout = Duration::from_millis(500);
            let asked = run(&store, request.into());
            let lost = async {
                tokio::task::spawn_blocking(move || client.next_message().expect("the grant is sent")).await
            };
            // The answer may be faster than we are, and then nothing was lost.
            let (asked, sent) = futures::future::join(asked, async {
                let sent = lost.await.expect("a message");
                proxy.drop_replies();
                sent
            })
            .await;
            assert!(sent.headers.contains("Nats-TTL: 60s"), "{sent:?}");
            proxy.restore();
            proxy.close();
            let token = candidate.gets(&store).await;
            if let Ok(Answer::Acquire(Acquired::Granted(granted))) = asked {
                assert_eq!(token, granted);
            }
            Candidate::new("a", 2).is_refused(&store).await;
        });
    }

    /// A grant that was asked for and never answered may come late. Once its release was answered it must not.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_grant_that_comes_after_its_release_is_refused() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let store = store(&server.url());
            let candidate = Candidate::new("a", 1);
            until_over(&store, &candidate).await;
            let mut release = candidate.release(Token::ZERO);
            release.token = None;
            let released = run(&store, Operation::Release(release)).await;
            assert_eq!(released, Ok(Answer::Release(Released::NotYours)));
            // As it was sent before: there was nothing then.
            let record = br#"{"v":1,"owner":"host/x.0","ttl":60000000000,"since":0}"#;
            let headers = ["Nats-Expected-Last-Subject-Sequence: 0", "Nats-TTL: 60s"];
            let answer = server.client().publish("$KV.tenure.lease.ka", &headers, record).expect("an answer");
            assert!(String::from_utf8_lossy(&answer).contains("10071"), "it came first");
            Candidate::new("a", 2).gets(&store).await;
        });
    }

    /// C137: what was sent before the connection broke and comes after it does no harm, and is no loss.
    #[test]
    #[ignore = "needs nats-server"]
    fn renewals_that_a_reconnection_has_mixed_up_lose_nothing() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let proxy = Proxy::to(server.address());
            let store = store(&format!("nats://{}", proxy.address()));
            let holder = Candidate::new("a", 1);
            let token = holder.gets(&store).await;
            for _ in 0..10 {
                let renewals = (0..8).map(|_| {
                    let mut renewal = holder.renew(token);
                    renewal.timeout = Duration::from_millis(400);
                    run(&store, renewal.into())
                });
                let (outcomes, ()) = futures::future::join(join_all(renewals), async { proxy.close() }).await;
                for outcome in outcomes {
                    match outcome {
                        Ok(Answer::Renew(Renewed::Renewed)) => {}
                        Err(error) => assert!(matches!(error.kind, Unknown | Transient), "{error}"),
                        other => panic!("the lease was never lost: {other:?}"),
                    }
                }
            }
            assert_eq!(holder.renews(&store, token).await, Renewed::Renewed);
            Candidate::new("a", 2).is_refused(&store).await;
        });
    }

    /// C044: only the server's and the bucket's own marks make a record a trace. What else stands there, even nothing, is
    /// held by somebody until it is deleted.
    #[test]
    #[ignore = "needs nats-server"]
    fn what_is_no_record_is_held_and_a_trace_is_free() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let store = store(&server.url());
            let candidate = Candidate::new("a", 1);
            until_over(&store, &candidate).await;
            let mut client = server.client();
            for foreign in [&b""[..], b"x", b"{}", br#"{"v":2,"owner":"newer"}"#, b"\xff"] {
                client.publish("$KV.tenure.lease.ka", &["Nats-TTL: 60s"], foreign).expect("an answer");
                let holder = candidate.is_refused(&store).await;
                assert!(holder.problem.is_some(), "{holder:?}");
                let refused = store.evict(candidate.name.clone(), Eviction::Replace).await;
                assert!(refused.is_err(), "{refused:?}");
                store.evict(candidate.name.clone(), Eviction::Delete).await.expect("deleting works");
                let token = candidate.gets(&store).await;
                candidate.releases(&store, token).await;
            }
            // As `nats kv del` and `nats kv purge` leave it.
            for mark in ["KV-Operation: DEL", "KV-Operation: PURGE"] {
                client.publish("$KV.tenure.lease.ka", &[mark], b"").expect("an answer");
                let token = candidate.gets(&store).await;
                candidate.releases(&store, token).await;
            }
            client.publish("$KV.tenure.lease.ka", &[], b"x").expect("an answer");
            let holder = candidate.is_refused(&store).await;
            assert_eq!(holder.remaining, None);
            assert!(holder.problem.unwrap().contains("no TTL"));
        });
    }

    /// C045, and that nothing leaks: 10,000 leases taken and given back side by side, a thousand that nobody ends, all
    /// without an error that only contention explains; and afterwards the bucket is as empty as before.
    #[test]
    #[ignore = "needs nats-server"]
    fn ten_thousand_leases_leave_nothing_behind() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            // Traces of what ends by itself are kept for a minute by default; for this test a second is enough.
            let made = server.client().request(
                "$JS.API.STREAM.CREATE.KV_tenure",
                br#"{"name":"KV_tenure","subjects":["$KV.tenure.>"],"max_msgs_per_subject":1,"storage":"file",
                    "retention":"limits","discard":"new","allow_rollup_hdrs":true,"allow_msg_ttl":true,
                    "subject_delete_marker_ttl":1000000000,"first_seq":1800000000000000,"num_replicas":1}"#,
            );
            assert!(!String::from_utf8_lossy(&made.expect("an answer")).contains("error"));
            let stores: Vec<Arc<NatsStore>> = (0..4).map(|_| Arc::new(store(&server.url()))).collect();
            stream::iter(0..10_000_u128)
                .for_each_concurrent(64, |number| {
                    let store = Arc::clone(&stores[(number % 4) as usize]);
                    async move {
                        // A name is taken by four in turn.
                        let candidate = Candidate::new(&format!("{}", number / 4 % 500), number);
                        match candidate.tries(&*store).await {
                            Ok(Acquired::Granted(token)) => {
                                let released = candidate.releases(&*store, token).await;
                                assert_ne!(released, Released::NotYours, "{number}");
                            }
                            Ok(Acquired::Held(_)) => {}
                            Err(error) => panic!("{number}: {error}"),
                        }
                    }
                })
                .await;
            stream::iter(0..1000_u128)
                .for_each_concurrent(64, |number| {
                    let store = Arc::clone(&stores[0]);
                    async move {
                        Candidate::new(&format!("left {number}"), number).ttl(SHORT).gets(&*store).await;
                    }
                })
                .await;
            until("an empty bucket", async || (state(&server)["messages"] == 0).then_some(())).await;
        });
    }

    /// C020: what a server says that is behind the others decides nothing, and whoever asks is told what was acknowledged.
    #[test]
    #[ignore = "needs nats-server"]
    fn three_servers_say_the_same_of_a_lease() {
        let cluster = NatsCluster::start();
        Runtime::tokio().block_on(async {
            let stores: Vec<NatsStore> = cluster
                .servers()
                .iter()
                .map(|server| store(&format!("{}?replicas=3&connect_timeout=20s", server.url())))
                .collect();
            let mut highest = Token::ZERO;
            for number in 0..60_usize {
                let (by, asked) = (&stores[number % 3], &stores[(number + 1) % 3]);
                let holder = Candidate::new("a", number as u128);
                let token = holder.gets(by).await;
                assert!(token > highest, "{token} is above {highest}");
                highest = token;
                let found = asked.inspect(holder.name.clone()).await.expect("inspecting works");
                let found = found.expect("it is held").holder;
                assert_eq!((found.owner, found.token), (holder.owner.to_string(), Some(token)));
                Candidate::new("a", 1000).is_refused(asked).await;
                holder.releases(by, token).await;
            }
        });
    }

    /// Whoever holds a lease keeps it, with its token, over the death of the server that leads the bucket, if the TTL is
    /// longer than an election.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_lease_outlives_the_server_that_leads() {
        let cluster = NatsCluster::start();
        Runtime::tokio().block_on(async {
            let store = store(&format!("{}?replicas=3&connect_timeout=20s", cluster.url()));
            let holder = Candidate::new("a", 1);
            let token = holder.gets(&store).await;
            let leader = cluster.leader("KV_tenure").expect("it has a leader");
            cluster.servers()[leader].kill();
            until("a renewal", async || {
                let mut renewal = holder.renew(token);
                renewal.timeout = Duration::from_secs(1);
                match run(&store, renewal.into()).await {
                    Ok(Answer::Renew(Renewed::Renewed)) => Some(()),
                    Err(error) => {
                        assert!(matches!(error.kind, Unknown | Transient), "{error}");
                        None
                    }
                    other => panic!("the lease was never lost: {other:?}"),
                }
            })
            .await;
            Candidate::new("a", 2).is_refused(&store).await;
            holder.releases(&store, token).await;
            assert!(Candidate::new("a", 2).gets(&store).await > token);
        });
    }

    /// A server that stands still is left for another, and what it says when it goes on decides nothing.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_lease_outlives_a_server_that_freezes() {
        let cluster = NatsCluster::start();
        Runtime::tokio().block_on(async {
            let store = store(&format!("{}?replicas=3&connect_timeout=20s", cluster.url()));
            let holder = Candidate::new("a", 1).ttl(Duration::from_secs(600));
            let token = holder.gets(&store).await;
            for frozen in cluster.servers() {
                frozen.freeze();
                for (what, thawed) in [("a renewal beside it", false), ("a renewal after it", true)] {
                    if thawed {
                        frozen.thaw();
                    }
                    until(what, async || {
                        let mut renewal = holder.renew(token);
                        renewal.timeout = Duration::from_secs(1);
                        match run(&store, renewal.into()).await {
                            Ok(Answer::Renew(Renewed::Renewed)) => Some(()),
                            Err(error) => {
                                assert!(matches!(error.kind, Unknown | Transient), "{error}");
                                None
                            }
                            other => panic!("the lease was never lost: {other:?}"),
                        }
                    })
                    .await;
                }
                cluster.settled();
            }
            let holder = store.inspect(holder.name.clone()).await.expect("inspecting works");
            assert_eq!(holder.expect("it is held").holder.token, Some(token));
        });
    }
}
