//! A driver of one's own in virtual time: a day of a small fleet passes in a blink, and always in the same way.
//!
//! The core has no clock: time is what a driver says it is. Two instances want one lease here, and whoever has it dies
//! after an hour. So a program that has a loop of its own (a simulation, a game, a test) puts Tenure into it. Run it with
//! `cargo run --example own_driver_virtual`.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures::executor::block_on;
use tenure_core::{
    Command, Event, Failure, Identity, Incarnation, Instant, LeaseConfig, LeaseName, LeaseOptions, Misuse,
    Node, Notice, Output, Reply, SplitMix,
};
use tenure_memory::MemoryStore;
use tenure_store::{Metadata, Operation, Replies, Store};

const HOUR: Duration = Duration::from_secs(3600);

/// Does all that a node has to say now. Tells what the application hears, and when the node wants to be woken.
fn drive(
    node: &mut Node<SplitMix>,
    now: Instant,
    store: &MemoryStore,
) -> Result<(Vec<Notice>, Option<Instant>), Misuse> {
    node.handle(now, Event::Timeout)?;
    let mut notices = Vec::new();
    loop {
        match node.poll() {
            Output::Wait(until) => return Ok((notices, until)),
            Output::Notice(notice) => notices.push(notice),
            Output::Command(Command::Watch { id, .. }) => {
                node.handle(now, Event::Reply { id, reply: Reply::Failed(Failure::Refused) })?;
            }
            Output::Command(command) => {
                let operation = Operation::of(&command, node, &Metadata::new());
                // What is for the work needs no answer: there is none here.
                let Some((operation, id)) = operation.zip(command.id()) else { continue };
                let (kind, (sender, outcome)) = (operation.kind(), mpsc::channel());
                let replies = Replies::new(1, move |_, outcome| drop(sender.send(outcome)));
                block_on(store.execute(vec![operation], replies));
                let outcome = outcome.recv().expect("each operation has an outcome");
                node.handle(now, kind.event(id, &outcome))?;
            }
        }
    }
}

/// The hand-overs in so much time: after how long without a holder, and to whom.
fn hand_overs(time: Duration) -> Result<Vec<(Duration, String)>, Box<dyn Error>> {
    let clock = Arc::new(AtomicU64::new(0));
    let reading = clock.clone();
    let store = MemoryStore::with_clock(move || Instant::from_nanos(reading.load(Ordering::Relaxed)));
    let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&store.limits().clock)?;
    let mut started = 0;
    let mut start = |now| -> Result<_, Box<dyn Error>> {
        started += 1;
        let identity = Identity::new(format!("instance-{started}"), Incarnation::new(started))?;
        let mut node = Node::new(identity, SplitMix::new(7));
        node.acquire(now, LeaseName::new("leader")?, LeaseOptions::new(timing))?;
        Ok(node)
    };

    let (mut now, mut died) = (Instant::ZERO, Instant::ZERO);
    let mut dies = Instant::MAX;
    let mut nodes = [start(now)?, start(now)?];
    let mut found = Vec::new();
    while now < Instant::ZERO + time {
        let mut wake = dies;
        for node in &mut nodes {
            let (notices, until) = drive(node, now, &store)?;
            wake = until.map_or(wake, |until| until.min(wake));
            if notices.iter().any(|notice| matches!(notice, Notice::Acquired { .. })) {
                found.push((now.saturating_since(died), node.identity().instance().to_owned()));
                dies = now + HOUR;
                wake = wake.min(dies);
            }
        }
        now = wake;
        clock.store(now.as_nanos(), Ordering::Relaxed);
        if now >= dies {
            // The holder is gone without a word. A new instance takes its place, and waits like anyone.
            let holder = &found.last().expect("somebody held it").1;
            let place = nodes.iter().position(|node| node.identity().instance() == holder);
            nodes[place.expect("it was alive")] = start(now)?;
            (died, dies) = (now, Instant::MAX);
        }
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let found = hand_overs(24 * HOUR)?;
    for (gap, instance) in &found {
        println!("{instance} took over after {gap:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_each_death_the_next_one_holds_within_a_ttl_and_a_little() {
        let found = hand_overs(24 * HOUR).unwrap();
        assert_eq!(found.len(), 24);
        for (gap, instance) in &found[1..] {
            assert!((Duration::from_secs(10)..Duration::from_secs(16)).contains(gap), "{instance}: {gap:?}");
        }
    }

    #[test]
    fn a_day_goes_the_same_way_each_time() {
        assert_eq!(hand_overs(24 * HOUR).unwrap(), hand_overs(24 * HOUR).unwrap());
    }
}
