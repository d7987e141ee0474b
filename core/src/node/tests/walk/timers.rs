//! What the walk does with timers and periodic jobs.

use alloc::collections::{BTreeMap, BTreeSet};

use super::super::super::Place;
use super::super::timers::timer_name;
use super::*;
use crate::name::{PeriodicKey, TimerKey, TimerName};
use crate::periodic::{Overlap, PeriodicOptions};
use crate::schedule::{AnySchedule, Every, Tick};
use crate::time::Timestamp;
use crate::timer::{Missed, NextSchedule, TimerChange, TimerOptions, TimerView};

/// The middle of 2023.
const NOON: i64 = 1_688_212_800_000_000_000;

/// Timers, jobs, and what the store has of them.
#[derive(Default)]
pub(super) struct Pace {
    records: BTreeMap<TimerName, TimerView>,
    /// How far the store's clock has stepped.
    stepped: i64,
    timers: BTreeMap<TimerKey, Option<u64>>,
    jobs: BTreeMap<PeriodicKey, PeriodicOptions>,
    started: usize,
    ended: usize,
    /// The token of the last grant of each claim.
    granted: BTreeMap<LeaseKey, Token>,
    /// Claims for which a start was told, and the tick of each.
    runs: BTreeSet<(PeriodicKey, u64)>,
}

impl Walk {
    fn timing(&mut self) -> TimerOptions {
        let period = Duration::from_millis([100, 700, 3_000, 20_000][self.below(4)]);
        let schedule: AnySchedule = Every::new(period).expect("a fine period").into();
        let mut options = TimerOptions::new(schedule);
        if self.below(3) == 0 {
            options.missed = Missed::CatchUp { at_most: 1 + self.below(4) as u32 };
        }
        options.late_limit =
            (self.below(3) == 0).then(|| Duration::from_millis(20 + self.below(5_000) as u64));
        options
    }

    pub(super) fn start_something_timed(&mut self) {
        let name = timer_name(["x", "y"][self.below(2)]);
        if self.below(3) == 0 && self.pace.timers.len() < 2 {
            let options = self.timing();
            let timer = self.node.start_timer(self.now, name, options).expect("not shutting down");
            self.pace.timers.insert(timer, None);
            self.pace.started += 1;
        } else if self.pace.jobs.len() < 2 {
            let mut options = PeriodicOptions::new(self.timing(), options());
            options.overlap = [Overlap::Skip, Overlap::Queue, Overlap::Allow][self.below(3)];
            options.attempts = 1 + self.below(2) as u32;
            options.run.max_hold = (self.below(4) == 0).then(|| Duration::from_secs(20));
            if options.overlap != Overlap::Allow && self.below(3) == 0 {
                options.lease = Some(self.some_name());
            }
            let job = self.node.start_periodic(self.now, name, options.clone()).expect("not shutting down");
            self.pace.jobs.insert(job, options);
            self.pace.started += 1;
        }
    }

    pub(super) fn end_something_timed(&mut self) {
        if self.below(2) == 0
            && let Some((&timer, _)) = self.pace.timers.first_key_value()
        {
            self.node.stop_timer(self.now, timer).expect("known");
        } else if let Some((&job, _)) = self.pace.jobs.first_key_value() {
            if self.below(2) == 0 {
                self.node.drain_periodic(self.now, job).expect("known");
            } else {
                self.node.stop_periodic(self.now, job).expect("known");
            }
        }
    }

    pub(super) fn step_the_stores_clock(&mut self) {
        let by = self.below(100_000) as i64 * 1_000_000;
        self.pace.stepped += if self.below(2) == 0 { by } else { -by };
        if self.below(4) == 0 {
            self.pace.records.clear();
        }
    }

    pub(super) fn read_timer(&mut self, id: CommandId, command: &Command) -> Event {
        let wall = NOON + self.now.as_nanos() as i64 + self.pace.stepped;
        let at = Timestamp::from_nanos(wall);
        let (Command::ReadTimer { timer, .. } | Command::ChangeTimer { timer, .. }) = command else {
            panic!("{command} is of no timer");
        };
        let Some(name) = self.node.timer_name(*timer).cloned() else {
            return Event::Reply { id, reply: Reply::Failed(Failure::NotExecuted) };
        };
        let unfinished = if self.below(4) == 0 { 1 + self.below(3) } else { 0 };
        let claims_more = self.below(4) == 0;
        let make = |schedule: &AnySchedule, last| TimerView {
            revision: 1,
            base: Tick { n: last, at },
            schedule: schedule.text().into(),
            next: None,
            last,
            claimed: last,
            unfinished: Vec::new(),
        };
        match command {
            Command::ReadTimer { schedule, last, .. } => {
                let last = last.unwrap_or(0);
                let record = self.pace.records.entry(name.clone()).or_insert_with(|| make(schedule, last));
                record.last = record.last.max(last);
                if claims_more {
                    record.claimed = record.claimed.max(record.last);
                }
                record.unfinished = (0..unfinished as u64)
                    .filter_map(|back| record.claimed.checked_sub(back))
                    .rev()
                    .collect();
            }
            Command::ChangeTimer { revision, change, .. } => {
                if let Some(record) = self.pace.records.get_mut(&name)
                    && record.revision == *revision
                {
                    record.revision += 1;
                    match change {
                        TimerChange::Stage { at, schedule } => {
                            record.next = Some(NextSchedule { at: *at, schedule: schedule.text().into() });
                        }
                        TimerChange::Rebase { last } => {
                            record.last = record.last.max(*last);
                            record.base = Tick { n: record.last, at };
                            record.next = None;
                        }
                    }
                }
            }
            _ => {}
        }
        let Some(record) = self.pace.records.get_mut(&name) else {
            return Event::Reply { id, reply: Reply::Failed(Failure::NotExecuted) };
        };
        if let Some(next) = record.next.take_if(|next| next.at.at <= at) {
            record.revision += 1;
            (record.base, record.schedule) = (next.at, next.schedule);
        }
        Event::TimerRead { id, view: record.clone(), at }
    }

