//! The part of the machine that has no lease yet: asking for it, waiting for it, giving up.

use core::time::Duration;

use super::{
    AcquireFailure, Acquiring, Acquisition, Attempt, Campaign, Command, Failure, Idle, Instant, Jitter, Kind,
    Lease, Notice, Reply, State, Then, Token, WaitLimit, Waiting, Wake,
};
use crate::planted::{Bug, planted};
use crate::timing::LeaseConfig;

/// Waiters that were not chosen leave the chosen ones this much of a start.
const UNCHOSEN_DELAY: Duration = Duration::from_millis(5);
/// Beyond that start they spread over this long, so that a thousand of them don't come at once.
const UNCHOSEN_SPREAD: Duration = Duration::from_millis(195);
/// A store's clock may need this much longer than it said until a record is over.
const EXPIRY_GRAIN: Duration = Duration::from_millis(1);
/// Those who wait for the same expiry spread over at most this long. With the grain and a round trip a lease passes on
/// within 50 ms after its TTL; of a thousand who wait only those try whose turn comes before they hear who got it.
const EXPIRY_SPREAD: Duration = Duration::from_millis(40);

impl<J: Jitter> Lease<J> {
    /// Begins acquisition `n`, whose grant must have a token above `floor`; `courtesy` leaves those a start
    /// that a release has chosen. Does nothing unless the candidate is at rest.
    pub fn campaign(&mut self, now: Instant, n: Acquisition, floor: Token, courtesy: bool) {
        self.advance(now);
        let State::Idle(Idle { give_up_at }) = self.state else { return };
        let verdict = AcquireFailure::Unreachable;
        let mut campaign = Campaign { n, floor, give_up_at, unresolved: 0, failures: 0, verdict };
        if courtesy && self.options.wait != WaitLimit::No {
            // The store is in no trouble: the lease is as good as theirs.
            campaign.verdict = AcquireFailure::Busy;
            let until = self.now + UNCHOSEN_DELAY + self.jittered(UNCHOSEN_SPREAD);
            self.wait_until(campaign, until);
        } else {
            self.try_now(campaign);
        }
    }

    pub(super) fn acquiring_due(&mut self) {
        let State::Acquiring(acquiring) = &mut self.state else { return };
        if acquiring.campaign.give_up_at.is_some_and(|at| at <= self.now) {
            let verdict = acquiring.campaign.verdict;
            self.fail(verdict);
        } else {
            self.attempt_failed(Failure::Unknown);
        }
    }

    pub(super) fn waiting_due(&mut self) {
        let State::Waiting(waiting) = &self.state else { return };
        if waiting.campaign.give_up_at.is_some_and(|at| at <= self.now) {
            self.fail(waiting.campaign.verdict);
        } else {
            self.try_now(waiting.campaign.clone());
        }
    }

    fn wait_until(&mut self, campaign: Campaign, until: Instant) {
        let latest = until + self.options.timing.ttl();
        self.state = State::Waiting(Waiting { campaign, until, latest, nudge_at: None });
    }

    /// Emits one attempt to acquire.
    pub(super) fn try_now(&mut self, mut campaign: Campaign) {
        let timing = &self.options.timing;
        let (ttl, timeout) = (timing.ttl(), timing.attempt_timeout());
        let floor = campaign.floor.max(self.seen);
        let id = self.next_id(campaign.n, Kind::Acquire { floor });
        campaign.unresolved = campaign.unresolved.saturating_add(1);
        let (lease, n, wait) = (self.key, campaign.n, self.options.wait != WaitLimit::No);
        let floor = if planted(Bug::FloorNotSent) { Token::ZERO } else { floor };
        self.command(Command::Acquire { id, lease, n, ttl, floor, wait, timeout });
        let timeout_at = self.now + timeout;
        self.state = State::Acquiring(Acquiring { campaign, sequence: id.sequence, timeout_at, hint: None });
    }

