//! The handle that a program holds.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::{Identity, Instant, Member};
use tenure_store::{Eviction, LeaseRecord, Limits, MemberEntry, TimerEntry};

use super::signals::{Watch, apart};
use super::wait::{wait, wait_at_most};
use super::{Acquire, CoordinatorSetup, Ctx, Jobs, PeriodicSetup, TimedOut, TimerSetup, WorkerSetup};
use crate::worker::Work;
use crate::{DrainReason, IntoSchedule, NotDrained, Outcome, RequestError, Stats, StillHeld, events};

/// Leases, timers and jobs for a program of plain threads, over one store. Made by
/// [`Builder::start_blocking`](crate::Builder::start_blocking); cloning shares it.
///
/// One thread in the background renews all leases. End with [`shutdown`](Tenure::shutdown), or run in a
/// [`scope`](Tenure::scope): then what is held is given back before the program ends, and others need not wait for a
/// TTL to run out.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tenure = tenure::blocking::connect("memory:")?;
/// let lease = tenure.acquire("backup").wait()?;
/// assert!(tenure.try_acquire("backup").wait().is_err());
/// let record = tenure.inspect("backup")?.expect("it is held");
/// assert_eq!(record.holder.owner, lease.owner());
/// drop(lease);
/// tenure.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tenure(crate::Tenure);

impl Tenure {
    pub(crate) const fn new(inner: crate::Tenure) -> Self {
        Self(inner)
    }

    /// Acquires a lease, waiting for it as long as it takes once it is [waited](Acquire::wait) for; see [`Acquire`]
    /// for the options. Every call is a candidate of its own: whoever holds a lease and acquires it again waits for
    /// itself.
    ///
    /// A store that is down is tried again as long as it takes, too. Nothing but the shutdown or the drain of this
    /// instance ends the wait of a thread: give it a limit with [`wait_at_most`](Acquire::wait_at_most).
    pub fn acquire(&self, name: impl AsRef<str>) -> Acquire {
        Acquire::new(self.0.acquire(name))
    }

    /// Acquires a lease if it is free: one try, which takes one round trip to the store; [`Acquire::wait`] waits for
    /// that.
    pub fn try_acquire(&self, name: impl AsRef<str>) -> Acquire {
        Acquire::new(self.0.try_acquire(name))
    }

    /// A worker: `work` is called on a thread of its own whenever this process gets the lease `name`. Set it up and
    /// [`start`](WorkerSetup::start) it. This is the form for leader election, and for whatever is to run on one
    /// instance at a time for as long as the program does.
    ///
    /// `work` may return `()` or a result. Work that ends is started again after a while, here or on another instance,
    /// wherever the lease goes next: see [`WorkerSetup::restart`]. A panic is a failed run, no more.
    ///
    /// Nothing stops a thread. Work looks at [`Ctx::is_draining`] to end in order, and at [`Ctx::is_valid`] before
    /// each step that must not be done once the lease is lost. The lease is given back when it has returned, and
    /// never before; work that does not end keeps it. What it has started on other threads is its own to end before.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::blocking::connect("memory:")?;
    /// # fn next_job() {}
    /// # fn process(job: (), token: tenure::Token) -> Result<(), std::io::Error> { Ok(()) }
    /// let worker = tenure
    ///     .worker("queue", |ctx| {
    ///         while !ctx.is_draining() {
    ///             let job = next_job();
    ///             process(job, ctx.token())?;
    ///         }
    ///         Ok::<_, std::io::Error>(())
    ///     })
    ///     .start()?;
    /// // ... the program does other things, and in the end:
    /// worker.drain()?;
    /// tenure.shutdown()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker<W, O>(&self, name: impl AsRef<str>, work: W) -> WorkerSetup
    where
        W: FnMut(Ctx) -> O + Send + 'static,
        O: Outcome,
    {
        // Its runs come one after the other, so nobody ever waits here.
        let work = Mutex::new(work);
        let work = Work::blocking(move |ctx| {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            work(Ctx::new(ctx))
        });
        WorkerSetup::new(crate::WorkerSetup::new(&self.0, name, work))
    }

