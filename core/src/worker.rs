//! A worker: a lease and its workload, which runs only while the lease is held.
//!
//! ```text
//!              due               granted             polled
//!   Resting ---------> Campaigning ---------> Starting ---------> Running
//!    ^ |                 |                        |                   |
//!    | | drained         | refused, drained       | no longer valid   | exited
//!    | |                 v                        v                   v
//!    | '-------> Over <--+------------------------+-------------------'
//!    |                   |                        |                   |
//!    '-------------------'------------------------'-------------------'
//! ```
//!
//! | what happens | what follows |
//! |---|---|
//! | the rest is over | the [`Node`](crate::Node) enters a candidacy, which waits as long as it takes |
//! | the lease is granted | the workload is to be started: once, and only if it still may when that is polled |
//! | the lease wants the work drained or stopped | passed on if the workload was started; else it never is |
//! | the workload has not ended a stop budget after its hard stop | reported as stuck, once; the lease goes on by its own rules |
//! | the workload ends by itself | the lease goes back; again after a delay, if the policy says so |
//! | the workload ends because it was stopped, or never began | the lease goes back; again after the shortest delay |
//! | the candidacy is refused | again after a delay, as after a failure |
//! | drained | nothing is started any more; over once nothing runs |
//! | paused, since the instance drains | likewise, but it rests until that is over |
//!
//! Each run has a grant of its own, with a token of its own. So work that fails goes to another instance, if one
//! waits, and whatever a run has left behind is fenced off from the next one. The lease decides everything about
//! time and the store; a worker adds only what follows for the workload.

use alloc::collections::VecDeque;
use alloc::format;
use core::time::Duration;

use crate::command::{Exit, Output, Stop};
use crate::jitter::{Jitter, up_to};
use crate::lease::{LeaseOptions, WaitLimit};
use crate::name::{Acquisition, LeaseKey, Token, WorkerKey};
use crate::notice::{AcquireFailure, Notice};
use crate::planted::{Bug, planted};
use crate::time::{Instant, readable};
use crate::timing::{ConfigError, MIN_STEP};
use crate::untracked::Untracked;

#[cfg(feature = "model")]
mod model;
#[cfg(test)]
mod tests;

/// What a worker does, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// The lease under which the workload runs. It is waited for as long as it takes, whatever stands here; its grace
    /// is the drain timeout.
    pub lease: LeaseOptions,
    /// What follows when the workload has ended.
    pub restart: RestartPolicy,
}

impl WorkerOptions {
    /// With the default restart policy.
    #[must_use]
    pub fn new(lease: LeaseOptions) -> Self {
        Self { lease, restart: RestartPolicy::default() }
    }
}

/// When a workload that has ended by itself is started again. One that was stopped because its lease ended is
/// started again in any case, but for [`Restart::Never`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are no other outcomes to tell apart")]
pub enum Restart {
    /// However it ended.
    Always,
    /// Unless it came to its end.
    OnFailure,
    /// Not at all: there is one run at most.
    Never,
}

/// Whether and when a worker campaigns again after its workload has ended.
///
/// After a run that came to its end, or was stopped, it rests for the first delay; after failures in a row for twice
/// as long each time, up to the longest delay. A run that came to its end, or lasted for the longest delay, ends the
/// row. Each rest is jittered: between half of it and all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RestartPolicy {
    when: Restart,
    first_delay: Duration,
    longest_delay: Duration,
}

impl Default for RestartPolicy {
    /// Always, after 1 s to 60 s.
    fn default() -> Self {
        Self {
            when: Restart::Always,
            first_delay: Duration::from_secs(1),
            longest_delay: Duration::from_secs(60),
        }
    }
}

impl RestartPolicy {
    /// The default delays.
    #[must_use]
    pub fn new(when: Restart) -> Self {
        Self { when, ..Self::default() }
    }

    /// Sets the delays.
    ///
    /// # Errors
    /// [`ConfigError`] if the first delay is shorter than a millisecond, or longer than the longest one.
    pub fn delays(self, first: Duration, longest: Duration) -> Result<Self, ConfigError> {
        if first < MIN_STEP {
            let rule = format!("must be at least {MIN_STEP:?}, or a workload that fails at once runs hot");
            return Err(ConfigError::new("first_delay", format!("{}", readable(first)), rule));
        }
        if longest < first {
            let rule = format!("must be at least the first delay of {first:?}");
            return Err(ConfigError::new("longest_delay", format!("{}", readable(longest)), rule));
        }
        Ok(Self { when: self.when, first_delay: first, longest_delay: longest })
    }

    /// When a workload is started again.
    #[must_use]
    pub const fn when(&self) -> Restart {
        self.when
    }

