//! Periodic jobs: claims of ticks, and their runs, in every order of answers.

use super::timers::{every, read, record, request, timer_name, wall};
use super::*;
use crate::command::ClaimEnd;
use crate::name::{PeriodicKey, TimerKey};
use crate::periodic::{Overlap, PeriodicOptions};
use crate::timer::{Missed, TickMiss, TimerEnd};

mod under_a_lease;

/// A job of one second.
fn job() -> PeriodicOptions {
    PeriodicOptions::new(every(1_000), options())
}

struct Bench {
    node: Node<SplitMix>,
    job: PeriodicKey,
    timer: TimerKey,
    now: Instant,
    /// What the last claimed tick is by the record.
    claimed: u64,
    unfinished: Vec<u64>,
    token: u64,
    /// Whether requests of the timer are answered by themselves.
    reads: bool,
}

impl Bench {
    fn new(options: PeriodicOptions) -> Self {
        let mut node = node();
        let job = node.start_periodic(ms(0), timer_name("nightly"), options).expect("not shutting down");
        let id = request(&drain(&mut node));
        let timer = TimerKey(id.machine);
        let mut bench =
            Self { node, job, timer, now: ms(0), claimed: 0, unfinished: Vec::new(), token: 10, reads: true };
        assert_eq!(bench.answer_read(id), []);
        bench
    }

    fn answer_read(&mut self, id: CommandId) -> Vec<Output> {
        let view = record("every 1s", self.claimed, &self.unfinished);
        read(&mut self.node, self.now, id, view)
    }

    /// Lets time go on, and answers what timers ask; returns everything else.
    fn to(&mut self, now: u64) -> Vec<Output> {
        let mut all = self.settle(Vec::new());
        while let Output::Wait(Some(at)) = self.node.poll()
            && at <= ms(now)
        {
            assert!(at > self.now, "time stands still");
            self.now = at;
            self.node.handle(at, Event::Timeout).expect("never misuse");
            let outputs = drain(&mut self.node);
            all.extend(self.settle(outputs));
        }
        self.now = ms(now);
        self.node.handle(self.now, Event::Timeout).expect("never misuse");
        let outputs = drain(&mut self.node);
        all.extend(self.settle(outputs));
        all
    }

    fn settle(&mut self, mut outputs: Vec<Output>) -> Vec<Output> {
        outputs.extend(drain(&mut self.node));
        let mut all = Vec::new();
        while !outputs.is_empty() {
            for output in core::mem::take(&mut outputs) {
                match output {
                    Output::Command(Command::ReadTimer { id, .. }) if self.reads => {
                        outputs.extend(self.answer_read(id));
                    }
                    output => all.push(output),
                }
            }
        }
        all
    }

    fn reply(&mut self, id: CommandId, with: Reply) -> Vec<Output> {
        let outputs = reply(&mut self.node, self.now, id, with);
        self.settle(outputs)
    }

    fn grant(&mut self, id: CommandId) -> Vec<Output> {
        self.token += 1;
        let token = Token::new(self.token);
        self.reply(id, Reply::Granted { token })
    }

    fn exit(&mut self, lease: LeaseKey, exit: Exit) -> Vec<Output> {
        self.node.handle(self.now, Event::WorkloadExited { lease, exit }).expect("known");
        self.settle(Vec::new())
    }

    /// Claims tick 1, is granted it, and starts its run.
    fn running(options: PeriodicOptions) -> (Self, LeaseKey) {
        let mut bench = Self::new(options);
        let (id, lease) = claim(&bench.to(1_100), 1);
        let outputs = bench.grant(id);
        assert_eq!(starts(&outputs), [lease]);
        (bench, lease)
    }
}

/// The only command, which must claim this tick.
fn claim(outputs: &[Output], n: u64) -> (CommandId, LeaseKey) {
    let claims = claims(outputs);
    let [(id, lease, tick)] = claims[..] else { panic!("one claim, not {outputs:?}") };
    assert_eq!(tick, n, "{outputs:?}");
    (id, lease)
}

fn claims(outputs: &[Output]) -> Vec<(CommandId, LeaseKey, u64)> {
    let claim = |command: &Command| match command {
        Command::ClaimTick { id, lease, tick, .. } => Some((*id, *lease, *tick)),
        _ => None,
    };
    commands(outputs).iter().filter_map(claim).collect()
}

fn starts(outputs: &[Output]) -> Vec<LeaseKey> {
    let start = |command: &Command| match command {
        Command::StartWorkload { lease, .. } => Some(*lease),
        _ => None,
    };
    commands(outputs).iter().filter_map(start).collect()
}

fn finishes(outputs: &[Output]) -> Vec<(u64, Option<Token>, ClaimEnd)> {
    let finish = |command: &Command| match command {
        Command::FinishTick { tick, token, end, .. } => Some((*tick, *token, *end)),
        _ => None,
    };
    commands(outputs).iter().filter_map(finish).collect()
}

