//! What the properties of members are written with: instances that send heartbeats, and what they see.

use std::time::Duration;

use tenure_core::{Digest, Identity, Incarnation, Labels, Member, Presence, Timestamp};

use super::Harness;
use super::candidate::{PATIENCE, TIMEOUT, run, short_ttl, timing};
use crate::{
    Answer, DrainMark, Heartbeat, Leave, MemberEntry, Metadata, Operation, Outcome, Store, StoreErrorKind,
};

/// One process of an instance, and what it says of itself.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    /// The next heartbeat.
    pub(super) says: Heartbeat,
}

impl Instance {
    /// The process with this number of the instance of this name. It knows nothing yet.
    pub(super) fn new(name: &str, process: u64, ttl: Duration) -> Self {
        let identity = Identity::new(name, Incarnation::new(u128::from(process) << 64 | 7))
            .unwrap_or_else(|error| panic!("{name:?} is no name: {error}"));
        let says = Heartbeat {
            identity,
            sequence: 0,
            joined: None,
            draining: false,
            marked: false,
            digests: [].into(),
            labels: Labels::default(),
            known: None,
            ttl,
            metadata: Metadata::new(),
            timeout: TIMEOUT,
        };
        Self { says }
    }

    pub(super) fn identity(&self) -> Identity {
        self.says.identity.clone()
    }

    pub(super) fn takes_part_in(mut self, digests: &[u64]) -> Self {
        self.says.digests = digests.iter().copied().map(Digest::new).collect();
        self
    }

    /// Sends the next heartbeat, and keeps when it joined, as the core does.
    pub(super) async fn beats(&mut self, store: &impl Store) -> Presence {
        self.says.sequence += 1;
        let presence = present(self.repeats(store).await);
        self.says.joined = Some(presence.joined);
        presence
    }

    /// Sends the last heartbeat once more.
    pub(super) async fn repeats(&self, store: &impl Store) -> Outcome {
        run(store, Operation::Heartbeat(self.says.clone())).await
    }

    /// Sends a heartbeat that has been under way since this one.
    pub(super) async fn is_late(&self, store: &impl Store, sequence: u64) -> Outcome {
        run(store, Operation::Heartbeat(Heartbeat { sequence, ..self.says.clone() })).await
    }

    pub(super) fn leave(&self) -> Leave {
        Leave { identity: self.identity(), ttl: self.says.ttl, timeout: TIMEOUT }
    }

    pub(super) async fn leaves(&self, store: &impl Store) {
        let outcome = run(store, Operation::Leave(self.leave())).await;
        assert_eq!(outcome, Ok(Answer::Leave), "{}", self.says.identity);
    }
}

pub(super) fn present(outcome: Outcome) -> Presence {
    match outcome {
        Ok(Answer::Heartbeat(presence)) => presence,
        other => panic!("a heartbeat was answered with {other:?}"),
    }
}

/// A heartbeat that came too late is refused, and says whose it was.
pub(super) fn is_refused(outcome: Outcome, why: &str) {
    match outcome {
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Rejected, "{why}: {error}"),
        Ok(answer) => panic!("{why}, but the answer is {answer:?}"),
    }
}

/// The whole view, as the answer has it.
pub(super) fn view(presence: &Presence) -> &[Member] {
    presence.members.as_deref().unwrap_or_else(|| panic!("the view should be told: {presence:?}"))
}

pub(super) fn who(presence: &Presence) -> Vec<Identity> {
    view(presence).iter().map(|member| member.identity.clone()).collect()
}

/// All members that are listed, at most a hundred.
pub(super) async fn listed(store: &impl Store) -> Vec<MemberEntry> {
    store.members(None, 100).await.expect("listing works")
}

pub(super) async fn names(store: &impl Store) -> Vec<Identity> {
    listed(store).await.into_iter().map(|entry| entry.member.identity).collect()
}

/// The one that is listed.
pub(super) async fn the_one(store: &impl Store) -> MemberEntry {
    let mut listed = listed(store).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed.remove(0)
}

pub(super) async fn marks(
    store: &impl Store,
    name: &str,
    process: Option<&Instance>,
    drain: bool,
) -> Vec<Identity> {
    let incarnation = process.map(|process| process.says.identity.incarnation());
    let mark = DrainMark { instance: name.into(), incarnation, drain };
    store.mark(mark).await.expect("marking works")
}

/// Waits until this member is not listed, without touching it. Gives when that was known.
pub(super) async fn until_gone<H: Harness>(
    h: &H,
    store: &H::Store,
    identity: &Identity,
) -> tenure_core::Instant {
    let outlived = timing(store, short_ttl::<H>(store)).outlived_after();
    let limit = h.now() + outlived + PATIENCE;
    loop {
        let there = names(store).await.contains(identity);
        let now = h.now();
        if !there {
            return now;
        }
        assert!(now < limit, "{identity} is still listed after {outlived:?}");
        h.pass(outlived / 50).await;
    }
}

/// A time that no store's clock shows.
pub(super) const LONG_AGO: Timestamp = Timestamp::from_nanos(1_000_000_000_123_456_789);
