//! What many that wait for one lease ask of the server: counted there, by what it says that it carries out.

mod common;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{At, Runtime};
use tenure_driver::{Builder, Tenure};
use tenure_servers::{Client, Redis};
use tenure_tokio::Tokio;

/// How many tries for this lease the server has seen, as it tells a monitor.
struct Tries {
    seen: mpsc::Receiver<()>,
    counted: u64,
}

impl Tries {
    fn of(server: &Redis, lease: &str) -> Self {
        let mut monitor = Client::connect(server.address()).unwrap();
        monitor.command(&["MONITOR"]).ok();
        let (tell, seen) = mpsc::channel();
        // Of all scripts only that of a try has three keys, and the first is that of the lease.
        let try_for_it = format!("\" \"3\" \"{lease}\" ");
        thread::spawn(move || {
            while let Ok(line) = monitor.read() {
                let line = line.text();
                if line.to_ascii_lowercase().contains("\"eval")
                    && line.contains(&try_for_it)
                    && tell.send(()).is_err()
                {
                    break;
                }
            }
        });
        Self { seen, counted: 0 }
    }

    fn so_far(&mut self) -> u64 {
        self.counted += self.seen.try_iter().count() as u64;
        self.counted
    }

    /// Waits until there are no more for a while.
    async fn settled(&mut self) -> u64 {
        loop {
            let before = self.so_far();
            common::after(Duration::from_millis(500)).await;
            if self.so_far() == before {
                return before;
            }
        }
    }
}

/// Starts processes, as far as the server can tell, with as many waiters each, and has the lease go round; tells how
/// many tries there were for each time that it was handed over.
async fn tries_per_hand_over(at: &At<Redis>, processes: usize, waiters: usize, rounds: u64) -> f64 {
    let mut tries = Tries::of(&at.server, "p:herd");
    let start = || -> Tenure { Builder::new(Tokio::current()).store(at.open("p")).start().unwrap() };
    let holder = start();
    let held = holder.acquire("herd").await.unwrap();
    let mut waiting = Vec::new();
    let (tell, had_it) = mpsc::channel();
    for _ in 0..processes {
        let process = start();
        for _ in 0..waiters {
            let (process, tell) = (process.clone(), tell.clone());
            waiting.push(tokio::spawn(async move {
                let lease = process.acquire("herd").await.unwrap();
                tell.send(()).unwrap();
                // Long enough for all others to hear of it.
                tokio::time::sleep(Duration::from_millis(20)).await;
                lease.release().await.unwrap();
            }));
        }
    }
    let mut client = at.server.client();
    common::until("all to wait", async || {
        (client.command(&["ZCARD", "p!waiters:herd"]).integer() == processes as i64).then_some(())
    })
    .await;
    let before = tries.settled().await;
    held.release().await.unwrap();
    let mut rounds_seen = 0;
    common::until("the lease to go round", async || {
        rounds_seen += had_it.try_iter().count() as u64;
        (rounds_seen >= rounds).then_some(())
    })
    .await;
    let tried = tries.so_far() - before;
    waiting.iter().for_each(|waiter| waiter.abort());
    tried as f64 / rounds_seen as f64
}

mod needs_redis {
    use super::*;

    #[test]
    #[ignore = "needs redis"]
    fn five_hundred_waiters_of_one_process_make_few_tries() {
        let server = Redis::start();
        let at = At { runtime: Runtime::tokio(), url: server.url(), server };
        let tries = at.runtime.block_on(tries_per_hand_over(&at, 1, 500, 100));
        assert!(tries <= 2.0, "{tries} tries for each hand-over");
    }

    #[test]
    #[ignore = "needs redis"]
    fn three_hundred_waiters_of_ten_processes_make_few_tries() {
        let server = Redis::start();
        let at = At { runtime: Runtime::tokio(), url: server.url(), server };
        // Few, for all of them share one thread: where each hears late of the next grant, more of them try.
        let tries = at.runtime.block_on(tries_per_hand_over(&at, 10, 30, 100));
        assert!(tries <= 5.0, "{tries} tries for each hand-over");
    }
}
