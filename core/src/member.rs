//! This instance among the others: its heartbeats, the view that they bring back, and its end.
//!
//! ```text
//!             due                     answered, failed, not answered in time
//!   Resting -------> Asking ---------------------------------------------> Resting
//!      |                |
//!      |                | leaves
//!      |                v       answered, or nothing is listed any more
//!      '----------> Leaving --------------------------------------------> Over
//! ```
//!
//! | what happens | what follows |
//! |---|---|
//! | an interval has passed since the last heartbeat | a heartbeat |
//! | what this instance says of itself has changed | a heartbeat at once, or after the one under way |
//! | a hint that the members have changed | a heartbeat soon, later the more members there are |
//! | a heartbeat is answered | the view is taken over, unless a later one is known |
//! | one fails, or is not answered in time | another after a backoff |
//! | the answer says that an operator wants a drain, or no longer | told to the node |
//! | the instance leaves | the store is told, again and again until the TTL of the last heartbeat is over |
//!
//! Nothing of this decides about a lease. An instance whose heartbeats do not get through goes on with what it has; the
//! others take it for dead after its TTL, and wait for its leases.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::time::Duration;

use crate::assign::Digest;
use crate::command::{Command, Failure, Misuse, Output};
use crate::jitter::{Jitter, up_to};
use crate::name::{CommandId, MemberKey};
use crate::notice::Notice;
use crate::planted::{Bug, planted};
use crate::time::{Instant, Timestamp};
use crate::timing::MIN_STEP;
use crate::untracked::Untracked;

#[cfg(feature = "model")]
mod model;
mod options;
#[cfg(test)]
mod tests;
mod view;

pub use options::MemberOptions;
pub use view::{Labels, Member, Presence};

/// The machine of this instance's membership; its states and transitions stand at the head of its source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Membership<J> {
    key: MemberKey,
    options: MemberOptions,
    state: State,
    /// The number of the next command.
    sequence: u64,
    /// When the last heartbeat left; `None` before the first.
    beat_at: Option<Instant>,
    joined: Option<Timestamp>,
    /// What was last said of this instance.
    says: Says,
    /// Whether an operator wants a drain.
    marked: bool,
    view: View,
    /// Failures in a row.
    failures: u32,
    output: VecDeque<Output>,
    jitter: Untracked<J>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Resting(Resting),
    Asking(Asking),
    Leaving(Leaving),
    Over,
}

/// The next heartbeat is planned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Resting {
    until: Instant,
}

/// A heartbeat is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asking {
    sequence: u64,
    timeout_at: Instant,
    /// When the next one is to follow, because something has changed since.
    again_at: Option<Instant>,
}

/// The store is told that this instance is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leaving {
    /// By then the instance is not listed any more in any case.
    until: Instant,
    /// The number of the first request to leave; those before it were heartbeats.
    first: u64,
    request: Farewell,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Farewell {
    At(Instant),
    Sent { sequence: u64, timeout_at: Instant },
}

/// What this instance says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Says {
    pub(crate) draining: bool,
    pub(crate) digests: Arc<[Digest]>,
}

/// What is known of the members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct View {
    version: Option<u64>,
    members: Arc<[Member]>,
    /// When it came: their ages are counted on from here.
    at: Instant,
    /// The heartbeat that brought it, or confirmed it last.
    by: Option<u64>,
    /// Answers to heartbeats from this one on are certainly later.
    later_from: u64,
}

/// What the node must know of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The view is another one.
    pub(crate) view: bool,
    /// The operator's wish is another one.
    pub(crate) mark: bool,
    /// It was answered before, or a later one was.
    pub(crate) stale: bool,
}

impl<J: Jitter> Membership<J> {
    pub(crate) fn new(now: Instant, key: MemberKey, options: MemberOptions, says: Says, jitter: J) -> Self {
        Self {
            key,
            options,
            state: State::Resting(Resting { until: now }),
            sequence: 0,
            beat_at: None,
            joined: None,
            says,
            marked: false,
            view: View { version: None, members: Arc::from([]), at: now, by: None, later_from: 0 },
            failures: 0,
            output: VecDeque::new(),
            jitter: Untracked(jitter),
        }
    }

    /// The members, sorted by identity, and when their ages were true; `None` before the first answer.
    pub(crate) fn members(&self) -> Option<(&Arc<[Member]>, Instant)> {
        self.view.version.map(|_| (&self.view.members, self.view.at))
    }

    pub(crate) const fn is_marked(&self) -> bool {
        self.marked
    }

    /// Something else is to be said of this instance, and at once.
    pub(crate) fn say(&mut self, now: Instant, says: Says) {
        if self.says != says {
            self.says = says;
            self.beat_by(now);
        }
    }

