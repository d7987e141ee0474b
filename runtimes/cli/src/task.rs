//! A run of a periodic job or a workload, from the driver's task to this program's own thread.
//!
//! The driver starts a task for each run, drops it when the run must have ended, and gives the claim back after that. But
//! a command's guardian is started by the thread that lives as long as the program. So the task hands the run over to
//! that thread, waits for what comes of it, and does not go before nothing of the command lives.

use std::convert::Infallible;
use std::future::Future;
use std::sync::mpsc::{self, TryRecvError};

use tenure::Ctx;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::block_in_place;

/// A run that is to be seen to.
pub(crate) struct Task {
    pub(crate) ctx: Ctx,
    /// Takes what came of it. Dropped instead, it says that the run was not begun, as the job ends.
    pub(crate) outcome: oneshot::Sender<Result<(), String>>,
    /// Told once the run must have ended: what still lives is to be killed.
    pub(crate) abandoned: oneshot::Receiver<Infallible>,
    /// To be dropped when nothing of the command lives any more: the claim is not given back before.
    pub(crate) over: Over,
}

/// While this is there, something of a command may live.
pub(crate) struct Over {
    _waits: mpsc::Sender<Infallible>,
}

/// The task's side of it.
struct Waiting {
    outcome: oneshot::Receiver<Result<(), String>>,
    abandoned: Option<oneshot::Sender<Infallible>>,
    over: mpsc::Receiver<Infallible>,
}

/// Hands a run over, and waits for what comes of it. When it is dropped before, the command is killed, and the drop
/// waits for its death.
pub(crate) fn hand_over(
    ctx: Ctx,
    tasks: &UnboundedSender<Task>,
) -> impl Future<Output = Result<(), String>> + Send + use<> {
    let (outcome, comes) = oneshot::channel();
    let (abandons, abandoned) = oneshot::channel();
    let (waits, over) = mpsc::channel();
    let mut waiting = Waiting { outcome: comes, abandoned: Some(abandons), over };
    let task = Task { ctx: ctx.clone(), outcome, abandoned, over: Over { _waits: waits } };
    // If nobody is there any more to see to it, that is heard right below.
    let _ends = tasks.send(task);
    async move {
        match (&mut waiting.outcome).await {
            Ok(outcome) => outcome,
            Err(_unbegun) => {
                ctx.draining().await;
                ctx.leave_unbegun();
                Ok(())
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.abandoned.take());
        if self.over.try_recv() == Err(TryRecvError::Disconnected) {
            return;
        }
        // Others go on meanwhile, above all whoever renews the claims, on another thread.
        block_in_place(|| {
            let _over = self.over.recv();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_is_dropped_as_the_job_ends_was_no_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let tenure = tenure::connect(&url).await.unwrap();
        let (sender, mut tasks) = unbounded_channel();
        let job = tenure
            .periodic("job", Duration::from_millis(50), move |ctx| hand_over(ctx, &sender))
            .attempts(2)
            .start()
            .unwrap();
        let task = tasks.recv().await.unwrap();
        let tick = task.ctx.tick().unwrap().tick.n;
        let drain = tokio::spawn({
            let job = job.clone();
            async move { job.drain().await }
        });
        drop(task);
        drain.await.unwrap().unwrap();
        let timers = tenure.timers().await.unwrap();
        let claims: Vec<_> = timers[0].record.claims.iter().map(|claim| (claim.tick, claim.begun)).collect();
        assert_eq!(claims, [(tick, 0)]);
        tenure.shutdown().await.unwrap();
    }
}
