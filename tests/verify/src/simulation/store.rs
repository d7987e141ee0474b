//! The store of a fleet: the model, its clock, and the bugs that are planted in it.

use std::time::Duration;

use tenure_core::{Command, Identity, Instant, LeaseName, Reply, TimerName, Timestamp, Token};
use tenure_store::{Answer, DrainMark, MemberEntry, Outcome, StoreTime, TimerAct, TimerAnswer, TimerRecord};

use super::Plant;
use super::clock::Clock;
use crate::store::{MemberAct, ModelStore, Record, Waiter, Woken};

/// A store in a fleet.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// What it keeps.
    pub(super) model: ModelStore,
    /// Its clock.
    pub(super) clock: Clock,
    /// Its wall clock, by which timers go.
    pub(super) wall: Clock,
    /// Until when it takes longer than usual, in true time.
    pub(super) slow_until: u64,
    /// Until when it is not there, in true time.
    pub(super) down_until: u64,
    /// How it is not there: its address refuses, swallows everything, or now this, now that.
    pub(super) absence: Absence,
    /// It gives tokens as it likes, whatever a candidate has seen.
    pub(super) ignores_floor: bool,
    /// The highest token that it ever gave.
    pub(super) highest: Token,
    pub(super) plant: Option<Plant>,
}

/// How a store is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    Mixed,
    Refuses,
    Swallows,
}

impl Store {
    pub(super) fn new(clock: Clock, wall: Clock, plant: Option<Plant>) -> Self {
        let (model, highest) = (ModelStore::default(), Token::ZERO);
        let absence = Absence::Mixed;
        Self {
            model,
            clock,
            wall,
            absence,
            slow_until: 0,
            down_until: 0,
            ignores_floor: false,
            highest,
            plant,
        }
    }

    /// Executes a command at `now`, in true time.
    pub(super) fn execute(
        &mut self,
        now: u64,
        from: &Waiter,
        name: &LeaseName,
        command: &Command,
    ) -> (Option<Reply>, Vec<Woken>) {
        let shown = self.clock.at(now);
        if let Some(done) = self.planted(shown, from, name, command) {
            return done;
        }
        let mut command = command.clone();
        if self.ignores_floor
            && let Command::Acquire { floor, .. } = &mut command
        {
            *floor = Token::ZERO;
        }
        let done = self.model.execute(shown, from, name, &command);
        self.highest = self.highest.max(self.model.high_water);
        done
    }

    /// What its wall clock shows at `now`, in true time.
    pub(super) fn wall(&self, now: u64) -> Timestamp {
        Timestamp::from_nanos(i64::try_from(self.wall.at(now).as_nanos()).unwrap_or(i64::MAX))
    }

    fn time(&self, now: u64) -> StoreTime {
        StoreTime { wall: self.wall(now), now: self.clock.at(now) }
    }

    /// All members that are listed at `now`, in true time.
    pub(super) fn members(&self, now: u64) -> Vec<MemberEntry> {
        self.model.members.list(None, usize::MAX, self.time(now))
    }

    /// Carries out an operator's wish at `now`, in true time; tells whom it concerns, and whether others see it.
    pub(super) fn mark(&mut self, now: u64, mark: &DrainMark) -> (Vec<Identity>, bool) {
        let time = self.time(now);
        self.model.members.mark(mark, time)
    }

    /// Carries out what a process asks about its membership at `now`, in true time; tells also whether others see it.
    pub(super) fn execute_member(&mut self, now: u64, act: &MemberAct) -> (Outcome, bool) {
        let time = self.time(now);
        let mut act = act.clone();
        if let (Some(Plant::NoTombstone), MemberAct::Leave(leave)) = (self.plant, &mut act) {
            leave.ttl = Duration::ZERO;
        }
        let (mut outcome, changed) = self.model.execute_member(time, &act);
        if let (MemberAct::Beat(beat), Ok(Answer::Heartbeat(presence))) = (&act, &mut outcome) {
            match self.plant {
                Some(Plant::BeatClearsMark) => {
                    let (instance, incarnation) =
                        (beat.identity.instance().into(), beat.identity.incarnation());
                    let mark = DrainMark { instance, incarnation: Some(incarnation), drain: false };
                    self.model.members.mark(&mark, time);
                }
                Some(Plant::VersionStays) => {
                    if let Some(known) = beat.known {
                        (presence.version, presence.members) = (known, None);
                    }
                }
                Some(Plant::JoinedAnew) => presence.joined = time.wall,
                _ => {}
            }
        }
        (outcome, changed)
    }

