//! One shared schedule, seen from one instance: which tick is due when.
//!
//! ```text
//!                  read                       refused
//!   Registering --------> Ticking    Registering -----> Over
//!                          |   ^
//!        the schedule can't|   | read
//!           be read here   v   |
//!                        Unreadable
//! ```
//!
//! | what happens | what follows |
//! |---|---|
//! | the store's record was read | from now on the store's time is known as an interval, which widens as the clocks may drift |
//! | the low end of the interval reaches a tick | the tick is delivered: never early, each number at most once, in order |
//! | several ticks have come since | by the policy: the latest, or the last few; the number of the others is told |
//! | the interval would be too wide at the next tick | the store is asked again after 98 % of the shortest possible wait |
//! | the store's clock stands before the last tick | a schedule that counts is based anew: time now, number as it was |
//! | a change was answered, and is still wanted | again after backoff, as after a failure |
//! | the schedule differs from the one of the registration | proposed once, for the next tick; later the store's is followed |
//! | a request fails | again after backoff; ticks go on by what is known |
//!
//! Numbers come from the store's time, not from counting, so nothing drifts. An instance begins after the last tick
//! that the fleet is known to have had.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::command::{Command, Failure, Misuse, Output};
use crate::jitter::{Jitter, up_to};
use crate::name::{CommandId, TimerKey};
use crate::notice::Notice;
use crate::planted::{Bug, planted};
use crate::schedule::{AnySchedule, Tick};
use crate::time::{Instant, Timestamp, nanos};
use crate::timing::{above_one, below_one, scale, scale_up};
use crate::untracked::Untracked;

#[cfg(feature = "model")]
mod model;
mod options;
mod reading;
mod record;
#[cfg(test)]
mod tests;

pub use options::{Missed, TimerOptions};
use reading::{Known, Reading};
pub use record::{NextSchedule, TimerChange, TimerView};

/// The longest time between two looks at the store's record: a step of its clock is noticed by then.
const LONGEST_SILENCE: Duration = Duration::from_secs(600);
/// The first delay after a failed request; it doubles up to [`LONGEST_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The longest delay after failed requests.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// How long to wait before looking again at a schedule that can't be read.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

/// A tick that is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DueTick {
    /// Its number and time.
    pub tick: Tick,
    /// How much later it is at least, by the store's clock.
    pub late: Duration,
    /// How many ticks before it were missed: they came while nobody saw them, and are not delivered. What an instance saw
    /// and did not run does not count here: that is told at the time, with the reason.
    pub missed: u64,
    /// Whether it is one of several that are late, and made up for in order. A run of one skips none of the others.
    pub catching_up: bool,
}

/// Why a timer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimerEnd {
    /// It was stopped.
    Stopped,
    /// The store refused its registration, and will again.
    Refused,
}

/// Why ticks are not run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TickMiss {
    /// Later than the limit of lateness.
    TooLate,
    /// A later one came before it could be claimed.
    Superseded,
    /// A run of the same job was still going on.
    Overlap,
    /// The store refused the claim, and will again.
    Refused,
    /// It was claimed here, and given back before its run began.
    GivenBack,
    /// The instance drains; another may have run it.
    Draining,
}

/// The machine of one timer; its states and transitions stand at the head of its source file.
#[derive(Clone, Debug)]
pub(crate) struct Timer<J> {
    key: TimerKey,
    options: TimerOptions,
    state: State,
    /// Whether its schedule was proposed, or found in place.
    registered: bool,
    /// The ticks up to here were delivered, or passed over.
    position: Option<u64>,
    /// The schedule that is known to count, or to count next.
    schedule: AnySchedule,
    /// Whether the store is told of each delivered tick; claims do that by themselves.
    notes: bool,
    request: Request,
    /// Failed requests in a row.
    failures: u32,
    /// The number of the next command.
    sequence: u64,
    now: Instant,
    output: VecDeque<Output>,
    jitter: Untracked<J>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Registering,
    Ticking(Ticking),
    Unreadable,
    Over,
}

/// The schedule and the store's time are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ticking {
    known: Known,
    reading: Reading,
    /// When something is to be delivered.
    due_at: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    At(Instant),
    Sent {
        sequence: u64,
        emitted: Instant,
        timeout_at: Instant,
        /// It is to change the record.
        change: bool,
        /// What was delivered since must be told, too.
        again: bool,
    },
    Never,
}

