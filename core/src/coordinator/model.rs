//! What a search of the state space sees of a coordinator.

use super::{Coordinator, State, Workload};
use crate::model::Visitor;

impl Coordinator {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { options: _, workloads, digest: _, earlier, stale: _, settles_at, ending: _ } = self;
        for Workload { state, removed: _ } in workloads.values_mut() {
            match state {
                State::Here(worker) | State::Ending(worker) => worker.visit(visitor),
                State::Elsewhere | State::Done => {}
            }
        }
        earlier.iter_mut().for_each(|(_, until)| visitor.deadline(until));
        if let Some(at) = settles_at {
            visitor.deadline(at);
        }
    }
}
