//! Runs under a lease of a name, with a claim beside it.

use super::*;
use crate::command::StopReason;

fn under(overlap: Overlap) -> PeriodicOptions {
    let mut options = job();
    (options.lease, options.overlap) = (Some(name("machine")), overlap);
    options
}

fn acquires(outputs: &[Output]) -> Vec<(CommandId, LeaseKey)> {
    let acquire = |command: &Command| match command {
        Command::Acquire { id, lease, .. } => Some((*id, *lease)),
        _ => None,
    };
    commands(outputs).iter().filter_map(acquire).collect()
}

fn releases(outputs: &[Output]) -> Vec<(CommandId, LeaseKey)> {
    let release = |command: &Command| match command {
        Command::Release { id, lease, .. } => Some((*id, *lease)),
        _ => None,
    };
    commands(outputs).iter().filter_map(release).collect()
}

fn acquire(outputs: &[Output]) -> (CommandId, LeaseKey) {
    let all = acquires(outputs);
    let [only] = all[..] else { panic!("one attempt, not {outputs:?}") };
    only
}

/// The lease is held, and the tick is to be claimed.
fn claiming(options: PeriodicOptions) -> (Bench, LeaseKey, CommandId, LeaseKey) {
    let mut bench = Bench::new(options);
    let (id, lease) = acquire(&bench.to(1_100));
    let (claim_id, claim_lease) = claim(&bench.grant(id), 1);
    (bench, lease, claim_id, claim_lease)
}

fn running() -> (Bench, LeaseKey, LeaseKey) {
    let (mut bench, lease, id, claim_lease) = claiming(under(Overlap::Skip));
    let outputs = bench.grant(id);
    assert_eq!(starts(&outputs), [lease], "it runs under the lease, not under the claim");
    (bench, lease, claim_lease)
}

#[test]
fn the_lease_comes_first_then_the_claim_then_the_run_and_both_go_back() {
    let (mut bench, lease, _) = running();
    let outputs = bench.exit(lease, Exit::Completed);
    let order: Vec<_> = commands(&outputs)
        .iter()
        .map(|command| match command {
            Command::FinishTick { .. } => "finish",
            Command::Release { .. } => "release",
            _ => "another",
        })
        .collect();
    assert_eq!(order, ["finish", "release"], "whoever gets the lease next finds no claim");
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(12)), ClaimEnd::Finished)]);
    bench.reply(releases(&outputs)[0].0, RELEASED);
    bench.reply(finish_of(&outputs), RELEASED);
    assert_eq!(bench.node.len(), 2, "the timer and the job");
    acquire(&bench.to(2_100));
}

#[test]
fn a_tick_that_another_has_had_gives_the_lease_back_at_once() {
    let (mut bench, lease, id, _) = claiming(under(Overlap::Skip));
    let outputs = bench.reply(id, Reply::TickTaken);
    assert_eq!(releases(&outputs).iter().map(|(_, of)| *of).collect::<Vec<_>>(), [lease]);
    assert_eq!((starts(&outputs), skips(&outputs), finishes(&outputs)), (Vec::new(), Vec::new(), Vec::new()));
    bench.reply(releases(&outputs)[0].0, RELEASED);
    assert_eq!(bench.node.len(), 2);
}

#[test]
fn a_tick_whose_claim_fails_for_good_gives_the_lease_back_and_says_why() {
    for (answer, why) in
        [(Reply::TickOverlaps, TickMiss::Overlap), (Reply::Failed(Failure::Refused), TickMiss::Refused)]
    {
        let (mut bench, ..) = claiming(under(Overlap::Skip));
        let id = CommandId { machine: bench.node.leases.keys().last().expect("a claim").0, sequence: 0 };
        let outputs = bench.reply(id, answer);
        assert_eq!((releases(&outputs).len(), skips(&outputs)), (1, alloc::vec![(1, why)]));
    }
}

#[test]
fn a_lease_that_is_held_elsewhere_skips_the_tick() {
    let mut bench = Bench::new(under(Overlap::Skip));
    let (id, _) = acquire(&bench.to(1_100));
    let outputs = bench.reply(id, HELD);
    assert_eq!(skips(&outputs), [(1, TickMiss::Overlap)]);
    acquire(&bench.to(2_100));
}

