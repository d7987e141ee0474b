//! One of everything that a user may hold, in the states that make a difference.
#![expect(clippy::async_yields_async, reason = "these futures are what is to be dropped, not awaited")]

use std::future::{Future, IntoFuture, pending};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tenure_driver::store_contract::Eviction;
use tenure_driver::{Builder, Ctx, Lease, Runtime, Tenure};
use tenure_memory::MemoryStore;

use super::on_threads;
use crate::GENEROUS;
use crate::waiting::{at_most, once, pause};

/// Anything that can be dropped.
pub(super) type Thing = Box<dyn Send>;

/// A thing to be dropped, and how it comes about.
pub(super) struct Maker<R> {
    pub(super) name: &'static str,
    pub(super) make: Box<dyn Fn(R, Tenure) -> BoxFuture<'static, Thing> + Send + Sync>,
}

pub(super) const LONG: Duration = Duration::from_secs(3600);
pub(super) const SOON: Duration = Duration::from_millis(20);

/// A future that was polled once, with what came of that: a driver on another thread may have been quick.
async fn polled<F: Future + Send + 'static>(future: F) -> (Pin<Box<F>>, Poll<F::Output>) {
    let mut future = Box::pin(future);
    let poll = once(future.as_mut()).await;
    (future, poll)
}

/// Waits until the condition holds, with the other tasks running.
async fn until(tenure: &Tenure, mut condition: impl FnMut(&Tenure) -> bool) {
    let end = tenure.now() + GENEROUS;
    while !condition(tenure) {
        assert!(tenure.now() < end, "it does not come to pass: {:?}", tenure.stats());
        pause().await;
    }
}

async fn held(tenure: &Tenure) -> Lease {
    tenure.acquire("a").await.expect("there is a driver")
}

/// Work that ends once it is told to.
fn work(ctx: Ctx) -> impl Future<Output = ()> + Send {
    ctx.draining().map(drop)
}

/// Work that tells of its runs.
fn telling() -> (impl FnMut(Ctx) -> BoxFuture<'static, ()> + Send, mpsc::UnboundedReceiver<Ctx>) {
    let (sender, receiver) = mpsc::unbounded();
    let work = move |ctx: Ctx| {
        let _nobody = sender.unbounded_send(ctx.clone());
        ctx.draining().map(drop).boxed()
    };
    (work, receiver)
}

async fn ctx_of_work(tenure: &Tenure) -> Ctx {
    let (work, mut runs) = telling();
    drop(tenure.worker("a", work).start().expect("there is a driver"));
    runs.next().await.expect("it runs")
}

async fn ctx_of_run(tenure: &Tenure) -> Ctx {
    let (work, mut runs) = telling();
    drop(tenure.periodic("a", SOON, work).start().expect("there is a driver"));
    runs.next().await.expect("it runs")
}

pub(super) fn makers<R: Runtime>() -> Vec<Maker<R>> {
    let mut all = Vec::new();
    all.extend(setups::<R>());
    all.extend(leases::<R>());
    all.extend(workers::<R>());
    all.extend(timers::<R>());
    all.extend(coordinators::<R>());
    all.extend(futures_of_tenure::<R>());
    all.extend(on_threads::makers::<R>());
    all
}

pub(super) fn make<R: Runtime, F, T>(
    name: &'static str,
    make: impl Fn(R, Tenure) -> F + Send + Sync + 'static,
) -> Maker<R>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let make = move |runtime, tenure| {
        let thing = make(runtime, tenure);
        async move { Box::new(thing.await) as Thing }.boxed()
    };
    Maker { name, make: Box::new(make) }
}

/// What does nothing yet.
fn setups<R: Runtime>() -> Vec<Maker<R>> {
    vec![
        make("a handle", |_, t| async move { t }),
        make("a builder", |r, _| async move { Builder::new(r) }),
        make("a builder with a store", |r, _| async move { Builder::new(r).store(MemoryStore::new()) }),
        make("another instance", |r, _| async move {
            Builder::new(r).store(MemoryStore::new()).start().expect("it can be started")
        }),
        make("an acquisition that is set up", |_, t| async move { t.acquire("a").on_progress(drop) }),
        make("a worker that is set up", |_, t| async move { t.worker("a", work) }),
        make("a timer that is set up", |_, t| async move { t.timer("a", SOON) }),
        make("a job that is set up", |_, t| async move { t.periodic("a", SOON, work) }),
        make("a coordinator that is set up", |_, t| async move { t.coordinate(["a", "b"], work) }),
        make("a record that is set up", |_, t| async move { t.jobs().begin("a") }),
        make("jobs", |_, t| async move { t.jobs() }),
    ]
}

