use std::collections::BTreeMap;

use tenure_core::{Notice, Timestamp};
use tenure_store::Answer;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, What, World};
use crate::store::MemberAct;

/// M4: "Joined never changes; views never go back."
///
/// A store that has lost its members may say another time to a process that has not heard the first one, and its
/// versions begin with its wall clock.
#[derive(Default)]
pub(super) struct NeverBack {
    /// By process: when it joined, as the store has said.
    joined: BTreeMap<usize, Timestamp>,
    /// By process: the version of its view.
    versions: BTreeMap<usize, u64>,
}

impl Invariant for NeverBack {
    const NAME: &'static str = "M4 views never go back";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Struck { what: What::MembersForgotten, .. } => {
                self.joined.clear();
                self.versions.clear();
                Ok(())
            }
            Fact::MemberExecuted { life, act: MemberAct::Beat(beat), before, outcome, .. } => {
                let Ok(Answer::Heartbeat(presence)) = outcome else { return Ok(()) };
                let known = self.joined.insert(*life, presence.joined);
                // What was never heard, and is forgotten, is not known to anybody.
                let anew = beat.joined.is_none() && before.is_none();
                ensure(known.is_none_or(|known| known == presence.joined) || anew, || {
                    format!("process {life} joined at {known:?}, and now at {:?}", presence.joined)
                })
            }
            Fact::MemberNoticed { member, notice: Notice::MembersChanged { version, .. } } => {
                let before = self.versions.insert(world.members[*member].life, *version);
                ensure(before.is_none_or(|before| before < *version), || {
                    format!("node {member} goes from view {before:?} to {version}")
                })
            }
            _ => Ok(()),
        }
    }
}
