use std::collections::BTreeMap;

use tenure_core::{Notice, Timestamp};
use tenure_store::Answer;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, What, World};
use crate::store::MemberAct;

/// M4: "Joined never changes; views never go back."
///
/// A store that has lost its members may say another time to a process that has not heard the first one, and its
/// versions begin anew with its wall clock: whoever has a view from before goes down to one from after, and from no other.
#[derive(Default)]
pub(super) struct NeverBack {
    /// By process: when it joined, as the store has said.
    joined: BTreeMap<usize, Timestamp>,
    /// By process: the version of its view.
    versions: BTreeMap<usize, u64>,
    /// How often the store has lost its members, and how often it had when it told a version last.
    forgotten: u64,
    told: BTreeMap<u64, u64>,
}

impl Invariant for NeverBack {
    const NAME: &'static str = "M4 views never go back";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Struck { what: What::MembersForgotten, .. } => {
                self.joined.clear();
                self.forgotten += 1;
                Ok(())
            }
            Fact::MemberExecuted { life, act: MemberAct::Beat(beat), before, outcome, .. } => {
                let Ok(Answer::Heartbeat(presence)) = outcome else { return Ok(()) };
                self.told.insert(presence.version, self.forgotten);
                let known = self.joined.insert(*life, presence.joined);
                // What is forgotten is as the process knows it; if it has never heard, nobody does.
                let anew = before.is_none() && beat.joined.is_none_or(|joined| joined == presence.joined);
                ensure(known.is_none_or(|known| known == presence.joined) || anew, || {
                    format!("process {life} joined at {known:?}, and now at {:?}", presence.joined)
                })
            }
            Fact::MemberNoticed { member, notice: Notice::MembersChanged { version, .. } } => {
                let life = world.members[*member].life;
                let before = self.versions.insert(life, *version);
                let rises = before.is_none_or(|before| before < *version);
                let told = |version: u64| self.told.get(&version).copied().unwrap_or_default();
                let anew = before.is_some_and(|before| told(before) < told(*version));
                ensure(rises || anew, || format!("node {member} goes from view {before:?} to {version}"))
            }
            _ => Ok(()),
        }
    }
}
