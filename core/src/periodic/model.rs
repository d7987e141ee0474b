//! What a search of the state space sees of a periodic job.

use alloc::collections::{BTreeMap, BTreeSet};
use core::mem::take;

use super::{Periodic, Run};
use crate::model::Visitor;

impl Periodic {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { key, timer, options: _, pending, runs, unsettled, floor, ending: _ } = self;
        key.visit(visitor);
        timer.visit(visitor);
        for (due, delivered) in pending {
            due.visit(visitor);
            visitor.deadline(delivered);
        }
        *runs = take(runs)
            .into_iter()
            .map(|(mut worker, mut run)| {
                worker.visit(visitor);
                run.visit(visitor);
                (worker, run)
            })
            .collect::<BTreeMap<_, _>>();
        *unsettled = take(unsettled)
            .into_iter()
            .map(|mut claim| {
                claim.visit(visitor);
                claim
            })
            .collect::<BTreeSet<_>>();
        visitor.floor(floor);
    }
}

impl Run {
    fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { due, lease, claim, latest, granted: _, started: _, watched: _, end: _, refused: _ } = self;
        due.visit(visitor);
        lease.visit(visitor);
        if let Some(claim) = claim {
            claim.visit(visitor);
        }
        if let Some(latest) = latest {
            visitor.deadline(latest);
        }
    }
}
