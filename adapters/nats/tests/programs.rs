//! Whole programs on one bucket, on tokio and on smol: that what they do works together.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::{Candidate, until};
use futures::channel::mpsc;
use futures::{SinkExt as _, StreamExt as _};
use tenure_driver::{Builder, Ctx, Tenure};
use tenure_nats::NatsStore;
use tenure_servers::{LIMIT, Nats};
use tenure_smol::Smol;
use tenure_store::clock;
use tenure_tokio::Tokio;

/// The end of what has not ended by then.
async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match futures::future::select(std::pin::pin!(future), std::pin::pin!(common::after(LIMIT))).await {
        futures::future::Either::Left((output, _)) => output,
        futures::future::Either::Right(_) => panic!("waited {LIMIT:?} for {what}"),
    }
}

/// A program on each runtime, both on the same bucket.
fn both(server: &Nats) -> [Tenure; 2] {
    let store = || NatsStore::from_url(&server.url()).unwrap();
    let tokio = Builder::new(Tokio::current()).store(store()).instance("tokio");
    // smol's own executor, on a thread where no runtime of tokio is current.
    let smol = std::thread::spawn({
        let store = store();
        move || Builder::new(Smol::global()).store(store).instance("smol").start().unwrap()
    });
    [tokio.start().unwrap(), smol.join().unwrap()]
}

mod needs_nats {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[ignore = "needs nats-server"]
    async fn a_lease_goes_round_among_many_who_wait_in_two_programs() {
        let server = Nats::start();
        let programs = both(&server);
        let busy = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let rounds = (0..40).map(|number| {
            let (program, busy) = (programs[number % 2].clone(), Arc::clone(&busy));
            async move {
                use std::sync::atomic::Ordering::SeqCst;
                let lease = program.acquire("round").ttl(Duration::from_secs(10)).await.unwrap();
                assert_eq!(busy.fetch_add(1, SeqCst), 0, "one at a time");
                common::after(Duration::from_millis(5)).await;
                busy.fetch_sub(1, SeqCst);
                let token = lease.token();
                lease.release().await.unwrap();
                token
            }
        });
        let tokens = within("the lease to go round", futures::future::join_all(rounds)).await;
        assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 40, "a token for each grant");
        for program in programs {
            program.shutdown().await.unwrap();
        }
    }

    /// L1, S1: the lease of a holder that has died passes on once its TTL is over, and no sooner than it would have
    /// stopped.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[ignore = "needs nats-server"]
    async fn the_lease_of_a_dead_holder_passes_on_after_its_ttl() {
        const TTL: Duration = Duration::from_secs(2);
        let server = Nats::start();
        let [waits, other] = both(&server);
        let raw = NatsStore::from_url(&server.url()).unwrap();
        let began = clock::now();
        // It never renews.
        let token = Candidate::new("left", 1).ttl(TTL).gets(&raw).await;
        let lease = within("the lease", async { waits.acquire("left").await }).await.unwrap();
        let took = clock::now().saturating_since(began);
        assert!(lease.token() > token);
        assert!(took >= TTL.mul_f64(0.99) - Duration::from_millis(251), "taken after {took:?}");
        lease.release().await.unwrap();
        for program in [waits, other] {
            program.shutdown().await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[ignore = "needs nats-server"]
    async fn each_tick_is_run_once_and_both_programs_see_each_other() {
        let server = Nats::start();
        let programs = both(&server);
        let (done, mut runs) = mpsc::channel(100);
        let mut jobs = Vec::new();
        for program in &programs {
            program.join().await.unwrap();
            let done = done.clone();
            let work = move |ctx: Ctx| {
                let mut done = done.clone();
                async move {
                    let due = ctx.tick().ok_or("this is no run of a tick")?;
                    done.send(due.tick.n).await.map_err(|_| "nobody listens any more")
                }
            };
            jobs.push(program.periodic("job", Duration::from_millis(300), work).start().unwrap());
        }
        let mut ticks = BTreeSet::new();
        while ticks.len() < 5 {
            let tick = within("a tick", runs.next()).await.expect("somebody works");
            assert!(ticks.insert(tick), "tick {tick} was run twice");
        }
        for program in &programs {
            until("both to be listed", async || (program.members().await.ok()?.len() == 2).then_some(()))
                .await;
        }
        for job in jobs {
            job.drain().await.unwrap();
        }
        let records = programs[0].jobs().history("job").await.unwrap();
        assert!(records.len() >= 5, "{records:?}");
        for program in programs {
            program.shutdown().await.unwrap();
        }
    }
}
