//! A timer on the clock that goes on while the machine sleeps, so that it fires at resume.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tenure_driver::clock;
use tenure_driver::core::Instant;
use tokio::io::unix::AsyncFd;

pub(crate) struct TimerFd {
    fd: AsyncFd<OwnedFd>,
    set: Option<Instant>,
}

impl TimerFd {
    /// Called inside of the runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
        // What replaces it is unsafe: it relies on the descriptor staying open, which an `OwnedFd` that is never
        // taken out warrants.
        #[allow(deprecated, reason = "newer versions of tokio offer no safe form; older ones have no other")]
        let fd = AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)?;
        Ok(Self { fd, set: None })
    }

    /// Fires no more until it is set again. One that can't be told fires once, in vain.
    pub(crate) fn clear(&mut self) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let disarmed = Itimerspec { it_interval: never, it_value: never };
        let _still_set = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &disarmed);
        self.set = None;
    }

    pub(crate) fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        loop {
            if clock::now() >= at {
                return Ok(Poll::Ready(()));
            }
            if self.set != Some(at) {
                // Setting it also forgets that it fired.
                timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once(at))?;
                self.set = Some(at);
            }
            let mut ready = match self.fd.poll_read_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Ok(Poll::Pending),
            };
            // It fired for an earlier deadline, or a moment early: a timer that fired must be set to fire again.
            ready.clear_ready();
            self.set = None;
        }
    }
}

fn once(at: Instant) -> Itimerspec {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let nanos = at.as_nanos();
    let at = Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (nanos % 1_000_000_000) as _,
    };
    Itimerspec { it_interval: zero, it_value: at }
}
