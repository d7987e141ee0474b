//! The records of runs: what is reported to the store, and when.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use tenure_core::{Instant, JobName};
use tenure_store::{RunOutcome, RunReport, StoreError, StoreErrorKind};

use super::Driver;
use crate::events;
use crate::request::{NewRun, Ticket};
use crate::runtime::Runtime;
use crate::subject::Subject;
use crate::trouble::Kind;

/// The most reports on their way at once: more would not make a store faster.
const MOST_AT_ONCE: usize = 32;
/// The most runs of periodic jobs that wait for their reports: a store that does not take them must not fill the memory.
const MOST_RUNS: usize = 1000;
/// So often in a row the end of a run is reported, until it is given up.
const TRIES: u32 = 6;
/// The pause after the first report that failed; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between reports that fail.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a report may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Runs whose records are not complete.
#[derive(Default)]
pub(super) struct Records {
    runs: BTreeMap<u64, Run>,
    tickets: HashMap<Ticket, u64>,
    /// When each is to be reported next, unless a report is on its way.
    due: BTreeSet<(Instant, u64)>,
    sent: usize,
    next: u64,
    /// The store keeps no records: runs of periodic jobs do without.
    unsupported: bool,
}

type Answer = oneshot::Sender<Result<(), StoreError>>;

struct Run {
    job: JobName,
    owner: Arc<str>,
    index: Option<u64>,
    text: Option<Arc<str>>,
    ttl: Duration,
    /// The user's own; `None` for a run of a periodic job.
    ticket: Option<Ticket>,
    outcome: Option<RunOutcome>,
    /// When it stands among the due.
    at: Option<Instant>,
    /// A report is on its way.
    sent: bool,
    /// What was changed since the last report was sent is to be told at once.
    news: bool,
    /// Whether the last report told the outcome.
    told_outcome: bool,
    /// Reports in a row that failed.
    failures: u32,
    begun: Option<Answer>,
    done: Option<Answer>,
}

impl Run {
    /// A run of a periodic job, of which nothing was reported yet.
    const fn new(
        job: JobName,
        owner: Arc<str>,
        index: Option<u64>,
        text: Option<Arc<str>>,
        ttl: Duration,
    ) -> Self {
        Self {
            job,
            owner,
            index,
            text,
            ttl,
            ticket: None,
            outcome: None,
            at: None,
            sent: false,
            news: false,
            told_outcome: false,
            failures: 0,
            begun: None,
            done: None,
        }
    }
}

/// What became of a report.
pub(super) enum Lost {
    /// It is tried again.
    Retried(Subject, StoreError),
    /// Nothing is tried any more.
    GivenUp(Subject, StoreError),
}

impl Records {
    /// How many entries all tables have.
    pub(super) fn entries(&self) -> usize {
        self.runs.len() + self.tickets.len() + self.due.len() + self.sent
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// A run of a periodic job begins. `None` if it is not recorded: it would be one too many, or the store has none.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        job: JobName,
        owner: Arc<str>,
        index: u64,
        text: Option<Arc<str>>,
        ttl: Duration,
    ) -> Option<u64> {
        if self.unsupported || self.runs.len() >= MOST_RUNS {
            return None;
        }
        Some(self.insert(now, Run::new(job, owner, Some(index), text, ttl)))
    }

    pub(super) fn begin_own(&mut self, now: Instant, new: NewRun) {
        let NewRun { ticket, job, owner, index, text, ttl, begun } = new;
        let mut run = Run::new(job, owner, index, text, ttl);
        (run.ticket, run.begun) = (Some(ticket), Some(begun));
        let id = self.insert(now, run);
        self.tickets.insert(ticket, id);
    }

    fn insert(&mut self, now: Instant, run: Run) -> u64 {
        self.next += 1;
        let id = self.next;
        self.runs.insert(id, run);
        self.plan(id, now);
        id
    }

    pub(super) fn note(&mut self, now: Instant, ticket: Ticket, text: Arc<str>) {
        let Some(&id) = self.tickets.get(&ticket) else { return };
        if let Some(run) = self.runs.get_mut(&id) {
            run.text = Some(text);
            self.tell(id, now);
        }
    }

    pub(super) fn end_own(
        &mut self,
        now: Instant,
        ticket: Ticket,
        outcome: RunOutcome,
        text: Option<Arc<str>>,
        done: Option<Answer>,
    ) {
        let Some(id) = self.tickets.remove(&ticket) else { return };
        if let Some(run) = self.runs.get_mut(&id) {
            run.done = done;
        }
        self.end(now, id, outcome, text);
    }

    pub(super) fn end(&mut self, now: Instant, id: u64, outcome: RunOutcome, text: Option<Arc<str>>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.outcome = Some(outcome);
        run.text = text.or(run.text.take());
        run.failures = 0;
        self.tell(id, now);
    }

    /// Whatever goes on is recorded as stopped: nobody is there any more to say that it lives.
    pub(super) fn end_all(&mut self, now: Instant) {
        let open: Vec<_> =
            self.runs.iter().filter(|(_, run)| run.outcome.is_none()).map(|(id, _)| *id).collect();
        for id in open {
            self.end(now, id, RunOutcome::Stopped, None);
        }
    }

