//! Ticks that can't be run at once: what waits, what makes room, and what is watched.

use super::*;

#[test]
fn a_queued_tick_comes_after_the_run_and_of_several_the_latest() {
    let mut options = job();
    options.overlap = Overlap::Queue;
    let (mut bench, lease) = Bench::running(options);
    let outputs = bench.to(4_100);
    assert_eq!(claims(&outputs), []);
    assert_eq!(skips(&outputs), [(2, TickMiss::Superseded), (3, TickMiss::Superseded)]);
    let outputs = bench.over(lease, Exit::Completed);
    claim(&outputs, 4);
}

#[test]
fn runs_that_may_overlap_do_and_there_is_a_bound_to_it() {
    let mut options = job();
    options.overlap = Overlap::Allow;
    let (mut bench, first) = Bench::running(options);
    let mut leases = alloc::vec![first];
    let mut renewals = 0;
    for second in 2..=30 {
        let outputs = bench.to(second * 1_000 + 100);
        for command in commands(&outputs) {
            match command {
                Command::ClaimTick { id, .. } => leases.extend(starts(&bench.grant(id))),
                Command::Renew { id, .. } => {
                    renewals += 1;
                    bench.reply(id, Reply::Renewed);
                }
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!(leases.len(), PeriodicOptions::MOST_RUNS);
    assert!(renewals > 16);
    assert!(bench.node.len() <= 2 + 2 * PeriodicOptions::MOST_RUNS);
    let outputs = bench.exit(leases[3], Exit::Completed);
    claim(&outputs, 30);
}

#[test]
fn a_store_that_is_slower_than_the_timer_still_lets_ticks_be_run() {
    for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Allow] {
        let mut options = PeriodicOptions::new(every(1_000), options());
        options.overlap = overlap;
        let mut bench = Bench::new(options);
        let mut runs = 0;
        let mut open = alloc::collections::VecDeque::new();
        for step in 1..=400 {
            let outputs = bench.to(step * 100);
            open.extend(commands(&outputs).into_iter().map(|command| (step + 15, command)));
            // Each answer takes a second and a half.
            while open.front().is_some_and(|(at, _)| *at <= step) {
                let (_, command) = open.pop_front().expect("it is there");
                let id = command.id();
                let outputs = match command {
                    Command::ClaimTick { id, .. } => bench.grant(id),
                    Command::FinishTick { id, .. } => bench.reply(id, RELEASED),
                    _ => panic!("{command} {id:?}"),
                };
                open.extend(
                    commands(&outputs)
                        .into_iter()
                        .filter(|command| command.id().is_some())
                        .map(|c| (step + 15, c)),
                );
                for lease in starts(&outputs) {
                    runs += 1;
                    let outputs = bench.exit(lease, Exit::Completed);
                    open.extend(commands(&outputs).into_iter().map(|command| (step + 15, command)));
                }
            }
            assert!(bench.node.len() < 20, "{}", bench.node.len());
        }
        assert!(runs >= 12, "{overlap:?}: {runs} runs in 40 s");
    }
}

#[test]
fn a_store_that_is_away_costs_no_more_than_a_few_requests_for_each_tick_and_nothing_piles_up() {
    for failure in [Failure::NotExecuted, Failure::Unknown] {
        let mut bench = Bench::new(job());
        let (mut most, mut asked) = (0, 0);
        let mut skipped = 0;
        for second in 1..=120 {
            let outputs = bench.to(second * 1_000 + 100);
            skipped += skips(&outputs).len();
            let mut open = commands(&outputs);
            while let Some(command) = open.pop() {
                asked += 1;
                let id = command.id().expect("it wants a reply");
                let outputs = bench.reply(id, Reply::Failed(failure));
                skipped += skips(&outputs).len();
                open.extend(commands(&outputs));
            }
            most = most.max(bench.node.len());
        }
        assert!(most < 50, "{failure:?}: {most} at once");
        assert!(asked < 120 * 12, "{failure:?}: {asked} requests");
        assert!(skipped >= 110, "{failure:?}: each is told of, {skipped}");
    }
}

#[test]
fn what_waits_behind_a_candidate_takes_its_place_once_that_has_to_wait() {
    let mut bench = Bench::new(job());
    let (id, first) = claim(&bench.to(1_100), 1);
    // The second tick comes while the request for the first is under way.
    assert_eq!(commands(&bench.to(2_050)), []);
    let outputs = bench.reply(id, Reply::Failed(Failure::NotExecuted));
    let (_, second) = claim(&outputs, 2);
    assert_eq!(skips(&outputs), [(1, TickMiss::Superseded)]);
    assert_ne!(first, second);
    assert_eq!(finishes(&outputs), [], "it was certainly not granted");
}

#[test]
fn a_tick_that_waits_behind_a_request_is_skipped_once_that_starts_a_run() {
    let mut bench = Bench::new(job());
    let (id, lease) = claim(&bench.to(1_100), 1);
    bench.to(2_050);
    let outputs = bench.grant(id);
    assert_eq!(starts(&outputs), [lease]);
    assert_eq!(skips(&outputs), [(2, TickMiss::Overlap)]);
    let outputs = bench.exit(lease, Exit::Completed);
    assert_eq!(claims(&outputs), []);
}

#[test]
fn ticks_that_are_made_up_for_are_claimed_one_after_the_other_in_order() {
    let mut options = job();
    options.timer.missed = Missed::CatchUp { at_most: 3 };
    let mut bench = Bench::new(options);
    // Nothing drives it for ten seconds.
    bench.now = ms(10_500);
    bench.node.handle(bench.now, Event::Timeout).expect("never misuse");
    let mut outputs = bench.settle(Vec::new());
    let mut ran = Vec::new();
    for _ in 0..3 {
        let claimed = claims(&outputs);
        let [(id, lease, tick)] = claimed[..] else { panic!("one at a time, not {claimed:?}") };
        outputs = bench.grant(id);
        assert_eq!(starts(&outputs), [lease]);
        ran.push(tick);
        outputs = bench.over(lease, Exit::Completed);
    }
    assert!(ran.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ran:?}");
    assert_eq!(claims(&outputs), []);
    assert!((8..=10).contains(&ran[0]), "{ran:?}");
}

#[test]
fn ticks_that_wait_for_a_run_elsewhere_are_claimed_one_at_a_time_so_that_none_overtakes_another() {
    let mut options = job();
    options.overlap = Overlap::Queue;
    options.timer.missed = Missed::CatchUp { at_most: 5 };
    let mut bench = Bench::new(options);
    let (id, _) = claim(&bench.to(1_100), 1);
    bench.reply(id, HELD);
    let outputs = bench.to(4_100);
    assert_eq!((claims(&outputs), skips(&outputs)), (Vec::new(), Vec::new()));
    // It looks again once the claim of the other is over.
    let outputs = bench.to(10_300);
    let (id, lease) = claim(&outputs, 1);
    assert_eq!(skips(&outputs).len(), 4, "there is room for as many as may be made up for");
    let outputs = bench.grant(id);
    assert_eq!(starts(&outputs), [lease]);
    let outputs = bench.over(lease, Exit::Completed);
    claim(&outputs, 6);
}

#[test]
fn a_tick_that_another_runs_is_watched_where_it_may_be_tried_again_and_later_ones_go_on() {
    let mut options = job();
    options.attempts = 2;
    let mut bench = Bench::new(options);
    let (id, _) = claim(&bench.to(1_100), 1);
    bench.reply(id, HELD);
    // It goes on being watched while the next one is claimed.
    let (id, _) = claim(&bench.to(2_100), 2);
    let outputs = bench.reply(id, Reply::TickOverlaps);
    assert_eq!(skips(&outputs), [(2, TickMiss::Overlap)]);
    let outputs = bench.to(10_300);
    let (id, lease) = claims(&outputs)
        .into_iter()
        .find_map(|(id, lease, tick)| (tick == 1).then_some((id, lease)))
        .expect("the first");
    // Its claimant has died.
    assert_eq!(starts(&bench.grant(id)), [lease]);
    let worker = bench.node.worker(lease).expect("a run");
    assert_eq!(bench.node.run(worker).map(|(_, due)| due.tick.n), Some(1));
}

#[test]
fn what_is_pending_behind_a_request_goes_on_when_that_turns_out_to_be_another_instances_run() {
    let mut options = job();
    options.attempts = 2;
    let mut bench = Bench::new(options);
    let (id, _) = claim(&bench.to(1_100), 1);
    assert_eq!(claims(&bench.to(2_050)), []);
    let outputs = bench.reply(id, HELD);
    claim(&outputs, 2);
    assert_eq!(skips(&outputs), [], "the first is still watched");
}

/// Another instance runs tick 1, and later ones are passed over for it; now its claim is looked at again.
fn looking_again() -> (Bench, CommandId) {
    let mut options = job();
    options.attempts = 2;
    let mut bench = Bench::new(options);
    let (id, _) = claim(&bench.to(1_100), 1);
    bench.reply(id, HELD);
    for n in 2..=9 {
        let (id, _) = claim(&bench.to(n * 1_000 + 50), n);
        bench.reply(id, Reply::TickOverlaps);
    }
    let outputs = bench.to(10_050);
    let (id, _) = claim(&outputs, 10);
    bench.reply(id, Reply::TickOverlaps);
    let (id, _) = claim(&bench.to(10_300), 1);
    (bench, id)
}

#[test]
fn a_look_at_a_watched_tick_holds_up_no_later_one() {
    let (mut bench, look) = looking_again();
    // The look is not answered yet. Behind it, the tick would be skipped if it took the watched one over.
    let (id, _) = claim(&bench.to(11_050), 11);
    let outputs = bench.grant(id);
    assert_eq!(starts(&outputs).len(), 1);
    assert_eq!(skips(&bench.reply(look, HELD)), []);
}

#[test]
fn a_watched_tick_is_not_given_up_for_a_later_one_when_a_look_at_it_fails() {
    for failure in [Failure::NotExecuted, Failure::Unknown] {
        let (mut bench, look) = looking_again();
        // It rests until the next look while a tick is due.
        bench.to(10_990);
        assert_eq!(claims(&bench.reply(look, Reply::Failed(failure))), []);
        let outputs = bench.to(11_050);
        let (id, _) = claim(&outputs, 11);
        assert_eq!(skips(&outputs), []);
        bench.reply(id, Reply::TickOverlaps);
        // The other instance has died.
        let (look, lease) = claim(&bench.to(11_500), 1);
        assert_eq!(starts(&bench.grant(look)), [lease]);
    }
}

#[test]
fn however_many_ticks_are_watched_later_ones_are_claimed_and_the_oldest_are_given_up() {
    let mut options = job();
    options.attempts = 2;
    let mut bench = Bench::new(options);
    let mut watched = 0;
    for n in 1..=40 {
        let outputs = bench.to(n * 1_000 + 50);
        assert_eq!(skips(&outputs), [], "another instance has begun each of them");
        // Whoever gets them is stopped before the next one is due, and nobody looks in between.
        let claims = claims(&outputs);
        assert!(claims.iter().any(|(_, _, tick)| *tick == n), "{outputs:?}");
        for (id, _, _) in claims {
            bench.reply(id, HELD);
        }
        watched = watched.max(bench.node.periodics[&bench.job].periodic.runs.len());
    }
    assert_eq!(watched, PeriodicOptions::MOST_RUNS);
}

#[test]
fn ticks_that_were_left_unfinished_are_taken_up_each_once_where_they_may_be_tried_again() {
    for attempts in [1, 3] {
        let mut options = job();
        options.attempts = attempts;
        let mut node = node();
        node.start_periodic(ms(5_500), timer_name("nightly"), options).expect("not shutting down");
        let id = request(&drain(&mut node));
        let outputs = read(&mut node, ms(5_500), id, record("every 1s", 5, &[2, 4, 5]));
        let ticks: Vec<_> = claims(&outputs).iter().map(|(_, _, tick)| *tick).collect();
        if attempts == 1 {
            assert_eq!(ticks, []);
            continue;
        }
        assert_eq!(ticks, [2, 4, 5]);
        // Another look finds the same ones.
        let Output::Wait(Some(at)) = node.poll() else { panic!("something is due") };
        node.handle(at, Event::Timeout).expect("never misuse");
        let outputs = drain(&mut node);
        if let [Command::ReadTimer { id, .. }] = commands(&outputs)[..] {
            assert_eq!(claims(&read(&mut node, at, id, record("every 1s", 5, &[2, 4, 5]))), []);
        }
    }
}

#[test]
fn what_is_granted_while_a_run_here_has_still_to_end_goes_back_unused() {
    let mut options = job();
    options.attempts = 2;
    let mut bench = Bench::new(options);
    let (id, _) = claim(&bench.to(1_100), 1);
    bench.reply(id, HELD);
    let (id, second) = claim(&bench.to(2_100), 2);
    assert_eq!(starts(&bench.grant(id)), [second]);
    // The claim of the second is over at the store, which this instance has still to hear.
    let outputs = bench.to(10_300);
    let of_first = |(id, _, tick): (CommandId, LeaseKey, u64)| (tick == 1).then_some(id);
    let id = claims(&outputs).into_iter().find_map(of_first).expect("it looks again");
    let outputs = bench.grant(id);
    assert_eq!(starts(&outputs), []);
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(12)), ClaimEnd::NotStarted)]);
    assert_eq!(skips(&outputs), [(1, TickMiss::Overlap)]);
}

