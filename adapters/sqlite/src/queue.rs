//! The way from the callers to the store's thread: bounded, and nobody waits at its entrance.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many jobs may wait; further ones are refused. A job carries a whole batch, and a driver has few under
/// way at a time: a queue that is full means that the disk stands still or another process blocks the file.
pub(crate) const CAPACITY: usize = 256;

/// A bounded queue that wakes a thread which sleeps in `poll`.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    /// A byte is written here when the queue stops being empty, or is closed.
    bell: UnixStream,
    woken: UnixStream,
}

struct State<T> {
    jobs: VecDeque<T>,
    closed: bool,
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let (bell, woken) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let state = Mutex::new(State { jobs: VecDeque::new(), closed: false });
        Ok(Self { state, bell, woken })
    }

    /// Takes a job, or gives it back with the reason.
    pub(crate) fn push(&self, job: T) -> Result<(), (Refused, T)> {
        let mut state = self.lock();
        if state.closed {
            return Err((Refused::Closed, job));
        }
        if state.jobs.len() >= CAPACITY {
            return Err((Refused::Full, job));
        }
        state.jobs.push_back(job);
        let first = state.jobs.len() == 1;
        drop(state);
        if first {
            self.wake();
        }
        Ok(())
    }

    /// The next job, if there is one.
    pub(crate) fn pop(&self) -> Option<T> {
        self.lock().jobs.pop_front()
    }

    /// The next job, if there is one and it is of the kind that is wanted.
    pub(crate) fn pop_if(&self, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut state = self.lock();
        if state.jobs.front().is_some_and(wanted) { state.jobs.pop_front() } else { None }
    }

    /// Takes no more jobs; those that wait are still done.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake();
    }

    /// Whether it is closed and nothing is left to do.
    pub(crate) fn is_finished(&self) -> bool {
        let state = self.lock();
        state.closed && state.jobs.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().jobs.is_empty()
    }

    /// Readable when there may be something to do.
    pub(crate) const fn signal(&self) -> &UnixStream {
        &self.woken
    }

    /// Makes [`signal`](Self::signal) quiet again; to be followed by a look at the queue.
    pub(crate) fn hush(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(read) if read > 0) {}
    }

    fn wake(&self) {
        // A full pipe has woken the thread already.
        let _ = (&self.bell).write(&[1]);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Queue").field("waiting", &state.jobs.len()).field("closed", &state.closed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_a_closed_one_still_gives_out_what_it_has() {
        let queue = Queue::new().unwrap();
        for job in 0..CAPACITY {
            assert_eq!(queue.push(job), Ok(()));
        }
        assert_eq!(queue.push(7), Err((Refused::Full, 7)));
        assert_eq!(queue.pop(), Some(0));
        assert_eq!(queue.push(CAPACITY), Ok(()));
        queue.close();
        assert_eq!(queue.push(7), Err((Refused::Closed, 7)));
        assert!(!queue.is_finished());
        assert_eq!(queue.pop_if(|job| *job == 2), None);
        assert_eq!(queue.pop_if(|job| *job == 1), Some(1));
        for job in 2..=CAPACITY {
            assert_eq!(queue.pop(), Some(job));
        }
        assert!(queue.is_finished());
    }
}
