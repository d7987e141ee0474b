use std::collections::BTreeMap;

use tenure_core::{Command, Event, LeaseKey, TimerKey};

use super::{Invariant, ensure};
use crate::simulation::world::{Fact, SECOND, World};

/// Nothing runs hot: what a node does within a TTL is bounded, and what it asks of the store for a lease.
///
/// Backoff begins at a sixteenth of an attempt's timeout and doubles up to the whole, so a candidacy or hold cannot try
/// more than some twenty times within a TTL however the store answers, and once more for each hint. A loop that tries again
/// after a nanosecond, or a backoff that never grows, shows here at once.
#[derive(Default)]
pub(super) struct Calm {
    /// By process: what it did within the TTL that runs.
    spans: BTreeMap<usize, Span>,
}

#[derive(Default)]
struct Span {
    begin: u64,
    done: u64,
    hints: u64,
    requests: BTreeMap<LeaseKey, u64>,
    reads: BTreeMap<TimerKey, u64>,
    beats: u64,
}

/// What a node hears, emits and says for each lease of the fleet, in a TTL or a second: users don't act by TTLs.
const MOST_DONE: u64 = 600;
/// What it asks of the store for a candidacy or hold, hints aside.
const MOST_REQUESTS: u64 = 40;

impl Invariant for Calm {
    const NAME: &'static str = "nothing runs hot";

    fn observe(&mut self, fact: &Fact<'_>, world: &World) -> Result<(), String> {
        let (Fact::Heard { member, .. }
        | Fact::Emitted { member, .. }
        | Fact::Noticed { member, .. }
        | Fact::ClaimNoticed { member, .. }
        | Fact::TimerNoticed { member, .. }
        | Fact::MemberNoticed { member, .. }
        | Fact::WorkerNoticed { member, .. }) = fact
        else {
            return Ok(());
        };
        let ttl = world.timing.ttl().as_nanos() as u64;
        let span = self.spans.entry(world.members[*member].life).or_default();
        if world.now >= span.begin + ttl {
            *span = Span { begin: world.now, ..Span::default() };
        }
        span.done += 1;
        let things = (world.names.len() + world.schedules.len()) as u64;
        ensure(span.done <= MOST_DONE * things * (1 + ttl / SECOND), || {
            format!("node {member} did {} things within {} ns", span.done, world.now - span.begin)
        })?;
        match fact {
            Fact::Heard { event: Event::Hint { .. } | Event::MembersHint | Event::Resync, .. } => {
                span.hints += 1
            }
            Fact::Emitted {
                command:
                    Command::Acquire { lease, .. }
                    | Command::Renew { lease, .. }
                    | Command::Release { lease, .. }
                    | Command::ClaimTick { lease, .. }
                    | Command::FinishTick { lease, .. },
                ..
            } => {
                let requests = span.requests.entry(*lease).or_default();
                *requests += 1;
                ensure(*requests <= MOST_REQUESTS + span.hints, || {
                    format!("node {member} asked {requests} times within a TTL for {lease}")
                })?;
            }
            Fact::Emitted {
                command: Command::ReadTimer { timer, .. } | Command::ChangeTimer { timer, .. },
                ..
            } => {
                let reads = span.reads.entry(*timer).or_default();
                *reads += 1;
                ensure(*reads <= MOST_REQUESTS * (1 + ttl / SECOND), || {
                    format!("node {member} asked {reads} times within a TTL for {timer}")
                })?;
            }
            Fact::Emitted { command: Command::Heartbeat { .. } | Command::Leave { .. }, .. } => {
                span.beats += 1;
                ensure(span.beats <= MOST_REQUESTS * (1 + ttl / SECOND) + 2 * span.hints, || {
                    format!("node {member} has beaten {} times within a TTL", span.beats)
                })?;
            }
            _ => {}
        }
        Ok(())
    }
}
