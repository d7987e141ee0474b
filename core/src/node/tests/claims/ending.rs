//! How jobs, runs and claims end: by a drain, a loss, a grant that comes too late.

use super::*;

#[test]
fn a_claim_that_is_granted_too_late_goes_back_unused_and_is_tried_again() {
    let mut bench = Bench::new(job());
    bench.reads = false;
    let (id, lease) = claim(&bench.to(1_050), 1);
    bench.now = ms(16_000);
    let outputs = bench.grant(id);
    assert_eq!(starts(&outputs), []);
    let late =
        |o: &Output| matches!(o, Output::Notice(Notice::GrantedTooLate { lease: of, .. }) if *of == lease);
    assert!(outputs.iter().any(late), "{outputs:?}");
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(11)), ClaimEnd::NotStarted)]);
    bench.node.stop_periodic(bench.now, bench.job).expect("known");
    bench.settle(Vec::new());
    bench.reads = true;
    comes_to_an_end(bench);
}

#[test]
fn a_grant_that_is_polled_after_its_fence_starts_nothing_and_is_told_of() {
    let mut bench = Bench::new(job());
    bench.reads = false;
    let (id, _) = claim(&bench.to(1_050), 1);
    let token = Token::new(11);
    bench.node.handle(bench.now, Event::Reply { id, reply: Reply::Granted { token } }).expect("it fits");
    // Nothing drives it for a long while.
    bench.now = ms(30_000);
    bench.node.handle(bench.now, Event::Timeout).expect("never misuse");
    let outputs = bench.settle(Vec::new());
    assert_eq!(starts(&outputs), []);
    assert!(skips(&outputs).contains(&(1, TickMiss::TooLate)), "{outputs:?}");
    let first = finishes(&outputs).into_iter().find(|(tick, ..)| *tick == 1);
    assert_eq!(first, Some((1, Some(token), ClaimEnd::NotStarted)));
}

#[test]
fn a_claim_that_is_lost_during_the_run_stops_the_run_hard_and_is_left_to_another_attempt() {
    let (mut bench, lease) = Bench::running(job());
    let mut outputs = bench.to(1_200);
    let mut at = 1_200;
    while !commands(&outputs).iter().any(|command| matches!(command, Command::Renew { .. })) {
        at += 100;
        outputs = bench.to(at);
    }
    let renew = commands(&outputs).iter().find_map(Command::id).expect("a renewal");
    let outputs = bench.reply(renew, Reply::NotYours);
    let stop =
        |c: &Command| matches!(c, Command::StopWorkload { lease: of, how: Stop::Hard, .. } if *of == lease);
    assert!(commands(&outputs).iter().any(stop), "{outputs:?}");
    let outputs = bench.over(lease, Exit::Stopped);
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(11)), ClaimEnd::Interrupted)]);
    // The next tick is claimed all the same.
    let outputs = bench.to(at + 1_000);
    assert_eq!(claims(&outputs).len(), 1, "{outputs:?}");
}

#[test]
fn a_claim_that_cannot_be_renewed_fences_the_run() {
    let (mut bench, lease) = Bench::running(job());
    let mut stops = Vec::new();
    for step in 12..200 {
        let outputs = bench.to(step * 100);
        stops.extend(commands(&outputs).into_iter().filter_map(|command| match command {
            Command::StopWorkload { lease: of, how, .. } if of == lease => Some((how, step * 100)),
            _ => None,
        }));
    }
    let hows: Vec<_> = stops.iter().map(|(how, _)| *how).collect();
    assert_eq!(hows, [Stop::Ask, Stop::Hard]);
    assert!(stops[1].1 < 1_000 + 15_000, "{stops:?}");
}