fn leases<R: Runtime>() -> Vec<Maker<R>> {
    vec![
        make("an acquisition", |_, t| async move { t.acquire("a").into_future() }),
        make("an acquisition on its way", |_, t| async move { polled(t.acquire("a").into_future()).await }),
        make("an acquisition that waits", |_, t| async move {
            let lease = held(&t).await;
            let mut waits = Box::pin(t.acquire("a").on_progress(drop).into_future());
            assert!(at_most(5, waits.as_mut()).await.is_none());
            (lease, waits)
        }),
        make("an acquisition that waits for what is dropped after it", |_, t| async move {
            let lease = held(&t).await;
            let mut waits = Box::pin(t.acquire("a").into_future());
            assert!(at_most(5, waits.as_mut()).await.is_none());
            (waits, lease)
        }),
        make("an acquisition that was granted, and is not looked at", |_, t| async move {
            let granted = polled(t.acquire("a").into_future()).await;
            until(&t, |t| t.stats().held == 1).await;
            granted
        }),
        make("an acquisition that is over", |_, t| async move {
            let mut failed = Box::pin(t.try_acquire("").into_future());
            assert!(failed.as_mut().await.is_err());
            failed
        }),
        make("a lease", |_, t| async move { held(&t).await }),
        make("a lease that was stopped", |_, t| async move {
            let lease = held(&t).await;
            let stop = polled(async move { t.stop().await }).await;
            lease.lost().await;
            (lease, stop)
        }),
        make("a lease that was taken away", |_, t| async move {
            let lease = held(&t).await;
            t.evict("a", Eviction::Delete).await.expect("the store answers");
            lease
        }),
        make("a signal", |_, t| async move { held(&t).await.signal() }),
        make("a signal and its lease", |_, t| async move {
            let lease = held(&t).await;
            (lease.signal(), polled(lease.signal().stopped()).await, lease)
        }),
        make("a signal of a lease that is gone, waited for", |_, t| async move {
            let lease = held(&t).await;
            polled(lease.signal().stopped()).await
        }),
        make("a wait for the loss, not polled", |_, t| async move { held(&t).await.lost() }),
        make("a wait for the loss", |_, t| async move {
            let lease = held(&t).await;
            (polled(lease.lost()).await, lease)
        }),
        make("a wait for the loss of a lease that goes before", |_, t| async move {
            let lease = held(&t).await;
            let lost = polled(lease.lost()).await;
            (lease, lost)
        }),
        make("a wait for the stop", |_, t| async move {
            let lease = held(&t).await;
            (polled(lease.stopping()).await, lease)
        }),
        make("renewals", |_, t| async move {
            let lease = held(&t).await;
            (lease.renewals(), lease)
        }),
        make("renewals that are waited for", |_, t| async move {
            let lease = held(&t).await;
            let mut renewals = lease.renewals();
            (polled(async move { renewals.next().await }).await, lease)
        }),
        make("work under a lease", |_, t| async move {
            let lease = held(&t).await;
            polled(async move { lease.run(pending::<()>()).await }).await
        }),
        make("work under a lease that acquires another", |_, t| async move {
            let lease = held(&t).await;
            polled(async move { lease.run(t.acquire("b").into_future()).await }).await
        }),
        make("a release, not polled", |_, t| async move { Box::pin(held(&t).await.release()) }),
        make("a release", |_, t| async move { polled(held(&t).await.release()).await }),
    ]
}

