use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{LeaseKey, Notice, Token};

use super::{Invariant, ensure};
use crate::simulation::member::CLAIM;
use crate::simulation::world::{Fact, World};

/// S7: "After `Lost` with token k nothing is valid under k again."
#[derive(Default)]
pub(super) struct LostIsLost {
    /// By process: what was lost.
    lost: BTreeMap<usize, Losses>,
}

#[derive(Default)]
struct Losses {
    tokens: BTreeSet<(usize, Token)>,
    /// Those that have not ended yet.
    leases: BTreeSet<LeaseKey>,
}

impl Invariant for LostIsLost {
    const NAME: &'static str = "S7 lost is lost";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        // A job has tokens of its own.
        let name = &match fact {
            Fact::Noticed { name, .. } => *name,
            Fact::ClaimNoticed { run: (job, _), .. } => CLAIM - job,
            _ => CLAIM,
        };
        match fact {
            Fact::Noticed { member, notice, .. } | Fact::ClaimNoticed { member, notice, .. } => {
                let life = world.members[*member].life;
                match notice {
                    Notice::Lost { lease, token, .. } => {
                        let losses = self.lost.entry(life).or_default();
                        losses.leases.insert(*lease);
                        losses.tokens.insert((*name, *token));
                    }
                    Notice::Acquired { token, .. } => {
                        let lost =
                            self.lost.get(&life).is_some_and(|lost| lost.tokens.contains(&(*name, *token)));
                        // A job that begins anew does not know what a store gave to the one before, and has forgotten.
                        let known = matches!(fact, Fact::Noticed { .. }) || world.tokens_kept;
                        ensure(!lost || !known, || {
                            format!("node {member} holds lease {name} under the lost token {token}")
                        })?;
                    }
                    Notice::Renewed { lease, .. } => {
                        let lost = self.lost.get(&life).is_some_and(|lost| lost.leases.contains(lease));
                        ensure(!lost, || {
                            format!("node {member} says that {lease} is renewed, which it had lost")
                        })?;
                    }
                    Notice::Ended { lease } => {
                        if let Some(lost) = self.lost.get_mut(&life) {
                            lost.leases.remove(lease);
                        }
                    }
                    _ => {}
                }
            }
            Fact::Polled { member, .. } => {
                let node = &world.members[*member];
                let local = node.local(world.now);
                if let Some(lost) = self.lost.get(&node.life) {
                    for lease in &lost.leases {
                        ensure(node.node.valid(local, *lease).is_none(), || {
                            format!("{lease} of node {member} is valid again after it was lost")
                        })?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
