//! The timers of a node.

use super::{Machine, Node, move_deadline};
use crate::command::{Misuse, Output, Reply};
use crate::jitter::Jitter;
use crate::name::{CommandId, PeriodicKey, TimerKey, TimerName};
use crate::notice::Notice;
use crate::schedule::AnySchedule;
use crate::time::{Instant, Timestamp};
use crate::timer::{Timer, TimerOptions, TimerView};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TimerEntry<J> {
    pub(super) timer: Timer<J>,
    pub(super) name: TimerName,
    /// The job whose ticks it gives.
    pub(super) periodic: Option<PeriodicKey>,
    /// Where it stands among the deadlines.
    pub(super) deadline: Option<Instant>,
    /// Whether it stands among the ready.
    pub(super) ready: bool,
}

#[cfg(test)]
impl<J: Jitter> TimerEntry<J> {
    /// What holds whenever everything was polled; returns its deadline.
    pub(super) fn check(&self, now: Instant) -> Option<Instant> {
        assert_eq!(self.deadline, self.timer.deadline());
        assert!(self.deadline.is_none_or(|at| at > now), "a timer is overdue");
        assert!(!self.ready && !self.timer.has_output());
        self.deadline
    }
}

impl<J: Jitter> Node<J> {
    /// Makes a timer: from now on each of its ticks is told by [`Notice::Ticked`], on this and on every other instance
    /// that has it.
    ///
    /// # Errors
    /// [`Misuse::ShuttingDown`] after [`Node::shutdown`]; [`Misuse::Config`] if a setting breaks a rule.
    pub fn start_timer(
        &mut self,
        now: Instant,
        name: TimerName,
        options: TimerOptions,
    ) -> Result<TimerKey, Misuse> {
        if self.shutting_down {
            return Err(Misuse::ShuttingDown);
        }
        options.check()?;
        self.clamp(now);
        Ok(self.enter_timer(name, options, None))
    }

    pub(super) fn enter_timer(
        &mut self,
        name: TimerName,
        options: TimerOptions,
        periodic: Option<PeriodicKey>,
    ) -> TimerKey {
        let key = TimerKey(self.next_machine());
        let timer = Timer::new(self.now, key, options, periodic.is_none(), self.jitter.0.fork());
        self.timers.insert(key, TimerEntry { timer, name, periodic, deadline: None, ready: false });
        self.settle_timer(key);
        key
    }

    /// Ends a timer: no ticks any more. Harmless when repeated; the store's record stays.
    ///
    /// # Errors
    /// [`Misuse::UnknownTimer`] for a key that this node never made.
    pub fn stop_timer(&mut self, now: Instant, timer: TimerKey) -> Result<(), Misuse> {
        if !self.was_made(timer.0) {
            return Err(Misuse::UnknownTimer(timer));
        }
        self.clamp(now);
        self.end_timer(timer);
        Ok(())
    }

    pub(super) fn end_timer(&mut self, timer: TimerKey) {
        if let Some(entry) = self.timers.get_mut(&timer) {
            entry.timer.stop(self.now);
            self.settle_timer(timer);
        }
    }

    /// The name of a timer; `None` once [`Notice::TimerEnded`] was polled.
    #[must_use]
    pub fn timer_name(&self, timer: TimerKey) -> Option<&TimerName> {
        self.timers.get(&timer).map(|entry| &entry.name)
    }

    /// The schedule that a timer follows, or is to follow next, as far as is known.
    #[must_use]
    pub fn timer_schedule(&self, timer: TimerKey) -> Option<&AnySchedule> {
        self.timers.get(&timer).map(|entry| entry.timer.schedule())
    }

    /// The periodic job that a timer belongs to.
    #[must_use]
    pub fn timer_periodic(&self, timer: TimerKey) -> Option<PeriodicKey> {
        self.timers.get(&timer)?.periodic
    }

    /// The deadline and the readiness of one timer.
    fn settle_timer(&mut self, key: TimerKey) {
        let Some(entry) = self.timers.get_mut(&key) else { return };
        let machine = Machine::Timer(key);
        move_deadline(&mut self.deadlines, machine, &mut entry.deadline, entry.timer.deadline());
        if !entry.ready && entry.timer.has_output() {
            entry.ready = true;
            self.ready.push_back(machine);
        }
    }

    pub(super) fn timer_due(&mut self, key: TimerKey) {
        if let Some(entry) = self.timers.get_mut(&key) {
            entry.timer.timeout(self.now);
            self.settle_timer(key);
        }
    }

    pub(super) fn timer_read(
        &mut self,
        now: Instant,
        id: CommandId,
        view: TimerView,
        at: Timestamp,
    ) -> Result<(), Misuse> {
        let key = TimerKey(id.machine);
        let Some(entry) = self.timers.get_mut(&key) else {
            return self.late_answer(now, id);
        };
        entry.timer.check(id)?;
        let used = entry.timer.read(self.now.max(now), id, view, at);
        let periodic = entry.periodic;
        self.clamp(now);
        self.counters.0.stale_replies += u64::from(!used);
        self.settle_timer(key);
        if let Some(periodic) = periodic {
            self.watch_unfinished(periodic);
        }
        Ok(())
    }

    /// A reply to a request of a timer, which can only be a failure.
    pub(super) fn timer_failed(&mut self, now: Instant, id: CommandId, reply: Reply) -> Result<(), Misuse> {
        let key = TimerKey(id.machine);
        let Some(entry) = self.timers.get_mut(&key) else { return Ok(()) };
        entry.timer.check(id)?;
        let Reply::Failed(failure) = reply else { return Err(Misuse::WrongReply { id, reply }) };
        let used = entry.timer.failed(self.now.max(now), id, failure);
        self.clamp(now);
        self.counters.0.stale_replies += u64::from(!used);
        self.settle_timer(key);
        Ok(())
    }

    /// An answer to a timer or membership that has ended; to anything else it is no answer.
    pub(super) fn late_answer(&mut self, now: Instant, id: CommandId) -> Result<(), Misuse> {
        if !self.was_made(id.machine) || self.lives(id.machine) {
            return Err(Misuse::UnknownCommand(id));
        }
        self.clamp(now);
        self.counters.0.stale_replies += 1;
        Ok(())
    }

    /// The next output of a timer that is ready. Ticks of a periodic job go to the job.
    pub(super) fn poll_timer(&mut self, key: TimerKey) -> Option<Output> {
        let entry = self.timers.get_mut(&key);
        let output = entry.and_then(|entry| entry.timer.next_output());
        let entry = self.timers.get_mut(&key);
        if entry.as_ref().is_none_or(|entry| !entry.timer.has_output()) {
            self.ready.pop_front();
            if let Some(entry) = entry {
                entry.ready = false;
            }
        }
        let periodic = self.timers.get(&key).and_then(|entry| entry.periodic);
        if let Some(Output::Notice(Notice::TimerEnded { .. })) = output {
            self.timers.remove(&key);
        }
        self.settle_timer(key);
        match (output?, periodic) {
            (Output::Notice(Notice::Ticked { due, .. }), Some(periodic)) => {
                self.job_ticked(periodic, due);
                None
            }
            (Output::Notice(Notice::TimerEnded { why, .. }), Some(periodic)) => {
                self.end_job(periodic, why);
                None
            }
            // The job has ended, and nothing more is to be said of it.
            (Output::Notice(_), Some(periodic)) if !self.periodics.contains_key(&periodic) => None,
            (output, _) => Some(output),
        }
    }
}
