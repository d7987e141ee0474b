//! Prints what the core makes of settings, and how long its machines wait under them: `lemma.py` holds its own
//! formulas against that, so that what it proves is about this code.
//!
//! One line for each case, `key=value`, times in nanoseconds, rates in parts per million.

use std::fmt::{Debug, Display};
use std::time::Duration;

use tenure_core::{
    Command, Event, Failure, Identity, Incarnation, Instant, Jitter, LeaseConfig, LeaseName, LeaseOptions,
    LeaseTiming, Node, Notice, Output, Rate, Reply, StoreClock, Token,
};

const MILLISECOND: Duration = Duration::from_millis(1);
const NANOSECOND: Duration = Duration::from_nanos(1);

fn main() {
    let rates =
        [0, 10_000, LeaseConfig::MAX_DRIFT.ppm(), LeaseConfig::MAX_DRIFT.ppm() + 1].map(Rate::from_ppm);
    let ttls = [
        LeaseConfig::MIN_TTL - NANOSECOND,
        LeaseConfig::MIN_TTL,
        Duration::from_millis(400),
        Duration::from_secs(1),
        LeaseConfig::DEFAULT_TTL,
        Duration::from_secs(3_600),
        LeaseConfig::MAX_TTL,
        LeaseConfig::MAX_TTL + NANOSECOND,
    ];
    for ttl in ttls {
        for drift in rates {
            for store_drift in rates {
                for (quantum, step) in [(0, 0), (1, 0), (1, 250), (37, 0)] {
                    let (quantum, step) = (quantum * MILLISECOND, step * MILLISECOND);
                    settings(
                        LeaseConfig::new(ttl).drift(drift),
                        StoreClock { drift: store_drift, quantum, step },
                    );
                }
            }
        }
    }
    // A store that eats as much of a TTL as it may, and one that eats more.
    let ttl = Duration::from_millis(400);
    for step in [ttl * 3 / 4, ttl * 3 / 4 + NANOSECOND] {
        let clock = StoreClock { drift: Rate::ZERO, quantum: Duration::ZERO, step };
        settings(LeaseConfig::new(ttl).drift(Rate::ZERO), clock);
    }
}

/// The defaults, and what lies at the limits of the rules and just beyond them.
fn settings(defaults: LeaseConfig, clock: StoreClock) {
    print(defaults, clock);
    let Ok(timing) = defaults.resolve(&clock) else { return };
    let half = timing.valid_for() / 2;
    for budget in [Duration::ZERO, NANOSECOND, MILLISECOND - NANOSECOND, MILLISECOND, half, half + NANOSECOND]
    {
        print(defaults.stop_budget(budget), clock);
    }
    let half = (timing.valid_for() - timing.stop_budget()) / 2;
    for interval in [MILLISECOND, 2 * MILLISECOND, half, half + NANOSECOND] {
        print(defaults.renew_interval(interval), clock);
    }
    let half = timing.renew_interval() / 2;
    for timeout in [MILLISECOND - NANOSECOND, MILLISECOND, half, half + NANOSECOND] {
        print(defaults.attempt_timeout(timeout), clock);
    }
}

fn print(config: LeaseConfig, clock: StoreClock) {
    let mut line = Line::default();
    line.time("ttl", config.ttl);
    line.add("drift", config.drift.ppm());
    line.add("store_drift", clock.drift.ppm());
    line.time("quantum", clock.quantum);
    line.time("step", clock.step);
    for (key, wanted) in [
        ("wanted_stop_budget", config.stop_budget),
        ("wanted_renew_interval", config.renew_interval),
        ("wanted_attempt_timeout", config.attempt_timeout),
    ] {
        if let Some(wanted) = wanted {
            line.time(key, wanted);
        }
    }
    match config.resolve(&clock) {
        Ok(timing) => resolved(&mut line, timing),
        Err(error) => line.add("refused", error.field.replace(' ', "_")),
    }
    println!("{}", line.0.trim_end());
}

