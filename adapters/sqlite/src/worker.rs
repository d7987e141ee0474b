//! The thread that does everything with the database.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use tenure_core::{Identity, Instant, JobName, LeaseName, TimerName};
use tenure_store::{
    Acquired, Answer, DrainMark, Eviction, HintQueue, JobRecord, LeaseRecord, Limits, MemberEntry, Operation,
    Outcome, Renewed, Replies, RunRecord, RunReport, StoreError, StoreErrorKind, TimerAct, TimerAnswer,
    TimerEntry, TimerRequest,
};

use crate::clock;
use crate::database::Database;
use crate::liveness::Lineage;
use crate::options::SqliteOptions;
use crate::queue::Queue;
use crate::tx;
use crate::watcher::Watcher;

/// Something for the thread to do.
#[derive(Debug)]
pub(crate) enum Job {
    Batch(Batch),
    Inspect(LeaseName, Reply<Option<LeaseRecord>>),
    List {
        after: Option<LeaseName>,
        most: usize,
        reply: Reply<Vec<LeaseRecord>>,
    },
    Evict(LeaseName, Eviction, Reply<Option<LeaseRecord>>),
    Timers {
        after: Option<TimerName>,
        most: usize,
        reply: Reply<Vec<TimerEntry>>,
    },
    /// It has until then.
    Report(RunReport, Instant, Reply<()>),
    Jobs {
        after: Option<JobName>,
        most: usize,
        reply: Reply<Vec<JobRecord>>,
    },
    Runs(JobName, Reply<Vec<RunRecord>>),
    Forget(JobName, Reply<bool>),
    Members {
        after: Option<Identity>,
        most: usize,
        reply: Reply<Vec<MemberEntry>>,
    },
    Mark(DrainMark, Reply<Vec<Identity>>),
    Watch(LeaseName, Reply<()>),
    Unwatch(LeaseName, Reply<()>),
    Liveness(Reply<Option<File>>),
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Operations that came together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) operations: Vec<Operation>,
    /// Their timeouts count from here.
    pub(crate) submitted: Instant,
    pub(crate) replies: Replies,
    /// Dropped when all replies are given.
    pub(crate) done: oneshot::Sender<()>,
}

/// Operations that say nothing of a timeout may take this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Batches that wait together are carried out together, up to so many operations: a transaction stays short.
const TOGETHER: usize = 250;
/// So many jobs are done before the watcher has its turn.
const TURN: usize = 16;

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct Worker {
    queue: Arc<Queue<Job>>,
    options: SqliteOptions,
    limits: Limits,
    lineage: Lineage,
    database: Option<Database>,
    /// Whether the database that this handle had open was lost, and none has been opened since: whatever is to
    /// be renewed was granted in the lost one.
    lost: bool,
    watcher: Watcher,
}

impl Worker {
    pub(crate) fn new(
        queue: Arc<Queue<Job>>,
        options: SqliteOptions,
        limits: Limits,
        lineage: Lineage,
        hints: Arc<HintQueue>,
    ) -> Self {
        Self { queue, options, limits, lineage, database: None, lost: false, watcher: Watcher::new(hints) }
    }

    /// Works until the queue is closed and everything in it is done.
    pub(crate) fn run(mut self) {
        // Should the thread panic, nobody must wait for it.
        let _last = CloseOnExit(Arc::clone(&self.queue));
        loop {
            for _ in 0..TURN {
                match self.queue.pop() {
                    Some(job) => self.execute(job),
                    None => break,
                }
            }
            if self.queue.is_finished() {
                break;
            }
            let due = self.watcher.turn(self.database.as_mut());
            if self.queue.is_empty() {
                self.sleep(due);
            }
        }
        self.end();
    }

