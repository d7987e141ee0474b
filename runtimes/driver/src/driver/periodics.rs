//! The periodic jobs: their runs are tasks of their own, as those of workers are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tenure_core::{
    AcquireFailure, DueTick, Event, Exit, Failure, Instant, JobName, LeaseKey, Misuse, PeriodicKey, TickMiss,
    TimerEnd, TimerName, Token,
};
use tenure_store::{RunOutcome, StoreError};

use super::Driver;
use super::entries::{self, Entry, Times};
use super::timers::Why;
use crate::events;
use crate::periodic::{Tie, cut};
use crate::reason;
use crate::request::{NewPeriodic, Ticket};
use crate::runtime::{Runtime, SharedClock};
use crate::subject::Subject;
use crate::trouble::{self, Case, Kind};
use crate::worker::{Ended, Host, Job, Work};

#[derive(Default)]
pub(super) struct Periodics {
    known: BTreeMap<PeriodicKey, Known>,
    tickets: HashMap<Ticket, PeriodicKey>,
    runs: BTreeMap<LeaseKey, Running>,
    /// The claims beside the leases of runs. The node has no notices of them; as many as there are runs at most.
    beside: BTreeSet<LeaseKey>,
}

struct Known {
    ticket: Ticket,
    name: TimerName,
    times: Times,
    text: Option<Arc<str>>,
    /// What its runs are recorded as.
    job: Option<JobName>,
    work: Work,
    /// Runs the tasks.
    runtime: SharedClock,
    tie: Arc<Tie>,
    /// What the store last failed with, if it has not answered well since.
    error: Option<StoreError>,
}

/// A run whose task has not ended.
pub(super) struct Running {
    periodic: PeriodicKey,
    /// The tick that it is for.
    subject: Subject,
    since: Instant,
    tie: Arc<Tie>,
    record: Option<u64>,
}

impl Periodics {
    /// How many entries all tables have.
    pub(super) fn entries(&self) -> usize {
        self.known.len() + self.tickets.len() + self.runs.len() + self.beside.len()
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn take_run(&mut self, lease: LeaseKey) -> Option<Running> {
        self.runs.remove(&lease)
    }

    pub(super) fn answered(&mut self, periodic: PeriodicKey, error: Option<StoreError>) {
        if let Some(known) = self.known.get_mut(&periodic) {
            known.error = error;
        }
    }

    pub(super) fn error(&self, periodic: PeriodicKey) -> Option<&StoreError> {
        self.known.get(&periodic)?.error.as_ref()
    }
}

impl<R: Runtime> Driver<R> {
    pub(super) fn start_periodic(&mut self, now: Instant, new: NewPeriodic) {
        let NewPeriodic { ticket, name, options, job, work, runtime, tie } = new;
        let (times, text) = (Times::of(&options.run), options.run.text.clone());
        self.closures.enter(&work, &runtime);
        match self.node.start_periodic(now, name.clone(), options) {
            Ok(key) => {
                self.periodics.tickets.insert(ticket, key);
                let (tie, error) = (Arc::new(tie), None);
                let known = Known { ticket, name, times, text, job, work, runtime, tie, error };
                self.periodics.known.insert(key, known);
            }
            // Dropping the tie tells the handle.
            Err(misuse) => events::request_refused(format_args!("no periodic job: {misuse}")),
        }
    }

    pub(super) fn end_periodic(&mut self, now: Instant, ticket: Ticket, hard: bool) {
        let Some(&key) = self.periodics.tickets.get(&ticket) else { return };
        let ended: Result<(), Misuse> =
            if hard { self.node.stop_periodic(now, key) } else { self.node.drain_periodic(now, key) };
        debug_assert!(ended.is_ok(), "the key is the node's own");
    }

    /// The candidacy for a tick, or for the lease under which it is to be run, begins.
    pub(super) fn run_campaigns(
        &mut self,
        now: Instant,
        periodic: PeriodicKey,
        due: DueTick,
        lease: LeaseKey,
    ) {
        let Some(known) = self.periodics.known.get(&periodic) else { return };
        let tick = Subject::Tick(known.name.clone(), due.tick.n);
        let subject = match self.node.name(lease) {
            Some(name) => Subject::Lease(name.clone()),
            None => tick.clone(),
        };
        let host = entries::Host::Periodic(Arc::clone(&known.tie));
        self.entries.insert(lease, Entry::of_run(now, subject, known.times, host));
        self.missed_before(now, &tick, &due);
    }

