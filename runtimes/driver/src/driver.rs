//! The task that drives everything: one for a whole [`Tenure`](crate::Tenure), with one timer.
//!
//! In each round it takes in what has come (requests of the handles, outcomes from the store, hints, the time),
//! polls the node until that has nothing more to say, and hands all commands to the store together. It is never
//! blocked by what users do: their listeners and their work run in their own tasks.

mod closures;
mod coordinators;
mod entries;
mod members;
mod notices;
mod periodics;
mod records;
mod requests;
mod tables;
mod timers;
mod workers;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::channel::{mpsc, oneshot};
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use tenure_core::{CommandId, Event, Failure, Identity, Instant, Node, Output, Reply, SplitMix, StopReason};
use tenure_store::{
    Acquired, Answer, Hint, Hints, Metadata, OperationKind, Outcome, Store, StoreError, TimerAnswer,
};

use crate::carrier::{By, Carrier, Delivery, Origin};
use crate::events;
use crate::lease::LostReason;
use crate::metrics::Metrics;
use crate::request::Request;
use crate::runtime::{Alarm, Runtime, SharedClock};
use crate::stats::Stats;
use crate::store::AnyStore;
use crate::subject::Subject;
use crate::tenure::Names;
use crate::trouble::{Kind, Trouble};
use closures::Closures;
use coordinators::Coordinators;
use entries::Entries;
pub(crate) use members::Members;
use periodics::Periodics;
use records::Records;
use timers::Timers;
use workers::Workers;

/// After so many rounds in a row other tasks get their turn.
const ROUNDS: usize = 16;
/// The most that one source brings in per round, so that none keeps the others out.
const SHARE: usize = 1024;
/// How long the store may take to close, and what is under way to end before.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// How long an end waits for requests on behalf of candidates who got nothing: most stores answer within that time,
/// and from one that does not a lease that it may have granted passes on by its TTL.
const UNHELD_LIMIT: Duration = Duration::from_millis(500);

pub(crate) struct Driver<R: Runtime> {
    runtime: R,
    clock: SharedClock,
    alarm: Option<R::Alarm>,
    /// The alarm is set, so that it is to be cleared once nothing is waited for.
    set: bool,
    node: Node<SplitMix>,
    carrier: Carrier,
    hints: Option<Hints>,
    inbox: mpsc::UnboundedReceiver<Request>,
    entries: Entries,
    members: Members,
    workers: Workers,
    coordinators: Coordinators,
    closures: Closures,
    timers: Timers,
    periodics: Periodics,
    records: Records,
    /// What is kept with every record of this process.
    metadata: Metadata,
    /// Those who wait for the end, and until when.
    leaving: Vec<(Instant, oneshot::Sender<Vec<Subject>>)>,
    /// Somebody has been told what was not given back.
    told: bool,
    stage: Stage,
    trouble: Trouble,
    stats: Stats,
    metrics: Metrics,
    published: Arc<Mutex<Stats>>,
}

/// Who this process is to the others.
pub(crate) struct Me {
    pub(crate) identity: Identity,
    pub(crate) metadata: Metadata,
    pub(crate) members: Members,
}

/// How far the driver's life has come.
enum Stage {
    Running,
    /// No new candidacies; what is held is being given back. If nothing is, requests may take until then.
    Draining(Instant),
    /// Nothing is held. What is under way may end until then.
    Flushing(Instant),
    /// The store is being closed, until then.
    Closing(BoxFuture<'static, ()>, Instant),
    Ended,
}

impl<R: Runtime> Driver<R> {
    pub(crate) fn new(
        runtime: R,
        store: AnyStore,
        me: Me,
        jitter: SplitMix,
        inbox: mpsc::UnboundedReceiver<Request>,
        published: Arc<Mutex<Stats>>,
    ) -> Self {
        let Me { identity, metadata, members } = me;
        Self {
            clock: Arc::new(runtime.clone()),
            runtime,
            alarm: None,
            set: false,
            node: Node::new(identity, jitter),
            carrier: Carrier::new(store),
            hints: None,
            inbox,
            entries: Entries::default(),
            members,
            workers: Workers::default(),
            coordinators: Coordinators::default(),
            closures: Closures::default(),
            timers: Timers::default(),
            periodics: Periodics::default(),
            records: Records::default(),
            metadata,
            leaving: Vec::new(),
            told: false,
            stage: Stage::Running,
            trouble: Trouble::default(),
            stats: Stats::default(),
            metrics: Metrics::new(),
            published,
        }
    }

