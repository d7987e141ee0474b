//! Answers that come in any case.

use futures::channel::{mpsc, oneshot};
use tenure_core::{CommandId, LeaseName};
use tenure_store::StoreError;

use super::Message;

/// Answers in any case, also if the request that holds it is dropped or panics.
pub(super) struct AnswerOnDrop<T>(pub(super) Option<oneshot::Sender<Result<T, StoreError>>>);

impl<T> AnswerOnDrop<T> {
    pub(super) fn send(&mut self, result: Result<T, StoreError>) {
        if let Some(answer) = self.0.take() {
            let _nobody_waits = answer.send(result);
        }
    }
}

impl<T> Drop for AnswerOnDrop<T> {
    fn drop(&mut self) {
        self.send(Err(StoreError::unknown("the request ended before the store had answered")));
    }
}

/// The same for a watch.
pub(super) struct WatchOnDrop {
    pub(super) name: Option<LeaseName>,
    pub(super) id: Option<CommandId>,
    pub(super) sender: mpsc::UnboundedSender<Message>,
}

impl WatchOnDrop {
    pub(super) fn send(&mut self, result: Result<(), StoreError>) {
        if let Some(name) = self.name.take() {
            let _gone = self.sender.unbounded_send(Message::Watched { id: self.id, name, result });
        }
    }
}

impl Drop for WatchOnDrop {
    fn drop(&mut self) {
        self.send(Err(StoreError::unknown("the store did not answer")));
    }
}

/// The same for a report.
pub(super) struct ReportOnDrop {
    pub(super) run: Option<u64>,
    pub(super) sender: mpsc::UnboundedSender<Message>,
}

impl ReportOnDrop {
    pub(super) fn send(&mut self, result: Result<(), StoreError>) {
        if let Some(run) = self.run.take() {
            let _gone = self.sender.unbounded_send(Message::Reported { run, result });
        }
    }
}

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        self.send(Err(StoreError::unknown("the store did not answer")));
    }
}
