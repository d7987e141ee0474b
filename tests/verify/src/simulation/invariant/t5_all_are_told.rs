use std::collections::BTreeMap;

use tenure_core::{Missed, Notice, TickMiss, TimerKey};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// T5: catching up is bounded by the policy, and each number is delivered or told to have been missed.
#[derive(Default)]
pub(super) struct AllAreTold {
    /// By process and timer: the last number that was told.
    told: BTreeMap<(usize, TimerKey), u64>,
    /// By process and timer: how many ticks came since it had nothing more to say.
    at_once: BTreeMap<(usize, TimerKey), u32>,
}

impl Invariant for AllAreTold {
    const NAME: &'static str = "T5 no tick is lost silently";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            // The ticks of a job go to the job.
            Fact::TimerNoticed { member, schedule, notice } if *schedule >= world.jobs => {
                let node = &world.members[*member];
                let schedule = &world.schedules[*schedule];
                match notice {
                    Notice::Ticked { timer, due, .. } => {
                        let key = (node.life, *timer);
                        let told = self.told.insert(key, due.tick.n);
                        ensure(told.is_none_or(|told| adds_up(told, due.missed + 1, due.tick.n)), || {
                            format!("node {member} delivers {due:?}, and the last one was {told:?}")
                        })?;
                        let in_time = schedule.late_limit.is_none_or(|limit| due.late <= limit);
                        ensure(in_time, || format!("node {member} delivers {due:?}, which is too late"))?;
                        let at_once = self.at_once.entry(key).or_default();
                        *at_once += 1;
                        let most = match schedule.missed {
                            Missed::Skip => 1,
                            Missed::CatchUp { at_most } => at_most,
                        };
                        // What was due before a reading came, and what is due by it.
                        ensure(*at_once <= 2 * most || node.interrupted, || {
                            format!("node {member} delivers {at_once} ticks at once")
                        })
                    }
                    Notice::TicksMissed { timer, last, count, why } => {
                        let told = self.told.insert((node.life, *timer), *last);
                        ensure(told.is_none_or(|told| adds_up(told, *count, *last)), || {
                            format!(
                                "node {member} misses {count} up to {last}, and the last one was {told:?}"
                            )
                        })?;
                        let right = *why == TickMiss::TooLate && schedule.late_limit.is_some();
                        ensure(right, || format!("node {member} misses {last} without a reason: {why:?}"))
                    }
                    _ => Ok(()),
                }
            }
            Fact::Polled { member, .. } | Fact::Heard { member, .. } => {
                let life = world.members[*member].life;
                self.at_once.retain(|(other, _), _| *other != life);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Of the numbers before the base of a schedule, which may be those of another one, no more than a thousand are counted.
fn adds_up(told: u64, count: u64, last: u64) -> bool {
    told + count == last || (count >= 1000 && told + count < last)
}