fn finish_of(outputs: &[Output]) -> CommandId {
    let finish = |command: &Command| match command {
        Command::FinishTick { id, .. } => Some(*id),
        _ => None,
    };
    commands(outputs).iter().find_map(finish).unwrap_or_else(|| panic!("a finish, not {outputs:?}"))
}

fn skips(outputs: &[Output]) -> Vec<(u64, TickMiss)> {
    let skip = |output: &Output| match output {
        Output::Notice(Notice::TickSkipped { tick, why, .. }) => Some((*tick, *why)),
        _ => None,
    };
    outputs.iter().filter_map(skip).collect()
}

fn ends(outputs: &[Output]) -> Vec<(PeriodicKey, TimerEnd)> {
    let end = |output: &Output| match output {
        Output::Notice(Notice::PeriodicEnded { periodic, why }) => Some((*periodic, *why)),
        _ => None,
    };
    outputs.iter().filter_map(end).collect()
}

/// Whatever is left is over in time, and then nothing is there.
fn comes_to_an_end(mut bench: Bench) {
    for _ in 0..1_000 {
        let Output::Wait(Some(at)) = bench.node.poll() else { break };
        bench.now = at;
        bench.node.handle(at, Event::Timeout).expect("never misuse");
        assert_eq!(starts(&bench.settle(Vec::new())), []);
    }
    let node = &bench.node;
    assert!(node.is_empty(), "{node:?}");
    assert!(node.deadlines.is_empty() && node.ready.is_empty() && node.slots.is_empty());
}

const HELD: Reply = Reply::Held { token: Some(Token::new(5)), remaining: Some(Duration::from_secs(9)) };
const RELEASED: Reply = Reply::Released { others_chosen: false };

#[test]
fn a_tick_is_claimed_run_under_its_claim_and_finished() {
    let mut bench = Bench::new(job());
    let outputs = bench.to(1_100);
    let (id, lease) = claim(&outputs, 1);
    assert_eq!(bench.node.claim(lease), Some((&timer_name("nightly"), 1)));
    assert_eq!(bench.node.name(lease), None);
    let outputs = bench.grant(id);
    assert_eq!(starts(&outputs), [lease]);
    let worker = bench.node.worker(lease).expect("a run");
    let (job, due) = bench.node.run(worker).expect("of the job");
    assert_eq!((job, due.tick.n, due.missed), (bench.job, 1, 0));
    let outputs = bench.exit(lease, Exit::Completed);
    assert_eq!(finishes(&outputs), [(1, Some(Token::new(11)), ClaimEnd::Finished)]);
    assert_eq!(bench.node.run(worker), None);
    bench.reply(finish_of(&outputs), RELEASED);
    let (_, next) = claim(&bench.to(2_100), 2);
    assert_ne!(next, lease);
    assert_eq!(bench.node.len(), 4, "the timer, the job, the next run and its claim");
}

#[test]
fn how_a_run_ended_decides_whether_its_tick_may_be_run_again() {
    let ends = [
        (Exit::Completed, ClaimEnd::Finished),
        (Exit::Failed, ClaimEnd::Finished),
        (Exit::Stopped, ClaimEnd::Interrupted),
        (Exit::NotStarted, ClaimEnd::NotStarted),
    ];
    for (exit, end) in ends {
        let (mut bench, lease) = Bench::running(job());
        let outputs = bench.exit(lease, exit);
        assert_eq!(finishes(&outputs), [(1, Some(Token::new(11)), end)], "{exit:?}");
        let told = if end == ClaimEnd::NotStarted { alloc::vec![(1, TickMiss::TooLate)] } else { Vec::new() };
        assert_eq!(skips(&outputs), told, "{exit:?}");
    }
}

#[test]
fn a_tick_that_another_has_is_left_alone_and_nothing_is_said_of_it() {
    let mut bench = Bench::new(job());
    let (id, _) = claim(&bench.to(1_100), 1);
    let outputs = bench.reply(id, Reply::TickTaken);
    assert_eq!((skips(&outputs), commands(&outputs)), (Vec::new(), Vec::new()));
    assert_eq!(bench.node.len(), 2, "the timer and the job");
    claim(&bench.to(2_100), 2);
}

#[test]
fn a_tick_that_is_passed_over_is_told_of_with_the_reason() {
    let cases =
        [(Reply::TickOverlaps, TickMiss::Overlap), (Reply::Failed(Failure::Refused), TickMiss::Refused)];
    for (answer, why) in cases {
        let mut bench = Bench::new(job());
        let (id, _) = claim(&bench.to(1_100), 1);
        let outputs = bench.reply(id, answer);
        assert_eq!(skips(&outputs), [(1, why)]);
        claim(&bench.to(2_100), 2);
    }
}

