//! The small systems that are searched, as they are and with bugs planted.

#![allow(dead_code, reason = "not every test searches all of them")]

use tenure_core::Rate;
use tenure_verify::search::{Application, Clocks, Config, Job, Network, Recovery, Store};

/// Two nodes with even clocks, on a network that delivers at any time or never, one message after the other.
pub(crate) fn two() -> Config {
    Config {
        members: 2,
        timing: Config::timing(Config::DRIFT),
        clocks: Clocks::even(),
        network: Network { in_flight: 1, delay: None, repeats: false, hints: false },
        pauses: false,
        crashes: false,
        workers: false,
        job: None,
        application: Application { ends: false, drains: false, gives_up: false, hasty: false },
        store: Store::Sound,
        recovery: Recovery { within: None, losing: false, without_one: false },
        limit: 5_000_000,
    }
}

/// The same with the brisk timing.
pub(crate) fn brisk() -> Config {
    Config { timing: Config::brisk(Rate::from_ppm(200_000)), ..two() }
}

/// Nodes on a network that delivers at once, in any order. Their work ends and is drained at any time.
pub(crate) fn calm(members: usize) -> Config {
    let network = Network { in_flight: 8, delay: Some(0), repeats: false, hints: false };
    let application = Application { ends: true, drains: true, ..two().application };
    Config { members, network, application, ..two() }
}

/// The same with workers, which must recover from every state.
pub(crate) fn workers(members: usize) -> Config {
    Config { workers: true, recovery: recovers(6), ..calm(members) }
}

/// Two nodes that claim the ticks of a job, at most once each, on a network that delivers at once. Work may fail to start.
/// A later tick must be claimed from every state.
pub(crate) fn claimants() -> Config {
    let network = Network { in_flight: 8, delay: Some(0), repeats: false, hints: false };
    let job = Some(Job { period: 3, attempts: 1, fails_to_start: true, unfinished: None });
    Config { job, network, recovery: recovers(4), ..lossy_claimants() }
}

/// The same with two attempts at each tick. At most one tick at a time waits
/// for its second one.
pub(crate) fn retrying_claimants() -> Config {
    let job = Some(Job { attempts: 2, unfinished: Some(1), ..claimants().job.expect("a job") });
    Config { job, ..claimants() }
}

/// One node with two attempts, whose messages get lost, or take any time. What it takes up again
/// is its own.
pub(crate) fn lossy_retrying_claimant() -> Config {
    let job = Some(Job { fails_to_start: false, ..retrying_claimants().job.expect("a job") });
    let recovery = Recovery { without_one: false, ..recovers(6) };
    Config { members: 1, job, recovery, network: two().network, ..retrying_claimants() }
}

/// One node with two attempts that crashes at any time. Of two messages at once one is lost; they arrive at once.
pub(crate) fn crashing_retrying_claimant() -> Config {
    let network = Network { delay: Some(0), ..two().network };
    Config { crashes: true, network, ..lossy_retrying_claimant() }
}

/// Like [`claimants`], over a network that loses messages, and on which they take any time; work always starts.
pub(crate) fn lossy_claimants() -> Config {
    let application = Application { ends: true, ..two().application };
    let job = Some(Job { period: 3, attempts: 1, fails_to_start: false, unfinished: None });
    Config { timing: Config::exact(), job, application, ..two() }
}

/// One node that claims ticks and crashes at any time, over a network that loses messages.
pub(crate) fn crashing_claimant() -> Config {
    let job = Some(Job { period: 3, attempts: 1, fails_to_start: false, unfinished: None });
    let recovery = Recovery { without_one: false, ..recovers(8) };
    Config { members: 1, timing: Config::exact(), job, crashes: true, recovery, ..two() }
}

/// A worker whose process crashes at any time, over a network that loses messages. The other owners are its own
/// predecessors; it must recover from every state.
pub(crate) fn crashing_worker() -> Config {
    let application = Application { ends: true, drains: true, ..two().application };
    let recovery = Recovery { without_one: false, ..recovers(6) };
    Config { members: 1, workers: true, crashes: true, application, recovery, ..brisk() }
}

/// Two nodes whose messages may come again.
pub(crate) fn repeating() -> Config {
    let network = Network { repeats: true, ..two().network };
    Config { network, ..brisk() }
}

/// Two nodes that get hints, and must recover from every state.
pub(crate) fn hinted() -> Config {
    let network = Network { in_flight: 3, delay: Some(0), repeats: false, hints: true };
    let application = Application { ends: true, ..two().application };
    Config { network, application, recovery: recovers(5), ..brisk() }
}

/// Clocks of nodes that run at two thirds of the store's speed: they are 20 % slow, and the store's is 20 % fast.
pub(crate) fn slowest() -> Clocks {
    Clocks { parts: 3, advance: vec![2] }
}

/// From each state, whatever of the messages under way still arrives, and whichever node is dead.
pub(crate) fn recovers(within: usize) -> Recovery {
    Recovery { within: Some(within), losing: true, without_one: true }
}
