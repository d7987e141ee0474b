//! What every adapter refuses in the same way, before anything is sent.

use std::time::Duration;

use tenure_core::{AnySchedule, TimerChange, Token, readable};

use crate::{
    Acquire, Heartbeat, Limits, Metadata, Operation, Renew, RunReport, StoreError, TimerAct, TimerRequest,
};

impl Limits {
    /// Refuses what no store of these limits takes: a TTL out of bounds, metadata that is too long. Adapters
    /// call it before anything is sent. A floor is checked by [`check_floor`].
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`](crate::StoreErrorKind::Rejected), with the value and the bound.
    pub fn check(&self, operation: &Operation) -> Result<(), StoreError> {
        match operation {
            Operation::Acquire(acquire) => self.check_acquire(acquire),
            Operation::Renew(renew) => self.check_renew(renew),
            Operation::Release(_) => Ok(()),
            Operation::Heartbeat(heartbeat) => self.check_heartbeat(heartbeat),
            Operation::Leave(leave) => {
                self.check_ttl(leave.ttl).map_err(|error| error.about(&leave.identity))
            }
            Operation::Timer(request) => self.check_timer(request),
        }
    }

    /// See [`Limits::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check_timer(&self, request: &TimerRequest) -> Result<(), StoreError> {
        let checked = match &request.act {
            TimerAct::Read { schedule, last } => {
                check_schedule(schedule).and_then(|()| check_tick(last.unwrap_or(0)))
            }
            TimerAct::Change { change: TimerChange::Stage { at, schedule }, .. } => {
                check_schedule(schedule.text()).and_then(|()| check_tick(at.n))
            }
            TimerAct::Change { change: TimerChange::Rebase { last }, .. } => check_tick(*last),
            TimerAct::Claim(claim) => self
                .check_ttl(claim.ttl)
                .and_then(|()| claim.metadata.check())
                .and_then(|()| check_tick(claim.tick)),
            TimerAct::Renew { ttl, .. } => self.check_ttl(*ttl),
            TimerAct::Finish { .. } | TimerAct::Forget => Ok(()),
        };
        checked.map_err(|error| error.about(&request.name))
    }

    /// See [`Limits::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check_heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        let (digests, most) = (heartbeat.digests.len(), Heartbeat::MOST_DIGESTS);
        let few = if digests > most {
            let message =
                format!("an instance takes part in at most {most} kinds of plans, not in {digests}");
            Err(StoreError::rejected(message))
        } else {
            Ok(())
        };
        let (sequence, most) = (heartbeat.sequence, Heartbeat::HIGHEST_SEQUENCE);
        let low = if sequence > most {
            let message =
                format!("the number of a heartbeat can't be {sequence}: numbers of at most {most} are kept");
            Err(StoreError::rejected(message))
        } else {
            Ok(())
        };
        let checked =
            self.check_ttl(heartbeat.ttl).and_then(|()| heartbeat.metadata.check()).and(few).and(low);
        checked.map_err(|error| error.about(&heartbeat.identity))
    }

    /// What every adapter refuses of the report of a run: a TTL out of bounds, a text that is too long.
    ///
    /// # Errors
    /// As in [`Limits::check`].
    pub fn check_report(&self, report: &RunReport) -> Result<(), StoreError> {
        let (bytes, most) = (report.text.as_ref().map_or(0, |text| text.len()), RunReport::MAX_TEXT_BYTES);
        let text = if bytes > most {
            let message = format!("the text of a run has {bytes} bytes, at most {most} are kept");
            Err(StoreError::rejected(message))
        } else {
            Ok(())
        };
        self.check_ttl(report.ttl).and(text).map_err(|error| error.about(&report.job))
    }

    /// See [`Limits::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check_acquire(&self, request: &Acquire) -> Result<(), StoreError> {
        self.check_ttl(request.ttl)
            .and_then(|()| request.metadata.check())
            .map_err(|error| error.about(&request.name))
    }

    /// See [`Limits::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check_renew(&self, request: &Renew) -> Result<(), StoreError> {
        self.check_ttl(request.ttl).map_err(|error| error.about(&request.name))
    }

    fn check_ttl(&self, ttl: Duration) -> Result<(), StoreError> {
        let Self { min_ttl, max_ttl, .. } = self;
        if ttl < *min_ttl {
            let message = format!(
                "a TTL of {} is too short: this store keeps at least {}",
                readable(ttl),
                readable(*min_ttl)
            );
            return Err(StoreError::rejected(message));
        }
        if ttl > *max_ttl {
            let message = format!(
                "a TTL of {} is too long: this store keeps at most {}",
                readable(ttl),
                readable(*max_ttl)
            );
            return Err(StoreError::rejected(message));
        }
        Ok(())
    }
}

