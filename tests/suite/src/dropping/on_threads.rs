//! What plain threads hold. Each of these belongs to an instance of its own, which ends with it.

use std::sync::mpsc;
use std::time::Duration;

use tenure_driver::blocking::{Ctx, Tenure};
use tenure_driver::{Builder, Runtime};
use tenure_memory::MemoryStore;

use super::things::{LONG, Maker, SOON, make};

/// Work that ends once it is told to.
fn work(ctx: Ctx) {
    ctx.draining();
}

/// Work that tells of its runs.
fn telling() -> (impl Fn(Ctx) + Send + Sync, mpsc::Receiver<Ctx>) {
    let (sender, receiver) = mpsc::channel();
    let work = move |ctx: Ctx| {
        let _nobody = sender.send(ctx.clone());
        ctx.draining();
    };
    (work, receiver)
}

fn thing<R: Runtime, T: Send + 'static>(
    name: &'static str,
    of: impl Fn(&Tenure) -> T + Send + Sync + Copy + 'static,
) -> Maker<R> {
    make(name, move |runtime, _| async move {
        let builder = Builder::new(runtime).store(MemoryStore::new());
        let tenure = builder.start_blocking().expect("it can be started");
        of(&tenure)
    })
}

pub(super) fn makers<R: Runtime>() -> Vec<Maker<R>> {
    const DRIVER: &str = "there is a driver";
    vec![
        thing("a handle for threads", Tenure::clone),
        thing("an acquisition for threads", |t| t.acquire("a").on_progress(drop)),
        thing("a lease for threads", |t| t.acquire("a").wait().expect(DRIVER)),
        thing("a signal for threads", |t| t.acquire("a").wait().expect(DRIVER).signal()),
        thing("renewals for threads", |t| {
            let lease = t.acquire("a").wait().expect(DRIVER);
            (lease.renewals(), lease)
        }),
        thing("a worker that is set up, for threads", |t| t.worker("a", work)),
        thing("a worker for threads", |t| t.worker("a", work).start().expect(DRIVER)),
        thing("a worker that works on a thread", |t| {
            let (work, runs) = telling();
            let worker = t.worker("a", work).start().expect(DRIVER);
            (runs.recv().expect("it runs"), worker)
        }),
        thing("what work on a thread knows", |t| {
            let (work, runs) = telling();
            drop(t.worker("a", work).start().expect(DRIVER));
            runs.recv().expect("it runs")
        }),
        thing("a timer for threads", |t| {
            let mut timer = t.timer("a", SOON).start().expect(DRIVER);
            drop(timer.next());
            timer
        }),
        thing("a job for threads", |t| t.periodic("a", LONG, work).start().expect(DRIVER)),
        thing("a job that runs on a thread", |t| {
            let (work, runs) = telling();
            let job = t.periodic("a", SOON, work).start().expect(DRIVER);
            (runs.recv().expect("it runs"), job)
        }),
        thing("a coordinator for threads", |t| {
            let (work, runs) = telling();
            let coordinator = t.coordinate(["a", "b"], work).hold_down(Duration::ZERO).start().expect(DRIVER);
            (runs.recv().expect("it runs"), coordinator)
        }),
        thing("a record for threads", |t| t.jobs().begin("a").start().expect("the store has them")),
    ]
}
