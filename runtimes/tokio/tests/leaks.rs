//! What is left behind, counted: a process of its own, so that nothing else opens or closes anything.
#![cfg(target_os = "linux")]

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tenure_driver::{Builder, Ctx, Tenure, WorkerStatus, clock};
use tenure_memory::MemoryStore;
use tenure_tokio::Tokio;

fn start(store: MemoryStore) -> Tenure {
    Builder::new(Tokio::current()).store(store).start().unwrap()
}

/// Waits until the condition holds; looks again every few milliseconds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = clock::now() + Duration::from_secs(60);
    while !condition() {
        assert!(clock::now() < end, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn neither_tasks_nor_descriptors_pile_up() {
    for threads in [1, 4] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
        let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let cancel = async |tenure: &Tenure, polls: u32| {
            let mut acquiring = pin!(tenure.acquire((polls % 5).to_string()).into_future());
            let mut lease = None;
            // Every third is waited for as long as it takes.
            for _ in 0..if polls.is_multiple_of(3) { u32::MAX } else { polls % 4 } {
                if let Poll::Ready(result) = poll_fn(|cx| Poll::Ready(acquiring.as_mut().poll(cx))).await {
                    lease = Some(result.unwrap());
                    break;
                }
                tokio::task::yield_now().await;
            }
            if let Some(lease) = lease {
                let mut lost = pin!(lease.lost());
                assert!(poll_fn(|cx| Poll::Ready(lost.as_mut().poll(cx))).await.is_pending());
            }
        };
        runtime.block_on(async {
            let tenure = start(MemoryStore::new());
            drop(tenure.acquire("a").await.unwrap());
            until("at rest", || tenure.stats().open == 0).await;
            let metrics = tokio::runtime::Handle::current().metrics();
            let before = (metrics.num_alive_tasks(), descriptors());
            for polls in 0..10_000 {
                cancel(&tenure, polls).await;
            }
            for kind in 0..2_000 {
                let work = move |ctx: Ctx| async move {
                    match kind % 5 {
                        0 => Ok(()),
                        1 => Err("no luck"),
                        2 => std::future::pending().await,
                        _ => {
                            ctx.draining().await;
                            Ok(())
                        }
                    }
                };
                let setup = tenure.worker((kind % 7).to_string(), work);
                let worker = setup.drain_timeout(Duration::from_millis(5)).start().unwrap();
                let mut drain = pin!(async {
                    // Some are let work before, the others are caught at whatever they do.
                    while kind % 5 > 2 && !matches!(worker.status(), WorkerStatus::Working { .. }) {
                        tokio::task::yield_now().await;
                    }
                    for _ in 0..kind % 4 {
                        tokio::task::yield_now().await;
                    }
                    if kind % 3 == 0 { worker.drain().await } else { worker.stop().await }
                });
                // Some are waited for; the others are left alone with it.
                for _ in 0..if kind % 5 > 2 || kind % 3 > 0 { u32::MAX } else { 5 } {
                    if poll_fn(|cx| Poll::Ready(drain.as_mut().poll(cx))).await.is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            for _ in 0..10 {
                let more = start(MemoryStore::new());
                drop(more.acquire("a").await.unwrap());
                more.shutdown().await.unwrap();
            }
            until("all given back", || tenure.stats().open == 0).await;
            until("no more tasks", || metrics.num_alive_tasks() <= before.0.max(1)).await;
            until("no more descriptors", || descriptors() <= before.1).await;
            assert_eq!(tenure.leases().await.unwrap(), []);
            assert!(tenure.stats().acquired > 1000 && tenure.stats().runs >= 800, "{:?}", tenure.stats());
            assert_eq!(tenure.stats().workers, 0);
            tenure.shutdown().await.unwrap();
        });
    }
}
