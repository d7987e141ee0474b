//! What a search of the state space sees of a timer.

use super::reading::{Known, Reading};
use super::{Jitter, Request, State, Ticking, Timer};
use crate::model::Visitor;

impl<J: Jitter> Timer<J> {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self {
            key,
            options: _,
            state,
            registered: _,
            position,
            schedule: _,
            notes: _,
            request,
            failures,
            sequence,
            now,
            output,
            jitter: _,
        } = self;
        debug_assert!(output.is_empty(), "outputs hide what they carry");
        let machine = key.0;
        match request {
            Request::At(at) => visitor.deadline(at),
            Request::Sent { sequence, emitted, timeout_at, change: _, again: _ } => {
                visitor.sequence(machine, sequence);
                visitor.emitted(emitted);
                visitor.deadline(timeout_at);
            }
            Request::Never => {}
        }
        match state {
            State::Registering | State::Unreadable | State::Over => {}
            State::Ticking(Ticking { known, reading, due_at }) => {
                known.visit(visitor);
                let Reading { at, emitted, received } = reading;
                visitor.reading(at, emitted, received);
                if let Some(due_at) = due_at {
                    visitor.deadline(due_at);
                }
            }
        }
        if let Some(position) = position {
            visitor.tick_number(position);
        }
        visitor.failures(failures);
        visitor.next_sequence(machine, sequence);
        visitor.now(now);
        key.visit(visitor);
    }
}

impl Known {
    fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { base, current: _, next, unfinished } = self;
        visitor.tick(base);
        if let Some((base, _)) = next {
            visitor.tick(base);
        }
        unfinished.iter_mut().for_each(|n| visitor.tick_number(n));
    }
}