    /// The attempt under way has failed, or took too long: again after a while, if there is to be a while.
    pub(super) fn attempt_failed(&mut self, failure: Failure) {
        let State::Acquiring(acquiring) = &mut self.state else { return };
        let mut campaign = acquiring.campaign.clone();
        campaign.verdict = AcquireFailure::Unreachable;
        campaign.failures = campaign.failures.saturating_add(1);
        if self.options.wait == WaitLimit::No {
            acquiring.campaign = campaign;
            return self.fail(AcquireFailure::Unreachable);
        }
        if campaign.failures == 1 {
            self.notice(Notice::Retrying { lease: self.key, failure });
        }
        let until = self.now + self.backoff(campaign.failures);
        self.wait_until(campaign, until);
    }

    /// The attempt under way was refused, or a slow one before it: the lease is held.
    pub(super) fn refused(&mut self, token: Option<Token>, remaining: Option<Duration>) {
        let (mut campaign, hint) = match &self.state {
            State::Acquiring(acquiring) => (acquiring.campaign.clone(), acquiring.hint),
            State::Waiting(waiting) => {
                (waiting.campaign.clone(), waiting.nudge_at.map(|_| Wake::Free { chosen: false }))
            }
            _ => return,
        };
        if self.options.wait == WaitLimit::No {
            return self.fail(AcquireFailure::Busy);
        }
        campaign.verdict = AcquireFailure::Busy;
        campaign.failures = 0;
        self.registered = true;
        let until = self.expiry(remaining.unwrap_or(self.options.timing.ttl()).min(LeaseConfig::MAX_TTL));
        self.wait_until(campaign, until);
        self.notice(Notice::Waiting { lease: self.key, token, until });
        if let Some(hint) = hint {
            self.hint(hint);
        }
    }

    /// When to look again for a record that has `remaining` left.
    pub(super) fn expiry(&mut self, remaining: Duration) -> Instant {
        let spread = EXPIRY_SPREAD.min(self.options.timing.ttl() / 8);
        self.now + remaining + EXPIRY_GRAIN + self.jittered(spread)
    }

    pub(super) fn hint(&mut self, wake: Wake) {
        match &mut self.state {
            State::Acquiring(acquiring) => {
                // The best of the hints since the request left: what was chosen stays chosen.
                let chosen = matches!(acquiring.hint, Some(Wake::Free { chosen: true }));
                acquiring.hint = match wake {
                    Wake::Free { chosen: also } => Some(Wake::Free { chosen: chosen || also }),
                    Wake::Held { .. } => None,
                };
            }
            State::Waiting(waiting) => match wake {
                Wake::Free { chosen: true } => {
                    let campaign = waiting.campaign.clone();
                    self.try_now(campaign);
                }
                Wake::Free { chosen: false } => {
                    if waiting.nudge_at.is_none() {
                        let at = self.now + UNCHOSEN_DELAY + self.jittered(UNCHOSEN_SPREAD);
                        if let State::Waiting(waiting) = &mut self.state {
                            waiting.nudge_at = Some(at);
                        }
                    }
                }
                Wake::Held { token, ttl } => {
                    // Hints are no evidence: they may spare a request, never put off the next look for longer
                    // than our own TTL.
                    waiting.nudge_at = None;
                    let latest = waiting.latest;
                    if waiting.campaign.verdict == AcquireFailure::Busy {
                        let until = self.expiry(ttl.min(self.options.timing.ttl())).min(latest);
                        if let State::Waiting(waiting) = &mut self.state {
                            waiting.until = until;
                        }
                        self.notice(Notice::Waiting { lease: self.key, token: Some(token), until });
                    }
                }
            },
            State::Idle(_)
            | State::Held(_)
            | State::Stopping(_)
            | State::Lost(_)
            | State::Releasing(_)
            | State::Lingering(_)
            | State::Over => {}
        }
    }

