use tenure_core::Overlap;

use super::{Invariant, ensure};
use crate::simulation::MOST_JOBS;
use crate::simulation::world::World;

/// Of a job whose runs must not overlap there are never two at a time in the fleet.
///
/// Excused are those whom S4 excuses: a process that is paused inside its run, a run that does not end when it is stopped
/// hard, and whoever can't be trusted.
#[derive(Default)]
pub(super) struct OneRunAtATime;

impl Invariant for OneRunAtATime {
    const NAME: &'static str = "runs do not overlap";

    fn check(&mut self, world: &World) -> Result<(), String> {
        let mut running = [None; MOST_JOBS];
        for (index, member) in world.members.iter().enumerate() {
            if !member.is_up() || !world.trusts(index) {
                continue;
            }
            for candidacy in &member.candidacies {
                let Some((job, tick)) = candidacy.run else { continue };
                let works = candidacy.work.is_some_and(|work| work.stuck.is_none());
                let apart = world.schedules[job].overlap != Overlap::Allow;
                if works && apart && world.now >= world.claims_trusted_from[job] {
                    let other = running[job].replace((index, tick));
                    ensure(other.is_none(), || {
                        format!("job {job} runs for tick {tick} on node {index}, and beside it {other:?}")
                    })?;
                }
            }
        }
        Ok(())
    }
}
