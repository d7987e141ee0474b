//! Timers against a store that keeps a record, in virtual time: true time goes on, clocks drift and step.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{DueTick, Missed, NextSchedule, TickMiss, Timer, TimerChange, TimerEnd, TimerOptions, TimerView};
use crate::command::{Command, Failure, Output};
use crate::jitter::SplitMix;
use crate::name::{CommandId, TimerKey};
use crate::notice::Notice;
use crate::schedule::{AnySchedule, Every, Schedule, Tick};
use crate::time::{Instant, Timestamp};

mod changing;
mod learning;
mod missing;
mod refusing;
mod ticking;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// The middle of 2023.
const NOON: i64 = 1_688_212_800_000_000_000;

fn every(period: Duration) -> AnySchedule {
    Every::new(period).expect("a fine period").into()
}

fn seconds(seconds: u64) -> TimerOptions {
    TimerOptions::new(every(Duration::from_secs(seconds)))
}

/// What a store keeps of one timer; see the crate of stores for the real thing.
#[derive(Clone, Debug, Default)]
struct Store {
    record: Option<TimerView>,
    /// What its wall clock is ahead of true time.
    ahead: i64,
    /// The store's clock runs so fast: true time times this over a million.
    rate: i64,
    /// Requests are not answered, and not executed.
    stalled: bool,
    /// Requests fail like this.
    fails: Option<Failure>,
    /// Changes fail like this.
    changes_fail: Option<Failure>,
    /// Changes are answered, and not carried out.
    ignores_changes: bool,
    /// When it was asked, in true time.
    asked: Vec<u64>,
}

impl Store {
    fn new() -> Self {
        Self { ahead: NOON, rate: 1_000_000, ..Self::default() }
    }

    fn wall(&self, at: u64) -> Timestamp {
        let passed = i128::from(at) * i128::from(self.rate) / 1_000_000;
        Timestamp::from_nanos(self.ahead.saturating_add(i64::try_from(passed).expect("this century")))
    }

    fn follow(&mut self, wall: Timestamp) {
        if let Some(record) = &mut self.record
            && let Some(next) = record.next.take_if(|next| next.at.at <= wall)
        {
            record.revision += 1;
            (record.base, record.schedule) = (next.at, next.schedule);
        }
    }

    fn execute(&mut self, at: u64, command: &Command) -> TimerView {
        let wall = self.wall(at);
        self.follow(wall);
        match command {
            Command::ReadTimer { schedule, last, .. } => {
                let last = last.unwrap_or(0);
                let record = self.record.get_or_insert_with(|| TimerView {
                    revision: 1,
                    base: Tick { n: last, at: wall },
                    schedule: schedule.text().into(),
                    next: None,
                    last,
                    claimed: last,
                    unfinished: Vec::new(),
                });
                record.last = record.last.max(last);
            }
            Command::ChangeTimer { revision, change, .. } => {
                let record = self.record.as_mut().expect("it was read before");
                if record.revision == *revision && !self.ignores_changes {
                    record.revision += 1;
                    match change {
                        TimerChange::Stage { schedule, .. } if schedule.text() == &*record.schedule => {
                            record.next = None;
                        }
                        TimerChange::Stage { at, schedule } => {
                            record.next = Some(NextSchedule { at: *at, schedule: schedule.text().into() });
                        }
                        TimerChange::Rebase { last } => {
                            record.last = record.last.max(*last);
                            record.base = Tick { n: record.last, at: wall };
                            if let Some(next) = &mut record.next {
                                next.at = record.base;
                            }
                        }
                    }
                    self.follow(wall);
                }
            }
            other => panic!("{other} is no request of a timer"),
        }
        self.record.clone().expect("there is one")
    }
}

/// One instance's timer.
struct Instance {
    timer: Timer<SplitMix>,
    /// Its clock: true time times this over a million.
    rate: u64,
    /// How long a request takes to the store, and an answer back.
    latency: u64,
    /// It can't do anything before this time.
    asleep_until: u64,
    /// Answers under way: when they come, to what, and what they say.
    answers: BTreeMap<(u64, CommandId), Result<(TimerView, Timestamp), Failure>>,
    /// What was delivered, and when.
    ticks: Vec<(u64, DueTick)>,
    notices: Vec<Notice>,
}

struct World {
    now: u64,
    store: Store,
    instances: Vec<Instance>,
}

impl World {
    fn new() -> Self {
        Self { now: 0, store: Store::new(), instances: Vec::new() }
    }

    fn with(options: TimerOptions) -> Self {
        let mut world = Self::new();
        world.join(options);
        world
    }

