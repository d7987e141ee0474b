//! Leases: held by one at a time, renewed, passed on, given back from anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tenure_driver::AcquireError;
use tenure_driver::core::ReleaseOutcome;
use tenure_driver::store_contract::Store;
use tenure_memory::MemoryStore;

use crate::api::{Api, Lease, Tenure};

/// A lease is renewed past its first end, while nobody else gets it; released, it passes on to whoever waits.
pub fn a_lease_is_renewed_and_passes_on<A: Api>() {
    A::run(async |api: A| {
        let store = MemoryStore::new();
        is_renewed_and_passes_on(&api, [store.handle(), store.handle()]).await;
    });
}

/// The same with what two processes have of one file.
#[cfg(unix)]
pub fn a_lease_in_a_file_is_renewed_and_passes_on<A: Api>() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("suite.db");
    A::run(async |api: A| {
        let open = || tenure_sqlite::SqliteStore::open(&path).unwrap();
        is_renewed_and_passes_on(&api, [open(), open()]).await;
    });
}

async fn is_renewed_and_passes_on<A: Api>(api: &A, stores: [impl Store; 2]) {
    let [one, other] = stores.map(|store| api.tenure(store));
    let lease = one.acquire("a").await.unwrap();
    let candidate = other.clone();
    let next = api.task(async move { candidate.acquire("a").await });
    let first = lease.deadlines();
    api.until("renewed past the first end", || lease.deadlines().fence_at > first.valid_until).await;
    assert!(lease.is_valid() && !next.is_finished());
    let token = lease.token();
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let next = next.join(api).await.unwrap();
    assert!(next.is_valid() && next.token() > token);
    let error = one.try_acquire("a").await.map(|lease| lease.token()).unwrap_err();
    assert!(matches!(error, AcquireError::Busy { .. }), "{error}");
    drop(next);
    other.shutdown().await.unwrap();
    assert_eq!(one.leases().await.unwrap(), []);
    one.shutdown().await.unwrap();
}

/// Of several candidates in several processes one works at a time, each under a higher token than before.
pub fn one_works_at_a_time<A: Api>() {
    A::run(async |api: A| {
        let store = MemoryStore::new();
        let inside = Arc::new(AtomicU32::new(0));
        let done = Arc::new(AtomicU32::new(0));
        let processes: Vec<_> = (0..4).map(|_| api.tenure(store.handle())).collect();
        let work = |tenure: A::Tenure| {
            let (inside, done, other) = (Arc::clone(&inside), Arc::clone(&done), api.clone());
            api.task(async move {
                let mut last = None;
                for _ in 0..25 {
                    let lease = tenure.acquire("a").await.unwrap();
                    assert!(Some(lease.token()) > last);
                    last = Some(lease.token());
                    let working = lease.run(async {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        other.yield_now().await;
                        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    });
                    working.await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let tasks: Vec<_> = processes.iter().cycle().take(8).cloned().map(work).collect();
        for task in tasks {
            task.join(&api).await;
        }
        assert_eq!(done.load(Ordering::SeqCst), 200);
        for tenure in processes {
            tenure.shutdown().await.unwrap();
        }
    });
}

/// A guard that is dropped on a thread that knows nothing of the runtime gives its lease back.
pub fn guards_are_dropped_from_other_threads<A: Api>() {
    A::run(async |api: A| {
        let tenure = api.tenure(MemoryStore::new());
        let mut leases = Vec::new();
        for n in 0..8 {
            leases.push(tenure.acquire(&n.to_string()).await.unwrap());
        }
        for thread in leases.into_iter().map(|lease| thread::spawn(move || drop(lease))) {
            thread.join().unwrap();
        }
        api.until("all given back", || tenure.stats().open == 0).await;
        assert_eq!(tenure.leases().await.unwrap(), []);
        tenure.shutdown().await.unwrap();
    });
}
