//! How often the driver wakes while nothing happens: only when something is due. Each request to the store takes two
//! polls: it is sent in the first, and the second is for its answer.

use tenure_store::core::{LeaseTiming, StoreClock};

use super::*;
use crate::Stats;

const HOUR: Duration = Duration::from_secs(3600);

/// How often the driver was polled while time passed, and what it has done meanwhile.
struct Passed {
    polls: u64,
    batches: u64,
    operations: u64,
    renewed: u64,
}

/// Lets this much time pass, for the only driver there is.
fn pass(world: &World, tenure: &Tenure, time: Duration) -> Passed {
    let (polls, before) = (world.runtime.polls(), tenure.stats());
    world.runtime.advance(time);
    let after = tenure.stats();
    let more = |of: fn(&Stats) -> u64| of(&after) - of(&before);
    Passed {
        polls: world.runtime.polls() - polls,
        batches: more(|stats| stats.batches),
        operations: more(|stats| stats.operations),
        renewed: more(|stats| stats.renewed),
    }
}

fn timing() -> LeaseTiming {
    LeaseConfig::new(TTL).resolve(&StoreClock::default()).unwrap()
}

/// A process whose store answers at once.
fn start(world: &World) -> Tenure {
    world.builder().store(world.store.handle()).start().unwrap()
}

#[test]
fn with_nothing_held_nothing_wakes() {
    let world = World::new();
    let tenure = start(&world);
    world.settle();
    assert_eq!(pass(&world, &tenure, HOUR).polls, 0, "nothing was ever held");
    drop(world.acquire(&tenure, "a"));
    let timer = tenure.timer("b", SECOND).start().unwrap();
    let worker = tenure.worker("c", |_| std::future::pending::<()>()).start().unwrap();
    world.runtime.advance(SECOND * 10);
    drop(timer);
    world.runtime.block_on(worker.stop()).unwrap();
    world.settle();
    assert_eq!(tenure.stats().open, 0);
    assert_eq!(world.runtime.sleepers(), 0, "nobody waits for a time");
    assert_eq!(pass(&world, &tenure, HOUR).polls, 0, "all was given back");
}

#[test]
fn a_lease_wakes_the_driver_once_per_interval() {
    let world = World::new();
    let tenure = start(&world);
    let lease = world.acquire(&tenure, "a");
    // Candidates of the same process wait for its word alone.
    let mut behind: Vec<_> = (0..100).map(|_| Box::pin(tenure.acquire("a").into_future())).collect();
    for candidate in &mut behind {
        assert!(poll_once(candidate.as_mut()).is_pending());
    }
    world.settle();
    let passed = pass(&world, &tenure, timing().renew_interval() * 10);
    assert_eq!([passed.renewed, passed.batches, passed.polls], [10, 10, 20]);
    drop(lease);
}

#[test]
fn a_thousand_leases_wake_the_driver_for_at_most_sixteen_slots_per_interval() {
    let world = World::new();
    let tenure = start(&world);
    let interval = timing().renew_interval();
    let held = 1000;
    let leases: Vec<_> = (0..held)
        .map(|n| {
            world.runtime.advance(interval / held);
            world.acquire(&tenure, &n.to_string())
        })
        .collect();
    // Until all have found their slots.
    world.runtime.advance(interval * 2);
    let passed = pass(&world, &tenure, interval * 10);
    assert!((9900..=10100).contains(&passed.renewed), "{}", passed.renewed);
    assert!((150..=161).contains(&passed.batches), "{} rounds", passed.batches);
    assert_eq!(passed.polls, 2 * passed.batches);
    drop(leases);
}

#[test]
fn candidates_that_wait_look_once_per_ttl() {
    let world = World::new();
    let leases: Vec<_> = {
        let holder = start(&world);
        (0..100).map(|n| world.acquire(&holder, &n.to_string())).collect()
    };
    let other = start(&world);
    let mut waiting: Vec<_> =
        (0..100).map(|n| Box::pin(other.acquire(n.to_string()).into_future())).collect();
    for candidate in &mut waiting {
        assert!(poll_once(candidate.as_mut()).is_pending());
    }
    world.settle();
    let before = world.runtime.polls();
    let looks = other.stats().operations;
    // At the latest 5 % after the end of what is left of the TTL, which the holder has renewed since.
    world.runtime.advance(TTL * 10);
    let looks = other.stats().operations - looks;
    assert!((900..=1500).contains(&looks), "{looks} looks");
    let holders = timing().renew_interval();
    let rounds = u64::try_from((TTL * 10).as_nanos() / holders.as_nanos()).unwrap() + 1;
    let polls = world.runtime.polls() - before;
    assert!(polls <= 2 * (looks + rounds * 16), "{polls} polls for {looks} looks and {rounds} intervals");
    drop(leases);
}

#[test]
fn timers_wake_the_driver_for_their_ticks_and_for_their_looks_at_the_store() {
    let world = World::new();
    let tenure = start(&world);
    let timers: Vec<_> = (0..100).map(|n| tenure.timer(n.to_string(), HOUR).start().unwrap()).collect();
    world.runtime.advance(SECOND);
    let mut woken = 0;
    for _ in 0..600 {
        let passed = pass(&world, &tenure, SECOND * 6);
        assert_eq!(passed.polls, 2 * passed.operations.div_ceil(100), "all of them look together");
        woken += passed.polls;
    }
    assert_eq!(tenure.stats().ticks, 100);
    // A look each ten minutes, one short of the tick, and one for it.
    assert!((2..=20).contains(&woken), "{woken} polls");
    drop(timers);
}

#[test]
fn a_member_wakes_the_driver_for_its_heartbeats() {
    let world = World::new();
    let tenure = start(&world);
    world.runtime.block_on(tenure.join()).unwrap();
    world.settle();
    let passed = pass(&world, &tenure, TTL * 100);
    assert_eq!([passed.operations, passed.polls], [300, 600]);
}
