//! Timers as a store keeps them: one bounded record each, and what every operation makes of it.
//!
//! An adapter loads the record, lets [`TimerRecord::apply`] act on it, and writes it back, all in one atomic step. How
//! a store does it that can only compare and set stands on the front page of the crate.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    ClaimEnd, Instant, NextSchedule, Overlap, Owner, PeriodicOptions, Tick, TimerChange, TimerName,
    TimerView, Timestamp, Token,
};

use crate::Metadata;

#[cfg(test)]
mod tests;

/// One operation on one timer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "drivers make them, stores carry them out")]
pub struct TimerRequest {
    /// The timer.
    pub name: TimerName,
    /// What is to be done.
    pub act: TimerAct,
    /// How long the operation may take; after that its outcome is taken as unknown.
    pub timeout: Duration,
}

/// What is to be done with a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a store must carry out every one")]
pub enum TimerAct {
    /// Tell the record; make it if there is none.
    Read {
        /// The schedule of a new record, as text of at most
        /// [`AnySchedule::MAX_BYTES`](tenure_core::AnySchedule::MAX_BYTES) bytes. Its base is the store's time and the
        /// number `last`.
        schedule: Arc<str>,
        /// The last tick that the asker knows of; the record's is raised to it.
        last: Option<u64>,
    },
    /// Change the record if it has this revision; tell it in any case. It is never made.
    Change {
        /// The revision that is to be changed.
        revision: u64,
        /// The change.
        change: TimerChange,
    },
    /// Claim a tick, or confirm (and extend) the claim if this very owner has it.
    Claim(TickClaim),
    /// Extend a claim that is this owner's and has this token.
    Renew {
        /// The number of the tick.
        tick: u64,
        /// Who asks.
        owner: Owner,
        /// The token of the claim.
        token: Token,
        /// How long the claim lives from now on.
        ttl: Duration,
    },
    /// End a claim that is this owner's, and has this token if one is given.
    Finish {
        /// The number of the tick.
        tick: u64,
        /// Who asks.
        owner: Owner,
        /// The token of the claim, `None` if it never became known.
        token: Option<Token>,
        /// What became of the run.
        end: ClaimEnd,
    },
    /// Remove the record, claims and all. Instances that still have the timer make it anew.
    Forget,
}

/// Who claims which tick, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "drivers make them, stores carry them out")]
pub struct TickClaim {
    /// The number of the tick.
    pub tick: u64,
    /// Who asks.
    pub owner: Owner,
    /// How long the claim lives.
    pub ttl: Duration,
    /// The token of a new grant must be above this one.
    pub floor: Token,
    /// How many runs of the tick may be begun at most.
    pub attempts: u32,
    /// What becomes of it while another tick's claim lives.
    pub overlap: Overlap,
    /// What to keep with the claim.
    pub metadata: Metadata,
}

/// The answer to a [`TimerRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the driver handles every one")]
pub enum TimerAnswer {
    /// To [`TimerAct::Read`] and [`TimerAct::Change`].
    Read {
        /// The record, as it stands now.
        view: TimerView,
        /// What the store's wall clock said.
        at: Timestamp,
    },
    /// To [`TimerAct::Change`]: there is no such timer any more; nothing was done. Whoever has the timer reads it.
    Gone,
    /// To [`TimerAct::Claim`]: the asker has the tick, with the whole TTL ahead.
    Granted(Token),
    /// To [`TimerAct::Claim`]: another has the tick, or the one that it must wait for.
    Held {
        /// The token of that claim.
        token: Token,
        /// What remains of its TTL.
        remaining: Duration,
    },
    /// To [`TimerAct::Claim`]: it is not to be had. Definite.
    Taken,
    /// To [`TimerAct::Claim`]: another tick's claim lives, and this one does not wait for its end. Definite.
    Overlaps,
    /// To [`TimerAct::Renew`]: extended by the whole TTL.
    Renewed,
    /// To [`TimerAct::Finish`] and [`TimerAct::Forget`]: done.
    Removed,
    /// To [`TimerAct::Renew`] and [`TimerAct::Finish`]: there is no such claim; to [`TimerAct::Forget`]: no such timer.
    /// Definite.
    NotYours,
}

