//! A timer that also wakes us when the machine slept through its time.

use std::io;
use std::os::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tenure::Instant;

/// Something to be polled that becomes readable at an instant of [`clock`](crate::clock).
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: OwnedFd,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// A timer that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Boottime, flags)? })
    }

    /// Sets it to `at`, or off for [`Instant::MAX`]. A timeout for the poll is returned where one is needed.
    pub(crate) fn set(&self, at: Instant) -> Option<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let off = Timespec { tv_sec: 0, tv_nsec: 0 };
        let nanos = if at == Instant::MAX { 0 } else { at.as_nanos().max(1) };
        let value = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
        };
        let setting = Itimerspec { it_interval: off, it_value: value };
        // Without a timer (which no valid setting leads to) the clock is read often instead.
        match timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting) {
            Ok(_) => None,
            Err(_) => Some(Duration::from_millis(10)),
        }
    }

    /// What to poll.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.timer.as_fd())
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    pub(crate) fn set(&self, at: Instant) -> Option<Duration> {
        // A timeout may stand still during suspend: it is capped, and the clock is read after it.
        Some(at.saturating_since(crate::clock::now()).min(Duration::from_secs(1)))
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
