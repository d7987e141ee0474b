//! What a worker runs, which is the user's, and what that comes to.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use futures::channel::mpsc;
use futures::future::BoxFuture;

use super::Ctx;
use crate::hold::Hold;
use crate::runtime::SharedClock;

/// What is run: makes the future of each run, one after the other, though the runs may overlap. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Work(Arc<Closure>);

type Begin = dyn FnMut(Ctx) -> Run + Send;

pub(super) type Run = BoxFuture<'static, Result<(), String>>;

impl Work {
    pub(crate) fn new<W, F>(mut work: W) -> Self
    where
        W: FnMut(Ctx) -> F + Send + 'static,
        F: Future + Send + 'static,
        F::Output: Outcome,
    {
        let begin = move |ctx| -> Run {
            let run = work(ctx);
            Box::pin(async { run.await.into_result() })
        };
        Self(Arc::new(Closure::new(Box::new(begin), false)))
    }

    /// Work that blocks the thread that it runs on.
    pub(crate) fn blocking<W, O>(work: W) -> Self
    where
        W: Fn(Ctx) -> O + Send + Sync + 'static,
        O: Outcome,
    {
        let work = Arc::new(work);
        let begin = move |ctx| -> Run {
            let work = Arc::clone(&work);
            Box::pin(async move { work(ctx).into_result() })
        };
        Self(Arc::new(Closure::new(Box::new(begin), true)))
    }

    /// From now on it is dropped where it runs, and not by whoever has it last.
    pub(crate) fn belong(&self, home: Home) {
        let _at_home = self.0.home.set(home);
    }

    /// Whether each run needs a thread of its own.
    pub(super) fn blocks(&self) -> bool {
        self.0.blocks
    }

    /// Begins a run; `None` if its lease is over by the time that it comes to that.
    pub(super) fn start(&self, hold: &Hold, ctx: impl FnOnce() -> Ctx) -> Option<Result<Run, String>> {
        let Some(Foreign(begin)) = &self.0.begin else { return Some(Err("it is gone".to_owned())) };
        let mut begin = begin.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(work) = begin.as_mut() else { return Some(Err("it is gone".to_owned())) };
        // Only now: another run may have taken its time to begin.
        hold.is_valid().then(|| caught(|| work(ctx())))
    }
}

/// The closure. All of it is the user's, what it drops included, and so are its panics: none of them gets out. What it
/// drops may take its time, too, and wait for the driver: so that is done where it has run.
struct Closure {
    begin: Option<Foreign>,
    blocks: bool,
    home: OnceLock<Home>,
}

impl Closure {
    fn new(begin: Box<Begin>, blocks: bool) -> Self {
        Self { begin: Some(Foreign(Mutex::new(Some(begin)))), blocks, home: OnceLock::new() }
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        let Some((begin, home)) = self.begin.take().zip(self.home.take()) else { return };
        let Home { runtime, dropped } = home;
        // Dropped in this order.
        let parts = (begin, dropped);
        if self.blocks {
            // Without a thread it is dropped here.
            let _thread = thread::Builder::new().name("tenure-run".to_owned()).spawn(move || drop(parts));
        } else {
            // A runtime that has ended drops it here.
            let _foreign = caught(|| runtime.spawn(Box::pin(async move { drop(parts) })));
        }
    }
}

/// Where a closure runs, and is dropped in the end.
pub(crate) struct Home {
    pub(crate) runtime: SharedClock,
    /// Dropped after it.
    pub(crate) dropped: mpsc::UnboundedSender<Infallible>,
}

/// Drops the user's closure without its panic.
struct Foreign(Mutex<Option<Box<Begin>>>);

impl Drop for Foreign {
    fn drop(&mut self) {
        let begin = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _nobody_to_tell = caught(|| drop(begin));
    }
}

/// Calls the user's code; a panic becomes an error.
pub(super) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.map_or_else(|| "it panicked".to_owned(), |text| format!("it panicked: {text}"));
        // What was thrown may panic when it is dropped. What that throws is left alone.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text
    })
}

/// What work comes to: `()`, a result whose error is logged and counts as a failure, or nothing at all: an endless loop.
/// A panic is a failure, too.
///
/// An error after the work has seen that it is to end ([`Ctx::draining`], [`Ctx::is_draining`] and the like), or after its
/// lease has ended, is logged, but counts as stopped: work that is cut short often says so by an error, and would have
/// gone on. So a worker does not rest for longer after it, and a periodic job may leave its tick to another attempt.
pub trait Outcome {
    /// The error as text.
    ///
    /// # Errors
    /// The text of the error.
    fn into_result(self) -> Result<(), String>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> Outcome for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

/// For `!`: an endless loop.
impl Outcome for Never {
    fn into_result(self) -> Result<(), String> {
        self
    }
}

/// `!`, which has no name of its own on stable Rust. Since the edition of 2024 it is what an endless loop comes to.
type Never = <fn() -> ! as Returns>::Output;

#[expect(unnameable_types, reason = "only the name above is of any use")]
#[doc(hidden)]
pub trait Returns {
    #[doc(hidden)]
    type Output;
}

impl<T> Returns for fn() -> T {
    type Output = T;
}
