//! The part of the machine that gives back what it has, or may have, at the store.

use super::{
    AcquireFailure, Acquisition, Attempt, Command, CommandId, Held, Idle, Jitter, Kind, Lease, Lingering,
    Notice, ReleaseOutcome, Releasing, Renewal, Reply, State, Stopping, Then, Token, Wake,
};

impl<J: Jitter> Lease<J> {
    /// A grant for an epoch that is over goes back to the store.
    pub(super) fn unwanted_grant(&mut self, n: Acquisition, token: Token) {
        match &self.state {
            // Another answer to the acquisition that is held, or to one that was over before it was granted.
            State::Held(Held { hold, .. }) | State::Stopping(Stopping { hold, .. })
                if token <= hold.token =>
            {
                self.stale_replies.0 += 1;
            }
            State::Lost(lost) if token <= lost.token => self.stale_replies.0 += 1,
            State::Releasing(releasing) if releasing.n == n => {
                if releasing.token.is_some_and(|latest| token <= latest) {
                    self.stale_replies.0 += 1;
                } else {
                    self.release(n, Some(token), releasing.then);
                }
            }
            State::Lingering(_) => self.release(n, Some(token), Then::Vanish),
            State::Over => {}
            State::Idle(_)
            | State::Acquiring(_)
            | State::Waiting(_)
            | State::Held(_)
            | State::Stopping(_)
            | State::Lost(_)
            | State::Releasing(_) => {
                self.send_release(n, Some(token));
            }
        }
    }

    /// Gives a grant back, known or not.
    pub(super) fn release(&mut self, n: Acquisition, token: Option<Token>, then: Then) {
        let request = self.send_release(n, token);
        let first = request.sequence;
        let timeout_at = self.now + self.options.timing.attempt_timeout();
        self.state = State::Releasing(Releasing {
            n,
            token,
            until: self.now + self.options.timing.outlived_after(),
            request: Renewal::Sent { sequence: first, timeout_at },
            first,
            failures: 0,
            then,
        });
    }

    pub(super) fn send_release(&mut self, n: Acquisition, token: Option<Token>) -> CommandId {
        let timeout = self.options.timing.attempt_timeout();
        let id = self.next_id(n, Kind::Release);
        self.command(Command::Release { id, lease: self.key, n, token, timeout });
        id
    }

    pub(super) fn releasing_due(&mut self) {
        let State::Releasing(releasing) = &self.state else { return };
        if matches!(releasing.then, Then::Resume { give_up_at: Some(at) } if at <= self.now) {
            return self.fail(AcquireFailure::Unreachable);
        }
        if releasing.until <= self.now {
            return self.released(ReleaseOutcome::Expired);
        }
        match releasing.request {
            Renewal::Sent { .. } => self.release_failed(),
            Renewal::At(_) => {
                let id = self.send_release(releasing.n, releasing.token);
                let timeout_at = self.now + self.options.timing.attempt_timeout();
                if let State::Releasing(releasing) = &mut self.state {
                    releasing.request = Renewal::Sent { sequence: id.sequence, timeout_at };
                }
            }
        }
    }

    pub(super) fn release_failed(&mut self) {
        let State::Releasing(releasing) = &mut self.state else { return };
        releasing.failures = releasing.failures.saturating_add(1);
        let failures = releasing.failures;
        let at = self.now + self.backoff(failures);
        if let State::Releasing(releasing) = &mut self.state {
            releasing.request = Renewal::At(at);
        }
    }

    pub(super) fn release_reply(&mut self, attempt: Attempt, reply: Reply) {
        let State::Releasing(releasing) = &self.state else {
            if let Reply::Released { others_chosen } = reply {
                // It was an orphan of our own that this candidate may wait for.
                self.hint(Wake::Free { chosen: !others_chosen });
            }
            return;
        };
        if attempt.sequence < releasing.first || attempt.n != releasing.n {
            self.stale_replies.0 += 1;
            return;
        }
        match reply {
            Reply::Released { others_chosen } => {
                self.others_chosen = others_chosen;
                self.released(ReleaseOutcome::Released);
            }
            Reply::NotYours => self.released(ReleaseOutcome::NotHeld),
            _ if releasing.request.is_sent(attempt.sequence) => self.release_failed(),
            _ => {}
        }
    }

    pub(super) fn released(&mut self, outcome: ReleaseOutcome) {
        let State::Releasing(releasing) = &self.state else { return };
        match releasing.then {
            Then::Announce => self.notice(Notice::Released { lease: self.key, outcome }),
            Then::Vanish => {}
            Then::Resume { give_up_at } => {
                self.state = State::Idle(Idle { give_up_at });
                return;
            }
        }
        self.leave();
    }

    /// Nothing is wanted any more.
    pub(super) fn leave(&mut self) {
        self.state = State::Lingering(Lingering { until: self.now });
        self.linger();
    }

    /// Stays while an unwanted grant may still arrive.
    pub(super) fn linger(&mut self) {
        let State::Lingering(lingering) = &mut self.state else { return };
        match self.attempts.latest_acquire() {
            Some(emitted) if emitted + self.options.timing.outlived_after() > self.now => {
                lingering.until = emitted + self.options.timing.outlived_after();
            }
            _ => self.over(),
        }
    }

    pub(super) fn over(&mut self) {
        self.state = State::Over;
        self.notice(Notice::Ended { lease: self.key });
    }
}
