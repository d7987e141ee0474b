//! What a search of the state space sees of a worker.

use super::{Campaigning, Jitter, Resting, Running, Starting, State, Worker};
use crate::model::Visitor;

impl<J: Jitter> Worker<J> {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { key, options, state, once: _, draining: _, paused: _, failures, output, jitter: _ } = self;
        debug_assert!(output.is_empty(), "outputs hide what they carry");
        key.visit(visitor);
        state.visit(visitor);
        visitor.failed_runs(failures, options.restart);
    }
}

impl State {
    fn visit(&mut self, visitor: &mut impl Visitor) {
        match self {
            Self::Resting(Resting { until }) => visitor.deadline(until),
            Self::Campaigning(Campaigning { lease }) => lease.visit(visitor),
            Self::Starting(Starting { lease, n, token }) => {
                lease.visit(visitor);
                visitor.acquisition(n);
                visitor.token(token);
            }
            Self::Running(Running { lease, settled_at, stopped: _, stuck_at }) => {
                lease.visit(visitor);
                visitor.deadline(settled_at);
                if let Some(stuck_at) = stuck_at {
                    visitor.deadline(stuck_at);
                }
            }
            Self::Over => {}
        }
    }
}
