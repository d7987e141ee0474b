//! Where things are dropped.

use std::cell::RefCell;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::select;
use tenure_driver::{Tenure, Worker};

use super::things::Thing;
use crate::Host;

/// A place, and how a thing comes to be dropped there.
pub(super) struct Place<H> {
    pub(super) name: &'static str,
    /// Called before the instance is started: what is made here comes before its driver.
    pub(super) prepare: fn(&H) -> Prepared,
    pub(super) drop: Dropping<H>,
}

/// Has the thing dropped. Gives the runtime back, unless that has ended.
#[derive(Clone, Copy)]
pub(super) enum Dropping<H> {
    /// No other handle needs to be there.
    Alone(fn(H, Prepared, Thing) -> Option<H>),
    /// With the help of a handle.
    With(fn(H, Tenure, Thing) -> Option<H>),
}

/// What a place has made before the driver was there.
pub(super) struct Prepared(Option<Keeper>);

impl Prepared {
    fn nothing<H>(_: &H) -> Self {
        Self(None)
    }

    fn keeper<H: Host>(host: &H) -> Self {
        Self(Some(Keeper::new(host)))
    }
}

/// A task that keeps a thing for as long as it lives.
struct Keeper {
    give: oneshot::Sender<Thing>,
    kept: oneshot::Receiver<()>,
}

impl Keeper {
    fn new<H: Host>(host: &H) -> Self {
        let (give, given) = oneshot::channel::<Thing>();
        let (keeps, kept) = oneshot::channel();
        host.block_on(async {
            host.spawn(async move {
                let _thing = given.await;
                let _nobody = keeps.send(());
                pending::<()>().await;
            });
        });
        Self { give, kept }
    }

    fn keep<H: Host>(self, host: &H, thing: Thing) {
        assert!(self.give.send(thing).is_ok(), "the task is there");
        host.block_on(self.kept).expect("the task is there");
    }
}

thread_local! {
    static KEPT: RefCell<Option<Thing>> = const { RefCell::new(None) };
}

/// Keeps it until this thread ends.
fn keep(thing: Thing) {
    KEPT.with(|kept| *kept.borrow_mut() = Some(thing));
}

/// On a thread that knows of no runtime, to its end.
fn beside(act: impl FnOnce() + Send + 'static) {
    if let Err(panic) = thread::spawn(act).join() {
        resume_unwind(panic);
    }
}

fn unwind(thing: Thing) {
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _thing = thing;
        // As a panic does it, but nothing is printed.
        resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err());
}

/// Has the work of a worker keep it: what makes the futures, or the future of a run. Returns once that runs, or can't.
fn by_work<H: Host>(host: &H, tenure: &Tenure, thing: Thing, in_future: bool) -> Option<Worker> {
    let (runs, running) = oneshot::channel();
    let (mut runs, mut future, mut maker) = (Some(runs), None, None);
    *(if in_future { &mut future } else { &mut maker }) = Some(thing);
    host.block_on(async {
        let work = move |_| {
            let _kept = &maker;
            let (kept, runs) = (future.take(), runs.take());
            async move {
                let _kept = kept;
                let _nobody = runs.map(|runs| runs.send(()));
                pending::<()>().await;
            }
        };
        // Fails after a shutdown. A drain keeps the work from being started.
        let worker = tenure.worker("of the place", work).start().ok()?;
        let _ran_or_not = select(running, tenure.draining()).await;
        Some(worker)
    })
}

fn end<H: Host>(host: H) {
    // Places that live on have one to spare, which may be one that does not end.
    let _ended = host.shut_down();
}

async fn stop(worker: Option<Worker>) {
    if let Some(worker) = worker {
        // The thing may have the instance shut down meanwhile.
        let _closed = worker.stop().await;
    }
}