    pub(super) fn acquire_reply(&mut self, attempt: Attempt, floor: Token, reply: Reply) {
        let wanted = self.wanted() == Some(attempt.n);
        // The holder that an attempt of an older acquisition was refused for may be this very acquisition.
        if let Reply::Held { token: Some(token), .. } = reply
            && wanted
        {
            self.seen = self.seen.max(token);
        }
        match reply {
            Reply::Granted { token } if wanted => self.grant(attempt, floor, token),
            Reply::Granted { .. } if planted(Bug::LateGrantDropped) => {}
            Reply::Granted { token } => self.unwanted_grant(attempt.n, token),
            Reply::Held { .. }
            | Reply::TickTaken
            | Reply::TickOverlaps
            | Reply::Failed(Failure::NotExecuted | Failure::Refused)
                if wanted =>
            {
                let current = self.campaign_resolved(attempt.sequence);
                match reply {
                    Reply::TickTaken => self.fail(AcquireFailure::TickTaken),
                    Reply::TickOverlaps if current => self.fail(AcquireFailure::TickOverlaps),
                    Reply::Failed(Failure::Refused) => self.fail(AcquireFailure::Refused),
                    Reply::Held { token, remaining } if current || self.is_waiting() => {
                        self.refused(token, remaining);
                    }
                    Reply::Failed(failure) if current => self.attempt_failed(failure),
                    // An older attempt was late: the one under way will say more.
                    _ => {}
                }
            }
            Reply::Failed(failure) if wanted => {
                if matches!(&self.state, State::Acquiring(acquiring) if acquiring.sequence == attempt.sequence)
                {
                    self.attempt_failed(failure);
                }
            }
            _ => {
                self.stale_replies.0 += 1;
                self.linger();
            }
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// The acquisition that is still wanted.
    pub(super) fn wanted(&self) -> Option<Acquisition> {
        match &self.state {
            State::Acquiring(Acquiring { campaign, .. }) | State::Waiting(Waiting { campaign, .. }) => {
                Some(campaign.n)
            }
            State::Idle(_)
            | State::Held(_)
            | State::Stopping(_)
            | State::Lost(_)
            | State::Releasing(_)
            | State::Lingering(_)
            | State::Over => None,
        }
    }

    /// One attempt was certainly not granted; tells whether it is the one under way.
    pub(super) fn campaign_resolved(&mut self, sequence: u64) -> bool {
        match &mut self.state {
            State::Acquiring(Acquiring { campaign, sequence: current, .. }) => {
                campaign.unresolved = campaign.unresolved.saturating_sub(1);
                *current == sequence
            }
            State::Waiting(Waiting { campaign, .. }) => {
                campaign.unresolved = campaign.unresolved.saturating_sub(1);
                false
            }
            _ => false,
        }
    }

    pub(super) fn grant(&mut self, attempt: Attempt, floor: Token, token: Token) {
        let (State::Acquiring(Acquiring { campaign, .. }) | State::Waiting(Waiting { campaign, .. })) =
            &self.state
        else {
            return;
        };
        let give_up_at = campaign.give_up_at;
        if token <= floor && !planted(Bug::FloorNotChecked) {
            self.notice(Notice::Failed {
                lease: self.key,
                why: AcquireFailure::StoreRegressed { token, floor },
            });
            return self.release(attempt.n, Some(token), Then::Vanish);
        }
        self.granted = token;
        self.seen = self.seen.max(token);
        let deadlines = self.deadlines_of(attempt.emitted + self.options.timing.valid_for());
        if self.now >= deadlines.fence_at {
            self.notice(Notice::GrantedTooLate { lease: self.key, token });
            if self.options.wait == WaitLimit::No {
                self.notice(Notice::Failed { lease: self.key, why: AcquireFailure::GrantedTooLate });
                return self.release(attempt.n, Some(token), Then::Vanish);
            }
            return self.release(attempt.n, Some(token), Then::Resume { give_up_at });
        }
        self.registered = false;
        self.hold(attempt, token, deadlines);
    }

    /// The candidacy ends without a lease, and leaves nothing behind at the store.
    pub(super) fn fail(&mut self, why: AcquireFailure) {
        self.notice(Notice::Failed { lease: self.key, why });
        match &mut self.state {
            // What was granted too late is on its way back already.
            State::Releasing(releasing) => releasing.then = Then::Vanish,
            State::Acquiring(Acquiring { campaign, .. }) | State::Waiting(Waiting { campaign, .. })
                if campaign.unresolved > 0 =>
            {
                let n = campaign.n;
                self.registered |= self.options.wait != WaitLimit::No;
                self.release(n, None, Then::Vanish);
            }
            // An acquisition before this one may still be granted.
            _ => self.leave(),
        }
    }
}
