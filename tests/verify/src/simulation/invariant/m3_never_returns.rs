use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::{Command, Instant};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, What, World};
use crate::store::MemberAct;

/// M3: "An incarnation never returns": the heartbeat ends last, nothing is said after it, and whatever comes late,
/// nobody lists an instance that has left.
///
/// For as long as heartbeats may be under way, which is what the TTL of the farewell is for. By a clock that was set too far
/// the store forgets too early.
#[derive(Default)]
pub(super) struct NeverReturns {
    /// The processes that said that they leave.
    leaving: BTreeSet<usize>,
    /// By process: until when the store remembers that it has left, by its clock.
    left: BTreeMap<usize, Instant>,
}

impl Invariant for NeverReturns {
    const NAME: &'static str = "M3 who has left never returns";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Emitted { member, command: Command::Heartbeat { .. } } => {
                let life = world.members[*member].life;
                ensure(!self.leaving.contains(&life), || format!("node {member} has left, and is there"))
            }
            Fact::Emitted { member, command: Command::Leave { .. } } => {
                let node = &world.members[*member];
                self.leaving.insert(node.life);
                let works = node.candidacies.iter().any(|candidacy| candidacy.work.is_some());
                ensure(!works && node.candidacies.is_empty() && node.workers.is_empty(), || {
                    format!("node {member} leaves before all of it has ended")
                })
            }
            // It remembers nothing.
            Fact::Struck { what: What::MembersForgotten, .. } => {
                self.left.clear();
                Ok(())
            }
            Fact::MemberExecuted { life, act, listed, .. } => {
                let now = world.store.clock.at(world.now);
                if let MemberAct::Leave(leave) = act {
                    self.left.insert(*life, now + leave.ttl.saturating_sub(Duration::from_millis(50)));
                }
                let lists =
                    |life: usize| listed.iter().any(|entry| World::life(&entry.member.identity) == life);
                let back = self.left.iter().find(|(life, until)| now < **until && lists(**life));
                ensure(back.is_none() || !world.trusts_listing(), || {
                    format!("process {back:?} has left, and is listed")
                })
            }
            _ => Ok(()),
        }
    }
}
