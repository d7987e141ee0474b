//! What a search of the state space sees of a membership.

use super::{Asking, Farewell, Jitter, Leaving, Membership, Resting, State, View};
use crate::model::Visitor;

impl<J: Jitter> Membership<J> {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self {
            key,
            options: _,
            state,
            sequence,
            beat_at,
            joined,
            says: _,
            marked: _,
            view: View { version, members: _, at, by, later_from },
            failures,
            output,
            jitter: _,
        } = self;
        debug_assert!(output.is_empty(), "outputs hide what they carry");
        let machine = key.0;
        match state {
            State::Resting(Resting { until }) => visitor.deadline(until),
            State::Asking(Asking { sequence, timeout_at, again_at }) => {
                visitor.sequence(machine, sequence);
                visitor.deadline(timeout_at);
                if let Some(again_at) = again_at {
                    visitor.deadline(again_at);
                }
            }
            State::Leaving(Leaving { until, first, request }) => {
                visitor.deadline(until);
                visitor.sequence(machine, first);
                match request {
                    Farewell::At(at) => visitor.deadline(at),
                    Farewell::Sent { sequence, timeout_at } => {
                        visitor.sequence(machine, sequence);
                        visitor.deadline(timeout_at);
                    }
                }
            }
            State::Over => {}
        }
        if let Some(beat_at) = beat_at {
            visitor.emitted(beat_at);
        }
        if let Some(joined) = joined {
            visitor.store_time(joined);
        }
        if let Some(version) = version {
            visitor.revision(version);
        }
        // It counts how long ago that was, as with an emission.
        visitor.emitted(at);
        if let Some(by) = by {
            visitor.sequence(machine, by);
        }
        visitor.sequence(machine, later_from);
        visitor.failures(failures);
        visitor.next_sequence(machine, sequence);
    }
}
