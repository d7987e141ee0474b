//! Timers: the ticks of a shared schedule, as an iterator.

use std::time::Duration;

use tenure_core::{AnySchedule, DueTick, Missed, TimerName};

use super::TimedOut;
use super::wait::{wait, wait_at_most};
use crate::TimerError;

/// Sets up a timer; made by [`Tenure::timer`](super::Tenure::timer). Nothing ticks before [`start`](TimerSetup::start).
#[derive(Debug)]
#[must_use = "nothing ticks before `start`"]
pub struct TimerSetup(crate::TimerSetup);

impl TimerSetup {
    pub(super) const fn new(inner: crate::TimerSetup) -> Self {
        Self(inner)
    }

    /// What becomes of ticks that came while nobody could deliver them, or while the iterator was not read; see the
    /// async [`missed`](crate::TimerSetup::missed). Default [`Missed::Skip`].
    pub fn missed(self, missed: Missed) -> Self {
        Self(self.0.missed(missed))
    }

    /// A tick that would be delivered later than this is not delivered, but counted as missed. At least 20 ms. Default:
    /// no limit.
    pub fn late_limit(self, limit: Duration) -> Self {
        Self(self.0.late_limit(limit))
    }

    /// Starts the timer. What the store refuses is told by the iterator.
    ///
    /// # Errors
    /// [`TimerError`], but not [`TimerError::Refused`]: nothing was asked of the store yet.
    pub fn start(self) -> Result<Timer, TimerError> {
        self.0.start().map(Timer)
    }
}

/// The ticks of a timer: an iterator that waits for the next one. Made by [`Tenure::timer`](super::Tenure::timer).
/// Dropping it ends the timer on this instance; the store's record of it stays.
///
/// Ticks come in the order of their numbers, each at most once, never early. Who reads late gets the latest with the
/// number of those that were missed, or as many as [`Missed::CatchUp`] allows.
///
/// It ends when the program [shuts down](super::Tenure::shutdown). An error is its last item.
#[derive(Debug)]
pub struct Timer(crate::Timer);

impl Timer {
    /// The name of the timer.
    #[must_use]
    pub const fn name(&self) -> &TimerName {
        self.0.name()
    }

    /// The schedule that it follows, or is to follow next, as far as is known: another instance may have changed it.
    #[must_use]
    pub fn schedule(&self) -> AnySchedule {
        self.0.schedule()
    }

    /// The next item, if it comes within this time; [`Duration::ZERO`] takes what is there. `None` after the last one.
    ///
    /// # Errors
    /// [`TimedOut`]: it has not. Nothing is missed by that.
    pub fn next_timeout(&mut self, limit: Duration) -> Result<Option<Result<DueTick, TimerError>>, TimedOut> {
        wait_at_most(self.0.next(), limit)
    }
}

impl Iterator for Timer {
    type Item = Result<DueTick, TimerError>;

    fn next(&mut self) -> Option<Self::Item> {
        wait(self.0.next())
    }
}
