use std::collections::BTreeMap;

use tenure_core::{Command, Instant, LeaseKey, Notice};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// S3: "Work starts only by a clock read below `fence_at` in the same step; after a pause the first input fences
/// before anything else; while held, a wake-up at or before the next deadline is armed."
#[derive(Default)]
pub(super) struct InTime {
    /// The fences of holds whose work may run on, by process.
    fences: BTreeMap<usize, BTreeMap<LeaseKey, Instant>>,
}

impl InTime {
    fn forget(&mut self, life: usize, lease: LeaseKey) {
        if let Some(fences) = self.fences.get_mut(&life) {
            fences.remove(&lease);
        }
    }
}

impl Invariant for InTime {
    const NAME: &'static str = "S3 work starts and ends in time";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Started { member, lease, deadlines, .. } => {
                let (now, life) = (world.members[*member].local(world.now), world.members[*member].life);
                ensure(now < deadlines.fence_at, || {
                    format!(
                        "work starts on node {member} at {now:?}, after its fence at {:?}",
                        deadlines.fence_at
                    )
                })?;
                self.fences.entry(life).or_default().insert(*lease, deadlines.fence_at);
            }
            Fact::WorkEnded { member, lease, .. } => self.forget(world.members[*member].life, *lease),
            Fact::Noticed { member, notice, .. } | Fact::ClaimNoticed { member, notice, .. } => {
                let (now, life) = (world.members[*member].heard_at, world.members[*member].life);
                match notice {
                    Notice::Renewed { lease, deadlines } => {
                        if let Some(fence) =
                            self.fences.get_mut(&life).and_then(|fences| fences.get_mut(lease))
                        {
                            // What was left when it was stopped may be old news.
                            ensure(now < *fence || world.members[*member].interrupted, || {
                                format!(
                                    "node {member} hears of a renewal of {lease} at {now:?} and has not fenced it, which was due at {fence:?}"
                                )
                            })?;
                            *fence = deadlines.fence_at;
                        }
                    }
                    Notice::Lost { lease, .. } | Notice::Released { lease, .. } | Notice::Ended { lease } => {
                        self.forget(life, *lease);
                    }
                    _ => {}
                }
            }
            Fact::Emitted { member, command: Command::StopWorkload { lease, .. } } => {
                self.forget(world.members[*member].life, *lease);
            }
            Fact::Polled { member, wait } => {
                let (now, life) = (world.members[*member].heard_at, world.members[*member].life);
                for (lease, fence) in self.fences.get(&life).into_iter().flatten() {
                    ensure(now < *fence, || {
                        format!(
                            "node {member} lets work under {lease} run at {now:?}, after its fence at {fence:?}"
                        )
                    })?;
                    ensure(wait.is_some_and(|wait| wait <= *fence), || {
                        format!(
                            "node {member} waits until {wait:?}, beyond the fence of {lease} at {fence:?}"
                        )
                    })?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