#[test]
fn a_drain_ends_the_job_once_its_run_has_ended_and_says_so_once() {
    let (mut bench, lease) = Bench::running(job());
    for _ in 0..2 {
        bench.node.drain_periodic(bench.now, bench.job).expect("known");
    }
    let outputs = bench.settle(Vec::new());
    let told = |c: &Command| matches!(c, Command::DrainWorkload { lease: of, .. } if *of == lease);
    assert!(commands(&outputs).iter().any(told), "{outputs:?}");
    assert_eq!(ends(&outputs), []);
    assert_eq!(bench.node.periodic_name(bench.job), Some(&timer_name("nightly")));
    assert_eq!(claims(&bench.to(5_000)), []);
    let outputs = bench.exit(lease, Exit::Completed);
    assert_eq!(ends(&outputs), [(bench.job, TimerEnd::Stopped)]);
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(11)), ClaimEnd::Finished)]);
    bench.node.drain_periodic(bench.now, bench.job).expect("ended, but known");
    assert_eq!(bench.settle(Vec::new()), []);
    comes_to_an_end(bench);
}

/// A job in each of its states.
fn in_every_state() -> Vec<(&'static str, Bench)> {
    let mut all = Vec::new();
    let mut node = node();
    let key = node.start_periodic(ms(0), timer_name("nightly"), job()).expect("not shutting down");
    let id = request(&drain(&mut node));
    let timer = TimerKey(id.machine);
    let fresh = Bench {
        node,
        job: key,
        timer,
        now: ms(0),
        claimed: 0,
        unfinished: Vec::new(),
        token: 10,
        reads: true,
    };
    all.push(("registering", fresh));
    all.push(("between ticks", Bench::new(job())));
    let mut claiming = Bench::new(job());
    let (id, _) = claim(&claiming.to(1_100), 1);
    all.push(("claiming", claiming));
    let mut pending = Bench::new(job());
    pending.to(2_050);
    all.push(("claiming, with another pending", pending));
    let mut failing = Bench::new(job());
    failing.to(1_100);
    failing.reply(id, Reply::Failed(Failure::Unknown));
    all.push(("after a failed claim", failing));
    let mut options = job();
    options.overlap = Overlap::Queue;
    let mut waiting = Bench::new(options);
    waiting.to(1_100);
    waiting.reply(id, HELD);
    all.push(("waiting", waiting));
    let mut granted = Bench::new(job());
    granted.to(1_100);
    let token = Token::new(11);
    granted.node.handle(granted.now, Event::Reply { id, reply: Reply::Granted { token } }).expect("it fits");
    all.push(("granted, not polled", granted));
    all.push(("running", Bench::running(job()).0));
    let mut due = Bench::new(job());
    due.now = ms(1_100);
    due.node.handle(due.now, Event::Timeout).expect("never misuse");
    all.push(("a tick is due, not polled", due));
    all
}

#[test]
fn drain_stop_and_shutdown_end_the_job_exactly_once_in_every_state_and_leave_nothing() {
    for how in ["drain", "stop", "shutdown", "shutdown twice"] {
        for (state, mut bench) in in_every_state() {
            let now = bench.now;
            match how {
                "drain" => bench.node.drain_periodic(now, bench.job).expect("known"),
                "stop" => bench.node.stop_periodic(now, bench.job).expect("known"),
                "shutdown" => bench.node.shutdown(now),
                _ => {
                    bench.node.shutdown(now);
                    bench.node.shutdown(now);
                }
            }
            let mut outputs = bench.settle(Vec::new());
            // A run that goes on is told to end, and does.
            let running: Vec<_> = commands(&outputs)
                .into_iter()
                .filter_map(|command| match command {
                    Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, .. } => Some(lease),
                    _ => None,
                })
                .collect();
            assert_eq!(!running.is_empty(), state == "running", "{how} while {state}");
            assert_eq!(starts(&outputs), [], "{how} while {state}");
            for lease in running {
                outputs.extend(bench.exit(lease, Exit::Stopped));
            }
            for _ in 0..200 {
                let Output::Wait(Some(at)) = bench.node.poll() else { break };
                bench.now = at;
                bench.node.handle(at, Event::Timeout).expect("never misuse");
                outputs.extend(bench.settle(Vec::new()));
            }
            assert_eq!(ends(&outputs), [(bench.job, TimerEnd::Stopped)], "{how} while {state}");
            let timers = outputs.iter().filter(|o| matches!(o, Output::Notice(Notice::TimerEnded { .. })));
            assert_eq!(timers.count(), 0, "the job's end says it all");
            comes_to_an_end(bench);
        }
    }
}

