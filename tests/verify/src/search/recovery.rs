//! L3: from every state in which trouble ends, somebody holds the lease before long, and keeps it.

use super::config::Recovery;
use super::digest::{ByDigest, digest};
use super::explore::Violation;
use super::step::Step;
use super::world::{Laws, Member, What, Work, World, violation};

/// How long each calm state takes until somebody is valid for good, in ticks of the store's clock.
#[derive(Debug, Default)]
pub(super) struct Recoveries {
    known: ByDigest<usize>,
    pub(super) longest: usize,
}

impl Recoveries {
    /// Lets all trouble end in this state, in each way that is looked at.
    pub(super) fn check(&mut self, laws: &Laws, world: &World) -> Result<(), Violation> {
        let Recovery { within: Some(within), losing, without_one } = laws.config.recovery else {
            return Ok(());
        };
        let dead = (0..world.members.len()).filter(|_| without_one).map(Some);
        for dead in [None].into_iter().chain(dead) {
            for lost in [false, true].into_iter().take(1 + usize::from(losing)) {
                let takes = self.takes(laws, world, dead, lost)?;
                self.longest = self.longest.max(takes);
                if takes > within {
                    let without = dead.map_or(String::new(), |dead| format!(", member {dead} being dead"));
                    let what = format!("it takes {takes} ticks until somebody is valid for good{without}");
                    return Err(violation("L3", what));
                }
            }
        }
        Ok(())
    }

    fn takes(
        &mut self,
        laws: &Laws,
        world: &World,
        dead: Option<usize>,
        lost: bool,
    ) -> Result<usize, Violation> {
        laws.tape.clear();
        let mut calm = Calm { step: Step { laws, world: world.clone(), story: None, calm: true }, dead };
        if lost {
            calm.step.world.network.clear();
        }
        let mut way: Vec<(u64, bool)> = Vec::new();
        let mut takes = loop {
            calm.rest()?;
            let members = calm.step.world.members.iter().enumerate();
            let valid = match laws.config.job {
                Some(_) => laws.latest_tick_is_claimed(&calm.step.world),
                None => {
                    members.into_iter().any(|(index, member)| Some(index) != dead && member.valid().is_some())
                }
            };
            let mut form = calm.step.world.clone();
            laws.canonical(&mut form);
            let place = digest(&(form, dead));
            if let Some(known) = self.known.get(&place) {
                break *known;
            }
            if let Some(begin) = way.iter().position(|(known, _)| *known == place) {
                // From here on it goes round and round.
                if way[begin..].iter().any(|(_, valid)| !valid) {
                    return Err(violation("L3", "nobody is valid for good, ever".into()));
                }
                break 0;
            }
            way.push((place, valid));
            calm.tick()?;
        };
        for (place, valid) in way.into_iter().rev() {
            takes = if valid && takes == 0 { 0 } else { takes + 1 };
            self.known.insert(place, takes);
        }
        Ok(takes)
    }
}

/// A world without trouble. Nothing is left to choice.
struct Calm<'a> {
    step: Step<'a>,
    dead: Option<usize>,
}

impl Calm<'_> {
    /// Does all that can be done before time goes on.
    fn rest(&mut self) -> Result<(), Violation> {
        // Each message may cause another one, but no two nodes keep each other awake.
        for _ in 0..1_000 {
            let dead = self.dead;
            let world = &self.step.world;
            let unheard = |place: &usize| {
                let message = &world.network[*place];
                Some(message.member) == dead && !matches!(message.what, What::Request(_) | What::Claim(..))
            };
            let others = || (0..world.members.len()).filter(|index| Some(*index) != dead);
            let stopped = |index: &usize| matches!(world.members[*index].work, Work::Asked | Work::Stopped);
            if let Some(place) = (0..world.network.len()).find(unheard) {
                self.step.world.network.remove(place);
            } else if let Some(due) = others().find(|index| Member::is_due(&world.members[*index])) {
                self.step.handle(due, tenure_core::Event::Timeout)?;
            } else if let Some(index) = others().find(stopped) {
                self.step.end_work(index)?;
            } else if let Some((index, run)) =
                others().find_map(|index| Some((index, world.run_to_end(index)?)))
            {
                self.step.end_run(index, run)?;
            } else if world.network.is_empty() {
                return Ok(());
            } else {
                self.step.arrive(0, false)?;
            }
        }
        Err(violation("L3", "it never comes to rest".into()))
    }

    fn tick(&mut self) -> Result<(), Violation> {
        self.step.pass();
        let parts = self.step.laws.config.clocks.parts;
        for index in 0..self.step.world.members.len() {
            if Some(index) != self.dead {
                self.step.pass_at(index, parts)?;
            }
        }
        Ok(())
    }
}
