//! How long a lease lives, when it is renewed and when its work must end: settings and their rules.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::planted::{Bug, planted};
use crate::time::{Rate, nanos, readable};

#[cfg(test)]
mod tests;

/// What a store's clock is like; every adapter states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreClock {
    /// How far the store's clock may run from true time (ρs).
    pub drift: Rate,
    /// The grain of the store's expiry, plus one tick of the local clock (q).
    pub quantum: Duration,
    /// The largest step of the store's clock, or the largest offset between its primary and replicas, that
    /// is assumed (δ). Beyond it only tokens protect.
    pub step: Duration,
}

impl Default for StoreClock {
    /// Drift 1 %, a grain of one millisecond, no steps.
    fn default() -> Self {
        Self { drift: Rate::ONE_PERCENT, quantum: Duration::from_millis(1), step: Duration::ZERO }
    }
}

/// How a lease is timed, as the user says it; what is `None` follows from the rest.
///
/// [`LeaseConfig::resolve`] checks it and works out the [`LeaseTiming`].
///
/// ```
/// use core::time::Duration;
/// use tenure_core::{LeaseConfig, StoreClock};
/// let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default())?;
/// assert!(timing.valid_for() < Duration::from_secs(15));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// How long the store keeps the lease after the last renewal. Default 15 s. A longer TTL survives longer
    /// trouble, a shorter one is taken over sooner after a crash.
    pub ttl: Duration,
    /// The time between renewals, at most half of the usable time. Default a third of the usable time, which
    /// is `valid_for - stop_budget`.
    pub renew_interval: Option<Duration>,
    /// How long one request may take before it counts as failed, at most half of the renewal interval.
    /// Default half of it.
    pub attempt_timeout: Option<Duration>,
    /// The time kept back for stopping the work before the lease ends. Default min(2 s, a quarter of
    /// `valid_for`).
    pub stop_budget: Option<Duration>,
    /// How far this machine's clock may run from true time (ρ). Default 1 %.
    pub drift: Rate,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self::new(Self::DEFAULT_TTL)
    }
}

impl LeaseConfig {
    /// 15 s: an election of a replicated store takes up to 8 s, and three renewals fit.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(15);
    /// Below this, scheduling noise of an ordinary machine eats the lease.
    pub const MIN_TTL: Duration = Duration::from_millis(50);
    /// A lease that outlives its holder by more than a week is a mistake of unit.
    pub const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 3600);
    /// The largest drift that is accepted, 20 %.
    pub const MAX_DRIFT: Rate = Rate::from_ppm(200_000);

    /// The defaults for this TTL.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self { ttl, renew_interval: None, attempt_timeout: None, stop_budget: None, drift: Rate::ONE_PERCENT }
    }

    /// Sets the time between renewals.
    #[must_use]
    pub const fn renew_interval(mut self, interval: Duration) -> Self {
        self.renew_interval = Some(interval);
        self
    }

    /// Sets how long one request may take.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Sets the time kept back for stopping.
    #[must_use]
    pub const fn stop_budget(mut self, budget: Duration) -> Self {
        self.stop_budget = Some(budget);
        self
    }

    /// Sets how far this machine's clock may run from true time.
    #[must_use]
    pub const fn drift(mut self, drift: Rate) -> Self {
        self.drift = drift;
        self
    }

    /// The least TTL, in whole milliseconds, of which a store with this clock leaves a quarter usable, and no less than
    /// [`MIN_TTL`](Self::MIN_TTL).
    #[must_use]
    pub fn least_ttl(&self, clock: &StoreClock) -> Duration {
        let (slow, fast) =
            (below_one(self.drift.min(Self::MAX_DRIFT)), above_one(clock.drift.min(Self::MAX_DRIFT)));
        let margin = nanos(clock.quantum).saturating_add(nanos(clock.step));
        let fits = |ttl: &Duration| {
            let valid_for = scale(nanos(*ttl), slow, fast).saturating_sub(margin);
            Duration::from_nanos(valid_for) >= *ttl / 4
        };
        // TTL * slow / fast, less the margin, is a quarter of the TTL, but for what was rounded.
        let about =
            Duration::from_millis(scale(margin, 4 * fast, 4 * slow - fast) / 1_000_000).max(Self::MIN_TTL);
        let longer = [0, 1, 2].map(|ms| about.saturating_add(Duration::from_millis(ms)));
        longer.into_iter().find(fits).unwrap_or(Duration::MAX)
    }

    /// Checks the settings against each other and against the store's clock.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and the rule.
    pub fn resolve(&self, clock: &StoreClock) -> Result<LeaseTiming, ConfigError> {
        let refuse = |field, value: Duration, rule: String| {
            Err(ConfigError { field, value: format!("{}", readable(value)), rule })
        };
        let ttl_is_refused = || {
            let least = self.least_ttl(clock);
            let mut rule = format!("must lie between {} and {}", readable(least), readable(Self::MAX_TTL));
            if least > Self::MIN_TTL {
                rule += &format!(
                    ", since the store's grain of {}, its steps of {} and the drift of the clocks must leave a quarter of \
                     it usable",
                    readable(clock.quantum),
                    readable(clock.step)
                );
            }
            refuse("ttl", self.ttl, rule)
        };
        if self.ttl < Self::MIN_TTL || self.ttl > Self::MAX_TTL {
            return ttl_is_refused();
        }
        for (field, drift) in [("drift", self.drift), ("store drift", clock.drift)] {
            if drift > Self::MAX_DRIFT {
                let rule = format!("must be at most {}", Self::MAX_DRIFT);
                return Err(ConfigError { field, value: format!("{drift}"), rule });
            }
        }
        let margin = nanos(clock.quantum).saturating_add(nanos(clock.step));
        let drifted = scale(nanos(self.ttl), below_one(self.drift), above_one(clock.drift));
        let valid_for = Duration::from_nanos(drifted.saturating_sub(margin));
        let valid_for = if planted(Bug::NoMargin) { self.ttl } else { valid_for };
        if valid_for < self.ttl / 4 {
            return ttl_is_refused();
        }

        let stop_budget = self.stop_budget.unwrap_or_else(|| DEFAULT_STOP_BUDGET.min(valid_for / 4));
        if stop_budget > valid_for / 2 || stop_budget < MIN_STEP {
            return refuse(
                "stop_budget",
                stop_budget,
                format!(
                    "must lie between {MIN_STEP:?} and {}, half of the time that the lease is valid for",
                    readable(valid_for / 2)
                ),
            );
        }
        let usable = valid_for.saturating_sub(stop_budget);
        let renew_interval = self.renew_interval.unwrap_or(usable / 3);
        if renew_interval > usable / 2 || renew_interval < MIN_STEP {
            return refuse(
                "renew_interval",
                renew_interval,
                format!(
                    "must lie between {MIN_STEP:?} and {}, half of the time between a renewal and the fence",
                    readable(usable / 2)
                ),
            );
        }
        let attempt_timeout = self.attempt_timeout.unwrap_or(renew_interval / 2);
        if attempt_timeout > renew_interval / 2 || attempt_timeout < MIN_STEP {
            return refuse(
                "attempt_timeout",
                attempt_timeout,
                format!(
                    "must lie between {MIN_STEP:?} and {}, half of the renewal interval",
                    readable(renew_interval / 2)
                ),
            );
        }
        let kept = nanos(self.ttl).saturating_add(margin);
        let outlived = scale(kept, above_one(self.drift), below_one(clock.drift)).saturating_add(1);
        Ok(LeaseTiming {
            ttl: self.ttl,
            valid_for,
            outlived_after: Duration::from_nanos(outlived),
            stop_budget,
            renew_interval,
            attempt_timeout,
        })
    }
}