    pub(super) fn no_claim(&mut self) -> Reply {
        match self.below(3) {
            0 => Reply::TickTaken,
            1 => Reply::TickOverlaps,
            _ => Reply::Held {
                token: Some(Token::new(self.token)),
                remaining: Some(Duration::from_millis(self.dice.below(9_000))),
            },
        }
    }

    pub(super) fn granted(&self, lease: LeaseKey) -> Option<Token> {
        self.pace.granted.get(&lease).copied()
    }

    /// What never began was not run.
    pub(super) fn exits(&mut self, lease: LeaseKey, exit: Exit) {
        if let Some((worker, _)) = self.working.get(&lease)
            && let Some((job, due)) = self.node.run(*worker)
            && exit == Exit::NotStarted
        {
            self.pace.runs.remove(&(job, due.tick.n));
        }
    }

    /// What is told of timers and jobs.
    pub(super) fn pace_of(&mut self, output: &Output) {
        match output {
            Output::Notice(Notice::Ticked { timer, due }) => {
                let last = self.pace.timers.get_mut(timer).expect("it is no job's, and has not ended");
                assert!(last.is_none_or(|last| due.tick.n > last), "{due:?} after {last:?}");
                *last = Some(due.tick.n);
            }
            Output::Notice(Notice::TimerEnded { timer, .. }) => {
                assert!(self.pace.timers.remove(timer).is_some(), "{timer} ends twice, or is a job's");
                self.pace.ended += 1;
            }
            Output::Notice(Notice::PeriodicEnded { periodic, .. }) => {
                assert!(self.pace.jobs.remove(periodic).is_some(), "{periodic} ends twice");
                self.pace.ended += 1;
            }
            Output::Notice(Notice::TickSkipped { periodic, tick, .. }) => {
                assert!(self.pace.jobs.contains_key(periodic), "{periodic} has ended");
                // A second attempt at a tick that was run may be skipped, too.
                let once = self.pace.jobs[periodic].attempts == 1;
                assert!(!once || !self.pace.runs.contains(&(*periodic, *tick)), "it was run: {output:?}");
            }
            Output::Notice(Notice::Acquired { lease, token, .. }) => {
                self.pace.granted.insert(*lease, *token);
            }
            Output::Command(Command::StartWorkload { worker, .. }) => {
                if let Some((job, due)) = self.node.run(*worker) {
                    let first = self.pace.runs.insert((job, due.tick.n));
                    let options = &self.pace.jobs[&job];
                    assert!(first || options.attempts > 1, "tick {} is run twice", due.tick.n);
                    let others = self.working.values().filter(|(other, _)| {
                        other != worker && self.node.run(*other).is_some_and(|(of, _)| of == job)
                    });
                    let others = others.count();
                    assert!(others == 0 || options.overlap == Overlap::Allow, "it overlaps");
                    assert!(others < PeriodicOptions::MOST_RUNS);
                }
            }
            _ => {}
        }
    }

    /// What holds of jobs whenever everything was polled.
    pub(super) fn check_jobs(&self) {
        let node = &self.node;
        let mut claimed = BTreeSet::new();
        for (key, entry) in &node.periodics {
            let job = &entry.periodic;
            assert_eq!(*key, job.key);
            assert!(self.pace.jobs.contains_key(key), "{key} was told to have ended");
            assert!(job.over().is_none(), "nothing keeps {key}");
            assert!(job.is_ending() || node.timers.contains_key(&job.timer), "{key} has no timer");
            assert!(job.runs.len() <= PeriodicOptions::MOST_RUNS);
            let mut ticks = BTreeSet::new();
            for (worker, run) in &job.runs {
                assert_eq!(node.workers.get(worker).and_then(|entry| entry.run()), Some(*key));
                assert!(node.leases.contains_key(&run.lease), "{key}: a run without a lease");
                assert!(ticks.insert(run.due.tick.n), "tick {} is here twice", run.due.tick.n);
                let claim = if job.options.lease.is_some() { run.claim } else { Some(run.lease) };
                claimed.extend(claim);
            }
        }
        for (key, entry) in &node.leases {
            if let Place::Claim { .. } = entry.place {
                let phase = entry.lease.phase();
                assert_ne!(phase, Phase::Idle, "{key} claims nothing, and hangs");
                let wanted = !matches!(phase, Phase::Done) && !self.gives_back(*key);
                assert!(!wanted || claimed.contains(key), "{key} is nobody's claim: {phase:?}");
            }
        }
        for (worker, entry) in &node.workers {
            if let Some(job) = entry.run() {
                let runs = node.periodics.get(&job).map(|entry| &entry.periodic.runs);
                assert!(runs.is_some_and(|runs| runs.contains_key(worker)), "{worker} runs for nobody");
            }
        }
    }

    /// Whether this lease is on its way back.
    fn gives_back(&self, key: LeaseKey) -> bool {
        self.node.leases[&key].lease.phase() == Phase::Deciding && self.node.deadlines(key).is_none()
    }

    /// In the end everything that was started has ended, once.
    pub(super) fn check_ends(&self) {
        assert_eq!(self.pace.started, self.pace.ended);
        assert!(self.pace.timers.is_empty() && self.pace.jobs.is_empty());
    }
}
