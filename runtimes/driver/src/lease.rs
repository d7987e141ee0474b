//! The guard of a lease that is held, and what can be had from it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::channel::oneshot;
use futures::stream::Stream;
use tenure_core::{Deadlines, LeaseName, ReleaseOutcome, StopReason, Token};

use crate::Closed;
use crate::events;
use crate::hold::{Ending, Hold};
use crate::request::{Claim, Request};
use crate::wakers::Place;

/// A lease that this process holds. It is renewed in the background until it is released or dropped.
///
/// The guard ends by its own clock: without an acknowledged renewal it is invalid from
/// [`fence_at`](Deadlines::fence_at) on, even if whatever renews it is stuck or gone. Work that must not
/// overlap with the next holder's runs in [`run`](Lease::run), or looks at [`is_valid`](Lease::is_valid) or a
/// [`signal`](Lease::signal) before each step; and whatever it changes checks the [`token`](Lease::token).
///
/// Dropping it gives the lease back: that neither blocks nor panics, anywhere. [`release`](Lease::release)
/// waits for the store's answer besides.
///
/// Drop a guard that was lost as soon as the work under it has ended: while it is kept, its work counts as going
/// on, and this process's own next candidate for the same lease waits for it. Other processes don't.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::connect("memory:").await?;
/// let lease = tenure.acquire("backup").await?;
/// let token = lease.token();
/// let written = lease.run(async { format!("written under {token}") }).await?;
/// assert!(lease.is_valid());
///
/// // A task of its own, and blocking code: they look at a signal.
/// let signal = lease.signal();
/// let steps = tokio::spawn(async move {
///     let mut steps = 0;
///     while !signal.is_stopping() && steps < 10 {
///         steps += 1;
///     }
///     steps
/// });
/// assert_eq!(steps.await?, 10);
/// lease.release().await?;
/// # assert!(!written.is_empty());
/// # tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the lease is given back when the guard is dropped"]
pub struct Lease {
    name: LeaseName,
    hold: Arc<Hold>,
    claim: Claim,
}

impl Lease {
    pub(crate) const fn new(name: LeaseName, hold: Arc<Hold>, claim: Claim) -> Self {
        Self { name, hold, claim }
    }

    /// The lease's name.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// The fencing token of this grant: greater than that of every earlier grant of the lease.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// The owner as the store keeps it: `{instance}/{incarnation}.{n}`.
    #[must_use]
    pub fn owner(&self) -> String {
        self.hold.owner.to_string()
    }

    /// Whether work may go on: the clock has not reached the fence, and the lease was not lost. Costs one
    /// read of the clock. Once false, it stays so.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// Whether the last renewal failed, so that the lease ends at the fence unless a next one succeeds.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.hold.is_in_doubt()
    }

    /// When the lease ends unless it is renewed, on the runtime's clock; on tokio that is
    /// [`clock::now`](crate::clock::now), the same for all processes of a machine.
    #[must_use]
    pub fn deadlines(&self) -> Deadlines {
        self.hold.deadlines()
    }

    /// The deadlines after each renewal from now on.
    #[must_use]
    pub fn renewals(&self) -> Renewals {
        Renewals::new(Arc::clone(&self.hold))
    }

    /// Waits until the work must have ended, and says why.
    ///
    /// That is at the fence at the latest, by a sleep of its own: the renewing task is not needed for it. The
    /// future does not borrow the guard.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        let (mut ending, lost) = (Ending::new(Arc::clone(&self.hold)), self.loss());
        poll_fn(move |cx| ending.poll_for(cx, |_, over| over).map(&lost))
    }

    /// Waits until the work is asked to end: because the holder wants it ([`StopReason::Drain`],
    /// [`StopReason::MaxHold`]: there is a grace period, the lease is renewed throughout) or because the lease
    /// ends ([`StopReason::Fence`], [`StopReason::Lost`]: stop at once).
    ///
    /// The future does not borrow the guard.
    pub fn stopping(&self) -> impl Future<Output = StopReason> + Send + use<> {
        let mut ending = Ending::new(Arc::clone(&self.hold));
        poll_fn(move |cx| ending.poll_for(cx, |stop, _| stop))
    }

    /// Runs a future for as long as the lease allows.
    ///
    /// Whether the lease is valid is looked at before each poll, the first included; at the fence the future
    /// is dropped at its next await point, whatever the renewing task does. A result that the future comes to
    /// is returned even if the lease ended meanwhile. A holder that is asked to stop by its own choice (shutdown,
    /// maximum hold) has its grace period first ([`Acquire::grace`](crate::Acquire::grace), default 30 s): work
    /// that wants to end in order listens to [`stopping`](Lease::stopping), and only at the end of the grace it is
    /// dropped. Blocking code and detached tasks can't be stopped: give them a [`signal`](Lease::signal).
    ///
    /// What the future writes to the log by `tracing` stands in the span `tenure.run`, with the lease and the token.
    ///
    /// # Errors
    /// [`Lost`] if the lease ended first.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let mut work = pin!(work);
        let (mut ending, lost) = (Ending::new(Arc::clone(&self.hold)), self.loss());
        let span = events::run_span(&self.hold, None);
        poll_fn(move |cx| {
            if let Poll::Ready(why) = ending.poll_for(cx, |_, over| over) {
                return Poll::Ready(Err(lost(why)));
            }
            span.in_scope(|| work.as_mut().poll(cx)).map(Ok)
        })
        .await
    }

    /// A token for tasks that work under this lease: it tells them when to stop. It does not keep the lease.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal::new(Arc::clone(&self.hold))
    }

    /// Gives the lease back and waits for what the store says. Nothing of the work may run any more.
    ///
    /// A lease that was lost meanwhile is no error: the outcome is [`ReleaseOutcome::NotHeld`]. Dropping the
    /// future does not take the release back: it goes on in the background.
    ///
    /// # Errors
    /// [`Closed`] if the driver was gone before the store had answered; the store frees the lease by its TTL.
    pub async fn release(mut self) -> Result<ReleaseOutcome, Closed> {
        let (outcome, answer) = oneshot::channel();
        let (_, over) = self.hold.look();
        self.hold.lose(StopReason::Drain, LostReason::Released);
        self.claim.settle();
        self.claim.send(|ticket| Request::Release { ticket, outcome: Some(outcome) });
        drop(self);
        match (answer.await, over) {
            (Ok(outcome), _) => Ok(outcome),
            // A driver that has ended since knew it too.
            (Err(oneshot::Canceled), Some(LostReason::NotYours)) => Ok(ReleaseOutcome::NotHeld),
            (Err(oneshot::Canceled), _) => Err(Closed),
        }
    }
}

