use super::{Invariant, ensure};
use crate::simulation::world::{Phase, World};

/// After an orderly end nothing is left: no machine in the nodes, no work, no record at the store.
#[derive(Default)]
pub(in crate::simulation) struct OrderlyEnd {
    begun: Option<u64>,
}

impl Invariant for OrderlyEnd {
    const NAME: &'static str = "an orderly end leaves nothing";

    fn check(&mut self, world: &World) -> Result<(), String> {
        if world.phase != Phase::Ending {
            return Ok(());
        }
        let begun = *self.begun.get_or_insert(world.now);
        if world.now < begun + Self::bound(world) {
            return Ok(());
        }
        for (index, member) in world.members.iter().enumerate().filter(|(_, member)| member.core) {
            ensure(member.node.is_empty(), || {
                format!("{} leases of node {index} never end", member.node.len())
            })?;
            ensure(member.candidacies.iter().all(|candidacy| candidacy.work.is_none()), || {
                format!("work on node {index} never ends")
            })?;
        }
        for name in &world.names {
            ensure(world.store.holder(world.now, name).is_none(), || {
                format!("the record of {name} is left")
            })?;
        }
        Ok(())
    }
}

impl OrderlyEnd {
    /// The grace, and what the answers to late requests may take.
    pub(in crate::simulation) fn bound(world: &World) -> u64 {
        (world.timing.outlived_after() * 2).as_nanos() as u64
    }
}