    /// A timer: each of its ticks comes to every instance that has it. Set it up and [`start`](TimerSetup::start) it;
    /// the [`Timer`](super::Timer) is an iterator of [ticks](tenure_core::DueTick). What is said of the schedule at
    /// the async [`timer`](crate::Tenure::timer) goes for this one.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::blocking::connect("memory:")?;
    /// use std::time::Duration;
    /// for tick in tenure.timer("flush", Duration::from_millis(50)).start()? {
    ///     let due = tick?;
    ///     println!("tick {} is due, {} were missed", due.tick.n, due.missed);
    ///     if due.tick.n >= 2 {
    ///         break;
    ///     }
    /// }
    /// # tenure.shutdown()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn timer(&self, name: impl AsRef<str>, schedule: impl IntoSchedule) -> TimerSetup {
        TimerSetup::new(self.0.timer(name, schedule))
    }

    /// A periodic job: at each tick of the timer of this name `work` is run, on a thread of its own, on one instance
    /// of those that have the job. Set it up and [`start`](PeriodicSetup::start) it.
    ///
    /// What is said of ticks and claims at the async [`periodic`](crate::Tenure::periodic) goes for this one, and
    /// what is said of the end of work at [`worker`](Tenure::worker). Runs may go on side by side
    /// ([`Overlap::Allow`]), so `work` is shared among them.
    ///
    /// [`Overlap::Allow`]: tenure_core::Overlap::Allow
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::blocking::connect("memory:")?;
    /// # fn report(tick: u64, token: tenure::Token) -> Result<(), std::io::Error> { Ok(()) }
    /// use std::time::Duration;
    /// let reports = tenure
    ///     .periodic("report", Duration::from_secs(600), |ctx| {
    ///         let due = ctx.tick().expect("it is a run of a periodic job");
    ///         report(due.tick.n, ctx.token())
    ///     })
    ///     .start()?;
    /// // ... the program does other things, and in the end:
    /// reports.drain()?;
    /// tenure.shutdown()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn periodic<W, O>(&self, name: impl AsRef<str>, schedule: impl IntoSchedule, work: W) -> PeriodicSetup
    where
        W: Fn(Ctx) -> O + Send + Sync + 'static,
        O: Outcome,
    {
        let work = Work::blocking(move |ctx| work(Ctx::new(ctx)));
        PeriodicSetup::new(crate::PeriodicSetup::new(&self.0, name, schedule, work))
    }

    /// Shares workloads out among the instances that do the same: each workload runs on one instance, and each
    /// instance has about as many as the others. Set the coordinator up and [`start`](CoordinatorSetup::start) it;
    /// this instance [joins](Tenure::join) the fleet by that.
    ///
    /// `work` is called for each workload that comes to belong to this instance, on a thread of its own;
    /// [`Ctx::name`] says which one. So it is shared among them. What is said of sharing at the async
    /// [`coordinate`](crate::Tenure::coordinate) goes for this one, and what is said of the end of work at
    /// [`worker`](Tenure::worker).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::blocking::connect("memory:")?;
    /// # fn consume(partition: &str, token: tenure::Token) -> Result<(), std::io::Error> { Ok(()) }
    /// let partitions = tenure
    ///     .coordinate(["orders-0", "orders-1", "orders-2"], |ctx| {
    ///         while !ctx.is_draining() {
    ///             consume(ctx.name(), ctx.token())?;
    ///         }
    ///         Ok::<_, std::io::Error>(())
    ///     })
    ///     .start()?;
    /// for share in partitions.mine() {
    ///     println!("{}: {:?}", share.workload, share.status);
    /// }
    /// // ... the program does other things, and in the end:
    /// tenure.drain()?;
    /// tenure.shutdown()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn coordinate<N, W, O>(&self, workloads: impl IntoIterator<Item = N>, work: W) -> CoordinatorSetup
    where
        N: AsRef<str>,
        W: Fn(Ctx) -> O + Send + Sync + 'static,
        O: Outcome,
    {
        let work = Work::blocking(move |ctx| work(Ctx::new(ctx)));
        CoordinatorSetup::new(crate::CoordinatorSetup::new(&self.0, workloads, work))
    }

    /// The records of what jobs did.
    #[must_use]
    pub fn jobs(&self) -> Jobs {
        Jobs::new(self.0.jobs())
    }

    /// All timers that the store has, in the order of their names' bytes, with what is claimed of each.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn timers(&self) -> Result<Vec<TimerEntry>, RequestError> {
        wait(self.0.timers())
    }

    /// Removes a timer from the store, its claims included; tells whether there was one. See the async
    /// [`forget_timer`](crate::Tenure::forget_timer).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn forget_timer(&self, name: impl AsRef<str>) -> Result<bool, RequestError> {
        wait(self.0.forget_timer(name))
    }

    /// Who holds a lease, for people to look at; `None` if nobody does. It may be out of date.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LeaseRecord>, RequestError> {
        wait(self.0.inspect(name))
    }

    /// All leases that are held, in the order of their names' bytes.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn leases(&self) -> Result<Vec<LeaseRecord>, RequestError> {
        wait(self.0.leases())
    }

    /// Takes a lease away from whoever holds it, and tells who that was; `None` if nobody did.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn evict(&self, name: impl AsRef<str>, how: Eviction) -> Result<Option<LeaseRecord>, RequestError> {
        wait(self.0.evict(name, how))
    }

    /// Gives back what is held, and ends.
    ///
    /// No lease is acquired any more, and candidates that wait fail with
    /// [`AcquireError::ShuttingDown`](crate::AcquireError::ShuttingDown). All work under a lease is asked to stop,
    /// and workers, coordinators and periodic jobs are drained; as each guard goes, and each run ends, its lease is
    /// given back.
    ///
    /// Returns once all is done; or when the budget is over
    /// ([`Builder::shutdown_budget`](crate::Builder::shutdown_budget), default 2 s). What is held then is renewed
    /// until its guard goes, or its thread has returned: to give all work the whole of its drain timeout,
    /// [drain](Tenure::drain) the instance before. The thread in the background ends once nothing is held any more.
    /// See the async [`shutdown`](crate::Tenure::shutdown).
    ///
    /// # Errors
    /// [`StillHeld`] names the leases and claims that were not given back in time. The process may end then: what is
    /// still held passes on by its TTL, but work that runs ends in its midst.
    pub fn shutdown(&self) -> Result<(), StillHeld> {
        wait(self.0.shutdown())
    }

    /// Does a program's work, on this thread, and then [shuts down](Tenure::shutdown): when the work returns, returns
    /// an error, or panics.
    ///
    /// On SIGINT or SIGTERM all work under leases is asked to stop (see [`Lease::stopping`](super::Lease::stopping)),
    /// workers are drained, and candidates that wait fail with
    /// [`AcquireError::ShuttingDown`](crate::AcquireError::ShuttingDown); `work` goes on, to end by itself:
    /// [`is_draining`](Tenure::is_draining) tells it. On a second signal all work under leases is stopped as by
    /// [`stop`](Tenure::stop): guards are lost, and contexts no longer valid. That is all there is: where the async
    /// form drops `work`, a thread can't be stopped, and `work` still has to return by itself. So there is no
    /// [`Interrupted`](crate::Interrupted). The signals keep this meaning for the rest of the process's life. Leases
    /// that can't be given back in time are named in a warning.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = tenure::blocking::connect("memory:")?;
    /// let answer = tenure.scope(|tenure| {
    ///     let lease = tenure.acquire("backup").wait()?;
    ///     Ok::<_, tenure::AcquireError>(lease.run(|_signal| 42))
    /// })?;
    /// assert_eq!(answer?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<T>(self, work: impl FnOnce(Self) -> T) -> T {
        let watch = Watch::start(&self.0);
        let result = catch_unwind(AssertUnwindSafe(|| work(self.clone())));
        drop(watch);
        if let Err(error) = self.shutdown() {
            events::instance_still_held(error);
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Does what [`shutdown`](Tenure::shutdown) does, without waiting for it.
    pub fn begin_shutdown(&self) {
        self.0.begin_shutdown();
    }

    /// Counts of what was done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Who this process is to the others.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.0.identity()
    }

    /// What the store can do.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits()
    }

    /// The time on the clock of all instants that the handles speak of.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.now()
    }

    /// Waits on the clock that also counts while the machine sleeps, which `std::thread::sleep` does not go by. To
    /// end early when the program is to end, there is [`draining_timeout`](Tenure::draining_timeout).
    pub fn sleep(&self, duration: Duration) {
        wait(self.0.sleep(duration));
    }
}

