//! A driver of one's own: a loop around the core on plain threads, in forty lines, without async and without a runtime.
//!
//! `drive` below is all of it. With it this program holds a lease for longer than its TTL, and gives it back; then it does
//! so again with a store that loses two requests of five. Run it with `cargo run --example own_driver`.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use tenure_core::{
    Command, Event, Failure, Identity, Incarnation, Instant, Jitter, LeaseConfig, LeaseName, LeaseOptions,
    Misuse, Node, Notice, Output, Reply, SplitMix,
};
use tenure_memory::MemoryStore;
use tenure_store::{Metadata, Operation, Replies, Store, clock};

// The driver begins here.
fn drive<J: Jitter>(
    mut node: Node<J>,
    execute: impl Fn(Operation, Replies) + Send + 'static,
    mut application: impl FnMut(&mut Node<J>, Instant, Output) -> Result<(), Misuse>,
) -> Result<(), Misuse> {
    let (sender, requests) = mpsc::channel();
    // One after the other, so that those about one lease keep their order. A store ends each by its timeout.
    thread::spawn(move || requests.into_iter().for_each(|(operation, replies)| execute(operation, replies)));
    let (outcomes, events) = mpsc::channel();
    loop {
        let output = node.poll();
        if let Output::Command(command) = &output
            && let Some(operation) = Operation::of(command, &node, &Metadata::new())
            && let Some(id) = command.id()
        {
            let (kind, outcomes) = (operation.kind(), outcomes.clone());
            let replies = Replies::new(1, move |_, outcome| {
                let _nobody_listens = outcomes.send(kind.event(id, &outcome));
            });
            // If the thread has died, dropping the replies says that nothing is known.
            let _dead = sender.send((operation, replies));
        } else if let Output::Command(Command::Watch { id, .. }) = output {
            // There are no hints here: who waits for a lease goes by its TTL.
            node.handle(clock::now(), Event::Reply { id, reply: Reply::Failed(Failure::Refused) })?;
        } else if let Output::Wait(until) = output {
            if node.is_empty() {
                return Ok(());
            }
            // Such a wait does not count while the machine sleeps, so none is long.
            let wait = until.unwrap_or(Instant::MAX).saturating_since(clock::now());
            let event = events.recv_timeout(wait.min(Duration::from_secs(1)));
            node.handle(clock::now(), event.unwrap_or(Event::Timeout))?;
        } else {
            application(&mut node, clock::now(), output)?;
        }
    }
}
// The driver ends here.

fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    hold(at(store.handle()), 5)?;
    hold(lossy(at(store)), 5)
}

/// Holds the lease until it was renewed so often, and gives it back.
fn hold(execute: impl Fn(Operation, Replies) + Send + 'static, renewals: u32) -> Result<(), Box<dyn Error>> {
    // No other process, and no later start of this one, may have the same.
    let incarnation = u128::from(getrandom::u64()?) << 64 | u128::from(getrandom::u64()?);
    let identity = Identity::new("example", Incarnation::new(incarnation))?;
    let mut node = Node::new(identity, SplitMix::new(getrandom::u64()?));
    let timing = LeaseConfig::new(Duration::from_secs(1)).resolve(&MemoryStore::new().limits().clock)?;
    let (name, options) = (LeaseName::new("backup")?, LeaseOptions::new(timing));
    node.acquire(clock::now(), name.clone(), options.clone())?;

    let mut renewed = 0;
    drive(node, execute, |node, now, output| {
        println!("{output:?}");
        match output {
            Output::Notice(Notice::Renewed { lease, .. }) => {
                renewed += 1;
                if renewed == renewals { node.release(now, lease) } else { Ok(()) }
            }
            // The work has to end now, and once it has, the lease goes back. There is no work here.
            Output::Command(Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, .. }) => {
                node.release(now, lease)
            }
            Output::Notice(Notice::Lost { .. }) => {
                node.acquire(now, name.clone(), options.clone()).map(|_candidacy| ())
            }
            _ => Ok(()),
        }
    })?;
    println!("renewed {renewed} times, and given back\n");
    Ok(())
}

fn at(store: MemoryStore) -> impl Fn(Operation, Replies) + Send + 'static {
    move |operation, replies| block_on(store.execute(vec![operation], replies))
}

/// Of five requests one gets lost on its way to the store, and the answer to another one on its way back.
fn lossy(
    execute: impl Fn(Operation, Replies) + Send + 'static,
) -> impl Fn(Operation, Replies) + Send + 'static {
    let sent = AtomicUsize::new(0);
    move |operation, replies| match sent.fetch_add(1, Ordering::Relaxed) % 5 {
        // To drop the replies is to say that nothing is known.
        1 => drop(replies),
        3 => execute(operation, Replies::new(1, |_, _| {})),
        _ => execute(operation, replies),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tenure_store::OperationKind;

    use super::*;

    /// Which operations `hold` has carried.
    fn carried(lost: bool) -> Vec<OperationKind> {
        let store = MemoryStore::new();
        let execute = at(store.handle());
        let execute: Box<dyn Fn(Operation, Replies) + Send> =
            if lost { Box::new(lossy(execute)) } else { Box::new(execute) };
        let log = Arc::new(Mutex::new(Vec::new()));
        let writing = log.clone();
        let logged = move |operation: Operation, replies| {
            writing.lock().unwrap().push(operation.kind());
            execute(operation, replies);
        };
        hold(logged, 5).unwrap();
        assert_eq!(block_on(Store::list(&store, None, 9)), Ok(Vec::new()), "the lease is given back");
        log.lock().unwrap().clone()
    }

    #[test]
    fn it_acquires_renews_for_longer_than_the_ttl_and_gives_back() {
        let carried = carried(false);
        let times = |kind| carried.iter().filter(|carried| **carried == kind).count();
        assert!(times(OperationKind::Acquire) >= 1 && times(OperationKind::Renew) >= 5, "{carried:?}");
        assert_eq!(carried.last(), Some(&OperationKind::Release));
    }

    #[test]
    fn under_loss_it_asks_again_until_everything_is_done() {
        let carried = carried(true);
        assert!(carried.len() > 7, "{carried:?}");
    }

    #[test]
    fn the_driver_has_forty_lines_at_most() {
        let source = include_str!("own_driver.rs");
        let begin = source.find("// The driver begins here.\n").unwrap();
        let end = source.find("// The driver ends here.\n").unwrap();
        let lines = source[begin..end].lines().skip(1).count();
        assert!((20..=40).contains(&lines), "{lines} lines");
    }
}
