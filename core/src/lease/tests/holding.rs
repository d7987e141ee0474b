//! Renewing, fencing, stopping, losing.

use super::*;

fn valid_for() -> Instant {
    ms(0) + timing().valid_for()
}

fn fence() -> Instant {
    valid_for().saturating_sub(timing().stop_budget())
}

fn kill() -> Instant {
    valid_for().saturating_sub(timing().kill_margin())
}

/// Every renewal until `end` is answered with `reply`.
fn run_with(bench: &mut Bench, end: Instant, reply: Reply) -> Vec<(Instant, Output)> {
    let mut all = Vec::new();
    while let Some(at) = bench.wait.filter(|at| *at <= end) {
        let outputs = bench.timeout(at);
        let ids: Vec<_> = commands(&outputs).iter().filter_map(|command| command.id()).collect();
        all.extend(outputs.into_iter().map(|output| (at, output)));
        for id in ids {
            all.extend(bench.reply(at, id, reply).into_iter().map(|output| (at, output)));
        }
    }
    all
}

fn stops(all: &[(Instant, Output)]) -> Vec<(Instant, Output)> {
    all.iter()
        .filter(|(_, output)| {
            matches!(output, Output::Command(Command::DrainWorkload { .. } | Command::StopWorkload { .. }))
        })
        .cloned()
        .collect()
}

#[test]
fn a_renewal_is_due_after_one_interval_rounded_down_to_a_slot() {
    let mut bench = held(options());
    let due = bench.wait.expect("a renewal is due");
    let interval = ms(0) + timing().renew_interval();
    assert!(due <= interval && due + timing().renew_interval() / 16 > interval, "{due:?}");
    renewal(&bench.timeout(due));
}

/// S2, S6.
#[test]
fn an_acknowledged_renewal_moves_the_end_to_its_own_emission_plus_v_and_keeps_the_token() {
    let mut bench = held(options());
    let sent = bench.wait.expect("a renewal is due");
    let id = renewal(&bench.timeout(sent));
    let outputs = bench.reply(sent + Duration::from_millis(700), id, Reply::Renewed);
    let deadlines = bench.lease.deadlines().expect("held");
    assert_eq!(deadlines.valid_until, sent + timing().valid_for());
    assert_eq!(notices(&outputs), [&Notice::Renewed { lease: KEY, deadlines }]);
    assert_eq!(bench.lease.valid(sent + Duration::from_millis(700)), Some(token(10)));
}

/// S4.
#[test]
fn without_a_renewal_the_work_is_asked_at_the_fence_and_stopped_hard_at_the_kill() {
    let mut bench = held(options());
    let all = bench.run_until(valid_for());
    assert_eq!(
        stops(&all),
        [(fence(), stop(Stop::Ask, StopReason::Fence)), (kill(), stop(Stop::Hard, StopReason::Fence))]
    );
    let lost = Notice::Lost { lease: KEY, token: token(10), why: LossReason::Expired };
    assert!(all.contains(&(valid_for(), Output::Notice(lost))), "{all:?}");
    assert!(bench.lease.deadlines().is_none());
}

/// S2, S3.
#[test]
fn validity_ends_at_the_fence_by_the_clock_alone() {
    let bench = held(options());
    let just_before = Instant::from_nanos(fence().as_nanos() - 1);
    assert_eq!(bench.lease.valid(just_before), Some(token(10)));
    assert_eq!(bench.lease.valid(fence()), None, "no event was needed");
}

/// S3.
#[test]
fn a_wake_up_at_or_before_the_fence_is_always_armed_while_held() {
    let mut bench = held(options());
    for _ in 0..1_000 {
        let Some(deadlines) = bench.lease.deadlines() else { break };
        let wait = bench.wait.expect("something is due");
        if bench.lease.valid(wait).is_some() {
            assert!(wait <= deadlines.fence_at);
        }
        bench.timeout(wait);
        if bench.lease.phase() != Phase::Holding || bench.wait > Some(fence()) {
            break;
        }
        assert!(bench.wait <= Some(fence()));
    }
    assert_eq!(bench.lease.valid(fence()), None);
}

/// S3.
#[test]
fn the_first_input_after_a_pause_fences_before_anything_else() {
    for late in [fence(), kill(), valid_for(), valid_for() + Duration::from_secs(45)] {
        let mut bench = held(options());
        let sent = bench.wait.expect("a renewal is due");
        let id = renewal(&bench.timeout(sent));
        // The process slept; the acknowledgement is the first thing it sees.
        let outputs = bench.reply(late, id, Reply::Renewed);
        let how = if late < kill() { Stop::Ask } else { Stop::Hard };
        assert_eq!(outputs[0], stop(how, StopReason::Fence), "{outputs:?}");
        assert_eq!(bench.lease.valid(late), None, "a renewal after the fence revives nothing");
    }
}