/// The fleet, and the drain of this instance.
impl Tenure {
    /// Joins the fleet: heartbeats show from now on that this instance is alive, until
    /// [`shutdown`](Tenure::shutdown). Returns once the store lists it. A store that is down is tried again as long
    /// as it takes. Harmless when repeated. See the async [`join`](crate::Tenure::join).
    ///
    /// # Errors
    /// [`RequestError::Store`] if the store refuses, for example because it has no members.
    pub fn join(&self) -> Result<(), RequestError> {
        wait(self.0.join())
    }

    /// Like [`join`](Tenure::join), and waits for no longer than this. The heartbeats go on.
    ///
    /// # Errors
    /// [`TimedOut`]: the store has not listed it by then.
    pub fn join_timeout(&self, limit: Duration) -> Result<Result<(), RequestError>, TimedOut> {
        wait_at_most(self.0.join(), limit)
    }

    /// All members of the fleet that the store lists now, sorted by identity, whether this instance has joined or not.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn members(&self) -> Result<Vec<MemberEntry>, RequestError> {
        wait(self.0.members())
    }

    /// The members as last heard with a heartbeat, sorted by identity; `None` before this instance has
    /// [joined](Tenure::join). See the async [`view`](crate::Tenure::view).
    #[must_use]
    pub fn view(&self) -> Option<Arc<[Member]>> {
        self.0.view()
    }

    /// Has the instances of this name drain, or no longer, and tells whom it concerns; see the async
    /// [`mark`](crate::Tenure::mark).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn mark(&self, instance: impl AsRef<str>, drain: bool) -> Result<Vec<Identity>, RequestError> {
        wait(self.0.mark(instance, drain))
    }

    /// Like [`mark`](Tenure::mark), for one process among those of its name; see the async
    /// [`mark_process`](crate::Tenure::mark_process).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn mark_process(&self, process: &Identity, drain: bool) -> Result<bool, RequestError> {
        wait(self.0.mark_process(process, drain))
    }

    /// Drains this instance: all work is told to end in order, within the drain timeouts of its workers and
    /// coordinators and the [grace](Acquire::grace) of guards, and nothing is started or acquired any more
    /// ([`AcquireError::Draining`](crate::AcquireError::Draining)). As each one ends its lease is given back, and
    /// other instances go on. Returns once nothing is held.
    ///
    /// The instance stays a member, one that is given no work, until [`shutdown`](Tenure::shutdown), which is what
    /// comes next in a program that ends; [`resume`](Tenure::resume) takes the drain back in one that does not.
    /// Timers go on. It may be called again, and from several places: all wait for the same drain.
    ///
    /// # Errors
    /// [`NotDrained::Stuck`] names the work that has not ended a stop budget after the longest of those times: its
    /// thread has not returned, or its guard is kept. The drain goes on all the same, and
    /// [`drained`](Tenure::drained) tells when it is done after all. [`NotDrained::Resumed`] if it was taken back.
    /// [`NotDrained::Closed`] if what drives the leases has ended before it was done: they run out at the store.
    pub fn drain(&self) -> Result<(), NotDrained> {
        wait(self.0.drain())
    }

    /// Like [`drain`](Tenure::drain), without the time for it: guards are lost, and contexts no longer valid. Threads
    /// end when they look. Ends a drain that takes too long, too.
    ///
    /// # Errors
    /// As of [`drain`](Tenure::drain), a stop budget after the call.
    pub fn stop(&self) -> Result<(), NotDrained> {
        wait(self.0.stop())
    }

    /// Takes [`drain`](Tenure::drain) and [`stop`](Tenure::stop) back: workers, periodic jobs and coordinators go on.
    /// An operator's drain stays until it is taken back where it came from.
    pub fn resume(&self) {
        self.0.resume();
    }

    /// Whether this instance drains: because the program wants it, or an operator, or because it shuts down.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    /// Waits until this instance drains, and tells why.
    pub fn draining(&self) -> DrainReason {
        wait(self.0.draining())
    }

    /// Like [`draining`](Tenure::draining), for no longer than this: a sleep that ends early when the program is to
    /// end.
    ///
    /// # Errors
    /// [`TimedOut`]: it did not drain by then.
    pub fn draining_timeout(&self, limit: Duration) -> Result<DrainReason, TimedOut> {
        wait_at_most(self.0.draining(), limit)
    }

    /// Waits until this instance does not drain: because the drain was taken back, or at once if there is none. Waits
    /// for ever once it shuts down.
    pub fn resumed(&self) {
        wait(self.0.resumed());
    }

    /// Like [`resumed`](Tenure::resumed), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it drains still.
    pub fn resumed_timeout(&self, limit: Duration) -> Result<(), TimedOut> {
        wait_at_most(self.0.resumed(), limit)
    }

    /// Waits until this instance drains and holds nothing any more, whoever wanted it to; or until what drives the
    /// leases has ended.
    pub fn drained(&self) {
        wait(self.0.drained());
    }

    /// Like [`drained`](Tenure::drained), for no longer than this.
    ///
    /// # Errors
    /// [`TimedOut`]: it was not drained by then.
    pub fn drained_timeout(&self, limit: Duration) -> Result<(), TimedOut> {
        wait_at_most(self.0.drained(), limit)
    }

    /// Waits until the process is asked to end, by SIGTERM or SIGINT, then [drains](Tenure::drain) and [shuts
    /// down](Tenure::shutdown): the last line of a program whose work is in workers, coordinators and periodic jobs.
    ///
    /// A second signal [stops](Tenure::stop) the work hard. The signals keep their meaning for the rest of the
    /// process's life. Where there is no SIGTERM, it is Ctrl-C alone. Returns, too, when the program shuts down by
    /// itself.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = tenure::blocking::embedded("example")?;
    /// let cleaner = tenure.worker("cleaner", |ctx| { ctx.draining(); }).start()?;
    /// tenure.until_terminated()?;
    /// # let _ = cleaner;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotDrained::Stuck`] names the work that does not end, [`NotDrained::StillHeld`] what was not given back after
    /// all work had ended. This instance is shut down all the same, as far as that goes.
    pub fn until_terminated(&self) -> Result<(), NotDrained> {
        apart(|| wait(self.0.until_terminated()))
    }
}
