//! Asking, waiting, giving up.

use super::*;

fn no_wait() -> LeaseOptions {
    LeaseOptions { wait: WaitLimit::No, ..options() }
}

/// S2.
#[test]
fn validity_is_counted_from_the_emission_of_the_request_never_from_the_reply() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(1_000), Token::ZERO);
    let outputs = bench.reply(ms(2_900), id, Reply::Granted { token: token(10) });
    let valid_until = ms(1_000) + timing().valid_for();
    let [Notice::Acquired { token: granted, deadlines, .. }] = notices(&outputs)[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!(*granted, token(10));
    assert_eq!(deadlines.valid_until, valid_until);
    assert_eq!(deadlines.fence_at, valid_until.saturating_sub(Duration::from_secs(2)));
    assert_eq!(deadlines.kill_at, valid_until.saturating_sub(Duration::from_millis(250)));
}

/// S2, S8.
#[test]
fn a_grant_to_an_older_attempt_counts_with_that_attempts_emission() {
    let mut bench = Bench::new(options());
    let first = bench.campaign(ms(0), Token::ZERO);
    let timeout = bench.wait.expect("the attempt has a timeout");
    let outputs = bench.timeout(timeout);
    assert_eq!(
        notices(&outputs),
        [&Notice::Retrying { lease: KEY, failure: Failure::Unknown }],
        "only a failure is reported, nothing is decided"
    );
    let again = bench.wait.expect("it is tried again");
    let second = attempt(&bench.timeout(again));
    assert_ne!(first, second, "ids are never used again");
    bench.reply(again, first, Reply::Granted { token: token(10) });
    let deadlines = bench.lease.deadlines().expect("held");
    assert_eq!(deadlines.valid_until, ms(0) + timing().valid_for());
}

#[test]
fn a_slow_store_whose_every_answer_comes_after_the_timeout_still_gets_a_holder() {
    let mut bench = Bench::new(options());
    let first = bench.campaign(ms(0), Token::ZERO);
    let timeout = bench.wait.expect("a timeout");
    bench.timeout(timeout);
    let outputs = bench.reply(timeout + Duration::from_millis(1), first, Reply::Granted { token: token(10) });
    assert!(matches!(notices(&outputs)[..], [Notice::Acquired { .. }]), "{outputs:?}");
}

#[test]
fn a_slow_refusal_counts_too_so_that_a_slow_store_is_not_hammered() {
    let mut bench = Bench::new(options());
    let first = bench.campaign(ms(0), Token::ZERO);
    let timeout = bench.wait.expect("a timeout");
    bench.timeout(timeout);
    bench.reply(timeout + Duration::from_millis(1), first, busy(9_000));
    let wait = bench.wait.expect("it looks again");
    assert!(wait >= timeout + Duration::from_millis(9_001), "{wait:?}");
}

/// S8.
#[test]
fn a_second_answer_is_dropped_and_counted() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, Reply::Granted { token: token(10) });
    let before = bench.lease.clone();
    assert_eq!(bench.reply(ms(1), id, Reply::Granted { token: token(11) }), []);
    assert_eq!(bench.lease, before);
    assert_eq!(bench.lease.stale_replies(), 1);
}

/// S3.
#[test]
fn a_grant_that_comes_after_its_fence_is_given_back_and_reported() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.timeout(bench.wait.expect("a timeout"));
    let late = ms(0) + timing().valid_for().saturating_sub(timing().stop_budget());
    bench.lease.handle(late, Event::Reply { id, reply: Reply::Granted { token: token(10) } }).expect("fits");
    let outputs = bench.drain();
    assert!(
        notices(&outputs).contains(&&Notice::GrantedTooLate { lease: KEY, token: token(10) }),
        "{outputs:?}"
    );
    let released = commands(&outputs).iter().any(
        |command| matches!(command, Command::Release { n: N, token: Some(with), .. } if *with == token(10)),
    );
    assert!(released, "{outputs:?}");
    assert_eq!(bench.lease.valid(late), None);
}