#[test]
fn found_at_or_after_the_kill_the_work_is_stopped_hard_without_being_asked() {
    let mut bench = held(options());
    let outputs = bench.timeout(kill());
    let stops: Vec<_> = commands(&outputs)
        .into_iter()
        .filter(|c| matches!(c, Command::DrainWorkload { .. } | Command::StopWorkload { .. }))
        .collect();
    assert_eq!(stops, [&Command::StopWorkload { lease: KEY, how: Stop::Hard, why: StopReason::Fence }]);
}

#[test]
fn after_the_fence_a_renewal_only_covers_the_stop() {
    let mut bench = held(options());
    let all = bench.run_until(fence());
    let mut renewals = all.iter().filter_map(|(at, output)| match output {
        Output::Command(Command::Renew { id, .. }) => Some((*at, *id)),
        _ => None,
    });
    let (at, id) = renewals.next_back().expect("one was sent shortly before the fence");
    let answered = fence() + Duration::from_millis(1);
    bench.reply(answered, id, Reply::Renewed);
    let deadlines = bench.lease.deadlines().expect("still ours");
    assert_eq!(deadlines.valid_until, at + timing().valid_for(), "others are kept out for longer");
    assert_eq!(bench.lease.valid(answered), None, "but the work may not go on");
    let all = bench.run_until(kill());
    assert_eq!(
        stops(&all),
        [(kill(), stop(Stop::Hard, StopReason::Fence))],
        "and the hard stop is not put off"
    );
}

#[test]
fn not_yours_is_lost_now_with_a_hard_stop_and_the_release_waits_for_the_end_of_the_work() {
    let mut bench = held(options());
    let sent = bench.wait.expect("a renewal is due");
    let id = renewal(&bench.timeout(sent));
    let outputs = bench.reply(sent, id, Reply::NotYours);
    let lost = Notice::Lost { lease: KEY, token: token(10), why: LossReason::NotYours };
    assert_eq!(outputs, [stop(Stop::Hard, StopReason::Lost), Output::Notice(lost)]);
    assert_eq!(bench.wait, None, "no renewal would create it again");
    let outputs = bench.exited(sent + Duration::from_secs(60));
    assert_eq!(release(&outputs).1, Some(token(10)));
}

/// S7.
#[test]
fn after_lost_it_is_never_valid_under_that_token_again() {
    let mut bench = held(options());
    let sent = bench.wait.expect("a renewal is due");
    let id = renewal(&bench.timeout(sent));
    bench.run_until(valid_for());
    assert_eq!(bench.reply(valid_for(), id, Reply::Renewed), []);
    for later in 0..100 {
        assert_eq!(bench.lease.valid(valid_for() + Duration::from_millis(later)), None);
    }
}

#[test]
fn work_that_outlives_its_lease_is_covered_by_renewals_until_the_store_says_no() {
    let mut bench = held(options());
    bench.run_until(valid_for());
    let all = bench.run_until(valid_for() + Duration::from_secs(10));
    let ids: Vec<_> =
        all.iter()
            .filter_map(|(_, output)| {
                if let Output::Command(Command::Renew { id, .. }) = output { Some(*id) } else { None }
            })
            .collect();
    assert!(!ids.is_empty() && ids.len() < 20, "{}", ids.len());
    let last = *ids.last().expect("some");
    assert_eq!(bench.reply(valid_for() + Duration::from_secs(10), last, Reply::NotYours), []);
    assert_eq!(bench.wait, None);
}

#[test]
fn a_failed_renewal_is_tried_again_after_backoff_and_changes_nothing_else() {
    let mut bench = held(options());
    let sent = bench.wait.expect("a renewal is due");
    let id = renewal(&bench.timeout(sent));
    for failure in [Failure::Unknown, Failure::NotExecuted, Failure::Refused] {
        let mut bench = Bench { lease: bench.lease.clone(), wait: bench.wait };
        let before = bench.lease.deadlines();
        let outputs = bench.reply(sent, id, Reply::Failed(failure));
        assert!(matches!(notices(&outputs)[..], [Notice::InDoubt { .. }]), "{outputs:?}");
        assert_eq!(bench.lease.deadlines(), before);
        let again = bench.wait.expect("it is tried again");
        let delay = again.saturating_since(sent);
        assert!(delay >= timing().attempt_timeout() / 32 && delay <= timing().attempt_timeout(), "{delay:?}");
        renewal(&bench.timeout(again));
    }
}

