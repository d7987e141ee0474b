//! The handle that users have of a store.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures::channel::oneshot;
use tenure_core::{ConfigError, Identity, JobName, LeaseName, TimerName};
use tenure_store::{
    DrainMark, Eviction, HintQueue, Hints, JobRecord, LeaseRecord, Limits, MemberEntry, Operation, Replies,
    RunRecord, RunReport, Store, StoreError, TimerEntry,
};

use crate::clock;
use crate::liveness::Lineage;
use crate::options::SqliteOptions;
use crate::queue::{CAPACITY, Queue, Refused};
use crate::worker::{Batch, Job, Reply, Worker};

/// A store in an SQLite database that the processes of one machine share.
///
/// Nothing is opened before the first operation. From then on one thread does all the work; it ends when
/// the last clone of the handle is dropped, or by [`close`](Store::close). No call ever waits for another
/// process on the caller's thread, and a future that is dropped takes nothing back: what was asked for is
/// done all the same.
///
/// ```
/// # use tenure_sqlite::SqliteStore;
/// let store = SqliteStore::open("/var/lib/example/leases.db")?;
/// let store = SqliteStore::from_url("sqlite:/var/lib/example/leases.db?early=off")?;
/// # Ok::<(), tenure_store::core::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    options: SqliteOptions,
    hints: Arc<HintQueue>,
    thread: Mutex<Thread>,
}

/// The thread that has the database open.
#[derive(Debug)]
enum Thread {
    /// Nothing was to be done yet.
    Idle,
    Running {
        queue: Arc<Queue<Job>>,
        ended: oneshot::Receiver<()>,
    },
    Closed,
}

impl SqliteStore {
    /// The database at this path, created when it is missing, with the default settings.
    ///
    /// # Errors
    /// [`ConfigError`] for a path that can't name a file. Whether the file can be used shows with the first
    /// operation.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        SqliteOptions::new(path).map(Self::new)
    }

    /// The database that a URL names: see [`SqliteOptions::from_url`].
    ///
    /// # Errors
    /// [`ConfigError`] says which part of the URL is wrong.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        SqliteOptions::from_url(url).map(Self::new)
    }

    /// The database of all programs of this user that give the same name: see [`SqliteOptions::for_app`].
    ///
    /// # Errors
    /// [`ConfigError`] if the name can't be used, or the user's folder for such files can't be told.
    pub fn for_app(app: &str) -> Result<Self, ConfigError> {
        SqliteOptions::for_app(app).map(Self::new)
    }

    /// With these settings.
    #[must_use]
    pub fn new(options: SqliteOptions) -> Self {
        let hints = Arc::new(HintQueue::default());
        Self { handle: Arc::new(Handle { options, hints, thread: Mutex::new(Thread::Idle) }) }
    }

    /// The path of the database, absolute; links in it are not followed.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.handle.options.path()
    }

    /// Another descriptor of the lock by which others see that this process lives; `None` with
    /// [`early`](SqliteOptions::early) off.
    ///
    /// As long as any descriptor of it is open in any process, the leases of this handle don't pass on before
    /// their TTL is over. Hand it to a process that ends what was started under the lease and dies last. Ask
    /// again for each lease: when the file was replaced, there is a new lock. It is closed on exec unless you
    /// change that, for example by making it a child's standard input.
    ///
    /// Just keep it open: to lock or unlock it changes the one lock that all descriptors share, and others would
    /// take this process for dead.
    ///
    /// # Errors
    /// [`StoreError`] if the store can't be opened, or the process has too many open files.
    pub async fn liveness(&self) -> Result<Option<File>, StoreError> {
        self.ask(Job::Liveness).await
    }

    /// Has a job done, and waits for the answer.
    async fn ask<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.handle.push(job(reply)).map_err(|refused| refused.0)?;
        answer.await.unwrap_or_else(|_| Err(StoreError::unknown("the store's thread has ended")))
    }
}

