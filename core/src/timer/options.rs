//! What a timer is asked for.

use core::time::Duration;

use crate::schedule::AnySchedule;
use crate::time::Rate;
use crate::timing::StoreClock;

/// What becomes of ticks that came while nobody could deliver them: downtime, a pause, a forward step of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are no other policies")]
pub enum Missed {
    /// The latest is delivered, with the number of those before it.
    #[default]
    Skip,
    /// The latest ones are delivered, in order, with the number of those before them.
    CatchUp {
        /// At most so many at once; one at least.
        at_most: u32,
    },
}

impl Missed {
    /// More than this at once is a mistake.
    pub const MOST: u32 = 1000;

    pub(super) fn at_once(self) -> u32 {
        match self {
            Self::Skip => 1,
            Self::CatchUp { at_most } => at_most.clamp(1, Self::MOST),
        }
    }
}

/// What a timer is asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimerOptions {
    /// When ticks are due. It is proposed to the store once, when the timer is registered; later the store's counts.
    pub schedule: AnySchedule,
    /// What becomes of ticks that came while nobody could deliver them.
    pub missed: Missed,
    /// A tick that would be delivered later than this is not delivered, only told of. `None`: no limit.
    pub late_limit: Option<Duration>,
    /// What the store's clock is like.
    pub clock: StoreClock,
    /// How far this machine's clock may run from true time.
    pub drift: Rate,
    /// How long one request may take before it counts as failed.
    pub timeout: Duration,
    /// Reads the text of a schedule that another instance has registered.
    pub parse: fn(&str) -> Option<AnySchedule>,
}

impl TimerOptions {
    /// Skips what was missed, has no limit of lateness, assumes default clocks.
    #[must_use]
    pub fn new(schedule: impl Into<AnySchedule>) -> Self {
        Self {
            schedule: schedule.into(),
            missed: Missed::Skip,
            late_limit: None,
            clock: StoreClock::default(),
            drift: Rate::ONE_PERCENT,
            timeout: Duration::from_secs(2),
            parse: AnySchedule::parse,
        }
    }
}
