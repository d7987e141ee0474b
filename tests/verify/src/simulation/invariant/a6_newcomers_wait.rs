use std::time::Duration;

use tenure_core::{Member, Notice};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// A6: who comes takes nothing until it has been there for the hold-down, unless it came within that of the eldest. So
/// one that comes and goes moves nothing.
#[derive(Default)]
pub(super) struct NewcomersWait;

impl Invariant for NewcomersWait {
    const NAME: &'static str = "A6 newcomers wait";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let (Fact::MemberNoticed { member, notice: Notice::WorkloadAssigned { .. } }, Some(shares)) =
            (fact, &world.shares)
        else {
            return Ok(());
        };
        let node = &world.members[*member];
        let Some((members, at)) = node.node.members() else {
            return Err(format!("node {member} plans, and knows nobody"));
        };
        // What it says of itself may be other than what was heard of it, and news that are carried out late are not wrong.
        if node.part.changes > 0 || node.interrupted {
            return Ok(());
        }
        let Some(own) = members.iter().find(|it| World::life(&it.identity) == node.life) else {
            return Err(format!("node {member} plans, and is not listed"));
        };
        let same = |it: &&Member| it.digests.iter().any(|digest| own.digests.contains(digest));
        let eldest = members.iter().filter(same).filter(|it| !it.draining).map(|it| it.age).max();
        let since = node.heard_at.saturating_since(at);
        let hold_down = shares.kinds[node.part.kind].hold_down;
        let early = eldest.unwrap_or(Duration::ZERO).saturating_sub(own.age) <= hold_down;
        ensure(early || own.age + since >= hold_down, || {
            format!(
                "node {member} takes a workload {:?} after it came; the eldest: {eldest:?}",
                own.age + since
            )
        })
    }
}
