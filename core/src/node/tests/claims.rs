//! Periodic jobs: claims of ticks, and their runs, in every order of answers.

use super::timers::{every, read, record, request, timer_name, wall};
use super::*;
use crate::command::ClaimEnd;
use crate::name::{PeriodicKey, TimerKey};
use crate::periodic::{Overlap, PeriodicOptions};
use crate::timer::{Missed, TickMiss, TimerEnd};

mod ending;
mod under_a_lease;
mod waiting;

/// A job of one second.
fn job() -> PeriodicOptions {
    PeriodicOptions::new(every(1_000), options())
}

pub(super) struct Bench {
    pub(super) node: Node<SplitMix>,
    job: PeriodicKey,
    timer: TimerKey,
    pub(super) now: Instant,
    /// What the last claimed tick is by the record.
    claimed: u64,
    unfinished: Vec<u64>,
    token: u64,
    /// Whether requests of the timer are answered by themselves.
    reads: bool,
}

impl Bench {
    pub(super) fn new(options: PeriodicOptions) -> Self {
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
    pub(super) fn to(&mut self, now: u64) -> Vec<Output> {
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

    pub(super) fn reply(&mut self, id: CommandId, with: Reply) -> Vec<Output> {
        let outputs = reply(&mut self.node, self.now, id, with);
        self.settle(outputs)
    }

    pub(super) fn grant(&mut self, id: CommandId) -> Vec<Output> {
        self.token += 1;
        let token = Token::new(self.token);
        self.reply(id, Reply::Granted { token })
    }

    fn exit(&mut self, lease: LeaseKey, exit: Exit) -> Vec<Output> {
        self.node.handle(self.now, Event::WorkloadExited { lease, exit }).expect("known");
        self.settle(Vec::new())
    }

    /// The run ends, and its claim at the store.
    pub(super) fn over(&mut self, lease: LeaseKey, exit: Exit) -> Vec<Output> {
        let mut outputs = self.exit(lease, exit);
        for command in commands(&outputs) {
            if let Command::FinishTick { id, .. } = command {
                outputs.extend(self.reply(id, RELEASED));
            }
        }
        outputs
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
    bench.over(lease, Exit::Completed);
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
    bench.over(lease, Exit::Completed);
    claim(&bench.to(5_100), 5);
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

#[test]
fn a_late_grant_that_is_given_back_while_the_run_goes_on_is_no_grant_without_a_run() {
    let mut options = job();
    options.timer.missed = Missed::CatchUp { at_most: 5 };
    let mut bench = Bench::new(options);
    // The first request is long under way; its second try is answered, and the run starts.
    let (first, lease) = claim(&bench.to(1_100), 1);
    let (mut second, mut at) = (None, 1_100);
    while second.is_none() {
        at += 100;
        let outputs = bench.to(at);
        second = claims(&outputs).into_iter().find(|(_, of, _)| *of == lease).map(|(id, ..)| id);
    }
    let outputs = bench.grant(second.expect("asked again"));
    assert_eq!(starts(&outputs), [lease]);
    // No renewal gets through: at the store the claim is over. The work does not end.
    bench.to(at + 20_000);
    // Now the first request arrives at the store, which grants the tick to the same owner once more.
    let outputs = bench.grant(first);
    let ends: Vec<_> = finishes(&outputs).into_iter().map(|(_, _, end)| end).collect();
    assert!(ends.iter().all(|end| *end == ClaimEnd::Interrupted), "the run has begun: {ends:?}");
    let outputs = bench.exit(lease, Exit::Completed);
    assert!(finishes(&outputs).iter().all(|(_, _, end)| *end == ClaimEnd::Finished), "{outputs:?}");
}