#[test]
fn a_run_elsewhere_that_outlasts_the_limit_of_lateness_is_not_called_missed() {
    let mut options = job();
    options.attempts = 2;
    options.timer.late_limit = Some(Duration::from_secs(2));
    let mut bench = Bench::new(options);
    let (id, _) = claim(&bench.to(1_100), 1);
    bench.reply(id, HELD);
    let outputs = bench.to(1_900);
    assert_eq!(claims(&outputs), []);
    let outputs = bench.to(3_900);
    let first = skips(&outputs).iter().filter(|(tick, _)| *tick == 1).count();
    assert_eq!(first, 0, "{outputs:?}");
}

#[test]
fn a_tick_that_waits_longer_than_it_may_be_late_is_not_run() {
    let mut options = job();
    options.overlap = Overlap::Queue;
    options.timer.late_limit = Some(Duration::from_millis(2_500));
    options.timer.missed = Missed::CatchUp { at_most: 2 };
    let (mut bench, lease) = Bench::running(options);
    bench.reads = true;
    bench.to(2_100);
    let before = bench.to(2_900);
    assert_eq!(skips(&before), []);
    // Ticks 2 and 3 wait here; the run ends when the second is too late.
    bench.to(3_500);
    bench.to(3_900);
    let outputs = bench.to(4_700);
    assert_eq!(skips(&outputs), [(2, TickMiss::Superseded)], "two wait at most");
    let outputs = bench.to(5_900);
    assert_eq!(skips(&outputs), [(3, TickMiss::Superseded)]);
    let finish = finish_of(&bench.exit(lease, Exit::Completed));
    bench.now = ms(7_000);
    let outputs = bench.reply(finish, RELEASED);
    assert_eq!(skips(&outputs), [(4, TickMiss::TooLate)]);
    claim(&outputs, 5);
}

