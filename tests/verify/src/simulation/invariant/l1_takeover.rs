use std::time::Duration;

use tenure_core::Notice;

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, MS, Phase, World};

/// L1: "When a holder dies, a healthy candidate holds the lease a TTL (by the slower of the store's clock and its own),
/// a retry and two round trips after the last renewal at the latest."
///
/// A waiter sleeps by its own clock for what the store told it. So the TTL counts by the slower of the two clocks, which
/// is taken here as a part of the retry.
#[derive(Default)]
pub(super) struct Takeover {
    /// By lease: until when it must have a new holder, in true time.
    due: Vec<(usize, u64)>,
    begun: Option<u64>,
}

/// The longest round trip in a healthy fleet.
const ROUND_TRIP: u64 = 25 * MS;

impl Takeover {
    fn due(world: &World, name: usize) -> u64 {
        let ttl = world.timing.ttl();
        // What a waiter adds: a grain of 1 ms, and a spread of 100 ms or an eighth of the TTL.
        let retry = Duration::from_millis(1) + Duration::from_millis(100).min(ttl / 8) + ttl * 2 / 100;
        let expires = world.store.expires(&world.names[name]).unwrap_or(world.now).max(world.now);
        expires + retry.as_nanos() as u64 * 102 / 100 + 2 * ROUND_TRIP
    }
}

impl Invariant for Takeover {
    const NAME: &'static str = "L1 takeover in time";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let Phase::Bereft { victim, .. } = world.phase else { return Ok(()) };
        match fact {
            Fact::Noticed { member, name, notice: Notice::Acquired { .. }, .. } if *member != victim => {
                self.due.retain(|(due, _)| due != name);
            }
            // What it sent before it was cut off.
            Fact::Executed { life, name, .. } if world.lives[*life].0 == victim => {
                for (due, at) in self.due.iter_mut().filter(|(due, _)| due == name) {
                    *at = Self::due(world, *due);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let Phase::Bereft { since, victim } = world.phase else { return Ok(()) };
        if self.begun != Some(since) {
            self.begun = Some(since);
            let held = world.members[victim].candidacies.iter();
            let held = held.filter(|candidacy| candidacy.held.is_some() && candidacy.name < world.leases);
            self.due = held.map(|candidacy| (candidacy.name, Self::due(world, candidacy.name))).collect();
        }
        for (name, due) in &self.due {
            ensure(world.now <= *due, || {
                format!(
                    "lease {name} has no new holder at {}, {} ms after the end of node {victim}",
                    world.now,
                    (world.now - since) / MS
                )
            })?;
        }
        Ok(())
    }
}
