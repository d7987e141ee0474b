use super::{Invariant, ensure};
use crate::simulation::member::CLAIM;
use crate::simulation::world::World;

/// S2 for claims: while a node takes itself for the one that has a tick, with token k, the store has this owner's claim of
/// that tick with that token, and it is not expired.
#[derive(Default)]
pub(super) struct ClaimsAreOwned;

impl Invariant for ClaimsAreOwned {
    const NAME: &'static str = "S2 for claims";

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (index, member) in world.members.iter().enumerate() {
            if !world.trusts(index) {
                continue;
            }
            let local = member.local(world.now);
            for candidacy in member.candidacies.iter().filter(|candidacy| candidacy.name == CLAIM) {
                let (Some(token), Some((job, tick))) = (candidacy.held, candidacy.run) else { continue };
                let ends = member.node.deadlines(candidacy.lease);
                if world.now < world.claims_trusted_from[job]
                    || ends.is_none_or(|ends| ends.valid_until <= local)
                {
                    continue;
                }
                let identity = format!(
                    "{}/{}.",
                    member.node.identity().instance(),
                    member.node.identity().incarnation()
                );
                let now = world.store.clock.at(world.now);
                let claims = world.record(job).into_iter().flat_map(|record| &record.claims);
                let own = claims.into_iter().find(|claim| claim.tick == tick && claim.token == token);
                ensure(
                    own.is_some_and(|claim| claim.owner.starts_with(&identity) && now < claim.ends),
                    || {
                        format!(
                            "node {index} believes in its claim of tick {tick} of job {job} with token {token}, and the store has {own:?}"
                        )
                    },
                )?;
            }
        }
        Ok(())
    }
}
