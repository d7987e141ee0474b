//! What the properties of timers are written with: readers of a timer, and claimants of its ticks.

use std::time::Duration;

use tenure_core::{
    AnySchedule, ClaimEnd, Every, Instant, Overlap, Owner, Tick, TimerChange, TimerName, TimerView,
    Timestamp, Token,
};

use super::Harness;
use super::candidate::{Candidate, PATIENCE, TIMEOUT, lease, run, short_ttl, timing};
use crate::{Answer, Metadata, Operation, Outcome, Store, TickClaim, TimerAct, TimerAnswer, TimerRequest};

pub(super) fn timer(name: impl AsRef<str>) -> TimerName {
    let name = name.as_ref();
    TimerName::new(name).unwrap_or_else(|error| panic!("{name:?} is no name: {error}"))
}

pub(super) fn every(period: Duration) -> AnySchedule {
    Every::new(period).unwrap_or_else(|error| panic!("{error}")).into()
}

/// A schedule of which no tick comes during a property.
pub(super) fn hourly() -> AnySchedule {
    every(Duration::from_secs(3600))
}

pub(super) fn request(name: &TimerName, act: TimerAct) -> TimerRequest {
    TimerRequest { name: name.clone(), act, timeout: TIMEOUT }
}

pub(super) fn to_read(name: &TimerName, last: Option<u64>) -> TimerRequest {
    request(name, TimerAct::Read { schedule: hourly().text().into(), last })
}

pub(super) fn to_stage(name: &TimerName, revision: u64, at: Tick, schedule: AnySchedule) -> TimerRequest {
    request(name, TimerAct::Change { revision, change: TimerChange::Stage { at, schedule } })
}

pub(super) fn answered(outcome: Outcome) -> TimerAnswer {
    match outcome {
        Ok(Answer::Timer(answer)) => answer,
        other => panic!("an operation on a timer was answered with {other:?}"),
    }
}

pub(super) fn told(answer: TimerAnswer) -> (TimerView, Timestamp) {
    match answer {
        TimerAnswer::Read { view, at } => (view, at),
        other => panic!("the timer should be told, but the answer is {other:?}"),
    }
}

pub(super) async fn ask(store: &impl Store, request: TimerRequest) -> TimerAnswer {
    answered(run(store, Operation::Timer(request)).await)
}

/// Reads a timer, which makes it if there is none.
pub(super) async fn read(store: &impl Store, name: &TimerName, last: Option<u64>) -> (TimerView, Timestamp) {
    told(ask(store, to_read(name, last)).await)
}

/// A store with a timer of this name.
pub(super) async fn with_timer<H: Harness>(h: &H, name: &str) -> (H::Store, TimerName) {
    let (store, name) = (h.fresh().await, timer(name));
    read(&store, &name, None).await;
    (store, name)
}

/// One process that claims ticks, and how it does so.
#[derive(Clone, Debug)]
pub(super) struct Claimant {
    name: TimerName,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
    pub(super) attempts: u32,
    pub(super) overlap: Overlap,
}

impl Claimant {
    /// Of this process, with one attempt and without overlap.
    pub(super) fn new(name: &TimerName, process: u16, ttl: Duration) -> Self {
        let Candidate { owner, .. } = Candidate::new(&lease("any"), process, 0, ttl);
        Self { name: name.clone(), owner, ttl, attempts: 1, overlap: Overlap::Skip }
    }

    pub(super) fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    pub(super) fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    pub(super) fn claim(&self, tick: u64) -> TimerRequest {
        let Self { name, owner, ttl, attempts, overlap } = self.clone();
        let (floor, metadata) = (Token::ZERO, Metadata::new());
        request(&name, TimerAct::Claim(TickClaim { tick, owner, ttl, floor, attempts, overlap, metadata }))
    }

    pub(super) fn renew(&self, tick: u64, token: Token) -> TimerRequest {
        let Self { name, owner, ttl, .. } = self.clone();
        request(&name, TimerAct::Renew { tick, owner, token, ttl })
    }

    pub(super) fn finish(&self, tick: u64, token: Option<Token>, end: ClaimEnd) -> TimerRequest {
        request(&self.name, TimerAct::Finish { tick, owner: self.owner.clone(), token, end })
    }

    pub(super) async fn claims(&self, store: &impl Store, tick: u64) -> TimerAnswer {
        ask(store, self.claim(tick)).await
    }

    /// Claims a tick that is to be had.
    pub(super) async fn gets(&self, store: &impl Store, tick: u64) -> Token {
        match self.claims(store, tick).await {
            TimerAnswer::Granted(token) => token,
            other => panic!("tick {tick} should be granted to {}, but the answer is {other:?}", self.owner),
        }
    }

    pub(super) async fn renews(&self, store: &impl Store, tick: u64, token: Token) -> TimerAnswer {
        ask(store, self.renew(tick, token)).await
    }

    pub(super) async fn ends(
        &self,
        store: &impl Store,
        tick: u64,
        token: Option<Token>,
        end: ClaimEnd,
    ) -> TimerAnswer {
        ask(store, self.finish(tick, token, end)).await
    }

    /// Ends a claim that is its own.
    pub(super) async fn ends_its_own(&self, store: &impl Store, tick: u64, token: Token, end: ClaimEnd) {
        let answer = self.ends(store, tick, Some(token), end).await;
        assert_eq!(answer, TimerAnswer::Removed, "{} has tick {tick} with token {token}", self.owner);
    }

    /// Tries until the tick is granted, which must happen by itself. Returns the token, and when the grant was known.
    pub(super) async fn takes_over<H: Harness>(
        &self,
        h: &H,
        store: &H::Store,
        tick: u64,
    ) -> (Token, Instant) {
        let outlived = timing(store, short_ttl::<H>(store)).outlived_after();
        let limit = h.now() + outlived + PATIENCE;
        loop {
            match self.claims(store, tick).await {
                TimerAnswer::Granted(token) => return (token, h.now()),
                TimerAnswer::Held { .. } => {
                    assert!(h.now() < limit, "the claim of tick {tick} did not run out in {outlived:?}");
                }
                other => panic!("claiming tick {tick} was answered with {other:?}"),
            }
            h.pass(outlived / 50).await;
        }
    }
}
