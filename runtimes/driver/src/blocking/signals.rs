//! The requests to end, as a program of plain threads hears them.

use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread::{self, JoinHandle};

use futures::FutureExt;
use futures::channel::oneshot;

use super::wait;
use crate::{Tenure, events};

const THREAD: &str = "tenure-signals";

/// Calls `wait` on a thread that belongs to no runtime: signals would be awaited by the one of the caller, which it
/// blocks.
pub(super) fn apart<T: Send>(wait: impl Fn() -> T + Sync) -> T {
    thread::scope(|scope| {
        match thread::Builder::new().name(THREAD.to_owned()).spawn_scoped(scope, &wait) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // Where the caller is in no runtime it is as good.
            Err(_no_thread) => wait(),
        }
    })
}

/// While it lives, a request to end is a shutdown, and a second one stops what runs.
pub(super) struct Watch {
    /// Dropped to end it.
    ends: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(tenure: &Tenure) -> Self {
        let (ends, ended) = oneshot::channel();
        let (listens, listening) = mpsc::channel::<()>();
        let tenure = tenure.clone();
        let watch = move || wait(watch(&tenure, ended, || drop(listens)));
        let thread = thread::Builder::new().name(THREAD.to_owned()).spawn(watch);
        if let Err(error) = &thread {
            events::no_signals(format_args!(
                "there is no thread to listen for requests to end, which so end the process at once: {error}"
            ));
        }
        // From here on, a signal is not to end the process.
        let _listens = listening.recv();
        Self { ends: Some(ends), thread: thread.ok() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

async fn watch(tenure: &Tenure, mut ended: oneshot::Receiver<()>, listens: impl FnOnce()) {
    let mut signal = tenure.clock().interrupted();
    listens();
    let mut stop = pin!(tenure.stop());
    let mut signals = 0;
    poll_fn(|cx| {
        while signals < 2 && signal.as_mut().poll(cx).is_ready() {
            signals += 1;
            if signals == 1 {
                events::asked_to_end("asked to end: work under leases is asked to stop");
                tenure.begin_shutdown();
                signal = tenure.clock().interrupted();
            } else {
                events::asked_again();
            }
        }
        if signals == 2 && stop.as_mut().poll(cx).is_ready() {
            signals += 1;
        }
        if ended.poll_unpin(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
