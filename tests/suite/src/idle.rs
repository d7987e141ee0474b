//! How often the driver wakes while nothing happens, in real time.

use std::future::IntoFuture;
use std::time::Duration;

use futures::future::join_all;
use tenure_driver::core::{LeaseConfig, StoreClock};
use tenure_driver::{Builder, Runtime, Tenure, clock};
use tenure_memory::MemoryStore;

use crate::GENEROUS;
use crate::Host;
use crate::counted::{Counted, Counts};
use crate::waiting::{once, until};

/// Renewed once a second, roughly.
const TTL: Duration = Duration::from_secs(4);
/// Nothing of a timer with this period is due while a test runs.
const LONG: Duration = Duration::from_secs(3600);
/// How many intervals a test looks on.
const INTERVALS: u32 = 4;
/// Renewals are lined up into as many slots per interval.
const SLOTS: u64 = 16;
/// One to send a request, one for the answer, and as many again for a round that comes too early or brings another one
/// about.
const POLLS: u64 = 4;

fn interval() -> Duration {
    LeaseConfig::new(TTL).resolve(&StoreClock::default()).expect("the settings fit").renew_interval()
}

/// How often the drivers were polled during this time.
async fn polls<R: Runtime>(runtime: &R, counts: &Counts, time: Duration) -> u64 {
    let before = counts.polls();
    runtime.sleep_until(clock::now() + time).await;
    counts.polls() - before
}

/// Waits until what was under way has been seen to: an answer may bring about another poll.
async fn rest<R: Runtime>(runtime: &R, counts: &Counts) {
    let end = clock::now() + GENEROUS;
    while polls(runtime, counts, interval() / 4).await > 0 {
        assert!(clock::now() < end, "it does not come to rest");
    }
}

fn start<R: Runtime>(runtime: &Counted<R>, store: &MemoryStore) -> Tenure {
    let builder = Builder::new(runtime.clone()).store(store.handle());
    // No heartbeat while a test runs, but for the one that it waits for.
    let builder = builder.lease(LeaseConfig::new(TTL)).member_ttl(LONG);
    builder.start().expect("it can be started")
}

/// With nothing held, and with what only waits, the driver is not polled at all.
///
/// # Panics
/// If it is.
pub fn nothing_wakes_without_need<H: Host>() {
    let host = H::new();
    host.block_on(async {
        let runtime = Counted::new(host.runtime());
        let counts = runtime.counts();
        let tenure = start(&runtime, &MemoryStore::new());
        let plain = host.runtime();
        drop(tenure.acquire("a").await.expect("it is free"));
        until(&plain, "it is given back", || tenure.stats().open == 0).await;
        rest(&plain, &counts).await;
        // The renewal that would have come is not waited for any more.
        assert_eq!(polls(&plain, &counts, interval() * 2).await, 0, "nothing is held");

        tenure.join().await.expect("the store has members");
        let start = |n: u32| tenure.timer(n.to_string(), LONG).start().expect("it can be started");
        let mut timers: Vec<_> = (0..100).map(start).collect();
        until(&plain, "all timers are known", || tenure.stats().operations >= 102).await;
        let mut next: Vec<_> = timers.iter_mut().map(|timer| Box::pin(timer.next())).collect();
        for next in &mut next {
            assert!(once(next.as_mut()).await.is_pending());
        }
        let mut draining = Box::pin(tenure.draining());
        assert!(once(draining.as_mut()).await.is_pending());
        rest(&plain, &counts).await;
        assert_eq!(polls(&plain, &counts, interval() * 2).await, 0, "no tick is due");
        drop(next);
        drop((timers, draining));
        tenure.shutdown().await.expect("nothing is held");
    });
    host.shut_down();
}

/// With 1,000 leases, and 100 candidates of another instance that wait for some of them, the drivers are polled for the
/// slots of renewals and for the looks of the candidates.
///
/// # Panics
/// If they are polled more often.
pub fn a_thousand_leases_wake_for_what_is_due<H: Host>() {
    let host = H::new();
    host.block_on(async {
        let runtime = Counted::new(host.runtime());
        let counts = runtime.counts();
        let store = MemoryStore::new();
        let (holder, other) = (start(&runtime, &store), start(&runtime, &store));
        let acquired = join_all((0..1000).map(|n| holder.acquire(n.to_string()).into_future())).await;
        let leases: Vec<_> = acquired.into_iter().map(|lease| lease.expect("it is free")).collect();
        let mut waiting: Vec<_> =
            (0..100).map(|n| Box::pin(other.acquire(n.to_string()).into_future())).collect();
        for candidate in &mut waiting {
            assert!(once(candidate.as_mut()).await.is_pending());
        }
        let plain = host.runtime();
        until(&plain, "all candidates wait", || other.stats().operations >= 100).await;
        let sent = || [holder.stats(), other.stats()].map(|stats| stats.batches).iter().sum::<u64>();
        let (began, renewed) = (clock::now(), holder.stats().renewed);
        let (looks, batches) = (other.stats().operations, sent());
        let polls = polls(&plain, &counts, interval() * INTERVALS).await;
        let (renewed, looks) = (holder.stats().renewed - renewed, other.stats().operations - looks);
        let batches = sent() - batches;
        // It may have taken longer.
        let took = clock::now().saturating_since(began);
        let intervals = u64::try_from(took.as_nanos() / interval().as_nanos()).unwrap_or(u64::MAX) + 1;
        println!("{renewed} renewals and {looks} looks in {batches} requests, {polls} polls");
        assert!(renewed >= 1000, "{renewed} renewals");
        assert!(
            batches <= intervals * SLOTS + looks,
            "{batches} requests for {intervals} intervals and {looks} looks"
        );
        assert!(polls <= (batches + 4) * POLLS, "{polls} polls for {batches} requests");
        drop((leases, waiting));
        holder.shutdown().await.expect("all is given back");
        other.shutdown().await.expect("all is given back");
    });
    host.shut_down();
}
