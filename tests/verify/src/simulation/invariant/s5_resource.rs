use std::collections::BTreeMap;

use tenure_core::{Command, Reply, Token};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// S5: "A resource that refuses tokens below the highest it has seen never accepts an old holder after a new one."
///
/// Holds whatever clocks and pauses do, for as long as the store keeps its tokens. If it forgot them, what is left is
/// that accepted tokens never go down.
#[derive(Default)]
pub(super) struct Accepted {
    /// Which grant of its lease a token belongs to, counted in the order of the store.
    grants: BTreeMap<(usize, Token), u64>,
    granted: u64,
    /// The last grant before the store, for the last time, had forgotten its tokens: later ones may be below its.
    forgotten: u64,
    /// The token and the grant of the last write that was accepted.
    last: BTreeMap<usize, (Token, u64)>,
}

impl Invariant for Accepted {
    const NAME: &'static str = "S5 the resource decides";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        if !world.tokens_kept {
            self.forgotten = self.granted;
        }
        match fact {
            Fact::Executed {
                name,
                command: Command::Acquire { .. },
                reply: Some(Reply::Granted { token }),
                ..
            } => {
                self.granted += 1;
                let granted = self.granted;
                self.grants.entry((*name, *token)).or_insert(granted);
            }
            Fact::Written { life, name, token, accepted: true } => {
                let grant = self.grants.get(&(*name, *token)).copied().unwrap_or(0);
                let (highest, last) = self.last.insert(*name, (*token, grant)).unwrap_or_default();
                ensure(*token >= highest, || {
                    format!("token {token} of lease {name} is accepted after {highest}")
                })?;
                ensure(grant >= last || grant <= self.forgotten, || {
                    format!("process {life} writes under lease {name} by grant {grant}, after grant {last}")
                })?;
            }
            _ => {}
        }
        Ok(())
    }
}
