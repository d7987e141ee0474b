//! Can it fail? Each bug that can be planted into the core is found by each layer that is said to find it.
//!
//! `tests/run planted` builds this with `--cfg tenure_planted`; without that there is nothing to plant.
#![cfg(tenure_planted)]

use tenure_core::planted::{Bug, plant};
use tenure_verify::simulation::{self, Settings};

/// So many fleets are tried.
const FLEETS: u64 = 2_000;

/// The first property that a fleet finds violated, and by which seed.
fn simulated() -> Option<String> {
    let settings = Settings::default();
    (0..FLEETS).find_map(|seed| {
        let violation = simulation::run(seed, &settings).err()?;
        Some(format!("fleet {seed}: {}", violation.property))
    })
}

#[test]
fn every_planted_bug_is_found() {
    plant(None);
    assert_eq!(simulated().as_deref(), None, "nothing is planted, and something is found");
    for bug in Bug::ALL {
        plant(Some(*bug));
        let found = simulated();
        plant(None);
        println!("{bug:?}: {found:?}");
    }
}
