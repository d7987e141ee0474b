use std::collections::BTreeSet;

use tenure_core::{Command, Notice};
use tenure_store::Answer;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, Phase, What, World};
use crate::store::MemberAct;

/// A5: "A drain takes nothing new" and is told to be over when nothing is held any more. An operator's wish outlives
/// heartbeats, and is heard.
///
/// That each lease is given back only once its work has ended is what W3 and S9 say; by when work must have ended, the
/// limits.
#[derive(Default)]
pub(super) struct Drains {
    /// The processes that an operator has drained, as the store has said, and nobody since has undone.
    marked: BTreeSet<usize>,
}

impl Invariant for Drains {
    const NAME: &'static str = "A5 who drains takes nothing";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Emitted { member, command: command @ Command::StartWorkload { .. } } => {
                let draining = world.members[*member].node.is_draining();
                ensure(!draining, || format!("node {member} drains, and says {command}"))
            }
            Fact::MemberNoticed { member, notice: notice @ Notice::WorkloadAssigned { .. } } => {
                let draining = world.members[*member].node.is_draining();
                ensure(!draining, || format!("node {member} drains, and says {notice:?}"))
            }
            Fact::MemberNoticed { member, notice: Notice::Drained } => {
                let node = &world.members[*member];
                let left = node.candidacies.iter().find(|it| it.held.is_some() || it.work.is_some());
                ensure(left.is_none(), || format!("node {member} has drained, and has {left:?}"))
            }
            Fact::Struck { what: What::Unmarked, .. } => {
                self.marked.clear();
                Ok(())
            }
            Fact::MemberExecuted { life, act: MemberAct::Beat(beat), before, outcome, listed } => {
                let Ok(Answer::Heartbeat(presence)) = outcome else { return Ok(()) };
                if before.is_none() && !beat.marked {
                    // Whoever makes the record anew may not know.
                    self.marked.remove(life);
                }
                let known = beat.marked && self.marked.contains(life);
                ensure(presence.drain || !known, || {
                    format!("process {life} was drained by an operator, and comes back as if it had not been")
                })?;
                if presence.drain {
                    self.marked.insert(*life);
                }
                let own = listed.iter().find(|entry| World::life(&entry.member.identity) == *life);
                let marked = before.map(|entry| entry.marked);
                let kept = marked.is_none_or(|marked| {
                    marked == presence.drain && own.is_some_and(|entry| entry.marked == marked)
                });
                ensure(kept, || {
                    format!("a heartbeat of process {life} changes an operator's mark: {before:?}")
                })
            }
            Fact::Polled { member, .. } if world.phase == Phase::Settled => {
                let node = &world.members[*member];
                let view = node.node.members().map(|(members, _)| members).unwrap_or_default();
                let own = view.iter().find(|it| World::life(&it.identity) == node.life);
                let seen = own.map(|own| own.draining);
                ensure(!node.core || world.shares.is_none() || seen == Some(node.node.is_draining()), || {
                    format!("node {member} is seen to drain: {seen:?}; it does: {}", node.node.is_draining())
                })
            }
            _ => Ok(()),
        }
    }
}
