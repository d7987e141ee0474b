//! Reasons and outcomes as words: for fields in the log and for labels of metrics. The sets are closed, and stable.

use tenure_core::{DropReason, Exit, LossReason, ReleaseOutcome, Stop, StopReason, TickMiss};

use crate::fleet::DrainReason;

/// What a version of the core adds that this one does not know.
const OTHER: &str = "other";

/// How work has ended.
pub(crate) const fn exit(exit: Exit) -> &'static str {
    match exit {
        Exit::Completed => "completed",
        Exit::Failed => "failed",
        Exit::Stopped => "stopped",
        Exit::NotStarted => "not_started",
    }
}

/// How work is stopped.
pub(crate) const fn stop(how: Stop) -> &'static str {
    match how {
        Stop::Ask => "ask",
        Stop::Hard => "hard",
    }
}

/// Why work is stopped.
pub(crate) const fn stopped(why: StopReason) -> &'static str {
    match why {
        StopReason::Drain => "drain",
        StopReason::MaxHold => "max_hold",
        StopReason::Fence => "fence",
        StopReason::Lost => "lost",
        _ => OTHER,
    }
}

/// How a lease was lost.
pub(crate) const fn lost(why: LossReason) -> &'static str {
    match why {
        LossReason::Expired => "expired",
        LossReason::NotYours => "not_yours",
        LossReason::Abandoned => "abandoned",
        _ => OTHER,
    }
}

/// What became of a release.
pub(crate) const fn released(outcome: ReleaseOutcome) -> &'static str {
    match outcome {
        ReleaseOutcome::Released => "released",
        ReleaseOutcome::NotHeld => "not_held",
        ReleaseOutcome::Expired => "expired",
        _ => OTHER,
    }
}

/// Ticks that passed before one that came: while this program did not run, or was paused, or heard nothing of the time.
pub(crate) const PASSED: &str = "passed";
/// Ticks that nobody read in time.
pub(crate) const UNREAD: &str = "unread";

/// Why a tick is not run here.
pub(crate) const fn missed(why: TickMiss) -> &'static str {
    match why {
        TickMiss::TooLate => "too_late",
        TickMiss::Superseded => "superseded",
        TickMiss::Overlap => "overlap",
        TickMiss::Refused => "refused",
        TickMiss::GivenBack => "given_back",
        TickMiss::Draining => "draining",
        _ => OTHER,
    }
}

/// Why a workload does not belong to this instance any more.
pub(crate) const fn dropped(why: DropReason) -> &'static str {
    match why {
        DropReason::Rebalance => "rebalance",
        DropReason::Drain => "drain",
        DropReason::Removed => "removed",
        DropReason::Ended => "ended",
        _ => OTHER,
    }
}

/// Why this instance drains.
pub(crate) const fn drains(why: DrainReason) -> &'static str {
    match why {
        DrainReason::Program => "program",
        DrainReason::Operator => "operator",
        DrainReason::Shutdown => "shutdown",
    }
}