/// A store's time: its wall clock, by which timers go, and the clock by which claims, like leases, expire. They may be
/// one and the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "adapters make them")]
pub struct StoreTime {
    /// The wall clock. It may step.
    pub wall: Timestamp,
    /// The clock of expiry, whatever its epoch.
    pub now: Instant,
}

/// A timer's record. It is bounded: schedules have at most 255 bytes, and there are at most
/// 16 claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "adapters write and read them")]
pub struct TimerRecord {
    /// Rises with each change of the schedule.
    pub revision: u64,
    /// From where ticks are counted.
    pub base: Tick,
    /// The schedule as text.
    pub schedule: Arc<str>,
    /// What is to follow.
    pub next: Option<NextSchedule>,
    /// The last tick that some instance is known to have come to.
    pub last: u64,
    /// The last tick that was claimed, or passed over because another one's run was going on.
    pub claimed: u64,
    /// The claims that were not finished, by the number of their tick.
    pub claims: Vec<Claim>,
}

/// A timer, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerEntry {
    /// Its name.
    pub name: TimerName,
    /// Its record.
    pub record: TimerRecord,
    /// The store's time at which it was looked at.
    pub time: StoreTime,
    /// Why the record can't be read. What it says is then empty.
    pub problem: Option<String>,
}

impl TimerEntry {
    /// The record of a timer at this time.
    #[must_use]
    pub const fn new(name: TimerName, record: TimerRecord, time: StoreTime) -> Self {
        Self { name, record, time, problem: None }
    }

    /// A timer that is there, but whose record can't be read, for this reason: it is damaged, or of a newer format.
    #[must_use]
    pub fn unreadable(name: TimerName, time: StoreTime, problem: impl Into<String>) -> Self {
        let record = TimerRecord::new("", 0, Timestamp::EPOCH);
        Self { name, record, time, problem: Some(problem.into()) }
    }
}

/// A claim of a tick.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "adapters write and read them")]
pub struct Claim {
    /// The number of the tick.
    pub tick: u64,
    /// Who has it, or had it last, `{instance}/{incarnation}.{n}`.
    pub owner: String,
    /// Its fencing token.
    pub token: Token,
    /// The TTL that was asked for. Zero once its owner has given it back, to be tried again by another.
    pub ttl: Duration,
    /// When it is over by the store's clock of expiry, unless it is renewed. In the past if its owner is known to be
    /// dead, or has given it back.
    pub ends: Instant,
    /// How many runs were begun, this one included.
    pub begun: u32,
    /// How many may be.
    pub attempts: u32,
    /// When it was granted, by the wall clock.
    pub since: Timestamp,
    /// What its owner keeps with it.
    pub metadata: Metadata,
}

impl TimerRequest {
    /// The highest number of a tick that stores take: a number that is wrong can't use up those that are left.
    pub const HIGHEST_TICK: u64 = 1 << 62;
}

impl Claim {
    /// How long those wait who find a claim that can't be read, before they look again.
    const LOOK_AGAIN: Duration = Duration::from_secs(10);

    /// What a claim that its adapter can't read counts as: held, by nobody who could ask. It has no owner and the token
    /// zero; what the adapter keeps in its place is to be left alone.
    #[must_use]
    pub fn unreadable(tick: u64, now: Instant) -> Self {
        Self {
            tick,
            owner: String::new(),
            token: Token::ZERO,
            ttl: Self::LOOK_AGAIN,
            ends: now + Self::LOOK_AGAIN,
            begun: 1,
            attempts: u32::MAX,
            since: Timestamp::EPOCH,
            metadata: Metadata::new(),
        }
    }

    /// Whether its owner has ended it, and it waits for another attempt.
    fn is_given_back(&self) -> bool {
        self.ttl.is_zero()
    }
}