/// A request that is answered.
struct Answered {
    emitted: Instant,
    /// It was to change the record.
    changed: bool,
    /// Another is to follow.
    again: bool,
}

/// Options take no part in it: they don't change.
impl<J> PartialEq for Timer<J> {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl<J> Eq for Timer<J> {}

impl<J> core::hash::Hash for Timer<J> {
    fn hash<H: core::hash::Hasher>(&self, hasher: &mut H) {
        self.parts().hash(hasher);
    }
}

impl<J> Timer<J> {
    fn parts(&self) -> impl PartialEq + core::hash::Hash + '_ {
        let Self { key, options: _, state, registered, position, schedule, notes, request, .. } = self;
        let Self { failures, sequence, now, output, jitter: _, .. } = self;
        ((key, state, registered, position, schedule, notes), (request, failures, sequence, now, output))
    }
}

impl<J: Jitter> Timer<J> {
    pub(crate) fn new(now: Instant, key: TimerKey, options: TimerOptions, notes: bool, jitter: J) -> Self {
        let schedule = options.schedule.clone();
        let mut timer = Self {
            key,
            options,
            state: State::Registering,
            registered: false,
            position: None,
            schedule,
            notes,
            request: Request::At(now),
            failures: 0,
            sequence: 0,
            now,
            output: VecDeque::new(),
            jitter: Untracked(jitter),
        };
        timer.advance(now);
        timer
    }

