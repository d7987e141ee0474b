//! One lease, seen from one candidate: it waits, acquires, renews, fences itself in time, and releases.
//!
//! ```text
//!            campaign            refused, failed
//!   Idle ----------------> Acquiring <----------> Waiting
//!    ^                         |
//!    | granted too late        | granted, in time
//!    |                         v        drain, maximum hold, fence
//!    |                        Held -------------------------------> Stopping
//!    |                         |  \                                /   |
//!    |                         |   \  "not yours", time is up     /    |
//!    |                         |    `---------> Lost <-----------'     |
//!    |                         | work ended      | work ended          | work ended
//!    |                         v                 v                     |
//!    `--------------------- Releasing <---------------------------------'
//!                              | settled, or the record is over by its TTL
//!                              v
//!                          Lingering ---> Over
//! ```
//!
//! A candidacy that ends without a lease goes to `Releasing` as well if one of its requests may have been
//! executed, else to `Lingering`. `Lingering` waits for answers to acquisitions that are not wanted any more, so
//! that a late grant can be given back.
//!
//! | reply | what happens |
//! |---|---|
//! | to the acquisition still wanted, also to an older attempt of it | counts, with that attempt's time of emission |
//! | a grant for an epoch that is over | `Release` for that owner is emitted |
//! | any other reply of a past epoch, or a second one | dropped, counted |
//! | "not yours" to `Renew` | lost now, hard stop, never created again |
//! | failure or timeout of `Renew` | again after backoff; nothing else changes |
//! | anything after `Release` was issued | never enters the held state again |
//!
//! Deadlines are counted from the emission of the very command that the store acknowledged, never from the
//! receipt of its reply. Whatever comes in, what is due by the clock is done first.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::command::{Command, Deadlines, Event, Failure, Misuse, Output, Reply, Stop, StopReason, Wake};
use crate::jitter::{Jitter, up_to};
use crate::name::{Acquisition, CommandId, LeaseKey, Token};
use crate::notice::{AcquireFailure, LossReason, Notice, ReleaseOutcome};
use crate::planted::{Bug, planted};
use crate::time::Instant;
use crate::untracked::Untracked;

mod attempts;
mod campaign;
mod holding;
#[cfg(feature = "model")]
mod model;
mod options;
mod releasing;
#[cfg(test)]
mod tests;

use attempts::{Attempt, Attempts, Kind};
pub use options::{LeaseOptions, WaitLimit};

/// The machine of one lease; its states and transitions stand at the head of its source file.
///
/// Drive it with [`Lease::handle`] and [`Lease::poll`]; a [`Node`](crate::Node) does that for many of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease<J> {
    key: LeaseKey,
    options: LeaseOptions,
    state: State,
    attempts: Attempts,
    /// The number of the next command.
    sequence: u64,
    now: Instant,
    /// The highest token of a grant to this candidate.
    granted: Token,
    /// The highest token heard of.
    seen: Token,
    /// Whether the last release woke waiters of other processes.
    others_chosen: bool,
    /// Whether the store may have registered this process as a waiter.
    registered: bool,
    output: VecDeque<Output>,
    jitter: Untracked<J>,
    stale_replies: Untracked<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle(Idle),
    Acquiring(Acquiring),
    Waiting(Waiting),
    Held(Held),
    Stopping(Stopping),
    Lost(Lost),
    Releasing(Releasing),
    Lingering(Lingering),
    Over,
}

/// Nothing is at the store; the node decides when to campaign.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Idle {
    give_up_at: Option<Instant>,
}

/// One acquisition and all its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Campaign {
    n: Acquisition,
    floor: Token,
    give_up_at: Option<Instant>,
    /// How many attempts may have been executed, or may yet be.
    unresolved: u32,
    /// Failures in a row.
    failures: u32,
    /// What to say if the candidacy ends now.
    verdict: AcquireFailure,
}

/// An acquisition is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Acquiring {
    campaign: Campaign,
    sequence: u64,
    timeout_at: Instant,
    /// The lease became free while the request was under way: if it is refused, it may have been too early.
    hint: Option<Wake>,
}