#[test]
fn a_token_that_is_not_above_the_last_claims_is_refused() {
    let (mut bench, lease) = Bench::running(job());
    bench.exit(lease, Exit::Completed);
    // Its finish is still to be answered.
    let outputs = bench.to(2_100);
    let (id, _) = claim(&outputs, 2);
    let outputs = bench.reply(id, Reply::Granted { token: Token::new(11) });
    assert_eq!(starts(&outputs), []);
    assert_eq!(skips(&outputs), [(2, TickMiss::Refused)]);
}

#[test]
fn while_a_run_goes_on_here_ticks_are_skipped_without_asking_the_store() {
    let (mut bench, lease) = Bench::running(job());
    let outputs = bench.to(4_100);
    assert_eq!((claims(&outputs), skips(&outputs).len()), (Vec::new(), 3));
    assert!(skips(&outputs).iter().all(|(_, why)| *why == TickMiss::Overlap));
    bench.exit(lease, Exit::Completed);
    claim(&bench.to(5_100), 5);
}

#[test]
fn a_queued_tick_comes_after_the_run_and_of_several_the_latest() {
    let mut options = job();
    options.overlap = Overlap::Queue;
    let (mut bench, lease) = Bench::running(options);
    let outputs = bench.to(4_100);
    assert_eq!(claims(&outputs), []);
    assert_eq!(skips(&outputs), [(2, TickMiss::Superseded), (3, TickMiss::Superseded)]);
    let outputs = bench.exit(lease, Exit::Completed);
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
        outputs = bench.exit(lease, Exit::Completed);
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
    let outputs = bench.exit(lease, Exit::Completed);
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
    bench.now = ms(7_000);
    let outputs = bench.exit(lease, Exit::Completed);
    assert_eq!(skips(&outputs), [(4, TickMiss::TooLate)]);
    claim(&outputs, 5);
}

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
    let outputs = bench.exit(lease, Exit::Stopped);
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
fn the_clock_of_the_store_decides_so_skewed_clocks_claim_the_same_numbers() {
    // One clock of an hour ahead, and one that has just begun: instants mean nothing to anybody else.
    let numbers: Vec<_> = [0, 3_600_000]
        .into_iter()
        .map(|skew| {
            let mut node = node();
            let start = ms(skew);
            node.start_periodic(start, timer_name("nightly"), job()).expect("not shutting down");
            let id = request(&drain(&mut node));
            let view = record("every 1s", 0, &[]);
            node.handle(start, Event::TimerRead { id, view, at: wall(ms(200)) }).expect("it fits");
            drain(&mut node);
            node.handle(ms(skew + 1_000), Event::Timeout).expect("never misuse");
            claims(&drain(&mut node)).iter().map(|(_, _, tick)| *tick).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(numbers, [[1], [1]]);
}

#[test]
fn an_exit_of_what_never_started_changes_nothing() {
    let mut bench = Bench::new(job());
    let (id, lease) = claim(&bench.to(1_100), 1);
    let before = bench.node.clone();
    assert_eq!(bench.exit(lease, Exit::Completed), []);
    assert_eq!(bench.node, before);
    assert_eq!(starts(&bench.grant(id)), [lease]);
}

#[test]
fn what_contradicts_itself_is_misuse() {
    let mut node = node();
    let mut options = job();
    (options.lease, options.overlap) = (Some(name("backup")), Overlap::Allow);
    let refused = node.start_periodic(ms(0), timer_name("nightly"), options);
    assert_eq!(refused, Err(Misuse::OverlapUnderLease));
    let mut options = job();
    options.timer.timeout = Duration::ZERO;
    let refused = node.start_periodic(ms(0), timer_name("nightly"), options);
    assert!(matches!(&refused, Err(Misuse::Config(why)) if why.field == "timeout"), "{refused:?}");
    let unknown = PeriodicKey(99);
    assert_eq!(node.drain_periodic(ms(0), unknown), Err(Misuse::UnknownPeriodic(unknown)));
    assert_eq!(node.stop_periodic(ms(0), unknown), Err(Misuse::UnknownPeriodic(unknown)));
    assert!(node.is_empty());
}

#[test]
fn ticks_come_on_while_requests_of_the_timer_are_not_answered() {
    let mut bench = Bench::new(job());
    bench.reads = false;
    let mut runs = 0;
    for step in 10..200 {
        for command in commands(&bench.to(step * 100)) {
            match command {
                Command::ClaimTick { id, .. } => {
                    for lease in starts(&bench.grant(id)) {
                        runs += 1;
                        let outputs = bench.exit(lease, Exit::Completed);
                        bench.reply(finish_of(&outputs), RELEASED);
                    }
                }
                Command::ReadTimer { timer, .. } => assert_eq!(timer, bench.timer),
                other => panic!("{other}"),
            }
        }
    }
    assert!(runs >= 17, "{runs}");
}
