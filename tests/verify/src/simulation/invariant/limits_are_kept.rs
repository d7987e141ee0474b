use tenure_core::StopReason;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// A candidacy is decided by the end of its wait, and work does not run beyond its maximum hold and the grace.
///
/// Once its process runs again: what was paused is late. Work that was asked to stop by its fence has until the hard stop
/// that follows from that.
#[derive(Default)]
pub(super) struct Limits;

impl Invariant for Limits {
    const NAME: &'static str = "limits are kept";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let Fact::Polled { member, .. } = fact else { return Ok(()) };
        let node = &world.members[*member];
        let local = node.heard_at;
        for candidacy in &node.candidacies {
            let (lease, decide_by, stop_by) = (candidacy.lease, candidacy.decide_by, candidacy.stop_by);
            ensure(decide_by.is_none_or(|at| local < at), || {
                format!("{lease} of node {member} waits at {local:?}, beyond its limit at {decide_by:?}")
            })?;
            let work = candidacy.work.filter(|work| work.stuck.is_none());
            let fenced = work.is_some_and(|work| work.asked == Some(StopReason::Fence));
            let stop_by = stop_by.map(|at| if fenced { at + world.timing.stop_budget() } else { at });
            ensure(work.is_none() || stop_by.is_none_or(|at| local < at), || {
                format!("{lease} of node {member} works at {local:?}, beyond its maximum hold at {stop_by:?}")
            })?;
        }
        Ok(())
    }
}
