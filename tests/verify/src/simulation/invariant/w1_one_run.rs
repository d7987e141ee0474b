use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{LeaseKey, WorkerKey};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// W1: nothing starts twice. There are never two runs of one worker at once, and never a second start under one grant.
#[derive(Default)]
pub(super) struct OneRun {
    /// By process and worker: the lease under which its workload runs.
    running: BTreeMap<(usize, WorkerKey), LeaseKey>,
    started: BTreeSet<(usize, LeaseKey)>,
}

impl Invariant for OneRun {
    const NAME: &'static str = "W1 nothing starts twice";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Started { member, lease, worker: Some(worker), .. } => {
                let life = world.members[*member].life;
                ensure(self.started.insert((life, *lease)), || {
                    format!("{worker} of node {member} starts its workload twice under {lease}")
                })?;
                let other = self.running.insert((life, *worker), *lease);
                ensure(other.is_none(), || {
                    format!("{worker} of node {member} starts under {lease} while it runs under {other:?}")
                })?;
            }
            Fact::WorkEnded { member, worker: Some(worker), .. } => {
                self.running.remove(&(world.members[*member].life, *worker));
            }
            _ => {}
        }
        Ok(())
    }
}