impl Handle {
    /// Gives a job to the thread, which is started if there is none. A job that is refused comes back.
    fn push(&self, job: Job) -> Result<(), Box<(StoreError, Job)>> {
        let queue = match self.queue() {
            Ok(queue) => queue,
            Err(error) => return Err(Box::new((error, job))),
        };
        queue.push(job).map_err(|(refused, job)| {
            let error = match refused {
                Refused::Full => StoreError::transient(format!(
                    "{}: {CAPACITY} requests are waiting already; the disk stands still, or another process \
                     keeps the store locked",
                    self.options.path().display()
                )),
                Refused::Closed => closed(),
            };
            Box::new((error, job))
        })
    }

    fn queue(&self) -> Result<Arc<Queue<Job>>, StoreError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        match &*thread {
            Thread::Idle => {}
            Thread::Running { queue, .. } => return Ok(Arc::clone(queue)),
            Thread::Closed => return Err(closed()),
        }
        let failed = |error| StoreError::transient(format!("can't start the thread of the store: {error}"));
        let queue = Arc::new(Queue::new().map_err(failed)?);
        let worker = Worker::new(
            Arc::clone(&queue),
            self.options.clone(),
            LIMITS,
            Lineage::draw()?,
            Arc::clone(&self.hints),
        );
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("tenure-sqlite".to_owned())
            .spawn(move || {
                worker.run();
                let _ = end.send(());
            })
            .map_err(failed)?;
        *thread = Thread::Running { queue: Arc::clone(&queue), ended };
        Ok(queue)
    }

    /// Lets the thread end once it has done what it has. The first who asks may wait for it.
    fn close(&self) -> Option<oneshot::Receiver<()>> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *thread, Thread::Closed) {
            Thread::Idle => {
                self.hints.close();
                None
            }
            Thread::Running { queue, ended } => {
                queue.close();
                Some(ended)
            }
            Thread::Closed => None,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody waits for the thread: it ends by itself.
        drop(self.close());
    }
}

fn closed() -> StoreError {
    StoreError::rejected("the store was closed; open it again")
}

/// One clock for all, without steps.
const LIMITS: Limits = Limits::DEFAULT;

impl Store for SqliteStore {
    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn execute(&self, batch: Vec<Operation>, replies: Replies) {
        let (done, all) = oneshot::channel();
        let batch = Batch { operations: batch, submitted: clock::now(), replies, done };
        match self.handle.push(Job::Batch(batch)) {
            // If the thread ends without it, the replies have been dropped, and say so.
            Ok(()) => drop(all.await),
            Err(refused) => {
                if let (error, Job::Batch(mut batch)) = *refused {
                    for (index, operation) in batch.operations.iter().enumerate() {
                        batch.replies.deliver(index, Err(error.clone().about(operation.subject())));
                    }
                }
            }
        }
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        self.ask(|reply| Job::Inspect(name, reply)).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        self.ask(|reply| Job::List { after, most, reply }).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        self.ask(|reply| Job::Evict(name, how, reply)).await
    }

    fn hints(&self) -> Option<Hints> {
        self.handle.hints.listen().map(|stream| Box::pin(stream) as Hints)
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        self.ask(|reply| Job::Watch(name, reply)).await
    }

    async fn unwatch(&self, name: LeaseName) {
        // If it can't be done now, the registration ends by itself.
        let _ = self.ask(|reply| Job::Unwatch(name, reply)).await;
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        self.ask(|reply| Job::Timers { after, most, reply }).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        LIMITS.check_report(&report)?;
        let until = clock::now() + report.timeout;
        self.ask(|reply| Job::Report(report, until, reply)).await
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        self.ask(|reply| Job::Jobs { after, most, reply }).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        self.ask(|reply| Job::Runs(job, reply)).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        self.ask(|reply| Job::Forget(job, reply)).await
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        self.ask(|reply| Job::Members { after, most, reply }).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        self.ask(|reply| Job::Mark(mark, reply)).await
    }

    async fn close(&self) {
        if let Some(ended) = self.handle.close() {
            let _ = ended.await;
        }
    }
}
