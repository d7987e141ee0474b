//! A store as the contract demands it: atomic, durable, by a clock of its own.
//!
//! The search and the simulation share it. Time comes in with each call, on the store's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use tenure_core::{
    Acquisition, Command, Identity, Instant, Jitter, LeaseName, Node, Owner, Reply, TimerName, Token, Wake,
};
use tenure_store::{
    Answer, Fleet, Heartbeat, Leave, Metadata, Outcome, StoreTime, TickClaim, TimerAct, TimerAnswer,
    TimerRecord,
};

/// A grant that the store keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Whose it is.
    pub owner: Owner,
    /// Its fencing token.
    pub token: Token,
    /// From then on it counts for nothing, on the store's clock.
    pub expires: Instant,
}

/// A process that wants hints about a lease, by its place in the fleet.
pub type Waiter = (usize, Identity);

/// Hints that follow from an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Woken {
    /// Who gets it.
    pub waiter: Waiter,
    /// The lease.
    pub name: LeaseName,
    /// What it hears.
    pub wake: Wake,
}

/// The store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelStore {
    /// What it keeps, what is over included until somebody asks for it.
    pub records: BTreeMap<LeaseName, Record>,
    /// Above every token that it gave.
    pub high_water: Token,
    /// Who wants hints.
    pub waiters: BTreeMap<LeaseName, BTreeSet<Waiter>>,
    /// The timers, with the claims of their ticks.
    pub timers: BTreeMap<TimerName, TimerRecord>,
    /// The members.
    pub members: Fleet,
}

/// What a process asks of the store about its membership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "all that can be asked")]
pub enum MemberAct {
    /// To be listed.
    Beat(Heartbeat),
    /// To be listed no longer.
    Leave(Leave),
}

impl ModelStore {
    /// Executes a command of the process `from` about the lease `name`, at `now` on the store's clock. `None` for
    /// commands that want no reply.
    pub fn execute(
        &mut self,
        now: Instant,
        from: &Waiter,
        name: &LeaseName,
        command: &Command,
    ) -> (Option<Reply>, Vec<Woken>) {
        let owner = |n: &Acquisition| from.1.owner(*n);
        if self.records.get(name).is_some_and(|record| record.expires <= now) {
            self.records.remove(name);
        }
        let reply = match command {
            Command::Acquire { n, ttl, floor, wait, .. } => match self.records.get_mut(name) {
                // Asked again by the same owner: confirmed under the same token.
                Some(record) if record.owner == owner(n) => {
                    record.expires = now + *ttl;
                    Reply::Granted { token: record.token }
                }
                Some(record) => {
                    let (token, remaining) = (record.token, record.expires.saturating_since(now));
                    if *wait {
                        self.waiters.entry(name.clone()).or_default().insert(from.clone());
                    }
                    Reply::Held { token: Some(token), remaining: Some(remaining) }
                }
                None => {
                    let token = Token::new(self.high_water.max(*floor).get() + 1);
                    self.high_water = token;
                    let record = Record { owner: owner(n), token, expires: now + *ttl };
                    self.records.insert(name.clone(), record);
                    self.forget(from, name);
                    let woken = self.wake(name, |_| Wake::Held { token, ttl: *ttl });
                    return (Some(Reply::Granted { token }), woken);
                }
            },
            Command::Renew { n, token, ttl, .. } => match self.records.get_mut(name) {
                Some(record) if record.owner == owner(n) && record.token == *token => {
                    record.expires = now + *ttl;
                    Reply::Renewed
                }
                _ => Reply::NotYours,
            },
            Command::Release { n, token, .. } => {
                let ours = self.records.get(name).is_some_and(|record| {
                    record.owner == owner(n) && token.is_none_or(|token| token == record.token)
                });
                if !ours {
                    return (Some(Reply::NotYours), Vec::new());
                }
                self.records.remove(name);
                let woken = self.wake(name, |place| Wake::Free { chosen: place < 2 });
                let others_chosen = woken.iter().take(2).any(|woken| woken.waiter != *from);
                return (Some(Reply::Released { others_chosen }), woken);
            }
            Command::Watch { .. } => {
                self.waiters.entry(name.clone()).or_default().insert(from.clone());
                Reply::Watching
            }
            Command::Unwatch { .. } => {
                self.forget(from, name);
                return (None, Vec::new());
            }
            _ => return (None, Vec::new()),
        };
        (Some(reply), Vec::new())
    }

