//! What one candidate leaves to the next.

use super::*;

fn acquire(node: &mut Node<SplitMix>, now: Instant) -> LeaseKey {
    node.acquire(now, name("backup"), options()).expect("not shutting down")
}

#[test]
fn the_next_candidate_demands_a_token_above_those_that_the_one_before_heard_of() {
    let mut node = node();
    let first = acquire(&mut node, ms(0));
    acquire(&mut node, ms(0));
    let id = attempt(&drain(&mut node), first);
    reply(&mut node, ms(1), id, Reply::Held { token: Some(Token::new(20)), remaining: None });
    node.release(ms(2), first).expect("known");
    let outputs = drain(&mut node);
    assert!(
        matches!(commands(&outputs)[..], [Command::Acquire { floor, .. }] if floor == Token::new(20)),
        "{outputs:?}"
    );
}

#[test]
fn a_start_is_left_to_others_once_for_each_release() {
    let (mut node, first) = holder();
    let next = acquire(&mut node, ms(2));
    node.release(ms(3), first).expect("known");
    let id = release_of(&drain(&mut node), first);
    reply(&mut node, ms(4), id, Reply::Released { others_chosen: true });
    let (at, outputs) = wake(&mut node);
    let id = attempt(&outputs, next);
    let late = at + Duration::from_secs(14);
    let outputs = reply(&mut node, late, id, Reply::Granted { token: Token::new(11) });
    let id = release_of(&outputs, next);
    let outputs = reply(&mut node, late, id, Reply::Released { others_chosen: false });
    attempt(&outputs, next);
}

#[test]
fn whoever_got_the_lease_is_no_waiter_to_be_forgotten() {
    let mut node = node();
    let key = acquire(&mut node, ms(0));
    let id = attempt(&drain(&mut node), key);
    let outputs = reply(&mut node, ms(1), id, BUSY);
    let [Command::Watch { id: watch, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    reply(&mut node, ms(2), watch, Reply::Failed(Failure::Refused));
    let (at, outputs) = wake(&mut node);
    let id = attempt(&outputs, key);
    assert_eq!(commands(&reply(&mut node, at, id, GRANTED)), []);
    node.release(at, key).expect("known");
    let id = release_of(&drain(&mut node), key);
    assert_eq!(commands(&reply(&mut node, at, id, Reply::Released { others_chosen: false })), []);
    assert!(node.is_empty());
}

#[test]
fn whoever_waits_too_long_for_its_turn_is_told_whether_the_store_is_the_reason() {
    let limited = || LeaseOptions { wait: WaitLimit::AtMost(Duration::from_secs(3)), ..options() };
    let (mut node, _) = holder();
    let key = node.acquire(ms(0), name("backup"), limited()).expect("fine");
    node.handle(ms(3_001), Event::Timeout).expect("never misuse");
    assert_eq!(failures(&drain(&mut node)), [(key, AcquireFailure::Busy)]);

    let mut node = self::node();
    acquire(&mut node, ms(0));
    let key = node.acquire(ms(0), name("backup"), limited()).expect("fine");
    drain(&mut node);
    let mut failed = Vec::new();
    while failed.is_empty() {
        // Nothing is answered.
        failed = failures(&wake(&mut node).1);
    }
    assert_eq!(failed, [(key, AcquireFailure::Unreachable)]);
    assert_eq!(node.now, ms(3_000));
}