fn workers<R: Runtime>() -> Vec<Maker<R>> {
    vec![
        make("a worker", |_, t| async move { t.worker("a", work).start().expect("there is a driver") }),
        make("a worker that waits", |_, t| async move {
            let lease = held(&t).await;
            (t.worker("a", work).start().expect("there is a driver"), lease)
        }),
        make("a worker that works", |_, t| async move {
            let worker = t.worker("a", work).start().expect("there is a driver");
            until(&t, |t| t.stats().runs == 1).await;
            worker
        }),
        make("a worker that rests", |_, t| async move {
            let worker = t.worker("a", async |_| Err::<(), _>("no luck")).restart_delays(LONG, LONG);
            let worker = worker.start().expect("there is a driver");
            until(&t, |t| t.stats().failed_runs == 1).await;
            worker
        }),
        make("a worker that has ended", |_, t| async move {
            let worker = t.worker("a", work).start().expect("there is a driver");
            worker.drain().await.expect("it ends");
            worker
        }),
        make("a drain of a worker, not polled", |_, t| async move {
            let worker = t.worker("a", work).start().expect("there is a driver");
            async move { worker.drain().await }
        }),
        make("a drain of a worker", |_, t| async move {
            let worker = t.worker("a", work).start().expect("there is a driver");
            until(&t, |t| t.stats().runs == 1).await;
            polled(async move { worker.drain().await }).await
        }),
        make("a stop of a worker", |_, t| async move {
            let worker = t.worker("a", work).start().expect("there is a driver");
            until(&t, |t| t.stats().runs == 1).await;
            polled(async move { worker.stop().await }).await
        }),
        make("a wait for the end of a worker", |_, t| async move {
            polled(t.worker("a", work).start().expect("there is a driver").ended()).await
        }),
        make("what work knows of its run", |_, t| async move { ctx_of_work(&t).await }),
        make("what work waits for", |_, t| async move {
            let ctx = ctx_of_work(&t).await;
            let mut renewals = ctx.renewals();
            let renewals = async move { renewals.next().await };
            let waits =
                (polled(ctx.draining()).await, polled(ctx.lost()).await, polled(ctx.stopping()).await);
            (waits, polled(renewals).await, ctx.signal())
        }),
    ]
}

fn timers<R: Runtime>() -> Vec<Maker<R>> {
    vec![
        make("a timer", |_, t| async move { t.timer("a", SOON).start().expect("there is a driver") }),
        make("a timer that has ticked", |_, t| async move {
            let mut timer = t.timer("a", SOON).start().expect("there is a driver");
            drop(timer.next().await);
            timer
        }),
        make("a wait for a tick", |_, t| async move {
            let mut timer = t.timer("a", LONG).start().expect("there is a driver");
            polled(async move { timer.next().await.is_some() }).await
        }),
        make("a job", |_, t| async move { t.periodic("a", LONG, work).start().expect("there is a driver") }),
        make("a job that runs", |_, t| async move {
            let job = t.periodic("a", SOON, work).start().expect("there is a driver");
            until(&t, |t| t.stats().runs == 1).await;
            job
        }),
        make("a drain of a job", |_, t| async move {
            let job = t.periodic("a", SOON, work).start().expect("there is a driver");
            until(&t, |t| t.stats().runs == 1).await;
            polled(async move { job.drain().await }).await
        }),
        make("a stop of a job", |_, t| async move {
            let job = t.periodic("a", LONG, work).start().expect("there is a driver");
            polled(async move { job.stop().await }).await
        }),
        make("a wait for the end of a job", |_, t| async move {
            polled(t.periodic("a", LONG, work).start().expect("there is a driver").ended()).await
        }),
        make("what a run knows", |_, t| async move {
            let ctx = ctx_of_run(&t).await;
            (polled(ctx.draining()).await, ctx)
        }),
        make("a record, on its way", |_, t| async move { polled(t.jobs().begin("a").start()).await }),
        make(
            "a record",
            |_, t| async move { t.jobs().begin("a").start().await.expect("the store has them") },
        ),
        make("the end of a record, not polled", |_, t| async move {
            let run = t.jobs().begin("a").start().await.expect("the store has them");
            Box::pin(run.succeed())
        }),
        make("the end of a record", |_, t| async move {
            let run = t.jobs().begin("a").start().await.expect("the store has them");
            polled(run.fail("no luck")).await
        }),
    ]
}

