//! What the node adds to its leases: queues within the process, watches, deadlines, shutdown.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use super::slots::Watch;
use super::{Counters, Machine, Node};
use crate::command::{Command, Event, Exit, Failure, Misuse, Output, Reply, Stop, Wake};
use crate::jitter::SplitMix;
use crate::lease::{LeaseOptions, WaitLimit};
use crate::name::{Acquisition, CommandId, Identity, Incarnation, LeaseKey, LeaseName, Token, WorkerKey};
use crate::notice::{AcquireFailure, Notice};
use crate::time::Instant;
use crate::timing::{LeaseConfig, StoreClock};
use crate::worker::{Restart, RestartPolicy, WorkerOptions};

mod claims;
mod coordinators;
mod draining;
mod handing_over;
mod members;
mod timers;
mod walk;
mod watching;

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn name(text: &str) -> LeaseName {
    LeaseName::new(text).expect("a fine name")
}

fn options() -> LeaseOptions {
    let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default());
    LeaseOptions::new(timing.expect("the defaults fit"))
}

fn no_wait() -> LeaseOptions {
    LeaseOptions { wait: WaitLimit::No, ..options() }
}

fn node() -> Node<SplitMix> {
    Node::new(Identity::new("host", Incarnation::new(7)).expect("a fine name"), SplitMix::new(3))
}

fn drain(node: &mut Node<SplitMix>) -> Vec<Output> {
    let mut outputs = Vec::new();
    loop {
        match node.poll() {
            Output::Wait(_) => return outputs,
            output => outputs.push(output),
        }
    }
}

fn commands(outputs: &[Output]) -> Vec<Command> {
    outputs.iter().filter_map(|o| if let Output::Command(c) = o { Some(c.clone()) } else { None }).collect()
}

fn failures(outputs: &[Output]) -> Vec<(LeaseKey, AcquireFailure)> {
    let failure = |output: &Output| match output {
        Output::Notice(Notice::Failed { lease, why }) => Some((*lease, *why)),
        _ => None,
    };
    outputs.iter().filter_map(failure).collect()
}

/// The only command, which must be an attempt to acquire for this lease.
fn attempt(outputs: &[Output], key: LeaseKey) -> CommandId {
    match commands(outputs)[..] {
        [Command::Acquire { id, lease, .. }] if lease == key => id,
        ref other => panic!("an attempt of {key} was expected, not {other:?}"),
    }
}

fn release_of(outputs: &[Output], key: LeaseKey) -> CommandId {
    let of_key = |command: &Command| match command {
        Command::Release { id, lease, .. } if *lease == key => Some(*id),
        _ => None,
    };
    commands(outputs).iter().find_map(of_key).unwrap_or_else(|| panic!("a release, not {outputs:?}"))
}

/// Which acquisition the only command stands for.
fn acquisition(outputs: &[Output]) -> Acquisition {
    match commands(outputs)[..] {
        [Command::Acquire { n, .. }] => n,
        ref other => panic!("an attempt was expected, not {other:?}"),
    }
}

fn reply(node: &mut Node<SplitMix>, now: Instant, id: CommandId, reply: Reply) -> Vec<Output> {
    node.handle(now, Event::Reply { id, reply }).expect("the reply fits");
    drain(node)
}

const GRANTED: Reply = Reply::Granted { token: Token::new(10) };
const BUSY: Reply = Reply::Held { token: Some(Token::new(5)), remaining: Some(Duration::from_secs(9)) };

/// A node that holds "backup".
fn holder() -> (Node<SplitMix>, LeaseKey) {
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("not shutting down");
    let id = attempt(&drain(&mut node), key);
    reply(&mut node, ms(1), id, GRANTED);
    (node, key)
}

