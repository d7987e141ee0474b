//! The timers: their ticks go to streams.

use std::collections::{BTreeMap, HashMap};

use tenure_core::{DueTick, Instant, Misuse, Notice, TickMiss, TimerEnd, TimerKey};
use tenure_store::StoreError;

use super::Driver;
use crate::events;
use crate::reason;
use crate::request::{NewTimer, Ticket};
use crate::runtime::Runtime;
use crate::subject::Subject;
use crate::timer::Feed;
use crate::trouble::{Case, Kind};

#[derive(Default)]
pub(super) struct Timers {
    known: BTreeMap<TimerKey, Known>,
    tickets: HashMap<Ticket, TimerKey>,
}

struct Known {
    ticket: Ticket,
    feed: Feed,
    /// What the store last failed with, if it has not answered well since.
    error: Option<StoreError>,
}

impl Timers {
    /// How many entries all tables have.
    pub(super) fn entries(&self) -> usize {
        self.known.len() + self.tickets.len()
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

impl<R: Runtime> Driver<R> {
    pub(super) fn start_timer(&mut self, now: Instant, new: NewTimer) {
        let NewTimer { ticket, name, options, feed } = new;
        match self.node.start_timer(now, name, options) {
            Ok(key) => {
                self.timers.tickets.insert(ticket, key);
                self.timers.known.insert(key, Known { ticket, feed, error: None });
            }
            // Dropping the feed tells the handle.
            Err(misuse) => events::request_refused(format_args!("no timer: {misuse}")),
        }
    }

    pub(super) fn stop_timer(&mut self, now: Instant, ticket: Ticket) {
        let Some(&key) = self.timers.tickets.get(&ticket) else { return };
        let stopped: Result<(), Misuse> = self.node.stop_timer(now, key);
        debug_assert!(stopped.is_ok(), "the key is the node's own");
    }

    /// The store has answered to a request of a timer, well or not.
    pub(super) fn timer_answered(&mut self, timer: TimerKey, error: Option<StoreError>) {
        if let Some(known) = self.timers.known.get_mut(&timer) {
            known.error = error;
        } else if let Some(periodic) = self.node.timer_periodic(timer) {
            self.periodics.answered(periodic, error);
        }
    }

    fn timer_subject(&self, timer: TimerKey) -> Option<Subject> {
        self.node.timer_name(timer).cloned().map(Subject::Timer)
    }

    pub(super) fn ticked(&mut self, now: Instant, timer: TimerKey, due: DueTick) {
        let Some(known) = self.timers.known.get(&timer) else { return };
        let unread = known.feed.tick(now, due);
        self.stats.ticks += 1;
        self.stats.lateness.add(due.late);
        self.metrics.ticked(due.late);
        self.skipped(reason::UNREAD, unread);
        let name = self.node.timer_name(timer).cloned();
        let Some(subject) = name.map(|name| Subject::Tick(name, due.tick.n)) else { return };
        events::tick_delivered(&subject);
        self.missed_before(now, &subject, &due);
    }

    /// Tells of the ticks that were missed before this one.
    pub(super) fn missed_before(&mut self, now: Instant, subject: &Subject, due: &DueTick) {
        if due.missed > 0 {
            self.skipped(reason::PASSED, due.missed);
            let text = format_args!("{} missed before tick {}", Were(due.missed), due.tick.n);
            self.trouble.warn(now, Kind::Missed, Case::from(subject).with_reason(reason::PASSED), text);
        }
    }

    /// Counts ticks that are not delivered or run here.
    pub(super) fn skipped(&mut self, why: &'static str, count: u64) {
        self.stats.skipped_ticks += count;
        self.metrics.missed(why, count);
    }

    /// What a timer says besides its ticks.
    pub(super) fn timer_notice(&mut self, now: Instant, timer: TimerKey, notice: &Notice) {
        let subject = self.timer_subject(timer);
        let subject = subject.as_ref();
        match notice {
            Notice::TicksMissed { last, count, why, .. } => {
                self.skipped(reason::missed(*why), *count);
                if let Some(known) = self.timers.known.get(&timer) {
                    known.feed.missed(*count);
                }
                let text = format_args!("{} missed up to tick {last}: {}", Were(*count), Why(*why));
                let case = Case::from(subject).with_reason(reason::missed(*why));
                self.trouble.warn(now, Kind::Missed, case, text);
            }
            Notice::ScheduleChanged { schedule, .. } => {
                if let Some(known) = self.timers.known.get(&timer) {
                    known.feed.follow(schedule.clone());
                }
                let name = subject.and_then(Subject::timer);
                let text = format_args!("another instance has changed the schedule: {schedule}");
                events::schedule_changed(name, text);
            }
            Notice::ScheduleUnreadable { .. } => {
                let text =
                    "the schedule at the store can't be read by this program: no ticks here until it can";
                self.trouble.warn(now, Kind::Unreadable, subject, text);
            }
            Notice::Rebased { last, .. } => {
                let text = format_args!(
                    "the store's clock stands before tick {last}: it was set back, and ticks count on from now"
                );
                self.trouble.warn(now, Kind::Rebased, subject, text);
            }
            Notice::TimerRetrying { failure, .. } => {
                let error = self.timer_error(timer);
                let error = error.map_or_else(|| format!("{failure:?}"), ToString::to_string);
                let text =
                    format!("not read at the store, and tried again; ticks go on by what is known: {error}");
                self.trouble.warn(now, Kind::Store, subject, text);
            }
            other => {
                events::unknown(format_args!("a notice that this version does not know: {other:?}"));
            }
        }
    }

    fn timer_error(&self, timer: TimerKey) -> Option<&StoreError> {
        match self.timers.known.get(&timer) {
            Some(known) => known.error.as_ref(),
            None => self.periodics.error(self.node.timer_periodic(timer)?),
        }
    }

    pub(super) fn timer_ended(&mut self, timer: TimerKey, why: TimerEnd) {
        let Some(known) = self.timers.known.remove(&timer) else { return };
        self.timers.tickets.remove(&known.ticket);
        match why {
            TimerEnd::Refused => {
                known.feed.refused(known.error.unwrap_or_else(|| StoreError::rejected("it gave no reason")));
            }
            _ => known.feed.stopped(),
        }
    }
}

/// So many ticks, as the begin of a sentence.
struct Were(u64);

impl std::fmt::Display for Were {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            1 => f.write_str("1 tick was"),
            count => write!(f, "{count} ticks were"),
        }
    }
}

/// Why ticks are not run, as the end of a sentence.
pub(super) struct Why(pub(super) TickMiss);

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            TickMiss::TooLate => "too late",
            TickMiss::Superseded => "a later one came first",
            TickMiss::Overlap => "a run was going on",
            TickMiss::Refused => "the store refuses the claim",
            TickMiss::GivenBack => "its claim was given back before the run began",
            TickMiss::Draining => "this instance drains",
            _ => "for a reason that this version does not know",
        })
    }
}