#[test]
fn after_a_grant_that_came_too_late_the_candidacy_goes_on_with_a_new_acquisition() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    let outputs = bench.reply(ms(14_000), id, Reply::Granted { token: token(10) });
    let (release, _) = release(&outputs[outputs.len() - 1..]);
    bench.reply(ms(14_001), release, Reply::Released { others_chosen: false });
    assert_eq!(bench.lease.phase(), Phase::Idle);
    bench.lease.campaign(ms(14_002), Acquisition(2), Token::ZERO, false);
    let outputs = bench.drain();
    assert!(
        matches!(commands(&outputs)[..], [Command::Acquire { n: Acquisition(2), floor, .. }] if *floor == token(10)),
        "{outputs:?}"
    );
}

/// S6.
#[test]
fn a_grant_that_is_not_above_the_floor_is_given_back_as_store_regressed() {
    for granted in [19, 20] {
        let mut bench = Bench::new(options());
        let id = bench.campaign(ms(0), token(20));
        let outputs = bench.reply(ms(1), id, Reply::Granted { token: token(granted) });
        let why = AcquireFailure::StoreRegressed { token: token(granted), floor: token(20) };
        assert_eq!(notices(&outputs), [&Notice::Failed { lease: KEY, why }]);
        assert_eq!(release(&outputs).1, Some(token(granted)));
        assert_eq!(bench.lease.valid(ms(1)), None);
    }
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), token(20));
    bench.reply(ms(1), id, Reply::Granted { token: token(21) });
    assert_eq!(bench.lease.valid(ms(1)), Some(token(21)));
}

#[test]
fn the_floor_rises_with_the_tokens_of_other_holders() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), token(3));
    bench.reply(ms(1), id, busy(100));
    let outputs = bench.timeout(bench.wait.expect("it looks again"));
    assert!(
        matches!(commands(&outputs)[..], [Command::Acquire { floor, .. }] if *floor == token(5)),
        "{outputs:?}"
    );
}

#[test]
fn a_waiter_sleeps_until_the_remaining_ttl_is_over_and_then_spreads() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    let outputs = bench.reply(ms(10), id, busy(4_000));
    assert!(matches!(notices(&outputs)[..], [Notice::Waiting { .. }]), "{outputs:?}");
    let wait = bench.wait.expect("it looks again");
    assert!(wait > ms(4_010), "never early: {wait:?}");
    assert!(wait <= ms(4_111), "within the spread: {wait:?}");
    attempt(&bench.timeout(wait));
}

#[test]
fn a_chosen_waiter_tries_at_once_and_only_once() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, busy(9_000));
    attempt(&bench.hint(ms(50), Wake::Free { chosen: true }));
    assert_eq!(bench.hint(ms(51), Wake::Free { chosen: true }), [], "one request at a time");
}

#[test]
fn an_unchosen_waiter_leaves_the_chosen_a_start_and_stands_back_when_the_lease_is_taken() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, busy(9_000));
    assert_eq!(bench.hint(ms(50), Wake::Free { chosen: false }), []);
    let nudge = bench.wait.expect("it tries soon");
    assert!(nudge >= ms(55) && nudge <= ms(250), "{nudge:?}");
    bench.hint(ms(52), Wake::Held { token: token(6), ttl: Duration::from_secs(15) });
    let wait = bench.wait.expect("it sleeps until that one is over");
    assert!(wait > ms(15_052), "{wait:?}");
    assert_eq!(bench.timeout(nudge), []);
}

#[test]
fn many_waiters_do_not_come_at_the_same_time() {
    let (mut expiry, mut release) = (Vec::new(), Vec::new());
    for seed in 0..100 {
        let lease = Lease::new(ms(0), KEY, options(), SplitMix::new(seed));
        let mut bench = Bench { lease, wait: None };
        let id = bench.campaign(ms(0), Token::ZERO);
        bench.reply(ms(1), id, busy(9_000));
        expiry.extend(bench.wait);
        bench.hint(ms(50), Wake::Free { chosen: false });
        release.extend(bench.wait);
    }
    // The spread is 40 ms after an expiry and 195 ms after a release.
    for (mut times, spread) in [(expiry, 32), (release, 150)] {
        times.sort_unstable();
        assert!(times[99].saturating_since(times[0]) >= Duration::from_millis(spread), "{times:?}");
        let crowd =
            times.windows(20).any(|some| some[19].saturating_since(some[0]) < Duration::from_millis(1));
        assert!(!crowd, "{times:?}");
    }
}

