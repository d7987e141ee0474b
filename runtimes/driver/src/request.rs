//! What the handles ask of the driver.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use tenure_core::{
    CoordinatorOptions, Identity, JobName, LeaseName, LeaseOptions, PeriodicOptions, ReleaseOutcome,
    TimerName, TimerOptions, WorkerOptions,
};
use tenure_store::{
    DrainMark, Eviction, JobRecord, LeaseRecord, MemberEntry, RunOutcome, RunRecord, StoreError, TimerEntry,
};

use crate::acquire::{AcquireError, Candidate};
use crate::coordinator;
use crate::fleet::Stuck;
use crate::hold::Hold;
use crate::periodic;
use crate::runtime::SharedClock;
use crate::subject::Subject;
use crate::timer::Feed;
use crate::worker::{Tie, Work};

/// A candidacy and the hold that comes of it, as the handles number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// The queue is not bounded as such: each handle sends one request at a time, so the handles bound it. That
/// way dropping a handle never waits.
pub(crate) type Requests = mpsc::UnboundedSender<Request>;

pub(crate) enum Request {
    /// Enter a candidacy.
    Acquire {
        ticket: Ticket,
        name: LeaseName,
        options: LeaseOptions,
        /// Takes the progress, if anybody wants it.
        candidate: Option<Arc<Candidate>>,
        grant: oneshot::Sender<Result<Arc<Hold>, AcquireError>>,
    },
    /// Give a candidacy up, or a lease back.
    Release { ticket: Ticket, outcome: Option<oneshot::Sender<ReleaseOutcome>> },
    /// Start a worker.
    Worker(Box<NewWorker>),
    /// End a worker; `hard` leaves its work no time for it.
    EndWorker { ticket: Ticket, hard: bool },
    /// Start a coordinator.
    Coordinator(Box<NewCoordinator>),
    /// Add a workload to a coordinator, or remove it; `changed` is told whether that made a difference.
    ChangeWorkloads { ticket: Ticket, name: LeaseName, add: bool, changed: oneshot::Sender<bool> },
    /// End a coordinator; `hard` leaves its work no time for it.
    EndCoordinator { ticket: Ticket, hard: bool },
    /// Join the fleet; answered once this instance is listed, or can't be.
    Join(oneshot::Sender<Result<(), StoreError>>),
    /// Drain the whole instance; `hard` leaves work no time to end by itself.
    Drain { hard: bool, done: oneshot::Sender<Drained> },
    /// Take a drain back.
    Resume,
    /// Start a timer.
    Timer(Box<NewTimer>),
    /// End a timer.
    StopTimer(Ticket),
    /// Start a periodic job.
    Periodic(Box<NewPeriodic>),
    /// End a periodic job; `hard` leaves its runs no time for it.
    EndPeriodic { ticket: Ticket, hard: bool },
    /// Record that a run begins.
    BeginRun(Box<NewRun>),
    /// Change the text of a run's record.
    NoteRun { ticket: Ticket, text: Arc<str> },
    /// Record that a run has ended.
    EndRun {
        ticket: Ticket,
        outcome: RunOutcome,
        text: Option<Arc<str>>,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    },
    /// Look at the store, or change something there by hand.
    Look(Look),
    /// Take no new candidacies, ask all work to stop; `done` is answered once nothing is held any more, or
    /// with what still is after `budget`.
    Shutdown { budget: Duration, done: oneshot::Sender<Vec<Subject>> },
}

pub(crate) struct NewWorker {
    pub(crate) ticket: Ticket,
    pub(crate) name: LeaseName,
    pub(crate) options: WorkerOptions,
    pub(crate) work: Work,
    /// Runs the work.
    pub(crate) runtime: SharedClock,
    pub(crate) tie: Tie,
}

pub(crate) struct NewCoordinator {
    pub(crate) ticket: Ticket,
    pub(crate) workloads: Vec<LeaseName>,
    pub(crate) options: CoordinatorOptions,
    pub(crate) work: Work,
    /// Runs the work.
    pub(crate) runtime: SharedClock,
    pub(crate) tie: coordinator::Tie,
}

/// What became of a drain of the whole instance.
#[derive(Clone, Debug)]
pub(crate) enum Drained {
    Done,
    Stuck(Stuck),
    Resumed,
}

pub(crate) struct NewTimer {
    pub(crate) ticket: Ticket,
    pub(crate) name: TimerName,
    pub(crate) options: TimerOptions,
    pub(crate) feed: Feed,
}

pub(crate) struct NewPeriodic {
    pub(crate) ticket: Ticket,
    pub(crate) name: TimerName,
    pub(crate) options: PeriodicOptions,
    /// What its runs are recorded as, if they are.
    pub(crate) job: Option<JobName>,
    pub(crate) work: Work,
    /// Runs the work.
    pub(crate) runtime: SharedClock,
    pub(crate) tie: periodic::Tie,
}

pub(crate) struct NewRun {
    pub(crate) ticket: Ticket,
    pub(crate) job: JobName,
    pub(crate) owner: Arc<str>,
    pub(crate) index: Option<u64>,
    pub(crate) text: Option<Arc<str>>,
    pub(crate) ttl: Duration,
    /// Takes the answer to the first report.
    pub(crate) begun: oneshot::Sender<Result<(), StoreError>>,
}

pub(crate) enum Look {
    Inspect(LeaseName, oneshot::Sender<Result<Option<LeaseRecord>, StoreError>>),
    List(Option<LeaseName>, usize, oneshot::Sender<Result<Vec<LeaseRecord>, StoreError>>),
    Evict(LeaseName, Eviction, oneshot::Sender<Result<Option<LeaseRecord>, StoreError>>),
    Timers(Option<TimerName>, usize, oneshot::Sender<Result<Vec<TimerEntry>, StoreError>>),
    ForgetTimer(TimerName, oneshot::Sender<Result<bool, StoreError>>),
    Jobs(Option<JobName>, usize, oneshot::Sender<Result<Vec<JobRecord>, StoreError>>),
    Runs(JobName, oneshot::Sender<Result<Vec<RunRecord>, StoreError>>),
    ForgetJob(JobName, oneshot::Sender<Result<bool, StoreError>>),
    Members(Option<Identity>, usize, oneshot::Sender<Result<Vec<MemberEntry>, StoreError>>),
    Mark(DrainMark, oneshot::Sender<Result<Vec<Identity>, StoreError>>),
}

/// The right to a candidacy or hold. Dropping it gives that up: it only puts a request in the queue.
#[derive(Debug)]
pub(crate) struct Claim {
    ticket: Ticket,
    requests: Requests,
    settled: bool,
}

impl Claim {
    pub(crate) const fn new(ticket: Ticket, requests: Requests) -> Self {
        Self { ticket, requests, settled: false }
    }

    /// There is nothing left to give up.
    pub(crate) const fn settle(&mut self) {
        self.settled = true;
    }

    /// Sends a request about it. A driver that is gone has warned of what it left.
    pub(crate) fn send(&self, request: impl FnOnce(Ticket) -> Request) {
        let _gone = self.requests.unbounded_send(request(self.ticket));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.settled {
            self.send(|ticket| Request::Release { ticket, outcome: None });
        }
    }
}
