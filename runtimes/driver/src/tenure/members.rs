//! The fleet as a program sees it: its members, the work that they share out, and the drain of this instance.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures::channel::oneshot;
use tenure_core::{CoordinatorOptions, Identity, LeaseName, Member};
use tenure_store::{DrainMark, MemberEntry};

use super::{Closed, RequestError, Tenure};
use crate::coordinator::{self, CoordinatorSetup};
use crate::events;
use crate::fleet::{self, DrainReason, NotDrained};
use crate::request::{Drained, Look, NewCoordinator, Request, Requests, Ticket};
use crate::wakers::Waiting;
use crate::worker::{Ctx, Outcome, Work};

impl Tenure {
    /// Shares workloads out among the instances that do the same: each workload runs on one instance, and each instance
    /// has about as many as the others. Set the coordinator up and [`start`](CoordinatorSetup::start) it; this instance
    /// [joins](Tenure::join) the fleet by that.
    ///
    /// `work` is called for each workload that comes to belong to this instance, as [`worker`](Tenure::worker) calls it
    /// for its lease; [`Ctx::name`] says which one. Its futures run side by side. Each workload has a lease of its own
    /// name: so none ever runs in two places, also when instances see the fleet differently for a moment, and what is
    /// said of the end of work at [`worker`](Tenure::worker) goes for each of them.
    ///
    /// When an instance comes, what belongs to it from then on is handed over, once it has stayed for the
    /// [hold-down](CoordinatorSetup::hold_down). When one [drains](Tenure::drain), the others take over what it has as
    /// each workload ends. When one dies, at once on one machine; when one is frozen or cut off, once its leases and its
    /// member TTL have run out and the others have heard of it. One that was not heard of for its member TTL comes back
    /// as a newcomer: it drops its work, and is given some once it has stayed for the hold-down. A newcomer that dies
    /// unheard within the hold-down of its join counts from the end of that time until its TTL is over.
    ///
    /// There may be no workloads at first: they can be [added](crate::Coordinator::add). A workload that is named in two
    /// coordinators of one program belongs to both; the second waits for its lease until the first gives it back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::connect("memory:").await?;
    /// # async fn consume(partition: &str, token: tenure::Token) -> Result<(), std::io::Error> { tokio::task::yield_now().await; Ok(()) }
    /// let partitions = tenure
    ///     .coordinate(["orders-0", "orders-1", "orders-2"], |ctx| async move {
    ///         while !ctx.is_draining() {
    ///             consume(ctx.name(), ctx.token()).await?;
    ///         }
    ///         Ok::<_, std::io::Error>(())
    ///     })
    ///     .start()?;
    /// # partitions.changed().await;
    /// for share in partitions.mine() {
    ///     println!("{}: {:?}", share.workload, share.status);
    /// }
    /// // ... the program does other things, and in the end:
    /// tenure.drain().await?;
    /// tenure.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn coordinate<N, W, F>(&self, workloads: impl IntoIterator<Item = N>, work: W) -> CoordinatorSetup
    where
        N: AsRef<str>,
        W: FnMut(Ctx) -> F + Send + 'static,
        F: Future + Send + 'static,
        F::Output: Outcome,
    {
        CoordinatorSetup::new(self, workloads, Work::new(work))
    }

    /// Joins the fleet: heartbeats show from now on that this instance is alive, until [`shutdown`](Tenure::shutdown).
    /// Returns once the store lists it. A store that is down is tried again as long as it takes; the heartbeats go on
    /// if the future is dropped. Harmless when repeated.
    ///
    /// A member hears when an operator wants it to [drain](Tenure::mark). [Coordinators](Tenure::coordinate) join by
    /// themselves.
    ///
    /// # Errors
    /// [`RequestError::Store`] if the store refuses, for example because it has no members.
    pub async fn join(&self) -> Result<(), RequestError> {
        let (done, answer) = oneshot::channel();
        self.0.requests.unbounded_send(Request::Join(done)).map_err(|_| Closed)?;
        Ok(answer.await.map_err(|oneshot::Canceled| Closed)??)
    }

