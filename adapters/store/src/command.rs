//! From a command of the core to an operation of a store, and from its outcome back to an event.

use tenure_core::{Command, CommandId, Event, Failure, Jitter, LeaseKey, Node, Reply};

use crate::{
    Acquire, Answer, Heartbeat, Leave, Metadata, Operation, Outcome, Release, Renew, TickClaim, TimerAct,
    TimerAnswer, TimerRequest,
};

impl Operation {
    /// What a command asks of the store: its names and its owner are the node's. `metadata` is kept with a record; where
    /// the options of a lease have a text, that one takes the place of its text.
    ///
    /// `None` for commands that are no operations: [`Command::Watch`] and [`Command::Unwatch`] are for
    /// [`Store::watch`](crate::Store::watch) and its opposite, the others for the work. Also for a command of a lease or a
    /// timer that the node has forgotten, so ask right after the command was polled.
    #[must_use]
    pub fn of<J: Jitter>(command: &Command, node: &Node<J>, metadata: &Metadata) -> Option<Self> {
        let kept = |lease| {
            let mut metadata = metadata.clone();
            if let Some(text) = node.text(lease) {
                metadata.text = Some(text.clone());
            }
            metadata
        };
        let claim = |lease: LeaseKey, act, timeout| {
            let (name, _) = node.claim(lease)?;
            Some(TimerRequest { name: name.clone(), act, timeout }.into())
        };
        match *command {
            Command::Acquire { id: _, lease, n, ttl, floor, wait, timeout } => {
                let (name, owner, metadata) = (node.name(lease)?.clone(), node.owner(n), kept(lease));
                Some(Acquire { name, owner, ttl, floor, wait, metadata, timeout }.into())
            }
            Command::Renew { id: _, lease, n, token, ttl, timeout } => {
                let owner = node.owner(n);
                if let Some((_, tick)) = node.claim(lease) {
                    return claim(lease, TimerAct::Renew { tick, owner, token, ttl }, timeout);
                }
                Some(Renew { name: node.name(lease)?.clone(), owner, token, ttl, timeout }.into())
            }
            Command::Release { id: _, lease, n, token, timeout } => {
                let (name, owner) = (node.name(lease)?.clone(), node.owner(n));
                Some(Release { name, owner, token, timeout }.into())
            }
            Command::ReadTimer { id: _, timer, ref schedule, last, timeout } => {
                let act = TimerAct::Read { schedule: schedule.text().into(), last };
                Some(TimerRequest { name: node.timer_name(timer)?.clone(), act, timeout }.into())
            }
            Command::ChangeTimer { id: _, timer, revision, ref change, timeout } => {
                let act = TimerAct::Change { revision, change: change.clone() };
                Some(TimerRequest { name: node.timer_name(timer)?.clone(), act, timeout }.into())
            }
            Command::ClaimTick { id: _, lease, n, tick, ttl, floor, attempts, overlap, timeout } => {
                let (owner, metadata) = (node.owner(n), kept(lease));
                let act = TickClaim { tick, owner, ttl, floor, attempts, overlap, metadata };
                claim(lease, TimerAct::Claim(act), timeout)
            }
            Command::FinishTick { id: _, lease, n, tick, token, end, timeout } => {
                claim(lease, TimerAct::Finish { tick, owner: node.owner(n), token, end }, timeout)
            }
            Command::Heartbeat {
                id: _,
                sequence,
                joined,
                draining,
                marked,
                ref digests,
                ref labels,
                known,
                ttl,
                timeout,
            } => {
                let (identity, metadata) = (node.identity().clone(), metadata.clone());
                let (digests, labels) = (digests.clone(), labels.clone());
                let beat = Heartbeat {
                    identity,
                    sequence,
                    joined,
                    draining,
                    marked,
                    digests,
                    labels,
                    known,
                    ttl,
                    metadata,
                    timeout,
                };
                Some(beat.into())
            }
            Command::Leave { id: _, ttl, timeout } => {
                Some(Leave { identity: node.identity().clone(), ttl, timeout }.into())
            }
            Command::Watch { .. }
            | Command::Unwatch { .. }
            | Command::StartWorkload { .. }
            | Command::DrainWorkload { .. }
            | Command::StopWorkload { .. } => None,
        }
    }

