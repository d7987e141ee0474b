//! What the alarms and the sleeps of the runtimes have in common.

#[cfg(target_os = "linux")]
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tenure_core::Instant;

use crate::clock;

/// A timer on the clock that goes on while the machine sleeps, so that it fires at resume. `F` is its descriptor, as the
/// runtime waits for it.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct TimerFd<F> {
    fd: F,
    set: Option<Instant>,
}

#[cfg(target_os = "linux")]
impl<F: AsFd> TimerFd<F> {
    /// Registered with the runtime by `register`.
    ///
    /// # Errors
    /// What the operating system says if it has no descriptors left, or what `register` says.
    pub fn new(register: impl FnOnce(OwnedFd) -> io::Result<F>) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = register(timerfd_create(TimerfdClockId::Boottime, flags)?)?;
        Ok(Self { fd, set: None })
    }

    /// Ready once the clock has reached `at`. `poll_fired` tells whether the descriptor has become readable, and makes the
    /// runtime look anew the next time.
    ///
    /// # Errors
    /// What the operating system says, or `poll_fired`.
    pub fn poll_at(
        &mut self,
        at: Instant,
        mut poll_fired: impl FnMut(&F) -> Poll<io::Result<()>>,
    ) -> io::Result<Poll<()>> {
        loop {
            if clock::now() >= at {
                return Ok(Poll::Ready(()));
            }
            if self.set != Some(at) {
                // This also forgets that it fired.
                self.set_to(Duration::from_nanos(at.as_nanos()))?;
                self.set = Some(at);
            }
            match poll_fired(&self.fd) {
                Poll::Ready(fired) => fired?,
                Poll::Pending => return Ok(Poll::Pending),
            }
            // It fired for an earlier deadline, or a moment early: a timer that fired must be set to fire again.
            self.set = None;
        }
    }

    /// Fires no more until it is set again. One that can't be told fires once, in vain.
    pub fn clear(&mut self) {
        // What disarms it.
        let _still_set = self.set_to(Duration::ZERO);
        self.set = None;
    }

    fn set_to(&self, time: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos() as _,
        };
        let once = Itimerspec { it_interval: never, it_value: time };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

/// The timers of runtimes sleep through a sleep of the machine: so one looks at the clock this often.
const CAP: Duration = Duration::from_secs(1);

/// Waits until the clock has reached `at`, with what the runtime has to wait for a while.
pub async fn sleep_until<F: Future>(at: Instant, sleep: impl Fn(Duration) -> F) {
    loop {
        let left = at.saturating_since(clock::now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(CAP)).await;
    }
}

/// An alarm made of sleeps, for where there is no [`TimerFd`].
#[derive(Default)]
pub struct Sleeps(Option<(Instant, BoxFuture<'static, ()>)>);

impl Sleeps {
    /// Ready once the clock has reached `at`; `sleep_until` makes a sleep that takes so long.
    pub fn poll_at(
        &mut self,
        at: Instant,
        cx: &mut Context<'_>,
        sleep_until: impl FnOnce(Instant) -> BoxFuture<'static, ()>,
    ) -> Poll<()> {
        if clock::now() >= at {
            self.0 = None;
            return Poll::Ready(());
        }
        let sleep = match self.0.take() {
            Some((until, sleep)) if until == at => sleep,
            Some(_) | None => sleep_until(at),
        };
        let (_, sleep) = self.0.insert((at, sleep));
        let poll = sleep.poll_unpin(cx);
        if poll.is_ready() {
            self.0 = None;
        }
        poll
    }

    /// Lets go of the sleep.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}
