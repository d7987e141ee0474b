//! Two instances of a program, one worker: it runs on one of them, and on the other once that one drains.
//!
//! Both are in this process here, and share a store in its memory. With `tenure::embedded("example")` or
//! `tenure::connect(url)` they would be processes of their own.

use std::error::Error;
use std::time::Duration;

use tenure::{Ctx, MemoryStore, Tenure, Worker, WorkerError};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let blue = tenure::builder().instance("blue").store(store.handle()).start()?;
    let green = tenure::builder().instance("green").store(store.handle()).start()?;

    let (done, mut jobs) = mpsc::channel(1);
    let first = queue(&blue, done.clone())?;
    println!("{} did a job", jobs.recv().await.ok_or("nobody works")?);
    let second = queue(&green, done)?;

    // A deploy: blue finishes the job that it is at, and green goes on.
    let (drained, heir) = tokio::join!(first.drain(), async {
        loop {
            match jobs.recv().await {
                Some(name) if name == "green" => return Ok(name),
                Some(name) => println!("{name} did a job"),
                None => return Err("nobody works"),
            }
        }
    });
    drained?;
    println!("{} did a job: it has taken over", heir?);

    jobs.close();
    second.drain().await?;
    blue.shutdown().await?;
    green.shutdown().await?;
    Ok(())
}

/// Does one job after the other, for as long as this instance has the lease.
fn queue(tenure: &Tenure, done: mpsc::Sender<String>) -> Result<Worker, WorkerError> {
    let name = tenure.identity().instance().to_owned();
    let work = move |ctx: Ctx| {
        let (name, done) = (name.clone(), done.clone());
        async move {
            println!("{name} works under token {}", ctx.token());
            while !ctx.is_draining() {
                // The job. What it writes to would get the token, and refuse a lower one than it has seen.
                tokio::time::sleep(Duration::from_millis(100)).await;
                if done.send(name.clone()).await.is_err() {
                    break;
                }
            }
            println!("{name} is done");
        }
    };
    tenure.worker("queue", work).start()
}
