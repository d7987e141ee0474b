//! The closures of workers, jobs and coordinators, which are dropped where they run.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Context;

use futures::channel::mpsc;
use futures::stream::StreamExt;

use crate::runtime::SharedClock;
use crate::worker::{Home, Work};

/// Tells when all of them are gone, for the end of the driver: until then they may have something to flush.
pub(super) struct Closures {
    /// A clone of it goes along with each.
    sender: Option<mpsc::UnboundedSender<Infallible>>,
    gone: mpsc::UnboundedReceiver<Infallible>,
}

impl Default for Closures {
    fn default() -> Self {
        let (sender, gone) = mpsc::unbounded();
        Self { sender: Some(sender), gone }
    }
}

impl Closures {
    /// The work is dropped where it runs.
    pub(super) fn enter(&self, work: &Work, runtime: &SharedClock) {
        if let Some(sender) = &self.sender {
            work.belong(Home { runtime: Arc::clone(runtime), dropped: sender.clone() });
        }
    }

    /// Whether all are gone. From the first time on none is entered any more.
    pub(super) fn are_gone(&mut self, cx: &mut Context<'_>) -> bool {
        self.sender = None;
        self.gone.poll_next_unpin(cx).is_ready()
    }
}
