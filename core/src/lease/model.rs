//! What a search of the state space sees of a lease.

use super::attempts::{Attempt, Attempts, Kind};
use super::{
    Acquiring, Campaign, Held, Hold, Idle, Instant, Jitter, Lease, Lingering, Lost, Releasing, Renewal,
    State, Stopping, Then, Waiting,
};
use crate::model::Visitor;

impl<J: Jitter> Lease<J> {
    /// Shows all that would keep this state from being recognised. Everything must have been polled.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self {
            key,
            options: _,
            state,
            attempts,
            sequence,
            now,
            granted,
            seen,
            others_chosen: _,
            registered: _,
            output,
            jitter: _,
            stale_replies: _,
        } = self;
        debug_assert!(output.is_empty(), "outputs hide what they carry");
        let machine = key.0;
        attempts.visit(visitor, machine, state);
        state.visit(visitor, machine);
        visitor.next_sequence(machine, sequence);
        visitor.now(now);
        visitor.floor(granted);
        visitor.floor(seen);
        key.visit(visitor);
    }
}

impl Attempts {
    fn visit(&mut self, visitor: &mut impl Visitor, machine: u64, state: &mut State) {
        for place in 0..self.0.len() {
            if let Some(Attempt { sequence, .. }) = self.0[place]
                && !visitor.answerable(machine, sequence)
            {
                self.0[place] = None;
            }
        }
        self.0.sort_by_key(|place| place.map_or(u64::MAX, |attempt| attempt.sequence));
        let Self(attempts) = self;
        if let State::Acquiring(Acquiring { campaign, .. }) | State::Waiting(Waiting { campaign, .. }) = state
        {
            let own = |kept: &&Attempt| kept.n == campaign.n && matches!(kept.kind, Kind::Acquire { .. });
            let remembered = attempts.iter().flatten().filter(own).count();
            visitor.unresolved(&mut campaign.unresolved, remembered as u32);
        }
        for Attempt { sequence, n, emitted, kind } in attempts.iter_mut().flatten() {
            visitor.sequence(machine, sequence);
            visitor.acquisition(n);
            match kind {
                Kind::Acquire { floor } => {
                    visitor.floor(floor);
                    visitor.emitted(emitted);
                }
                Kind::Renew => visitor.emitted(emitted),
                // Nothing counts from a release.
                Kind::Release => *emitted = Instant::ZERO,
            }
        }
    }
}

impl State {
    fn visit(&mut self, visitor: &mut impl Visitor, machine: u64) {
        match self {
            Self::Idle(Idle { give_up_at }) => deadline(visitor, give_up_at),
            Self::Acquiring(Acquiring { campaign, sequence, timeout_at, hint }) => {
                campaign.visit(visitor);
                visitor.sequence(machine, sequence);
                visitor.deadline(timeout_at);
                if let Some(hint) = hint {
                    hint.visit(visitor);
                }
            }
            Self::Waiting(Waiting { campaign, until, latest, nudge_at }) => {
                campaign.visit(visitor);
                visitor.deadline(until);
                visitor.deadline(latest);
                deadline(visitor, nudge_at);
            }
            Self::Held(Held { hold, max_hold_at }) => {
                hold.visit(visitor, machine);
                deadline(visitor, max_hold_at);
            }
            Self::Stopping(Stopping { hold, why: _, fenced: _, hard_at, abandon_at }) => {
                hold.visit(visitor, machine);
                deadline(visitor, hard_at);
                deadline(visitor, abandon_at);
            }
            Self::Lost(Lost { n, token, cover }) => {
                visitor.acquisition(n);
                visitor.token(token);
                if let Some(hold) = cover {
                    hold.visit(visitor, machine);
                }
            }
            Self::Releasing(Releasing { n, token, until, request, first, failures, then }) => {
                visitor.acquisition(n);
                if let Some(token) = token {
                    visitor.token(token);
                }
                visitor.deadline(until);
                request.visit(visitor, machine);
                visitor.sequence(machine, first);
                visitor.failures(failures);
                match then {
                    Then::Announce | Then::Vanish => {}
                    Then::Resume { give_up_at } => deadline(visitor, give_up_at),
                }
            }
            Self::Lingering(Lingering { until }) => visitor.deadline(until),
            Self::Over => {}
        }
    }
}

impl Campaign {
    /// What is unresolved was shown together with the attempts.
    fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { n, floor, give_up_at, unresolved: _, failures, verdict } = self;
        visitor.acquisition(n);
        visitor.floor(floor);
        deadline(visitor, give_up_at);
        visitor.failures(failures);
        verdict.visit(visitor);
    }
}

impl Hold {
    fn visit(&mut self, visitor: &mut impl Visitor, machine: u64) {
        let Self { n, token, valid_until, renewal, failures } = self;
        visitor.acquisition(n);
        visitor.token(token);
        visitor.valid_until(valid_until);
        renewal.visit(visitor, machine);
        visitor.failures(failures);
    }
}

impl Renewal {
    fn visit(&mut self, visitor: &mut impl Visitor, machine: u64) {
        match self {
            Self::At(at) => visitor.deadline(at),
            Self::Sent { sequence, timeout_at } => {
                visitor.sequence(machine, sequence);
                visitor.deadline(timeout_at);
            }
        }
    }
}

fn deadline(visitor: &mut impl Visitor, at: &mut Option<Instant>) {
    if let Some(at) = at {
        visitor.deadline(at);
    }
}