/// `value * numerator / denominator`, rounded down.
pub(crate) fn scale(value: u64, numerator: u32, denominator: u32) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// `value * numerator / denominator`, rounded up.
pub(crate) fn scale_up(value: u64, numerator: u32, denominator: u32) -> u64 {
    let scaled = (u128::from(value) * u128::from(numerator)).div_ceil(u128::from(denominator));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

const MILLION: u32 = 1_000_000;

pub(crate) fn above_one(rate: Rate) -> u32 {
    MILLION + rate.ppm()
}

pub(crate) fn below_one(rate: Rate) -> u32 {
    MILLION - rate.ppm()
}

/// Enough for a process to flush and end, and little enough for the lease to stay useful.
const DEFAULT_STOP_BUDGET: Duration = Duration::from_secs(2);
/// Nothing is scheduled more finely than this.
pub(crate) const MIN_STEP: Duration = Duration::from_millis(1);
/// Work that has not ended by itself is stopped hard this long before the lease ends: the time that a
/// supervisor under load needs to kill a process and see it gone.
const KILL_MARGIN: Duration = Duration::from_millis(250);
/// Renewals are lined up into this many slots per interval, so that many travel as one request.
const SLOTS: u32 = 16;

/// The timing of one lease, checked. Made by [`LeaseConfig::resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTiming {
    ttl: Duration,
    valid_for: Duration,
    outlived_after: Duration,
    stop_budget: Duration,
    renew_interval: Duration,
    attempt_timeout: Duration,
}

impl LeaseTiming {
    /// How long the store keeps the lease after the last renewal.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// V: how long the holder may rely on the lease, counted from when it sent the command that the store
    /// acknowledged. V = floor(TTL · (1 − ρ) / (1 + ρs)) − q − δ.
    #[must_use]
    pub const fn valid_for(&self) -> Duration {
        self.valid_for
    }

    /// How long after its last possible renewal a record of ours is certainly over at the store:
    /// (TTL + q + δ) · (1 + ρ) / (1 − ρs), rounded up.
    #[must_use]
    pub const fn outlived_after(&self) -> Duration {
        self.outlived_after
    }

    /// The time kept back for stopping: the fence lies this long before the end of validity.
    #[must_use]
    pub const fn stop_budget(&self) -> Duration {
        self.stop_budget
    }

    /// How long before the end of validity work is stopped hard: min(250 ms, half of the stop budget).
    #[must_use]
    pub fn kill_margin(&self) -> Duration {
        KILL_MARGIN.min(self.stop_budget / 2)
    }

    /// The time between renewals.
    #[must_use]
    pub const fn renew_interval(&self) -> Duration {
        self.renew_interval
    }

    /// How long one request may take.
    #[must_use]
    pub const fn attempt_timeout(&self) -> Duration {
        self.attempt_timeout
    }

    pub(crate) fn slot(&self) -> Duration {
        self.renew_interval / SLOTS
    }

    /// The first delay after a failure; it doubles up to [`LeaseTiming::longest_backoff`].
    pub(crate) fn first_backoff(&self) -> Duration {
        (self.attempt_timeout / 16).max(MIN_STEP)
    }

    pub(crate) fn longest_backoff(&self) -> Duration {
        self.attempt_timeout
    }
}

/// A setting that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, but it {rule}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The setting.
    pub field: &'static str,
    /// Its value, as text.
    pub value: String,
    /// What it would have to be.
    pub rule: String,
}

/// For settings that can't break a rule, beside those that can.
impl From<core::convert::Infallible> for ConfigError {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}

impl ConfigError {
    /// For settings outside the core that are refused in the same way; `rule` begins with "must".
    #[must_use]
    pub const fn new(field: &'static str, value: String, rule: String) -> Self {
        Self { field, value, rule }
    }
}