/// A node that waits for "backup" and watches it.
fn waiter() -> (Node<SplitMix>, LeaseKey) {
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("not shutting down");
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, ms(1), id, BUSY);
    let [Command::Watch { id: watch, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    let id = attempt(&reply(&mut node, ms(2), watch, Reply::Watching), key);
    assert_eq!(commands(&reply(&mut node, ms(3), id, BUSY)), []);
    (node, key)
}

#[test]
fn candidates_of_one_process_queue_and_only_the_first_talks_to_the_store() {
    let (mut node, first) = holder();
    let others: Vec<_> =
        (0..100).map(|_| node.acquire(ms(2), name("backup"), options()).expect("fine")).collect();
    assert_eq!(drain(&mut node), []);
    node.release(ms(3), first).expect("known");
    let [Command::Release { id, .. }] = commands(&drain(&mut node))[..] else { panic!("a release") };
    let outputs = reply(&mut node, ms(4), id, Reply::Released { others_chosen: false });
    attempt(&outputs, others[0]);
}

#[test]
fn of_many_waiters_of_one_process_one_tries_when_the_lease_becomes_free() {
    let (mut node, first) = waiter();
    for _ in 0..100 {
        node.acquire(ms(4), name("backup"), options()).expect("fine");
    }
    assert_eq!(drain(&mut node), []);
    node.handle(ms(5), Event::Hint { name: name("backup"), wake: Wake::Free { chosen: true } })
        .expect("fine");
    let id = attempt(&drain(&mut node), first);
    // It came too late: nobody else of this process need try.
    assert_eq!(commands(&reply(&mut node, ms(6), id, BUSY)), []);
}

#[test]
fn when_a_release_has_woken_other_processes_our_own_next_candidate_leaves_them_a_start() {
    let (mut node, first) = holder();
    let next = node.acquire(ms(2), name("backup"), options()).expect("fine");
    node.release(ms(3), first).expect("known");
    let [Command::Release { id, .. }] = commands(&drain(&mut node))[..] else { panic!("a release") };
    assert_eq!(commands(&reply(&mut node, ms(4), id, Reply::Released { others_chosen: true })), []);
    let Output::Wait(Some(at)) = node.poll() else { panic!("it tries soon") };
    assert!(at >= ms(9) && at <= ms(204), "{at:?}");
    node.handle(at, Event::Timeout).expect("never misuse");
    attempt(&drain(&mut node), next);
}

#[test]
fn a_try_behind_a_holder_of_the_same_process_is_busy_at_once() {
    let (mut node, _) = holder();
    let key = node.acquire(ms(2), name("backup"), no_wait()).expect("fine");
    let outputs = drain(&mut node);
    assert_eq!(failures(&outputs), [(key, AcquireFailure::Busy)]);
    assert_eq!(commands(&outputs), [], "a second handle is a second candidate: there is no re-entrancy");
}

#[test]
fn a_try_behind_a_waiter_of_the_same_process_is_told_what_the_waiter_was_told() {
    let (mut node, _) = waiter();
    let key = node.acquire(ms(4), name("backup"), no_wait()).expect("fine");
    assert_eq!(failures(&drain(&mut node)), [(key, AcquireFailure::Busy)]);

    let mut node = self::node();
    let first = node.acquire(ms(0), name("backup"), options()).expect("fine");
    let key = node.acquire(ms(0), name("backup"), no_wait()).expect("fine");
    let id = attempt(&drain(&mut node), first);
    let outputs = reply(&mut node, ms(1), id, Reply::Failed(Failure::NotExecuted));
    assert_eq!(failures(&outputs), [(key, AcquireFailure::Unreachable)]);
}

#[test]
fn a_try_while_the_release_is_on_its_way_gets_the_lease() {
    let (mut node, first) = holder();
    node.release(ms(2), first).expect("known");
    let key = node.acquire(ms(2), name("backup"), no_wait()).expect("fine");
    let [Command::Release { id, .. }] = commands(&drain(&mut node))[..] else { panic!("a release") };
    let outputs = reply(&mut node, ms(3), id, Reply::Released { others_chosen: true });
    let id = attempt(&outputs, key);
    let outputs = reply(&mut node, ms(4), id, Reply::Granted { token: Token::new(11) });
    assert!(matches!(outputs[..], [Output::Notice(Notice::Acquired { .. })]), "{outputs:?}");
}

#[test]
fn a_release_that_the_store_does_not_answer_does_not_hold_up_the_next_candidate() {
    let (mut node, first) = holder();
    let next = node.acquire(ms(2), name("backup"), options()).expect("fine");
    node.release(ms(3), first).expect("known");
    let [Command::Release { id, .. }] = commands(&drain(&mut node))[..] else { panic!("a release") };
    let acquire = attempt(&reply(&mut node, ms(4), id, Reply::Failed(Failure::Unknown)), next);
    // It finds our own record; once that is gone it looks again at once.
    reply(&mut node, ms(5), acquire, BUSY);
    let again = loop {
        let Output::Wait(Some(at)) = node.poll() else { panic!("a release is due") };
        node.handle(at, Event::Timeout).expect("never misuse");
        let outputs = drain(&mut node);
        if let Some(Command::Release { id, .. }) = commands(&outputs).first() {
            break (at, *id);
        }
    };
    let outputs = reply(&mut node, again.0, again.1, Reply::Released { others_chosen: false });
    attempt(&outputs, next);
}

#[test]
fn after_a_loss_the_release_is_sent_before_the_next_campaign_which_has_an_owner_of_its_own() {
    let (mut node, first) = holder();
    let next = node.acquire(ms(2), name("backup"), options()).expect("fine");
    let Output::Wait(Some(at)) = node.poll() else { panic!("a renewal is due") };
    node.handle(at, Event::Timeout).expect("never misuse");
    let [Command::Renew { id, .. }] = commands(&drain(&mut node))[..] else { panic!("a renewal") };
    let outputs = reply(&mut node, at, id, Reply::NotYours);
    assert!(matches!(commands(&outputs)[..], [Command::StopWorkload { how: Stop::Hard, .. }]), "{outputs:?}");
    node.handle(at, Event::WorkloadExited { lease: first, exit: Exit::Completed }).expect("known");
    let [Command::Release { id, n, .. }] = commands(&drain(&mut node))[..] else { panic!("a release") };
    let outputs = reply(&mut node, at, id, Reply::NotYours);
    attempt(&outputs, next);
    assert!(acquisition(&outputs) > n);
}

#[test]
fn each_acquisition_has_its_own_owner() {
    let (mut node, first) = holder();
    node.release(ms(2), first).expect("known");
    let [Command::Release { id, n, .. }] = commands(&drain(&mut node))[..] else { panic!("a release") };
    reply(&mut node, ms(3), id, Reply::Released { others_chosen: false });
    node.acquire(ms(4), name("backup"), options()).expect("fine");
    let [Command::Acquire { n: next, floor, .. }] = commands(&drain(&mut node))[..] else {
        panic!("an attempt")
    };
    assert!(next > n);
    assert_ne!(node.owner(next), node.owner(n));
    assert_eq!(floor, Token::new(10), "also after everything about the first hold is forgotten");
}

#[test]
fn shutdown_ends_the_candidacies_drains_the_holds_and_takes_no_new_ones() {
    let (mut node, held) = holder();
    let queued = node.acquire(ms(2), name("backup"), options()).expect("fine");
    let other = node.acquire(ms(2), name("other"), options()).expect("fine");
    drain(&mut node);
    node.shutdown(ms(3));
    let outputs = drain(&mut node);
    let mut ended = failures(&outputs);
    ended.sort_by_key(|(key, _)| *key);
    assert_eq!(ended, [(queued, AcquireFailure::ShuttingDown), (other, AcquireFailure::ShuttingDown)]);
    let asked = |c: &Command| matches!(c, Command::DrainWorkload { lease, .. } if *lease == held);
    assert!(commands(&outputs).iter().any(asked), "{outputs:?}");
    let compensated =
        |c: &Command| matches!(c, Command::Release { lease, token: None, .. } if *lease == other);
    assert!(commands(&outputs).iter().any(compensated), "its request may have been granted: {outputs:?}");
    assert_eq!(node.acquire(ms(4), name("late"), options()), Err(Misuse::ShuttingDown));
}

#[test]
fn keys_and_ids_that_were_never_given_out_are_misuse_those_that_have_ended_are_not() {
    let (mut node, key) = holder();
    let before = node.clone();
    let unknown = LeaseKey(99);
    assert_eq!(node.release(ms(9), unknown), Err(Misuse::UnknownLease(unknown)));
    assert_eq!(node.drain(ms(9), unknown), Err(Misuse::UnknownLease(unknown)));
    let exited = Event::WorkloadExited { lease: unknown, exit: Exit::Completed };
    assert_eq!(node.handle(ms(9), exited), Err(Misuse::UnknownLease(unknown)));
    let id = CommandId { machine: 99, sequence: 0 };
    let event = Event::Reply { id, reply: GRANTED };
    assert_eq!(node.handle(ms(9), event), Err(Misuse::UnknownCommand(id)));
    assert_eq!(node, before);

    node.release(ms(2), key).expect("known");
    let [Command::Release { id, .. }] = commands(&drain(&mut node))[..] else { panic!("a release") };
    reply(&mut node, ms(3), id, Reply::Released { others_chosen: false });
    node.release(ms(4), key).expect("ended, but known");
    node.handle(ms(4), Event::WorkloadExited { lease: key, exit: Exit::Completed })
        .expect("ended, but known");
    node.handle(ms(4), Event::Reply { id, reply: Reply::NotYours }).expect("ended, but known");
    assert_eq!(node.counters().stale_replies, 1);
}

#[test]
fn renewals_of_many_leases_are_due_in_few_slots() {
    let mut node = node();
    for i in 0..1_000_u64 {
        let now = ms(i);
        node.acquire(now, name(&format!("lease-{i}")), options()).expect("fine");
        let outputs = drain(&mut node);
        for id in commands(&outputs).iter().filter_map(Command::id).collect::<Vec<_>>() {
            reply(&mut node, now, id, GRANTED);
        }
    }
    let dues: alloc::collections::BTreeSet<_> = node.deadlines.iter().map(|(at, _)| *at).collect();
    // A second of acquisitions, in slots of a sixteenth of the interval of 4.2 s.
    assert!(dues.len() <= 5, "{}", dues.len());
}

#[test]
fn one_due_item_comes_at_a_time_and_all_of_them_before_the_wait() {
    let mut node = node();
    for i in 0..100 {
        node.acquire(ms(0), name(&format!("lease-{i}")), options()).expect("fine");
    }
    for id in commands(&drain(&mut node)).iter().filter_map(Command::id).collect::<Vec<_>>() {
        reply(&mut node, ms(0), id, GRANTED);
    }
    let Output::Wait(Some(at)) = node.poll() else { panic!("renewals are due") };
    node.handle(at, Event::Timeout).expect("never misuse");
    assert_eq!(commands(&drain(&mut node)).len(), 100);
    assert!(matches!(node.poll(), Output::Wait(Some(next)) if next > at));
}

#[test]
fn the_same_seed_and_the_same_events_give_the_same_outputs() {
    let run = || {
        let (mut node, _) = waiter();
        let mut all = Vec::new();
        for _ in 0..50 {
            let Output::Wait(Some(at)) = node.poll() else { break };
            node.handle(at, Event::Timeout).expect("never misuse");
            all.extend(drain(&mut node));
        }
        (all, node)
    };
    assert_eq!(run(), run());
}

#[test]
fn time_that_runs_backwards_is_clamped_and_counted() {
    let (mut node, _) = holder();
    for now in [500, 500, 100] {
        node.handle(ms(now), Event::Timeout).expect("never misuse");
    }
    assert_eq!(node.counters(), Counters { clock_backwards: 1, stale_replies: 0 }, "standing still is fine");
    assert_eq!(node.now, ms(500));
}

#[test]
fn replies_that_nothing_waits_for_are_counted_each_once() {
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("not shutting down");
    let acquire = attempt(&drain(&mut node), key);
    let count = |node: &Node<SplitMix>| node.counters().stale_replies;
    reply(&mut node, ms(1), acquire, GRANTED);
    assert_eq!(count(&node), 0);
    reply(&mut node, ms(1), acquire, GRANTED);
    reply(&mut node, ms(1), acquire, GRANTED);
    assert_eq!(count(&node), 2);
    let (at, outputs) = wake(&mut node);
    let [Command::Renew { id: renew, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    node.release(at, key).expect("known");
    let release = release_of(&drain(&mut node), key);
    reply(&mut node, at, renew, Reply::Renewed);
    assert_eq!(count(&node), 3, "it is not held any more");
    reply(&mut node, at, release, Reply::Released { others_chosen: false });
    assert_eq!(count(&node), 3);
    reply(&mut node, at, release, Reply::Released { others_chosen: false });
    assert_eq!(count(&node), 4, "it is forgotten");
    assert_eq!(node.counters().clock_backwards, 0);
}

#[test]
fn what_there_is_can_be_asked_for_until_it_has_ended() {
    let mut node = node();
    assert!(node.is_empty());
    let text = Some("nightly".into());
    let key =
        node.acquire(ms(0), name("backup"), LeaseOptions { text, ..options() }).expect("not shutting down");
    node.start_worker(ms(0), name("work"), WorkerOptions::new(options())).expect("not shutting down");
    assert_eq!((node.len(), node.is_empty()), (2, false));
    assert_eq!(node.text(key).map(|text| &**text), Some("nightly"));
    let id = commands(&drain(&mut node))[0].id().expect("an attempt");
    assert_eq!(node.len(), 3, "the worker has a candidacy by now");
    reply(&mut node, ms(1), id, Reply::Failed(Failure::Refused));
    assert_eq!((node.len(), node.text(key)), (2, None));
}

#[test]
fn a_lease_stands_among_the_ready_once_and_only_if_it_has_something_to_say() {
    let (mut node, key) = holder();
    node.acquire(ms(2), name("backup"), options()).expect("fine");
    assert_eq!(node.ready, []);
    node.drain(ms(3), key).expect("known");
    node.release(ms(3), key).expect("known");
    assert_eq!(node.ready, [Machine::Lease(key)]);
}

#[test]
fn a_candidacy_goes_on_after_a_late_grant_even_if_its_release_fails_at_first() {
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("fine");
    let outputs = drain(&mut node);
    let (id, first) = (attempt(&outputs, key), acquisition(&outputs));
    let outputs = reply(&mut node, ms(14_000), id, GRANTED);
    let Some(Command::Release { id, .. }) = commands(&outputs).last().cloned() else { panic!("{outputs:?}") };
    reply(&mut node, ms(14_000), id, Reply::Failed(Failure::Unknown));
    let Output::Wait(Some(at)) = node.poll() else { panic!("the release is tried again") };
    node.handle(at, Event::Timeout).expect("never misuse");
    let [Command::Release { id, .. }] = commands(&drain(&mut node))[..] else { panic!("a release") };
    let outputs = reply(&mut node, at, id, Reply::Released { others_chosen: false });
    attempt(&outputs, key);
    assert_ne!(acquisition(&outputs), first, "it is another acquisition, with an owner of its own");
}

#[test]
fn shutdown_asks_the_store_for_nothing_on_behalf_of_those_who_queue() {
    let mut node = node();
    let keys: Vec<_> =
        (0..5).map(|_| node.acquire(ms(0), name("backup"), options()).expect("fine")).collect();
    attempt(&drain(&mut node), keys[0]);
    node.shutdown(ms(1));
    let outputs = drain(&mut node);
    assert_eq!(failures(&outputs).len(), 5);
    assert_eq!(commands(&outputs).len(), 2, "{outputs:?}");
    release_of(&outputs, keys[0]);
    assert!(commands(&outputs).contains(&Command::Unwatch { name: name("backup") }), "{outputs:?}");
}

/// The next wake-up is handled; what comes of it.
fn wake(node: &mut Node<SplitMix>) -> (Instant, Vec<Output>) {
    let Output::Wait(Some(at)) = node.poll() else { panic!("something is due") };
    node.handle(at, Event::Timeout).expect("never misuse");
    (at, drain(node))
}

#[test]
fn a_release_that_was_executed_though_its_answer_was_lost_still_wakes_our_next_candidate() {
    let (mut node, first) = holder();
    let next = node.acquire(ms(2), name("backup"), options()).expect("fine");
    node.release(ms(3), first).expect("known");
    let id = release_of(&drain(&mut node), first);
    let acquire = attempt(&reply(&mut node, ms(4), id, Reply::Failed(Failure::Unknown)), next);
    // It came before the release: the record of our own was still there.
    reply(&mut node, ms(5), acquire, BUSY);
    let (at, outputs) = wake(&mut node);
    let id = release_of(&outputs, first);
    reply(&mut node, at, id, Reply::NotYours);
    let (soon, outputs) = wake(&mut node);
    attempt(&outputs, next);
    assert!(soon <= at + Duration::from_millis(200), "{soon:?}");
}

#[test]
fn a_late_release_that_woke_others_leaves_them_a_start_too() {
    let (mut node, first) = holder();
    let next = node.acquire(ms(2), name("backup"), options()).expect("fine");
    node.release(ms(3), first).expect("known");
    let id = release_of(&drain(&mut node), first);
    let acquire = attempt(&reply(&mut node, ms(4), id, Reply::Failed(Failure::Unknown)), next);
    reply(&mut node, ms(5), acquire, BUSY);
    let (at, outputs) = wake(&mut node);
    let id = release_of(&outputs, first);
    assert_eq!(commands(&reply(&mut node, at, id, Reply::Released { others_chosen: true })), []);
    let (soon, outputs) = wake(&mut node);
    attempt(&outputs, next);
    assert!(soon >= at + Duration::from_millis(5) && soon <= at + Duration::from_millis(200), "{soon:?}");
}

#[test]
fn a_try_behind_a_late_grant_that_the_store_does_not_take_back_is_told_so() {
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("fine");
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, ms(14_000), id, GRANTED);
    let id = release_of(&outputs, key);
    let impatient = node.acquire(ms(14_000), name("backup"), no_wait()).expect("fine");
    assert_eq!(drain(&mut node), []);
    let outputs = reply(&mut node, ms(14_001), id, Reply::Failed(Failure::Unknown));
    assert_eq!(failures(&outputs), [(impatient, AcquireFailure::Unreachable)]);
}

#[test]
fn at_the_end_of_time_nothing_is_due_any_more() {
    for end in [Instant::MAX, Instant::from_nanos(u64::MAX - 1)] {
        let (mut node, held) = holder();
        let waiting = node.acquire(ms(2), name("other"), options()).expect("fine");
        let id = attempt(&drain(&mut node), waiting);
        node.handle(end, Event::Timeout).expect("never misuse");
        let mut outputs = Vec::new();
        for _ in 0..100 {
            match node.poll() {
                Output::Wait(at) => {
                    assert!(at.is_none_or(|at| at > end));
                    break;
                }
                output => outputs.push(output),
            }
        }
        assert!(outputs.len() < 20, "{outputs:?}");
        assert_eq!(node.valid(end, held), None);
        reply(&mut node, end, id, BUSY);
        node.release(end, held).expect("known");
        node.release(end, waiting).expect("known");
        drain(&mut node);
    }
}
