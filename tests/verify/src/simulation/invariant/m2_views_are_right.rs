use std::collections::BTreeSet;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, MS, Phase, World};

/// M2: "Gone within TTL and bound": once the trouble is over for that long, everybody healthy sees all who are healthy,
/// and nobody else.
#[derive(Default)]
pub(super) struct ViewsAreRight;

impl Invariant for ViewsAreRight {
    const NAME: &'static str = "M2 who is gone is listed no longer";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let (Fact::Polled { member, .. }, Some(shares)) = (fact, &world.shares) else { return Ok(()) };
        let bound = shares.agreed_after().as_nanos() as u64;
        let since = match world.phase {
            Phase::Trouble | Phase::Ending => return Ok(()),
            Phase::Settled => 0,
            Phase::Healed { since } | Phase::Bereft { since, .. } => since + bound,
        };
        let node = &world.members[*member];
        if !node.core || world.now < since {
            return Ok(());
        }
        let core = world.members.iter().filter(|other| other.core).map(|other| other.life);
        let core: BTreeSet<usize> = core.collect();
        let members = node.node.members().map(|(members, _)| members).unwrap_or_default();
        let seen: BTreeSet<usize> = members.iter().map(|member| World::life(&member.identity)).collect();
        ensure(seen == core, || {
            format!("node {member} sees {seen:?} at {} ms, and there are {core:?}", world.now / MS)
        })
    }
}