#[test]
fn a_lease_that_is_held_elsewhere_is_waited_for_by_the_latest_tick_alone_where_ticks_queue() {
    for attempts in [1, 3] {
        let mut options = under(Overlap::Queue);
        options.attempts = attempts;
        let mut bench = Bench::new(options);
        let (id, _) = acquire(&bench.to(1_100));
        bench.reply(id, HELD);
        let mut superseded = Vec::new();
        for second in 2..=6 {
            let outputs = bench.to(second * 1_000 + 100);
            superseded.extend(skips(&outputs));
            for command in commands(&outputs) {
                match command {
                    Command::Acquire { id, .. } => drop(bench.reply(id, HELD)),
                    Command::Release { id, .. } => drop(bench.reply(id, Reply::NotYours)),
                    Command::Watch { id, .. } => drop(bench.reply(id, Reply::Failed(Failure::Refused))),
                    _ => {}
                }
            }
        }
        let expected: Vec<_> = (1..=5).map(|tick| (tick, TickMiss::Superseded)).collect();
        assert_eq!(superseded, expected, "{attempts}");
        assert!(bench.node.len() <= 6, "{}", bench.node.len());
    }
}

#[test]
fn a_lease_that_is_lost_while_the_tick_is_claimed_starts_nothing_and_gives_the_claim_back() {
    let mut options = under(Overlap::Skip);
    // Later ticks don't take its place.
    options.timer.missed = Missed::CatchUp { at_most: 9 };
    let (mut bench, lease, id, _) = claiming(options);
    // The store says that the lease is somebody else's.
    let mut at = 1_100;
    let renew = loop {
        at += 100;
        assert!(at < 60_000, "it is never renewed");
        let outputs = bench.to(at);
        let renewal = commands(&outputs).into_iter().find_map(|command| match command {
            Command::Renew { id, lease: of, .. } if of == lease => Some(id),
            _ => None,
        });
        if let Some(renewal) = renewal {
            break renewal;
        }
    };
    let mut outputs = bench.reply(renew, Reply::NotYours);
    assert!(skips(&outputs).contains(&(1, TickMiss::TooLate)), "{outputs:?}");
    assert!(finishes(&outputs).contains(&(1, None, ClaimEnd::NotStarted)), "{outputs:?}");
    // The claim is granted after all.
    outputs = bench.grant(id);
    assert_eq!(starts(&outputs), []);
    assert!(finishes(&outputs).iter().all(|(_, _, end)| *end == ClaimEnd::NotStarted));
}

#[test]
fn a_lease_that_is_lost_right_before_the_claim_is_granted_starts_nothing() {
    let (mut bench, lease, id, _) = claiming(under(Overlap::Skip));
    bench.reads = false;
    bench.now = ms(20_000);
    // Nothing drove it: by now the lease is over, and so is the time of the claim's request.
    let outputs = bench.grant(id);
    assert_eq!(starts(&outputs), []);
    assert!(bench.node.valid(bench.now, lease).is_none());
    bench.node.stop_periodic(bench.now, bench.job).expect("known");
    bench.settle(Vec::new());
    bench.reads = true;
    comes_to_an_end(bench);
}

#[test]
fn a_claim_that_is_lost_during_the_run_changes_nothing_since_the_lease_keeps_others_out() {
    let (mut bench, lease, claim_lease) = running();
    let mut outputs = Vec::new();
    let mut at = 1_100;
    while at < 30_000 {
        at += 500;
        for command in commands(&bench.to(at)) {
            match command {
                Command::Renew { id, lease: of, .. } if of == claim_lease => {
                    outputs.extend(bench.reply(id, Reply::NotYours));
                }
                Command::Renew { id, .. } => drop(bench.reply(id, Reply::Renewed)),
                Command::StopWorkload { .. } | Command::DrainWorkload { .. } => panic!("{command}"),
                _ => {}
            }
        }
    }
    let stops = |c: &Command| matches!(c, Command::StopWorkload { .. } | Command::DrainWorkload { .. });
    assert!(!commands(&outputs).iter().any(stops), "{outputs:?}");
    let lost = |o: &Output| matches!(o, Output::Notice(Notice::Lost { .. }));
    assert!(!outputs.iter().any(lost), "it is no loss to the run: {outputs:?}");
    let outputs = bench.exit(lease, Exit::Completed);
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(12)), ClaimEnd::Finished)]);
}

#[test]
fn an_exit_of_the_claim_changes_nothing_since_no_work_is_under_it() {
    let (mut bench, lease, claim_lease) = running();
    let before = bench.node.clone();
    assert_eq!(bench.exit(claim_lease, Exit::Completed), []);
    assert_eq!(bench.node, before);
    let outputs = bench.exit(lease, Exit::Stopped);
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(12)), ClaimEnd::Interrupted)]);
}

