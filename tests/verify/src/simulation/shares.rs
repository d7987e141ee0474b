//! What the members of a fleet share out.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::{AnyAssigner, Balanced, MemberOptions, Primary, Rebalance, Rendezvous};

/// What is the same for the whole fleet.
#[derive(Debug)]
pub(super) struct Shares {
    /// How everybody is a member.
    pub(super) member: MemberOptions,
    /// The kinds of coordinators that there are: the present one, and the next one where there are deployments.
    pub(super) kinds: Vec<Kind>,
}

/// A coordinator that some of the members have.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) rule: Rule,
    pub(super) hold_down: Duration,
    pub(super) rebalance: Rebalance,
    /// What is to be shared out, by the index of the name. Not everybody may know yet.
    pub(super) workloads: BTreeSet<usize>,
}

/// A rule by which workloads are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Balanced,
    Primary,
    Rendezvous,
}

impl Rule {
    pub(super) const ALL: [Self; 3] = [Self::Balanced, Self::Primary, Self::Rendezvous];

    pub(super) fn assigner(self) -> AnyAssigner {
        match self {
            Self::Balanced => Balanced.into(),
            Self::Primary => Primary.into(),
            Self::Rendezvous => Rendezvous::new().into(),
        }
    }
}

impl Shares {
    /// How long it takes a healthy fleet to agree on who is there and counts, in true time: the heartbeats of whoever is
    /// gone are over by the slowest clock, the next heartbeat comes after the longest rest between two, and whoever came
    /// last has settled.
    pub(super) fn agreed_after(&self) -> Duration {
        let hold_down = self.kinds.iter().map(|kind| kind.hold_down).max().unwrap_or_default();
        let beats = self.member.ttl + self.member.interval() * 3 + hold_down;
        beats * 103 / 100 + Duration::from_millis(200)
    }

    /// How long a heartbeat lists its instance, in true time.
    pub(super) fn listed_for(&self) -> u64 {
        (self.member.ttl * 102 / 100).as_nanos() as u64 + 50_000_000
    }
}