    fn join(&mut self, options: TimerOptions) -> usize {
        self.join_as(options, true, 1_000_000)
    }

    fn join_as(&mut self, options: TimerOptions, notes: bool, rate: u64) -> usize {
        let number = self.instances.len();
        let now = local(self.now, rate);
        let key = TimerKey(number as u64 + 1);
        let timer = Timer::new(now, key, options, notes, SplitMix::new(number as u64));
        self.instances.push(Instance {
            timer,
            rate,
            latency: MS,
            asleep_until: 0,
            answers: BTreeMap::new(),
            ticks: Vec::new(),
            notices: Vec::new(),
        });
        number
    }

    /// Takes what the instances say until they say no more.
    fn settle(&mut self) {
        for instance in &mut self.instances {
            while let Some(output) = instance.timer.next_output() {
                match output {
                    Output::Notice(Notice::Ticked { due, .. }) => instance.ticks.push((self.now, due)),
                    Output::Notice(notice) => instance.notices.push(notice),
                    Output::Command(command) => {
                        self.store.asked.push(self.now);
                        let id = command.id().expect("it wants an answer");
                        if self.store.stalled {
                            continue;
                        }
                        let is_change = matches!(command, Command::ChangeTimer { .. });
                        let fails = self.store.fails.or(self.store.changes_fail.filter(|_| is_change));
                        let executed = self.now + instance.latency;
                        let answer = match fails {
                            Some(failure) => Err(failure),
                            None => Ok((self.store.execute(executed, &command), self.store.wall(executed))),
                        };
                        let arrives = executed + instance.latency;
                        instance.answers.insert((arrives, id), answer);
                    }
                    Output::Wait(_) => unreachable!("it is no output of a machine"),
                }
            }
        }
    }

    /// What happens next, and when.
    fn next(&self) -> Option<u64> {
        let of = |instance: &Instance| {
            let answer = instance.answers.keys().next().map(|(at, _)| *at);
            let due = instance.timer.deadline().map(|at| truly(at, instance.rate));
            let next = answer.into_iter().chain(due).min()?;
            Some(next.max(instance.asleep_until).max(self.now))
        };
        self.instances.iter().filter_map(of).min()
    }

    /// Lets time go on.
    fn run_to(&mut self, until: u64) {
        self.settle();
        let mut standing = 0;
        while let Some(next) = self.next().filter(|next| *next <= until) {
            standing = if next == self.now { standing + 1 } else { 0 };
            assert!(standing < 50, "time stands still");
            self.now = next;
            for instance in &mut self.instances {
                if instance.asleep_until > self.now {
                    continue;
                }
                let now = local(self.now, instance.rate);
                while let Some(first) = instance.answers.first_entry()
                    && first.key().0 <= self.now
                {
                    let ((_, id), answer) = first.remove_entry();
                    instance.timer.check(id).expect("it was sent");
                    match answer {
                        Ok((view, at)) => instance.timer.read(now, id, view, at),
                        Err(failure) => instance.timer.failed(now, id, failure),
                    };
                }
                instance.timer.timeout(now);
                assert!(instance.timer.deadline().is_none_or(|at| at > now), "overdue");
            }
            self.settle();
        }
        self.now = until;
    }

    fn run_for(&mut self, time: u64) {
        self.run_to(self.now + time);
    }

    /// The numbers that an instance has delivered.
    fn numbers(&self, instance: usize) -> Vec<u64> {
        self.instances[instance].ticks.iter().map(|(_, due)| due.tick.n).collect()
    }

    /// What an instance has delivered since it was last asked.
    fn delivered(&mut self, instance: usize) -> Vec<DueTick> {
        core::mem::take(&mut self.instances[instance].ticks).into_iter().map(|(_, due)| due).collect()
    }

    fn told(&mut self, instance: usize) -> Vec<Notice> {
        core::mem::take(&mut self.instances[instance].notices)
    }
}

/// What a clock of this rate shows at a true time.
fn local(at: u64, rate: u64) -> Instant {
    Instant::from_nanos(u64::try_from(u128::from(at) * u128::from(rate) / 1_000_000).expect("this century"))
}

/// When a clock of this rate has reached an instant.
fn truly(at: Instant, rate: u64) -> u64 {
    u64::try_from((u128::from(at.as_nanos()) * 1_000_000).div_ceil(u128::from(rate))).unwrap_or(u64::MAX)
}

fn is_missed(notice: &Notice) -> Option<(u64, u64, TickMiss)> {
    match notice {
        Notice::TicksMissed { last, count, why, .. } => Some((*last, *count, *why)),
        _ => None,
    }
}
