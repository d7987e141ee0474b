//! Giving back.

use super::*;

/// S9.
#[test]
fn the_node_is_invalid_before_the_release_is_sent() {
    let mut bench = held(options());
    bench.lease.end(ms(100));
    assert_eq!(bench.lease.valid(ms(100)), None);
    assert_eq!(release(&bench.drain()).1, Some(token(10)));
}

/// S9.
#[test]
fn a_release_names_the_owner_and_the_token_and_nothing_renews_after_it() {
    let mut bench = held(options());
    let outputs = bench.end(ms(100));
    let [Command::Release { id, n, token: with, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((*n, *with), (N, Some(token(10))));
    let id = *id;
    for (_, output) in bench.run_until(ms(10_000)) {
        assert!(
            !matches!(output, Output::Command(Command::Renew { .. } | Command::Acquire { .. })),
            "{output:?}"
        );
    }
    let outputs = bench.reply(ms(10_000), id, Reply::Released { others_chosen: true });
    assert_eq!(
        notices(&outputs),
        [&Notice::Released { lease: KEY, outcome: ReleaseOutcome::Released }, &Notice::Ended { lease: KEY }]
    );
    assert!(bench.lease.others_chosen());
}

/// S9.
#[test]
fn a_renewal_in_flight_at_the_release_never_brings_the_lease_back() {
    let mut bench = held(options());
    let sent = bench.wait.expect("a renewal is due");
    let renew = renewal(&bench.timeout(sent));
    let (id, _) = release(&bench.end(sent));
    assert_eq!(bench.reply(sent, renew, Reply::Renewed), []);
    assert_eq!(bench.lease.valid(sent), None);
    bench.reply(sent, id, Reply::Released { others_chosen: false });
    assert_eq!(bench.lease.phase(), Phase::Done);
}

#[test]
fn a_late_grant_after_the_release_never_brings_the_lease_back_and_is_given_back_too() {
    let mut bench = Bench::new(options());
    let first = bench.campaign(ms(0), Token::ZERO);
    bench.timeout(bench.wait.expect("a timeout"));
    let again = bench.wait.expect("again");
    let outputs = bench.timeout(again);
    let second = commands(&outputs)[0].id().expect("an id");
    bench.reply(again, second, Reply::Granted { token: token(10) });
    let (release_id, _) = release(&bench.end(again));
    bench.reply(again, release_id, Reply::Released { others_chosen: false });
    // The first attempt was delayed and landed after the release: an orphan.
    let outputs = bench.reply(again, first, Reply::Granted { token: token(11) });
    assert_eq!(release(&outputs).1, Some(token(11)));
    assert_eq!(bench.lease.valid(again), None);
}

#[test]
fn the_release_is_repeated_until_it_is_answered_or_the_record_is_over() {
    let mut bench = held(options());
    bench.end(ms(0));
    let all = bench.run_until(ms(60_000));
    let tries =
        all.iter().filter(|(_, output)| matches!(output, Output::Command(Command::Release { .. }))).count();
    assert!((3..40).contains(&tries), "{tries}");
    let (at, _) = all
        .iter()
        .find(|(_, o)| {
            *o == Output::Notice(Notice::Released { lease: KEY, outcome: ReleaseOutcome::Expired })
        })
        .expect("it ends");
    assert_eq!(*at, ms(0) + timing().outlived_after());
    assert_eq!(bench.lease.phase(), Phase::Done);
}

#[test]
fn the_record_of_a_lease_is_over_when_the_release_gives_up() {
    let timing = timing();
    assert!(timing.outlived_after() > timing.ttl() * 1_010_000 / 990_000);
}

#[test]
fn releasing_what_is_no_longer_ours_says_so_and_is_no_error() {
    let mut bench = held(options());
    let (id, _) = release(&bench.end(ms(100)));
    let outputs = bench.reply(ms(101), id, Reply::NotYours);
    assert_eq!(notices(&outputs)[0], &Notice::Released { lease: KEY, outcome: ReleaseOutcome::NotHeld });
}

#[test]
fn ending_twice_and_exits_after_the_end_do_nothing() {
    let mut bench = held(options());
    bench.end(ms(100));
    let before = bench.lease.clone();
    assert_eq!(bench.end(ms(100)), []);
    assert_eq!(bench.exited(ms(100)), []);
    assert_eq!(bench.lease, before);
}

#[test]
fn an_exit_before_any_work_was_allowed_does_not_end_the_candidacy() {
    let mut bench = Bench::new(options());
    bench.campaign(ms(0), Token::ZERO);
    assert_eq!(bench.exited(ms(1)), []);
    assert_eq!(bench.lease.phase(), Phase::Deciding);
}

#[test]
fn the_answer_to_an_older_release_does_not_settle_a_newer_grant() {
    let mut bench = Bench::new(options());
    let acquire = bench.campaign(ms(0), Token::ZERO);
    let (first, _) = release(&bench.end(ms(1)));
    let outputs = bench.reply(ms(2), acquire, Reply::Granted { token: token(10) });
    let (second, with) = release(&outputs);
    assert_eq!(with, Some(token(10)));
    assert_eq!(bench.reply(ms(3), first, Reply::NotYours), [], "it was executed before the grant");
    assert_eq!(bench.lease.stale_replies(), 1);
    let outputs = bench.reply(ms(4), second, Reply::Released { others_chosen: false });
    assert_eq!(notices(&outputs), [&Notice::Ended { lease: KEY }]);
}

#[test]
fn a_late_answer_to_an_older_attempt_does_not_take_the_place_of_the_release_under_way() {
    let mut bench = Bench::new(options());
    let first = bench.campaign(ms(0), Token::ZERO);
    bench.timeout(bench.wait.expect("a timeout"));
    let again = bench.wait.expect("again");
    let outputs = bench.timeout(again);
    let second = commands(&outputs)[0].id().expect("an id");
    bench.reply(again, second, Reply::Granted { token: token(10) });
    let (id, with) = release(&bench.end(again));
    assert_eq!(with, Some(token(10)));
    assert_eq!(bench.reply(again, first, Reply::Granted { token: token(9) }), [], "9 was over before 10");
    assert_eq!(bench.lease.stale_replies(), 1);
    let outputs = bench.reply(again, id, Reply::Released { others_chosen: false });
    assert_eq!(
        notices(&outputs),
        [&Notice::Released { lease: KEY, outcome: ReleaseOutcome::Released }, &Notice::Ended { lease: KEY }]
    );
}

#[test]
fn a_late_grant_is_given_back_however_often_its_release_was_tried() {
    let mut bench = Bench::new(options());
    let acquire = bench.campaign(ms(0), Token::ZERO);
    bench.end(ms(1));
    let all = bench.run_until(ms(14_000));
    let tries =
        all.iter().filter(|(_, output)| matches!(output, Output::Command(Command::Release { .. }))).count();
    assert!(tries >= 4, "none of them was answered: {tries}");
    let outputs = bench.reply(ms(14_000), acquire, Reply::Granted { token: token(10) });
    assert_eq!(release(&outputs).1, Some(token(10)), "{outputs:?}");
}

#[test]
fn a_lease_that_was_given_back_stays_until_no_grant_can_land_any_more_and_no_longer() {
    let over = ms(0) + timing().outlived_after();
    let just_before = over.saturating_sub(Duration::from_nanos(1));
    for now in [just_before, over] {
        let mut bench = Bench::new(options());
        bench.campaign(ms(0), Token::ZERO);
        let mut id = release(&bench.end(ms(1_000))).0;
        for (_, output) in bench.run_until(just_before) {
            if let Output::Command(Command::Release { id: again, .. }) = output {
                id = again;
            }
        }
        // The acquisition was never answered.
        let outputs = bench.reply(now, id, Reply::NotYours);
        if now < over {
            assert_eq!((outputs, bench.wait), (Vec::new(), Some(over)));
        } else {
            assert_eq!(outputs, [Output::Notice(Notice::Ended { lease: KEY })]);
        }
    }
}