/// S2.
#[test]
fn an_unknown_outcome_never_extends_the_lease() {
    let mut bench = held(options());
    let all = run_with(&mut bench, valid_for(), Reply::Failed(Failure::Unknown));
    assert_eq!(stops(&all)[0].0, fence());
    assert!(
        all.iter()
            .any(|(at, output)| matches!(output, Output::Notice(Notice::Lost { .. })) && *at == valid_for())
    );
}

/// L2.
#[test]
fn one_slow_answer_does_not_end_the_lease() {
    let mut bench = held(options());
    let sent = bench.wait.expect("a renewal is due");
    let id = renewal(&bench.timeout(sent));
    let all = bench.run_until(sent + Duration::from_secs(6));
    assert_eq!(stops(&all), []);
    bench.reply(sent + Duration::from_secs(6), id, Reply::Renewed);
    assert_eq!(bench.lease.deadlines().map(|d| d.valid_until), Some(sent + timing().valid_for()));
}

/// L2.
#[test]
fn several_attempts_fit_between_a_renewal_and_the_fence() {
    let mut bench = held(options());
    let all = bench.run_until(fence());
    let tries =
        all.iter().filter(|(_, output)| matches!(output, Output::Command(Command::Renew { .. }))).count();
    assert!(tries >= 3, "{tries}");
}

#[test]
fn a_late_acknowledgement_of_an_older_attempt_counts_from_its_own_emission() {
    let mut bench = held(options());
    let first_sent = bench.wait.expect("a renewal is due");
    let first = renewal(&bench.timeout(first_sent));
    bench.timeout(bench.wait.expect("it times out"));
    let second_sent = bench.wait.expect("it is tried again");
    let second = renewal(&bench.timeout(second_sent));
    bench.reply(second_sent, first, Reply::Renewed);
    assert_eq!(bench.lease.deadlines().map(|d| d.valid_until), Some(first_sent + timing().valid_for()));
    bench.reply(second_sent, second, Reply::Renewed);
    assert_eq!(bench.lease.deadlines().map(|d| d.valid_until), Some(second_sent + timing().valid_for()));
    // In the other order the older one takes nothing back.
    assert_eq!(bench.reply(second_sent, first, Reply::Renewed), []);
    assert_eq!(bench.lease.deadlines().map(|d| d.valid_until), Some(second_sent + timing().valid_for()));
}

#[test]
fn a_drain_asks_gives_the_grace_renews_throughout_and_releases_only_after_the_end() {
    let mut bench = held(LeaseOptions { grace: Duration::from_secs(40), ..options() });
    bench.lease.drain(ms(1_000));
    assert_eq!(bench.drain(), [drain_work(StopReason::Drain)]);
    let all = run_with(&mut bench, ms(120_000), Reply::Renewed);
    assert_eq!(stops(&all), [(ms(41_000), stop(Stop::Hard, StopReason::Drain))]);
    let renewals =
        all.iter().filter(|(_, output)| matches!(output, Output::Command(Command::Renew { .. }))).count();
    assert!(renewals > 20, "renewed past the hard stop while the work goes on: {renewals}");
    assert!(!all.iter().any(|(_, output)| matches!(output, Output::Command(Command::Release { .. }))));
    assert_eq!(release(&bench.exited(ms(120_001))).1, Some(token(10)));
}

#[test]
fn a_drain_without_grace_stops_hard_at_once() {
    let mut bench = held(LeaseOptions { grace: Duration::ZERO, ..options() });
    bench.lease.drain(ms(1_000));
    assert_eq!(bench.drain(), [stop(Stop::Hard, StopReason::Drain)]);
}

#[test]
fn not_yours_after_the_hard_stop_does_not_stop_the_work_twice() {
    let mut bench = held(LeaseOptions { grace: Duration::ZERO, ..options() });
    bench.lease.drain(ms(1_000));
    bench.drain();
    let now = bench.wait.expect("a renewal is due");
    let id = renewal(&bench.timeout(now));
    let lost = Notice::Lost { lease: KEY, token: token(10), why: LossReason::NotYours };
    assert_eq!(bench.reply(now, id, Reply::NotYours), [Output::Notice(lost)]);
}

