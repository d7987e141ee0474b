use std::collections::BTreeMap;

use tenure_core::{Command, CommandId, Event, Instant, LeaseKey, Reply, Token};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// R2, of the table of replies: "A grant for an acquisition that is over: `Release` for that owner is emitted."
///
/// Unless its TTL is over by then. The answer to the latest request of a candidacy is never forgotten; those to older
/// ones may be.
#[derive(Default)]
pub(super) struct LateGrantGoesBack {
    /// By process: the latest request of each candidacy, and when it was emitted.
    requests: BTreeMap<usize, BTreeMap<CommandId, (LeaseKey, Instant)>>,
    /// By process and candidacy: the highest token that was given back.
    given_back: BTreeMap<(usize, LeaseKey), Token>,
    /// By process: what must be given back before the node falls silent.
    due: BTreeMap<usize, Vec<(LeaseKey, Token)>>,
}

impl Invariant for LateGrantGoesBack {
    const NAME: &'static str = "R2 a late grant goes back";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Emitted { member, command: Command::Acquire { id, lease, .. } } => {
                let node = &world.members[*member];
                let requests = self.requests.entry(node.life).or_default();
                requests.retain(|_, (other, _)| other != lease);
                requests.insert(*id, (*lease, node.heard_at));
            }
            Fact::Emitted { member, command: Command::Release { lease, token: Some(token), .. } } => {
                let given_back = self.given_back.entry((world.members[*member].life, *lease)).or_default();
                *given_back = (*given_back).max(*token);
            }
            Fact::Heard { member, event: Event::Reply { id, reply } } => {
                let node = &world.members[*member];
                let request = self.requests.entry(node.life).or_default().remove(id);
                if let (Some((lease, emitted)), Reply::Granted { token }) = (request, reply)
                    && node.local(world.now) < emitted + world.timing.outlived_after()
                    && node.candidacy(lease).is_some_and(|candidacy| candidacy.over)
                {
                    self.due.entry(node.life).or_default().push((lease, *token));
                }
            }
            Fact::Polled { member, .. } => {
                let life = world.members[*member].life;
                for (lease, token) in self.due.remove(&life).into_iter().flatten() {
                    ensure(
                        self.given_back.get(&(life, lease)).is_some_and(|highest| *highest >= token),
                        || format!("node {member} keeps token {token}, which came too late for {lease}"),
                    )?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
