//! The part of the machine in which the lease is held: renewing, fencing, stopping, losing.

use core::time::Duration;

use super::{
    Attempt, Command, Deadlines, Held, Hold, Instant, Jitter, Kind, Lease, LossReason, Lost, Notice, Renewal,
    Reply, State, Stop, StopReason, Stopping, Token,
};
use crate::planted::{Bug, planted};

impl<J: Jitter> Lease<J> {
    /// The holder chooses to stop: the work is asked to end, within the grace; the lease is renewed meanwhile.
    /// A candidacy is given up.
    pub fn drain(&mut self, now: Instant) {
        self.advance(now);
        match &self.state {
            State::Held(held) => {
                self.stop(held.clone(), StopReason::Drain);
                // Without a grace the hard stop is due at once.
                self.advance(now);
            }
            // A drain allows no more time than the stop under way does.
            State::Stopping(_) | State::Lost(_) => {}
            State::Idle(_)
            | State::Acquiring(_)
            | State::Waiting(_)
            | State::Releasing(_)
            | State::Lingering(_)
            | State::Over => self.end(now),
        }
    }

    /// Like [`Lease::drain`], without a grace: the work is stopped hard at once.
    pub fn stop_now(&mut self, now: Instant) {
        self.drain_within(now, Duration::ZERO);
    }

    /// Like [`Lease::drain`], with no more of a grace than the stop budget.
    pub fn stop_soon(&mut self, now: Instant) {
        self.drain_within(now, self.options.timing.stop_budget());
    }

    fn drain_within(&mut self, now: Instant, limit: Duration) {
        self.drain(now);
        self.update(|stopping| stopping.hard_at = stopping.hard_at.map(|at| at.min(now + limit)));
        self.advance(now);
    }

    /// The grant counts: from here on work may run.
    pub(super) fn hold(&mut self, attempt: Attempt, token: Token, deadlines: Deadlines) {
        let hold = Hold {
            n: attempt.n,
            token,
            valid_until: deadlines.valid_until,
            renewal: Renewal::At(self.renew_at(attempt.emitted)),
            failures: 0,
        };
        let max_hold_at = self.options.max_hold.map(|limit| self.now + limit);
        self.state = State::Held(Held { hold, max_hold_at });
        self.notice(Notice::Acquired { lease: self.key, n: attempt.n, token, deadlines });
    }

    /// One interval after the emission of what was acknowledged, rounded down to a slot so that the renewals
    /// of many leases travel together; now, if that was before the answer came.
    fn renew_at(&self, emitted: Instant) -> Instant {
        let timing = &self.options.timing;
        (emitted + timing.renew_interval()).floor_to(timing.slot()).max(self.now)
    }

    pub(super) fn held_due(&mut self) {
        let State::Held(held) = &self.state else { return };
        let deadlines = self.deadlines_of(held.hold.valid_until);
        if deadlines.fence_at <= self.now {
            self.stop(held.clone(), StopReason::Fence);
        } else if held.max_hold_at.is_some_and(|at| at <= self.now) {
            self.stop(held.clone(), StopReason::MaxHold);
        } else {
            self.renewal_due();
        }
    }

    /// Begins to stop the work. However it is stopped, a maximum hold goes on to bound it.
    fn stop(&mut self, held: Held, why: StopReason) {
        let Held { hold, max_hold_at } = held;
        let fenced = why == StopReason::Fence;
        let hard_at =
            if fenced { self.deadlines_of(hold.valid_until).kill_at } else { self.now + self.options.grace };
        let abandon_at =
            max_hold_at.map(|at| hard_at.max(at + self.options.grace) + self.options.timing.stop_budget());
        if hard_at > self.now {
            let lease = self.key;
            self.command(if fenced {
                Command::StopWorkload { lease, how: Stop::Ask, why }
            } else {
                Command::DrainWorkload { lease, why }
            });
        }
        if planted(Bug::ReleasedBeforeEnd) {
            self.send_release(hold.n, Some(hold.token));
        }
        self.state = State::Stopping(Stopping { hold, why, fenced, hard_at: Some(hard_at), abandon_at });
    }

    pub(super) fn stopping_due(&mut self) {
        let State::Stopping(stopping) = &self.state else { return };
        let deadlines = self.deadlines_of(stopping.hold.valid_until);
        let (why, hard_at, fenced) = (stopping.why, stopping.hard_at, stopping.fenced);
        if !fenced && deadlines.fence_at <= self.now {
            // Loss beats drain: the shorter time counts.
            let hard_at = hard_at.map(|at| at.min(deadlines.kill_at));
            if hard_at.is_some_and(|at| at > self.now) {
                self.command(Command::StopWorkload {
                    lease: self.key,
                    how: Stop::Ask,
                    why: StopReason::Fence,
                });
            }
            self.update(|stopping| {
                stopping.fenced = true;
                stopping.why = StopReason::Fence;
                stopping.hard_at = hard_at;
            });
        } else if hard_at.is_some_and(|at| at <= self.now) {
            self.command(Command::StopWorkload { lease: self.key, how: Stop::Hard, why });
            self.update(|stopping| stopping.hard_at = None);
        } else if fenced && deadlines.valid_until <= self.now {
            let cover = stopping.hold.clone();
            self.lose(cover.n, cover.token, LossReason::Expired, Some(cover));
        } else if stopping.abandon_at.is_some_and(|at| at <= self.now) {
            let (n, token) = (stopping.hold.n, stopping.hold.token);
            self.lose(n, token, LossReason::Abandoned, None);
        } else {
            self.renewal_due();
        }
    }