    /// The members seem to have changed. A large fleet does not look all at once, and nobody looks again and again.
    pub(crate) fn hinted(&mut self, now: Instant) {
        let interval = self.options.interval();
        let spread = Duration::from_millis(self.view.members.len() as u64).min(interval / 2);
        let spread =
            if self.view.members.len() > 8 { up_to(&mut self.jitter.0, spread) } else { Duration::ZERO };
        let earliest = self.beat_at.map_or(now, |at| at + (interval / 32).max(MIN_STEP));
        self.beat_by((now + spread).max(earliest));
    }

    /// The next heartbeat is due by then at the latest.
    fn beat_by(&mut self, at: Instant) {
        match &mut self.state {
            State::Resting(resting) => resting.until = resting.until.min(at),
            State::Asking(asking) => {
                asking.again_at = Some(asking.again_at.map_or(at, |again| again.min(at)))
            }
            State::Leaving(_) | State::Over => {}
        }
    }

    /// Nothing of this instance works any more: it is to be listed no longer. Tells whether it was on its way before.
    pub(crate) fn leave(&mut self, now: Instant) -> bool {
        match (&self.state, self.beat_at) {
            (State::Leaving(_) | State::Over, _) => return false,
            // Nobody has heard of it.
            (State::Resting(_) | State::Asking(_), None) => self.over(),
            (State::Resting(_) | State::Asking(_), Some(beat_at)) => {
                let until = beat_at + self.options.ttl + self.options.timeout();
                let first = self.sequence;
                self.state = State::Leaving(Leaving { until, first, request: Farewell::At(now) });
            }
        }
        true
    }

    pub(crate) fn timeout(&mut self, now: Instant) {
        match &self.state {
            State::Resting(resting) if resting.until <= now => self.beat(now),
            State::Asking(asking) if asking.timeout_at <= now => self.not_answered(now),
            State::Leaving(leaving) if leaving.until <= now => self.over(),
            State::Leaving(leaving) => match leaving.request {
                Farewell::At(at) if at <= now => self.say_goodbye(now),
                Farewell::Sent { timeout_at, .. } if timeout_at <= now => self.leave_again(now),
                Farewell::At(_) | Farewell::Sent { .. } => {}
            },
            State::Resting(_) | State::Asking(_) | State::Over => {}
        }
    }

    fn beat(&mut self, now: Instant) {
        let timeout = self.options.timeout();
        let id = self.next_id();
        self.beat_at = Some(now);
        self.state =
            State::Asking(Asking { sequence: id.sequence, timeout_at: now + timeout, again_at: None });
        self.output.push_back(Output::Command(Command::Heartbeat {
            id,
            sequence: id.sequence,
            joined: self.joined,
            draining: self.says.draining,
            marked: self.marked,
            digests: Arc::clone(&self.says.digests),
            labels: self.options.labels.clone(),
            known: self.view.version,
            ttl: self.options.ttl,
            timeout,
        }));
    }

    fn say_goodbye(&mut self, now: Instant) {
        let timeout = self.options.timeout();
        let id = self.next_id();
        if let State::Leaving(leaving) = &mut self.state {
            leaving.request = Farewell::Sent { sequence: id.sequence, timeout_at: now + timeout };
        }
        let ttl = self.options.ttl;
        self.output.push_back(Output::Command(Command::Leave { id, ttl, timeout }));
        if planted(Bug::BeatsAfterLeave) {
            let leaving = self.state.clone();
            self.beat(now);
            self.state = leaving;
        }
    }

    fn next_id(&mut self) -> CommandId {
        let id = CommandId { machine: self.key.0, sequence: self.sequence };
        self.sequence += 1;
        id
    }

    /// Whether this command was ever emitted.
    pub(crate) fn check(&self, id: CommandId) -> Result<(), Misuse> {
        if id.sequence < self.sequence { Ok(()) } else { Err(Misuse::UnknownCommand(id)) }
    }

    /// A heartbeat was answered, this one or an earlier one.
    pub(crate) fn present(&mut self, now: Instant, id: CommandId, presence: Presence) -> Heard {
        let answered = match &self.state {
            State::Asking(asking) if asking.sequence == id.sequence => Some(asking.again_at),
            State::Resting(_) | State::Asking(_) | State::Leaving(_) | State::Over => None,
        };
        let heard = self.look(now, id.sequence, presence);
        if let Some(again_at) = answered {
            self.failures = 0;
            let beat_at = self.beat_at.unwrap_or(now);
            let next = (beat_at + self.options.interval()).max(now);
            self.state = State::Resting(Resting { until: again_at.map_or(next, |again| again.min(next)) });
        }
        // Whoever waits for a drain waits until the store knows that it was heard of.
        if heard.mark {
            self.beat_by(now);
        }
        heard
    }

