use tenure_core::Notice;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, Phase, World};

/// L2: "With round trips, pauses and clocks within their bounds a lease is never lost."
#[derive(Default)]
pub(super) struct NoNeedlessLoss;

impl Invariant for NoNeedlessLoss {
    const NAME: &'static str = "L2 no needless loss";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let Fact::Noticed { member, name, notice: Notice::Lost { why, .. }, .. } = fact else {
            return Ok(());
        };
        let healthy = match world.phase {
            Phase::Trouble | Phase::Healed { .. } => world.benign,
            Phase::Settled | Phase::Ending => world.members[*member].core,
            Phase::Bereft { victim, .. } => world.members[*member].core && *member != victim,
        };
        ensure(!healthy, || format!("node {member} loses lease {name} without need: {why:?}"))
    }
}
