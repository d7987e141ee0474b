use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{Command, CommandId, Event, LeaseKey, Notice, Reply};

use super::Invariant;
use crate::simulation::world::{Fact, World};

/// R3: "A waiter tries again after its watch is confirmed, since the lease may have become free in between."
///
/// Else a hand-over that falls in between costs a TTL, and not a round trip.
#[derive(Default)]
pub(super) struct LooksAfterWatch {
    /// By process and lease: the watch that is asked for.
    watches: BTreeMap<(usize, usize), CommandId>,
    /// By process and lease: the candidacies that wait, those behind them in the process not included.
    waiting: BTreeMap<(usize, usize), BTreeSet<LeaseKey>>,
    /// By process: the leases for which it must try before it falls silent.
    due: BTreeMap<usize, BTreeSet<usize>>,
}

impl LooksAfterWatch {
    fn rests(&mut self, life: usize, name: usize, lease: LeaseKey) {
        if let Some(waiting) = self.waiting.get_mut(&(life, name)) {
            waiting.remove(&lease);
        }
    }
}

impl Invariant for LooksAfterWatch {
    const NAME: &'static str = "R3 a waiter looks after its watch is confirmed";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        match fact {
            Fact::Emitted { member, command } => {
                let node = &world.members[*member];
                match command {
                    Command::Watch { id, name } => {
                        let name = world.names.iter().position(|other| other == name);
                        self.watches.extend(name.map(|name| ((node.life, name), *id)));
                    }
                    Command::Unwatch { name } => {
                        self.watches
                            .retain(|(life, index), _| *life != node.life || world.names[*index] != *name);
                    }
                    Command::Acquire { lease, .. } => {
                        let Some(name) = node.candidacy(*lease).map(|candidacy| candidacy.name) else {
                            return Ok(());
                        };
                        self.rests(node.life, name, *lease);
                        if let Some(due) = self.due.get_mut(&node.life) {
                            due.remove(&name);
                        }
                    }
                    _ => {}
                }
            }
            Fact::Noticed { member, name, notice, .. } => {
                let life = world.members[*member].life;
                match notice {
                    Notice::Waiting { lease, .. } | Notice::Retrying { lease, .. } => {
                        self.waiting.entry((life, *name)).or_default().insert(*lease);
                    }
                    Notice::Acquired { lease, .. }
                    | Notice::GrantedTooLate { lease, .. }
                    | Notice::Failed { lease, .. } => {
                        self.rests(life, *name, *lease);
                        if let Some(due) = self.due.get_mut(&life) {
                            due.remove(name);
                        }
                    }
                    _ => {}
                }
            }
            Fact::Heard { member, event: Event::Reply { id, reply } } => {
                let life = world.members[*member].life;
                let asked = self.watches.iter().find(|((other, _), watch)| *other == life && *watch == id);
                let Some(key) = asked.map(|(key, _)| *key) else { return Ok(()) };
                self.watches.remove(&key);
                if *reply == Reply::Watching
                    && self.waiting.get(&key).is_some_and(|waiting| !waiting.is_empty())
                {
                    self.due.entry(life).or_default().insert(key.1);
                }
            }
            Fact::Polled { member, .. } => {
                if let Some(name) =
                    self.due.remove(&world.members[*member].life).and_then(|mut due| due.pop_first())
                {
                    return Err(format!(
                        "node {member} does not look at lease {name} after its watch is confirmed"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
