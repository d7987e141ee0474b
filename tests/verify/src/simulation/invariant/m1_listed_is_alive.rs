use std::collections::BTreeMap;

use tenure_core::Event;
use tenure_store::Answer;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, SECOND, What, World};
use crate::store::MemberAct;

/// M1: "Listed implies alive within TTL and bound": who is listed has sent a heartbeat that came within its TTL, and
/// lived until not long before that.
///
/// The TTL runs by the store's clock; while that runs too slow, or was set back too far, nothing is said.
#[derive(Default)]
pub(super) struct ListedIsAlive {
    /// By process: when its last heartbeat that counted was carried out.
    heard: BTreeMap<usize, u64>,
    /// When it died, or had left in its own eyes.
    gone: BTreeMap<usize, u64>,
}

/// The longest that a heartbeat is under way: it is slow, its repetition as slow again, and so is the store.
const LONGEST_WAY: u64 = 7 * SECOND;

impl Invariant for ListedIsAlive {
    const NAME: &'static str = "M1 who is listed is alive";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Struck { member: Some(member), what: What::Crash } => {
                self.gone.insert(world.members[*member].life, world.now);
            }
            Fact::MemberExecuted { life, act, outcome, listed, .. } => {
                if let (MemberAct::Beat(_), Ok(Answer::Heartbeat(_))) = (act, outcome) {
                    self.heard.insert(*life, world.now);
                }
                let Some(shares) = world.shares.as_ref().filter(|_| world.trusts_listing()) else {
                    return Ok(());
                };
                for entry in *listed {
                    let other = World::life(&entry.member.identity);
                    let heard = self.heard.get(&other).copied();
                    ensure(heard.is_some_and(|at| world.now - at <= shares.listed_for()), || {
                        format!("process {other} is listed at {}, and was last heard at {heard:?}", world.now)
                    })?;
                    let gone = self.gone.get(&other).copied();
                    ensure(gone.is_none_or(|at| heard.unwrap_or(0) <= at + LONGEST_WAY), || {
                        format!("process {other} was heard at {heard:?}, and gone at {gone:?}")
                    })?;
                }
            }
            Fact::Heard { event: Event::Present { presence, .. }, .. } => {
                let sorted = presence
                    .members
                    .as_deref()
                    .is_none_or(|members| members.is_sorted_by(|one, other| one.identity < other.identity));
                ensure(sorted, || format!("the members of {presence:?} are not in order, or there twice"))?;
            }
            _ => {}
        }
        Ok(())
    }
}