#[test]
fn repeated_hints_do_not_put_an_unchosen_waiter_off() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, busy(9_000));
    bench.hint(ms(50), Wake::Free { chosen: false });
    let nudge = bench.wait;
    bench.hint(ms(51), Wake::Free { chosen: false });
    assert_eq!(bench.wait, nudge);
}

#[test]
fn a_hint_is_no_evidence_a_false_one_delays_by_no_more_than_our_own_ttl() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, busy(1_000));
    bench.hint(ms(2), Wake::Held { token: token(6), ttl: Duration::from_secs(1_000_000) });
    let wait = bench.wait.expect("it looks again");
    assert!(wait <= ms(2) + timing().ttl() + Duration::from_millis(101), "{wait:?}");
}

#[test]
fn a_release_between_the_refusal_and_its_answer_is_not_missed() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    assert_eq!(bench.hint(ms(1), Wake::Free { chosen: true }), []);
    let outputs = bench.reply(ms(2), id, busy(9_000));
    attempt(&outputs);
}

#[test]
fn a_store_that_cannot_say_how_long_is_asked_again_after_our_ttl() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(0), id, Reply::Held { token: None, remaining: None });
    let wait = bench.wait.expect("it looks again");
    assert!(wait > ms(15_000) && wait <= ms(15_101), "{wait:?}");
}

#[test]
fn a_huge_remaining_ttl_neither_overflows_nor_is_awaited_for_ever() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(0), id, Reply::Held { token: None, remaining: Some(Duration::MAX) });
    let wait = bench.wait.expect("it looks again");
    assert!(wait <= ms(0) + LeaseConfig::MAX_TTL + Duration::from_millis(101));
}

#[test]
fn retries_back_off_with_fresh_jitter_and_a_bound() {
    let mut bench = Bench::new(options());
    let mut id = bench.campaign(ms(0), Token::ZERO);
    let mut now = ms(0);
    let mut delays = Vec::new();
    for _ in 0..12 {
        bench.reply(now, id, Reply::Failed(Failure::NotExecuted));
        let next = bench.wait.expect("it tries again");
        delays.push(next.saturating_since(now));
        now = next;
        id = attempt(&bench.timeout(now));
    }
    assert!(delays[0] >= timing().attempt_timeout() / 32, "{delays:?}");
    let (first, last) = delays.split_at(6);
    assert!(last.iter().all(|delay| delay > &first[0]), "{delays:?}");
    assert!(last.iter().all(|delay| *delay <= timing().attempt_timeout()), "{delays:?}");
    let different: alloc::collections::BTreeSet<_> = last.iter().collect();
    assert_eq!(different.len(), last.len(), "jitter is drawn for each retry");
}

#[test]
fn one_try_is_one_try_and_the_verdict_tells_busy_from_unreachable_from_refused() {
    for (reply, why) in [
        (busy(1_000), AcquireFailure::Busy),
        (Reply::Failed(Failure::NotExecuted), AcquireFailure::Unreachable),
        (Reply::Failed(Failure::Refused), AcquireFailure::Refused),
    ] {
        let mut bench = Bench::new(no_wait());
        let id = bench.campaign(ms(0), Token::ZERO);
        let outputs = bench.reply(ms(1), id, reply);
        assert_eq!(
            notices(&outputs),
            [&Notice::Failed { lease: KEY, why }, &Notice::Ended { lease: KEY }],
            "and nothing is left to give back"
        );
        assert_eq!(commands(&outputs), [] as [&Command; 0]);
    }
}

#[test]
fn a_try_whose_outcome_is_unknown_is_followed_by_a_release_for_its_owner() {
    let mut bench = Bench::new(no_wait());
    let id = bench.campaign(ms(0), Token::ZERO);
    let outputs = bench.reply(ms(1), id, Reply::Failed(Failure::Unknown));
    assert_eq!(notices(&outputs), [&Notice::Failed { lease: KEY, why: AcquireFailure::Unreachable }]);
    assert_eq!(release(&outputs).1, None, "by the owner alone: no token is known");
}