/// Places in a runtime that lives on.
pub(super) fn in_a_runtime<H: Host>() -> Vec<Place<H>> {
    let place = |name, drop| Place { name, prepare: Prepared::nothing, drop: Dropping::Alone(drop) };
    let with = |name, drop| Place { name, prepare: Prepared::nothing, drop: Dropping::With(drop) };
    vec![
        place("inside of the runtime", |host: H, _, thing| {
            host.block_on(async { drop(thing) });
            Some(host)
        }),
        place("in a task", |host, _, thing| {
            host.block_on(async {
                let (done, dropped) = oneshot::channel();
                host.spawn(async move {
                    drop(thing);
                    let _nobody = done.send(());
                });
                dropped.await.expect("the task has done it");
            });
            Some(host)
        }),
        place("on another thread, while the runtime is idle", |host, _, thing| {
            beside(|| drop(thing));
            Some(host)
        }),
        place("on another thread, while the runtime runs", |host, _, thing| {
            host.block_on(async {
                let (done, dropped) = oneshot::channel();
                let thread = thread::spawn(move || {
                    drop(thing);
                    done.send(())
                });
                dropped.await.expect("the thread has done it");
                assert!(thread.join().is_ok());
            });
            Some(host)
        }),
        place("in another runtime", |host, _, thing| {
            beside(|| {
                let other = H::new();
                other.block_on(async { drop(thing) });
                end(other);
            });
            Some(host)
        }),
        place("while panicking", |host, _, thing| {
            host.block_on(async {
                let unwound = async {
                    let _thing = thing;
                    crate::waiting::pause().await;
                    resume_unwind(Box::new("on purpose"));
                };
                assert!(AssertUnwindSafe(unwound).catch_unwind().await.is_err());
            });
            Some(host)
        }),
        place("while panicking on another thread", |host, _, thing| {
            beside(|| unwind(thing));
            Some(host)
        }),
        place("at the end of another thread", |host, _, thing| {
            beside(|| keep(thing));
            Some(host)
        }),
        with("by the driver, with the work that has it", |host: H, tenure, thing| {
            let worker = by_work(&host, &tenure, thing, false);
            host.block_on(async { stop(worker).await });
            Some(host)
        }),
        with("by a run that is stopped", |host, tenure, thing| {
            let worker = by_work(&host, &tenure, thing, true);
            host.block_on(async { stop(worker).await });
            Some(host)
        }),
    ]
}

/// Places at the end of a runtime and after it.
pub(super) fn at_its_end<H: Host>() -> Vec<Place<H>> {
    let place = |name, drop| Place { name, prepare: Prepared::nothing, drop: Dropping::Alone(drop) };
    let with = |name, drop| Place { name, prepare: Prepared::nothing, drop: Dropping::With(drop) };
    vec![
        place("after the end of the runtime", |host: H, _, thing| {
            end(host);
            drop(thing);
            None
        }),
        place("after the end of the runtime, in another one", |host, _, thing| {
            end(host);
            let other = H::new();
            other.block_on(async { drop(thing) });
            end(other);
            None
        }),
        place("after the end of the runtime, while panicking", |host, _, thing| {
            end(host);
            unwind(thing);
            None
        }),
        place("after the end of the runtime, at that of the thread", |host, _, thing| {
            // After what the runtime has of the thread, or before it: which depends on who came first.
            keep(Box::new(()));
            end(host);
            keep(thing);
            None
        }),
        Place {
            name: "after the end of the runtime, at the very end of the thread",
            prepare: |_| {
                keep(Box::new(()));
                Prepared(None)
            },
            drop: Dropping::Alone(|host, _, thing| {
                end(host);
                keep(thing);
                None
            }),
        },
        place("at the end of a thread of the runtime", |host, _, thing| {
            host.block_on(async {
                let (done, kept) = oneshot::channel();
                host.spawn(async move {
                    keep(thing);
                    let _nobody = done.send(());
                });
                kept.await.expect("the task has done it");
            });
            end(host);
            None
        }),
        Place {
            name: "by the end of the runtime, in a task older than the driver",
            prepare: Prepared::keeper,
            drop: Dropping::Alone(|host, prepared, thing| {
                prepared.0.expect("it was prepared").keep(&host, thing);
                end(host);
                None
            }),
        },
        place("by the end of the runtime, in a task younger than the driver", |host, _, thing| {
            Keeper::new(&host).keep(&host, thing);
            end(host);
            None
        }),
        with("by the end of the runtime, with the work that has it", |host: H, tenure, thing| {
            drop(by_work(&host, &tenure, thing, false));
            end(host);
            None
        }),
        with("by the end of the runtime, with a run", |host, tenure, thing| {
            drop(by_work(&host, &tenure, thing, true));
            end(host);
            None
        }),
    ]
}
