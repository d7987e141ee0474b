//! The thread in the background does not run any more, and a loss is told all the same.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;

use tenure_core::{LeaseConfig, StopReason};
use tenure_memory::MemoryStore;

use super::{GENEROUS, TTL, Threads, until};
use crate::blocking::{Ctx, Plain, Tenure, TimedOut, wait};
use crate::{Builder, LostReason, WorkerStatus, clock};

/// Keeps the thread that wakes it until it is let go.
#[derive(Default)]
struct Trap {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Trap {
    fn change(&self, change: impl FnOnce(&mut (bool, bool))) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn has_caught(&self) -> bool {
        self.state.lock().unwrap().0
    }

    fn let_go(&self) {
        self.change(|(_, free)| *free = true);
    }
}

impl Wake for Trap {
    fn wake(self: Arc<Self>) {
        self.change(|(caught, _)| *caught = true);
        let state = self.state.lock().unwrap();
        let (_free, waited) =
            self.changed.wait_timeout_while(state, 2 * GENEROUS, |(_, free)| !*free).unwrap();
        assert!(!waited.timed_out());
    }
}

#[test]
fn a_loss_is_told_at_the_fence_by_the_callers_own_clock() {
    let runtime = Threads::default();
    let sleeps = Arc::clone(&runtime.sleeps);
    let builder = Builder::new(Plain(runtime)).lease(LeaseConfig::new(TTL)).store(MemoryStore::new());
    let futures = builder.start().unwrap();
    let tenure = Tenure::new(futures.clone());
    let lease = tenure.acquire("a").wait().unwrap();
    // Nobody else looks at this one: who does wakes all others.
    let alone = tenure.acquire("d").wait().unwrap();
    let (tell, told) = mpsc::channel();
    let work = move |ctx: Ctx| tell.send((ctx.deadlines(), ctx.lost(), ctx.is_valid())).unwrap();
    let worker = tenure.worker("b", work).start().unwrap();
    until("it works", || matches!(worker.status(), WorkerStatus::Working { .. }));

    // Whoever renews this one is caught.
    let trap = Arc::<Trap>::default();
    let waker = Waker::from(Arc::clone(&trap));
    let trapped = wait(futures.acquire("c").into_future()).unwrap();
    let mut renewals = trapped.renewals();
    assert!(pin!(renewals.next()).poll(&mut Context::from_waker(&waker)).is_pending());
    until("the thread in the background is stuck", || trap.has_caught());
    let fence_at = lease.deadlines().fence_at;
    let mut renewals = alone.renewals();
    assert!(lease.is_valid() && clock::now() < fence_at, "the machine is too slow for this test");

    let signal = lease.signal();
    let beside = thread::spawn(move || (signal.stopped_timeout(GENEROUS), clock::now()));
    let iterated = thread::spawn(move || (renewals.next_timeout(GENEROUS), renewals.next()));
    assert_eq!(lease.lost_timeout(TTL / 100), Err(TimedOut));
    assert_eq!(lease.lost_timeout(GENEROUS).unwrap().why, LostReason::Expired);
    assert!(clock::now() >= fence_at, "not before it is lost");
    assert!(!lease.is_valid());
    let (stopped, at) = beside.join().unwrap();
    assert_eq!(stopped, Ok(StopReason::Fence));
    assert!(at >= fence_at);
    assert_eq!(iterated.join().unwrap(), (Ok(None), None));
    assert_eq!(lease.run(|_| ()).unwrap_err().why, LostReason::Expired);
    let (deadlines, lost, valid) = told.recv_timeout(GENEROUS).unwrap();
    assert!(clock::now() >= deadlines.fence_at);
    assert_eq!((lost, valid), (LostReason::Expired, false));
    // Dropping a guard and a handle does not wait either.
    drop((lease, worker, alone));
    assert_eq!(
        sleeps.load(Ordering::Relaxed),
        1,
        "nothing of the runtime is needed but where another one polls"
    );
    trap.let_go();
    drop(trapped);
    tenure.drain().unwrap();
}