/// The lease is somebody else's, or the store is in trouble.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    campaign: Campaign,
    /// When to look again in any case.
    until: Instant,
    /// No hints, however many, put the next look off beyond this.
    latest: Instant,
    /// When to look again because of a hint.
    nudge_at: Option<Instant>,
}

/// A grant, from its first moment until it is released.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    n: Acquisition,
    token: Token,
    valid_until: Instant,
    renewal: Renewal,
    /// Failed renewals in a row.
    failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Renewal {
    At(Instant),
    Sent { sequence: u64, timeout_at: Instant },
}

/// Work may run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    hold: Hold,
    max_hold_at: Option<Instant>,
}

/// The work was asked to stop, and the lease is renewed until it has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stopping {
    hold: Hold,
    why: StopReason,
    /// The fence has passed: from here on renewals only cover the stop.
    fenced: bool,
    /// When the work is stopped hard; `None` once it was.
    hard_at: Option<Instant>,
    /// When renewing ends though the work has not (maximum hold only).
    abandon_at: Option<Instant>,
}

/// The lease is gone, the work was stopped hard, and has not ended yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lost {
    n: Acquisition,
    token: Token,
    /// Renewals go on while the store has not said that the record is gone: they keep others out for as long
    /// as the work refuses to die, and never make the lease valid again.
    cover: Option<Hold>,
}

/// The work has ended, or there never was any; the record must go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Releasing {
    n: Acquisition,
    token: Option<Token>,
    /// By then the record is over by its TTL.
    until: Instant,
    request: Renewal,
    /// Answers to releases before this one say nothing of the latest grant.
    first: u64,
    failures: u32,
    then: Then,
}

/// What follows a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    /// A hold has ended.
    Announce,
    /// A candidacy that had failed already leaves nothing behind.
    Vanish,
    /// A candidacy goes on.
    Resume { give_up_at: Option<Instant> },
}

/// Answers to acquisitions that nobody wants any more are still out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lingering {
    until: Instant,
}

/// What the node needs to know of a lease's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Wants to campaign.
    Idle,
    /// A decision is on its way.
    Deciding,
    /// Waits; the verdict is what an impatient candidate behind it is told.
    Waiting(AcquireFailure),
    /// Has the lease, or its work has not ended.
    Holding,
    /// Needs the name no more.
    Done,
}

impl<J: Jitter> Lease<J> {
    /// A candidate that was asked for at `now`. It does nothing before [`Lease::campaign`].
    #[must_use]
    pub fn new(now: Instant, key: LeaseKey, mut options: LeaseOptions, jitter: J) -> Self {
        if options.wait == WaitLimit::AtMost(Duration::ZERO) {
            options.wait = WaitLimit::No;
        }
        let give_up_at = match options.wait {
            WaitLimit::AtMost(limit) => Some(now + limit),
            WaitLimit::Forever | WaitLimit::No => None,
        };
        Self {
            key,
            options,
            state: State::Idle(Idle { give_up_at }),
            attempts: Attempts::default(),
            sequence: 0,
            now,
            granted: Token::ZERO,
            seen: Token::ZERO,
            others_chosen: false,
            registered: false,
            output: VecDeque::new(),
            jitter: Untracked(jitter),
            stale_replies: Untracked(0),
        }
    }

    /// The application needs the lease no longer: the work has ended (or none was begun), or the candidacy is
    /// given up. Harmless when repeated.
    pub fn end(&mut self, now: Instant) {
        self.advance(now);
        match &self.state {
            _ if self.is_candidate() => self.fail(AcquireFailure::GivenUp),
            State::Held(Held { hold, .. }) | State::Stopping(Stopping { hold, .. }) => {
                self.release(hold.n, Some(hold.token), Then::Announce);
            }
            State::Lost(lost) => self.release(lost.n, Some(lost.token), Then::Announce),
            State::Idle(_)
            | State::Acquiring(_)
            | State::Waiting(_)
            | State::Releasing(_)
            | State::Lingering(_)
            | State::Over => {}
        }
    }

    /// Ends the candidacy with this verdict; a hold is left alone.
    pub(crate) fn refuse(&mut self, now: Instant, why: AcquireFailure) {
        self.advance(now);
        if self.is_candidate() {
            self.fail(why);
        }
    }

