//! Timers: the ticks of a shared schedule, as a stream.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::Stream;
use tenure_core::{AnySchedule, ConfigError, DueTick, Missed, NameError, TimerName, TimerOptions};
use tenure_store::StoreError;

use crate::Closed;
use crate::request::{Request, Requests, Ticket};
use crate::tenure::Tenure;
use crate::unstarted::Unstarted;

mod shared;

pub(crate) use shared::{Feed, Shared};

/// What a schedule can be made of: a [`Duration`], which is a fixed period, [`Every`](tenure_core::Every), any other
/// schedule of a crate that has one, and [`AnySchedule`] itself.
pub trait IntoSchedule {
    /// The schedule.
    ///
    /// # Errors
    /// [`ConfigError`] if there is none of that kind, for example with a period of no time.
    fn into_schedule(self) -> Result<AnySchedule, ConfigError>;
}

impl<S> IntoSchedule for S
where
    S: TryInto<AnySchedule>,
    S::Error: Into<ConfigError>,
{
    fn into_schedule(self) -> Result<AnySchedule, ConfigError> {
        self.try_into().map_err(Into::into)
    }
}

/// When ticks are wanted, and which of them.
#[derive(Clone, Debug)]
pub(crate) struct When {
    schedule: Result<AnySchedule, ConfigError>,
    pub(crate) missed: Missed,
    pub(crate) late_limit: Option<Duration>,
}

impl When {
    pub(crate) fn new(schedule: impl IntoSchedule) -> Self {
        Self { schedule: schedule.into_schedule(), missed: Missed::Skip, late_limit: None }
    }

    pub(crate) fn options(self, tenure: &Tenure) -> Result<TimerOptions, ConfigError> {
        let schedule = self.schedule?;
        if let Missed::CatchUp { at_most } = self.missed
            && !(1..=Missed::MOST).contains(&at_most)
        {
            let rule = format!("must lie between 1 and {}", Missed::MOST);
            return Err(ConfigError::new("missed", format!("catching up at most {at_most}"), rule));
        }
        let options = tenure.timer_options(schedule, self.missed, self.late_limit);
        options.check()?;
        Ok(options)
    }
}

/// Sets up a timer; made by [`Tenure::timer`]. Nothing ticks before [`start`](TimerSetup::start).
#[derive(Debug)]
#[must_use = "nothing ticks before `start`"]
pub struct TimerSetup {
    tenure: Tenure,
    name: Result<TimerName, NameError>,
    when: When,
    unstarted: Unstarted,
}

impl TimerSetup {
    pub(crate) fn new(tenure: &Tenure, name: impl AsRef<str>, schedule: impl IntoSchedule) -> Self {
        let unstarted = Unstarted::new("timer", &name);
        Self { tenure: tenure.clone(), name: TimerName::new(name), when: When::new(schedule), unstarted }
    }

    /// What becomes of ticks that came while nobody could deliver them, or while the stream was not read: downtime, a
    /// pause, a forward step of the store's clock. Default [`Missed::Skip`]: the latest is delivered, with the number
    /// of those before it.
    pub const fn missed(mut self, missed: Missed) -> Self {
        self.when.missed = missed;
        self
    }

    /// A tick that would be delivered later than this is not delivered, but counted as missed. At least 20 ms. Default:
    /// no limit.
    pub const fn late_limit(mut self, limit: Duration) -> Self {
        self.when.late_limit = Some(limit);
        self
    }

    /// Starts the timer. What the store refuses is told by the stream.
    ///
    /// # Errors
    /// [`TimerError`], but not [`TimerError::Refused`]: nothing was asked of the store yet.
    pub fn start(self) -> Result<Timer, TimerError> {
        let Self { tenure, name, when, unstarted } = self;
        unstarted.begin();
        let (name, options) = (name?, when.options(&tenure)?);
        let shared = Arc::new(Shared::new(&options, tenure.clock()));
        let feed = Feed(Arc::clone(&shared));
        let (ticket, requests) = tenure.start_timer(name.clone(), options, feed)?;
        Ok(Timer { name, ticket, requests, shared })
    }
}

/// The ticks of a timer: a stream, and [`next`](Timer::next). Made by [`Tenure::timer`]. Dropping it ends the timer on
/// this instance; the store's record of it stays.
///
/// Ticks come in the order of their numbers, each at most once, never early. Who reads late gets the latest with the
/// number of those that were missed, or as many as [`Missed::CatchUp`] allows.
///
/// The stream ends when [`Tenure::shutdown`] is called. An error is its last item.
pub struct Timer {
    name: TimerName,
    ticket: Ticket,
    requests: Requests,
    shared: Arc<Shared>,
}

impl Timer {
    /// The name of the timer.
    #[must_use]
    pub const fn name(&self) -> &TimerName {
        &self.name
    }

    /// The schedule that it follows, or is to follow next, as far as is known: another instance may have changed it.
    #[must_use]
    pub fn schedule(&self) -> AnySchedule {
        self.shared.schedule()
    }

    /// The next tick, as of the stream. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<DueTick, TimerError>> {
        poll_fn(|cx| self.shared.poll(&self.name, cx)).await
    }
}

impl Stream for Timer {
    type Item = Result<DueTick, TimerError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.shared.poll(&self.name, cx)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let _gone = self.requests.unbounded_send(Request::StopTimer(self.ticket));
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("name", &self.name)
            .field("schedule", &self.schedule())
            .finish_non_exhaustive()
    }
}

/// A timer or a periodic job that was not started, or has ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimerError {
    /// A setting breaks a rule.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A name can't be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The store refuses the timer, and will again: it has none, or may not be used.
    #[error("timer {timer:?} can't be had: {error}")]
    Refused {
        /// The timer.
        timer: TimerName,
        /// What the store says.
        error: Box<StoreError>,
    },
    /// What drives the timers has ended.
    #[error(transparent)]
    Closed(#[from] Closed),
}