    /// One round. Ready with whether there may be more to do at once.
    fn round(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.runtime.now();
        let mut busy = self.take_requests(now, cx);
        busy |= self.take_ended(now, cx);
        busy |= self.take_deliveries(now, cx);
        busy |= self.take_hints(now, cx);
        self.tell_node(now, Event::Timeout);
        let due = self.obey(now);
        self.forget_claims_beside();

        self.see_to_drain(now);
        busy |= self.report(now);
        // A request does nothing before it is polled.
        busy |= self.carrier.launch(now);
        self.trouble.sum_up(now);
        busy |= self.leave(now, cx);
        self.publish();
        if busy || matches!(self.stage, Stage::Ended) {
            return busy;
        }
        debug_assert_eq!(self.left_over(), None, "something was not forgotten");

        let own = [
            self.carrier.deadline(),
            self.trouble.deadline(),
            self.records.deadline(),
            self.members.deadline(),
        ];
        let next = own.into_iter().chain([due, self.leaving_deadline()]);
        let Some(alarm) = &mut self.alarm else { return false };
        let was_set = std::mem::replace(&mut self.set, false);
        match next.flatten().min() {
            Some(at) => {
                let due = alarm.poll_at(at, cx).is_ready();
                self.set = !due;
                due
            }
            None if was_set => {
                alarm.clear();
                false
            }
            None => false,
        }
    }

    fn take_deliveries(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        for taken in 0..SHARE {
            match self.carrier.poll(now, cx) {
                Poll::Ready(Delivery::Outcome { order, outcome }) => self.outcome(now, &order, outcome),
                Poll::Ready(Delivery::Watched { id, name, result }) => {
                    let reply = match &result {
                        Ok(()) => Reply::Watching,
                        Err(error) => {
                            events::no_hints(name.as_str(), format_args!("no hints: {error}"));
                            Reply::Failed(error.failure())
                        }
                    };
                    self.reply(now, id, Event::Reply { id, reply }, &Subject::Lease(name));
                }
                Poll::Ready(Delivery::Reported { run, result }) => self.reported(now, run, result),
                Poll::Ready(Delivery::Panicked) => {
                    self.trouble.warn(now, Kind::Bug, None, "the store's adapter panicked during a request");
                }
                Poll::Pending => return taken > 0,
            }
        }
        true
    }

    fn outcome(&mut self, now: Instant, order: &Origin, mut outcome: Outcome) {
        if outcome.as_ref().is_ok_and(|answer| !order.kind.fits(answer)) {
            let text = "the store's adapter answered with what belongs to another operation";
            self.trouble.warn(now, Kind::Bug, Some(&order.subject), text);
            outcome = Err(StoreError::unknown(text).about(&order.subject));
        }
        if outcome == Ok(Answer::Timer(TimerAnswer::Gone)) {
            // It is read again, and so made.
            outcome = Err(StoreError::transient("the timer was removed").about(&order.subject));
        }
        let id = order.id;
        self.metrics.answered(order.kind, now.saturating_since(order.since), outcome.is_err());
        let event = order.kind.event(id, &outcome);
        if let Err(error) = &outcome {
            self.stats.failures += 1;
            self.request_failed(now, order, error);
        }
        match (outcome, order.by) {
            (outcome, By::Timer(timer)) => self.timer_answered(timer, outcome.err()),
            (outcome, By::Member) => self.member_answered(order, outcome.err()),
            (Ok(Answer::Acquire(Acquired::Held(holder))), By::Lease(_)) => {
                self.entries.held_by(&order.subject, holder);
            }
            (Ok(answer), By::Lease(lease)) => {
                if matches!(answer, Answer::Timer(TimerAnswer::Granted(_))) {
                    self.claim_beside_granted(lease);
                }
                if matches!(order.kind, OperationKind::Release | OperationKind::FinishTick)
                    && !self.holds_beside(lease)
                {
                    self.entries.forgotten(lease);
                }
                self.entries.answered(&order.subject);
            }
            (Err(error), By::Lease(_)) => self.entries.failed(&order.subject, error),
        }
        self.reply(now, id, event, &order.subject);
    }

