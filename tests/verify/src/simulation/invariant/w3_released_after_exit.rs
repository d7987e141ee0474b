use tenure_core::{Command, Notice};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// W3: a lease is released only after the work under it has ended, and a worker has ended only when nothing of it runs.
#[derive(Default)]
pub(super) struct ReleasedAfterExit;

impl Invariant for ReleasedAfterExit {
    const NAME: &'static str = "W3 released only after the exit";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Emitted {
                member,
                command: Command::Release { lease, token, .. } | Command::FinishTick { lease, token, .. },
            } => {
                let work = world.members[*member].candidacy(*lease).and_then(|candidacy| candidacy.work);
                // A later grant to an owner that lost an earlier one may be given back while work ends.
                ensure(work.is_none_or(|work| token.is_some_and(|token| token > work.token)), || {
                    format!("node {member} releases {lease} before its work has ended")
                })
            }
            Fact::WorkerNoticed { member, worker, notice: Notice::WorkerEnded { .. } } => {
                let mut candidacies = world.members[*member].candidacies.iter();
                let runs = candidacies
                    .any(|candidacy| candidacy.worker == Some(worker.key) && candidacy.work.is_some());
                ensure(!runs, || format!("{} of node {member} has ended, and its workload runs", worker.key))
            }
            _ => Ok(()),
        }
    }
}