#[test]
fn a_lease_that_is_lost_during_the_run_stops_it_and_leaves_the_tick_to_another_attempt() {
    let (mut bench, lease, _) = running();
    let mut at = 1_100;
    let mut stopped = false;
    while !stopped {
        at += 500;
        assert!(at < 60_000, "it is never stopped");
        for command in commands(&bench.to(at)) {
            if let Command::Renew { id, lease: of, .. } = command {
                let outputs = bench.reply(id, if of == lease { Reply::NotYours } else { Reply::Renewed });
                let stop = |c: &Command| matches!(c, Command::StopWorkload { lease: of, why: StopReason::Lost, .. } if *of == lease);
                stopped |= commands(&outputs).iter().any(stop);
            }
        }
    }
    let outputs = bench.exit(lease, Exit::Stopped);
    assert!(finishes(&outputs).contains(&(1, Some(Token::new(12)), ClaimEnd::Interrupted)), "{outputs:?}");
}

#[test]
fn drain_stop_and_shutdown_end_it_in_every_state_and_neither_lease_nor_claim_is_left() {
    for how in ["drain", "stop", "shutdown"] {
        for state in
            ["acquiring", "waiting", "granted, not polled", "claiming", "claim waits", "claimed, not polled"]
        {
            let mut bench = Bench::new(under(Overlap::Queue));
            let (id, _) = acquire(&bench.to(1_100));
            let token = Token::new(20);
            match state {
                "acquiring" => {}
                "waiting" => drop(bench.reply(id, HELD)),
                "granted, not polled" => {
                    let reply = Reply::Granted { token };
                    bench.node.handle(bench.now, Event::Reply { id, reply }).expect("it fits");
                }
                _ => {
                    let (id, _) = claim(&bench.grant(id), 1);
                    match state {
                        "claim waits" => drop(bench.reply(id, HELD)),
                        "claimed, not polled" => {
                            let reply = Reply::Granted { token };
                            bench.node.handle(bench.now, Event::Reply { id, reply }).expect("it fits");
                        }
                        _ => {}
                    }
                }
            }
            match how {
                "drain" => bench.node.drain_periodic(bench.now, bench.job).expect("known"),
                "stop" => bench.node.stop_periodic(bench.now, bench.job).expect("known"),
                _ => bench.node.shutdown(bench.now),
            }
            let mut outputs = bench.settle(Vec::new());
            assert_eq!(starts(&outputs), [], "{how} while {state}");
            for _ in 0..300 {
                let Output::Wait(Some(at)) = bench.node.poll() else { break };
                bench.now = at;
                bench.node.handle(at, Event::Timeout).expect("never misuse");
                outputs.extend(bench.settle(Vec::new()));
            }
            assert_eq!(ends(&outputs), [(bench.job, TimerEnd::Stopped)], "{how} while {state}");
            comes_to_an_end(bench);
        }
    }
}

#[test]
fn tokens_of_claims_rise_from_one_to_the_next_under_a_lease_too() {
    let (mut bench, lease, _) = running();
    let outputs = bench.exit(lease, Exit::Completed);
    bench.reply(releases(&outputs)[0].0, RELEASED);
    bench.reply(finish_of(&outputs), RELEASED);
    // The next claim knows of its token.
    let (id, _) = acquire(&bench.to(2_100));
    let outputs = bench.reply(id, Reply::Granted { token: Token::new(99) });
    let floors: Vec<_> = commands(&outputs)
        .into_iter()
        .filter_map(|command| if let Command::ClaimTick { floor, .. } = command { Some(floor) } else { None })
        .collect();
    assert!(matches!(floors[..], [floor] if floor >= Token::new(12)), "{floors:?}");
}

#[test]
fn a_tick_that_is_too_late_by_the_time_of_its_claim_is_not_run() {
    let mut options = under(Overlap::Queue);
    options.timer.late_limit = Some(Duration::from_secs(3));
    options.timer.missed = Missed::CatchUp { at_most: 9 };
    let (mut bench, lease, id, _) = claiming(options);
    // Another tick's claim lives for nine seconds more.
    let mut outputs = bench.reply(id, HELD);
    let (mut at, mut told) = (1_100, Vec::new());
    while at < 20_000 {
        told.extend(skips(&outputs));
        for (_, _, tick) in claims(&outputs) {
            assert!(tick > 1, "tick 1 is claimed at {at} ms");
        }
        at += 100;
        outputs = bench.to(at);
        for command in commands(&outputs) {
            if let Command::Renew { id, lease: of, .. } = command
                && of == lease
            {
                bench.reply(id, Reply::Renewed);
            }
        }
    }
    assert!(told.contains(&(1, TickMiss::TooLate)), "{told:?}");
}
