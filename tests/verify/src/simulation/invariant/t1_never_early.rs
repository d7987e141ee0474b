use std::collections::BTreeMap;

use tenure_core::{Command, CommandId, Event, Instant, Notice, Tick};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, World};

/// T1: no tick is delivered, and no run of one begins, before the store's wall clock shows its time.
///
/// Unless that clock was set back since the node has read it: until it reads it again it goes by what it was told.
/// Where clocks run further off than is assumed, no time can be known.
#[derive(Default)]
pub(super) struct NeverEarly {
    /// When each request was first executed, in true time.
    executed: BTreeMap<(usize, CommandId), u64>,
    /// By process and timer: its latest request, and by when that must be answered, on its clock.
    asked: BTreeMap<(usize, u64), (CommandId, Instant)>,
    /// By process and schedule: its timer, and when the reading was taken by which it goes, in true time.
    read: BTreeMap<(usize, usize), (u64, u64)>,
    /// By process and timer: readings that have just come.
    fresh: Vec<(usize, u64, u64)>,
}

impl Invariant for NeverEarly {
    const NAME: &'static str = "T1 no tick comes early";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Emitted {
                member,
                command:
                    Command::ReadTimer { id, timer, timeout, .. }
                    | Command::ChangeTimer { id, timer, timeout, .. },
            } => {
                let node = &world.members[*member];
                // One that left late, after a stop, was given up before anybody can tell.
                let by = if node.interrupted { Instant::ZERO } else { node.heard_at + *timeout };
                self.asked.insert((node.life, id.machine()), (*id, by));
                if let Some(schedule) = node.node.timer_name(*timer).and_then(|name| world.schedule(name)) {
                    let read = self.read.entry((node.life, schedule)).or_insert((id.machine(), 0));
                    if read.0 != id.machine() {
                        *read = (id.machine(), 0);
                    }
                }
                Ok(())
            }
            Fact::TimerExecuted { life, id, .. } => {
                self.executed.entry((*life, *id)).or_insert(world.now);
                Ok(())
            }
            Fact::Heard { member, event: Event::TimerRead { id, .. } } => {
                let node = &world.members[*member];
                let wanted = self.asked.get(&(node.life, id.machine()));
                // What came too late, or again, is not used.
                if wanted.is_some_and(|(latest, by)| latest == id && node.local(world.now) < *by)
                    && let Some(at) = self.executed.get(&(node.life, *id))
                {
                    self.asked.remove(&(node.life, id.machine()));
                    self.fresh.push((node.life, id.machine(), *at));
                }
                Ok(())
            }
            // What was due before it came goes by the reading before.
            Fact::Polled { member, .. } => {
                let life = world.members[*member].life;
                for (_, machine, at) in self.fresh.extract_if(.., |(other, ..)| *other == life) {
                    let own = self.read.range_mut((life, 0)..(life + 1, 0));
                    own.filter(|(_, read)| read.0 == machine).for_each(|(_, read)| read.1 = at);
                }
                Ok(())
            }
            // One that has failed is over.
            Fact::Heard { member, event: Event::Reply { id, .. } } => {
                let key = (world.members[*member].life, id.machine());
                if self.asked.get(&key).is_some_and(|(latest, _)| latest == id) {
                    self.asked.remove(&key);
                }
                Ok(())
            }
            Fact::TimerNoticed { member, schedule, notice: Notice::Ticked { due, .. } } => {
                let read = self.read.get(&(world.members[*member].life, *schedule)).map_or(0, |read| read.1);
                let excused = world.wall_set_back.is_some_and(|at| at >= read);
                check(world, *member, excused, due.tick)
            }
            Fact::Emitted { member, command: Command::StartWorkload { worker, .. } } => {
                let node = &world.members[*member].node;
                let Some((periodic, due)) = node.run(*worker) else { return Ok(()) };
                let schedule = node.periodic_name(periodic).and_then(|name| world.schedule(name));
                let record = schedule.and_then(|schedule| world.record(schedule));
                // By which reading it was due is not known any more, nor by which base, if there were several: an instance
                // goes by the old schedule until it reads the new one.
                let moved = record.is_none_or(|record| record.revision > 1)
                    || schedule.is_none_or(|schedule| world.forgotten[schedule]);
                check(world, *member, moved || world.wall_set_back.is_some(), due.tick)
            }
            _ => Ok(()),
        }
    }
}

fn check(world: &World, member: usize, excused: bool, tick: Tick) -> Result<(), String> {
    let wall = world.store.wall(world.now);
    ensure(tick.at <= wall || excused || !world.exact, || {
        format!("{tick:?} comes early on node {member}: the store's wall clock shows {wall:?}")
    })
}
