//! All states of small systems, on the real machines. The counts are exact: a changed count is a changed behaviour.
//!
//! With `TENURE_DEEP=1` larger systems are searched as well.

mod systems;

use systems::{
    brisk, calm, claimants, crashing_claimant, crashing_retrying_claimant, crashing_worker, hinted,
    lossy_claimants, lossy_retrying_claimant, recovers, repeating, retrying_claimants, slowest, two, workers,
};
use tenure_core::Rate;
use tenure_verify::search::{Application, Clocks, Config, Counts, Network, Store, Witness, leases};

/// Clocks of nodes that run at three quarters of the store's speed, or at all of it, as they please.
fn slow() -> Clocks {
    Clocks { parts: 4, advance: vec![3, 4] }
}

/// States, transitions, and the ticks until somebody is valid for good.
fn counts(found: Result<Counts, Box<Witness>>) -> (usize, usize, usize) {
    match found {
        Ok(counts) => (counts.states, counts.transitions, counts.recovery),
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

fn is_deep() -> bool {
    std::env::var_os("TENURE_DEEP").is_some()
}

/// S1 to S9, and L3 within a TTL of four ticks, a tick of backoff and one of the reported TTL's grain.
#[test]
fn two_nodes_that_lose_messages_are_safe_and_recover_from_every_state() {
    let config = Config { recovery: recovers(6), ..two() };
    assert_eq!(counts(leases(config)), (78_477, 285_698, 5));
}

/// S8 is part of it: what is repeated is executed again.
#[test]
fn two_nodes_with_the_slowest_clocks_whose_messages_get_lost_and_repeated_are_safe_and_recover() {
    let config = Config { clocks: slowest(), recovery: recovers(5), ..repeating() };
    assert_eq!(counts(leases(config)), (181_918, 715_251, 4));
}

#[test]
fn two_nodes_that_crash_at_any_time_are_safe_and_recover_from_every_state() {
    let config = Config { crashes: true, recovery: recovers(5), ..brisk() };
    assert_eq!(counts(leases(config)), (56_202, 381_016, 4));
}

/// The other owners are its own predecessors.
#[test]
fn a_node_that_is_paused_and_crashes_with_the_slowest_clock_is_safe() {
    let config = Config { members: 1, clocks: slowest(), pauses: true, crashes: true, ..brisk() };
    assert_eq!(counts(leases(config)), (10_804, 45_799, 0));
}

#[test]
fn two_nodes_that_get_hints_are_safe_and_recover_from_every_state() {
    assert_eq!(counts(leases(hinted())), (33_394, 92_638, 4));
}

#[test]
fn three_nodes_without_faults_are_safe_and_recover_from_every_state() {
    assert_eq!(counts(leases(Config { recovery: recovers(6), ..calm(3) })), (12_826, 38_853, 5));
}

/// Nothing starts twice, nothing starts too late, nothing is released before it has ended, and no worker rests for ever.
#[test]
fn two_workers_are_safe_and_recover_from_every_state() {
    assert_eq!(counts(leases(workers(2))), (15_974, 41_758, 5));
}

/// What no worker has on a calm network: starts that come late, exits that nobody hears of, runs that were lost.
#[test]
fn a_worker_that_crashes_and_whose_messages_get_lost_and_repeated_is_safe_and_recovers_from_every_state() {
    let config = Config { network: repeating().network, ..crashing_worker() };
    assert_eq!(counts(leases(config)), (78_553, 501_498, 4));
}

#[test]
fn a_worker_that_crashes_with_the_slowest_clock_is_safe_and_recovers_from_every_state() {
    if is_deep() {
        let config = Config { clocks: slowest(), ..crashing_worker() };
        assert_eq!(counts(leases(config)), (223_288, 1_187_284, 6));
    }
}

/// Claims are owned as leases are, no tick is begun more often than it may be, and every later tick is claimed.
#[test]
fn two_nodes_that_claim_ticks_are_safe_and_go_on_from_every_state() {
    assert_eq!(counts(leases(claimants())), (922, 1_931, 3));
}

/// What is stopped or does not begin is tried again, and no later tick waits for that.
#[test]
fn two_nodes_that_claim_ticks_with_two_attempts_are_safe_and_go_on_from_every_state() {
    assert_eq!(counts(leases(retrying_claimants())), (15_267, 43_575, 3));
}

#[test]
fn a_node_that_claims_ticks_with_two_attempts_and_loses_messages_is_safe_and_goes_on_from_every_state() {
    assert_eq!(counts(leases(lossy_retrying_claimant())), (9_934, 25_693, 5));
}

/// It finds what it left behind in the record.
#[test]
fn a_node_that_claims_ticks_with_two_attempts_and_crashes_is_safe_and_goes_on_from_every_state() {
    assert_eq!(counts(leases(crashing_retrying_claimant())), (8_996, 32_921, 5));
}

#[test]
fn two_nodes_that_claim_ticks_and_lose_messages_are_safe() {
    assert_eq!(counts(leases(lossy_claimants())), (439_076, 1_754_949, 0));
}

#[test]
fn a_node_that_claims_ticks_and_crashes_and_loses_messages_is_safe_and_goes_on_from_every_state() {
    if is_deep() {
        assert_eq!(counts(leases(crashing_claimant())), (240_040, 1_146_824, 7));
    }
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

#[test]
fn a_node_with_two_repeated_messages_under_way_is_safe() {
    if is_deep() {
        let network = Network { in_flight: 2, repeats: true, ..two().network };
        let config = Config { members: 1, network, clocks: slowest(), ..brisk() };
        assert_eq!(counts(leases(config)), (329_382, 1_874_231, 0));
    }
}

#[test]
fn a_node_that_is_paused_and_crashes_with_two_messages_under_way_is_safe() {
    if is_deep() {
        let network = Network { in_flight: 2, ..two().network };
        let config = Config { members: 1, network, pauses: true, crashes: true, ..brisk() };
        assert_eq!(counts(leases(config)), (300_075, 1_639_183, 0));
    }
}

#[test]
fn three_workers_are_safe() {
    if is_deep() {
        let application = Application { ends: true, ..two().application };
        let config = Config { workers: true, application, ..calm(3) };
        assert_eq!(counts(leases(config)), (113_368, 353_120, 0));
    }
}
