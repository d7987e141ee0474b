use tenure_core::Command;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// W2: a workload is started only while its lease is valid, and by the token of that very grant.
///
/// The node's word is taken at the moment in which it says it: whoever is stopped before it carries it out looks at the
/// clock itself.
#[derive(Default)]
pub(super) struct StartsWhileValid;

impl Invariant for StartsWhileValid {
    const NAME: &'static str = "W2 workloads start while the lease is valid";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let Fact::Emitted { member, command: Command::StartWorkload { worker, lease, token, deadlines, .. } } =
            fact
        else {
            return Ok(());
        };
        let node = &world.members[*member];
        let valid = node.node.valid(node.heard_at, *lease);
        ensure(valid == Some(*token) && node.heard_at < deadlines.fence_at, || {
            format!(
                "{worker} of node {member} is to start under {lease} with token {token}, and valid is {valid:?}"
            )
        })?;
        let stands = node.candidacy(*lease).is_some_and(|candidacy| candidacy.worker == Some(*worker));
        ensure(stands, || {
            format!("{worker} of node {member} is to start under {lease}, which is not its own")
        })
    }
}
