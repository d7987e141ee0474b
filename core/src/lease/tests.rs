//! The rules of one lease, each with a test named after it.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Lease, LeaseOptions, Phase, WaitLimit};
use crate::command::{Command, Event, Exit, Failure, Misuse, Output, Reply, Stop, StopReason, Wake};
use crate::jitter::SplitMix;
use crate::name::{Acquisition, CommandId, LeaseKey, LeaseName, Token};
use crate::notice::{AcquireFailure, LossReason, Notice, ReleaseOutcome};
use crate::time::Instant;
use crate::timing::{LeaseConfig, LeaseTiming, StoreClock};

mod answered_late;
mod campaigning;
mod holding;
mod releasing;

const KEY: LeaseKey = LeaseKey(1);
const N: Acquisition = Acquisition(1);

fn timing() -> LeaseTiming {
    LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default()).expect("the defaults fit")
}

fn options() -> LeaseOptions {
    LeaseOptions::new(timing())
}

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn token(number: u64) -> Token {
    Token::new(number)
}

fn busy(remaining: u64) -> Reply {
    Reply::Held { token: Some(token(5)), remaining: Some(Duration::from_millis(remaining)) }
}

/// A lease with everything drained from it.
struct Bench {
    lease: Lease<SplitMix>,
    wait: Option<Instant>,
}

impl Bench {
    fn new(options: LeaseOptions) -> Self {
        Self { lease: Lease::new(ms(0), KEY, options, SplitMix::new(1)), wait: None }
    }

    /// Polls until there is nothing more.
    fn drain(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        loop {
            match self.lease.poll() {
                Output::Wait(wait) => {
                    self.wait = wait;
                    return outputs;
                }
                output => outputs.push(output),
            }
        }
    }

    fn campaign(&mut self, now: Instant, floor: Token) -> CommandId {
        self.lease.campaign(now, N, floor, false);
        let outputs = self.drain();
        match outputs.as_slice() {
            [Output::Command(Command::Acquire { id, .. })] => *id,
            other => panic!("an attempt was expected, not {other:?}"),
        }
    }

    fn reply(&mut self, now: Instant, id: CommandId, reply: Reply) -> Vec<Output> {
        self.lease.handle(now, Event::Reply { id, reply }).expect("the reply fits");
        self.drain()
    }

    fn timeout(&mut self, now: Instant) -> Vec<Output> {
        self.lease.handle(now, Event::Timeout).expect("a timeout is never misuse");
        let outputs = self.drain();
        assert!(
            self.wait.is_none_or(|wait| wait > now),
            "after a timeout at {now:?} the next is {:?}",
            self.wait
        );
        outputs
    }

    fn exited(&mut self, now: Instant) -> Vec<Output> {
        self.lease
            .handle(now, Event::WorkloadExited { lease: KEY, exit: Exit::Completed })
            .expect("an exit is never misuse");
        self.drain()
    }

    fn end(&mut self, now: Instant) -> Vec<Output> {
        self.lease.end(now);
        self.drain()
    }

    fn hint(&mut self, now: Instant, wake: Wake) -> Vec<Output> {
        let name = LeaseName::new("backup").expect("a fine name");
        self.lease.handle(now, Event::Hint { name, wake }).expect("a hint is never misuse");
        self.drain()
    }

    /// Goes from deadline to deadline until `end`, and gathers what comes.
    fn run_until(&mut self, end: Instant) -> Vec<(Instant, Output)> {
        let mut all = Vec::new();
        while let Some(at) = self.wait.filter(|at| *at <= end) {
            all.extend(self.timeout(at).into_iter().map(|output| (at, output)));
        }
        all
    }
}

/// A lease granted at zero with token 10, by a request emitted at zero.
fn held(options: LeaseOptions) -> Bench {
    let mut bench = Bench::new(options);
    let id = bench.campaign(ms(0), Token::ZERO);
    let outputs = bench.reply(ms(0), id, Reply::Granted { token: token(10) });
    assert!(matches!(outputs.as_slice(), [Output::Notice(Notice::Acquired { .. })]), "{outputs:?}");
    bench
}

fn commands(outputs: &[Output]) -> Vec<&Command> {
    outputs
        .iter()
        .filter_map(|output| if let Output::Command(command) = output { Some(command) } else { None })
        .collect()
}

fn notices(outputs: &[Output]) -> Vec<&Notice> {
    outputs
        .iter()
        .filter_map(|output| if let Output::Notice(notice) = output { Some(notice) } else { None })
        .collect()
}

/// The only command among the outputs, which must be an attempt of the same acquisition.
fn attempt(outputs: &[Output]) -> CommandId {
    match commands(outputs).as_slice() {
        [Command::Acquire { id, n: N, .. }] => *id,
        other => panic!("one more attempt of the same acquisition was expected, not {other:?}"),
    }
}

/// The only command among the outputs, which must be a renewal.
fn renewal(outputs: &[Output]) -> CommandId {
    match commands(outputs).as_slice() {
        [Command::Renew { id, n, token: with, .. }] => {
            assert_eq!((*n, *with), (N, token(10)));
            *id
        }
        other => panic!("a renewal was expected, not {other:?}"),
    }
}

/// The only command among the outputs, which must be a release.
fn release(outputs: &[Output]) -> (CommandId, Option<Token>) {
    match commands(outputs).as_slice() {
        [Command::Release { id, token, .. }] => (*id, *token),
        other => panic!("a release was expected, not {other:?}"),
    }
}

fn drain_work(why: StopReason) -> Output {
    Output::Command(Command::DrainWorkload { lease: KEY, why })
}

fn stop(how: Stop, why: StopReason) -> Output {
    Output::Command(Command::StopWorkload { lease: KEY, how, why })
}
