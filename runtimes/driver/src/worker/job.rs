//! One run of the work of a worker or a periodic job, as a task or on a thread.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;

use futures::channel::mpsc;
use tenure_core::{DueTick, Exit, LeaseKey, StopReason, TimerName};

use super::outcome::{Run, Work, caught};
use super::{Ctx, Place};
use crate::blocking;
use crate::events;
use crate::hold::{Ending, Hold};
use crate::lease::LostReason;
use crate::periodic;
use crate::runtime::SharedClock;

/// How a run has ended.
pub(crate) struct Ended {
    pub(crate) lease: LeaseKey,
    pub(crate) exit: Exit,
    /// What went wrong, if anything did; also with work that was stopped.
    pub(crate) error: Option<String>,
    /// `None` if it was lost with its runtime.
    pub(crate) work: Option<Work>,
}

impl Ended {
    /// What became of the work, before the text of what went wrong.
    pub(crate) const fn how(exit: Exit) -> &'static str {
        match exit {
            Exit::Completed => "has ended",
            Exit::Failed => "failed",
            Exit::Stopped => "was stopped",
            Exit::NotStarted => "did not begin",
        }
    }
}

/// What a run belongs to.
pub(crate) enum Host {
    Worker(Place),
    Periodic { shared: Arc<periodic::Shared>, name: TimerName, due: DueTick },
}

impl Host {
    fn run(&self) -> Option<(TimerName, DueTick)> {
        match self {
            Self::Worker(_) => None,
            Self::Periodic { name, due, .. } => Some((name.clone(), *due)),
        }
    }

    const fn is_run(&self) -> bool {
        match self {
            Self::Worker(_) => false,
            Self::Periodic { .. } => true,
        }
    }

    fn run_is_gone(&self, lease: LeaseKey) {
        match self {
            Self::Worker(place) => place.work_is_gone(),
            Self::Periodic { shared, .. } => shared.run_is_gone(lease),
        }
    }
}

/// One run. However its task ends, also when it is dropped, the driver is told.
pub(crate) struct Job {
    lease: LeaseKey,
    hold: Arc<Hold>,
    work: Option<Work>,
    host: Host,
    /// The work was called.
    begun: bool,
    /// How the run has ended, once it has.
    end: Option<(Exit, Option<String>)>,
    ended: mpsc::UnboundedSender<Ended>,
}

impl Job {
    pub(crate) fn new(
        lease: LeaseKey,
        hold: Arc<Hold>,
        work: Work,
        host: Host,
        ended: mpsc::UnboundedSender<Ended>,
    ) -> Self {
        Self { lease, hold, work: Some(work), host, begun: false, end: None, ended }
    }

    /// Starts it: as a task of the runtime, or on a thread of its own if the work blocks.
    pub(crate) fn start(self, runtime: &SharedClock) {
        if self.work.as_ref().is_some_and(Work::blocks) {
            self.start_on_thread();
        } else {
            runtime.spawn(Box::pin(self.run()));
        }
    }

    /// The thread can't be stopped, so the run ends where the work returns: the driver hears of it no earlier.
    fn start_on_thread(self) {
        let place = Arc::new(Mutex::new(Some(self)));
        let take = |place: &Mutex<Option<Self>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = Arc::clone(&place);
        let thread = thread::Builder::new().name("tenure-run".to_owned()).spawn(move || {
            if let Some(job) = take(&taken) {
                blocking::wait(job.run());
            }
        });
        if let Err(error) = thread
            && let Some(mut job) = take(&place)
        {
            let text = format!("the operating system gave no thread to run it on: {error}");
            job.end = Some((Exit::Failed, Some(text)));
        }
    }

    async fn run(mut self) {
        let end = self.work().await;
        self.end = Some(end);
    }

    /// Starts the work, unless the clock has reached the fence, and sees to it until it has ended.
    async fn work(&mut self) -> (Exit, Option<String>) {
        let Some(work) = &self.work else { return (Exit::NotStarted, None) };
        let run = self.host.run();
        let span = events::run_span(&self.hold, run.as_ref().map(|(name, due)| (name, due)));
        let ctx = || Ctx::new(Arc::clone(&self.hold), run);
        let started = span.in_scope(|| work.start(&self.hold, ctx));
        let Some(started) = started else { return (Exit::NotStarted, None) };
        self.begun = true;
        let result = match started {
            Ok(run) => watch(Ending::new(Arc::clone(&self.hold)), run, &span).await,
            Err(panic) => Err(panic),
        };
        match result {
            Err(panic) => (Exit::Failed, Some(panic)),
            Ok(_) if self.host.is_run() && self.hold.is_unbegun() => (Exit::NotStarted, None),
            Ok(None) => (Exit::Stopped, None),
            // To be cut short is often told as an error: it says nothing of whether the work would have failed.
            Ok(Some(result)) if self.hold.cut_short() => (Exit::Stopped, result.err()),
            // Work that came to its end without having heard of a stop has done all of it.
            Ok(Some(Ok(()))) => (Exit::Completed, None),
            Ok(Some(Err(error))) => (Exit::Failed, Some(error)),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Tasks with a signal stop. Whatever their wakers do, the driver is told.
        let _foreign = caught(|| self.hold.lose(StopReason::Drain, LostReason::Released));
        let _foreign = caught(|| self.host.run_is_gone(self.lease));
        let (exit, error, work) = match self.end.take() {
            Some((exit, error)) => (exit, error, self.work.take()),
            // Runtimes drop tasks only at their own end, and run nothing any more from then on.
            None => {
                let exit = if self.begun { Exit::Stopped } else { Exit::NotStarted };
                (exit, Some("its runtime has ended, and its worker ends with it".to_owned()), None)
            }
        };
        // A driver that is gone has told all handles that it is.
        let _gone = self.ended.unbounded_send(Ended { lease: self.lease, exit, error, work });
    }
}

/// Runs the work until it ends, or until it is stopped hard, by the driver or by the clock alone: `None`. What it writes
/// to the log, also when it is dropped, stands in `span`.
///
/// # Errors
/// The text of a panic, also of what is dropped.
async fn watch(
    mut ending: Ending,
    run: Run,
    span: &tracing::Span,
) -> Result<Option<Result<(), String>>, String> {
    let mut run = Some(run);
    let ended = poll_fn(|cx| {
        if ending.poll_killed(cx).is_ready() {
            return Poll::Ready(Ok(None));
        }
        let Some(run) = run.as_mut() else { return Poll::Pending };
        match caught(|| span.in_scope(|| run.as_mut().poll(cx))) {
            Ok(poll) => poll.map(|result| Ok(Some(result))),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await;
    // What is dropped is the user's, too.
    match (ended, caught(|| span.in_scope(|| drop(run.take())))) {
        (Ok(None | Some(Ok(()))), Err(panic)) => Err(panic),
        (ended, _) => ended,
    }
}
