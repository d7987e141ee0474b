//! A timer's record at the store, as far as the core knows it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::schedule::{AnySchedule, Tick};

/// A timer's record, as the store tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "adapters and drivers make them")]
pub struct TimerView {
    /// Changes whenever the schedule does: its text, its base, or what is to follow.
    pub revision: u64,
    /// From where ticks are counted.
    pub base: Tick,
    /// The schedule as text.
    pub schedule: Arc<str>,
    /// What is to follow, and from which tick on, the last one of the old schedule.
    pub next: Option<NextSchedule>,
    /// The last tick that some instance is known to have come to.
    pub last: u64,
    /// The last tick that was claimed, or passed over because another one's run was going on.
    pub claimed: u64,
    /// The claimed ticks that were not finished, oldest first.
    pub unfinished: Vec<u64>,
}

/// A schedule that takes effect at a tick.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "adapters and drivers make them")]
pub struct NextSchedule {
    /// The tick of the old schedule that becomes the base of the new one.
    pub at: Tick,
    /// The new schedule as text.
    pub schedule: Arc<str>,
}

/// A change of a timer's record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a store must carry out every one")]
pub enum TimerChange {
    /// From this tick on another schedule counts. It takes the place of one that was to follow.
    Stage {
        /// The tick that becomes its base.
        at: Tick,
        /// The schedule.
        schedule: AnySchedule,
    },
    /// The clock has stepped back: count from now on, beginning after this number (or the record's last, if that is
    /// higher).
    Rebase {
        /// The last tick that this instance knows of.
        last: u64,
    },
}
