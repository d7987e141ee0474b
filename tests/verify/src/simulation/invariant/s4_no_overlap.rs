use super::{Invariant, ensure};
use crate::simulation::member::CLAIM;
use crate::simulation::world::World;

/// S4: "A unit of work that fits in what remains never runs beside another owner's, unless its process was paused
/// inside it."
///
/// Here work goes on for as long as the lease lets it, so that its end is put to the test at each moment. Besides a
/// process that is paused now, work that did not end when it was stopped hard is excused, and whoever is excused from
/// [belief](super::s2_belief).
#[derive(Default)]
pub(super) struct NoOverlap;

impl Invariant for NoOverlap {
    const NAME: &'static str = "S4 work does not overlap";

    fn check(&mut self, world: &World) -> Result<(), String> {
        let mut workers = vec![None; world.names.len()];
        for (index, member) in world.members.iter().enumerate() {
            if !member.is_up() || !world.trusts(index) {
                continue;
            }
            for candidacy in member.candidacies.iter().filter(|candidacy| candidacy.name != CLAIM) {
                if candidacy.work.is_some_and(|work| work.stuck.is_none()) {
                    let other = workers[candidacy.name].replace(index);
                    ensure(other.is_none(), || {
                        format!(
                            "nodes {} and {index} both work under lease {}",
                            other.unwrap_or(0),
                            candidacy.name
                        )
                    })?;
                }
            }
        }
        Ok(())
    }
}
