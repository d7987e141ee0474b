use std::collections::BTreeSet;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, MS, Phase, World};

/// A2: "After quiescence within a bound every workload has exactly one live, non-draining owner." With all draining it
/// has none.
///
/// That it never has two is what S2 says.
#[derive(Default)]
pub(super) struct OneOwner;

impl Invariant for OneOwner {
    const NAME: &'static str = "A2 each workload has an owner";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let (Fact::Polled { .. }, Some(shares)) = (fact, &world.shares) else { return Ok(()) };
        let since = match world.phase {
            Phase::Trouble | Phase::Ending => return Ok(()),
            Phase::Settled => 0,
            Phase::Healed { since } | Phase::Bereft { since, .. } => since + world.shared_out_after(),
        };
        if world.now < since {
            return Ok(());
        }
        let core = || world.members.iter().enumerate().filter(|(_, node)| node.core);
        let may = core().filter(|(_, node)| !node.node.is_draining());
        let wanted: BTreeSet<usize> =
            may.flat_map(|(_, node)| shares.kinds[node.part.kind].workloads.iter().copied()).collect();
        for name in world.leases..world.names.len() {
            let valid = core().find(|(_, node)| node.is_valid(world.now, name));
            let fits = match valid {
                Some((_, node)) => !node.node.is_draining() && node.shares().any(|share| share == name),
                None => !wanted.contains(&name),
            };
            ensure(fits, || {
                let owner = valid.map(|(member, node)| (member, node.shares().collect::<Vec<_>>()));
                format!("workload {name} of {wanted:?} is owned by {owner:?} at {} ms", world.now / MS)
            })?;
        }
        Ok(())
    }
}
