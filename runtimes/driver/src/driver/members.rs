//! This instance among the members of the fleet, and the drain of all that it does.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use tenure_core::{Failure, Instant, MemberOptions};
use tenure_store::{OperationKind, StoreError};

use super::{Driver, Stage, UNHELD_LIMIT};
use crate::carrier::Origin;
use crate::events;
use crate::fleet::{DrainReason, Stuck, Tie};
use crate::reason;
use crate::request::Drained;
use crate::runtime::Runtime;
use crate::subject::Subject;
use crate::trouble::Kind;

/// How long the end waits for the store to hear that this instance has left, whatever was to be done before. Without it
/// the others take the instance for alive until its TTL is over; it holds nothing by then.
const FAREWELL_LIMIT: Duration = Duration::from_millis(500);

pub(crate) struct Members {
    options: MemberOptions,
    tie: Tie,
    /// Those who wait until this instance is listed.
    joining: Vec<oneshot::Sender<Result<(), StoreError>>>,
    is_listed: bool,
    drain: Option<Drain>,
    /// Work is to be stopped, without the time to end by itself.
    hard: bool,
    /// Those who wait until nothing is held any more.
    waiting: Vec<oneshot::Sender<Drained>>,
    /// Until when the end waits for the answer to the farewell.
    farewell: Option<Instant>,
}

/// A drain of the whole instance.
struct Drain {
    since: Instant,
    /// By then all work has ended that is there and does not block.
    until: Instant,
    /// How much was held when that was last looked at.
    held: usize,
    /// It is over: nothing is held any more, or only by what is stuck.
    done: bool,
    /// Nothing is held any more.
    drained: bool,
}

impl Members {
    pub(crate) fn new(options: MemberOptions, tie: Tie) -> Self {
        let (joining, waiting) = (Vec::new(), Vec::new());
        Self { options, tie, joining, is_listed: false, drain: None, hard: false, waiting, farewell: None }
    }

    /// When a drain should be over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.drain.as_ref().filter(|drain| !drain.done).map(|drain| drain.until)
    }

    /// Until when the end waits for the answer to the farewell.
    pub(super) fn farewell(&self, now: Instant) -> Option<Instant> {
        self.farewell.filter(|until| *until > now)
    }

    /// When the end goes on at the latest.
    pub(super) fn farewell_or(&self, deadline: Instant) -> Instant {
        self.farewell.map_or(deadline, |farewell| farewell.max(deadline))
    }

    fn answer(&mut self, answer: &Drained) {
        for waiting in self.waiting.drain(..) {
            let _nobody_waits = waiting.send(answer.clone());
        }
    }
}

impl<R: Runtime> Driver<R> {
    /// Joins, unless that was done before; `done` is answered once this instance is listed, or can't be.
    pub(super) fn join(&mut self, now: Instant, done: Option<oneshot::Sender<Result<(), StoreError>>>) {
        if let Err(misuse) = self.node.join(now, self.members.options.clone()) {
            // Dropping `done` tells that this has ended.
            return events::request_refused(format_args!("not joined: {misuse}"));
        }
        let Some(done) = done else { return };
        if self.members.is_listed {
            let _nobody_waits = done.send(Ok(()));
        } else {
            self.members.joining.push(done);
        }
    }

    /// This instance says farewell.
    pub(super) fn leaves(&mut self, now: Instant) {
        self.members.farewell.get_or_insert(now + FAREWELL_LIMIT);
    }

    /// A heartbeat or a farewell was answered.
    pub(super) fn member_answered(&mut self, order: &Origin, error: Option<StoreError>) {
        if order.kind != OperationKind::Heartbeat {
            return;
        }
        if let Some(error) = &error {
            self.stats.failed_heartbeats += 1;
            if error.failure() == Failure::Refused {
                for joining in self.members.joining.drain(..) {
                    let _nobody_waits = joining.send(Err(error.clone()));
                }
            }
        }
        if self.members.tie.0.look(|state| state.error != error) {
            self.members.tie.0.change(|state| state.error = error);
        }
    }