fn check_schedule(text: &str) -> Result<(), StoreError> {
    let most = AnySchedule::MAX_BYTES;
    if text.is_empty() || text.len() > most {
        let message = format!("a schedule has 1 to {most} bytes as text, not {}", text.len());
        return Err(StoreError::rejected(message));
    }
    Ok(())
}

fn check_tick(n: u64) -> Result<(), StoreError> {
    let most = TimerRequest::HIGHEST_TICK;
    if n > most {
        let message = format!("the number of a tick can't be {n}: numbers of at most {most} are kept");
        return Err(StoreError::rejected(message));
    }
    Ok(())
}

impl Metadata {
    /// Refuses a text, or a host name, of more than [`Metadata::MAX_TEXT_BYTES`].
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`](crate::StoreErrorKind::Rejected), with the length and the bound.
    pub fn check(&self) -> Result<(), StoreError> {
        let most = Self::MAX_TEXT_BYTES;
        for (what, text) in [("host name", &self.host), ("text", &self.text)] {
            let bytes = text.as_ref().map_or(0, |text| text.len());
            if bytes > most {
                let message =
                    format!("the {what} in the metadata has {bytes} bytes, at most {most} are kept");
                return Err(StoreError::rejected(message));
            }
        }
        Ok(())
    }
}

/// Refuses the floor of an acquire above the highest that the store takes: so a floor that is wrong can't
/// use up the store's tokens, nor make them wrap.
///
/// # Errors
/// [`StoreErrorKind::Rejected`](crate::StoreErrorKind::Rejected), with the lease, the floor and the bound.
pub fn check_floor(request: &Acquire, most: Token) -> Result<(), StoreError> {
    floor_at_most(request.floor, most).map_err(|error| error.about(&request.name))
}

/// The same for the floor of a claim.
///
/// # Errors
/// As in [`check_floor`], with the timer.
pub fn check_claim_floor(request: &TimerRequest, most: Token) -> Result<(), StoreError> {
    match &request.act {
        TimerAct::Claim(claim) => {
            floor_at_most(claim.floor, most).map_err(|error| error.about(&request.name))
        }
        TimerAct::Read { .. }
        | TimerAct::Change { .. }
        | TimerAct::Renew { .. }
        | TimerAct::Finish { .. }
        | TimerAct::Forget => Ok(()),
    }
}

fn floor_at_most(floor: Token, most: Token) -> Result<(), StoreError> {
    if floor > most {
        return Err(StoreError::rejected(format!(
            "the token would have to be above {floor}, but this store takes floors of at most {most}: \
             the highest token that this process saw can't be right"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tenure_core::{Acquisition, Identity, Incarnation, LeaseName};

    use super::*;
    use crate::StoreErrorKind;

    fn request(ttl: Duration) -> Acquire {
        let identity = Identity::new("here", Incarnation::new(1)).expect("a short name");
        Acquire {
            name: LeaseName::new("backup").expect("a short name"),
            owner: identity.owner(Acquisition(0)),
            ttl,
            floor: Token::ZERO,
            wait: false,
            metadata: Metadata::new(),
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_refusal_names_the_lease_the_value_and_the_bound() {
        let limits = Limits::DEFAULT;
        let error = limits.check_acquire(&request(Duration::ZERO)).expect_err("zero is refused");
        assert_eq!(error.kind, StoreErrorKind::Rejected);
        assert_eq!(
            error.to_string(),
            r#"the store refuses (lease "backup"): a TTL of 0s is too short: this store keeps at least 50ms"#
        );
        let error = limits.check_acquire(&request(Duration::MAX)).expect_err("300 years are refused");
        assert!(error.to_string().ends_with("this store keeps at most 7d"), "{error}");
        assert_eq!(limits.check_acquire(&request(limits.min_ttl)), Ok(()));
        assert_eq!(limits.check_acquire(&request(limits.max_ttl)), Ok(()));
    }

    #[test]
    fn metadata_that_is_too_long_is_refused() {
        let mut request = request(Duration::from_secs(1));
        request.metadata.text = Some("x".repeat(Metadata::MAX_TEXT_BYTES).into());
        assert_eq!(Limits::DEFAULT.check_acquire(&request), Ok(()));
        request.metadata.text = Some("x".repeat(Metadata::MAX_TEXT_BYTES + 1).into());
        let error = Limits::DEFAULT.check_acquire(&request).expect_err("a byte too many");
        assert!(error.to_string().contains("has 1025 bytes, at most 1024"), "{error}");
    }

    #[test]
    fn a_floor_above_the_bound_is_refused() {
        let mut request = request(Duration::from_secs(1));
        request.floor = Token::new(10);
        assert_eq!(check_floor(&request, Token::new(10)), Ok(()));
        let error = check_floor(&request, Token::new(9)).expect_err("above the bound");
        assert!(error.to_string().contains("above 10"), "{error}");
    }
}
