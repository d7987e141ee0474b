use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{Exit, Instant, Notice, Restart, WorkerKey};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// W4: a worker whose workload ends, or whose lease is lost or refused, campaigns again within its longest rest, unless
/// it was drained or its policy wants no further run. Nobody is a follower for ever.
#[derive(Default)]
pub(super) struct CampaignsAgain {
    /// By process and worker: by when it must campaign again, or have ended.
    due: BTreeMap<usize, BTreeMap<WorkerKey, Due>>,
}

struct Due {
    by: Instant,
    /// Whether it must not end instead.
    goes_on: bool,
}

impl Invariant for CampaignsAgain {
    const NAME: &'static str = "W4 workers campaign again";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::WorkEnded { member, lease, worker: Some(key), exit } => {
                let node = &world.members[*member];
                let Some(worker) = node.workers.iter().find(|worker| worker.key == *key) else {
                    return Ok(());
                };
                let policy = worker.options.restart;
                let asked = node.candidacy(*lease).is_some_and(|candidacy| candidacy.asked);
                let again = match (policy.when(), exit) {
                    (_, Exit::NotStarted) | (Restart::Always, _) => true,
                    (Restart::OnFailure, Exit::Failed | Exit::Stopped) => true,
                    (Restart::OnFailure, Exit::Completed) => asked,
                    (Restart::Never, _) => false,
                };
                let due =
                    Due { by: node.heard_at + policy.longest_delay(), goes_on: again && !worker.draining };
                self.due.entry(node.life).or_default().insert(*key, due);
            }
            Fact::WorkerNoticed { member, worker, notice } => {
                let life = world.members[*member].life;
                match notice {
                    Notice::Campaigning { .. } | Notice::WorkerEnded { .. } => {
                        let due = self.due.get_mut(&life).and_then(|due| due.remove(&worker.key));
                        let goes_on = due.is_some_and(|due| due.goes_on);
                        let ends = matches!(notice, Notice::WorkerEnded { .. });
                        // It may have been drained since.
                        ensure(!ends || !goes_on || worker.draining, || {
                            format!("{} of node {member} ends, though it was to go on", worker.key)
                        })?;
                    }
                    Notice::Restarting { at, .. } => {
                        let due = Due { by: *at, goes_on: !worker.draining };
                        self.due.entry(life).or_default().insert(worker.key, due);
                    }
                    _ => {}
                }
            }
            Fact::Polled { member, .. } => {
                let node = &world.members[*member];
                if node.node.is_draining() {
                    // It may begin to rest when the drain is taken back.
                    for (key, due) in self.due.get_mut(&node.life).into_iter().flatten() {
                        let worker = node.workers.iter().find(|worker| worker.key == *key);
                        let rest = worker.map_or(Duration::ZERO, |it| it.options.restart.longest_delay());
                        due.by = node.heard_at + rest;
                    }
                    return Ok(());
                }
                for (key, due) in self.due.get(&node.life).into_iter().flatten() {
                    ensure(node.heard_at < due.by, || {
                        format!(
                            "{key} of node {member} should have campaigned again, or ended, by {:?}",
                            due.by
                        )
                    })?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