    /// Says so unless somebody else does: of acquisitions the candidate hears, of renewals a notice tells.
    fn request_failed(&mut self, now: Instant, order: &Origin, error: &StoreError) {
        let Origin { subject, kind, .. } = order;
        let entry = order.by.lease().and_then(|lease| self.entries.of(lease));
        let was_held = entry.is_some_and(|entry| entry.recorded);
        if matches!(kind, OperationKind::Release | OperationKind::FinishTick) && was_held {
            self.trouble.warn(now, Kind::Store, Some(subject), error);
        } else if order.by.lease().is_some_and(|lease| self.is_beside(lease))
            && *kind == OperationKind::ClaimTick
        {
            self.claim_beside_failed(now, subject, error);
        } else {
            events::request_failed(subject, kind.name(), format_args!("failed: {error}"));
        }
    }

    fn reply(&mut self, now: Instant, id: CommandId, event: Event, subject: &Subject) {
        if let Err(misuse) = self.node.handle(now, event) {
            self.trouble.warn(now, Kind::Bug, Some(subject), misuse);
            self.tell_node(now, Event::Reply { id, reply: Reply::Failed(Failure::Unknown) });
        }
    }

    fn tell_node(&mut self, now: Instant, event: Event) {
        if let Err(misuse) = self.node.handle(now, event) {
            self.trouble.warn(now, Kind::Bug, None, misuse);
        }
    }

    fn take_hints(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        for taken in 0..SHARE {
            let Some(hints) = &mut self.hints else { return taken > 0 };
            let event = match catch_unwind(AssertUnwindSafe(|| hints.poll_next_unpin(cx))) {
                Ok(Poll::Pending) => return taken > 0,
                Ok(Poll::Ready(Some(Hint::Lease { name, wake }))) => Event::Hint { name, wake },
                Ok(Poll::Ready(Some(Hint::Members))) => Event::MembersHint,
                Ok(Poll::Ready(Some(Hint::Resync))) => Event::Resync,
                ended => {
                    let how = if ended.is_err() { "panicked" } else { "ended" };
                    let text = format_args!("the store's hints {how}: waiters go by the TTL from now on");
                    self.trouble.warn(now, Kind::Bug, None, text);
                    self.hints = None;
                    Event::Resync
                }
            };
            self.tell_node(now, event);
        }
        true
    }

    /// Does what the node says, until it waits.
    fn obey(&mut self, now: Instant) -> Option<Instant> {
        loop {
            match self.node.poll() {
                Output::Command(command) => self.command(now, command),
                Output::Notice(notice) => self.notice(now, notice),
                Output::Wait(until) => return until,
            }
        }
    }

