//! What the memory store does beyond what every store does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use futures::FutureExt;
use futures::executor::block_on;
use futures::stream::StreamExt;
use tenure_store::core::{Acquisition, Identity, Incarnation, Labels, LeaseName, Owner, Wake as LeaseWake};
use tenure_store::{Hint, Metadata};

use super::*;

const TTL: Duration = Duration::from_secs(10);

/// A time that passes when a test says so; in nanoseconds.
#[derive(Clone, Default)]
struct Time(Arc<AtomicU64>);

impl Time {
    fn store(&self) -> MemoryStore {
        let time = self.clone();
        MemoryStore::with_clocks(move || time.now(), || Timestamp::from_nanos(1_000_000))
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn pass(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).expect("little time"), Ordering::Relaxed);
    }
}

fn name(name: impl AsRef<str>) -> LeaseName {
    LeaseName::new(name).expect("a short name")
}

fn owner(process: u128) -> Owner {
    Identity::new("here", Incarnation::new(process)).expect("a short name").owner(Acquisition(0))
}

fn request(name: &LeaseName, process: u128, wait: bool) -> Acquire {
    let (name, owner, floor, timeout) = (name.clone(), owner(process), Token::ZERO, TTL);
    Acquire { name, owner, ttl: TTL, floor, wait, metadata: Metadata::new(), timeout }
}

fn acquire(store: &MemoryStore, name: &LeaseName, process: u128) -> Acquired {
    block_on(SimpleStore::acquire(store, request(name, process, true))).expect("the request is fine")
}

fn get(store: &MemoryStore, name: &LeaseName, process: u128) -> Token {
    match acquire(store, name, process) {
        Acquired::Granted(token) => token,
        Acquired::Held(holder) => panic!("{name:?} is held by {holder:?}"),
    }
}

fn release(store: &MemoryStore, name: &LeaseName, process: u128) -> Released {
    let (name, owner) = (name.clone(), owner(process));
    block_on(SimpleStore::release(store, Release { name, owner, token: None, timeout: TTL }))
        .expect("it works")
}

/// A handle that watches and waits for the lease.
fn waiter(store: &MemoryStore, name: &LeaseName) -> (MemoryStore, Hints) {
    let handle = store.handle();
    let hints = SimpleStore::hints(&handle).expect("the memory store has hints");
    block_on(SimpleStore::watch(&handle, name.clone())).expect("watching works");
    (handle, hints)
}

fn next_wake(hints: &mut Hints) -> Option<LeaseWake> {
    match hints.next().now_or_never()?? {
        Hint::Lease { wake, .. } => Some(wake),
        Hint::Members | Hint::Resync => panic!("nothing was missed"),
    }
}

fn chosen(hints: &mut Hints) -> bool {
    match next_wake(hints) {
        Some(LeaseWake::Free { chosen }) => chosen,
        other => panic!("expected to hear of a release, heard {other:?}"),
    }
}

#[test]
fn a_hundred_thousand_names_leave_nothing_behind() {
    let time = Time::default();
    let store = time.store();
    let waiting = store.handle();
    for number in 0..100_000 {
        let name = name(format!("lease {number}"));
        get(&store, &name, 1);
        assert!(matches!(acquire(&waiting, &name, 2), Acquired::Held(_)));
    }
    time.pass(TTL * 2);
    assert_eq!(block_on(SimpleStore::list(&store, None, 1)), Ok(Vec::new()));
    assert!(store.with_state(|state| state.is_empty()), "no lease and no waiter is kept");
}

