//! Nodes that want one lease.

use tenure_core::LeaseName;

use super::canonical::canonical;
use super::choice::Tape;
use super::config::Config;
use super::explore::{self, Counts, Figures, Model, Violation, Witness, explore};
use super::recovery::Recoveries;
use super::world::{Laws, Step, World, check};

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
        Self { laws: Laws { config, name, tape: Tape::default() }, recoveries: Recoveries::default() }
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
                let mut step = Step { laws: &self.laws, world: state.clone(), story };
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
        canonical(state, &self.laws.config.timing);
    }

    fn check(&mut self, state: &World) -> Result<(), Violation> {
        check(&self.laws, state)?;
        self.recoveries.check(&self.laws, state)
    }

    fn conclude(&self) -> Figures {
        Figures { recovery: self.recoveries.longest }
    }
}