    /// Does what is due; a candidate that waited too long for its turn is told what whoever has the turn was.
    pub(crate) fn timeout(&mut self, now: Instant, verdict: AcquireFailure) {
        self.now = self.now.max(now);
        match &self.state {
            State::Idle(Idle { give_up_at: Some(at) }) if *at <= self.now => self.fail(verdict),
            _ => self.advance(now),
        }
    }

    /// What is to be said to those behind it whose wait is over.
    pub(crate) fn verdict(&self) -> AcquireFailure {
        match &self.state {
            State::Acquiring(Acquiring { campaign, .. }) | State::Waiting(Waiting { campaign, .. }) => {
                campaign.verdict
            }
            _ => AcquireFailure::Busy,
        }
    }

    /// Whether it is a candidate whom the store has not told to wait.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_candidate() && self.verdict() == AcquireFailure::Unreachable
    }

    /// Whether it wants a lease and has none.
    pub(crate) fn is_candidate(&self) -> bool {
        match &self.state {
            State::Idle(_) | State::Acquiring(_) | State::Waiting(_) => true,
            State::Releasing(releasing) => matches!(releasing.then, Then::Resume { .. }),
            State::Held(_) | State::Stopping(_) | State::Lost(_) | State::Lingering(_) | State::Over => false,
        }
    }

    /// Looks again, because something about the lease has changed: at once, or spread out over a while.
    pub(crate) fn look_again(&mut self, now: Instant, at_once: bool) {
        self.advance(now);
        self.hint(Wake::Free { chosen: at_once });
    }

    /// Takes an event in. Legal at any time, also with outputs waiting.
    ///
    /// # Errors
    /// [`Misuse`] for a reply that can't be one; the machine is as it was before.
    pub fn handle(&mut self, now: Instant, event: Event) -> Result<(), Misuse> {
        if let Event::Reply { id, reply } = event {
            self.check(id, reply)?;
        }
        if planted(Bug::ReplyBeforeDeadline) && matches!(event, Event::Reply { .. }) {
            self.now = self.now.max(now);
        } else {
            self.advance(now);
        }
        match event {
            // The affairs of other machines.
            Event::Timeout | Event::TimerRead { .. } | Event::Present { .. } | Event::MembersHint => {}
            Event::Reply { id, reply } => self.reply(id.sequence, reply),
            Event::Hint { name: _, wake } => self.hint(wake),
            Event::Resync => self.hint(Wake::Free { chosen: false }),
            Event::WorkloadExited { .. } => {
                if self.phase() == Phase::Holding {
                    self.end(now);
                }
            }
        }
        Ok(())
    }

    /// The next output; [`Output::Wait`] once there is nothing more to do.
    pub fn poll(&mut self) -> Output {
        self.output.pop_front().unwrap_or_else(|| Output::Wait(self.deadline()))
    }

    /// When the lease ends for its holder; `None` unless it is held.
    #[must_use]
    pub fn deadlines(&self) -> Option<Deadlines> {
        match &self.state {
            State::Held(Held { hold, .. }) | State::Stopping(Stopping { hold, .. }) => {
                Some(self.deadlines_of(hold.valid_until))
            }
            State::Idle(_)
            | State::Acquiring(_)
            | State::Waiting(_)
            | State::Lost(_)
            | State::Releasing(_)
            | State::Lingering(_)
            | State::Over => None,
        }
    }

    /// The token under which work may start at `now`, if there is one. Work that was asked to stop may run on
    /// until [`Deadlines::kill_at`], but none may start.
    #[must_use]
    pub fn valid(&self, now: Instant) -> Option<Token> {
        match &self.state {
            State::Held(Held { hold, .. }) if now < self.deadlines_of(hold.valid_until).fence_at => {
                Some(hold.token)
            }
            _ => None,
        }
    }

    /// The acquisition and the token of a hold whose work may still run.
    pub(crate) fn held(&self) -> Option<(Acquisition, Token)> {
        match &self.state {
            State::Held(Held { hold, .. }) => Some((hold.n, hold.token)),
            _ => None,
        }
    }

    /// What the candidate asked for.
    #[must_use]
    pub fn options(&self) -> &LeaseOptions {
        &self.options
    }

    pub(crate) fn phase(&self) -> Phase {
        match &self.state {
            State::Idle(_) => Phase::Idle,
            State::Acquiring(_) => Phase::Deciding,
            State::Waiting(waiting) => Phase::Waiting(waiting.campaign.verdict),
            State::Held(_) | State::Stopping(_) | State::Lost(_) => Phase::Holding,
            // Whoever comes next need not wait for a release that nothing depends on, or that has failed once.
            State::Releasing(Releasing { then: Then::Vanish, .. })
            | State::Releasing(Releasing { then: Then::Announce, failures: 1.., .. }) => Phase::Done,
            State::Releasing(Releasing { then: Then::Resume { .. }, failures: 1.., .. }) => {
                Phase::Waiting(AcquireFailure::Unreachable)
            }
            State::Releasing(_) => Phase::Deciding,
            State::Lingering(_) | State::Over => Phase::Done,
        }
    }

    /// Whether what it has or may have at the store is being ended for good.
    pub(crate) fn is_ending(&self) -> bool {
        match &self.state {
            State::Releasing(releasing) => !matches!(releasing.then, Then::Resume { .. }),
            State::Idle(_)
            | State::Acquiring(_)
            | State::Waiting(_)
            | State::Held(_)
            | State::Stopping(_)
            | State::Lost(_)
            | State::Lingering(_)
            | State::Over => false,
        }
    }

    pub(crate) fn granted(&self) -> Token {
        self.granted
    }

    pub(crate) fn seen(&self) -> Token {
        self.seen
    }

    pub(crate) fn others_chosen(&self) -> bool {
        self.others_chosen
    }

    pub(crate) fn registered(&self) -> bool {
        self.registered
    }

    /// Whether this reply says that a record of ours is gone, and then whether those who wait for that may try
    /// at once.
    pub(crate) fn gone_by(&self, reply: Reply) -> Option<bool> {
        match (reply, &self.state) {
            (Reply::Released { others_chosen }, _) => Some(!others_chosen),
            // An earlier try may have removed it, and the answer was lost.
            (Reply::NotYours, State::Releasing(Releasing { failures: 1.., .. })) => Some(false),
            _ => None,
        }
    }

    pub(crate) fn stale_replies(&self) -> u64 {
        self.stale_replies.0
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// The earliest instant at which something is due. The end of time never comes: what is planned for then
    /// was put off for ever, and would be due again and again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.planned().filter(|deadline| *deadline < Instant::MAX)
    }

    fn planned(&self) -> Option<Instant> {
        match &self.state {
            State::Idle(idle) => idle.give_up_at,
            State::Acquiring(acquiring) => {
                earliest([Some(acquiring.timeout_at), acquiring.campaign.give_up_at])
            }
            State::Waiting(waiting) => {
                earliest([Some(waiting.until), waiting.nudge_at, waiting.campaign.give_up_at])
            }
            State::Held(held) => {
                let fence_at = self.deadlines_of(held.hold.valid_until).fence_at;
                earliest([Some(fence_at), held.max_hold_at, Some(held.hold.renewal.deadline())])
            }
            State::Stopping(stopping) => {
                let hold = &stopping.hold;
                let fence_at = self.deadlines_of(hold.valid_until).fence_at;
                earliest([
                    Some(if stopping.fenced { hold.valid_until } else { fence_at }),
                    stopping.hard_at,
                    stopping.abandon_at,
                    Some(hold.renewal.deadline()),
                ])
            }
            State::Lost(lost) => lost.cover.as_ref().map(|hold| hold.renewal.deadline()),
            State::Releasing(releasing) => {
                let give_up_at = match releasing.then {
                    Then::Resume { give_up_at } => give_up_at,
                    Then::Announce | Then::Vanish => None,
                };
                earliest([Some(releasing.until), Some(releasing.request.deadline()), give_up_at])
            }
            State::Lingering(lingering) => Some(lingering.until),
            State::Over => None,
        }
    }

    /// Does what is due, in the order in which it became so. Every step moves its deadline past `now`.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.deadline().is_some_and(|deadline| deadline <= self.now) {
            match &self.state {
                State::Idle(_) => self.fail(AcquireFailure::Busy),
                State::Acquiring(_) => self.acquiring_due(),
                State::Waiting(_) => self.waiting_due(),
                State::Held(_) => self.held_due(),
                State::Stopping(_) => self.stopping_due(),
                State::Lost(_) => self.lost_due(),
                State::Releasing(_) => self.releasing_due(),
                State::Lingering(_) => self.over(),
                State::Over => return,
            }
        }
    }

    /// Refuses what can't be a reply, before anything changes.
    fn check(&self, id: CommandId, reply: Reply) -> Result<(), Misuse> {
        if id.machine != self.key.0 || id.sequence >= self.sequence {
            return Err(Misuse::UnknownCommand(id));
        }
        let Some(attempt) = self.attempts.find(id.sequence) else { return Ok(()) };
        let fits = match reply {
            Reply::Granted { .. } | Reply::Held { .. } | Reply::TickTaken | Reply::TickOverlaps => {
                matches!(attempt.kind, Kind::Acquire { .. })
            }
            Reply::Renewed => attempt.kind == Kind::Renew,
            Reply::Released { .. } => attempt.kind == Kind::Release,
            Reply::NotYours => matches!(attempt.kind, Kind::Renew | Kind::Release),
            Reply::Watching | Reply::Left => false,
            Reply::Failed(_) => true,
        };
        if fits { Ok(()) } else { Err(Misuse::WrongReply { id, reply }) }
    }

    /// The table of replies.
    fn reply(&mut self, sequence: u64, reply: Reply) {
        let Some(&(mut attempt)) = self.attempts.find(sequence) else {
            self.stale_replies.0 += 1;
            return;
        };
        self.attempts.remove(sequence);
        if planted(Bug::ValidityFromReply) {
            attempt.emitted = self.now;
        }
        match attempt.kind {
            Kind::Acquire { floor } => self.acquire_reply(attempt, floor, reply),
            Kind::Renew => self.renew_reply(attempt, reply),
            Kind::Release => self.release_reply(attempt, reply),
        }
    }

    /// The deadlines that follow from the end of validity.
    fn deadlines_of(&self, valid_until: Instant) -> Deadlines {
        let timing = &self.options.timing;
        Deadlines {
            fence_at: valid_until.saturating_sub(timing.stop_budget()),
            kill_at: valid_until.saturating_sub(timing.kill_margin()),
            valid_until,
        }
    }

    /// Exponential backoff with fresh jitter: between half of the delay and all of it.
    fn backoff(&mut self, failures: u32) -> Duration {
        if planted(Bug::NoBackoff) {
            return Duration::from_millis(1);
        }
        let timing = &self.options.timing;
        let doublings = failures.saturating_sub(1).min(16);
        let delay = timing.first_backoff().saturating_mul(1 << doublings).min(timing.longest_backoff());
        delay / 2 + self.jittered(delay / 2)
    }

    fn jittered(&mut self, bound: Duration) -> Duration {
        if planted(Bug::JitterDrawnOnce) {
            return up_to(&mut self.jitter.0.clone(), bound);
        }
        up_to(&mut self.jitter.0, bound)
    }

    fn next_id(&mut self, n: Acquisition, kind: Kind) -> CommandId {
        let sequence = if planted(Bug::RequestIdsWrap) { self.sequence % 2 } else { self.sequence };
        self.sequence += 1;
        self.attempts.push(Attempt { sequence, n, emitted: self.now, kind });
        CommandId { machine: self.key.0, sequence }
    }

    fn command(&mut self, command: Command) {
        self.output.push_back(Output::Command(command));
    }

    fn notice(&mut self, notice: Notice) {
        self.output.push_back(Output::Notice(notice));
    }
}

impl Renewal {
    fn deadline(&self) -> Instant {
        match self {
            Self::At(at) => *at,
            Self::Sent { timeout_at, .. } => *timeout_at,
        }
    }

    fn is_sent(&self, number: u64) -> bool {
        matches!(self, Self::Sent { sequence, .. } if *sequence == number)
    }
}

fn earliest<const N: usize>(deadlines: [Option<Instant>; N]) -> Option<Instant> {
    deadlines.into_iter().flatten().min()
}
