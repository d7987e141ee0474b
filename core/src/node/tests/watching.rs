//! Which names are watched, and what hints bring about.

use super::*;

#[test]
fn an_uncontended_lease_costs_one_request_and_no_watch() {
    let (mut node, key) = holder();
    node.release(ms(2), key).expect("known");
    let outputs = drain(&mut node);
    let [Command::Release { id, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    let outputs = reply(&mut node, ms(3), id, Reply::Released { others_chosen: false });
    assert_eq!(commands(&outputs), []);
    assert!(node.is_empty() && node.slots.is_empty() && node.names.is_empty() && node.deadlines.is_empty());
}

#[test]
fn a_watch_begins_with_the_first_refusal_looks_again_once_and_ends_with_the_last_waiter() {
    let (mut node, key) = waiter();
    node.release(ms(9), key).expect("known");
    let outputs = drain(&mut node);
    assert_eq!(commands(&outputs), [Command::Unwatch { name: name("backup") }]);
    assert!(node.is_empty() && node.slots.is_empty() && node.watched.is_empty());
}

#[test]
fn a_watch_ends_when_the_lease_is_won_and_nobody_else_waits() {
    let (mut node, key) = waiter();
    node.handle(ms(5), Event::Hint { name: name("backup"), wake: Wake::Free { chosen: true } })
        .expect("fine");
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, ms(6), id, GRANTED);
    assert_eq!(commands(&outputs), [Command::Unwatch { name: name("backup") }]);
}

#[test]
fn a_watch_goes_on_when_the_lease_is_won_while_others_queue_behind_the_winner() {
    let (mut node, key) = waiter();
    let queued = node.acquire(ms(4), name("backup"), options()).expect("fine");
    node.handle(ms(5), Event::Hint { name: name("backup"), wake: Wake::Free { chosen: true } })
        .expect("fine");
    let id = attempt(&drain(&mut node), key);
    assert_eq!(commands(&reply(&mut node, ms(6), id, GRANTED)), []);
    node.release(ms(7), queued).expect("known");
    assert_eq!(commands(&drain(&mut node)), [Command::Unwatch { name: name("backup") }]);
}

#[test]
fn a_store_without_hints_is_asked_for_a_watch_once() {
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("fine");
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, ms(1), id, BUSY);
    let [Command::Watch { id: watch, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    reply(&mut node, ms(2), watch, Reply::Failed(Failure::Refused));
    let Output::Wait(Some(at)) = node.poll() else { panic!("it looks again when the TTL is over") };
    assert!(at > ms(9_001) && at <= ms(9_102), "{at:?}");
    node.handle(at, Event::Timeout).expect("never misuse");
    let id = attempt(&drain(&mut node), key);
    assert_eq!(commands(&reply(&mut node, at, id, BUSY)), []);
}

#[test]
fn a_watch_that_failed_is_asked_for_again_with_the_next_refusal() {
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("fine");
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, ms(1), id, BUSY);
    let [Command::Watch { id: watch, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    reply(&mut node, ms(2), watch, Reply::Failed(Failure::NotExecuted));
    let Output::Wait(Some(at)) = node.poll() else { panic!("it looks again") };
    node.handle(at, Event::Timeout).expect("never misuse");
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, at, id, BUSY);
    assert!(matches!(commands(&outputs)[..], [Command::Watch { .. }]), "{outputs:?}");
}

#[test]
fn after_a_resync_every_waiter_looks_for_itself_spread_over_a_while() {
    let mut node = node();
    for i in 0..50 {
        node.acquire(ms(0), name(&format!("lease-{i}")), options()).expect("fine");
    }
    let mut outputs = drain(&mut node);
    for round in 1..4 {
        for command in commands(&outputs).iter().filter_map(Command::id).collect::<Vec<_>>() {
            let is_watch = node.slots.contains_key(&command.machine);
            let answer = if is_watch { Reply::Watching } else { BUSY };
            node.handle(ms(round), Event::Reply { id: command, reply: answer }).expect("fits");
        }
        outputs = drain(&mut node);
    }
    assert_eq!(commands(&outputs), [], "all of them wait");
    assert!(node.slots.values().all(|slot| slot.watch == Watch::On));
    node.handle(ms(10), Event::Resync).expect("never misuse");
    assert_eq!(commands(&drain(&mut node)), []);
    let mut tries = Vec::new();
    while let Output::Wait(Some(at)) = node.poll() {
        if at > ms(300) {
            break;
        }
        node.handle(at, Event::Timeout).expect("never misuse");
        tries.extend(commands(&drain(&mut node)).into_iter().map(|command| (at, command)));
    }
    assert_eq!(tries.len(), 50);
    assert!(tries.iter().all(|(at, _)| *at >= ms(15) && *at <= ms(211)));
}

#[test]
fn hints_for_names_that_nobody_waits_for_are_ignored() {
    let (mut node, _) = holder();
    let before = node.clone();
    for text in ["backup", "other"] {
        node.handle(ms(1), Event::Hint { name: name(text), wake: Wake::Free { chosen: true } })
            .expect("fine");
        assert_eq!(drain(&mut node), []);
    }
    assert_eq!(node, before);
}

#[test]
fn a_try_behind_one_who_leaves_others_a_start_is_told_busy_and_no_watch_cuts_the_start_short() {
    let (mut node, first) = holder();
    let next = node.acquire(ms(2), name("backup"), options()).expect("fine");
    node.release(ms(3), first).expect("known");
    let id = release_of(&drain(&mut node), first);
    assert_eq!(commands(&reply(&mut node, ms(4), id, Reply::Released { others_chosen: true })), []);
    let key = node.acquire(ms(5), name("backup"), no_wait()).expect("fine");
    let outputs = drain(&mut node);
    assert_eq!(failures(&outputs), [(key, AcquireFailure::Busy)], "the store was in no trouble");
    assert_eq!(commands(&outputs), []);
    // One of the others took it: there is nothing to try for.
    let wake = Wake::Held { token: Token::new(11), ttl: Duration::from_secs(15) };
    node.handle(ms(6), Event::Hint { name: name("backup"), wake }).expect("fine");
    drain(&mut node);
    let Output::Wait(Some(at)) = node.poll() else { panic!("it looks again") };
    assert!(at > ms(15_000), "{at:?}");
    assert_eq!(node.name(next), Some(&name("backup")));
}

#[test]
fn a_watch_whose_outcome_is_unknown_is_given_up_too() {
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("fine");
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, ms(1), id, BUSY);
    let [Command::Watch { id: watch, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    reply(&mut node, ms(2), watch, Reply::Failed(Failure::Unknown));
    let (at, outputs) = wake(&mut node);
    let id = attempt(&outputs, key);
    let outputs = reply(&mut node, at, id, GRANTED);
    assert_eq!(commands(&outputs), [Command::Unwatch { name: name("backup") }]);
}

#[test]
fn the_answer_to_an_older_watch_says_nothing_of_a_newer_one() {
    // Old watch reply with a new sequence.
    let mut node = node();
    let key = node.acquire(ms(0), name("backup"), options()).expect("fine");
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, ms(1), id, BUSY);
    let [Command::Watch { id: first, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    // The name stays known: another candidate lingers.
    let other = node.acquire(ms(1), name("backup"), options()).expect("fine");
    node.release(ms(2), key).expect("known");
    let outputs = drain(&mut node);
    let id = attempt(&outputs, other);
    let outputs = reply(&mut node, ms(3), id, GRANTED);
    assert_eq!(commands(&outputs), [Command::Unwatch { name: name("backup") }]);
    node.release(ms(4), other).expect("known");
    let id = release_of(&drain(&mut node), other);
    let third = node.acquire(ms(4), name("backup"), options()).expect("fine");
    let id = attempt(&reply(&mut node, ms(5), id, Reply::Released { others_chosen: false }), third);
    let outputs = reply(&mut node, ms(6), id, BUSY);
    let [Command::Watch { id: second, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    assert_ne!(first, second);
    let before = node.clone();
    assert_eq!(reply(&mut node, ms(6), first, Reply::Watching), []);
    assert_eq!(reply(&mut node, ms(6), first, Reply::Failed(Failure::Refused)), []);
    assert_eq!(node, before, "an answer to an older watch says nothing of this one");
    assert_eq!(node.counters().stale_replies, 2);
    attempt(&reply(&mut node, ms(7), second, Reply::Watching), third);
}
