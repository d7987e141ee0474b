use tenure_core::Notice;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, Phase, World};

/// L2: "With round trips, pauses and clocks within their bounds a lease is never lost."
#[derive(Default)]
pub(super) struct NoNeedlessLoss;

impl Invariant for NoNeedlessLoss {
    const NAME: &'static str = "L2 no needless loss";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let (member, why, what) = match fact {
            Fact::Noticed { member, name, notice: Notice::Lost { why, .. }, .. } => {
                (member, why, format!("lease {name}"))
            }
            Fact::ClaimNoticed { member, run: (job, tick), notice: Notice::Lost { why, .. } } => {
                (member, why, format!("tick {tick} of job {job}"))
            }
            _ => return Ok(()),
        };
        let healthy = match world.phase {
            Phase::Trouble | Phase::Healed { .. } => world.benign,
            Phase::Settled | Phase::Ending => world.members[*member].core,
            Phase::Bereft { victim, .. } => world.members[*member].core && *member != victim,
        };
        ensure(!healthy, || format!("node {member} loses {what} without need: {why:?}"))
    }
}