#[test]
fn a_drain_found_at_the_kill_is_stopped_hard_without_being_asked() {
    let mut bench = held(LeaseOptions { grace: Duration::from_secs(600), ..options() });
    bench.lease.drain(ms(1_000));
    bench.drain();
    let outputs = bench.timeout(kill()).into_iter().map(|output| (kill(), output)).collect::<Vec<_>>();
    assert_eq!(stops(&outputs), [(kill(), stop(Stop::Hard, StopReason::Fence))]);
}

#[test]
fn loss_beats_drain() {
    let mut bench = held(LeaseOptions { grace: Duration::from_secs(600), ..options() });
    bench.lease.drain(ms(1_000));
    bench.drain();
    let all = bench.run_until(valid_for());
    assert_eq!(
        stops(&all),
        [(fence(), stop(Stop::Ask, StopReason::Fence)), (kill(), stop(Stop::Hard, StopReason::Fence))]
    );
}

#[test]
fn a_grace_that_ends_before_the_fence_is_kept_when_renewals_fail() {
    let mut bench = held(LeaseOptions { grace: Duration::from_secs(3), ..options() });
    bench.lease.drain(ms(1_000));
    bench.drain();
    let all = bench.run_until(valid_for());
    assert_eq!(stops(&all), [(ms(4_000), stop(Stop::Hard, StopReason::Drain))]);
}

#[test]
fn the_maximum_hold_stops_with_grace_then_hard_and_only_then_abandons() {
    let options =
        LeaseOptions { max_hold: Some(Duration::from_secs(60)), grace: Duration::from_secs(10), ..options() };
    let mut bench = held(options);
    let all = run_with(&mut bench, ms(200_000), Reply::Renewed);
    assert_eq!(
        stops(&all),
        [(ms(60_000), drain_work(StopReason::MaxHold)), (ms(70_000), stop(Stop::Hard, StopReason::MaxHold))]
    );
    let abandoned = Notice::Lost { lease: KEY, token: token(10), why: LossReason::Abandoned };
    assert!(all.contains(&(ms(72_000), Output::Notice(abandoned))), "{all:?}");
    let last = all
        .iter()
        .filter(|(_, o)| matches!(o, Output::Command(Command::Renew { .. })))
        .map(|(at, _)| *at)
        .max();
    assert!(last < Some(ms(72_000)), "renewing has ended: {last:?}");
    assert_eq!(bench.wait, None);
}

#[test]
fn a_renewal_that_was_sent_much_too_late_is_reported_as_starved() {
    let mut bench = held(options());
    let due = bench.wait.expect("a renewal is due");
    let outputs = bench.timeout(due + Duration::from_secs(3));
    assert_eq!(notices(&outputs), [&Notice::RenewalStarved { lease: KEY, late_by: Duration::from_secs(3) }]);
    renewal(&outputs);
}

#[test]
fn a_renewal_is_not_starved_before_it_is_late_by_more_than_half_an_attempt() {
    let bearable = timing().attempt_timeout() / 2;
    for (late_by, starved) in [(bearable, false), (bearable + Duration::from_nanos(1), true)] {
        let mut bench = held(options());
        let due = bench.wait.expect("a renewal is due");
        let outputs = bench.timeout(due + late_by);
        renewal(&outputs);
        assert_eq!(notices(&outputs).len(), usize::from(starved), "{outputs:?}");
    }
}

#[test]
fn time_that_runs_backwards_is_clamped() {
    let mut bench = held(options());
    bench.run_until(fence());
    let before = bench.lease.clone();
    assert_eq!(bench.timeout(fence()), []);
    bench.lease.handle(ms(0), Event::Timeout).expect("never misuse");
    assert_eq!(bench.lease, before);
}

#[test]
fn an_early_timeout_does_nothing() {
    let mut bench = held(options());
    let wait = bench.wait;
    assert_eq!(bench.timeout(ms(1)), []);
    assert_eq!(bench.timeout(ms(1)), []);
    assert_eq!(bench.wait, wait);
}

#[test]
fn a_request_never_outlives_what_it_is_for() {
    let mut bench = held(options());
    for (at, output) in bench.run_until(valid_for()) {
        if let Output::Command(Command::Renew { timeout, .. }) = output {
            let left = valid_for().saturating_since(at);
            assert!(
                timeout <= timing().attempt_timeout() && (left.is_zero() || timeout <= left),
                "{timeout:?} at {at:?}"
            );
        }
    }
}