fn resolved(line: &mut Line, timing: LeaseTiming) {
    line.time("valid_for", timing.valid_for());
    line.time("outlived_after", timing.outlived_after());
    line.time("stop_budget", timing.stop_budget());
    line.time("kill_margin", timing.kill_margin());
    line.time("renew_interval", timing.renew_interval());
    line.time("attempt_timeout", timing.attempt_timeout());
    line.time("renewed_after", renewed_after(timing));
    line.time("shortest_expiry_wait", expiry_wait(timing, Drawn::Lowest));
    line.time("longest_expiry_wait", expiry_wait(timing, Drawn::Highest));
    for failures in 1..=6 {
        line.time(&format!("shortest_backoff_{failures}"), backoff(timing, Drawn::Lowest, failures));
        line.time(&format!("longest_backoff_{failures}"), backoff(timing, Drawn::Highest, failures));
    }
}

#[derive(Default)]
struct Line(String);

impl Line {
    fn add(&mut self, key: &str, value: impl Display) {
        self.0 += &format!("{key}={value} ");
    }

    fn time(&mut self, key: &str, value: Duration) {
        self.add(key, value.as_nanos());
    }
}

/// A jitter of one kind.
#[derive(Clone, Copy)]
enum Drawn {
    Lowest,
    Highest,
}

impl Jitter for Drawn {
    fn below(&mut self, bound: u64) -> u64 {
        match self {
            Self::Lowest => 0,
            Self::Highest => bound.saturating_sub(1),
        }
    }

    fn fork(&mut self) -> Self {
        *self
    }
}

/// A candidate, just after its first request has left.
struct Candidate {
    node: Node<Drawn>,
    now: Instant,
}

impl Candidate {
    fn new(timing: LeaseTiming, jitter: Drawn) -> Self {
        let identity = Identity::new("timing", Incarnation::new(1)).expect("a short name");
        let mut node = Node::new(identity, jitter);
        let now = Instant::from_nanos(1_000_000_000_000_000_000);
        let name = LeaseName::new("timing").expect("a short name");
        node.acquire(now, name, LeaseOptions::new(timing)).expect("it is not shutting down");
        Self { node, now }
    }

    /// Answers the request that comes next; returns the notices that follow and the next wake-up.
    fn answer(&mut self, reply: Reply) -> (Vec<Notice>, Instant) {
        let id = loop {
            match self.node.poll() {
                Output::Command(Command::Acquire { id, .. }) => break id,
                Output::Command(_) | Output::Notice(_) => {}
                Output::Wait(wait) => unexpected(&wait),
            }
        };
        self.node.handle(self.now, Event::Reply { id, reply }).expect("it fits");
        let mut notices = Vec::new();
        loop {
            match self.node.poll() {
                Output::Command(_) => {}
                Output::Notice(notice) => notices.push(notice),
                Output::Wait(wait) => {
                    return (notices, wait.expect("a candidate and a holder wait for something"));
                }
            }
        }
    }
}

fn unexpected(what: &impl Debug) -> ! {
    panic!("{what:?} was not to come")
}

/// How long after the request that was granted the first renewal leaves, at the latest.
fn renewed_after(timing: LeaseTiming) -> Duration {
    let mut candidate = Candidate::new(timing, Drawn::Lowest);
    let (_, wait) = candidate.answer(Reply::Granted { token: Token::new(1) });
    wait.saturating_since(candidate.now)
}

/// How long a waiter waits for a record with a whole TTL left, beyond that TTL.
fn expiry_wait(timing: LeaseTiming, jitter: Drawn) -> Duration {
    let mut candidate = Candidate::new(timing, jitter);
    let (notices, _) = candidate.answer(Reply::Held { token: None, remaining: Some(timing.ttl()) });
    match notices[..] {
        [Notice::Waiting { until, .. }] => until.saturating_since(candidate.now + timing.ttl()),
        _ => unexpected(&notices),
    }
}

/// How long the pause after that many failures in a row is.
fn backoff(timing: LeaseTiming, jitter: Drawn, failures: u32) -> Duration {
    let mut candidate = Candidate::new(timing, jitter);
    let mut delay = Duration::ZERO;
    for _ in 0..failures {
        let (_, until) = candidate.answer(Reply::Failed(Failure::NotExecuted));
        delay = until.saturating_since(candidate.now);
        candidate.now = until;
        candidate.node.handle(until, Event::Timeout).expect("a timeout is never wrong");
    }
    delay
}
