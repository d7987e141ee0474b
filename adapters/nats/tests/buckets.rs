//! Servers and buckets as they are found: those that can be used, and those that are refused in plain words.

mod common;

use std::time::Duration;

use common::{Candidate, Runtime, run, until};
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use tenure_nats::NatsStore;
use tenure_servers::{Nats, NatsCluster, NatsConfig};
use tenure_store::StoreErrorKind::{Rejected, Unsupported};
use tenure_store::{Renewed, Store, StoreError};

const SHORT: Duration = Duration::from_secs(1);

fn store(url: &str) -> NatsStore {
    NatsStore::from_url(url).unwrap()
}

/// What a first operation says. It is given no more time than connecting may take: were it to wait for that, it would say so.
async fn refusal(store: &NatsStore) -> StoreError {
    let mut request = Candidate::new("a", 1).acquire();
    request.timeout = Duration::from_secs(5);
    run(store, request.into()).await.expect_err("it can't be used")
}

/// Makes the bucket with what follows behind its name and its subjects.
fn make(server: &Nats, settings: &str) {
    change(server, "CREATE", settings);
}

fn change(server: &Nats, how: &str, settings: &str) {
    let settings = format!(r#"{{"name":"KV_tenure","subjects":["$KV.tenure.>"],{settings}}}"#);
    let made = server.client().request(&format!("$JS.API.STREAM.{how}.KV_tenure"), settings.as_bytes());
    let made = String::from_utf8(made.expect("an answer")).unwrap();
    assert!(!made.contains("\"error\""), "{made}");
}

/// As the bucket is made, but for what is replaced.
fn settings(replaced: &[(&str, &str)]) -> String {
    let ours = [
        ("max_msgs_per_subject", "1"),
        ("storage", "\"file\""),
        ("retention", "\"limits\""),
        ("discard", "\"new\""),
        ("allow_rollup_hdrs", "true"),
        ("allow_msg_ttl", "true"),
        ("num_replicas", "1"),
        ("max_age", "0"),
    ];
    let value = |name: &str, ours: &str| {
        replaced
            .iter()
            .find(|(other, _)| *other == name)
            .map_or_else(|| ours.to_owned(), |(_, value)| (*value).to_owned())
    };
    ours.map(|(name, ours)| format!("{name:?}:{}", value(name, ours))).join(",")
}

async fn works(store: &NatsStore) {
    let holder = Candidate::new("works", 1).ttl(SHORT);
    let token = holder.gets(store).await;
    assert_eq!(holder.renews(store, token).await, Renewed::Renewed);
    until("the end of a lease", async || {
        store.inspect(holder.name.clone()).await.expect("inspecting works").is_none().then_some(())
    })
    .await;
}

mod needs_nats {
    use super::*;

    /// C050: many that begin at once make one bucket, and all of them go on.
    #[test]
    #[ignore = "needs nats-server"]
    fn twenty_that_begin_at_once_make_one_bucket() {
        let runtime = Runtime::tokio();
        let begin = async |url: &str| {
            let stores: Vec<NatsStore> = (0..20).map(|_| store(url)).collect();
            let taken = stores.iter().enumerate().map(async |(number, store)| {
                let candidate = Candidate::new(&format!("{number}"), number as u128);
                candidate.gets(store).await
            });
            let mut tokens = join_all(taken).await;
            tokens.sort_unstable();
            tokens.dedup();
            assert_eq!(tokens.len(), 20, "all are of one bucket");
        };
        let alone = Nats::start();
        runtime.block_on(begin(&alone.url()));
        let cluster = NatsCluster::start();
        runtime.block_on(begin(&format!("{}?replicas=3&connect_timeout=20s", cluster.url())));
    }

    /// C040, C048: a bucket that others have made is refused if it can't work, with what is wrong, and is not changed.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_bucket_that_can_not_work_is_refused_with_what_is_wrong() {
        let runtime = Runtime::tokio();
        for (name, value, says) in [
            ("max_msgs_per_subject", "5", "history"),
            ("max_age", "30000000000", "max_age"),
            ("allow_rollup_hdrs", "false", "allow_rollup_hdrs"),
            ("retention", "\"interest\"", "retention"),
        ] {
            let server = Nats::start();
            make(&server, &settings(&[(name, value)]));
            let error = runtime.block_on(refusal(&store(&server.url())));
            assert_eq!(error.kind, Unsupported, "{error}");
            assert!(error.message.contains(says) && error.message.contains("tenure"), "{name}: {error}");
        }
    }

    /// C048: where it can work, it does.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_bucket_that_is_only_different_is_used() {
        let server = Nats::start();
        make(&server, &settings(&[("storage", "\"memory\"")]));
        Runtime::tokio().block_on(works(&store(&server.url())));
    }

    /// C042: TTLs that were switched on later count.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_bucket_without_ttls_is_refused_until_they_are_switched_on() {
        let server = Nats::start();
        make(&server, &settings(&[("allow_msg_ttl", "false")]));
        Runtime::tokio().block_on(async {
            let store = store(&server.url());
            let error = refusal(&store).await;
            assert!(error.kind == Unsupported && error.message.contains("allow_msg_ttl"), "{error}");
            change(&server, "UPDATE", &settings(&[]));
            works(&store).await;
        });
    }

    /// A bucket that vanishes is made again, and its tokens are above those that it had.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_bucket_that_was_deleted_is_made_again_with_higher_tokens() {
        let server = Nats::start();
        Runtime::tokio().block_on(async {
            let store = store(&server.url());
            let holder = Candidate::new("a", 1);
            let token = holder.gets(&store).await;
            server.client().request("$JS.API.STREAM.DELETE.KV_tenure", b"").expect("an answer");
            let renewed =
                until("a definite answer", async || run(&store, holder.renew(token).into()).await.ok());
            assert_eq!(renewed.await, tenure_store::Answer::Renew(Renewed::NotYours));
            let next = Candidate::new("a", 2).gets(&store).await;
            assert!(next > token, "{next} is above {token}");
        });
    }

    /// C041: servers that can't do it, or do it wrong, are refused with their version and the one that is needed.
    #[test]
    #[ignore = "needs nats-server"]
    fn servers_that_are_too_old_are_refused() {
        for version in ["2.10.26", "2.12.0"] {
            let config = NatsConfig::new().version(version);
            if !config.is_installed() {
                println!("no nats-server {version}: left out");
                continue;
            }
            let server = Nats::with(config);
            let error = Runtime::tokio().block_on(refusal(&store(&server.url())));
            assert_eq!(error.kind, Unsupported, "{error}");
            assert!(error.message.contains(version) && error.message.contains("2.11.10"), "{error}");
        }
    }

    /// Those that are named as good end leases in time also while others are renewed all the time: what others do not.
    #[test]
    #[ignore = "needs nats-server"]
    fn servers_that_are_taken_end_leases_amid_renewals() {
        for version in ["2.11.10", "2.12.8", "2.14.6", "2.15.1"] {
            let config = NatsConfig::new().version(version);
            if !config.is_installed() {
                println!("no nats-server {version}: left out");
                continue;
            }
            let server = Nats::with(config);
            Runtime::tokio().block_on(async {
                let store = store(&server.url());
                let renewing = Candidate::new("renewed", 0);
                let token = renewing.gets(&store).await;
                let left: Vec<Candidate> =
                    (1..20).map(|number| Candidate::new(&format!("{number}"), number).ttl(SHORT)).collect();
                for candidate in &left {
                    candidate.gets(&store).await;
                }
                // By the server alone: nobody else looks at them.
                until("the end of all leases that nobody renews", async || {
                    let mut renewals =
                        stream::iter(0..50).map(|_| renewing.renews(&store, token)).buffer_unordered(8);
                    while let Some(renewed) = renewals.next().await {
                        assert_eq!(renewed, Renewed::Renewed);
                    }
                    let held = store.list(None, 100).await.expect("listing works");
                    (held.len() == 1).then_some(())
                })
                .await;
            });
        }
    }

    /// C049: without JetStream, or without permission to use it, this is said, and within the time for connecting.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_server_without_jetstream_and_a_user_who_may_not_use_it_are_told() {
        let runtime = Runtime::tokio();
        let without = Nats::with(NatsConfig::new().without_jetstream());
        let error = runtime.block_on(refusal(&store(&without.url())));
        assert!(error.kind == Unsupported && error.message.contains("JetStream is not enabled"), "{error}");

        let users = r#"authorization { users: [
            { user: "nobody", password: "x", permissions: { publish: "other", subscribe: "_INBOX.>" } }
            { user: "deaf", password: "x", permissions: { publish: ">", subscribe: "other" } }
        ] }"#;
        let server = Nats::with(NatsConfig::new().lines(users));
        for user in ["nobody", "deaf"] {
            let url = format!("nats://{user}:x@{}", server.address());
            let error = runtime.block_on(refusal(&store(&url)));
            assert!(error.kind == Rejected && error.message.contains("permission"), "{user}: {error}");
        }
        let accounts = r#"accounts { A { users: [{ user: "a", password: "x" }] } }"#;
        let server = Nats::with(NatsConfig::new().lines(accounts));
        let error = runtime.block_on(refusal(&store(&format!("nats://a:x@{}", server.address()))));
        assert!(error.kind == Unsupported && error.message.contains("JetStream"), "{error}");
    }
}