    pub(super) fn heartbeat_failed(&mut self, now: Instant) {
        let subject = Subject::Member(self.node.identity().clone());
        let error = self.members.tie.0.look(|state| state.error.clone());
        let error = error.unwrap_or_else(|| StoreError::unknown("it did not answer in time").about(&subject));
        let ttl = crate::span::Span(self.members.options.ttl);
        let text = format_args!(
            "a heartbeat failed, and is tried again; without one for {ttl} the others take this instance for gone: \
             {error}"
        );
        self.trouble.warn(now, Kind::Heartbeat, None, text);
    }

    pub(super) fn joined(&mut self) {
        self.members.is_listed = true;
        for joining in self.members.joining.drain(..) {
            let _nobody_waits = joining.send(Ok(()));
        }
        events::instance_joined(self.node.identity().instance());
    }

    pub(super) fn members_changed(&mut self, count: usize) {
        events::members_changed(count);
        self.stats.members = count;
        let members = self.node.members().map(|(members, _)| Arc::from(members));
        self.members.tie.0.change(|state| state.members = members);
    }

    pub(super) fn left(&mut self) {
        self.stats.members = 0;
        self.members.farewell = None;
        events::instance_left();
    }

    /// Drains the whole instance; `done` is answered once nothing is held any more, or only by what is stuck.
    pub(super) fn drain_all(&mut self, now: Instant, hard: bool, done: Option<oneshot::Sender<Drained>>) {
        self.members.waiting.extend(done);
        if !hard {
            self.node.drain_all(now);
        } else if !std::mem::replace(&mut self.members.hard, true) {
            self.node.stop_all(now);
            if let Some(drain) = self.members.drain.as_mut().filter(|drain| !drain.drained) {
                (drain.since, drain.held, drain.done) = (now, usize::MAX, false);
            }
        }
        // Whoever comes late is told what there is to tell.
        if self.members.drain.as_ref().is_some_and(|drain| drain.done) {
            self.drain_over();
        }
    }

    pub(super) fn draining(&mut self, now: Instant, reason: DrainReason) {
        if self.members.drain.is_some() {
            return;
        }
        // Whoever shuts down knows, and waits for it.
        match reason {
            DrainReason::Shutdown => events::instance_ending(format_args!("draining: {reason}")),
            DrainReason::Program | DrainReason::Operator => {
                events::instance_draining(reason::drains(reason), format_args!("draining: {reason}"));
            }
        }
        let drain = Drain { since: now, until: now, held: usize::MAX, done: false, drained: false };
        self.members.drain = Some(drain);
        self.members.tie.0.change(|state| state.drain = Some(reason));
    }

    pub(super) fn resumed(&mut self) {
        events::instance_resumed();
        (self.members.drain, self.members.hard) = (None, false);
        self.members.answer(&Drained::Resumed);
        self.members.tie.0.change(|state| (state.drain, state.drained) = (None, false));
    }

    /// Nothing is held any more.
    pub(super) fn drained(&mut self) {
        let Some(drain) = &mut self.members.drain else { return };
        drain.done = true;
        if !std::mem::replace(&mut drain.drained, true) {
            if matches!(self.stage, Stage::Running) {
                events::instance_drained();
            }
            self.members.tie.0.change(|state| state.drained = true);
        }
        self.members.answer(&Drained::Done);
    }

    /// Looks whether a drain is over, or should be.
    pub(super) fn see_to_drain(&mut self, now: Instant) {
        let Some(drain) = self.members.drain.as_mut().filter(|drain| !drain.done) else { return };
        let held = self.entries.held();
        if std::mem::replace(&mut drain.held, held) != held {
            drain.until = drain.since + self.entries.patience(self.members.hard).max(UNHELD_LIMIT);
        }
        let ends = !matches!(self.stage, Stage::Running) && self.entries.are_released();
        if ends || drain.until <= now {
            self.drain_over();
        }
    }

    fn drain_over(&mut self) {
        let Some(drain) = &mut self.members.drain else { return };
        drain.done = true;
        let stuck = Stuck::new(self.entries.working());
        if stuck.is_empty() {
            // The store may still owe answers: what it has left of us passes on by its TTL.
            return self.drained();
        }
        if !self.members.waiting.is_empty() {
            self.members.answer(&Drained::Stuck(stuck));
        } else {
            events::instance_stuck(format_args!("work was stopped and does not end: {stuck}"));
        }
    }
}
