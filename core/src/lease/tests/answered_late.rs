//! What the answers to earlier requests change, and what they leave alone.

use super::*;

/// A candidate whose first attempt took too long and whose second one is under way.
fn two_attempts() -> (Bench, Instant, [CommandId; 2]) {
    let mut bench = Bench::new(options());
    let first = bench.campaign(ms(0), Token::ZERO);
    bench.timeout(bench.wait.expect("a timeout"));
    let now = bench.wait.expect("again");
    let second = attempt(&bench.timeout(now));
    (bench, now, [first, second])
}

#[test]
fn a_refusal_or_a_failure_of_an_earlier_attempt_leaves_the_one_under_way_alone() {
    let (unknown, not_executed) = (Failure::Unknown, Failure::NotExecuted);
    for late in [busy(9_000), Reply::Failed(unknown), Reply::Failed(not_executed)] {
        let (mut bench, now, [first, second]) = two_attempts();
        let wait = bench.wait;
        assert_eq!(bench.reply(now, first, late), []);
        assert_eq!((bench.lease.phase(), bench.wait), (Phase::Deciding, wait), "{late:?}");
        bench.reply(now, second, Reply::Granted { token: token(10) });
        assert_eq!(bench.lease.valid(now), Some(token(10)), "{late:?}");
    }
}

#[test]
fn a_slow_attempt_that_turns_out_not_to_have_been_executed_leaves_nothing_to_give_back() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    let now = bench.wait.expect("a timeout");
    bench.timeout(now);
    assert_eq!(bench.reply(now, id, Reply::Failed(Failure::NotExecuted)), []);
    let outputs = bench.end(now);
    assert_eq!(commands(&outputs), [] as [&Command; 0]);
    assert_eq!(notices(&outputs).last(), Some(&&Notice::Ended { lease: KEY }));
}

#[test]
fn a_lease_that_nobody_wants_ends_once_its_last_attempt_cannot_be_granted_any_more() {
    let mut bench = Bench::new(options());
    let acquire = bench.campaign(ms(0), Token::ZERO);
    let (id, _) = release(&bench.end(ms(1)));
    assert_eq!(bench.reply(ms(2), id, Reply::NotYours), [], "a grant may still come");
    let outputs = bench.reply(ms(3), acquire, Reply::Failed(Failure::Unknown));
    assert_eq!(outputs, [Output::Notice(Notice::Ended { lease: KEY })]);
    assert_eq!(bench.lease.stale_replies(), 1);
}

#[test]
fn another_grant_is_given_back_if_it_came_after_the_one_that_is_held_or_lost() {
    for lost in [false, true] {
        let (mut bench, mut now, [first, second]) = two_attempts();
        bench.reply(now, second, Reply::Granted { token: token(10) });
        if lost {
            now = bench.wait.expect("a renewal is due");
            let id = renewal(&bench.timeout(now));
            bench.reply(now, id, Reply::NotYours);
        }
        for (granted, given_back) in [(9, false), (10, false), (11, true)] {
            let mut bench = Bench { lease: bench.lease.clone(), wait: bench.wait };
            let valid = bench.lease.valid(now);
            let outputs = bench.reply(now, first, Reply::Granted { token: token(granted) });
            if given_back {
                assert_eq!(release(&outputs).1, Some(token(granted)));
            } else {
                assert_eq!(outputs, []);
            }
            assert_eq!(bench.lease.stale_replies(), u64::from(!given_back), "lost: {lost}, {granted}");
            assert_eq!(bench.lease.valid(now), valid);
        }
    }
}

#[test]
fn a_grant_to_an_earlier_acquisition_is_given_back_beside_the_release_under_way() {
    let (mut bench, now, [first, second]) = two_attempts();
    let now = now + Duration::from_secs(13);
    let outputs = bench.reply(now, second, Reply::Granted { token: token(10) });
    let (id, _) = release(&outputs[outputs.len() - 1..]);
    bench.reply(now, id, Reply::Released { others_chosen: false });
    bench.lease.campaign(now, Acquisition(2), Token::ZERO, false);
    let outputs = bench.drain();
    let [Command::Acquire { id, .. }] = commands(&outputs)[..] else { panic!("a new acquisition") };
    bench.reply(now, *id, Reply::Granted { token: token(11) });
    let (id, _) = release(&bench.end(now));
    let outputs = bench.reply(now, first, Reply::Granted { token: token(12) });
    assert!(matches!(commands(&outputs)[..], [Command::Release { n: N, .. }]), "{outputs:?}");
    assert_eq!(release(&outputs).1, Some(token(12)));
    let outputs = bench.reply(now, id, Reply::Released { others_chosen: false });
    assert_eq!(
        notices(&outputs),
        [&Notice::Released { lease: KEY, outcome: ReleaseOutcome::Released }, &Notice::Ended { lease: KEY }]
    );
}

#[test]
fn the_failure_of_an_earlier_renewal_leaves_the_one_under_way_alone() {
    let mut bench = held(options());
    let first = renewal(&bench.timeout(bench.wait.expect("a renewal is due")));
    bench.timeout(bench.wait.expect("a timeout"));
    let now = bench.wait.expect("again");
    let second = renewal(&bench.timeout(now));
    let wait = bench.wait;
    assert_eq!(bench.reply(now, first, Reply::Failed(Failure::Unknown)), []);
    assert_eq!(bench.wait, wait);
    bench.reply(now, second, Reply::Renewed);
    assert_eq!(bench.lease.deadlines().map(|d| d.valid_until), Some(now + timing().valid_for()));
}

#[test]
fn the_failure_of_an_earlier_release_leaves_the_one_under_way_alone() {
    let mut bench = held(options());
    let (first, _) = release(&bench.end(ms(100)));
    bench.timeout(bench.wait.expect("a timeout"));
    let now = bench.wait.expect("again");
    release(&bench.timeout(now));
    let wait = bench.wait;
    assert_eq!(bench.reply(now, first, Reply::Failed(Failure::Unknown)), []);
    assert_eq!(bench.wait, wait);
}
