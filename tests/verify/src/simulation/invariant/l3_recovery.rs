use std::time::Duration;

use super::{Invariant, ensure};
use crate::simulation::LONGEST_DELAY;
use crate::simulation::world::{MS, Phase, SECOND, World};

/// L3: "From whatever state, once the trouble is over, somebody holds the lease within a TTL and a backoff."
///
/// Somebody of the healthy core, and from then on the lease is never without a holder for longer than that. The rest of
/// the fleet stays broken.
#[derive(Default)]
pub(in crate::simulation) struct Recovery {
    /// By lease: when it was last seen with a valid holder.
    seen: Vec<u64>,
}

impl Recovery {
    /// How long a lease may be without a holder, in true time.
    pub(in crate::simulation) fn bound(world: &World) -> u64 {
        let timing = &world.timing;
        // The record of whoever does not answer any more is over, by the slowest clock ...
        let over = timing.outlived_after();
        // ... a waiter looks again, by its own clock, a drain and its hard stop are over before that, ...
        let looks = Duration::from_millis(1 + 100) + timing.ttl() / 50;
        // ... or it was backing off, or leaves others a start.
        let backoff = timing.attempt_timeout() * 2 + Duration::from_millis(200);
        // ... or it was a worker, and rests.
        let rests = if world.has_workers { LONGEST_DELAY * 102 / 100 } else { Duration::ZERO };
        (over + looks + backoff + rests).as_nanos() as u64 + 100 * MS
    }
}

impl Invariant for Recovery {
    const NAME: &'static str = "L3 recovery";

    fn check(&mut self, world: &World) -> Result<(), String> {
        let begin = match world.phase {
            Phase::Trouble | Phase::Ending => return Ok(()),
            Phase::Healed { since } => since,
            Phase::Settled => 0,
            // The takeover of a dead holder has its own bound.
            Phase::Bereft { since, .. } => since,
        };
        self.seen.resize(world.leases, 0);
        for (name, seen) in self.seen.iter_mut().enumerate() {
            let idle = !world.may_work();
            if idle || world.members.iter().any(|member| member.core && member.is_valid(world.now, name)) {
                *seen = world.now;
            }
            let since = (*seen).max(begin);
            ensure(world.now.saturating_sub(since) <= Self::bound(world), || {
                format!(
                    "lease {name} has had no holder for {:.3} s",
                    (world.now - since) as f64 / SECOND as f64
                )
            })?;
        }
        Ok(())
    }
}
