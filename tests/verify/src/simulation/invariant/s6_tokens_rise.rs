use std::collections::BTreeMap;

use tenure_core::{Command, Notice, Reply, Token};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, What, World};

/// S6: "Each grant's token is above all earlier ones of its lease, across release, expiry, deletion and restart; a
/// renewal keeps it. A grant that is not above what this process has seen is `StoreRegressed`, never ownership."
///
/// The first part is the store's, and is off once it has forgotten its tokens; the rest always holds.
#[derive(Default)]
pub(super) struct TokensRise {
    granted: BTreeMap<usize, Token>,
    /// By process and lease.
    acquired: BTreeMap<(usize, usize), Token>,
}

impl Invariant for TokensRise {
    const NAME: &'static str = "S6 tokens rise";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Executed {
                life,
                name,
                command: Command::Acquire { n, .. },
                reply: Some(Reply::Granted { token }),
                before,
                ..
            } => {
                let owner = world.lives[*life].1.owner(*n);
                let anew = before.is_none_or(|record| record.owner != owner);
                let highest = self.granted.entry(*name).or_default();
                ensure(!anew || !world.tokens_kept || token > highest, || {
                    format!("lease {name} is granted with token {token} after {highest}")
                })?;
                *highest = token.max(highest).to_owned();
            }
            Fact::Executed {
                name,
                command: Command::Renew { token, .. },
                reply: Some(Reply::Renewed),
                after,
                ..
            } => {
                ensure(after.is_some_and(|record| record.token == *token), || {
                    format!("token {token} of lease {name} is renewed, and the record is {after:?}")
                })?;
            }
            Fact::Noticed { member, name, notice: Notice::Acquired { token, .. }, .. } => {
                let life = world.members[*member].life;
                let seen = self.acquired.insert((life, *name), *token);
                ensure(seen < Some(*token), || {
                    format!("node {member} takes token {token} of lease {name} for its own, after {seen:?}")
                })?;
            }
            Fact::Emitted { member, command: Command::Acquire { lease, floor, .. } } => {
                let node = &world.members[*member];
                let name = node.candidacy(*lease).map(|candidacy| candidacy.name);
                let seen = name.and_then(|name| self.acquired.get(&(node.life, name)));
                ensure(seen.is_none_or(|seen| seen <= floor), || {
                    format!("node {member} asks for {lease} above {floor}, and has held it with {seen:?}")
                })?;
            }
            Fact::Struck { what: What::StoreForgotTokens, .. } => self.granted.clear(),
            _ => {}
        }
        Ok(())
    }
}
