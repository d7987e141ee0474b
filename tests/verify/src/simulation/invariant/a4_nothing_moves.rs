use std::collections::BTreeMap;

use tenure_core::Notice;

use super::{Invariant, ensure};
use crate::simulation::shares::Rule;
use crate::simulation::world::{Fact, Phase, World};

/// A4: "Nothing moves while membership is unchanged", and when somebody is gone, what moves does so once: no workload
/// goes to and fro.
#[derive(Default)]
pub(super) struct NothingMoves {
    /// By workload and kind: how often it came to belong to somebody since one of the fleet is gone.
    moved: BTreeMap<(usize, usize), u32>,
    since: u64,
}

impl Invariant for NothingMoves {
    const NAME: &'static str = "A4 nothing moves without need";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let Fact::MemberNoticed {
            member,
            notice:
                notice @ (Notice::WorkloadAssigned { worker, .. } | Notice::WorkloadDropped { worker, .. }),
        } = fact
        else {
            return Ok(());
        };
        let (node, Some(shares)) = (&world.members[*member], &world.shares) else { return Ok(()) };
        let unchanged = match world.phase {
            Phase::Trouble => world.benign && world.now > shares.agreed_after().as_nanos() as u64,
            Phase::Settled => node.core,
            Phase::Healed { .. } | Phase::Bereft { .. } | Phase::Ending => false,
        };
        ensure(!unchanged, || format!("node {member} says {notice:?}, and nobody came or went"))?;
        let (Phase::Bereft { since, victim }, Notice::WorkloadAssigned { .. }) = (world.phase, notice) else {
            return Ok(());
        };
        if !node.core {
            return Ok(());
        }
        if self.since != since {
            (self.since, self.moved) = (since, BTreeMap::new());
        }
        let name = node.node.worker_name(*worker);
        let name = world.names.iter().position(|other| Some(other) == name).unwrap_or(usize::MAX);
        let moved = self.moved.entry((name, node.part.kind)).or_default();
        *moved += 1;
        ensure(*moved <= 1, || format!("workload {name} moves again and again since node {victim} is gone"))?;
        let kind = &shares.kinds[node.part.kind];
        let of_victim = world.members[victim].part.kind == node.part.kind;
        let victims = of_victim || world.members[victim].part.coordinator.is_none();
        ensure(victims || kind.rule != Rule::Primary, || {
            format!("workload {name} moves, which was none of those of node {victim}")
        })
    }
}
