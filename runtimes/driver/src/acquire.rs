//! Acquiring a lease: the options, the waiting, the errors.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::{ConfigError, Instant, LeaseConfig, LeaseName, LeaseOptions, NameError, Token, WaitLimit};
use tenure_store::{Holder, Metadata, StoreError};

use crate::lease::Lease;
use crate::span::Span;
use crate::tenure::Tenure;

/// Acquires a lease once it is awaited; made by [`Tenure::acquire`] and [`Tenure::try_acquire`].
///
/// Nothing happens before the first poll. Dropping the future at any point leaves nothing behind: a candidacy
/// ends, and a lease that was granted meanwhile is given back.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tenure = tenure::connect("memory:").await?;
/// use std::time::Duration;
/// let lease = tenure
///     .acquire("backup")
///     .ttl(Duration::from_secs(30))
///     .wait_at_most(Duration::from_secs(60))
///     .text("started by hand")
///     .on_progress(|progress| eprintln!("{progress:?}"))
///     .await?;
/// # drop(lease);
/// # tenure.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is acquired before it is awaited"]
pub struct Acquire {
    tenure: Tenure,
    name: Result<LeaseName, NameError>,
    config: LeaseConfig,
    wait: WaitLimit,
    max_hold: Option<Duration>,
    grace: Option<Duration>,
    text: Option<Arc<str>>,
    on_progress: Option<OnProgress>,
}

type OnProgress = Box<dyn FnMut(Progress) + Send>;

impl Acquire {
    pub(crate) fn new(tenure: Tenure, name: Result<LeaseName, NameError>, wait: WaitLimit) -> Self {
        let config = tenure.config();
        Self { tenure, name, config, wait, max_hold: None, grace: None, text: None, on_progress: None }
    }

    /// Sets the TTL; the rest of the timing follows from it. See [`LeaseConfig::ttl`].
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl;
        self
    }

    /// Sets the whole timing.
    pub const fn timing(mut self, config: LeaseConfig) -> Self {
        self.config = config;
        self
    }

    /// Waits for the lease at most this long, then fails with [`AcquireError::Busy`] or
    /// [`AcquireError::Unreachable`].
    pub const fn wait_at_most(mut self, limit: Duration) -> Self {
        // Without any time there still is one try.
        self.wait = if limit.is_zero() { WaitLimit::No } else { WaitLimit::AtMost(limit) };
        self
    }

    /// Asks the work to stop this long after the grant, for good; what has not ended [`grace`](Self::grace) later
    /// is stopped hard. More than zero. Default: never.
    ///
    /// Work that does not listen to [`Lease::stopping`] or a [`Signal`](crate::Signal) so goes on through the
    /// grace: set a short one, or none, if it can be stopped anywhere.
    pub const fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// How long work that is asked to stop by the holder's choice may take to end by itself before it must have
    /// ended. The lease is renewed meanwhile. Default 30 s.
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Keeps a text with the record for whoever inspects it, at most [`Metadata::MAX_TEXT_BYTES`].
    pub fn text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Is told what happens while the lease is waited for. Called in the task that awaits; a slow or panicking
    /// listener harms nobody else. When it falls behind, the oldest reports are left out.
    ///
    /// Of several candidates of one process for one lease only the first talks to the store: those behind it
    /// hear nothing until it is their turn.
    pub fn on_progress(mut self, listener: impl FnMut(Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(listener));
        self
    }

    pub(crate) const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    pub(crate) fn name(&self) -> Result<&LeaseName, NameError> {
        self.name.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn options(&self) -> Result<LeaseOptions, ConfigError> {
        let timing = self.tenure.timing(&self.config)?;
        if let Some(text) = &self.text
            && text.len() > Metadata::MAX_TEXT_BYTES
        {
            return Err(ConfigError::new(
                "text",
                format!("{} bytes long", text.len()),
                format!("must have at most {} bytes", Metadata::MAX_TEXT_BYTES),
            ));
        }
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::new("max_hold", "0s".into(), "must be more than zero".into()));
        }
        let mut options = LeaseOptions::new(timing);
        options.wait = self.wait;
        options.max_hold = self.max_hold;
        options.grace = self.grace.unwrap_or(options.grace);
        options.text.clone_from(&self.text);
        Ok(options)
    }

    async fn acquired(self) -> Result<Lease, AcquireError> {
        let mut options = self.options()?;
        let Self { tenure, name, wait, mut on_progress, .. } = self;
        let name = name?;
        let started = tenure.now();
        loop {
            let candidate = on_progress.as_ref().map(|_| Arc::new(Candidate::default()));
            let (mut claim, mut grant) =
                tenure.enter(name.clone(), options.clone(), candidate.clone()).ok_or(AcquireError::Closed)?;
            let answer = poll_fn(|cx| {
                if let (Some(candidate), Some(listener)) = (&candidate, &mut on_progress) {
                    candidate.drain(cx, listener);
                }
                Pin::new(&mut grant).poll(cx)
            })
            .await;
            match answer {
                Ok(Ok(hold)) if hold.is_valid() => return Ok(Lease::new(name, hold, claim)),
                // Granted and renewed, but this task was kept from running until the lease was over.
                Ok(Ok(hold)) => {
                    drop(claim);
                    if let Some(listener) = &mut on_progress {
                        listener(Progress::GrantedTooLate { token: hold.token });
                    }
                    options.wait = match wait {
                        WaitLimit::Forever => WaitLimit::Forever,
                        WaitLimit::No => return Err(AcquireError::TooLate { lease: name }),
                        WaitLimit::AtMost(limit) => {
                            match limit.checked_sub(tenure.now().saturating_since(started)) {
                                Some(left) => WaitLimit::AtMost(left),
                                None => return Err(AcquireError::TooLate { lease: name }),
                            }
                        }
                    };
                }
                Ok(Err(error)) => {
                    claim.settle();
                    return Err(error);
                }
                Err(_gone) => return Err(AcquireError::Closed),
            }
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("name", &self.name)
            .field("config", &self.config)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Lease, AcquireError>;
    type IntoFuture = Acquiring;

    fn into_future(self) -> Acquiring {
        Acquiring(Box::pin(self.acquired()))
    }
}

/// The future of [`Acquire`].
#[must_use = "nothing is acquired before it is awaited"]
pub struct Acquiring(Pin<Box<dyn Future<Output = Result<Lease, AcquireError>> + Send>>);

impl Future for Acquiring {
    type Output = Result<Lease, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Acquiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring").finish_non_exhaustive()
    }
}

