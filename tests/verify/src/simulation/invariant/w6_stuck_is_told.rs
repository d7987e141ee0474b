use std::collections::BTreeSet;

use tenure_core::{LeaseKey, Notice};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// W6: a workload that has not ended a stop budget after its hard stop is reported as stuck, once, and no other is.
#[derive(Default)]
pub(super) struct StuckIsTold {
    told: BTreeSet<(usize, LeaseKey)>,
}

impl Invariant for StuckIsTold {
    const NAME: &'static str = "W6 what is stuck is told";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::WorkerNoticed { member, notice: Notice::Stuck { lease, .. }, .. } => {
                let node = &world.members[*member];
                let sticks =
                    node.candidacy(*lease).and_then(|candidacy| candidacy.work).and_then(|work| work.stuck);
                ensure(sticks.is_some() || node.interrupted, || {
                    format!("node {member} calls {lease} stuck, which was not even stopped hard")
                })?;
                ensure(self.told.insert((node.life, *lease)), || {
                    format!("node {member} calls {lease} stuck twice")
                })
            }
            Fact::Polled { member, .. } => {
                let node = &world.members[*member];
                for candidacy in node.candidacies.iter().filter(|candidacy| candidacy.worker.is_some()) {
                    let Some(stuck) = candidacy.work.and_then(|work| work.stuck) else { continue };
                    let due = stuck + world.timing.stop_budget();
                    let told = self.told.contains(&(node.life, candidacy.lease));
                    ensure(told || node.heard_at < due, || {
                        format!(
                            "{} of node {member} is stuck since {stuck:?}, and nobody is told",
                            candidacy.lease
                        )
                    })?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