    /// All members of the fleet that the store lists now, sorted by identity, whether this instance has joined or not.
    /// A program is one only if it has a [coordinator](Tenure::coordinate) or has called [`join`](Tenure::join).
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn members(&self) -> Result<Vec<MemberEntry>, RequestError> {
        let identity = |entry: &MemberEntry| entry.member.identity.clone();
        self.pages(identity, Look::Members).await
    }

    /// The members as last heard with a heartbeat, sorted by identity: a look at what is known here. `None` before this
    /// instance has [joined](Tenure::join). Their ages are those of when the view was made.
    #[must_use]
    pub fn view(&self) -> Option<Arc<[Member]>> {
        self.0.fleet.look(|state| state.members.clone())
    }

    /// Has the instances of this name drain, or no longer: an operator's wish, which they hear of with their next
    /// heartbeat, and at once where the store has hints. Tells whom it concerns; nobody if no such instance is listed.
    /// It is also taken back from those that are not listed any more while the store remembers them, for twice their TTL:
    /// it would come back with them. After that an instance that comes back and knows of a mark makes it again.
    ///
    /// They stay members, and go on when it is taken back. A process that is started later under the same name is not
    /// concerned.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn mark(&self, instance: impl AsRef<str>, drain: bool) -> Result<Vec<Identity>, RequestError> {
        let mark = DrainMark { instance: instance.as_ref().into(), incarnation: None, drain };
        self.look(|answer| Look::Mark(mark, answer)).await
    }

    /// Like [`mark`](Tenure::mark), for one process among those of its name; tells whether it is listed, or the drain was taken
    /// back from it while it was remembered.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn mark_process(&self, process: &Identity, drain: bool) -> Result<bool, RequestError> {
        let incarnation = Some(process.incarnation());
        let mark = DrainMark { instance: process.instance().into(), incarnation, drain };
        self.look(|answer| Look::Mark(mark, answer)).await.map(|concerned| !concerned.is_empty())
    }

    /// Drains this instance: all work is told to end in order, within the drain timeouts of its workers and
    /// coordinators and the [grace](crate::Acquire::grace) of guards, and nothing is started or acquired any more
    /// ([`AcquireError::Draining`](crate::AcquireError::Draining)). As each one ends its lease is given back, and other
    /// instances go on. Returns once nothing is held.
    ///
    /// The instance stays a member, one that is given no work, until [`shutdown`](Tenure::shutdown), which is what comes
    /// next in a program that ends; [`resume`](Tenure::resume) takes the drain back in one that does not. Timers go on.
    ///
    /// It begins with the first poll. It may be called again, and from several places: all wait for the same drain.
    /// Dropping the future takes nothing back.
    ///
    /// # Errors
    /// [`NotDrained::Stuck`] names the work that has not ended a stop budget after the longest of those times, when it
    /// was stopped: it blocks its thread, or its guard is kept. The drain goes on all the same, and
    /// [`drained`](Tenure::drained) tells when it is done after all. [`NotDrained::Resumed`] if it was taken back.
    /// [`NotDrained::Closed`] if what drives the leases has ended before it was done: they run out at the store.
    pub async fn drain(&self) -> Result<(), NotDrained> {
        self.drain_all(false).await
    }

    /// Like [`drain`](Tenure::drain), without the time for it: work that runs is dropped at its next await point, and
    /// guards are lost. Ends a drain that takes too long, too.
    ///
    /// # Errors
    /// As of [`drain`](Tenure::drain), a stop budget after the call.
    pub async fn stop(&self) -> Result<(), NotDrained> {
        self.drain_all(true).await
    }

    async fn drain_all(&self, hard: bool) -> Result<(), NotDrained> {
        let (done, answer) = oneshot::channel();
        // A driver that is gone holds nothing: either it was shut down, or it has warned of what it left.
        if self.0.requests.unbounded_send(Request::Drain { hard, done }).is_err() {
            return Ok(());
        }
        match answer.await {
            Ok(Drained::Done) => Ok(()),
            Ok(Drained::Stuck(stuck)) => Err(NotDrained::Stuck(stuck)),
            Ok(Drained::Resumed) => Err(NotDrained::Resumed),
            // It has ended meanwhile.
            Err(oneshot::Canceled) if self.0.fleet.look(|state| state.drained) => Ok(()),
            Err(oneshot::Canceled) => Err(Closed.into()),
        }
    }

    /// Takes [`drain`](Tenure::drain) and [`stop`](Tenure::stop) back: workers, periodic jobs and coordinators go on. An
    /// operator's drain stays until it is taken back where it came from.
    pub fn resume(&self) {
        let _gone = self.0.requests.unbounded_send(Request::Resume);
    }

    /// Whether this instance drains: because the program wants it, or an operator, or because it shuts down.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.fleet.look(|state| state.draining().is_some())
    }

    /// Waits until this instance drains, and tells why.
    pub fn draining(&self) -> impl Future<Output = DrainReason> + Send + use<> {
        let mut waiting = Waiting::new(&self.0.fleet);
        poll_fn(move |cx| waiting.poll(cx, fleet::State::draining))
    }

    /// Waits until this instance does not drain: because the drain was taken back, or at once if there is none. Waits for
    /// ever once it shuts down.
    pub fn resumed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut waiting = Waiting::new(&self.0.fleet);
        poll_fn(move |cx| waiting.poll(cx, |state| state.draining().is_none().then_some(())))
    }

    /// Waits until this instance drains and holds nothing any more, whoever wanted it to; or until what drives the leases
    /// has ended.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut waiting = Waiting::new(&self.0.fleet);
        poll_fn(move |cx| waiting.poll(cx, |state| (state.drained || state.closed).then_some(())))
    }

    /// Waits until the process is asked to end, by SIGTERM or SIGINT, then [drains](Tenure::drain) and
    /// [shuts down](Tenure::shutdown): the last line of a program that works until then.
    ///
    /// A second signal [stops](Tenure::stop) the work hard. The signals keep their meaning for the rest of the process's
    /// life. Where there is no SIGTERM, it is Ctrl-C alone. Returns, too, when the program shuts down by itself.
    ///
    /// [`scope`](Tenure::scope) is for programs whose own work is to end before.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = tenure::embedded("example").await?;
    /// let cleaner = tenure.worker("cleaner", |ctx| async move { ctx.draining().await; }).start()?;
    /// tenure.until_terminated().await?;
    /// # let _ = cleaner;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotDrained::Stuck`] names the work that does not end, [`NotDrained::StillHeld`] what was not given back after
    /// all work had ended. This instance is shut down all the same, as far as that goes.
    pub async fn until_terminated(&self) -> Result<(), NotDrained> {
        let mut signal = self.0.clock.interrupted();
        let mut closed = Waiting::new(&self.0.fleet);
        poll_fn(|cx| {
            let closed = closed.poll(cx, |state| state.closed.then_some(()));
            if signal.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { closed }
        })
        .await;
        let mut again = self.0.clock.interrupted();
        events::asked_to_end("asked to end: draining");
        let mut drain = pin!(self.drain());
        let mut stop = pin!(self.stop());
        let mut hard = false;
        let drained = poll_fn(|cx| {
            if !hard && again.as_mut().poll(cx).is_ready() {
                events::asked_again();
                hard = true;
            }
            if hard { stop.as_mut().poll(cx) } else { drain.as_mut().poll(cx) }
        })
        .await;
        let shut_down = self.shutdown().await;
        drained?;
        Ok(shut_down?)
    }

    pub(crate) fn start_coordinator(
        &self,
        workloads: Vec<LeaseName>,
        options: CoordinatorOptions,
        work: Work,
        shared: &Arc<coordinator::Shared>,
    ) -> Result<(Ticket, Requests), Closed> {
        let ticket = self.ticket();
        let (runtime, tie) = (self.0.clock.here(), coordinator::Tie(Arc::clone(shared)));
        let new = NewCoordinator { ticket, workloads, options, work, runtime, tie };
        self.0.requests.unbounded_send(Request::Coordinator(Box::new(new))).map_err(|_| Closed)?;
        Ok((ticket, self.requests()))
    }

    pub(crate) fn fleet(&self) -> Arc<fleet::Shared> {
        Arc::clone(&self.0.fleet)
    }
}