impl Lease {
    /// What is to be said once the lease has ended.
    fn loss(&self) -> impl Fn(LostReason) -> Lost + Send + use<> {
        let (lease, token) = (self.name.clone(), self.hold.token);
        move |why| Lost { lease: lease.clone(), token, why }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Tasks with a signal stop, and whoever waits for the loss on its own is not left waiting.
        self.hold.lose(StopReason::Drain, LostReason::Released);
    }
}

/// Tells tasks that work under a lease when to stop. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Signal {
    hold: Arc<Hold>,
}

impl Signal {
    pub(crate) const fn new(hold: Arc<Hold>) -> Self {
        Self { hold }
    }

    /// Whether the work is to end, or must have ended.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        let (stop, over) = self.hold.look();
        let stopping = stop.is_some() || over.is_some();
        if stopping {
            self.hold.hear();
        }
        stopping
    }

    /// Whether the lease still is valid; see [`Lease::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// The fencing token of the lease.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// Waits until the work is to end; see [`Lease::stopping`]. Releasing the lease counts as
    /// [`StopReason::Drain`].
    pub fn stopped(&self) -> impl Future<Output = StopReason> + Send + use<> {
        let mut ending = Ending::new(Arc::clone(&self.hold));
        poll_fn(move |cx| ending.poll_for(cx, |stop, _| stop))
    }
}

/// The deadlines after each renewal of a lease, as a stream. Who reads late gets the newest only. It ends with
/// the lease, by its own clock as well.
pub struct Renewals {
    hold: Arc<Hold>,
    seen: u64,
    place: Place,
    /// What renews the lease may be stuck. Only shared access would need the lock.
    ending: Mutex<Ending>,
}

impl Renewals {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        let ending = Mutex::new(Ending::new(Arc::clone(&hold)));
        Self { seen: hold.renewals(), hold, place: Place::NEW, ending }
    }

    /// The deadlines after the next renewal; `None` once the lease is over.
    pub async fn next(&mut self) -> Option<Deadlines> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Deadlines>> {
        match self.hold.poll_renewal(&mut self.seen, &mut self.place, cx) {
            Poll::Pending => {
                let ending = self.ending.get_mut().unwrap_or_else(PoisonError::into_inner);
                ending.poll_for(cx, |_, over| over).map(|_over| None)
            }
            next @ Poll::Ready(_) => next,
        }
    }
}

impl Stream for Renewals {
    type Item = Deadlines;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Deadlines>> {
        self.poll(cx)
    }
}

impl fmt::Debug for Renewals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewals").field("hold", &self.hold).field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        self.hold.leave_renewals(&mut self.place);
    }
}

/// A lease is no longer to be worked under.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lease {lease:?} (token {token}) can't be worked under any more: {why}")]
#[non_exhaustive]
pub struct Lost {
    /// The lease.
    pub lease: LeaseName,
    /// The token of the grant.
    pub token: Token,
    /// What happened.
    pub why: LostReason,
}

/// Why work under a lease must have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// No renewal was acknowledged in time.
    Expired,
    /// The store said that the lease is somebody else's, or nobody's.
    NotYours,
    /// The work was asked to stop, and its grace period is over. The lease is kept until the guard is dropped;
    /// after a maximum hold only for the stop budget more, then it is not renewed any more.
    Stopped(StopReason),
    /// It was held for the maximum time, and the work did not end: it is not renewed any more.
    Abandoned,
    /// The guard was released or dropped.
    Released,
    /// What renews the lease was ended, with its runtime or by `shutdown`.
    Closed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "no renewal was acknowledged in time",
            Self::NotYours => "the store says that it is not this process's any more",
            Self::Stopped(StopReason::MaxHold) => "it was held for the maximum time, and the grace is over",
            Self::Stopped(_) => "the work was asked to stop, and its grace period is over",
            Self::Abandoned => "it was held for the maximum time and its work did not end",
            Self::Released => "it was given back",
            Self::Closed => "the driver that renews it has ended",
        })
    }
}
