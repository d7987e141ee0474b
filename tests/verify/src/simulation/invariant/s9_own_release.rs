use tenure_core::{Command, Reply};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// S9: "A release never ends another owner's or token's grant, and the node is invalid before it is sent."
#[derive(Default)]
pub(super) struct OwnRelease;

impl Invariant for OwnRelease {
    const NAME: &'static str = "S9 a release ends its own grant";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Emitted {
                member,
                command: Command::Release { lease, token, .. } | Command::FinishTick { lease, token, .. },
            } => {
                let node = &world.members[*member];
                // The token of an older grant to the same candidate may be given back meanwhile.
                let valid = node.node.valid(node.local(world.now), *lease);
                ensure(valid.is_none() || token.is_some_and(|token| Some(token) > valid), || {
                    format!("node {member} releases {lease} while it is valid")
                })
            }
            Fact::Executed {
                life,
                name,
                command: Command::Release { n, token, .. },
                before,
                reply,
                after,
            } => {
                let owner = world.lives[*life].1.owner(*n);
                let ours = |owned: &str| {
                    format!("lease {name}: a release by {owner} of {token:?} {owned} {before:?} -> {after:?}")
                };
                let own = before.is_some_and(|record| {
                    record.owner == owner && token.is_none_or(|token| token == record.token)
                });
                let released = matches!(reply, Some(Reply::Released { .. }));
                ensure(own == released, || ours("is answered wrongly"))?;
                ensure(if own { after.is_none() } else { after == before }, || {
                    ours("does too much or too little")
                })
            }
            _ => Ok(()),
        }
    }
}
