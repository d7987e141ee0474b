//! One run of the work of a worker or a periodic job, as a task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::channel::mpsc;
use tenure_core::{DueTick, Exit, LeaseKey, StopReason, TimerName};

use super::outcome::{Run, Work, caught};
use super::{Ctx, Shared};
use crate::hold::{Ending, Hold};
use crate::lease::LostReason;
use crate::periodic;

/// How a run has ended.
pub(crate) struct Ended {
    pub(crate) lease: LeaseKey,
    pub(crate) exit: Exit,
    /// What went wrong, if anything did.
    pub(crate) error: Option<String>,
    /// `None` if it was lost with its runtime.
    pub(crate) work: Option<Work>,
}

/// What a run belongs to.
pub(crate) enum Host {
    Worker(Arc<Shared>),
    Periodic { shared: Arc<periodic::Shared>, name: TimerName, due: DueTick },
}

impl Host {
    fn run(&self) -> Option<(TimerName, DueTick)> {
        match self {
            Self::Worker(_) => None,
            Self::Periodic { name, due, .. } => Some((name.clone(), *due)),
        }
    }

    fn run_is_gone(&self, lease: LeaseKey) {
        match self {
            Self::Worker(shared) => shared.work_is_gone(),
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
        Self { lease, hold, work: Some(work), host, end: None, ended }
    }

    pub(crate) async fn run(mut self) {
        let end = self.work().await;
        self.end = Some(end);
    }

    /// Starts the work, unless the clock has reached the fence, and sees to it until it has ended.
    async fn work(&mut self) -> (Exit, Option<String>) {
        let Some(work) = self.work.as_ref().filter(|_| self.hold.is_valid()) else {
            return (Exit::NotStarted, None);
        };
        let result = match work.start(Ctx::new(Arc::clone(&self.hold), self.host.run())) {
            Ok(run) => watch(Ending::new(Arc::clone(&self.hold)), run).await,
            Err(panic) => Some(Err(panic)),
        };
        match result {
            Some(Err(error)) => (Exit::Failed, Some(error)),
            // Work that came to its end without having heard of a stop has done all of it.
            Some(Ok(())) if !self.hold.cut_short() => (Exit::Completed, None),
            Some(Ok(())) | None => (Exit::Stopped, None),
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
                (Exit::Failed, Some("its runtime has ended, and its worker ends with it".to_owned()), None)
            }
        };
        // A driver that is gone has told all handles that it is.
        let _gone = self.ended.unbounded_send(Ended { lease: self.lease, exit, error, work });
    }
}

/// Runs the work until it ends, or until it is stopped hard, by the driver or by the clock alone: `None`.
async fn watch(mut ending: Ending, run: Run) -> Option<Result<(), String>> {
    let mut run = Some(run);
    let result = poll_fn(|cx| {
        if ending.poll_killed(cx).is_ready() {
            return Poll::Ready(None);
        }
        run.as_mut().map_or(Poll::Pending, |run| poll_caught(run.as_mut(), cx).map(Some))
    })
    .await;
    // What is dropped is the user's, too.
    match (caught(|| drop(run.take())), result) {
        (Err(panic), None | Some(Ok(()))) => Some(Err(panic)),
        (_, result) => result,
    }
}

fn poll_caught(
    run: Pin<&mut (dyn Future<Output = Result<(), String>> + Send)>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), String>> {
    caught(|| run.poll(cx)).unwrap_or_else(|panic| Poll::Ready(Err(panic)))
}
