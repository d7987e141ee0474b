//! Plain threads, without async: three threads want one lease, and one after the other has it; a worker runs beside them,
//! in a thread of its own, until it is drained.
//!
//! Run it with `cargo run --example blocking_threads`.

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tenure::blocking::Tenure;

type Failed = Box<dyn Error + Send + Sync>;

/// Copies rows under the lease. Nobody can stop a thread: it looks at the signal before each step.
fn copy(tenure: &Tenure, rows: u32) -> Result<u32, Failed> {
    let lease = tenure.acquire("copy").wait_at_most(Duration::from_secs(60)).wait()?;
    let copied = lease.run(|signal| {
        let mut copied = 0;
        while copied < rows && !signal.is_stopping() {
            // What is written gets the token: see the example `fenced_write`.
            let _token = signal.token();
            thread::sleep(Duration::from_millis(10));
            copied += 1;
        }
        copied
    })?;
    lease.release()?;
    Ok(copied)
}

fn main() -> Result<(), Failed> {
    // With `tenure::blocking::embedded("example")` the processes of this machine share it.
    let tenure = tenure::blocking::connect("memory:")?;
    let (beats, heard) = mpsc::channel();
    let heart = tenure
        .worker("heart", move |ctx| {
            while !ctx.is_draining() {
                let _nobody_listens = beats.send(ctx.token());
                thread::sleep(Duration::from_millis(20));
            }
        })
        .start()?;

    thread::scope(|threads| {
        let copies: Vec<_> = (1..=3).map(|n| (n, threads.spawn(|| copy(&tenure, 5)))).collect();
        for (n, copies) in copies {
            println!("thread {n} has copied {} rows", copies.join().expect("it does not panic")?);
        }
        Ok::<_, Failed>(())
    })?;

    let token = heard.recv()?;
    heart.drain()?;
    println!("the worker ran under token {token}, and has ended");
    Ok(tenure.shutdown()?)
}
