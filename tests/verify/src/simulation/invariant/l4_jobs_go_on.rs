use tenure_core::Command;
use tenure_store::{TimerAct, TimerAnswer};

use super::{Invariant, ensure};
use crate::simulation::MOST_JOBS;
use crate::simulation::world::{Fact, MS, Phase, SECOND, World};

/// L4: once the trouble is over, every job runs again before long, and goes on to.
///
/// Within two periods, the longest run, the life of a claim whose owner is gone, and the longest rest of a timer whose
/// requests have failed.
#[derive(Default)]
pub(super) struct JobsGoOn {
    /// By job: when a run last began, or was still going on.
    seen: [u64; MOST_JOBS],
}

impl JobsGoOn {
    fn bound(world: &World, job: usize) -> u64 {
        let schedule = &world.schedules[job];
        let period = schedule.periods[0].max(schedule.periods[1]).as_nanos() as u64;
        let outlived = world.timing.outlived_after().as_nanos() as u64;
        period * 4 + outlived * 2 + 10 * SECOND * 102 / 100 + 500 * MS
    }
}

impl Invariant for JobsGoOn {
    const NAME: &'static str = "L4 jobs go on";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let seen = match fact {
            Fact::TimerExecuted {
                schedule,
                act: TimerAct::Claim(_),
                answer: TimerAnswer::Granted(_),
                ..
            } => Some(*schedule),
            Fact::Emitted { member, command: Command::StartWorkload { lease, .. } } => {
                world.members[*member].candidacy(*lease).and_then(|candidacy| candidacy.run).map(|run| run.0)
            }
            _ => None,
        };
        if let Some(seen) = seen.and_then(|job| self.seen.get_mut(job)) {
            *seen = world.now;
        }
        Ok(())
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let begin = match world.phase {
            Phase::Trouble | Phase::Ending => return Ok(()),
            Phase::Healed { since } => since,
            Phase::Settled => 0,
            Phase::Bereft { since, .. } => since,
        };
        if !world.may_work() {
            self.seen.fill(world.now);
        }
        for job in 0..world.jobs {
            // A lease of others may be held for as long as they like.
            if world.schedules[job].lease.is_some() {
                continue;
            }
            let since = self.seen[job].max(begin);
            ensure(world.now.saturating_sub(since) <= Self::bound(world, job), || {
                format!("job {job} has not run for {:.3} s", (world.now - since) as f64 / SECOND as f64)
            })?;
        }
        Ok(())
    }
}