    /// Takes an answer over, unless it is older than what is known. Answers are certainly later only if their heartbeat
    /// left after the last answer had come; of others the version of the view has to tell.
    fn look(&mut self, now: Instant, sequence: u64, presence: Presence) -> Heard {
        let certainly = sequence >= self.view.later_from;
        let newer = self.view.by.is_none_or(|by| sequence > by);
        let known = self.view.version.is_none_or(|version| presence.version >= version);
        if !newer || !(certainly || known) || matches!(self.state, State::Leaving(_) | State::Over) {
            return Heard { stale: true, ..Heard::default() };
        }
        if self.joined.is_none() {
            self.joined = Some(presence.joined);
            let joined = presence.joined;
            self.notice(Notice::Joined { joined });
        }
        let mark = self.marked != presence.drain;
        self.marked = presence.drain;
        self.view.by = Some(sequence);
        self.view.later_from = self.sequence;
        let Some(members) = presence.members else {
            return Heard { mark, ..Heard::default() };
        };
        let changed = self.view.version != Some(presence.version);
        self.view.version = Some(presence.version);
        self.view.members = members;
        self.view.at = now;
        if changed {
            let (version, count) = (presence.version, self.view.members.len());
            self.notice(Notice::MembersChanged { version, count });
        }
        Heard { view: changed, mark, stale: false }
    }

    /// Whether this command was a request to leave, as far as that is known by now.
    pub(crate) fn is_leave(&self, id: CommandId) -> bool {
        match &self.state {
            State::Resting(_) | State::Asking(_) => false,
            State::Leaving(leaving) => id.sequence >= leaving.first,
            State::Over => true,
        }
    }

    /// The store has told a request to leave that it is done; tells whether that was wanted. Any of them will do:
    /// nothing was sent since the first that would be listed.
    pub(crate) fn left(&mut self) -> bool {
        let leaves = matches!(self.state, State::Leaving(_));
        if leaves {
            self.over();
        }
        leaves
    }

    /// A request failed; tells whether it was still wanted.
    pub(crate) fn failed(&mut self, now: Instant, id: CommandId, failure: Failure) -> bool {
        match &self.state {
            State::Asking(asking) if asking.sequence == id.sequence => {
                if self.failures == 0 {
                    self.notice(Notice::HeartbeatFailed { failure });
                }
                self.again(now);
                true
            }
            State::Leaving(Leaving { request: Farewell::Sent { sequence, .. }, .. })
                if *sequence == id.sequence =>
            {
                if failure == Failure::Refused {
                    self.over();
                } else {
                    self.leave_again(now);
                }
                true
            }
            State::Resting(_) | State::Asking(_) | State::Leaving(_) | State::Over => false,
        }
    }

    fn not_answered(&mut self, now: Instant) {
        if self.failures == 0 {
            self.notice(Notice::HeartbeatFailed { failure: Failure::Unknown });
        }
        self.again(now);
    }

    fn again(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let until = now + self.backoff();
        self.state = State::Resting(Resting { until });
    }

    fn leave_again(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let at = now + self.backoff();
        if let State::Leaving(leaving) = &mut self.state {
            leaving.request = Farewell::At(at);
        }
    }

    /// An eighth of the interval after the first failure, then twice as long each time, up to the interval; jittered:
    /// between half of it and all of it.
    fn backoff(&mut self) -> Duration {
        let interval = self.options.interval();
        let doublings = self.failures.saturating_sub(1).min(8);
        let delay = (interval / 8).saturating_mul(1 << doublings).min(interval).max(MIN_STEP);
        let delay = if planted(Bug::NoBackoff) { MIN_STEP } else { delay };
        delay / 2 + up_to(&mut self.jitter.0, delay / 2)
    }

    /// When something is due. The end of time never comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let planned = match &self.state {
            State::Resting(resting) => Some(resting.until),
            State::Asking(asking) => Some(asking.timeout_at),
            State::Leaving(Leaving { until, first: _, request }) => match request {
                Farewell::At(at) | Farewell::Sent { timeout_at: at, .. } => Some(*until.min(at)),
            },
            State::Over => None,
        };
        planned.filter(|deadline| *deadline < Instant::MAX)
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    fn over(&mut self) {
        self.state = State::Over;
        self.notice(Notice::Left);
    }

    fn notice(&mut self, notice: Notice) {
        self.output.push_back(Output::Notice(notice));
    }
}
