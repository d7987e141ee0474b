use std::collections::BTreeMap;

use tenure_core::{Notice, TimerKey, Token};

use super::{Invariant, ensure};
use crate::simulation::member::CLAIM;
use crate::simulation::world::{Fact, What, World};

/// T2: "Per instance each number at most once, in order; a claimed tick at most once in the fleet, or as the policy says."
///
/// A store that has forgotten a timer counts anew; runs whose claims it had granted before that don't count.
#[derive(Default)]
pub(super) struct OnceInOrder {
    /// By process and timer: the last tick.
    last: BTreeMap<(usize, TimerKey), u64>,
    /// By job and tick: how often a run has begun.
    begun: BTreeMap<(usize, u64), u32>,
    /// Grants up to this one were forgotten.
    forgotten: Token,
}

impl Invariant for OnceInOrder {
    const NAME: &'static str = "T2 once and in order";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::TimerNoticed { member, notice: Notice::Ticked { timer, due, .. }, .. } => {
                let last = self.last.insert((world.members[*member].life, *timer), due.tick.n);
                ensure(last.is_none_or(|last| last < due.tick.n), || {
                    format!("node {member} delivers {due:?} after {last:?}")
                })
            }
            Fact::Started { member, lease, token, .. } => {
                let candidacy = world.members[*member].candidacy(*lease);
                let Some((job, tick)) = candidacy.and_then(|candidacy| candidacy.run) else { return Ok(()) };
                // The token of a run under a lease says nothing of its claim.
                let name = candidacy.map_or(CLAIM, |candidacy| candidacy.name);
                if *token <= self.forgotten || (name != CLAIM && self.forgotten > Token::ZERO) {
                    return Ok(());
                }
                let begun = self.begun.entry((job, tick)).or_default();
                *begun += 1;
                ensure(*begun <= world.schedules[job].attempts, || {
                    format!("tick {tick} of job {job} is begun for the {begun}. time, on node {member}")
                })
            }
            Fact::Struck { what: What::StoreWiped | What::TimerForgotten, .. } => {
                self.forgotten = world.store.highest;
                self.begun.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
