//! Nodes that want one lease.

use tenure_core::{LeaseName, TimerName};

use super::choice::Tape;
use super::config::Config;
use super::explore::{self, Counts, Figures, Model, Violation, Witness, explore};
use super::recovery::Recoveries;
use super::step::Step;
use super::world::{Laws, World, check};

/// Searches all states of this system.
///
/// # Errors
/// The shortest way to a broken rule.
///
/// # Panics
/// If there are more states than the limit of the configuration.
pub fn leases(config: Config) -> Result<Counts, Box<Witness>> {
    let limit = config.limit;
    explore(&mut Leases::new(config), limit)
}

struct Leases {
    laws: Laws,
    recoveries: Recoveries,
}

impl Leases {
    fn new(config: Config) -> Self {
        let name = LeaseName::new("l").expect("a fine name");
        let timer = TimerName::new("t").expect("a fine name");
        Self { laws: Laws { config, name, timer, tape: Tape::default() }, recoveries: Recoveries::default() }
    }
}

impl Model for Leases {
    type State = World;

    fn initial(&self) -> Vec<World> {
        vec![self.laws.start()]
    }

    fn steps(&self, state: &World, tell: bool, each: &mut dyn FnMut(explore::Step<World>)) {
        for action in self.laws.actions(state) {
            self.laws.tape.clear();
            loop {
                let story = tell.then(String::new);
                let mut step = Step { laws: &self.laws, world: state.clone(), story, calm: false };
                let outcome = step.act(action);
                let Step { world, story, .. } = step;
                each(explore::Step { story: story.unwrap_or_default(), outcome: outcome.map(|()| world) });
                if !self.laws.tape.advance() {
                    break;
                }
            }
        }
    }

    fn canonical(&self, state: &mut World) {
        self.laws.canonical(state);
    }

    fn check(&mut self, state: &World) -> Result<(), Violation> {
        check(&self.laws, state)?;
        self.recoveries.check(&self.laws, state)
    }

    fn conclude(&self) -> Figures {
        Figures { recovery: self.recoveries.longest }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tenure_core::{Command, Jitter, Reply, SplitMix};

    use super::Leases;
    use crate::search::digest::digest;
    use crate::search::explore::Model;
    use crate::search::world::{Message, What, World};
    use crate::search::{Application, Clocks, Config, Network, Recovery, Store};

    /// What the search takes for granted: a world and its canonical form have the same future. A step further, both
    /// lead to the same canonical forms.
    #[test]
    fn what_the_canonical_form_leaves_out_changes_nothing() {
        // Losing is left to the walk: what the canonical form drops makes room for others.
        let network = Network { in_flight: usize::MAX, delay: None, repeats: true, hints: false };
        let config = Config {
            members: 2,
            timing: Config::timing(Config::DRIFT),
            clocks: Clocks { parts: 4, advance: vec![3, 4, 5] },
            network,
            pauses: true,
            crashes: true,
            workers: false,
            job: None,
            application: Application { ends: true, drains: true, gives_up: true, hasty: true },
            store: Store::Sound,
            recovery: Recovery { within: None, losing: false, without_one: false },
            limit: 0,
        };
        let workers = Config { workers: true, ..config.clone() };
        let mut random = SplitMix::new(1);
        let mut steps = 0;
        for walk in 0..400 {
            let model = Leases::new(if walk % 2 == 0 { config.clone() } else { workers.clone() });
            let mut world = model.initial().remove(0);
            for step in 0..60 {
                let mut form = world.clone();
                model.canonical(&mut form);
                let (all, ahead) = futures(&model, &world);
                assert_eq!(futures(&model, &form).1, ahead, "walk {walk}, step {step}");
                world = all[random.below(all.len() as u64) as usize].clone();
                // What is forgotten with an acquisition that is lost is told in the module's documentation.
                let acquisition = |message: &Message| match message.what {
                    What::Request(Command::Acquire { .. })
                    | What::Answer(_, Reply::Granted { .. } | Reply::Held { .. }) => true,
                    What::Request(_) | What::Claim(..) | What::Answer(..) | What::Hint(_) => false,
                };
                while world.network.len() > 3 {
                    let Some(lost) = world.network.iter().position(|message| !acquisition(message)) else {
                        break;
                    };
                    world.network.remove(lost);
                }
                if world.network.len() > 3 {
                    break;
                }
                steps += 1;
            }
        }
        assert!(steps > 1_000, "the walks are too short: {steps}");
    }

    fn futures(model: &Leases, world: &World) -> (Vec<World>, BTreeSet<u64>) {
        let mut all = Vec::new();
        model.steps(world, false, &mut |step| all.push(step.outcome.expect("no rule is broken")));
        // What changes nothing may always happen: a message arrives for which nobody waits.
        let forms = all.iter().chain([world]).map(|next| {
            let mut form = next.clone();
            model.canonical(&mut form);
            digest(&form)
        });
        let forms = forms.collect();
        (all, forms)
    }
}
