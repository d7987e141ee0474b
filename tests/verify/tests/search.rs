//! All states of small systems, on the real machines. The counts are exact: a changed count is a changed behaviour.
//!
//! With `TENURE_DEEP=1` larger systems are searched as well.

use tenure_core::Rate;
use tenure_verify::search::{Application, Clocks, Config, Counts, Network, Recovery, Store, Witness, leases};

/// Two nodes with even clocks on a network that delivers at any time or never, one message after the other.
fn two() -> Config {
    Config {
        members: 2,
        timing: Config::timing(Config::DRIFT),
        clocks: Clocks::even(),
        network: Network { in_flight: 1, delay: None, repeats: false, hints: false },
        pauses: false,
        crashes: false,
        workers: false,
        application: Application { ends: false, drains: false, gives_up: false },
        store: Store::Sound,
        recovery: Recovery { within: None, losing: false, without_one: false },
        limit: 3_000_000,
    }
}

/// Nodes on a network that delivers at once, in any order.
fn calm(members: usize) -> Config {
    let network = Network { in_flight: 8, delay: Some(0), repeats: false, hints: false };
    Config { members, network, ..two() }
}

/// Clocks of nodes that run at three quarters of the store's speed, or at all of it, as they please.
fn slow() -> Clocks {
    Clocks { parts: 4, advance: vec![3, 4] }
}

fn counts(found: Result<Counts, Box<Witness>>) -> (usize, usize) {
    match found {
        Ok(counts) => (counts.states, counts.transitions),
        Err(witness) => panic!("{witness}"),
    }
}

/// The rule that is broken, and by how many steps.
fn broken(found: Result<Counts, Box<Witness>>) -> (&'static str, usize) {
    match found {
        Ok(counts) => panic!("nothing was found: {counts:?}"),
        Err(witness) => {
            println!("{witness}\n");
            (witness.violation.rule, witness.steps.len())
        }
    }
}

#[test]
fn two_nodes_that_lose_messages_are_safe_and_recover_from_every_state() {
    let recovery = Recovery { within: Some(6), losing: false, without_one: false };
    let found = leases(Config { recovery, ..two() });
    assert_eq!(found.as_ref().map(|counts| counts.recovery), Ok(5), "ticks until somebody is valid for good");
    assert_eq!(counts(found), (108_094, 383_920));
}

#[test]
fn three_nodes_whose_work_ends_at_any_time_are_safe() {
    let application = Application { ends: true, drains: false, gives_up: false };
    assert_eq!(counts(leases(Config { application, ..calm(3) })), (27_548, 83_418));
}

#[test]
fn without_a_margin_for_drift_slow_clocks_break_it() {
    let timing = Config::timing(Rate::ZERO);
    assert_eq!(broken(leases(Config { timing, clocks: slow(), ..two() })), ("S4", 6));
}

#[test]
fn a_store_that_raises_the_token_for_a_repeated_acquire_is_found() {
    let network = Network { in_flight: 2, repeats: true, ..two().network };
    assert_eq!(broken(leases(Config { store: Store::RaisesOnRepeat, network, ..two() })), ("S2'", 3));
}

#[test]
fn a_store_that_renews_without_a_look_is_found() {
    assert_eq!(broken(leases(Config { store: Store::RenewsBlindly, ..two() })), ("S2'", 10));
}

#[test]
fn a_store_that_releases_without_a_look_at_the_owner_is_found() {
    let application = Application { ends: true, ..two().application };
    assert_eq!(broken(leases(Config { store: Store::ReleasesBlindly, application, ..two() })), ("S2'", 10));
}

#[test]
fn a_store_that_lets_a_lease_expire_too_early_is_found() {
    assert_eq!(broken(leases(Config { store: Store::ExpiresEarly, clocks: slow(), ..two() })), ("S4", 5));
}