impl TimerRecord {
    /// Carries an operation out on the record of a timer, `None` if there is none. `token` gives the token of a new
    /// grant, above this floor and above all earlier grants of the timer; it is called at most once, and only for a
    /// grant.
    ///
    /// # Errors
    /// Whatever `token` returns.
    pub fn apply<E>(
        record: &mut Option<Self>,
        act: &TimerAct,
        time: StoreTime,
        token: impl FnOnce(Token) -> Result<Token, E>,
    ) -> Result<TimerAnswer, E> {
        if let Some(record) = record {
            record.follow(time.wall);
        }
        let answer = match (act, record.as_mut()) {
            (TimerAct::Read { schedule, last }, _) => {
                let known = last.unwrap_or(0);
                let record = record.get_or_insert_with(|| Self::new(schedule, known, time.wall));
                record.last = record.last.max(known);
                record.told(time.wall)
            }
            (TimerAct::Change { revision, change }, Some(record)) => {
                if record.revision == *revision {
                    record.change(change, time.wall);
                }
                record.told(time.wall)
            }
            (TimerAct::Claim(claim), Some(record)) => record.claim(claim, time, token)?,
            (TimerAct::Renew { tick, owner, token, ttl }, Some(record)) => {
                match record.claim_of(*tick, owner, Some(*token)) {
                    Some(claim) if claim.ends > time.now => {
                        (claim.ends, claim.ttl) = (time.now + *ttl, *ttl);
                        TimerAnswer::Renewed
                    }
                    _ => TimerAnswer::NotYours,
                }
            }
            (TimerAct::Finish { tick, owner, token, end }, Some(record)) => {
                record.finish(*tick, owner, *token, *end)
            }
            (TimerAct::Forget, Some(_)) => {
                *record = None;
                TimerAnswer::Removed
            }
            // It was forgotten. Only a reader makes it anew, since it knows the number to go on from.
            (TimerAct::Change { .. }, None) => TimerAnswer::Gone,
            (TimerAct::Claim(_), None) => TimerAnswer::Taken,
            (TimerAct::Renew { .. } | TimerAct::Finish { .. } | TimerAct::Forget, None) => {
                TimerAnswer::NotYours
            }
        };
        Ok(answer)
    }

    fn new(schedule: &str, last: u64, at: Timestamp) -> Self {
        let base = Tick { n: last, at };
        Self {
            revision: 1,
            base,
            schedule: schedule.into(),
            next: None,
            last,
            claimed: last,
            claims: Vec::new(),
        }
    }

    /// What is known of it, for people and for the core.
    #[must_use]
    pub fn view(&self) -> TimerView {
        TimerView {
            revision: self.revision,
            base: self.base,
            schedule: Arc::clone(&self.schedule),
            next: self.next.clone(),
            last: self.last.max(self.claimed),
            claimed: self.claimed,
            unfinished: self.claims.iter().map(|claim| claim.tick).collect(),
        }
    }

    fn told(&self, at: Timestamp) -> TimerAnswer {
        TimerAnswer::Read { view: self.view(), at }
    }

    /// What was to follow counts from its time on.
    fn follow(&mut self, wall: Timestamp) {
        if let Some(next) = self.next.take_if(|next| next.at.at <= wall) {
            self.revision = self.revision.saturating_add(1);
            self.base = next.at;
            self.schedule = next.schedule;
        }
    }

    fn change(&mut self, change: &TimerChange, wall: Timestamp) {
        self.revision = self.revision.saturating_add(1);
        match change {
            // What counts already need not follow.
            TimerChange::Stage { at: _, schedule } if schedule.text() == &*self.schedule => self.next = None,
            TimerChange::Stage { at, schedule } => {
                self.next = Some(NextSchedule { at: *at, schedule: schedule.text().into() });
                self.follow(wall);
            }
            TimerChange::Rebase { last } => {
                self.last = self.last.max(self.claimed).max(*last);
                self.base = Tick { n: self.last, at: wall };
                // The tick at which it was to count is far off now.
                if let Some(next) = &mut self.next {
                    next.at = self.base;
                }
                self.follow(wall);
            }
        }
    }

    fn claim_of(&mut self, tick: u64, owner: &Owner, token: Option<Token>) -> Option<&mut Claim> {
        let owner = owner.to_string();
        let is_it = |claim: &&mut Claim| {
            claim.tick == tick
                && claim.owner == owner
                && token.is_none_or(|token| token == claim.token)
                && !claim.is_given_back()
        };
        self.claims.iter_mut().find(is_it)
    }

