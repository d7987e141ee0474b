//! Fleets of real nodes: whatever happens to them, nothing unsafe; once it is over, progress.

use std::time::{Duration, SystemTime};

use tenure_verify::simulation::{self, Failure, Fault, Faults, Plant, Settings, Tape, Violation};

/// How many fleets; more of them with `TENURE_FLEETS`.
const FLEETS: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// With the command that repeats it.
fn told(failure: &Failure) -> String {
    let repeat = "cargo test -p tenure-verify --test simulation fleets_keep_every_promise -- --nocapture";
    format!("\n{failure}repeat: SEED={} {repeat}\n", failure.seed)
}

/// S1 to S9, L1 to L4, T1 to T5, W1 to W6, R1 to R3, M1 to M4, A2 to A6, and what else the invariants say; and all rare situations occur.
#[test]
fn fleets_keep_every_promise() {
    let settings = Settings::default();
    if let Some(seed) = number("SEED") {
        if let Some(failure) = simulation::investigate(seed, &settings) {
            panic!("{}", told(&failure));
        }
        return;
    }
    let fleets = number("TENURE_FLEETS").unwrap_or(FLEETS);
    let begin = SystemTime::now();
    match simulation::run_many(0..fleets, &settings) {
        Ok(report) => {
            println!("{report}in {:?}", begin.elapsed().unwrap_or_default());
            let missing: Vec<_> = report.marks.missing().collect();
            // Fewer fleets come into fewer situations.
            assert!(fleets < FLEETS || missing.is_empty(), "never seen in {fleets} fleets: {missing:?}");
            assert!(report.events < MOST_EVENTS_PER_HOUR * report.simulated.as_secs() / 3_600, "{report}");
        }
        Err(failure) => panic!("{}", told(&failure)),
    }
}

/// Of a fleet of middling size, with a TTL of a second, in trouble.
const MOST_EVENTS_PER_HOUR: u64 = 600_000;

/// L2: with a healthy store and clocks within their bounds nobody loses a lease, ever, and nothing runs hot.
#[test]
fn an_hour_of_a_calm_fleet_has_no_loss_and_few_events() {
    let mut settings = Settings::default();
    settings.ttl = Some(Duration::from_secs(1));
    // What is counted below are the leases.
    settings.faults = Some(Faults::BENIGN.minus([Fault::Jobs].into_iter().collect()));
    settings.trouble = 3_600;
    let report = simulation::run_many(0..20, &settings).unwrap_or_else(|failure| panic!("\n{failure}"));
    let hours = report.simulated.as_secs() / 3_600;
    // For each lease: four renewals a second, five waiters that look once or twice, and a write, each with a wake-up,
    // a request and an answer.
    assert!(report.events < hours * 3 * 60 * 3_600, "{report}");
    assert!(report.events > hours * 3_600, "{report}");
    // At first, and after the death of a holder.
    assert!(report.grants <= report.fleets * 3 * 2, "{report}");
}

#[test]
fn the_same_seed_runs_the_same_course() {
    let settings = Settings::default();
    for seed in 0..20 {
        assert_eq!(simulation::run(seed, &settings), simulation::run(seed, &settings), "seed {seed}");
    }
}

/// What is planted, and the properties of which one must be violated by it.
fn expected(plant: Plant) -> &'static [&'static str] {
    match plant {
        Plant::NoMargin => &["S2", "S4"],
        Plant::RepeatedJitter => &["jitter is fresh"],
        Plant::AcquireRaisesToken => &["S8"],
        Plant::RenewIgnoresToken => &["S6"],
        Plant::ReleaseIgnoresOwner => &["S1", "S9"],
        Plant::TokensAgain => &["S6"],
        Plant::RenewsAnyClaim => &["claims are their owner's"],
        Plant::FinishesAnyClaim => &["S2 for claims", "claims are their owner's"],
        Plant::ClaimsBelowLast => &["T4", "T2"],
        Plant::BeatClearsMark => &["A5"],
        Plant::NoTombstone => &["M3"],
        Plant::VersionStays => &["M2"],
        Plant::JoinedAnew => &["M4"],
        other => panic!("nobody knows what {other:?} leads to"),
    }
}

#[test]
fn each_planted_bug_is_found() {
    for plant in Plant::ALL {
        let mut settings = Settings::default();
        settings.plant = Some(plant);
        let found = (0..500).find_map(|seed| Some((seed, simulation::run(seed, &settings).err()?)));
        let Some((seed, Violation { property, what, .. })) = found else { panic!("{plant:?} is not found") };
        println!("{plant:?}: seed {seed}: {property}: {what}");
        let fits = expected(plant).iter().any(|expected| property.starts_with(expected));
        assert!(fits, "{plant:?} shows as {property}: {what}");
    }
}

/// A failing course becomes a short one that still fails in the same way.
#[test]
fn a_failing_course_is_shrunk_and_told() {
    let mut settings = Settings::default();
    settings.plant = Some(Plant::AcquireRaisesToken);
    let seed = (0..100).find(|seed| simulation::run(*seed, &settings).is_err()).expect("it is found");
    let found = simulation::run(seed, &settings).unwrap_err();
    let failure = simulation::investigate(seed, &settings).expect("it fails again");
    assert_eq!(failure.violation.property, found.property);
    let left: usize = failure.choices.iter().map(Vec::len).sum();
    assert!(left * 20 < failure.drawn, "{left} of {}", failure.drawn);
    let again = simulation::replay(Tape::from_choices(failure.choices.clone()), &settings).unwrap_err();
    assert_eq!(again, failure.violation);
    assert!(told(&failure).contains(&format!("repeat: SEED={seed} cargo test")));
    assert!(failure.trace.iter().any(|line| line.contains("acquire")));
}