    fn update(&mut self, change: impl FnOnce(&mut Stopping)) {
        if let State::Stopping(stopping) = &mut self.state {
            change(stopping);
        }
    }

    fn lose(&mut self, n: crate::name::Acquisition, token: Token, why: LossReason, cover: Option<Hold>) {
        self.state = State::Lost(Lost { n, token, cover });
        self.notice(Notice::Lost { lease: self.key, token, why });
    }

    pub(super) fn lost_due(&mut self) {
        self.renewal_due();
    }

    fn hold_mut(&mut self) -> Option<&mut Hold> {
        match &mut self.state {
            State::Held(Held { hold, .. }) | State::Stopping(Stopping { hold, .. }) => Some(hold),
            State::Lost(lost) => lost.cover.as_mut(),
            State::Idle(_)
            | State::Acquiring(_)
            | State::Waiting(_)
            | State::Releasing(_)
            | State::Lingering(_)
            | State::Over => None,
        }
    }

    /// A renewal is to be sent, or has taken too long.
    fn renewal_due(&mut self) {
        let (now, timing, lease) = (self.now, self.options.timing, self.key);
        let Some(hold) = self.hold_mut() else { return };
        let (n, token, valid_until) = (hold.n, hold.token, hold.valid_until);
        let Renewal::At(planned) = hold.renewal else { return self.renewal_failed() };
        let left = valid_until.saturating_since(now);
        // A request never outlives what it is for.
        let timeout =
            if left.is_zero() { timing.attempt_timeout() } else { timing.attempt_timeout().min(left) };
        let id = self.next_id(n, Kind::Renew);
        if let Some(hold) = self.hold_mut() {
            hold.renewal = Renewal::Sent { sequence: id.sequence, timeout_at: now + timeout };
        }
        let late_by = now.saturating_since(planned);
        if late_by > timing.attempt_timeout() / 2 {
            self.notice(Notice::RenewalStarved { lease, late_by });
        }
        self.command(Command::Renew { id, lease, n, token, ttl: timing.ttl(), timeout });
    }

    fn renewal_failed(&mut self) {
        let Some(hold) = self.hold_mut() else { return };
        hold.failures = hold.failures.saturating_add(1);
        let failures = hold.failures;
        let at = self.now + self.backoff(failures);
        if let Some(hold) = self.hold_mut() {
            hold.renewal = Renewal::At(at);
        }
        if failures == 1
            && let Some(deadlines) = self.deadlines()
        {
            self.notice(Notice::InDoubt { lease: self.key, deadlines });
        }
    }

    pub(super) fn renew_reply(&mut self, attempt: Attempt, reply: Reply) {
        let Some(hold) = self.hold_mut() else {
            self.stale_replies.0 += 1;
            return;
        };
        if hold.n != attempt.n {
            self.stale_replies.0 += 1;
            return;
        }
        let current = hold.renewal.is_sent(attempt.sequence);
        match reply {
            Reply::Renewed => self.renewed(attempt, current),
            Reply::NotYours if planted(Bug::NotYoursIgnored) => {}
            Reply::NotYours => {
                let (n, token) = (hold.n, hold.token);
                match &mut self.state {
                    // It is lost already; now it is known to be gone.
                    State::Lost(lost) => lost.cover = None,
                    State::Stopping(Stopping { hard_at: None, .. }) => {
                        self.lose(n, token, LossReason::NotYours, None)
                    }
                    _ => {
                        let (how, why) = (Stop::Hard, StopReason::Lost);
                        self.command(Command::StopWorkload { lease: self.key, how, why });
                        self.lose(n, token, LossReason::NotYours, None);
                    }
                }
            }
            _ if current => self.renewal_failed(),
            // An older attempt failed: the one under way will say more.
            _ => {}
        }
    }

    fn renewed(&mut self, attempt: Attempt, current: bool) {
        let valid_until = attempt.emitted + self.options.timing.valid_for();
        let renew_at = self.renew_at(attempt.emitted);
        let Some(hold) = self.hold_mut() else { return };
        if valid_until <= hold.valid_until && !current {
            self.stale_replies.0 += 1;
            return;
        }
        hold.valid_until = hold.valid_until.max(valid_until);
        // The answer to an older attempt counts, but the one under way is still to be answered.
        if current || matches!(hold.renewal, Renewal::At(_)) {
            hold.renewal = Renewal::At(renew_at);
            hold.failures = 0;
        }
        if planted(Bug::RenewalRevives)
            && let State::Stopping(Stopping { hold, .. }) | State::Lost(Lost { cover: Some(hold), .. }) =
                &self.state
        {
            self.state = State::Held(Held { hold: hold.clone(), max_hold_at: None });
        }
        if let Some(deadlines) = self.deadlines() {
            self.notice(Notice::Renewed { lease: self.key, deadlines });
        }
    }
}
