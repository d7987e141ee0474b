//! What a member is asked for.

use alloc::format;
use core::time::Duration;

use super::view::Labels;
use crate::time::readable;
use crate::timing::{ConfigError, LeaseConfig, MIN_STEP};

/// How this instance shows that it is alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MemberOptions {
    /// How long the store lists the instance after its last heartbeat. Default 15 s. It has nothing to do with the TTL
    /// of any lease.
    pub ttl: Duration,
    /// The time between heartbeats, at most half of the TTL. Default a third of it.
    pub heartbeat: Option<Duration>,
    /// What is to be said of this instance.
    pub labels: Labels,
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self { ttl: Self::DEFAULT_TTL, heartbeat: None, labels: Labels::default() }
    }
}

impl MemberOptions {
    /// 15 s: three heartbeats fit, of which two may be lost.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(15);

    /// Checks the settings. The node does so, too.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and the rule.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (least, most) = (LeaseConfig::MIN_TTL, LeaseConfig::MAX_TTL);
        if self.ttl < least || self.ttl > most {
            let rule = format!("must lie between {} and {}", readable(least), readable(most));
            return Err(ConfigError::new("member ttl", format!("{}", readable(self.ttl)), rule));
        }
        let interval = self.interval();
        if interval > self.ttl / 2 || interval < MIN_STEP {
            let rule = format!(
                "must be at least {MIN_STEP:?} and at most half of the member's ttl of {}, or one lost heartbeat \
                 makes the instance look dead",
                readable(self.ttl)
            );
            return Err(ConfigError::new("heartbeat", format!("{}", readable(interval)), rule));
        }
        Ok(())
    }

    /// The time between heartbeats.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.heartbeat.unwrap_or(self.ttl / 3)
    }

    /// How long one request may take before it counts as failed: half of the time between heartbeats.
    pub(crate) fn timeout(&self) -> Duration {
        (self.interval() / 2).max(MIN_STEP)
    }
}
