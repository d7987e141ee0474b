use super::{Invariant, ensure};
use crate::simulation::member::CLAIM;
use crate::simulation::world::World;

/// S2: "While a node takes itself for the holder with token k, the store's record is this owner's, has token k, and is
/// not expired. So there are never two valid holders."
///
/// While it stops its work as well: until `valid_until` nobody else can have it. A paused process believes what its
/// clock lets it. Whose clock runs further off than is assumed is excused, and so is everybody for the TTL after the
/// store has lost its data or its clock was set too far.
#[derive(Default)]
pub(super) struct Belief;

impl Invariant for Belief {
    const NAME: &'static str = "S2 belief implies ownership";

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (index, member) in world.members.iter().enumerate() {
            if !world.trusts(index) {
                continue;
            }
            let local = member.local(world.now);
            for candidacy in member.candidacies.iter().filter(|candidacy| candidacy.name != CLAIM) {
                let Some(token) = candidacy.held else { continue };
                let believes =
                    member.node.deadlines(candidacy.lease).is_some_and(|ends| local < ends.valid_until);
                if !believes {
                    continue;
                }
                let name = &world.names[candidacy.name];
                let Some(record) = world.store.holder(world.now, name) else {
                    return Err(format!("node {index} believes in {name}, which is free"));
                };
                ensure(record.owner.identity() == member.node.identity(), || {
                    format!("node {index} believes in {name}, which is {}'s", record.owner)
                })?;
                ensure(record.token == token, || {
                    format!(
                        "node {index} believes in {name} by token {token}, and the record has {}",
                        record.token
                    )
                })?;
            }
        }
        Ok(())
    }
}