#[test]
fn a_claim_that_was_given_up_is_given_back_if_it_was_granted_all_the_same() {
    let mut bench = Bench::new(job());
    let (id, _) = claim(&bench.to(1_100), 1);
    bench.node.stop_periodic(bench.now, bench.job).expect("known");
    let outputs = bench.settle(Vec::new());
    assert_eq!(finishes(&outputs), [(1, None, ClaimEnd::NotStarted)]);
    let finish = finish_of(&outputs);
    let outputs = bench.grant(id);
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(11)), ClaimEnd::NotStarted)]);
    bench.reply(finish, Reply::NotYours);
    bench.reply(finish_of(&outputs), RELEASED);
    comes_to_an_end(bench);
}

#[test]
fn a_registration_that_the_store_refuses_ends_the_job() {
    let mut node = node();
    let key = node.start_periodic(ms(0), timer_name("nightly"), job()).expect("not shutting down");
    let id = request(&drain(&mut node));
    let outputs = reply(&mut node, ms(1), id, Reply::Failed(Failure::Refused));
    assert_eq!(ends(&outputs), [(key, TimerEnd::Refused)]);
    assert!(node.is_empty());
}

#[test]
fn a_run_that_ends_as_it_is_stopped_hard_has_begun_all_the_same() {
    for (exit, end) in [
        (Exit::Stopped, ClaimEnd::Interrupted),
        (Exit::Failed, ClaimEnd::Finished),
        (Exit::NotStarted, ClaimEnd::NotStarted),
    ] {
        let (mut bench, lease) = Bench::running(job());
        let kill_at = bench.node.deadlines(lease).expect("held").kill_at;
        // The hard stop is due, and has not left, when the exit comes.
        bench.now = kill_at;
        bench.node.handle(bench.now, Event::WorkloadExited { lease, exit }).expect("known");
        let outputs = bench.settle(Vec::new());
        let ends: Vec<_> = finishes(&outputs).into_iter().map(|(_, _, end)| end).collect();
        assert_eq!(ends, [end], "{exit:?}: {outputs:?}");
    }
}

#[test]
fn a_tick_whose_claim_goes_back_unbegun_is_told_of_while_the_job_ends_too() {
    for how in ["drain", "stop", "shutdown"] {
        let mut bench = Bench::new(job());
        let (id, _) = claim(&bench.to(1_100), 1);
        // From its grant on everybody else is told that the tick is taken.
        let token = Token::new(20);
        bench.node.handle(bench.now, Event::Reply { id, reply: Reply::Granted { token } }).expect("it fits");
        match how {
            "drain" => bench.node.drain_periodic(bench.now, bench.job).expect("known"),
            "stop" => bench.node.stop_periodic(bench.now, bench.job).expect("known"),
            _ => bench.node.shutdown(bench.now),
        }
        let outputs = bench.settle(Vec::new());
        assert_eq!(finishes(&outputs), [(1, Some(token), ClaimEnd::NotStarted)], "{how}");
        assert_eq!(skips(&outputs), [(1, TickMiss::GivenBack)], "{how}");
    }
}

#[test]
fn a_tick_that_was_granted_too_late_and_is_not_to_be_had_again_is_told_of() {
    let mut options = job();
    options.timer.missed = Missed::CatchUp { at_most: 9 };
    let mut bench = Bench::new(options);
    bench.reads = false;
    let (id, lease) = claim(&bench.to(1_050), 1);
    bench.now = ms(16_000);
    let outputs = bench.grant(id);
    let outputs = bench.reply(finish_of(&outputs), RELEASED);
    let again = |(id, of, tick): (CommandId, LeaseKey, u64)| (of == lease && tick == 1).then_some(id);
    let id = claims(&outputs).into_iter().find_map(again).expect("it is tried again");
    let outputs = bench.reply(id, Reply::TickTaken);
    assert_eq!(skips(&outputs), [(1, TickMiss::GivenBack)]);
}
