//! Hints: that they come, and that they come again after whatever kept them away.

mod common;

use std::time::Duration;

use common::{Candidate, Runtime, freed, hears, until};
use futures::StreamExt as _;
use tenure_nats::NatsStore;
use tenure_servers::{Nats, NatsCluster, Proxy};
use tenure_store::core::LeaseName;
use tenure_store::{Eviction, Hint, Hints, Released, Store};

fn store(url: &str) -> NatsStore {
    NatsStore::from_url(url).unwrap()
}

/// Something was missed, or may have been.
fn resync(hint: &Hint) -> Option<()> {
    (*hint == Hint::Resync).then_some(())
}

/// Someone who waits for a lease that another holds, as the core does.
async fn waits(store: &NatsStore, candidate: &Candidate) -> Hints {
    let mut hints = store.hints().expect("nobody listens yet");
    candidate.is_refused(store).await;
    store.watch(candidate.name.clone()).await.expect("watching works");
    candidate.is_refused(store).await;
    // Whoever begins to listen may have missed something.
    hears(&mut hints, "the beginning", resync).await;
    hints
}

mod needs_nats {
    use super::*;

    #[test]
    #[ignore = "needs nats-server"]
    fn a_release_reaches_the_one_who_waits_and_names_it() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let (holding, waiting) = (store(&server.url()), store(&server.url()));
            let holder = Candidate::new("a", 1);
            let token = holder.gets(&holding).await;
            let mut hints = waits(&waiting, &Candidate::new("a", 2)).await;
            let released = holder.releases(&holding, token).await;
            assert_eq!(released, Released::Released { others_chosen: true });
            assert!(hears(&mut hints, "the release", freed(&holder.name)).await, "it is the only one");
            let next = Candidate::new("a", 2).gets(&waiting).await;
            assert!(next > token);
        });
    }

    /// Who is chosen reads ahead what stands there. Another one who is faster has the lease all the same, and keeps it; and
    /// so does a holder of whom somebody says that it has given it back.
    #[test]
    #[ignore = "needs nats-server"]
    fn whoever_is_chosen_and_late_or_told_something_wrong_takes_nothing_away() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let (holding, waiting) = (store(&server.url()), store(&server.url()));
            let (holder, waiter) = (Candidate::new("a", 1), Candidate::new("a", 2));
            let token = holder.gets(&holding).await;
            let mut hints = waits(&waiting, &waiter).await;
            holder.releases(&holding, token).await;
            assert!(hears(&mut hints, "the release", freed(&holder.name)).await);
            let faster = Candidate::new("a", 3);
            let token = faster.gets(&holding).await;
            assert_eq!(waiter.is_refused(&waiting).await.token, Some(token));

            let mut client = server.client();
            let mut waits = || {
                let next = br#"{"seq":1,"next_by_subj":"$KV.tenure.wait.ka.*"}"#;
                let found = client.request("$JS.API.STREAM.MSG.GET.KV_tenure", next)?;
                let found = String::from_utf8(found).ok()?;
                let (_, handle) = found.split_once("$KV.tenure.wait.ka.")?;
                found.contains("\"data\"").then(|| handle.split('"').next().map(str::to_owned))?
            };
            let handle = until("its registration", async || waits()).await;
            client.publish("tenure.tenure.lease.ka", &[], format!("free x {handle} +0").as_bytes());
            assert!(hears(&mut hints, "what is wrong", freed(&holder.name)).await);
            assert_eq!(waiter.is_refused(&waiting).await.token, Some(token));
            faster.releases(&holding, token).await;
        });
    }

    /// C046: what listens is listened to again after the server was started again, and says that something may have been
    /// missed.
    #[test]
    #[ignore = "needs nats-server"]
    fn hints_come_again_after_the_server_was_started_again() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let (holding, waiting) = (store(&server.url()), store(&server.url()));
            let holder = Candidate::new("a", 1);
            let token = holder.gets(&holding).await;
            let mut hints = waits(&waiting, &Candidate::new("a", 2)).await;
            for stopped in [false, true] {
                if stopped {
                    server.stop()
                } else {
                    server.kill()
                }
                server.restart();
                hears(&mut hints, "what may have been missed", resync).await;
            }
            let released = until("a release", async || {
                let request = holder.release(token);
                common::run(&holding, tenure_store::Operation::Release(request)).await.ok()
            });
            released.await;
            hears(&mut hints, "the release", freed(&holder.name)).await;
        });
    }

    /// A connection that is dead, and not closed, is given up, and hints come by another one.
    #[test]
    #[ignore = "needs nats-server"]
    fn hints_come_again_after_a_connection_has_fallen_silent() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let proxy = Proxy::to(server.address());
            let (holding, waiting) = (store(&server.url()), store(&format!("nats://{}", proxy.address())));
            let holder = Candidate::new("a", 1);
            let token = holder.gets(&holding).await;
            let mut hints = waits(&waiting, &Candidate::new("a", 2)).await;
            proxy.stall();
            // It loses what is said now.
            let before = proxy.accepted();
            until("another connection", async || (proxy.accepted() > before).then_some(())).await;
            proxy.restore();
            proxy.close();
            hears(&mut hints, "what may have been missed", resync).await;
            holder.releases(&holding, token).await;
            hears(&mut hints, "the release", freed(&holder.name)).await;
        });
    }

    /// The end of a lease that nobody tells of is found: another program's deletion, or a release whose teller died.
    #[test]
    #[ignore = "needs nats-server"]
    fn what_nobody_tells_is_found_by_looking() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let (holding, waiting) = (store(&server.url()), store(&server.url()));
            let holder = Candidate::new("a", 1);
            holder.gets(&holding).await;
            let mut hints = waits(&waiting, &Candidate::new("a", 2)).await;
            server.client().publish("$KV.tenure.lease.ka", &["KV-Operation: PURGE"], b"").expect("an answer");
            let chosen = hears(&mut hints, "a free lease", freed(&holder.name)).await;
            assert!(!chosen);
        });
    }

    /// In a cluster what listens at one server hears what is told at another, and goes on when its server dies. Nothing is
    /// kept for it at the servers that could pile up.
    #[test]
    #[ignore = "needs nats-server"]
    fn hints_go_through_a_cluster_and_outlive_a_server() {
        let cluster = NatsCluster::start();
        Runtime::tokio().block_on(async {
            let first = &cluster.servers()[0];
            let url = |server: &Nats| format!("{}?replicas=3&connect_timeout=20s", server.url());
            let holding = store(&url(&cluster.servers()[1]));
            let waiting = store(&url(first));
            let holder = Candidate::new("a", 1).ttl(Duration::from_secs(600));
            let token = holder.gets(&holding).await;
            let mut hints = waits(&waiting, &Candidate::new("a", 2)).await;
            first.kill();
            hears(&mut hints, "what may have been missed", resync).await;
            let release = holder.release(token);
            let released = until("a release", async || {
                common::run(&holding, tenure_store::Operation::Release(release.clone())).await.ok()
            });
            released.await;
            hears(&mut hints, "the release", freed(&holder.name)).await;
            let info = cluster.servers()[1].client().request("$JS.API.STREAM.INFO.KV_tenure", b"");
            let info = String::from_utf8(info.expect("an answer")).unwrap();
            assert!(info.contains("\"consumer_count\":0"), "{info}");
        });
    }

    /// Who registered and ended its watch leaves nothing behind, and a deletion is told to all who watch.
    #[test]
    #[ignore = "needs nats-server"]
    fn a_watch_that_was_ended_leaves_nothing_behind() {
        Runtime::tokio().block_on(async {
            let server = Nats::start();
            let (holding, waiting) = (store(&server.url()), store(&server.url()));
            let holder = Candidate::new("a", 1);
            holder.gets(&holding).await;
            let mut hints = waits(&waiting, &Candidate::new("a", 2)).await;
            holding.evict(holder.name.clone(), Eviction::Delete).await.expect("deleting works");
            assert!(!hears(&mut hints, "the deletion", freed(&holder.name)).await);
            waiting.unwatch(LeaseName::new("a").unwrap()).await;
            until("an empty bucket", async || {
                let mut client = server.client();
                let info = client.request(
                    "$JS.API.STREAM.INFO.KV_tenure",
                    br#"{"subjects_filter":"$KV.tenure.wait.>"}"#,
                )?;
                (!String::from_utf8_lossy(&info).contains("$KV.tenure.wait.ka")).then_some(())
            })
            .await;
            waiting.close().await;
            let rest: Vec<Hint> = hints.collect().await;
            assert!(rest.len() < 10, "the hints end with the store: {rest:?}");
        });
    }
}