    /// The rest after a run that did not fail, and after the first failure.
    #[must_use]
    pub const fn first_delay(&self) -> Duration {
        self.first_delay
    }

    /// The longest rest.
    #[must_use]
    pub const fn longest_delay(&self) -> Duration {
        self.longest_delay
    }
}

/// The machine of one worker; its states and transitions stand at the head of its source file. The node joins it
/// with the lease of each of its runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Worker<J> {
    key: WorkerKey,
    options: WorkerOptions,
    state: State,
    /// There is one candidacy, and one run at most.
    once: bool,
    draining: bool,
    /// Nothing is started until it goes on.
    paused: bool,
    /// Failures in a row.
    failures: u32,
    output: VecDeque<Output>,
    jitter: Untracked<J>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Resting(Resting),
    Campaigning(Campaigning),
    Starting(Starting),
    Running(Running),
    Over,
}

/// Nothing runs, and no lease is wanted yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Resting {
    until: Instant,
}

/// A candidacy waits for its lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Campaigning {
    lease: LeaseKey,
}

/// The lease is held, and the start has not been polled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Starting {
    lease: LeaseKey,
    n: Acquisition,
    token: Token,
}

/// The workload was started and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Running {
    lease: LeaseKey,
    /// From then on a failure counts as the first one.
    settled_at: Instant,
    /// It was asked to end, or stopped.
    stopped: bool,
    /// When it counts as stuck.
    stuck_at: Option<Instant>,
}

impl<J: Jitter> Worker<J> {
    pub(crate) fn new(now: Instant, key: WorkerKey, mut options: WorkerOptions, jitter: J) -> Self {
        options.lease.wait = WaitLimit::Forever;
        Self {
            key,
            options,
            state: State::Resting(Resting { until: now }),
            once: false,
            draining: false,
            paused: false,
            failures: 0,
            output: VecDeque::new(),
            jitter: Untracked(jitter),
        }
    }

    /// A worker of one candidacy, whose lease is waited for as the options say.
    pub(crate) fn once(now: Instant, key: WorkerKey, options: WorkerOptions, jitter: J) -> Self {
        let wait = options.lease.wait;
        let mut worker = Self::new(now, key, options, jitter);
        worker.options.lease.wait = wait;
        worker.once = true;
        worker
    }

    /// What the next candidacy asks for; `None` while there is one, or none is wanted yet.
    pub(crate) fn wants(&self, now: Instant) -> Option<LeaseOptions> {
        match &self.state {
            State::Resting(Resting { until }) if *until <= now && !self.paused => {
                Some(self.options.lease.clone())
            }
            State::Resting(_)
            | State::Campaigning(_)
            | State::Starting(_)
            | State::Running(_)
            | State::Over => None,
        }
    }

    /// A candidacy was entered.
    pub(crate) fn campaigns(&mut self, lease: LeaseKey) {
        self.state = State::Campaigning(Campaigning { lease });
        self.notice(Notice::Campaigning { worker: self.key, lease });
    }

    /// The candidacy has its lease.
    pub(crate) fn acquired(&mut self, lease: LeaseKey, n: Acquisition, token: Token) {
        if self.state == State::Campaigning(Campaigning { lease }) {
            self.state = State::Starting(Starting { lease, n, token });
        }
    }

    /// The candidacy has ended without a lease.
    pub(crate) fn refused(&mut self, now: Instant, lease: LeaseKey, why: AcquireFailure) {
        if self.state != State::Campaigning(Campaigning { lease }) {
            return;
        }
        match why {
            AcquireFailure::ShuttingDown => self.over(),
            AcquireFailure::Draining if self.draining || self.once => self.over(),
            // That is no failure, neither of the candidacy nor of the store.
            AcquireFailure::Draining => self.rest(now, 0),
            AcquireFailure::GivenUp
            | AcquireFailure::Busy
            | AcquireFailure::Unreachable
            | AcquireFailure::Refused
            | AcquireFailure::StoreRegressed { .. }
            | AcquireFailure::TickTaken
            | AcquireFailure::TickOverlaps
            | AcquireFailure::GrantedTooLate => {
                if self.draining || self.once {
                    return self.over();
                }
                self.failures = self.failures.saturating_add(1);
                self.rest(now, self.failures);
            }
        }
    }

    /// The lease under which the workload is to be started.
    pub(crate) fn starting(&self) -> Option<(LeaseKey, Acquisition, Token)> {
        match &self.state {
            State::Starting(Starting { lease, n, token }) => Some((*lease, *n, *token)),
            State::Resting(_) | State::Campaigning(_) | State::Running(_) | State::Over => None,
        }
    }