/// What happens while a lease is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The lease is held elsewhere. Reported after each look at the store, so also several times for one grant:
    /// compare [`Holder::token`] to tell what is new.
    Waiting {
        /// Who holds it, as far as that is known.
        holder: Option<Holder>,
        /// When the candidacy looks again at the latest, on the clock of [`Tenure::now`].
        until: Instant,
    },
    /// A try failed, and is repeated. Reported at the first failure in a row.
    Retrying {
        /// What went wrong.
        error: StoreError,
    },
    /// The lease was granted so late that no time for work was left; it was given back.
    GrantedTooLate {
        /// The token of that grant.
        token: Token,
    },
}

/// Why there is no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else has it, and waiting was not wanted or took too long.
    #[error("lease {lease:?} is held{}", ByHolder(holder.as_deref()))]
    Busy {
        /// The lease.
        lease: LeaseName,
        /// Who has it, as far as that is known.
        holder: Option<Box<Holder>>,
    },
    /// The store did not answer well in the time that was given.
    #[error("lease {lease:?} was not acquired: {error}")]
    Unreachable {
        /// The lease.
        lease: LeaseName,
        /// The last thing that went wrong.
        error: Box<StoreError>,
    },
    /// The store refuses the request, and will again.
    #[error("lease {lease:?} can't be acquired: {error}")]
    Refused {
        /// The lease.
        lease: LeaseName,
        /// What the store says.
        error: Box<StoreError>,
    },
    /// The store granted a token that is not above one that this process had seen before: it has lost its
    /// memory, and tokens don't protect until it is above the old ones again. The grant was given back.
    #[error(
        "lease {lease:?} was granted with token {token}, but token {floor} was seen before: the store has lost \
         its memory, for example by being restored or emptied; work that checks tokens would refuse the new ones"
    )]
    StoreRegressed {
        /// The lease.
        lease: LeaseName,
        /// The token that was granted.
        token: Token,
        /// The token that it should have been above.
        floor: Token,
    },
    /// The grant came so late that no time for work was left; it was given back.
    #[error(
        "lease {lease:?} was granted too late to be of use: the store or this program is too slow for its TTL"
    )]
    TooLate {
        /// The lease.
        lease: LeaseName,
    },
    /// A setting breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The name can't be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// This instance drains: it takes no work before that is taken back. See [`Tenure::drain`].
    #[error("lease {lease:?} is not acquired: this instance drains")]
    Draining {
        /// The lease.
        lease: LeaseName,
    },
    /// [`Tenure::shutdown`] was called.
    #[error("lease {lease:?} is not acquired any more: this program is shutting down")]
    ShuttingDown {
        /// The lease.
        lease: LeaseName,
    },
    /// What drives the leases has ended, by [`Tenure::shutdown`] or with its runtime.
    #[error("the driver of the leases has ended, with its runtime or by `shutdown`")]
    Closed,
}

struct ByHolder<'a>(Option<&'a Holder>);

impl fmt::Display for ByHolder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(holder) = self.0 else { return Ok(()) };
        write!(f, " by {:?}", holder.owner)?;
        if let Some(remaining) = holder.remaining {
            write!(f, ", for another {} unless it is renewed", Span(remaining))?;
        }
        match &holder.problem {
            Some(problem) => write!(f, " ({problem})"),
            None => Ok(()),
        }
    }
}

/// The reports for a candidate's listener, until its task takes them.
#[derive(Debug, Default)]
pub(crate) struct Candidate(Mutex<Reports>);

#[derive(Debug, Default)]
struct Reports {
    waiting: VecDeque<Progress>,
    waker: Option<Waker>,
}

impl Candidate {
    /// A listener that is this far behind hears of the newest only.
    const MOST: usize = 16;

    pub(crate) fn report(&self, progress: Progress) {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.waiting.len() == Self::MOST {
            reports.waiting.pop_front();
        }
        reports.waiting.push_back(progress);
        let waker = reports.waker.take();
        drop(reports);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn drain(&self, cx: &Context<'_>, listener: &mut OnProgress) {
        let (waiting, replaced) = {
            let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut reports.waiting), reports.waker.replace(cx.waker().clone()))
        };
        drop(replaced);
        waiting.into_iter().for_each(listener);
    }
}