    /// Carries out an operation on a timer. Ticks go by the wall clock, and claims end by the other one.
    pub fn execute_timer(&mut self, time: StoreTime, name: &TimerName, act: &TimerAct) -> TimerAnswer {
        let Self { high_water, timers, .. } = self;
        let mut record = timers.remove(name);
        let answer = TimerRecord::apply(&mut record, act, time, |floor| -> Result<Token, Infallible> {
            *high_water = Token::new((*high_water).max(floor).get().saturating_add(1));
            Ok(*high_water)
        });
        timers.extend(record.map(|record| (name.clone(), record)));
        match answer {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }

    /// Carries out what a process asks about its membership; tells also whether what others see has changed.
    pub fn execute_member(&mut self, time: StoreTime, act: &MemberAct) -> (Outcome, bool) {
        match act {
            MemberAct::Beat(beat) => match self.members.beat(beat, time) {
                Ok((presence, changed)) => (Ok(Answer::Heartbeat(presence)), changed),
                Err(error) => (Err(error), false),
            },
            MemberAct::Leave(leave) => (Ok(Answer::Leave), self.members.leave(leave, time)),
        }
    }

    /// The unexpired record of a lease.
    #[must_use]
    pub fn holder(&self, now: Instant, name: &LeaseName) -> Option<&Record> {
        self.records.get(name).filter(|record| now < record.expires)
    }

    /// What remains of the lease's TTL.
    #[must_use]
    pub fn remaining(&self, now: Instant, name: &LeaseName) -> Option<Duration> {
        self.holder(now, name).map(|record| record.expires.saturating_since(now))
    }

    fn forget(&mut self, who: &Waiter, name: &LeaseName) {
        if let Some(waiters) = self.waiters.get_mut(name) {
            waiters.remove(who);
            if waiters.is_empty() {
                self.waiters.remove(name);
            }
        }
    }

    /// Tells all who wait, the first in the order of their places first.
    fn wake(&self, name: &LeaseName, wake: impl Fn(usize) -> Wake) -> Vec<Woken> {
        let waiters = self.waiters.get(name).into_iter().flatten();
        let woken = |(place, waiter): (usize, &Waiter)| Woken {
            waiter: waiter.clone(),
            name: name.clone(),
            wake: wake(place),
        };
        waiters.enumerate().map(woken).collect()
    }
}

/// What a command of this node asks of a timer, and of which one, at the moment in which it was emitted. `None` for
/// commands about leases, and for those that are not for the store.
#[must_use]
pub fn timer_act<J: Jitter>(node: &Node<J>, command: &Command) -> Option<(TimerName, TimerAct)> {
    let (name, tick) = match command {
        Command::ReadTimer { timer, .. } | Command::ChangeTimer { timer, .. } => {
            (node.timer_name(*timer)?, 0)
        }
        Command::ClaimTick { lease, .. }
        | Command::Renew { lease, .. }
        | Command::FinishTick { lease, .. } => node.claim(*lease)?,
        Command::Acquire { .. }
        | Command::Release { .. }
        | Command::Heartbeat { .. }
        | Command::Leave { .. }
        | Command::Watch { .. }
        | Command::Unwatch { .. }
        | Command::StartWorkload { .. }
        | Command::DrainWorkload { .. }
        | Command::StopWorkload { .. } => return None,
    };
    Some((name.clone(), act(node.identity(), command, tick)?))
}

/// What a command of this process about this tick asks of its timer; `None` if it is not about a timer.
#[must_use]
pub fn act(process: &Identity, command: &Command, tick: u64) -> Option<TimerAct> {
    let owner = |n: &Acquisition| process.owner(*n);
    Some(match command {
        Command::ReadTimer { schedule, last, .. } => {
            TimerAct::Read { schedule: schedule.text().into(), last: *last }
        }
        Command::ChangeTimer { revision, change, .. } => {
            TimerAct::Change { revision: *revision, change: change.clone() }
        }
        Command::ClaimTick { n, tick, ttl, floor, attempts, overlap, .. } => TimerAct::Claim(TickClaim {
            tick: *tick,
            owner: owner(n),
            ttl: *ttl,
            floor: *floor,
            attempts: *attempts,
            overlap: *overlap,
            metadata: Metadata::new(),
        }),
        Command::Renew { n, token, ttl, .. } => {
            TimerAct::Renew { tick, owner: owner(n), token: *token, ttl: *ttl }
        }
        Command::FinishTick { n, tick, token, end, .. } => {
            TimerAct::Finish { tick: *tick, owner: owner(n), token: *token, end: *end }
        }
        Command::Acquire { .. }
        | Command::Release { .. }
        | Command::Heartbeat { .. }
        | Command::Leave { .. }
        | Command::Watch { .. }
        | Command::Unwatch { .. }
        | Command::StartWorkload { .. }
        | Command::DrainWorkload { .. }
        | Command::StopWorkload { .. } => return None,
    })
}

/// What a command of this process asks about its membership; `None` if it is about something else.
#[must_use]
pub fn member_act(process: &Identity, command: &Command) -> Option<MemberAct> {
    Some(match command {
        Command::Heartbeat {
            id: _,
            sequence,
            joined,
            draining,
            marked,
            digests,
            labels,
            known,
            ttl,
            timeout,
        } => MemberAct::Beat(Heartbeat {
            identity: process.clone(),
            sequence: *sequence,
            joined: *joined,
            draining: *draining,
            marked: *marked,
            digests: digests.clone(),
            labels: labels.clone(),
            known: *known,
            ttl: *ttl,
            metadata: Metadata::new(),
            timeout: *timeout,
        }),
        Command::Leave { id: _, ttl, timeout } => {
            MemberAct::Leave(Leave { identity: process.clone(), ttl: *ttl, timeout: *timeout })
        }
        Command::Acquire { .. }
        | Command::Renew { .. }
        | Command::Release { .. }
        | Command::ReadTimer { .. }
        | Command::ChangeTimer { .. }
        | Command::ClaimTick { .. }
        | Command::FinishTick { .. }
        | Command::Watch { .. }
        | Command::Unwatch { .. }
        | Command::StartWorkload { .. }
        | Command::DrainWorkload { .. }
        | Command::StopWorkload { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use tenure_core::{ClaimEnd, Incarnation, Overlap, Timestamp};

    use super::*;

    /// T2: a request that is executed when the run that it asks for has begun and its claim is over is another attempt,
    /// though it comes from the same owner, who gives its grant back as not started.
    #[test]
    fn a_late_request_of_the_same_owner_gives_no_attempt_back() {
        let mut store = ModelStore::default();
        let name = TimerName::new("t").expect("a fine name");
        let identity = |n| Identity::new("node", Incarnation::new(n)).expect("a fine name");
        let ttl = Duration::from_secs(1);
        let claim = |owner: Owner| {
            let (floor, overlap, metadata) = (Token::ZERO, Overlap::Skip, Metadata::new());
            TimerAct::Claim(TickClaim { tick: 1, owner, ttl, floor, attempts: 1, overlap, metadata })
        };
        let at = |seconds: i64| StoreTime {
            wall: Timestamp::from_nanos(seconds * 1_000_000_000),
            now: Instant::from_nanos(seconds as u64 * 1_000_000_000),
        };
        let (own, other) = (identity(1).owner(Acquisition(1)), identity(2).owner(Acquisition(1)));
        store.execute_timer(at(0), &name, &TimerAct::Read { schedule: "every 1s".into(), last: None });
        let granted = store.execute_timer(at(1), &name, &claim(own.clone()));
        assert!(matches!(granted, TimerAnswer::Granted(_)));
        // The run begins, its process is paused, and an older request of its arrives.
        let late = store.execute_timer(at(3), &name, &claim(own.clone()));
        if let TimerAnswer::Granted(token) = late {
            let (token, end) = (Some(token), ClaimEnd::NotStarted);
            store.execute_timer(at(3), &name, &TimerAct::Finish { tick: 1, owner: own, token, end });
        }
        assert_eq!(store.execute_timer(at(4), &name, &claim(other)), TimerAnswer::Taken);
    }
}