    fn claim<E>(
        &mut self,
        request: &TickClaim,
        time: StoreTime,
        token: impl FnOnce(Token) -> Result<Token, E>,
    ) -> Result<TimerAnswer, E> {
        let TickClaim { tick, owner, ttl, floor, attempts, overlap, metadata } = request;
        let owner = owner.to_string();
        let lives = |claim: &Claim| claim.ends > time.now;
        let held = |claim: &Claim| TimerAnswer::Held {
            token: claim.token,
            remaining: claim.ends.saturating_since(time.now),
        };

        let (mut begun, mut most) = (1, (*attempts).max(1));
        if let Some(claim) = self.claims.iter_mut().find(|claim| claim.tick == *tick) {
            let own = claim.owner == owner;
            if own && lives(claim) {
                (claim.ends, claim.ttl) = (time.now + *ttl, *ttl);
                return Ok(TimerAnswer::Granted(claim.token));
            }
            // Nobody asks for what it has given back: this is a request that was long under way.
            if own && claim.is_given_back() {
                return Ok(TimerAnswer::Taken);
            }
            // What was promised of a run that was begun holds for those who come later, too.
            most = claim.attempts.min(most);
            if lives(claim) {
                return Ok(if most > 1 { held(claim) } else { TimerAnswer::Taken });
            }
            // Also for the same owner: its request may be an old one, and the run have begun under a later one.
            begun = claim.begun.saturating_add(1);
            if begun > most {
                return Ok(TimerAnswer::Taken);
            }
        } else if *tick <= self.claimed {
            return Ok(TimerAnswer::Taken);
        }

        // What can't be run again is of no interest any more.
        self.claims.retain(|claim| claim.tick == *tick || lives(claim) || claim.begun < claim.attempts);
        let others = || self.claims.iter().filter(|other| other.tick != *tick && lives(other));
        let again = *tick <= self.claimed;
        let blocking = match overlap {
            Overlap::Allow if others().count() < PeriodicOptions::MOST_RUNS => None,
            Overlap::Allow | Overlap::Skip | Overlap::Queue => others().min_by_key(|claim| claim.ends),
        };
        if let Some(blocking) = blocking {
            // A run that is made up for waits for its turn.
            let waits = again || *overlap == Overlap::Queue;
            if waits {
                return Ok(held(blocking));
            }
            // It is passed over for good, and does not run late once the way is free.
            self.claimed = *tick;
            return Ok(TimerAnswer::Overlaps);
        }

        let token = token(*floor)?;
        self.claims.retain(|claim| claim.tick != *tick);
        if self.claims.len() >= PeriodicOptions::MOST_RUNS
            && let Some(oldest) = self.claims.iter().position(|claim| !lives(claim))
        {
            self.claims.remove(oldest);
        }
        let claim = Claim {
            tick: *tick,
            owner,
            token,
            ttl: *ttl,
            ends: time.now + *ttl,
            begun,
            attempts: most,
            since: time.wall,
            metadata: metadata.clone(),
        };
        let place = self.claims.partition_point(|other| other.tick < *tick);
        self.claims.insert(place, claim);
        self.claimed = self.claimed.max(*tick);
        Ok(TimerAnswer::Granted(token))
    }

    fn finish(&mut self, tick: u64, owner: &Owner, token: Option<Token>, end: ClaimEnd) -> TimerAnswer {
        let Some(claim) = self.claim_of(tick, owner, token) else { return TimerAnswer::NotYours };
        if end == ClaimEnd::NotStarted {
            claim.begun = claim.begun.saturating_sub(1);
        }
        // It stays for another attempt, free at once, and is not its owner's any more.
        (claim.ends, claim.ttl) = (Instant::ZERO, Duration::ZERO);
        let over = end == ClaimEnd::Finished || claim.begun >= claim.attempts;
        if over {
            self.claims.retain(|claim| claim.tick != tick);
        }
        TimerAnswer::Removed
    }
}