#[test]
fn the_next_tick_is_claimed_once_the_claim_of_the_run_that_has_ended_is_over_at_the_store() {
    let (mut bench, lease) = Bench::running(job());
    let outputs = bench.exit(lease, Exit::Completed);
    let finish = finish_of(&outputs);
    // The store would pass it over for the claim that it still has.
    let outputs = bench.to(2_100);
    assert_eq!((claims(&outputs), skips(&outputs)), (Vec::new(), Vec::new()));
    claim(&bench.reply(finish, RELEASED), 2);
}

#[test]
fn a_claim_whose_end_is_never_answered_holds_up_the_next_tick_no_longer_than_its_ttl() {
    let (mut bench, lease) = Bench::running(job());
    bench.exit(lease, Exit::Completed);
    let outputs = bench.to(14_000);
    assert_eq!(claims(&outputs), []);
    assert_eq!(skips(&outputs).len(), 11, "all but the latest: {outputs:?}");
    let outputs = bench.to(18_100);
    assert_eq!(claims(&outputs).len(), 1, "{outputs:?}");
}

#[test]
fn where_runs_may_overlap_no_tick_waits_for_the_end_of_a_claim() {
    let mut options = job();
    options.overlap = Overlap::Allow;
    let (mut bench, lease) = Bench::running(options);
    bench.exit(lease, Exit::Completed);
    claim(&bench.to(2_050), 2);
}

