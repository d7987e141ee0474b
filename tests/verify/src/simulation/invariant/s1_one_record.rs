use std::collections::BTreeMap;

use tenure_core::{Command, Instant, Owner, Reply};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, What, World};

/// S1: "A store has at most one unexpired owner and token per lease."
///
/// A ledger of its own says until when the store owes each lease to whom, by the store's clock. What was over once may be
/// given away, and, as long as it was not, be alive again for a clock that was set back.
#[derive(Default)]
pub(super) struct OneRecord {
    owed: BTreeMap<usize, Owed>,
}

struct Owed {
    owner: Owner,
    until: Instant,
    was_over: bool,
}

impl Invariant for OneRecord {
    const NAME: &'static str = "S1 one record";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Executed { life, name, command, reply, .. } => {
                let owner = |n| world.lives[*life].1.owner(n);
                let now = world.store.clock.at(world.now);
                let owed = self.owed.get(name);
                match (command, reply) {
                    (Command::Acquire { n, ttl, .. }, Some(Reply::Granted { .. })) => {
                        let owner = owner(*n);
                        let free =
                            owed.is_none_or(|owed| owed.owner == owner || owed.was_over || owed.until <= now);
                        ensure(free, || format!("lease {name} is granted to {owner} while another has it"))?;
                        self.owed.insert(*name, Owed { owner, until: now + *ttl, was_over: false });
                    }
                    (Command::Renew { n, ttl, .. }, Some(Reply::Renewed)) => {
                        let owner = owner(*n);
                        let theirs = owed.is_some_and(|owed| owed.owner == owner && now < owed.until);
                        ensure(theirs, || {
                            format!("lease {name} is renewed for {owner}, who has it no more")
                        })?;
                        self.owed.insert(*name, Owed { owner, until: now + *ttl, was_over: false });
                    }
                    (Command::Release { n, .. }, Some(Reply::Released { .. })) => {
                        let owner = owner(*n);
                        let theirs = owed.is_some_and(|owed| owed.owner == owner);
                        ensure(theirs, || {
                            format!("lease {name} is released for {owner}, who does not have it")
                        })?;
                        self.owed.remove(name);
                    }
                    _ => {}
                }
            }
            Fact::Struck { what: What::StoreWiped, .. } => self.owed.clear(),
            _ => {}
        }
        Ok(())
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let now = world.store.clock.at(world.now);
        self.owed.values_mut().for_each(|owed| owed.was_over |= owed.until <= now);
        Ok(())
    }
}