    /// Which operation it is.
    #[must_use]
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Acquire(_) => OperationKind::Acquire,
            Self::Renew(_) => OperationKind::Renew,
            Self::Release(_) => OperationKind::Release,
            Self::Timer(TimerRequest { act, .. }) => match act {
                TimerAct::Read { .. } => OperationKind::ReadTimer,
                TimerAct::Change { .. } => OperationKind::ChangeTimer,
                TimerAct::Claim(_) => OperationKind::ClaimTick,
                TimerAct::Renew { .. } => OperationKind::RenewClaim,
                TimerAct::Finish { .. } => OperationKind::FinishTick,
                TimerAct::Forget => OperationKind::ForgetTimer,
            },
            Self::Heartbeat(_) => OperationKind::Heartbeat,
            Self::Leave(_) => OperationKind::Leave,
        }
    }
}

/// Which [`Operation`] it is: what has to be kept of one that is on its way, to understand its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "as `Operation`: there is nothing else to ask a store for")]
pub enum OperationKind {
    /// [`Operation::Acquire`].
    Acquire,
    /// [`Operation::Renew`].
    Renew,
    /// [`Operation::Release`].
    Release,
    /// [`TimerAct::Read`].
    ReadTimer,
    /// [`TimerAct::Change`].
    ChangeTimer,
    /// [`TimerAct::Claim`].
    ClaimTick,
    /// [`TimerAct::Renew`].
    RenewClaim,
    /// [`TimerAct::Finish`].
    FinishTick,
    /// [`TimerAct::Forget`].
    ForgetTimer,
    /// [`Operation::Heartbeat`].
    Heartbeat,
    /// [`Operation::Leave`].
    Leave,
}

impl OperationKind {
    /// Its name, for a line in a log and the label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::ReadTimer => "read_timer",
            Self::ChangeTimer => "change_timer",
            Self::ClaimTick => "claim_tick",
            Self::RenewClaim => "renew_claim",
            Self::FinishTick => "finish_tick",
            Self::ForgetTimer => "forget_timer",
            Self::Heartbeat => "heartbeat",
            Self::Leave => "leave",
        }
    }

    /// What the core is told of the outcome of the command with this id. An answer that does not [fit](Self::fits) counts
    /// as none: what became of the operation is unknown.
    #[must_use]
    pub fn event(self, id: CommandId, outcome: &Outcome) -> Event {
        let failure = match outcome {
            Ok(answer) if self.fits(answer) => return answer.event(id),
            Ok(_) => Failure::Unknown,
            Err(error) => error.failure(),
        };
        Event::Reply { id, reply: Reply::Failed(failure) }
    }

    /// Whether an answer is one to this operation.
    #[must_use]
    pub const fn fits(self, answer: &Answer) -> bool {
        use TimerAnswer as Timer;
        match self {
            Self::Acquire => matches!(answer, Answer::Acquire(_)),
            Self::Renew => matches!(answer, Answer::Renew(_)),
            Self::Release => matches!(answer, Answer::Release(_)),
            Self::ReadTimer => matches!(answer, Answer::Timer(Timer::Read { .. })),
            Self::ChangeTimer => matches!(answer, Answer::Timer(Timer::Read { .. } | Timer::Gone)),
            Self::ClaimTick => matches!(
                answer,
                Answer::Timer(Timer::Granted(_) | Timer::Held { .. } | Timer::Taken | Timer::Overlaps)
            ),
            Self::RenewClaim => matches!(answer, Answer::Timer(Timer::Renewed | Timer::NotYours)),
            Self::FinishTick | Self::ForgetTimer => {
                matches!(answer, Answer::Timer(Timer::Removed | Timer::NotYours))
            }
            Self::Heartbeat => matches!(answer, Answer::Heartbeat(_)),
            Self::Leave => matches!(answer, Answer::Leave),
        }
    }

    /// Whether it extends a lease or a claim that is held: nobody waits for it, as long as it comes in time.
    #[must_use]
    pub const fn is_renewal(self) -> bool {
        matches!(self, Self::Renew | Self::RenewClaim)
    }
}

#[cfg(test)]
mod tests;
