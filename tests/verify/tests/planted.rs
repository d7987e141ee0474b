//! Can it fail? Each bug that can be planted into the core is found, by each layer that is said to find it.
//!
//! `tests/run planted` builds this with `--cfg tenure_planted`; without that there is nothing to plant.
#![cfg(tenure_planted)]

mod systems;

use std::panic::{AssertUnwindSafe, catch_unwind};

use systems::{brisk, calm, hinted, recovers, repeating, workers};
use tenure_core::planted::{Bug, plant};
use tenure_verify::search::{Config, leases};
use tenure_verify::simulation::{self, Settings};

fn probe() -> Vec<(&'static str, Config)> {
    vec![
        ("workers", workers(2)),
        ("calm3", Config { recovery: recovers(6), ..calm(3) }),
        ("hinted", hinted()),
        ("repeating", repeating()),
        ("crashes", Config { crashes: true, recovery: recovers(5), ..brisk() }),
    ]
}

#[test]
fn probing() {
    let only = std::env::var("BUG").ok();
    for bug in &Bug::ALL[7..] {
        if only.as_ref().is_some_and(|only| *only != format!("{bug:?}")) {
            continue;
        }
        plant(Some(*bug));
        for (name, config) in probe() {
            let begin = std::time::SystemTime::now();
            let found = catch_unwind(AssertUnwindSafe(|| leases(config)));
            let text = match found {
                Ok(Ok(counts)) => format!("nothing {}", counts.states),
                Ok(Err(witness)) => format!(
                    "{} by {} steps: {}",
                    witness.violation.rule,
                    witness.steps.len(),
                    witness.violation.what
                ),
                Err(_) => "panic".into(),
            };
            println!("{bug:?} {name}: {text} in {:.1?}", begin.elapsed().unwrap());
        }
        let settings = Settings::default();
        let found = (0..100).find_map(|seed| Some((seed, simulation::run(seed, &settings).err()?.property)));
        println!("{bug:?} simulation {found:?}");
        plant(None);
    }
}
