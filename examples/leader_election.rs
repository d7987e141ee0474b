//! Leader election: of three instances one leads, and when it ends, in order or not, another one goes on.
//!
//! The instances are in this process here, and share a store in its memory; with `tenure::embedded("example")` or
//! `tenure::connect(url)` they would be processes of their own. Run it with `cargo run --example leader_election`.

use std::error::Error;
use std::time::Duration;

use tenure::{AcquireError, Eviction, LeaseConfig, MemoryStore, Tenure, Token};
use tokio::sync::mpsc;

type News = mpsc::UnboundedSender<&'static str>;

/// Leads whenever it can, until its instance shuts down.
async fn campaign(name: &'static str, tenure: Tenure, news: News) -> Result<(), AcquireError> {
    loop {
        let lease = match tenure.acquire("leader").await {
            Ok(lease) => lease,
            Err(AcquireError::ShuttingDown { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let _nobody_listens = news.send(name);
        let led = tokio::select! {
            biased;
            // Dropped at its next await point once the lease is lost.
            led = lease.run(lead(name, lease.token())) => led,
            // The program ends: a leader that has to finish something would do so here. The lease is still renewed.
            why = lease.stopping() => {
                println!("{name} is asked to stop: {why:?}");
                Ok(())
            }
        };
        if let Err(lost) = led {
            println!("{name}: {lost}");
        }
        // The guard is dropped, which gives the lease back, if there is something to give back. Then it campaigns anew.
    }
}

async fn lead(name: &str, token: Token) {
    // Whatever a leader changes gets the token, and refuses a lower one than it has seen: see `fenced_write`.
    println!("{name} leads, with token {token}");
    std::future::pending().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let (tell, mut news) = mpsc::unbounded_channel();
    let mut instances = Vec::new();
    for name in ["red", "green", "blue"] {
        // So long nobody leads after a leader has died or was cut off: short here, so that the example is.
        let ttl = LeaseConfig::new(Duration::from_secs(1));
        let tenure = tenure::builder().store(store.handle()).instance(name).lease(ttl).start()?;
        instances.push((name, tenure.clone(), tokio::spawn(campaign(name, tenure, tell.clone()))));
    }

    // An operator takes the lease away from the first leader. It stops when it finds that out; the next one begins only
    // once the time is over that the first one may have relied on.
    news.recv().await.ok_or("nobody leads")?;
    instances[0].1.evict("leader", Eviction::Replace).await?;

    // Then one leader after the other ends in order, and the next one goes on a round trip later.
    while let Some(leader) = news.recv().await {
        let Some(place) = instances.iter().position(|(name, ..)| *name == leader) else { continue };
        let (_, tenure, campaign) = instances.swap_remove(place);
        tenure.shutdown().await?;
        campaign.await??;
        if instances.is_empty() {
            break;
        }
    }
    Ok(())
}