    /// Whether the workload was started, and has not ended.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// The start has left.
    pub(crate) fn started(&mut self, now: Instant) {
        if let State::Starting(Starting { lease, .. }) = self.state {
            let settled_at = now + self.options.restart.longest_delay;
            self.state = State::Running(Running { lease, settled_at, stopped: false, stuck_at: None });
        }
    }

    /// The lease wants the work to end; tells whether there is work to be told.
    pub(crate) fn stops(&mut self, now: Instant, lease: LeaseKey, how: Stop) -> bool {
        let State::Running(running) = &mut self.state else { return false };
        if running.lease != lease {
            return false;
        }
        running.stopped = true;
        if how == Stop::Hard {
            running.stuck_at = Some(now + self.options.lease.timing.stop_budget());
        }
        if planted(Bug::CampaignsBeforeExit) {
            self.rest(now, 0);
        }
        true
    }

    /// Nothing of the work under this lease runs any more, or ever will.
    pub(crate) fn exited(&mut self, now: Instant, lease: LeaseKey, exit: Exit) {
        let (stopped, settled) = match &self.state {
            State::Running(running) if running.lease == lease => (running.stopped, running.settled_at <= now),
            State::Starting(starting) if starting.lease == lease => (false, false),
            // The lease was held, and the run was still to be claimed.
            State::Campaigning(campaigning) if self.once && campaigning.lease == lease => (false, false),
            State::Resting(_)
            | State::Campaigning(_)
            | State::Starting(_)
            | State::Running(_)
            | State::Over => return,
        };
        let again = match (self.options.restart.when, exit) {
            (_, Exit::NotStarted)
            | (Restart::Always, _)
            | (Restart::OnFailure, Exit::Failed | Exit::Stopped) => true,
            (Restart::OnFailure, Exit::Completed) => stopped,
            (Restart::Never, Exit::Completed | Exit::Failed | Exit::Stopped) => false,
        };
        if settled || (exit == Exit::Completed && !stopped) {
            self.failures = 0;
        }
        let failed = exit == Exit::Failed && !stopped;
        if failed {
            self.failures = self.failures.saturating_add(1);
        }
        if again && !self.draining && !self.once {
            self.rest(now, if failed { self.failures } else { 0 });
        } else {
            self.over();
        }
    }

    /// Starts nothing any more. Returns the lease that is to be drained, or given up.
    pub(crate) fn drain(&mut self) -> Option<LeaseKey> {
        self.draining = true;
        match &self.state {
            State::Resting(_) => {
                self.over();
                None
            }
            State::Over => None,
            State::Campaigning(Campaigning { lease })
            | State::Starting(Starting { lease, .. })
            | State::Running(Running { lease, .. }) => Some(*lease),
        }
    }

    /// Enters no candidacy until [`Worker::resume`]. Its lease is drained, or given up, by whoever calls this.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    /// Goes on after a pause. Whoever rests does not rest longer than until now.
    pub(crate) fn resume(&mut self, now: Instant) {
        if core::mem::replace(&mut self.paused, false)
            && let State::Resting(resting) = &mut self.state
        {
            resting.until = resting.until.min(now);
        }
    }

    /// What is due is done, but for what the node does.
    pub(crate) fn timeout(&mut self, now: Instant) {
        if let State::Running(running) = &mut self.state
            && running.stuck_at.is_some_and(|at| at <= now)
        {
            running.stuck_at = None;
            let lease = running.lease;
            self.notice(Notice::Stuck { worker: self.key, lease });
        }
    }

    /// When something is due. The end of time never comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let planned = match &self.state {
            State::Resting(_) if self.paused => None,
            State::Resting(resting) => Some(resting.until),
            State::Running(running) => running.stuck_at,
            State::Campaigning(_) | State::Starting(_) | State::Over => None,
        };
        planned.filter(|deadline| *deadline < Instant::MAX)
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty() || matches!(self.state, State::Starting(_))
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Rests before the next candidacy: longer for each of these failures in a row, never not at all.
    fn rest(&mut self, now: Instant, failures: u32) {
        let policy = self.options.restart;
        let doublings = failures.saturating_sub(1).min(31);
        let delay = policy.first_delay.saturating_mul(1 << doublings).min(policy.longest_delay);
        let until = now + delay / 2 + up_to(&mut self.jitter.0, delay / 2);
        let until = if planted(Bug::NoRest) { now } else { until };
        let until = if planted(Bug::RestsForever) && self.failures > 0 { Instant::MAX } else { until };
        self.state = State::Resting(Resting { until });
        self.notice(Notice::Restarting { worker: self.key, failures: self.failures, at: until });
    }

    fn over(&mut self) {
        self.state = State::Over;
        self.notice(Notice::WorkerEnded { worker: self.key });
    }

    fn notice(&mut self, notice: Notice) {
        self.output.push_back(Output::Notice(notice));
    }
}