fn coordinators<R: Runtime>() -> Vec<Maker<R>> {
    fn works(t: &Tenure) -> tenure_driver::Coordinator {
        t.coordinate(["a", "b"], work).hold_down(Duration::ZERO).start().expect("there is a driver")
    }
    vec![
        make("a coordinator", |_, t| async move { works(&t) }),
        make("a coordinator that works", |_, t| async move {
            let coordinator = works(&t);
            until(&t, |t| t.stats().runs == 2).await;
            coordinator
        }),
        make("a change of workloads, not polled", |_, t| async move {
            let coordinator = works(&t);
            async move { coordinator.add("c").await }
        }),
        make("a change of workloads", |_, t| async move {
            let coordinator = works(&t);
            let other = coordinator.clone();
            let add = polled(async move { coordinator.add("c").await }).await;
            (add, polled(async move { other.remove("a").await }).await)
        }),
        make("a drain of a coordinator", |_, t| async move {
            let coordinator = works(&t);
            until(&t, |t| t.stats().runs == 2).await;
            polled(async move { coordinator.drain().await }).await
        }),
        make("a stop of a coordinator", |_, t| async move {
            let coordinator = works(&t);
            polled(async move { coordinator.stop().await }).await
        }),
        make("waits for a coordinator", |_, t| async move {
            let coordinator = works(&t);
            (polled(coordinator.changed()).await, polled(coordinator.ended()).await)
        }),
    ]
}

fn futures_of_tenure<R: Runtime>() -> Vec<Maker<R>> {
    vec![
        make("a shutdown, not polled", |_, t| async move { async move { t.shutdown().await } }),
        make("a shutdown", |_, t| async move {
            let lease = held(&t).await;
            (polled(async move { t.shutdown().await }).await, lease)
        }),
        make("a shutdown of nothing", |_, t| async move { polled(async move { t.shutdown().await }).await }),
        make("a drain", |_, t| async move {
            let lease = held(&t).await;
            (polled(async move { t.drain().await }).await, lease)
        }),
        make("a drain that was taken back", |_, t| async move {
            let (lease, other) = (held(&t).await, t.clone());
            let drain = polled(async move { other.drain().await }).await;
            t.resume();
            (drain, lease)
        }),
        make("waits for drains", |_, t| async move {
            (polled(t.draining()).await, polled(t.drained()).await, polled(t.resumed()).await)
        }),
        make("a wait for the end of a drain", |_, t| async move {
            let (lease, other) = (held(&t).await, t.clone());
            let drain = polled(async move { other.drain().await }).await;
            until(&t, Tenure::is_draining).await;
            (polled(t.resumed()).await, drain, lease)
        }),
        make("a scope, not polled", |_, t| async move { t.scope(async |_| ()) }),
        make("a scope", |_, t| async move {
            polled(t.scope(async |t| {
                let _lease = held(&t).await;
                pending::<()>().await;
            }))
            .await
        }),
        make(
            "a wait for a signal",
            |_, t| async move { polled(async move { t.until_terminated().await }).await },
        ),
        make("a sleep, not polled", |_, t| async move { t.sleep(LONG) }),
        make("a sleep", |_, t| async move { polled(t.sleep(LONG)).await }),
        make("a join", |_, t| async move { polled(async move { t.join().await }).await }),
        make("looks", |_, t| async move {
            let looks = |t: Tenure| async move {
                drop(t.inspect("a").await);
                drop(t.leases().await);
            };
            (
                polled(looks(t.clone())).await,
                polled({
                    let t = t.clone();
                    async move { t.timers().await }
                })
                .await,
                polled(async move { t.members().await }).await,
            )
        }),
        make("looks at jobs", |_, t| async move {
            let (all, jobs) = (t.jobs(), t.jobs());
            let all = polled(async move { all.all().await }).await;
            (all, polled(async move { jobs.history("a").await }).await)
        }),
        make("changes by hand", |_, t| async move {
            let (forget, mark) = (t.clone(), t.clone());
            let evict = polled(async move { t.evict("a", Eviction::Delete).await }).await;
            let forget = polled(async move { forget.forget_timer("a").await }).await;
            (evict, forget, polled(async move { mark.mark("nobody", true).await }).await)
        }),
    ]
}
