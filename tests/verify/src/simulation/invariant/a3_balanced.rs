use super::{Invariant, ensure};
use crate::simulation::member::Member;
use crate::simulation::shares::Rule;
use crate::simulation::world::{Fact, What, World};

/// A3: the plan that all of one kind have come to gives each workload to one of them, and is balanced as its rule
/// promises: `balanced`: most and least differ by at most 1; `primary`: all to the one that joined first; `rendezvous`:
/// nobody above 1.25 times the fair share.
#[derive(Default)]
pub(super) struct IsBalanced;

impl Invariant for IsBalanced {
    const NAME: &'static str = "A3 the plan is balanced";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let (Fact::Struck { what: What::Settled, .. }, Some(shares)) = (fact, &world.shares) else {
            return Ok(());
        };
        for (index, kind) in shares.kinds.iter().enumerate() {
            let counts = |node: &&Member| node.core && node.part.kind == index && !node.node.is_draining();
            let members: Vec<&Member> = world.members.iter().filter(counts).collect();
            if members.is_empty() {
                continue;
            }
            let mut owned: Vec<usize> = members.iter().flat_map(|node| node.shares()).collect();
            owned.sort_unstable();
            ensure(owned.iter().copied().eq(kind.workloads.iter().copied()), || {
                format!("the instances of kind {index} have {owned:?} of {:?}", kind.workloads)
            })?;
            let sizes = members.iter().map(|node| node.shares().count());
            let (most, least) = (sizes.clone().max().unwrap_or(0), sizes.clone().min().unwrap_or(0));
            let fits = match kind.rule {
                Rule::Balanced => most - least <= 1,
                Rule::Rendezvous => most <= (5 * kind.workloads.len()).div_ceil(4 * members.len()),
                Rule::Primary => {
                    let joined = |node: &&&Member| {
                        let own = |it: &&tenure_core::Member| World::life(&it.identity) == node.life;
                        let seen = node.node.members().and_then(|(members, _)| members.iter().find(own));
                        seen.map(|it| (it.joined, it.identity.clone()))
                    };
                    let first = members.iter().min_by_key(joined).map(|node| node.shares().count());
                    first == Some(kind.workloads.len())
                }
            };
            ensure(fits, || format!("the instances of kind {index} have {:?}", sizes.collect::<Vec<_>>()))?;
        }
        Ok(())
    }
}
