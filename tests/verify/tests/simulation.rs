//! Fleets of real nodes: whatever happens to them, nothing unsafe; once it is over, progress.

use tenure_verify::simulation::{self, Settings};

/// How many fleets; more of them with `TENURE_FLEETS`.
const FLEETS: u64 = 1_000;

/// S1 to S9, L1 to L3, and what else the invariants say; all of the marks.
#[test]
fn fleets_keep_every_promise() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    if let Some(seed) = number("SEED") {
        match simulation::investigate(seed, &Settings::default()) {
            Some(failure) => panic!("\n{failure}"),
            None => return,
        }
    }
    let fleets = number("TENURE_FLEETS").unwrap_or(FLEETS);
    match simulation::run_many(0..fleets, &Settings::default()) {
        Ok(report) => {
            println!("{report}");
            let missing: Vec<_> = report.marks.missing().collect();
            assert!(missing.is_empty(), "never seen in {fleets} fleets: {missing:?}");
        }
        Err(failure) => panic!("\n{failure}"),
    }
}
