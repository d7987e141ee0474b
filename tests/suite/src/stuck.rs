//! A thread that somebody blocks: what becomes of the leases, and of the work under them.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use tenure_driver::core::{LeaseConfig, LeaseName, Restart, StopReason};
use tenure_driver::store_contract::{
    Acquire, Acquired, Eviction, LeaseRecord, Release, Released, Renew, Renewed, SimpleStore, Store,
    StoreError,
};
use tenure_driver::{Builder, Ctx, LostReason, Runtime, Tenure, WorkerStatus, clock};
use tenure_memory::MemoryStore;

use crate::api::{Api as _, GENEROUS, TTL};
use crate::host::Host;
use crate::waiting::{run, until};
use crate::with_futures::Futures;
use crate::workers::{blocking, is_stuck_until_it_ends};

/// Blocks the thread, as work does that is not asynchronous.
fn block(duration: Duration) {
    let (_sender, never) = mpsc::channel::<()>();
    assert!(never.recv_timeout(duration).is_err());
}

fn start<R: Runtime>(runtime: R, store: impl Store) -> Tenure {
    Builder::new(runtime).lease(LeaseConfig::new(TTL)).store(store).start().unwrap()
}

fn on_own_thread<R: Runtime>(runtime: R, store: impl Store) -> Tenure {
    Builder::new(runtime).on_own_thread().lease(LeaseConfig::new(TTL)).store(store).start().unwrap()
}

/// A task that blocks the only thread for half of the TTL is survived; for twice the TTL it costs the lease, and is
/// reported as starved.
pub fn blocking_the_only_thread_for_half_the_ttl_is_survived_and_for_twice_the_ttl_noticed<H: Host>() {
    let host = H::new();
    run(&host, async {
        let runtime = host.runtime();
        let tenure = start(runtime.clone(), MemoryStore::new());
        let lease = tenure.acquire("a").await.unwrap();
        blocking_task(&host, TTL / 2).await;
        let renewed = tenure.stats().renewed;
        until(&runtime, "renewed", || tenure.stats().renewed > renewed).await;
        assert!(lease.is_valid());
        assert_eq!(tenure.stats().lost, 0);
        blocking_task(&host, TTL * 2).await;
        assert!(!lease.is_valid());
        assert!(lease.run(async {}).await.is_err());
        until(&runtime, "reported", || tenure.stats().starved > 0).await;
        assert_eq!(lease.stopping().await, StopReason::Fence);
        tenure.shutdown().await.unwrap_err();
    });
}

/// Blocks the only thread from a task beside, as a program does by accident.
async fn blocking_task<H: Host>(host: &H, duration: Duration) {
    let (done, ended) = oneshot::channel();
    host.spawn(async move {
        block(duration);
        // Nobody waits for it if the test has failed.
        let _failed = done.send(());
    });
    ended.await.unwrap();
}

/// With the leases on a thread of their own, they survive a program that blocks.
pub fn with_a_thread_of_its_own_a_lease_survives_a_program_that_blocks<H: Host>() {
    let host = H::new();
    run(&host, async {
        let tenure = on_own_thread(host.runtime(), MemoryStore::new());
        let lease = tenure.acquire("a").await.unwrap();
        block(TTL * 2);
        assert!(lease.is_valid());
        assert_eq!(lease.run(async { 1 }).await, Ok(1));
        assert_eq!(tenure.stats().starved, 0);
        lease.release().await.unwrap();
        tenure.shutdown().await.unwrap();
        // One that is never used, dropped inside of another runtime.
        drop(host.runtime().on_own_thread().unwrap());
    });
}

/// The driver has a thread of its own, which something blocks; the work runs elsewhere, and hears at the fence that the
/// lease is lost.
pub fn the_loss_is_told_at_the_fence_though_the_driver_is_stuck<H: Host>() {
    let (sender, lease) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    let driver = thread::spawn(move || {
        let host = H::new();
        host.block_on(async {
            let tenure = start(host.runtime(), MemoryStore::new());
            let other = tenure.acquire("b").await.unwrap();
            sender.send((tenure.acquire("a").await.unwrap(), other)).unwrap();
            // The other end is dropped to end it.
            let _ended = blocked.recv();
        });
    });
    let (lease, other) = lease.recv_timeout(GENEROUS).unwrap();
    let deadlines = lease.deadlines();
    let result = run(&H::new(), lease.run(pending::<()>()));
    assert!(clock::now() >= deadlines.fence_at);
    assert_eq!(result.unwrap_err().why, LostReason::Expired);
    assert!(!lease.is_valid());
    // Nobody else looks at that one.
    let mut renewals = other.renewals();
    run(&H::new(), async { while renewals.next().await.is_some() {} });
    assert!(!other.is_valid());
    drop(unblock);
    driver.join().unwrap();
    drop((lease, other));
}