#[test]
fn of_threads_that_race_for_a_lease_one_wins_each_round() {
    let store = MemoryStore::new();
    let mut tokens = BTreeSet::new();
    for round in 0..50 {
        let name = name(format!("round {}", round % 3));
        let winners: Vec<(u128, Token)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|process| {
                    let (store, name) = (store.handle(), &name);
                    scope.spawn(move || match acquire(&store, name, process) {
                        Acquired::Granted(token) => Some((process, token)),
                        Acquired::Held(_) => None,
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect()
        });
        let [(process, token)] = winners[..] else { panic!("one wins: {winners:?}") };
        assert!(tokens.last().is_none_or(|highest| *highest < token), "{token} is above {tokens:?}");
        tokens.insert(token);
        assert_ne!(release(&store, &name, process), Released::NotYours);
    }
}

#[test]
fn the_two_who_have_waited_longest_are_chosen_once() {
    let store = Time::default().store();
    let name = name("waited for");
    get(&store, &name, 1);
    let mut waiters: Vec<_> = (0..4).map(|_| waiter(&store, &name)).collect();
    // To register again changes no place.
    block_on(SimpleStore::watch(&waiters[0].0, name.clone())).expect("watching works");

    assert_eq!(release(&store, &name, 1), Released::Released { others_chosen: true });
    let heard: Vec<bool> = waiters.iter_mut().map(|(_, hints)| chosen(hints)).collect();
    assert_eq!(heard, [true, true, false, false]);

    // The first two don't come back: the next release names the others.
    get(&store, &name, 1);
    for (_, hints) in &mut waiters {
        assert!(matches!(next_wake(hints), Some(LeaseWake::Held { ttl: TTL, .. })));
    }
    assert_eq!(release(&store, &name, 1), Released::Released { others_chosen: true });
    let heard: Vec<bool> = waiters.iter_mut().map(|(_, hints)| chosen(hints)).collect();
    assert_eq!(heard, [false, false, true, true]);
    get(&store, &name, 1);
    assert_eq!(release(&store, &name, 1), Released::Released { others_chosen: false });
}

#[test]
fn a_waiter_that_never_came_back_is_skipped() {
    let time = Time::default();
    let store = time.store();
    let name = name("waited for");
    get(&store, &name, 1);
    let (_stuck, mut stuck_hints) = waiter(&store, &name);
    time.pass(TTL + Duration::from_secs(6));
    get(&store, &name, 1);
    let mut alive: Vec<_> = (0..2).map(|_| waiter(&store, &name)).collect();
    assert_eq!(release(&store, &name, 1), Released::Released { others_chosen: true });
    assert!(alive.iter_mut().all(|(_, hints)| chosen(hints)));
    // It still watches, so it hears what happens.
    assert!(matches!(next_wake(&mut stuck_hints), Some(LeaseWake::Held { .. })));
    assert!(!chosen(&mut stuck_hints));
}

#[test]
fn a_dropped_or_closed_handle_waits_no_more_and_its_hints_end() {
    let store = Time::default().store();
    let name = name("waited for");
    get(&store, &name, 1);
    let (dropped, mut hints_of_dropped) = waiter(&store, &name);
    let (closed, mut hints_of_closed) = waiter(&store, &name);
    drop(dropped);
    block_on(SimpleStore::close(&closed));
    assert_eq!(release(&store, &name, 1), Released::Released { others_chosen: false });
    assert_eq!(hints_of_dropped.next().now_or_never(), Some(None));
    assert_eq!(hints_of_closed.next().now_or_never(), Some(None));
    assert!(store.with_state(|state| state.is_empty()));
}

#[test]
fn a_waiter_that_could_not_hear_of_it_is_not_chosen() {
    let store = Time::default().store();
    let name = name("waited for");
    get(&store, &name, 1);
    let (deaf, unheeding) = (store.handle(), store.handle());
    let _hints = SimpleStore::hints(&unheeding).expect("the memory store has hints");
    assert!(matches!(acquire(&deaf, &name, 2), Acquired::Held(_)));
    assert!(matches!(acquire(&unheeding, &name, 3), Acquired::Held(_)));
    block_on(SimpleStore::watch(&deaf, name.clone())).expect("watching works");
    assert_eq!(release(&store, &name, 1), Released::Released { others_chosen: false });
}

#[test]
fn a_newer_stream_of_hints_ends_the_older_one() {
    let store = Time::default().store();
    let name = name("watched");
    let (handle, mut older) = waiter(&store, &name);
    let mut newer = SimpleStore::hints(&handle).expect("the memory store has hints");
    assert_eq!(older.next().now_or_never(), Some(None));
    let token = get(&store, &name, 1);
    assert_eq!(next_wake(&mut newer), Some(LeaseWake::Held { token, ttl: TTL }));
}

#[test]
fn hints_that_nobody_reads_become_one_resync() {
    let store = Time::default().store();
    let name = name("watched");
    let (_handle, mut hints) = waiter(&store, &name);
    for _ in 0..2_000 {
        get(&store, &name, 1);
        release(&store, &name, 1);
    }
    let heard: Vec<Hint> = std::iter::from_fn(|| hints.next().now_or_never().flatten()).collect();
    assert_eq!(heard.first(), Some(&Hint::Resync));
    assert!(heard.len() <= 1024, "{} hints were kept", heard.len());
}

#[test]
fn a_clock_that_steps_back_expires_nothing_early_and_revives_nothing() {
    let time = Time::default();
    time.pass(Duration::from_secs(100));
    let store = time.store();
    let name = name("lease");
    get(&store, &name, 1);
    time.0.store(0, Ordering::Relaxed);
    let Acquired::Held(holder) = acquire(&store, &name, 2) else { panic!("the lease is held") };
    assert_eq!(holder.remaining, Some(TTL));
    time.pass(Duration::from_secs(110));
    get(&store, &name, 2);
}

#[test]
fn tokens_begin_at_the_wall_clock_and_rise_when_it_stands_still() {
    let store = Time::default().store();
    let tokens = ["a", "b", "a"].map(|lease| {
        let token = get(&store, &name(lease), 1);
        release(&store, &name(lease), 1);
        token.get()
    });
    assert_eq!(tokens, [1_000, 1_001, 1_002]);
}

#[test]
fn when_no_token_is_left_the_grant_is_refused() {
    let store = MemoryStore::new();
    store.now(|state| state.set_high_water(Token::new(u64::MAX - 1)));
    get(&store, &name("the last"), 1);
    let request = request(&name("one more"), 1, false);
    let error = block_on(SimpleStore::acquire(&store, request)).expect_err("no token is left");
    assert!(error.to_string().contains(r#"lease "one more""#), "{error}");
    assert_eq!(block_on(SimpleStore::inspect(&store, name("one more"))), Ok(None));
}

#[test]
fn who_was_chosen_is_chosen_again_only_after_waiting_again() {
    let store = Time::default().store();
    let name = name("waited for");
    get(&store, &name, 1);
    let (handle, mut hints) = waiter(&store, &name);
    for (wait, expected) in [(false, true), (false, false), (true, false), (true, true)] {
        release(&store, &name, 1);
        assert_eq!(chosen(&mut hints), expected);
        get(&store, &name, 1);
        assert!(matches!(next_wake(&mut hints), Some(LeaseWake::Held { .. })));
        let again = block_on(SimpleStore::acquire(&handle, request(&name, 2, wait)));
        assert!(matches!(again, Ok(Acquired::Held(_))), "{again:?}");
    }
}

#[test]
fn who_has_the_lease_does_not_wait_for_it_nor_hear_of_its_own_grant() {
    let store = Time::default().store();
    let name = name("waited for");
    let (handle, mut hints) = waiter(&store, &name);
    get(&handle, &name, 1);
    assert_eq!(next_wake(&mut hints), None);
    let evicted = block_on(SimpleStore::evict(&store, name, Eviction::Delete));
    assert!(matches!(evicted, Ok(Some(_))), "{evicted:?}");
    assert!(!chosen(&mut hints));
}

#[test]
fn a_waiter_that_is_late_to_come_back_is_still_chosen() {
    let time = Time::default();
    let store = time.store();
    let name = name("waited for");
    get(&store, &name, 1);
    let (handle, mut hints) = waiter(&store, &name);
    time.pass(Duration::from_secs(9));
    get(&store, &name, 1);
    // A second after the TTL that it was told of.
    time.pass(Duration::from_secs(2));
    release(&store, &name, 1);
    assert!(chosen(&mut hints));

    get(&store, &name, 1);
    next_wake(&mut hints);
    for _ in 0..5 {
        block_on(SimpleStore::watch(&handle, name.clone())).expect("watching works");
        time.pass(Duration::from_secs(9));
        get(&store, &name, 1);
    }
    release(&store, &name, 1);
    assert!(chosen(&mut hints), "it came back each time");
}

#[test]
fn a_chosen_waiter_that_goes_leaves_nothing_behind() {
    let store = Time::default().store();
    let name = name("waited for");
    get(&store, &name, 1);
    let (handle, mut hints) = waiter(&store, &name);
    release(&store, &name, 1);
    assert!(chosen(&mut hints));
    drop(handle);
    assert!(store.with_state(|state| state.is_empty()));
}

#[test]
fn whoever_waits_for_a_hint_is_woken() {
    #[derive(Default)]
    struct Woken(AtomicU64);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let store = Time::default().store();
    let name = name("watched");
    let (handle, mut hints) = waiter(&store, &name);
    let woken = Arc::new(Woken::default());
    let waker = woken.clone().into();
    assert!(hints.poll_next_unpin(&mut Context::from_waker(&waker)).is_pending());
    get(&store, &name, 1);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "by a grant");
    assert!(hints.next().now_or_never().is_some());
    assert!(hints.poll_next_unpin(&mut Context::from_waker(&waker)).is_pending());
    drop(handle);
    assert_eq!(woken.0.load(Ordering::Relaxed), 2, "by the end");
    assert_eq!(hints.next().now_or_never(), Some(None));
}

#[test]
fn a_record_tells_the_latest_ttl_and_the_time_of_the_grant() {
    let time = Time::default();
    let store = time.store();
    let name = name("looked at");
    let token = get(&store, &name, 1);
    time.pass(Duration::from_secs(3));
    let renew = Renew { name: name.clone(), owner: owner(1), token, ttl: TTL / 2, timeout: TTL };
    assert_eq!(block_on(SimpleStore::renew(&store, renew)), Ok(Renewed::Renewed));
    time.pass(Duration::from_secs(1));
    let record = block_on(SimpleStore::inspect(&store, name)).expect("it works").expect("it is held");
    assert_eq!(record.holder.ttl, Some(TTL / 2));
    assert_eq!(record.holder.remaining, Some(Duration::from_secs(4)));
    assert_eq!(record.holder.since, Some(UNIX_EPOCH + Duration::from_millis(1)));
}

#[test]
fn unwatching_leaves_nothing_behind() {
    let store = Time::default().store();
    let (handle, _hints) = waiter(&store, &name("watched"));
    block_on(SimpleStore::unwatch(&handle, name("watched")));
    assert!(store.with_state(|state| state.is_empty()));
}

fn beat(process: u128, sequence: u64) -> Heartbeat {
    Heartbeat {
        identity: owner(process).identity().clone(),
        sequence,
        joined: None,
        draining: false,
        marked: false,
        digests: [].into(),
        labels: Labels::default(),
        known: None,
        ttl: TTL,
        metadata: Metadata::new(),
        timeout: TTL,
    }
}

/// A handle that has sent a heartbeat, and its hints.
fn member(store: &MemoryStore, process: u128) -> (MemoryStore, Hints) {
    let handle = store.handle();
    let hints = SimpleStore::hints(&handle).expect("the memory store has hints");
    block_on(SimpleStore::heartbeat(&handle, beat(process, 1))).expect("the heartbeat is fine");
    (handle, hints)
}

fn hints_of_members(hints: &mut Hints) -> usize {
    let mut count = 0;
    while let Some(Some(hint)) = hints.next().now_or_never() {
        assert_eq!(hint, Hint::Members);
        count += 1;
    }
    count
}

#[test]
fn whoever_has_sent_a_heartbeat_hears_once_of_each_change_that_no_answer_told_it() {
    let time = Time::default();
    let store = time.store();
    let mut of_a_stranger = SimpleStore::hints(&store).expect("the memory store has hints");
    let (a, mut of_a) = member(&store, 1);
    let (b, mut of_b) = member(&store, 2);
    assert_eq!((hints_of_members(&mut of_a), hints_of_members(&mut of_b)), (1, 0), "its own answer told it");
    time.pass(TTL / 2);
    block_on(SimpleStore::heartbeat(&b, beat(2, 2))).expect("the heartbeat is fine");
    assert_eq!((hints_of_members(&mut of_a), hints_of_members(&mut of_b)), (0, 0), "a plain heartbeat");
    let mark = DrainMark { instance: "here".into(), incarnation: None, drain: true };
    for hints in [1, 0] {
        block_on(SimpleStore::mark(&store, mark.clone())).expect("it works");
        assert_eq!((hints_of_members(&mut of_a), hints_of_members(&mut of_b)), (hints, hints));
    }
    // The first one's time is over; whoever finds that out, by whatever it does, tells all.
    time.pass(TTL / 2);
    block_on(SimpleStore::members(&store, None, 10)).expect("it works");
    assert_eq!((hints_of_members(&mut of_a), hints_of_members(&mut of_b)), (1, 1));
    block_on(SimpleStore::heartbeat(&a, beat(1, 1))).expect_err("it is late");
    assert_eq!((hints_of_members(&mut of_a), hints_of_members(&mut of_b)), (0, 0));
    time.pass(TTL / 2);
    block_on(SimpleStore::heartbeat(&a, beat(1, 1))).expect_err("it is later still");
    assert_eq!((hints_of_members(&mut of_a), hints_of_members(&mut of_b)), (1, 1), "the other is gone, too");
    let leave = Leave { identity: beat(3, 1).identity, ttl: TTL, timeout: TTL };
    block_on(SimpleStore::leave(&store, leave)).expect("it works");
    assert_eq!((hints_of_members(&mut of_a), hints_of_members(&mut of_b)), (0, 0), "nobody saw it");
    assert_eq!(hints_of_members(&mut of_a_stranger), 0, "it sends no heartbeats");
}

#[test]
fn members_that_are_over_leave_nothing_behind() {
    let time = Time::default();
    let store = time.store();
    for process in 0..1000 {
        let (handle, _) = member(&store, process);
        if process % 2 == 0 {
            let leave = Leave { identity: beat(process, 1).identity, ttl: TTL, timeout: TTL };
            block_on(SimpleStore::leave(&handle, leave)).expect("it works");
        }
    }
    time.pass(TTL * 2);
    assert_eq!(block_on(SimpleStore::members(&store, None, 1)), Ok(Vec::new()));
    assert!(store.with_state(|state| state.is_empty()), "no member is kept");
}
