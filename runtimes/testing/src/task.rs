//! Tasks of an instance, and how they ended.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A task that was spawned by [`Fleet::spawn`](crate::Fleet::spawn). Dropping it lets the task go on.
///
/// Awaited it gives what the task has returned, or [`Crashed`] if its process did before.
pub struct Task<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    output: Option<Result<T, Crashed>>,
    over: bool,
    waker: Option<Waker>,
}

impl<T> Task<T> {
    /// Whether the task has ended, or its process has crashed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        lock(&self.0).over
    }

    /// What the task has returned, once. `None` as long as it runs, and once this was taken.
    #[must_use]
    pub fn take(&self) -> Option<Result<T, Crashed>> {
        lock(&self.0).output.take()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, Crashed>;

    /// Never ready again once the output was taken.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0);
        if let Some(output) = state.output.take() {
            return Poll::Ready(output);
        }
        let replaced = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

/// The process of a task crashed before the task had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crashed;

impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its process crashed before the task had ended")
    }
}

impl Error for Crashed {}

/// The future to run, and the handle of it.
pub(crate) fn task<T, F>(future: F) -> (impl Future<Output = ()> + Send + 'static, Task<T>)
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let state = Arc::new(Mutex::new(State { output: None, over: false, waker: None }));
    let end = End(Arc::clone(&state));
    let run = async move {
        let end = end;
        let output = future.await;
        end.tell(Ok(output));
    };
    (run, Task(state))
}

/// Tells the handle, also if the task is dropped.
struct End<T>(Arc<Mutex<State<T>>>);

impl<T> End<T> {
    fn tell(&self, output: Result<T, Crashed>) {
        let mut state = lock(&self.0);
        if state.over {
            return;
        }
        state.over = true;
        state.output = Some(output);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        self.tell(Err(Crashed));
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