    pub(super) fn start_run(
        &mut self,
        now: Instant,
        periodic: PeriodicKey,
        due: DueTick,
        lease: LeaseKey,
        token: Token,
    ) {
        let hold = self.entries.of(lease).and_then(|entry| entry.hold.clone());
        let Some((hold, known)) = hold.zip(self.periodics.known.get(&periodic)) else {
            return self.tell_node(now, Event::WorkloadExited { lease, exit: Exit::NotStarted });
        };
        self.stats.runs += 1;
        self.stats.claims += 1;
        self.stats.lateness.add(due.late);
        self.metrics.ticked(due.late);
        let subject = Subject::Tick(known.name.clone(), due.tick.n);
        events::run_started(&subject, token.get());
        let record = known.job.clone().and_then(|job| {
            let owner = hold.owner.to_string().into();
            // A text that does not fit into a record is for the claim only.
            let text = known.text.as_deref().map(cut);
            let record = self.records.begin(now, job, owner, due.tick.n, text, known.times.ttl);
            self.stats.lost_reports += u64::from(record.is_none() && self.records.are_kept());
            record
        });
        known.tie.works(lease, due.tick.n, token);
        let shared = Arc::clone(&known.tie.0);
        let host = Host::Periodic { shared, name: known.name.clone(), due };
        let job = Job::new(lease, hold, known.work.clone(), host, self.workers.sender.clone());
        let (runtime, tie) = (Arc::clone(&known.runtime), Arc::clone(&known.tie));
        self.periodics.runs.insert(lease, Running { periodic, subject, since: now, tie, record });
        job.start(&runtime);
    }

    pub(super) fn run_ended(&mut self, now: Instant, run: Running, ended: Ended) {
        let Running { periodic, subject, since, tie, record } = run;
        let Ended { lease, exit, error, work } = ended;
        self.unhold(now, lease);
        if let Some(record) = record {
            let outcome = match exit {
                Exit::Completed => RunOutcome::Succeeded,
                Exit::Failed => RunOutcome::Failed,
                Exit::Stopped | Exit::NotStarted => RunOutcome::Stopped,
            };
            self.records.end(now, record, outcome, error.as_deref().map(cut));
        }
        if exit == Exit::Failed {
            self.stats.failed_runs += 1;
        }
        let error_text = error.as_deref();
        match error_text {
            Some(error) => {
                let how = Ended::how(exit);
                let case = Case::from(&subject).with_reason(reason::exit(exit));
                self.trouble.warn(now, Kind::Work, case, format_args!("a run {how}: {error}"));
            }
            None => {
                let took = crate::span::Span(now.saturating_since(since));
                let text = format_args!("a run has ended after {took}");
                events::run_ended(&subject, reason::exit(exit), text);
            }
        }
        tie.ended(exit, error);
        self.tell_node(now, Event::WorkloadExited { lease, exit });
        if work.is_none() {
            // Its runtime is gone: nothing can be run there any more.
            let _known = self.node.drain_periodic(now, periodic);
        }
    }

    /// A tick is to be claimed: if it is beside the lease of its run, nobody has heard of that yet.
    pub(super) fn claim_beside(&mut self, now: Instant, lease: LeaseKey) {
        if self.entries.of(lease).is_some() {
            return;
        }
        let Some((periodic, due)) = self.node.worker(lease).and_then(|worker| self.node.run(worker)) else {
            return;
        };
        let Some(known) = self.periodics.known.get(&periodic) else { return };
        let subject = Subject::Tick(known.name.clone(), due.tick.n);
        let host = entries::Host::Periodic(Arc::clone(&known.tie));
        self.entries.insert(lease, Entry::of_run(now, subject, known.times, host));
        self.periodics.beside.insert(lease);
    }

    /// Whether this is the claim beside the lease of a run.
    pub(super) fn is_beside(&self, lease: LeaseKey) -> bool {
        self.periodics.beside.contains(&lease)
    }