#[test]
fn where_runs_may_overlap_no_request_overtakes_that_for_an_earlier_tick() {
    let mut options = job();
    options.overlap = Overlap::Allow;
    options.timer.missed = Missed::CatchUp { at_most: 9 };
    let mut bench = Bench::new(options);
    let (id, first) = claim(&bench.to(1_100), 1);
    // The second tick is due. Granted first, it would make the store refuse the first one for good.
    assert_eq!(claims(&bench.to(2_050)), []);
    let mut outputs = bench.reply(id, Reply::Failed(Failure::Unknown));
    assert_eq!(claims(&outputs), [], "it may have been granted");
    outputs = bench.to(2_900);
    let (id, again) = claim(&outputs, 1);
    assert_eq!(again, first);
    outputs = bench.grant(id);
    assert_eq!(starts(&outputs), [first]);
    claim(&outputs, 2);
}

#[test]
fn where_runs_may_overlap_a_tick_that_waits_for_its_turn_holds_nobody_up() {
    let mut options = job();
    options.overlap = Overlap::Allow;
    options.timer.missed = Missed::CatchUp { at_most: 9 };
    let mut bench = Bench::new(options);
    let (id, _) = claim(&bench.to(1_100), 1);
    assert_eq!(claims(&bench.to(2_050)), []);
    claim(&bench.reply(id, HELD), 2);
}