#[test]
fn the_wait_limit_ends_the_candidacy_with_what_was_last_known() {
    let limited = LeaseOptions { wait: WaitLimit::AtMost(Duration::from_secs(3)), ..options() };
    let mut bench = Bench::new(limited.clone());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, busy(9_000));
    assert_eq!(bench.wait, Some(ms(3_000)));
    let outputs = bench.timeout(ms(3_000));
    assert_eq!(notices(&outputs)[0], &Notice::Failed { lease: KEY, why: AcquireFailure::Busy });

    let mut bench = Bench::new(limited.clone());
    bench.campaign(ms(0), Token::ZERO);
    let all = bench.run_until(ms(3_000));
    let failed = all.iter().find(|(_, output)| matches!(output, Output::Notice(Notice::Failed { .. })));
    let unreachable = Output::Notice(Notice::Failed { lease: KEY, why: AcquireFailure::Unreachable });
    assert_eq!(failed, Some(&(ms(3_000), unreachable)));

    let mut queued = Bench::new(limited);
    queued.drain();
    let outputs = queued.timeout(ms(3_000));
    assert_eq!(notices(&outputs)[0], &Notice::Failed { lease: KEY, why: AcquireFailure::Busy });
}

#[test]
fn giving_up_while_a_request_is_under_way_releases_and_gives_back_a_grant_that_lands_later() {
    let mut bench = Bench::new(options());
    let acquire = bench.campaign(ms(0), Token::ZERO);
    let outputs = bench.end(ms(1));
    assert_eq!(notices(&outputs), [&Notice::Failed { lease: KEY, why: AcquireFailure::GivenUp }]);
    let (first, without) = release(&outputs);
    assert_eq!(without, None);
    // The release was executed before the acquisition landed.
    bench.reply(ms(2), first, Reply::NotYours);
    let outputs = bench.reply(ms(3), acquire, Reply::Granted { token: token(10) });
    let (second, with) = release(&outputs);
    assert_eq!(with, Some(token(10)));
    let outputs = bench.reply(ms(4), second, Reply::Released { others_chosen: false });
    assert_eq!(notices(&outputs), [&Notice::Ended { lease: KEY }]);
    assert_eq!(bench.wait, None);
}

#[test]
fn giving_up_while_nothing_can_be_at_the_store_ends_at_once() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, busy(9_000));
    let outputs = bench.end(ms(2));
    assert_eq!(commands(&outputs), [] as [&Command; 0]);
    assert_eq!(notices(&outputs).last(), Some(&&Notice::Ended { lease: KEY }));
}

#[test]
fn a_reply_that_the_command_cannot_have_is_misuse_and_changes_nothing() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    let before = bench.lease.clone();
    for reply in [Reply::Renewed, Reply::Released { others_chosen: false }, Reply::NotYours, Reply::Watching]
    {
        let result = bench.lease.handle(ms(60_000), Event::Reply { id, reply });
        assert_eq!(result, Err(Misuse::WrongReply { id, reply }));
        assert_eq!(bench.lease, before);
    }
    let unknown = CommandId { machine: KEY.0, sequence: 99 };
    let result = bench.lease.handle(ms(0), Event::Reply { id: unknown, reply: Reply::Renewed });
    assert_eq!(result, Err(Misuse::UnknownCommand(unknown)));
    assert_eq!(bench.lease, before);
}

#[test]
fn giving_up_while_a_late_grant_goes_back_ends_the_candidacy() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    let outputs = bench.reply(ms(14_000), id, Reply::Granted { token: token(10) });
    let (release, _) = release(&outputs[outputs.len() - 1..]);
    assert_eq!(
        notices(&bench.end(ms(14_001))),
        [&Notice::Failed { lease: KEY, why: AcquireFailure::GivenUp }]
    );
    let outputs = bench.reply(ms(14_002), release, Reply::Released { others_chosen: false });
    assert_eq!(notices(&outputs), [&Notice::Ended { lease: KEY }]);
}

/// S9.
#[test]
fn a_late_answer_to_an_older_attempt_gives_nothing_of_the_newer_grant_back() {
    let mut bench = Bench::new(options());
    let first = bench.campaign(ms(0), Token::ZERO);
    bench.timeout(bench.wait.expect("a timeout"));
    let again = bench.wait.expect("again");
    let second = attempt(&bench.timeout(again));
    bench.reply(again, second, Reply::Granted { token: token(10) });
    assert_eq!(bench.reply(again, first, Reply::Granted { token: token(9) }), []);
    assert_eq!(bench.lease.valid(again), Some(token(10)));
}

