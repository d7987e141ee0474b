//! Two instances of a program, one periodic job: each tick is run on one of them, also while one leaves.
//!
//! Both are in this process here, and share a store in its memory. With `tenure::embedded("example")` or
//! `tenure::connect(url)` they would be processes of their own.

use std::error::Error;
use std::time::Duration;

use tenure::{Ctx, MemoryStore, Periodic, Tenure, TimerError};
use tokio::sync::mpsc;

/// Short, so that there is something to see.
const PERIOD: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let blue = tenure::builder().instance("blue").store(store.handle()).start()?;
    let green = tenure::builder().instance("green").store(store.handle()).start()?;

    let (done, mut runs) = mpsc::channel(16);
    let first = job(&blue, done.clone())?;
    let second = job(&green, done)?;
    for _ in 0..5 {
        let (tick, name) = runs.recv().await.ok_or("nobody works")?;
        println!("tick {tick} was run by {name}");
    }

    // A deploy: blue finishes the run that it is at, and the ticks that follow are green's.
    first.drain().await?;
    blue.shutdown().await?;
    println!("blue has left");
    let mut left = 3;
    while left > 0 {
        let (tick, name) = runs.recv().await.ok_or("nobody works")?;
        println!("tick {tick} was run by {name}");
        left -= u32::from(name == "green");
    }

    second.drain().await?;
    for run in green.jobs().history("report").await?.iter().rev() {
        println!("on record: tick {:?} by {}: {:?}", run.index, run.owner, run.state);
    }
    green.shutdown().await?;
    Ok(())
}

/// The same job on both: whoever gets a tick runs it.
fn job(tenure: &Tenure, done: mpsc::Sender<(u64, String)>) -> Result<Periodic, TimerError> {
    let name = tenure.identity().instance().to_owned();
    let work = move |ctx: Ctx| {
        let (name, done) = (name.clone(), done.clone());
        async move {
            let due = ctx.tick().ok_or("this is no run of a tick")?;
            // The work. What it writes to would get the token, and refuse a lower one than it has seen.
            tokio::time::sleep(Duration::from_millis(20)).await;
            done.send((due.tick.n, name)).await.map_err(|_| "nobody listens any more")
        }
    };
    tenure.periodic("report", PERIOD, work).start()
}
