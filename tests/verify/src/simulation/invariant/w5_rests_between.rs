use std::collections::BTreeMap;

use tenure_core::{Instant, Notice, WorkerKey};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// W5: the rate of restarts is bounded. Before each candidacy but the first a worker rests for at least half of its
/// first delay, and for longer after failures in a row.
#[derive(Default)]
pub(super) struct RestsBetween {
    /// By process and worker: since when it may campaign again at the earliest.
    rests: BTreeMap<(usize, WorkerKey), Instant>,
}

impl Invariant for RestsBetween {
    const NAME: &'static str = "W5 workers rest between their runs";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        if let Fact::MemberNoticed { member, notice: Notice::Resumed } = fact {
            // Whoever was kept from working goes on at once.
            let life = world.members[*member].life;
            self.rests.retain(|(other, _), _| *other != life);
        }
        let Fact::WorkerNoticed { member, worker, notice } = fact else { return Ok(()) };
        let (key, now) = ((world.members[*member].life, worker.key), world.members[*member].heard_at);
        match notice {
            Notice::Campaigning { lease, .. } => {
                let earliest = self.rests.insert(key, now + worker.options.restart.first_delay() / 2);
                ensure(earliest.is_none_or(|earliest| earliest <= now), || {
                    format!(
                        "{} of node {member} campaigns with {lease} at {now:?}, before {earliest:?}",
                        worker.key
                    )
                })?;
            }
            Notice::Restarting { failures, at, .. } => {
                let policy = worker.options.restart;
                let doubled = policy.first_delay().saturating_mul(1 << failures.saturating_sub(1).min(16));
                // A run that was stopped rests for the shortest delay, whatever has failed before it.
                let (least, most) = (policy.first_delay() / 2, doubled.min(policy.longest_delay()));
                let rest = at.saturating_since(now);
                // News that are carried out late are not wrong.
                let late = world.members[*member].interrupted;
                ensure(late || (least..=most).contains(&rest), || {
                    format!("{} of node {member} rests for {rest:?} after {failures} failures", worker.key)
                })?;
                self.rests.insert(key, *at);
            }
            _ => {}
        }
        Ok(())
    }
}