    /// Moves on towards the end.
    fn leave(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        let late: Vec<_> = self.leaving.extract_if(.., |(deadline, _)| *deadline <= now).collect();
        if !late.is_empty() {
            let unreleased = self.entries.unreleased();
            if unreleased.is_empty() {
                // What is left are requests without an answer, on behalf of nobody.
                self.leaving.extend(late.into_iter().map(|(_, done)| (Instant::MAX, done)));
                if matches!(self.stage, Stage::Draining(_)) && self.members.farewell(now).is_none() {
                    self.stage = Stage::Flushing(now);
                }
            } else {
                for (_, done) in late {
                    self.told |= done.send(unreleased.clone()).is_ok();
                }
            }
        }
        let waits_for_nothing = self.waits_for_nothing();
        let flushed = matches!(self.stage, Stage::Flushing(_))
            && self.carrier.len() == 0
            && self.records.len() == 0
            && self.closures.are_gone(cx);
        match &mut self.stage {
            Stage::Running => return false,
            Stage::Draining(_) if self.node.is_empty() => {
                self.records.end_all(now);
                self.stage = Stage::Flushing(now + CLOSE_LIMIT);
            }
            Stage::Draining(until)
                if *until <= now && waits_for_nothing && self.members.farewell(now).is_none() =>
            {
                self.stage = Stage::Flushing(now);
            }
            Stage::Draining(_) => return false,
            Stage::Flushing(deadline) if *deadline <= now || flushed => {
                // A store that is closed gives no more hints, and that is no trouble.
                self.hints = None;
                // One that does not answer is told, and not waited for.
                let limit = if self.carrier.len() == 0 { CLOSE_LIMIT } else { Duration::ZERO };
                self.stage = Stage::Closing(self.carrier.store().closing(), now + limit);
            }
            Stage::Flushing(_) => return false,
            Stage::Closing(closing, deadline) => {
                match AssertUnwindSafe(closing).catch_unwind().poll_unpin(cx) {
                    Poll::Pending if now < *deadline => return false,
                    Poll::Ready(Ok(())) => {}
                    Poll::Pending if self.carrier.len() > 0 => {}
                    Poll::Pending | Poll::Ready(Err(_)) => {
                        self.trouble.warn(now, Kind::Bug, None, "the store did not close properly");
                    }
                }
                self.stage = Stage::Ended;
                for (_, done) in self.leaving.drain(..) {
                    let _nobody_waits = done.send(Vec::new());
                }
                events::instance_closed();
            }
            Stage::Ended => return false,
        }
        true
    }

    /// Whether somebody waits for the end, and only for requests without an answer, on behalf of nobody.
    fn waits_for_nothing(&self) -> bool {
        !self.leaving.is_empty() && self.entries.are_released()
    }

    fn leaving_deadline(&self) -> Option<Instant> {
        let stage = match &self.stage {
            Stage::Flushing(deadline) | Stage::Closing(_, deadline) => Some(*deadline),
            Stage::Draining(deadline) if self.waits_for_nothing() => {
                Some(self.members.farewell_or(*deadline))
            }
            Stage::Running | Stage::Draining(_) | Stage::Ended => None,
        };
        self.leaving.iter().map(|(deadline, _)| *deadline).chain(stage).min()
    }

    fn publish(&mut self) {
        let counters = self.node.counters();
        let counts = self.carrier.counts;
        self.stats.held = self.entries.held();
        self.stats.workers = self.workers.len();
        self.stats.coordinators = self.coordinators.len();
        self.stats.timers = self.timers.len();
        self.stats.periodics = self.periodics.len();
        self.stats.recording = self.records.len();
        self.stats.open = self.node.len();
        self.stats.in_flight = self.carrier.len();
        self.stats.operations = counts.operations;
        self.stats.batches = counts.batches;
        self.stats.abandoned_requests = counts.abandoned;
        self.stats.stale_replies = counters.stale_replies;
        self.stats.clock_backwards = counters.clock_backwards;
        self.metrics.publish(&self.stats);
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = self.stats;
    }
}

impl<R: Runtime> Unpin for Driver<R> {}

impl<R: Runtime> Future for Driver<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        if driver.alarm.is_none() {
            driver.alarm = Some(driver.runtime.alarm());
            let store = driver.carrier.store().clone();
            driver.hints = catch_unwind(AssertUnwindSafe(|| store.hints())).unwrap_or(None);
        }
        for _ in 0..ROUNDS {
            let busy = driver.round(cx);
            if matches!(driver.stage, Stage::Ended) {
                return Poll::Ready(());
            }
            if !busy {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<R: Runtime> Drop for Driver<R> {
    fn drop(&mut self) {
        self.trouble.flush();
        // Whoever waits for an answer gets none: the handles say that this has ended. Guards can't be renewed
        // any more, so their work is told to end now rather than at the fence.
        for hold in self.entries.holds() {
            hold.lose(StopReason::Fence, LostReason::Closed);
        }
        let unreleased = self.entries.unreleased();
        // Who shut down and was told knows already.
        if !unreleased.is_empty() && !self.told {
            events::instance_not_released(format_args!(
                "the runtime ended before {} given back: others must wait for the TTL to run out; call `shutdown` \
                 and await it before the runtime ends",
                Names(&unreleased),
            ));
        }
        self.publish();
        self.metrics.end();
    }
}
