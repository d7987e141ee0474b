//! One run of a worker's work, as a task.

use futures::channel::mpsc;
use tenure_core::{Exit, LeaseKey};

use super::{
    Arc, AssertUnwindSafe, BoxFuture, Context, Ctx, Ending, Hold, Pin, Poll, Work, catch_unwind, poll_fn,
};
use crate::lease::LostReason;
use tenure_core::StopReason;

/// How a run has ended.
pub(crate) struct Ended {
    pub(crate) lease: LeaseKey,
    pub(crate) exit: Exit,
    /// What went wrong, if anything did.
    pub(crate) error: Option<String>,
    /// `None` if it was lost with its runtime.
    pub(crate) work: Option<Work>,
}

/// One run. However its task ends, also when it is dropped, the driver is told.
pub(crate) struct Job {
    lease: LeaseKey,
    hold: Arc<Hold>,
    work: Option<Work>,
    exit: Exit,
    error: Option<String>,
    ended: mpsc::UnboundedSender<Ended>,
}

impl Job {
    pub(crate) fn new(
        lease: LeaseKey,
        hold: Arc<Hold>,
        work: Work,
        ended: mpsc::UnboundedSender<Ended>,
    ) -> Self {
        let error = Some("its task was dropped by the runtime".to_owned());
        Self { lease, hold, work: Some(work), exit: Exit::Failed, error, ended }
    }

    /// Starts the work, unless the clock has reached the fence, and sees to it until it has ended.
    pub(crate) async fn run(mut self) {
        if !self.hold.is_valid() {
            (self.exit, self.error) = (Exit::NotStarted, None);
            return;
        }
        let Some(work) = &mut self.work else { return };
        let ctx = Ctx { hold: Arc::clone(&self.hold) };
        let result = match catch_unwind(AssertUnwindSafe(|| work(ctx))) {
            Ok(run) => watch(Ending::new(Arc::clone(&self.hold)), run).await,
            Err(panic) => Err(message(&*panic)),
        };
        self.exit = if result.is_ok() { Exit::Completed } else { Exit::Failed };
        self.error = result.err();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Tasks with a signal stop.
        self.hold.lose(StopReason::Drain, LostReason::Released);
        let (work, error) = (self.work.take(), self.error.take());
        let ended = Ended { lease: self.lease, exit: self.exit, error, work };
        // A driver that is gone has told all handles that it is.
        let _gone = self.ended.unbounded_send(ended);
    }
}

/// Runs the work until it ends, or until it is stopped hard, by the driver or by the clock alone.
async fn watch(mut ending: Ending, run: BoxFuture<'static, Result<(), String>>) -> Result<(), String> {
    let mut run = Some(run);
    let result = poll_fn(|cx| {
        if ending.poll_killed(cx).is_ready() {
            return Poll::Ready(Err("it was stopped before it had ended".to_owned()));
        }
        run.as_mut().map_or(Poll::Pending, |run| poll_caught(run.as_mut(), cx))
    })
    .await;
    // What is dropped is the user's, too.
    match (catch_unwind(AssertUnwindSafe(|| drop(run.take()))), result) {
        (Err(panic), Ok(())) => Err(message(&*panic)),
        (_, result) => result,
    }
}

fn poll_caught(
    run: Pin<&mut (dyn Future<Output = Result<(), String>> + Send)>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), String>> {
    catch_unwind(AssertUnwindSafe(|| run.poll(cx))).unwrap_or_else(|panic| Poll::Ready(Err(message(&*panic))))
}

/// What a panic says.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.map_or_else(|| "it panicked".to_owned(), |text| format!("it panicked: {text}"))
}