    /// Delivers nothing any more.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.advance(now);
        self.over(TimerEnd::Stopped);
    }

    /// What is due is done.
    pub(crate) fn timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Refuses what can't be an answer, before anything changes.
    pub(crate) fn check(&self, id: CommandId) -> Result<(), Misuse> {
        if id.machine != self.key.0 || id.sequence >= self.sequence {
            return Err(Misuse::UnknownCommand(id));
        }
        Ok(())
    }

    /// The store has answered with its record and its time; tells whether that was of use.
    pub(crate) fn read(&mut self, now: Instant, id: CommandId, view: TimerView, at: Timestamp) -> bool {
        self.advance(now);
        let Some(Answered { emitted, changed, again }) = self.answered(id) else { return false };
        self.request = Request::Never;
        let reading = Reading { at, emitted, received: self.now };
        self.learn(reading, view, changed);
        if again {
            self.note();
        }
        self.advance(now);
        true
    }

    /// The request has failed; tells whether that was of use.
    pub(crate) fn failed(&mut self, now: Instant, id: CommandId, failure: Failure) -> bool {
        self.advance(now);
        if self.answered(id).is_none() {
            return false;
        }
        self.request_failed(failure);
        true
    }

    /// The schedule that counts, or is to count next, as far as is known.
    pub(crate) fn schedule(&self) -> &AnySchedule {
        &self.schedule
    }

    /// The claimed ticks that were not finished when the store was last asked, and when each was due.
    pub(crate) fn unfinished(&self) -> Vec<DueTick> {
        let State::Ticking(Ticking { known, reading, .. }) = &self.state else { return Vec::new() };
        let low = self.low(reading);
        let due = |&n: &u64| {
            let tick = known.tick(n);
            DueTick { tick, late: low.saturating_since(tick.at), missed: 0, catching_up: true }
        };
        // One that is not due here yet comes by itself.
        let passed = |n: &&u64| self.position.is_some_and(|position| **n <= position);
        known.unfinished.iter().filter(passed).map(due).collect()
    }

    /// When something is due. The end of time never comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let request = match &self.request {
            Request::At(at) | Request::Sent { timeout_at: at, .. } => Some(*at),
            Request::Never => None,
        };
        let due = match &self.state {
            State::Ticking(ticking) => ticking.due_at,
            State::Registering | State::Unreadable => None,
            State::Over => return None,
        };
        request.into_iter().chain(due).min().filter(|deadline| *deadline < Instant::MAX)
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Does what is due, ticks first. Every step moves its deadline past `now`.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.deadline().is_some_and(|deadline| deadline <= self.now) {
            match (&self.state, &self.request) {
                (State::Ticking(Ticking { due_at: Some(at), .. }), _) if *at <= self.now => self.deliver(),
                (State::Over, _) | (_, Request::Never) => return,
                (_, Request::At(_)) => self.ask(),
                (_, Request::Sent { .. }) => self.request_failed(Failure::Unknown),
            }
        }
    }

    /// The request that is answered, if its answer is still wanted.
    fn answered(&self, id: CommandId) -> Option<Answered> {
        match &self.request {
            Request::Sent { sequence, emitted, change, again, .. } if *sequence == id.sequence => {
                Some(Answered { emitted: *emitted, changed: *change, again: *again })
            }
            Request::Sent { .. } | Request::At(_) | Request::Never => None,
        }
    }

    fn ask(&mut self) {
        let (timer, schedule) = (self.key, self.options.schedule.clone());
        let (last, timeout) = (self.position, self.options.timeout);
        self.send(false, |id| Command::ReadTimer { id, timer, schedule, last, timeout });
    }

    fn send(&mut self, change: bool, command: impl FnOnce(CommandId) -> Command) {
        let id = CommandId { machine: self.key.0, sequence: self.sequence };
        self.sequence += 1;
        self.request = Request::Sent {
            sequence: id.sequence,
            emitted: self.now,
            timeout_at: self.now + self.options.timeout,
            change,
            again: false,
        };
        self.output.push_back(Output::Command(command(id)));
    }

    /// Asks for a change; after one that came to nothing, for whatever reason, not before a while has passed.
    fn change(&mut self, changed: bool, revision: u64, change: TimerChange) {
        if changed {
            return self.request_failed(Failure::NotExecuted);
        }
        let (timer, timeout) = (self.key, self.options.timeout);
        self.send(true, |id| Command::ChangeTimer { id, timer, revision, change, timeout });
    }

    fn request_failed(&mut self, failure: Failure) {
        if failure == Failure::Refused && self.state == State::Registering {
            return self.over(TimerEnd::Refused);
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            self.notice(Notice::TimerRetrying { timer: self.key, failure });
        }
        let doublings = self.failures.saturating_sub(1).min(16);
        let delay = FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF);
        let delay = if failure == Failure::Refused { LONGEST_BACKOFF } else { delay };
        let delay = if planted(Bug::NoBackoff) { Duration::from_millis(1) } else { delay };
        self.request = Request::At(self.now + delay / 2 + up_to(&mut self.jitter.0, delay / 2));
    }

    /// What the store says, maybe in answer to a change, becomes what is known.
    fn learn(&mut self, reading: Reading, view: TimerView, changed: bool) {
        // Where ticks are claimed, what nobody has claimed was missed, and what somebody has is not to be had.
        let position = match self.position {
            None => {
                if self.notes {
                    view.last
                } else {
                    view.claimed
                }
            }
            Some(position) if self.notes => position,
            Some(position) => position.max(view.claimed),
        };
        self.position = Some(position);
        let own = self.options.schedule.clone();
        let parse = self.options.parse;
        let read = |text: &str| if text == own.text() { Some(own.clone()) } else { parse(text) };
        let (revision, base, last) = (view.revision, view.base, view.last.max(position));
        let to_come = view.next.as_ref().map_or(&*view.schedule, |next| &next.schedule);
        let differs = !self.registered && to_come != own.text();

        let known = Known::new(view, read);
        let known = known.map(|known| Known {
            base: if planted(Bug::PhasePerInstance) { Tick { n: last, at: reading.at } } else { known.base },
            ..known
        });
        let Some(known) = known else {
            // Nobody here knows when its next tick is: ours counts at once, or we wait for a change.
            if differs {
                let at = Tick { n: last.max(base.n), at: reading.at };
                return self.change(changed, revision, TimerChange::Stage { at, schedule: own });
            }
            self.failures = 0;
            if self.state != State::Unreadable {
                self.state = State::Unreadable;
                self.notice(Notice::ScheduleUnreadable { timer: self.key });
            }
            self.request = Request::At(self.now + UNREADABLE_PAUSE);
            return;
        };

        if self.steps_back(&reading, &known, last) && !planted(Bug::NotRebased) {
            self.change(changed, revision, TimerChange::Rebase { last });
        } else if differs {
            let staged = known.current.next(base, reading.at);
            let at = staged.unwrap_or(Tick { n: last.max(base.n), at: reading.at });
            self.change(changed, revision, TimerChange::Stage { at, schedule: own });
        } else {
            self.failures = 0;
            self.registered = true;
            if *known.to_come() != self.schedule {
                self.schedule = known.to_come().clone();
                let schedule = self.schedule.clone();
                self.notice(Notice::ScheduleChanged { timer: self.key, schedule });
            }
        }
        self.state = State::Ticking(Ticking { known, reading, due_at: None });
        self.plan();
    }

    /// Whether the store's clock certainly stands before the last tick, or the base, by more than may be.
    fn steps_back(&mut self, reading: &Reading, known: &Known, last: u64) -> bool {
        let (base, schedule) = known.segment_of(last);
        if !schedule.rebases() {
            return false;
        }
        let may_be = self.options.clock.step.max(schedule.tolerance());
        // Not even the base may lie ahead, or nothing would come before the clock has made up for it.
        let back = self.high(reading) + may_be < schedule.at(base, last.max(base.n));
        if back {
            self.notice(Notice::Rebased { timer: self.key, last });
        }
        back
    }

    /// When the next tick is due, and whether the store is to be asked before that.
    fn plan(&mut self) {
        let position = self.position.unwrap_or(0);
        let State::Ticking(Ticking { known, reading, .. }) = &self.state else { return };
        let low = self.low(reading);
        let mut ask_at = reading.received + LONGEST_SILENCE;
        let due_at = if known.latest(low).is_some_and(|tick| tick.n > position) {
            Some(self.now)
        } else if let Some(tick) = known.after(low, position) {
            let due_at = self.reached(reading, tick.at);
            let wait = due_at.saturating_since(reading.received);
            let spread = self.fast(wait).saturating_sub(self.slow(wait));
            if spread > known.tolerance(low) {
                // The store's clock may be there sooner than it certainly is.
                ask_at = ask_at.min(reading.received + self.earliest(reading, tick.at) / 50 * 49);
            }
            Some(due_at)
        } else {
            None
        };
        match &mut self.request {
            // Whatever fails is tried again after its backoff, no sooner.
            Request::At(_) if self.failures > 0 => {}
            Request::At(at) => *at = (*at).min(ask_at),
            Request::Never => self.request = Request::At(ask_at),
            Request::Sent { .. } => {}
        }
        if let State::Ticking(ticking) = &mut self.state {
            ticking.due_at = due_at;
        }
    }

    /// Delivers what is due by the policy, and goes on.
    fn deliver(&mut self) {
        let State::Ticking(Ticking { known, reading, .. }) = &self.state else { return };
        let position = self.position.unwrap_or(0);
        let low = self.low(reading);
        if let Some(latest) = known.latest(low).filter(|tick| tick.n > position) {
            let (ticks, missed) = known.due(latest, position, self.options.missed.at_once());
            self.position = Some(latest.n);
            if planted(Bug::TickFromNow)
                && let State::Ticking(Ticking { known, .. }) = &mut self.state
            {
                known.base = Tick { n: latest.n, at: low };
            }
            self.deliver_all(low, &ticks, missed);
            if self.notes {
                self.note();
            }
        }
        self.plan();
    }

    fn deliver_all(&mut self, low: Timestamp, ticks: &[Tick], mut missed: u64) {
        let timer = self.key;
        let too_late =
            |tick: &Tick| self.options.late_limit.is_some_and(|limit| low.saturating_since(tick.at) > limit);
        // The later ones are less late.
        let late = ticks.iter().take_while(|tick| too_late(tick)).count();
        let (late, in_time) = ticks.split_at(late);
        if let Some(last) = late.last() {
            let count = missed.saturating_add(late.len() as u64);
            self.notice(Notice::TicksMissed { timer, last: last.n, count, why: TickMiss::TooLate });
            missed = 0;
        }
        for &tick in in_time {
            let late = low.saturating_since(tick.at);
            let due = DueTick { tick, late, missed, catching_up: in_time.len() > 1 };
            self.notice(Notice::Ticked { timer, due });
            if planted(Bug::TickTwice) {
                self.notice(Notice::Ticked { timer, due });
            }
            missed = 0;
        }
    }

    /// The store is to hear of what was delivered.
    fn note(&mut self) {
        match &mut self.request {
            Request::Sent { again, .. } => *again = true,
            Request::At(_) if self.failures > 0 => {}
            Request::At(_) | Request::Never => self.request = Request::At(self.now),
        }
    }

    fn over(&mut self, why: TimerEnd) {
        if self.state != State::Over {
            self.state = State::Over;
            self.request = Request::Never;
            self.notice(Notice::TimerEnded { timer: self.key, why });
        }
    }

    fn notice(&mut self, notice: Notice) {
        self.output.push_back(Output::Notice(notice));
    }
}
