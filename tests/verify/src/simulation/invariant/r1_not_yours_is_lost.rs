use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{Command, CommandId, Event, LeaseKey, Reply};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// R1, of the table of replies: "`NotYours` to `Renew`: lost now, hard stop, never created again."
#[derive(Default)]
pub(super) struct NotYoursIsLost {
    /// By process: the latest renewal of each hold, until it is answered.
    renewals: BTreeMap<usize, BTreeMap<CommandId, LeaseKey>>,
    /// By process: what must be lost before the node falls silent.
    due: BTreeMap<usize, BTreeSet<LeaseKey>>,
}

impl Invariant for NotYoursIsLost {
    const NAME: &'static str = "R1 what is not yours is lost";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Emitted { member, command: Command::Renew { id, lease, .. } } => {
                let renewals = self.renewals.entry(world.members[*member].life).or_default();
                renewals.retain(|_, other| other != lease);
                renewals.insert(*id, *lease);
            }
            // It is on its way back already.
            Fact::Emitted {
                member,
                command: Command::Release { lease, .. } | Command::FinishTick { lease, .. },
            } => {
                let life = world.members[*member].life;
                self.renewals.entry(life).or_default().retain(|_, other| other != lease);
                // It was, before the answer came, where a driver was stopped between the two.
                self.due.entry(life).or_default().remove(lease);
            }
            Fact::Heard { member, event: Event::Reply { id, reply } } => {
                let life = world.members[*member].life;
                let renewals = self.renewals.entry(life).or_default();
                // A second answer is dropped.
                if let Some(lease) = renewals.remove(id).filter(|_| *reply == Reply::NotYours) {
                    self.due.entry(life).or_default().insert(lease);
                }
            }
            Fact::Polled { member, .. } => {
                let node = &world.members[*member];
                for lease in self.due.remove(&node.life).into_iter().flatten() {
                    let held = node.candidacy(lease).and_then(|candidacy| candidacy.held);
                    ensure(held.is_none(), || {
                        format!("node {member} goes on to hold {lease}, which the store says is not its own")
                    })?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