    /// Something is to be reported at once, or after the report that is on its way.
    fn tell(&mut self, id: u64, now: Instant) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.sent {
            run.news = true;
        } else if run.failures == 0 {
            // A store that fails is left its pause, but for the end of a run.
            self.plan(id, now);
        }
    }

    fn plan(&mut self, id: u64, at: Instant) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if let Some(before) = run.at.replace(at) {
            self.due.remove(&(before, id));
        }
        self.due.insert((at, id));
    }

    fn remove(&mut self, id: u64) -> Option<Run> {
        let run = self.runs.remove(&id)?;
        if let Some(at) = run.at {
            self.due.remove(&(at, id));
        }
        if let Some(ticket) = run.ticket {
            self.tickets.remove(&ticket);
        }
        Some(run)
    }

    /// When the next report is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at).filter(|_| self.sent < MOST_AT_ONCE)
    }

    /// The next report to be sent now.
    pub(super) fn next(&mut self, now: Instant) -> Option<(u64, RunReport)> {
        let (_, id) = self.due.first().copied().filter(|(at, _)| *at <= now && self.sent < MOST_AT_ONCE)?;
        self.due.pop_first();
        let run = self.runs.get_mut(&id)?;
        (run.at, run.sent, run.news) = (None, true, false);
        run.told_outcome = run.outcome.is_some();
        self.sent += 1;
        let timeout = TIMEOUT.min(run.ttl / 3);
        let mut report = RunReport::new(run.job.clone(), Arc::clone(&run.owner), run.ttl, timeout);
        report.index = run.index;
        report.outcome = run.outcome;
        report.text.clone_from(&run.text);
        Some((id, report))
    }

    /// The store has answered to a report.
    pub(super) fn reported(&mut self, now: Instant, id: u64, result: Result<(), StoreError>) -> Option<Lost> {
        self.sent = self.sent.saturating_sub(1);
        let run = self.runs.get_mut(&id)?;
        run.sent = false;
        match result {
            Ok(()) => {
                run.failures = 0;
                if let Some(begun) = run.begun.take() {
                    let _nobody_waits = begun.send(Ok(()));
                }
                if run.told_outcome {
                    let done = self.remove(id).and_then(|run| run.done);
                    let _nobody_waits = done.map(|done| done.send(Ok(())));
                } else {
                    let next = if run.news { now } else { now + run.ttl / 3 };
                    self.plan(id, next);
                }
                None
            }
            Err(error) => self.failed(now, id, error),
        }
    }

    fn failed(&mut self, now: Instant, id: u64, error: StoreError) -> Option<Lost> {
        let run = self.runs.get_mut(&id)?;
        let subject = Subject::Job(run.job.clone());
        if let Some(begun) = run.begun.take()
            && run.outcome.is_none()
        {
            // Whoever begins it hears of it, and there is no run.
            let _nobody_waits = begun.send(Err(error));
            self.remove(id);
            return None;
        }
        let refused = matches!(error.kind, StoreErrorKind::Rejected | StoreErrorKind::Unsupported);
        self.unsupported |= error.kind == StoreErrorKind::Unsupported && run.ticket.is_none();
        run.failures += 1;
        if run.news && run.outcome.is_some() && !run.told_outcome {
            // The end was not reported yet.
            self.plan(id, now);
            return Some(Lost::Retried(subject, error));
        }
        let ended = run.outcome.is_some();
        if (ended && (refused || run.failures >= TRIES)) || (refused && run.ticket.is_none()) {
            if let Some(done) = self.remove(id).and_then(|run| run.done) {
                // Who waits for it hears of it.
                let _nobody_waits = done.send(Err(error));
                return None;
            }
            return Some(Lost::GivenUp(subject, error));
        }
        if refused {
            // Its end is tried all the same.
            return Some(Lost::GivenUp(subject, error));
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << (run.failures - 1).min(16)).min(LONGEST_PAUSE);
        let next = now + pause.min(run.ttl / 3);
        self.plan(id, next);
        Some(Lost::Retried(subject, error))
    }
}

impl Records {
    /// Whether runs are recorded at all.
    pub(super) const fn are_kept(&self) -> bool {
        !self.unsupported
    }
}

impl<R: Runtime> Driver<R> {
    /// Sends the reports that are due; tells whether there were any.
    pub(super) fn report(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((id, report)) = self.records.next(now) {
            self.carrier.report(now, id, report);
            any = true;
        }
        any
    }

    pub(super) fn reported(&mut self, now: Instant, id: u64, result: Result<(), StoreError>) {
        match self.records.reported(now, id, result) {
            None => {}
            Some(Lost::Retried(subject, error)) => {
                let text = format_args!("not recorded yet, and tried again: {error}");
                events::record_retried(subject.job(), text);
            }
            Some(Lost::GivenUp(subject, error)) => {
                self.stats.lost_reports += 1;
                let text = format_args!("a run is not recorded as it went: {error}");
                self.trouble.warn(now, Kind::Record, Some(&subject), text);
            }
        }
    }
}