    /// Sleeps until there is a job, a file event or something due; for good if there is nothing.
    fn sleep(&mut self, due: Option<Instant>) {
        let timeout = due.map(|due| {
            let remaining = due.saturating_since(clock::now());
            Timespec {
                tv_sec: i64::try_from(remaining.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: remaining.subsec_nanos().into(),
            }
        });
        let events = self.watcher.events();
        let mut fds = [
            PollFd::new(self.queue.signal(), PollFlags::IN),
            PollFd::from_borrowed_fd(events.unwrap_or(self.queue.signal().as_fd()), PollFlags::IN),
        ];
        let fds = if events.is_some() { &mut fds[..] } else { &mut fds[..1] };
        match poll(fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => {
                // Only a lack of memory remains; going round at full speed would make it worse.
                tracing::error!(event = "sqlite.cannot_wait", error = %io::Error::from(error), "can't wait for work");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.queue.hush();
    }

    fn execute(&mut self, job: Job) {
        // Whoever no longer wants the answer has dropped its receiver; the work is done all the same.
        match job {
            Job::Batch(batch) => self.execute_batches(batch),
            Job::Inspect(name, reply) => {
                let result = self.open(patience()).and_then(|database| database.inspect(&name));
                let _ = reply.send(result.map_err(|error| error.about(&name)));
            }
            Job::List { after, most, reply } => {
                let _ = reply
                    .send(self.open(patience()).and_then(|database| database.list(after.as_ref(), most)));
            }
            Job::Evict(name, how, reply) => {
                let until = patience();
                let result = self.open(until).and_then(|database| database.evict(&name, how, until));
                self.watcher.look_again();
                let _ = reply.send(result.map_err(|error| error.about(&name)));
            }
            Job::Timers { after, most, reply } => {
                let result = self.open(patience()).and_then(|database| database.timers(after.as_ref(), most));
                let _ = reply.send(result);
            }
            Job::Report(report, until, reply) => {
                let result = self.open(until).and_then(|database| database.report(&report, until));
                let _ = reply.send(result.map_err(|error| error.about(&report.job)));
            }
            Job::Jobs { after, most, reply } => {
                let _ = reply
                    .send(self.open(patience()).and_then(|database| database.jobs(after.as_ref(), most)));
            }
            Job::Runs(job, reply) => {
                let result = self.open(patience()).and_then(|database| database.runs(&job));
                let _ = reply.send(result.map_err(|error| error.about(&job)));
            }
            Job::Forget(job, reply) => {
                let until = patience();
                let result = self.open(until).and_then(|database| database.forget_job(&job, until));
                let _ = reply.send(result.map_err(|error| error.about(&job)));
            }
            Job::Members { after, most, reply } => {
                let _ = reply
                    .send(self.open(patience()).and_then(|database| database.members(after.as_ref(), most)));
            }
            Job::Mark(mark, reply) => {
                let until = patience();
                let result = self.open(until).and_then(|database| database.mark(&mark, until));
                self.watcher.look_at_members();
                let _ = reply.send(result);
            }
            Job::Watch(name, reply) => {
                let until = patience();
                let result = self.open(until).map(drop).and_then(|()| match &mut self.database {
                    Some(database) => self.watcher.watch(database, &name, until),
                    None => Ok(()),
                });
                let _ = reply.send(result.map_err(|error| error.about(&name)));
            }
            Job::Unwatch(name, reply) => {
                self.watcher.unwatch(self.database.as_mut(), &name);
                let _ = reply.send(Ok(()));
            }
            Job::Liveness(reply) => {
                let result = self.open(patience()).and_then(|database| {
                    database.me().share().map_err(|error| {
                        StoreError::transient(format!("can't copy this process's liveness lock: {error}"))
                    })
                });
                let _ = reply.send(result);
            }
        }
    }

    fn execute_batches(&mut self, first: Batch) {
        let mut count = first.operations.len();
        let mut batches = vec![first];
        while let Some(Job::Batch(batch)) = self
            .queue
            .pop_if(|job| matches!(job, Job::Batch(batch) if count + batch.operations.len() <= TOGETHER))
        {
            count += batch.operations.len();
            batches.push(batch);
        }
        // Which batch, which operation of it, and until when.
        let mut open: Vec<(usize, usize, Instant)> = Vec::with_capacity(count);
        for (b, batch) in batches.iter_mut().enumerate() {
            for (o, operation) in batch.operations.iter().enumerate() {
                match tx::check(operation, &self.limits) {
                    Ok(()) => open.push((b, o, batch.submitted + operation.timeout())),
                    Err(error) => batch.replies.deliver(o, Err(error)),
                }
            }
        }
        self.begin(&mut batches, &mut open);
        if let (Some(database), false) = (&mut self.database, open.is_empty()) {
            let operations: Vec<(&Operation, Instant)> =
                open.iter().map(|&(b, o, until)| (&batches[b].operations[o], until)).collect();
            let outcomes = database.execute(&operations);
            let may_wake =
                |operation: &Operation| matches!(operation, Operation::Acquire(_) | Operation::Release(_));
            if operations.iter().any(|(operation, _)| may_wake(operation)) {
                self.watcher.look_again();
            }
            for (&(b, o, _), outcome) in open.iter().zip(outcomes) {
                match (&batches[b].operations[o], &outcome) {
                    (Operation::Acquire(request), Ok(Answer::Acquire(Acquired::Held(holder)))) => {
                        self.watcher.told_held(&request.name, holder);
                    }
                    (Operation::Heartbeat(_), Ok(Answer::Heartbeat(presence))) => {
                        self.watcher.told_members(database, presence.version);
                    }
                    (Operation::Heartbeat(_) | Operation::Leave(_), _) => self.watcher.look_at_members(),
                    _ => {}
                }
                batches[b].replies.deliver(o, outcome);
            }
            database.clean(clock::now());
        }
        for batch in batches {
            // The outcomes are there before the caller is told that all are.
            drop(batch.replies);
            let _ = batch.done.send(());
        }
    }

    /// Opens the database and begins a transaction. Operations that can't be waited for any longer, or at
    /// all, get their answer and leave `open`.
    fn begin(&mut self, batches: &mut [Batch], open: &mut Vec<(usize, usize, Instant)>) {
        while let Some(until) = open.iter().map(|&(_, _, until)| until).min() {
            let error = match self.open(until).and_then(|database| database.begin(until)) {
                Ok(()) => return,
                Err(error) => error,
            };
            let now = clock::now();
            // Only time mends a transient error, so those that still have some go on waiting, unless the error
            // came before its time was over.
            let all = error.kind != StoreErrorKind::Transient || now < until;
            let lost = self.lost;
            open.retain(|&(b, o, until)| {
                if !all && until > now {
                    return true;
                }
                let operation = &batches[b].operations[o];
                let outcome: Outcome = match operation {
                    Operation::Renew(_) if lost => Ok(Answer::Renew(Renewed::NotYours)),
                    Operation::Timer(TimerRequest { act: TimerAct::Renew { .. }, .. }) if lost => {
                        Ok(Answer::Timer(TimerAnswer::NotYours))
                    }
                    _ => Err(error.clone().about(operation.subject())),
                };
                batches[b].replies.deliver(o, outcome);
                false
            });
        }
    }

    /// The database, opened if it is not, and opened anew if it is not the one any more that its path names.
    fn open(&mut self, until: Instant) -> Result<&mut Database, StoreError> {
        if let Some(database) = &self.database
            && !database.is_current()?
        {
            tracing::warn!(
                event = "sqlite.file_replaced",
                path = %database.path().display(),
                "the store's file was removed, replaced or damaged: all leases of this process are lost"
            );
            self.lost = true;
            if let Some(database) = self.database.take() {
                database.abandon();
            }
        }
        if self.database.is_none() {
            let database = self.database.insert(Database::open(&self.options, self.lineage, until)?);
            self.lost = false;
            self.watcher.reopened(database);
        }
        self.database.as_mut().ok_or_else(|| StoreError::transient("the store is not open"))
    }

    /// Leaves nothing behind: no waiters, no liveness file.
    fn end(mut self) {
        self.watcher.end(self.database.as_mut());
    }
}

/// Closes the queue when the thread ends, however that comes about; what waits in it is dropped, which tells
/// those who asked that the outcome is unknown.
struct CloseOnExit(Arc<Queue<Job>>);

impl Drop for CloseOnExit {
    fn drop(&mut self) {
        self.0.close();
        while self.0.pop().is_some() {}
    }
}

fn patience() -> Instant {
    clock::now() + PATIENCE
}
