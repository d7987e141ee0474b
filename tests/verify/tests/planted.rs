//! Can it fail? Each bug that can be planted into the core is found, by each layer that is said to find it.
//!
//! `tests/run planted` builds this with `--cfg tenure_planted`; without that there is nothing to plant. It is a single
//! test, since a bug is planted for the whole process.
#![cfg(tenure_planted)]

mod systems;

use systems::{brisk, calm, claimants, hinted, recovers, repeating, slowest, workers};
use tenure_core::planted::{Bug, plant};
use tenure_verify::search::{Config, leases};
use tenure_verify::simulation::{self, Settings};

/// So many fleets have to do, of those that find nothing where nothing is planted.
const FLEETS: u64 = 100;
/// One of so many has to find what is planted. Most bugs are found by the first few; some show in rare orders only.
const FLEETS_TO_FIND: u64 = 1_000;

/// A system to be searched, and the rule that is to be broken there.
type Search = (fn() -> Config, &'static str);

/// What finds a bug: a search, and fleets by this property.
struct Found {
    by_search: Option<Search>,
    by_fleets: &'static str,
}

const fn found(by_search: Option<Search>, by_fleets: &'static str) -> Found {
    Found { by_search, by_fleets }
}

/// What no search is said to find shows only where none looks: in delays of less than a tick, in a store that evicts or
/// forgets, between two outputs of a node, and in how long things take.
fn layers(bug: Bug) -> Found {
    match bug {
        Bug::RequestIdsWrap => found(Some((repeating, "misuse")), "an honest driver"),
        Bug::ValidityFromReply => found(Some((repeating, "S2'")), "S2"),
        Bug::ReplyBeforeDeadline => found(None, "S3"),
        Bug::NoMargin => found(Some((slow_predecessors, "S2'")), "S2"),
        Bug::NoBackoff => found(None, "nothing runs hot"),
        Bug::JitterDrawnOnce => found(None, "jitter is fresh"),
        Bug::NotYoursIgnored => found(None, "R1"),
        Bug::LateGrantDropped => found(None, "R2"),
        Bug::FloorNotSent => found(None, "S6"),
        Bug::FloorNotChecked => found(None, "S6"),
        Bug::ReleasedBeforeEnd => found(Some((two_workers, "S9")), "W3"),
        Bug::NoLookAfterWatch => found(None, "R3"),
        Bug::RenewalRevives => found(Some((repeating, "S7")), "S7"),
        Bug::StartedThoughInvalid => found(None, "W2"),
        Bug::StartedTwice => found(Some((two_workers, "C1")), "W1"),
        Bug::NoRest => found(Some((two_workers, "C1")), "W5"),
        Bug::CampaignsBeforeExit => found(Some((two_workers, "C1")), "W3"),
        Bug::RestsForever => found(Some((two_workers, "L3")), "W5"),
        Bug::TickTwice => found(None, "T2"),
        Bug::TickEarly => found(None, "T1"),
        Bug::TickFromNow => found(None, "T3"),
        Bug::PhasePerInstance => found(None, "T3"),
        Bug::ClaimNotWaitedFor => found(None, "T2"),
        Bug::FinishedAsNotStarted => found(Some((claimants, "T2")), "T2"),
        Bug::NotRebased => found(None, "L4"),
        Bug::NoHoldDown => found(None, "A6"),
        Bug::DigestIgnored => found(None, "A2"),
        Bug::AssignedWhileDraining => found(None, "A5"),
        Bug::BeatsAfterLeave => found(None, "M3"),
        Bug::LeavesFirst => found(None, "M3"),
    }
}

fn slow_predecessors() -> Config {
    Config { members: 1, clocks: slowest(), pauses: true, crashes: true, ..brisk() }
}

fn two_workers() -> Config {
    workers(2)
}

#[test]
fn every_planted_bug_is_found_by_each_layer_that_is_said_to_find_it() {
    let settings = Settings::default();
    plant(None);
    for config in [
        two_workers(),
        claimants(),
        hinted(),
        Config { recovery: recovers(6), ..calm(3) },
        slow_predecessors(),
    ] {
        assert!(leases(config).is_ok(), "nothing is planted, and something is found");
    }
    assert!(simulation::run_many(0..FLEETS, &settings).is_ok(), "nothing is planted, and something is found");
    for bug in Bug::ALL {
        let Found { by_search, by_fleets } = layers(*bug);
        plant(Some(*bug));
        let searched = by_search.map(|(system, rule)| (leases(system()), rule));
        // Which of several rules a fleet breaks first is its affair: one of them has to break this one.
        let mut violations =
            (0..FLEETS_TO_FIND).filter_map(|seed| Some((seed, simulation::run(seed, &settings).err()?)));
        let first = violations.next();
        let shows = |(_, violation): &(u64, simulation::Violation)| violation.property.starts_with(by_fleets);
        let found = first.clone().filter(shows).or_else(|| violations.find(shows));
        plant(None);
        if let Some((outcome, rule)) = searched {
            let Err(witness) = outcome else { panic!("{bug:?}: the search finds nothing") };
            assert_eq!(witness.violation.rule, rule, "{bug:?}: {witness}");
            println!("{bug:?}: {rule} by {} steps", witness.steps.len());
        }
        let Some((seed, violation)) = found else {
            panic!("{bug:?}: no fleet finds that {by_fleets} is violated, at first: {first:?}")
        };
        println!("{bug:?}: fleet {seed}: {violation}");
    }
}