/// L2.
#[test]
fn a_holder_with_a_healthy_store_never_loses_its_lease() {
    // Round trips of d, pauses of p: renew interval + k attempt timeouts + p < V, with k = 1 here.
    let (d, p) = (Duration::from_millis(1_500), Duration::from_millis(900));
    let mut bench = held(options());
    let mut lost_attempts = 0;
    while bench.wait.is_some_and(|wait| wait < ms(3_600_000)) {
        let at = bench.wait.expect("held") + p;
        let outputs = bench.timeout(at);
        assert!(commands(&outputs).iter().all(|c| matches!(c, Command::Renew { .. })), "{outputs:?}");
        for id in commands(&outputs).iter().filter_map(|c| c.id()) {
            lost_attempts += 1;
            // Every second request is lost.
            if lost_attempts % 2 == 0 {
                bench.reply(at + d, id, Reply::Renewed);
            }
        }
    }
    assert!(lost_attempts > 500 && bench.lease.deadlines().is_some());
}

#[test]
fn a_drain_does_not_lift_the_maximum_hold() {
    let options =
        LeaseOptions { max_hold: Some(Duration::from_secs(60)), grace: Duration::from_secs(10), ..options() };
    let mut bench = held(options);
    bench.lease.drain(ms(1));
    bench.drain();
    let all = run_with(&mut bench, ms(200_000), Reply::Renewed);
    let lost = Output::Notice(Notice::Lost { lease: KEY, token: token(10), why: LossReason::Abandoned });
    let at = all.iter().find(|(_, output)| *output == lost).map(|(at, _)| *at);
    assert_eq!(at, Some(ms(60_000 + 10_000) + timing().stop_budget()));
}

#[test]
fn a_slow_answer_is_not_taken_for_a_starved_renewal() {
    // The first attempt is granted when the renewal that it calls for should have been sent long ago.
    let mut bench = Bench::new(options());
    let first = bench.campaign(ms(0), Token::ZERO);
    bench.timeout(bench.wait.expect("a timeout"));
    bench.timeout(bench.wait.expect("again"));
    bench.timeout(bench.wait.expect("a timeout"));
    let now = ms(9_000);
    bench.lease.handle(now, Event::Timeout).expect("never misuse");
    bench.drain();
    bench.reply(now, first, Reply::Granted { token: token(10) });
    assert_eq!(bench.lease.valid(now), Some(token(10)));
    let outputs = bench.timeout(now);
    renewal(&outputs);
    assert_eq!(notices(&outputs), [] as [&Notice; 0]);
}

#[test]
fn doubt_is_reported_again_after_a_renewal_has_ended_it() {
    let mut bench = held(options());
    for _ in 0..2 {
        let id = renewal(&bench.timeout(bench.wait.expect("a renewal is due")));
        let now = bench.lease.now;
        let outputs = bench.reply(now, id, Reply::Failed(Failure::Unknown));
        assert!(matches!(notices(&outputs)[..], [Notice::InDoubt { .. }]), "{outputs:?}");
        let again = bench.wait.expect("again");
        assert!(again <= now + timing().attempt_timeout() / 16, "the backoff begins anew");
        let id = renewal(&bench.timeout(again));
        bench.reply(again, id, Reply::Renewed);
    }
}

#[test]
fn an_acknowledgement_older_than_the_latest_changes_nothing() {
    let mut bench = held(options());
    let first = renewal(&bench.timeout(bench.wait.expect("a renewal is due")));
    bench.timeout(bench.wait.expect("a timeout"));
    let again = bench.wait.expect("again");
    let second = renewal(&bench.timeout(again));
    bench.reply(again, second, Reply::Renewed);
    let (deadlines, wait) = (bench.lease.deadlines(), bench.wait);
    assert_eq!(bench.reply(again, first, Reply::Renewed), []);
    assert_eq!((bench.lease.deadlines(), bench.wait), (deadlines, wait));
    assert_eq!(bench.lease.stale_replies(), 1);
}

#[test]
fn huge_waits_graces_and_holds_overflow_nothing_and_never_end() {
    let huge = LeaseOptions {
        wait: WaitLimit::AtMost(Duration::MAX),
        grace: Duration::MAX,
        max_hold: Some(Duration::MAX),
        ..options()
    };
    let mut bench = held(huge);
    let mut all = run_with(&mut bench, ms(600_000), Reply::Renewed);
    bench.lease.drain(ms(600_000));
    all.extend(bench.drain().into_iter().map(|output| (ms(600_000), output)));
    all.extend(run_with(&mut bench, ms(1_200_000), Reply::Renewed));
    assert_eq!(stops(&all), [(ms(600_000), drain_work(StopReason::Drain))]);
    assert!(
        bench.lease.deadlines().is_some_and(|deadlines| deadlines.fence_at > ms(1_200_000)),
        "it is kept"
    );
}
