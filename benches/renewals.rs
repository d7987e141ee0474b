//! What a renewal costs in the core: the timeout that makes it due, the command, the reply and its notice.
//!
//! Each sample renews every lease of the node once; the items are renewals, so `items/s` is renewals per
//! second and the time divided by the number of leases is the time of one. Allocations are counted.

use std::time::Duration;

use divan::{AllocProfiler, Bencher, counter::ItemsCount};
use tenure_core::{
    Command, CommandId, Event, Identity, Incarnation, Instant, LeaseConfig, LeaseName, LeaseOptions, Node,
    Notice, Output, Reply, SplitMix, StoreClock, Token,
};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// A node that holds this many leases, acquired over a while.
fn holder(leases: u64) -> Node<SplitMix> {
    let identity = Identity::new("host:1", Incarnation::new(1)).expect("a fine name");
    let mut node = Node::new(identity, SplitMix::new(1));
    let timing =
        LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default()).expect("the defaults");
    for i in 0..leases {
        let now = Instant::from_nanos(4_000_000_000 * i / leases);
        let name = LeaseName::new(format!("lease-{i}")).expect("a fine name");
        node.acquire(now, name, LeaseOptions::new(timing)).expect("not shutting down");
        while let Output::Command(command) = node.poll() {
            if let Command::Acquire { id, .. } = command {
                let reply = Reply::Granted { token: Token::new(i + 1) };
                node.handle(now, Event::Reply { id, reply }).expect("the reply fits");
                assert!(matches!(node.poll(), Output::Notice(Notice::Acquired { .. })));
            }
        }
    }
    node
}

/// Renews until this many renewals are acknowledged, the way a driver does.
fn renew(node: &mut Node<SplitMix>, renewals: u64, sent: &mut Vec<CommandId>) {
    let mut acknowledged = 0;
    let mut now = Instant::ZERO;
    while acknowledged < renewals {
        match node.poll() {
            Output::Command(Command::Renew { id, .. }) => sent.push(id),
            Output::Command(other) => panic!("only renewals were expected, not {other}"),
            Output::Notice(_) => {}
            Output::Wait(next) if sent.is_empty() => {
                now = next.expect("leases are held");
                node.handle(now, Event::Timeout).expect("never misuse");
            }
            Output::Wait(_) => {
                acknowledged += sent.len() as u64;
                for id in sent.drain(..) {
                    node.handle(now, Event::Reply { id, reply: Reply::Renewed }).expect("the reply fits");
                }
            }
        }
    }
}

#[divan::bench(args = [1, 1_000, 100_000], sample_count = 30)]
fn renewals(bencher: Bencher<'_, '_>, leases: u64) {
    let mut node = holder(leases);
    // Queues reach their size; what is counted afterwards are the core's own allocations.
    let mut sent = Vec::new();
    renew(&mut node, leases * 2, &mut sent);
    bencher.counter(ItemsCount::new(leases)).bench_local(|| renew(&mut node, leases, &mut sent));
}
