//! Rare situations of members, plans and drains.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{Command, DropReason, Event, Notice, Stop, StopReason};
use tenure_store::Answer;

use super::{Candidacy, Mark, Marks};
use crate::simulation::world::{Fact, Phase, What, World};
use crate::store::MemberAct;

/// Watches the members of one fleet.
#[derive(Default)]
pub(super) struct Watcher {
    /// By process: the version of its view, and the requests to leave.
    versions: BTreeMap<usize, u64>,
    leaves: BTreeMap<usize, u32>,
    /// The processes that were ever listed.
    listed: BTreeSet<usize>,
}

impl Watcher {
    pub(super) fn observe(&mut self, fact: &Fact<'_>, world: &World, marks: &mut Marks) {
        match fact {
            Fact::MemberExecuted { life, act: MemberAct::Beat(beat), before, outcome, listed } => {
                match outcome {
                    Err(_) => marks.hit(Mark::LateBeatRefused),
                    Ok(Answer::Heartbeat(presence)) if before.is_none() => {
                        if !self.listed.insert(*life) {
                            marks.hit(Mark::ListedAgain);
                        }
                        if beat.joined.is_some_and(|joined| joined == presence.joined) {
                            marks.hit(Mark::JoinedAdopted);
                        }
                    }
                    Ok(_) => {}
                }
                if !listed.is_empty() && listed.iter().all(|entry| entry.member.draining) {
                    marks.hit(Mark::AllDrain);
                }
            }
            Fact::Emitted { member, command: Command::Leave { .. } } => {
                let times = self.leaves.entry(world.members[*member].life).or_default();
                *times += 1;
                if *times == 2 {
                    marks.hit(Mark::LeavesAgain);
                }
            }
            Fact::Emitted {
                member,
                command: Command::StopWorkload { how: Stop::Hard, why: StopReason::Drain, .. },
            } if world.members[*member].node.is_draining() => marks.hit(Mark::DrainTimedOut),
            Fact::Heard { member, event: Event::Present { presence, .. } } => {
                let known = self.versions.get(&world.members[*member].life);
                if known.is_some_and(|known| presence.version < *known) {
                    marks.hit(Mark::OlderViewHeard);
                }
            }
            Fact::MemberNoticed { member, notice } => self.noticed(world, *member, notice, marks),
            Fact::Struck { member: Some(member), what: What::Crash } => {
                let node = &world.members[*member];
                if node.workers.iter().any(|worker| worker.share && worker.draining) {
                    marks.hit(Mark::DiedWhileHandingOver);
                }
            }
            _ => {}
        }
    }

    fn noticed(&mut self, world: &World, member: usize, notice: &Notice, marks: &mut Marks) {
        let node = &world.members[member];
        match notice {
            Notice::MembersChanged { version, .. } => {
                let before = self.versions.insert(node.life, *version);
                if before.is_some_and(|before| before > *version) {
                    marks.hit(Mark::ViewsBeganAnew);
                }
            }
            Notice::Draining { by_operator: true } => marks.hit(Mark::DrainedByOperator),
            Notice::Draining { by_operator: false } if node.part.asked => marks.hit(Mark::DrainedByProgram),
            Notice::Resumed => {
                let ending = node.workers.iter().any(|worker| worker.share && worker.draining);
                marks.hit(if ending { Mark::ResumedWhileEnding } else { Mark::Resumed });
            }
            Notice::WorkloadDropped { worker, why, .. } => {
                let works = |it: &&Candidacy| it.worker == Some(*worker) && it.work.is_some();
                if node.candidacies.iter().any(|it| works(&it)) {
                    match why {
                        DropReason::Rebalance => marks.hit(Mark::MovedWhileWorking),
                        DropReason::Removed => marks.hit(Mark::RemovedWhileWorking),
                        _ => {}
                    }
                }
            }
            Notice::WorkloadAssigned { .. } => {
                if let Phase::Bereft { .. } = world.phase {
                    marks.hit(Mark::TakenOverFromTheGone);
                }
                let Some((members, at)) = node.node.members() else { return };
                let since = node.heard_at.saturating_since(at);
                let eldest = members.iter().map(|it| it.age).max().unwrap_or_default();
                let own = members.iter().find(|it| World::life(&it.identity) == node.life);
                let hold_down = world.shares.as_ref().map(|shares| shares.kinds[node.part.kind].hold_down);
                if let (Some(own), Some(hold_down)) = (own, hold_down)
                    && !hold_down.is_zero()
                    && eldest - own.age > hold_down
                    && own.age < hold_down
                    && own.age + since >= hold_down
                {
                    marks.hit(Mark::Settled);
                }
                let others = members.iter().filter(|it| !it.digests.is_empty());
                let kinds: BTreeSet<_> = others.map(|it| it.digests.clone()).collect();
                if kinds.len() > 1 {
                    marks.hit(Mark::TwoKinds);
                }
            }
            _ => {}
        }
    }
}
