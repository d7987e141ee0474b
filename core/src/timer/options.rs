//! What a timer is asked for.

use alloc::format;
use core::time::Duration;

use crate::schedule::{AnySchedule, MIN_TOLERANCE};
use crate::time::{Rate, readable};
use crate::timing::{ConfigError, LeaseConfig, MIN_STEP, StoreClock};

/// What becomes of ticks that came while nobody could deliver them (downtime, a pause, a forward step of the clock), and
/// of a periodic job also of those that could not be claimed while the store was away.
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

    pub(crate) fn at_once(self) -> u32 {
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

    /// Checks the settings. The node does so, too.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and the rule.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (field, drift) in [("drift", self.drift), ("store drift", self.clock.drift)] {
            if drift > LeaseConfig::MAX_DRIFT {
                let rule = format!("must be at most {}", LeaseConfig::MAX_DRIFT);
                return Err(ConfigError::new(field, format!("{drift}"), rule));
            }
        }
        if self.timeout < MIN_STEP {
            let rule = format!("must be at least {MIN_STEP:?}, or no request is ever answered in time");
            return Err(ConfigError::new("timeout", format!("{}", readable(self.timeout)), rule));
        }
        if let Some(limit) = self.late_limit.filter(|limit| *limit < MIN_TOLERANCE) {
            let rule = format!("must be at least {MIN_TOLERANCE:?}: no tick is met more exactly than that");
            return Err(ConfigError::new("late_limit", format!("{}", readable(limit)), rule));
        }
        if self.schedule.text().len() > AnySchedule::MAX_BYTES {
            let rule = format!("must be at most {} bytes long as text", AnySchedule::MAX_BYTES);
            return Err(ConfigError::new("schedule", self.schedule.text().into(), rule));
        }
        Ok(())
    }
}