    /// Whether it is, and the node holds it.
    pub(super) fn holds_beside(&self, lease: LeaseKey) -> bool {
        self.is_beside(lease) && self.node.deadlines(lease).is_some()
    }

    /// The store has granted a claim: from now on it has to be ended.
    pub(super) fn claim_beside_granted(&mut self, lease: LeaseKey) {
        if self.is_beside(lease)
            && let Some(entry) = self.entries.of(lease)
        {
            entry.record(true);
        }
    }

    /// It was not claimed. Only what ends the run is told by the node, and without the store's words.
    pub(super) fn claim_beside_failed(&mut self, now: Instant, subject: &Subject, error: &StoreError) {
        match error.failure() {
            Failure::Refused => {
                self.trouble.warn(now, Kind::Store, Some(subject), format_args!("not claimed: {error}"));
            }
            Failure::NotExecuted | Failure::Unknown if self.entries.fails(subject) => {}
            Failure::NotExecuted | Failure::Unknown => {
                let text = format_args!("not claimed yet, and tried again: {error}");
                self.trouble.warn(now, Kind::Store, Some(subject), text);
            }
        }
    }

    /// Claims beside leases that the node knows no more are over.
    pub(super) fn forget_claims_beside(&mut self) {
        self.periodics.beside.retain(|lease| {
            let lives = self.node.claim(*lease).is_some();
            if !lives {
                self.entries.remove(*lease);
            }
            lives
        });
    }

    /// Tells whether that lease is one of a run.
    pub(super) fn run_stuck(&mut self, now: Instant, lease: LeaseKey) -> bool {
        let Some(run) = self.periodics.runs.get(&lease) else { return false };
        run.tie.stuck(lease);
        let text = "the run was stopped and does not end: it blocks its thread; its claim is not ended before it does";
        self.trouble.warn(now, Kind::Stuck, &run.subject, text);
        true
    }

    /// A tick is not run here. That it has gone to another instance, or is not to be run, is no trouble.
    pub(super) fn run_refused(&mut self, now: Instant, lease: LeaseKey, why: AcquireFailure) {
        let Some(entry) = self.entries.of(lease) else { return };
        let subject = entry.subject.clone();
        let error = self.entries.error(&subject);
        let text = match why {
            AcquireFailure::Refused => format!("not claimed: {error}"),
            AcquireFailure::Unreachable => format!("not claimed in time: {error}"),
            AcquireFailure::StoreRegressed { token, floor } => format!(
                "claimed with token {token}, but token {floor} was seen before: the store has lost its memory; the \
                 tick is not run"
            ),
            _ => {
                return events::claim_refused(&subject, format_args!("not claimed: {why:?}"));
            }
        };
        let (kind, case) = trouble::refused(&subject, why);
        self.trouble.warn(now, kind, case, text);
    }

    pub(super) fn tick_skipped(&mut self, now: Instant, periodic: PeriodicKey, tick: u64, why: TickMiss) {
        self.skipped(reason::missed(why), 1);
        let Some(known) = self.periodics.known.get(&periodic) else { return };
        let subject = Subject::Tick(known.name.clone(), tick);
        let text = format_args!("tick {tick} is not run here: {}", Why(why));
        if why == TickMiss::Draining {
            // That it drains was told when it began; each tick may have gone to another instance.
            return events::tick_passed(&subject, text);
        }
        let kind = if why == TickMiss::Overlap { Kind::Overlap } else { Kind::Missed };
        self.trouble.warn(now, kind, Case::from(&subject).with_reason(reason::missed(why)), text);
    }

    pub(super) fn periodic_ended(&mut self, now: Instant, periodic: PeriodicKey, why: TimerEnd) {
        let Some(known) = self.periodics.known.remove(&periodic) else { return };
        self.periodics.tickets.remove(&known.ticket);
        if why == TimerEnd::Refused {
            let error = known.error.unwrap_or_else(|| StoreError::rejected("it gave no reason"));
            let subject = Subject::Timer(known.name.clone());
            self.trouble.warn(
                now,
                Kind::Store,
                Some(&subject),
                format_args!("the job can't be run: {error}"),
            );
            known.tie.refused(error);
        }
        known.tie.over();
    }
}
