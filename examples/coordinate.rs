//! Six workloads, shared out among the instances of a program: one starts alone, another joins, and the first drains.
//!
//! All are in this process here, and share a store in its memory. With `tenure::embedded("example")` or
//! `tenure::connect(url)` they would be processes of their own.

use std::error::Error;
use std::time::Duration;

use tenure::{Balanced, Coordinator, Ctx, MemoryStore, Tenure, WorkerError, WorkerStatus};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let blue = tenure::builder().instance("blue").store(store.handle()).start()?;
    let on_blue = partitions(&blue)?;
    until(&on_blue, 6).await;
    show("blue is alone", &[("blue", &on_blue)]);

    // Blue hands over what belongs to green from now on, and works on at the rest.
    let green = tenure::builder().instance("green").store(store.handle()).start()?;
    let on_green = partitions(&green)?;
    until(&on_green, 3).await;
    show("green has joined", &[("blue", &on_blue), ("green", &on_green)]);
    for entry in green.members().await? {
        println!("  {} has been a member for {:?}", entry.member.identity.instance(), entry.member.age);
    }

    // A deploy: blue drains, and green goes on with all of it.
    blue.drain().await?;
    until(&on_green, 6).await;
    show("blue has drained", &[("blue", &on_blue), ("green", &on_green)]);
    blue.shutdown().await?;

    // A program that runs until it is told to end would end with `green.until_terminated().await?`.
    green.drain().await?;
    green.shutdown().await?;
    Ok(())
}

/// Works at the partitions that belong to this instance.
fn partitions(tenure: &Tenure) -> Result<Coordinator, WorkerError> {
    let work = |ctx: Ctx| async move {
        while !ctx.is_draining() {
            // The work. What it writes to would get the token, and refuse a lower one than it has seen.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let names = (0..6).map(|n| format!("partition-{n}"));
    // Shorter than one would have it, so that the example takes no time; and even, so that it is easy to follow.
    tenure.coordinate(names, work).assign(Balanced).hold_down(Duration::from_millis(500)).start()
}

/// Waits until so many workloads run here.
async fn until(coordinator: &Coordinator, count: usize) {
    loop {
        let changed = coordinator.changed();
        if running(coordinator).len() == count {
            return;
        }
        changed.await;
    }
}

fn running(coordinator: &Coordinator) -> Vec<String> {
    let mine = coordinator.mine().into_iter();
    let working = mine.filter(|share| matches!(share.status, WorkerStatus::Working { .. }));
    working.map(|share| share.workload.to_string()).collect()
}

fn show(what: &str, instances: &[(&str, &Coordinator)]) {
    println!("{what}:");
    for (name, coordinator) in instances {
        println!("  {name} works at {}", running(coordinator).join(", "));
    }
}
