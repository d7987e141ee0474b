//! What the closures of the user keep, and do when they are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_memory::MemoryStore;

use super::{start, until};
use crate::WorkerStatus;
use crate::blocking::{Ctx, Tenure};

/// Looks at the store when it is dropped, and then counts that.
struct Looks(Tenure, Arc<AtomicUsize>);

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.leases().unwrap();
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_the_work_keeps_may_wait_for_the_leases_when_it_is_dropped_and_the_end_waits_for_it() {
    let (tenure, looked) = (start(&MemoryStore::new()), Arc::<AtomicUsize>::default());
    let looks = || Looks(tenure.clone(), Arc::clone(&looked));
    let kept = looks();
    let worker = tenure
        .worker("w", move |ctx: Ctx| {
            let _kept = &kept;
            ctx.draining();
        })
        .start()
        .unwrap();
    until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));
    worker.drain().unwrap();
    until("it was dropped", || looked.load(Ordering::SeqCst) == 1);

    let (of_job, of_workloads) = (looks(), looks());
    let keep = move |_: Ctx| {
        let _kept = &of_job;
    };
    tenure.periodic("p", Duration::from_secs(3600), keep).start().unwrap();
    let keep = move |_: Ctx| {
        let _kept = &of_workloads;
    };
    tenure.coordinate(["c"], keep).start().unwrap();
    tenure.shutdown().unwrap();
    assert_eq!(looked.load(Ordering::SeqCst), 3);
}