#[test]
fn a_refusal_of_an_older_acquisition_because_of_the_newer_one_is_no_regress_of_the_store() {
    let mut bench = Bench::new(options());
    let old = bench.campaign(ms(0), Token::ZERO);
    let timeout = bench.wait.expect("a timeout");
    bench.timeout(timeout);
    let again = bench.wait.expect("again");
    let second = attempt(&bench.timeout(again));
    let outputs = bench.reply(again + Duration::from_secs(13), second, Reply::Granted { token: token(10) });
    let (release, _) = release(&outputs[outputs.len() - 1..]);
    let now = again + Duration::from_secs(13);
    bench.reply(now, release, Reply::Released { others_chosen: false });
    bench.lease.campaign(now, Acquisition(2), Token::ZERO, false);
    let [Command::Acquire { .. }] = commands(&bench.drain())[..] else { panic!("a new acquisition") };
    // Its grant, 11, is lost on the way; the delayed first request of the old one is refused because of it.
    bench.reply(now, old, Reply::Held { token: Some(token(11)), remaining: Some(Duration::from_secs(15)) });
    bench.timeout(bench.wait.expect("a timeout"));
    let outputs = bench.timeout(bench.wait.expect("again"));
    let [Command::Acquire { id, floor, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(*floor, token(10));
    let (id, now) = (*id, bench.wait.expect("a timeout"));
    let outputs =
        bench.reply(now.saturating_sub(Duration::from_secs(1)), id, Reply::Granted { token: token(11) });
    assert!(matches!(notices(&outputs)[..], [Notice::Acquired { .. }]), "{outputs:?}");
}

#[test]
fn a_candidate_that_waited_for_its_own_orphan_looks_again_once_that_is_gone() {
    let mut bench = Bench::new(options());
    let old = bench.campaign(ms(0), Token::ZERO);
    bench.timeout(bench.wait.expect("a timeout"));
    let again = bench.wait.expect("again");
    let second = attempt(&bench.timeout(again));
    let now = again + Duration::from_secs(13);
    let outputs = bench.reply(now, second, Reply::Granted { token: token(10) });
    let (id, _) = release(&outputs[outputs.len() - 1..]);
    bench.reply(now, id, Reply::Released { others_chosen: false });
    bench.lease.campaign(now, Acquisition(2), Token::ZERO, false);
    let outputs = bench.drain();
    let [Command::Acquire { id, .. }] = commands(&outputs)[..] else { panic!("a new acquisition") };
    let id = *id;
    // The delayed first request of the old acquisition was executed after its release.
    bench.reply(now, id, Reply::Held { token: Some(token(11)), remaining: Some(Duration::from_secs(15)) });
    let outputs = bench.reply(now, old, Reply::Granted { token: token(11) });
    let (id, _) = release(&outputs);
    let outputs = bench.reply(now, id, Reply::Released { others_chosen: false });
    assert!(matches!(commands(&outputs)[..], [Command::Acquire { n: Acquisition(2), .. }]), "{outputs:?}");
}

#[test]
fn the_wait_limit_holds_too_while_a_late_grant_goes_back() {
    let limited = LeaseOptions { wait: WaitLimit::AtMost(Duration::from_secs(16)), ..options() };
    let mut bench = Bench::new(limited);
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(14_000), id, Reply::Granted { token: token(10) });
    let all = bench.run_until(ms(60_000));
    let failed = all.iter().find(|(_, output)| matches!(output, Output::Notice(Notice::Failed { .. })));
    let why = AcquireFailure::Unreachable;
    assert_eq!(failed, Some(&(ms(16_000), Output::Notice(Notice::Failed { lease: KEY, why }))));
    assert_eq!(bench.lease.phase(), Phase::Done);
}

#[test]
fn a_wait_of_no_time_at_all_is_one_try() {
    let mut bench = Bench::new(LeaseOptions { wait: WaitLimit::AtMost(Duration::ZERO), ..options() });
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, Reply::Granted { token: token(10) });
    assert_eq!(bench.lease.valid(ms(1)), Some(token(10)));
}

#[test]
fn false_hints_however_many_put_the_next_look_off_by_no_more_than_our_own_ttl() {
    let mut bench = Bench::new(options());
    let id = bench.campaign(ms(0), Token::ZERO);
    bench.reply(ms(1), id, busy(1_000));
    let wake = Wake::Held { token: token(6), ttl: Duration::from_secs(15) };
    for second in 0..60 {
        if !commands(&bench.hint(ms(second * 1_000 + 2), wake)).is_empty() {
            assert!(second <= 17, "it looked again after {second} s");
            return;
        }
    }
    panic!("it never looks for itself");
}