/// Work that the driver can't stop, since its store's adapter blocks it, is dropped when its lease ends: by its own clock.
pub fn work_ends_by_its_own_clock_when_the_driver_is_stuck<H: Host>() {
    let host = H::new();
    let (unblock, blocked) = mpsc::channel::<()>();
    let store = Blocks { store: MemoryStore::new(), blocked: Mutex::new(Some(blocked)) };
    let (drops, dropped) = mpsc::channel();
    struct Dropped(Ctx, mpsc::Sender<bool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            // The last deadlines, since nothing renews the lease.
            let _nobody = self.1.send(clock::now() >= self.0.deadlines().kill_at);
        }
    }
    run(&host, async {
        let runtime = host.runtime();
        let tenure = on_own_thread(runtime.clone(), store);
        let work = move |ctx: Ctx| {
            let dropped = Dropped(ctx, drops.clone());
            async move {
                pending::<()>().await;
                drop(dropped);
            }
        };
        let worker = tenure.worker("a", work).start().unwrap();
        let mut told = None;
        until(&runtime, "the work is dropped", || {
            told = dropped.try_recv().ok();
            told.is_some()
        })
        .await;
        assert_eq!(told, Some(true), "not before the kill");
        assert!(matches!(worker.status(), WorkerStatus::Working { .. }), "the driver does not know it yet");
        drop(unblock);
        until(&runtime, "the work is started again", || tenure.stats().runs == 2).await;
        worker.stop().await.unwrap();
        tenure.shutdown().await.unwrap();
    });
}

/// A store that blocks the driver with the first renewal, until what it waits for is dropped.
struct Blocks {
    store: MemoryStore,
    blocked: Mutex<Option<mpsc::Receiver<()>>>,
}

impl SimpleStore for Blocks {
    async fn acquire(&self, request: Acquire) -> Result<Acquired, StoreError> {
        self.store.acquire(request).await
    }

    async fn renew(&self, request: Renew) -> Result<Renewed, StoreError> {
        if let Some(blocked) = self.blocked.lock().unwrap().take() {
            let _ended = blocked.recv_timeout(GENEROUS);
        }
        self.store.renew(request).await
    }

    async fn release(&self, request: Release) -> Result<Released, StoreError> {
        self.store.release(request).await
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        SimpleStore::inspect(&self.store, name).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        SimpleStore::list(&self.store, after, most).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        SimpleStore::evict(&self.store, name, how).await
    }
}

/// With the leases on a thread of their own, work runs where the program does, and may block there.
pub fn with_a_thread_of_its_own_for_the_leases_work_runs_beside_and_may_block_there<H: Host>() {
    let host = H::new();
    let seen = Arc::new(Mutex::new(None));
    let found = Arc::clone(&seen);
    run(&host, async {
        let tenure = on_own_thread(host.runtime(), MemoryStore::new());
        let work = move |ctx: Ctx| {
            let found = Arc::clone(&found);
            async move {
                block(TTL * 2);
                let name = thread::current().name().map(str::to_owned);
                *found.lock().unwrap() = Some((ctx.is_valid(), name));
            }
        };
        let worker = tenure.worker("a", work).restart(Restart::Never).start().unwrap();
        worker.ended().await;
        assert_eq!((tenure.stats().starved, tenure.stats().lost), (0, 0));
        tenure.shutdown().await.unwrap();
    });
    let (valid, name) = seen.lock().unwrap().take().expect("it ran");
    assert!(valid && name.as_deref() != Some("tenure"), "{name:?}");
}

/// Work that blocks the only thread is named as stuck to whoever asks on another one, and keeps its lease until it ends.
pub fn work_that_blocks_the_only_thread_is_named_stuck_and_keeps_its_lease_until_it_ends<H: Host>() {
    let (sender, started) = mpsc::channel();
    let (done, ends) = oneshot::channel::<()>();
    let only = thread::spawn(move || {
        let host = H::new();
        host.block_on(async {
            let tenure = on_own_thread(host.runtime(), MemoryStore::new());
            let worker = blocking(&tenure);
            sender.send((tenure, worker)).unwrap();
            // The other end is dropped to end it.
            let _ended = ends.await;
        });
    });
    let (tenure, (worker, begun, unblock)) = started.recv_timeout(GENEROUS).unwrap();
    Futures::<H>::run(async |api| {
        api.until("the work has begun", || begun.load(Ordering::SeqCst)).await;
        is_stuck_until_it_ends(&api, &tenure, &worker, unblock).await;
        tenure.shutdown().await.unwrap();
    });
    drop(done);
    only.join().unwrap();
}