    /// Carries out an operation on a timer at `now`, in true time.
    pub(super) fn execute_timer(&mut self, now: u64, name: &TimerName, act: &TimerAct) -> TimerAnswer {
        let time = self.time(now);
        let mut act = act.clone();
        if self.ignores_floor
            && let TimerAct::Claim(claim) = &mut act
        {
            claim.floor = Token::ZERO;
        }
        let answer = match self.planted_timer(time, name, &act) {
            Some(answer) => answer,
            None => self.model.execute_timer(time, name, &act),
        };
        self.highest = self.highest.max(self.model.high_water);
        answer
    }

    /// What a store with a planted bug does instead.
    fn planted_timer(&mut self, time: StoreTime, name: &TimerName, act: &TimerAct) -> Option<TimerAnswer> {
        let record = self.model.timers.get_mut(name)?;
        match (self.plant?, act) {
            (Plant::RenewsAnyClaim, TimerAct::Renew { tick, ttl, .. }) => {
                let claim = record.claims.iter_mut().find(|claim| claim.tick == *tick)?;
                claim.ends = time.now + *ttl;
                Some(TimerAnswer::Renewed)
            }
            (Plant::FinishesAnyClaim, TimerAct::Finish { tick, .. }) => {
                record.claims.retain(|claim| claim.tick != *tick);
                Some(TimerAnswer::Removed)
            }
            (Plant::ClaimsBelowLast, TimerAct::Claim(claim)) => {
                let claimed = record.claimed;
                record.claimed = claimed.min(claim.tick.saturating_sub(1));
                let answer = self.model.execute_timer(time, name, act);
                let record = self.model.timers.get_mut(name)?;
                record.claimed = record.claimed.max(claimed);
                Some(answer)
            }
            _ => None,
        }
    }

    /// The record of a timer.
    pub(super) fn timer(&self, name: &TimerName) -> Option<&TimerRecord> {
        self.model.timers.get(name)
    }

    /// What a store with a planted bug does instead.
    fn planted(
        &mut self,
        shown: Instant,
        from: &Waiter,
        name: &LeaseName,
        command: &Command,
    ) -> Option<(Option<Reply>, Vec<Woken>)> {
        let owner = |n: &tenure_core::Acquisition| from.1.owner(*n);
        let high_water = self.model.high_water;
        let record = self.model.records.get_mut(name).filter(|record| shown < record.expires)?;
        match (self.plant?, command) {
            (Plant::AcquireRaisesToken, Command::Acquire { n, .. }) if record.owner == owner(n) => {
                record.token = Token::new(high_water.get() + 1);
                self.model.high_water = record.token;
                None
            }
            (Plant::RenewIgnoresToken, Command::Renew { n, ttl, .. }) if record.owner == owner(n) => {
                record.expires = shown + *ttl;
                Some((Some(Reply::Renewed), Vec::new()))
            }
            (Plant::ReleaseIgnoresOwner, Command::Release { .. }) => {
                self.model.records.remove(name);
                Some((Some(Reply::Released { others_chosen: false }), Vec::new()))
            }
            _ => None,
        }
    }

    /// It starts again: nobody is registered any more.
    pub(super) fn restart(&mut self) {
        self.model.waiters.clear();
        if self.plant == Some(Plant::TokensAgain) {
            self.model.high_water = Token::ZERO;
        }
    }

    /// The unexpired record of a lease at `now`, in true time.
    pub(super) fn holder(&self, now: u64, name: &LeaseName) -> Option<&Record> {
        self.model.holder(self.clock.at(now), name)
    }

    /// When the record of a lease is over, in true time.
    pub(super) fn expires(&self, name: &LeaseName) -> Option<u64> {
        self.model.records.get(name).map(|record| self.clock.when(record.expires))
    }
}