#[test]
fn giving_up_still_gives_back_a_late_grant_of_an_acquisition_before_the_last() {
    let mut bench = Bench::new(options());
    let old = bench.campaign(ms(0), Token::ZERO);
    bench.timeout(bench.wait.expect("a timeout"));
    let again = bench.wait.expect("again");
    let second = attempt(&bench.timeout(again));
    let now = again + Duration::from_secs(13);
    let outputs = bench.reply(now, second, Reply::Granted { token: token(10) });
    let (id, _) = release(&outputs[outputs.len() - 1..]);
    bench.reply(now, id, Reply::NotYours);
    bench.lease.campaign(now, Acquisition(2), Token::ZERO, false);
    let outputs = bench.drain();
    let [Command::Acquire { id, .. }] = commands(&outputs)[..] else { panic!("a new acquisition") };
    bench.reply(now, *id, busy(9_000));
    bench.end(now);
    let outputs = bench.reply(now, old, Reply::Granted { token: token(12) });
    assert_eq!(release(&outputs).1, Some(token(12)));
}

#[test]
fn a_refusal_ends_a_row_of_failures() {
    let mut bench = Bench::new(options());
    let mut id = bench.campaign(ms(0), Token::ZERO);
    let mut now = ms(0);
    for _ in 0..5 {
        bench.reply(now, id, Reply::Failed(Failure::NotExecuted));
        now = bench.wait.expect("it tries again");
        id = attempt(&bench.timeout(now));
    }
    bench.reply(now, id, busy(100));
    now = bench.wait.expect("it looks again");
    id = attempt(&bench.timeout(now));
    let outputs = bench.reply(now, id, Reply::Failed(Failure::NotExecuted));
    assert_eq!(notices(&outputs), [&Notice::Retrying { lease: KEY, failure: Failure::NotExecuted }]);
    assert!(bench.wait.expect("it tries again") <= now + timing().attempt_timeout() / 16);
}

#[test]
fn only_a_candidate_that_waits_asks_to_be_registered_as_a_waiter() {
    let limits = [WaitLimit::Forever, WaitLimit::AtMost(Duration::from_secs(3)), WaitLimit::No];
    for (limit, waits) in limits.into_iter().zip([true, true, false]) {
        let mut bench = Bench::new(LeaseOptions { wait: limit, ..options() });
        bench.lease.campaign(ms(0), N, Token::ZERO, false);
        let outputs = bench.drain();
        assert!(
            matches!(commands(&outputs)[..], [Command::Acquire { wait, .. }] if *wait == waits),
            "{limit:?}: {outputs:?}"
        );
    }
}

#[test]
fn those_who_wait_for_a_short_lease_spread_over_an_eighth_of_its_ttl() {
    let timing = LeaseConfig::new(Duration::from_millis(200)).resolve(&StoreClock::default());
    let options = LeaseOptions::new(timing.expect("it fits"));
    let look_again = |seed| {
        let lease = Lease::new(ms(0), KEY, options.clone(), SplitMix::new(seed));
        let mut bench = Bench { lease, wait: None };
        let id = bench.campaign(ms(0), Token::ZERO);
        bench.reply(ms(1), id, busy(100));
        bench.wait.expect("it looks again")
    };
    let times: Vec<_> = (0..100).map(look_again).collect();
    assert!(times.iter().all(|at| *at >= ms(102) && *at < ms(127)), "{times:?}");
    assert!(times.iter().any(|at| *at < ms(107)) && times.iter().any(|at| *at > ms(122)), "{times:?}");
}

#[test]
fn a_candidate_that_queues_is_told_its_verdict_when_its_wait_is_over_and_not_before() {
    let limited = LeaseOptions { wait: WaitLimit::AtMost(Duration::from_secs(3)), ..options() };
    let mut bench = Bench::new(limited);
    let why = AcquireFailure::Unreachable;
    bench.lease.timeout(ms(2_999), why);
    assert_eq!(bench.drain(), []);
    bench.lease.timeout(ms(3_000), why);
    assert_eq!(notices(&bench.drain())[0], &Notice::Failed { lease: KEY, why });
}
