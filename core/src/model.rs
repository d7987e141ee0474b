//! A look at the times, tokens, numbers and counters in the state of the machines (feature `model`).
//!
//! A search of the state space has to recognise a state that it has seen before, though meanwhile the clocks went
//! on, the tokens rose, and the ids of commands were used up. The machines show a [`Visitor`] every such value, to
//! be read or to be rewritten in place; what the search makes of them is its own affair. What is in flight
//! ([`Command`], [`Reply`], [`CommandId`], [`Wake`]) can be shown to the same visitor, so that the numbers go on
//! matching.
//!
//! Everything is taken apart field by field: a new field in a machine is an error in its `model.rs`, until somebody
//! has decided what it is.

use core::time::Duration;

use crate::command::{Command, Reply, Wake};
use crate::name::{
    Acquisition, CommandId, CoordinatorKey, Identity, LeaseKey, PeriodicKey, TimerKey, Token, WorkerKey,
};
use crate::notice::AcquireFailure;
use crate::schedule::Tick;
use crate::time::{Instant, Timestamp};
use crate::timer::{DueTick, TimerChange, TimerView};
use crate::worker::RestartPolicy;

/// Sees every time, token, number and counter of a machine, and may change it.
///
/// Numbers of machines and of commands are shown as they stand at the moment: whoever rewrites them finds the old
/// number of the machine beside each number of a command.
pub trait Visitor {
    /// What the machine takes for the time.
    fn now(&mut self, at: &mut Instant);
    /// Something becomes due then. The machines only ask which of two deadlines comes first, and whether it has come.
    fn deadline(&mut self, at: &mut Instant);
    /// A command without an answer was emitted then.
    fn emitted(&mut self, at: &mut Instant);
    /// A hold is valid until then: an emission and [`valid_for`](crate::LeaseTiming::valid_for).
    fn valid_until(&mut self, at: &mut Instant);
    /// The token of a grant.
    fn token(&mut self, token: &mut Token);
    /// A token below which nothing counts. The machines only ask whether that of a grant is above it, and keep the
    /// higher of two.
    fn floor(&mut self, token: &mut Token);
    /// An acquisition. The machines only ask whether two are the same.
    fn acquisition(&mut self, n: &mut Acquisition);
    /// The number of the last acquisition; the next one must be new.
    fn last_acquisition(&mut self, n: &mut Acquisition);
    /// The number of a lease, a worker, a timer, a periodic job or a name.
    fn machine(&mut self, number: &mut u64);
    /// The number of the last lease, worker or name; the next one must be new.
    fn last_machine(&mut self, number: &mut u64);
    /// The number of a command of this machine.
    fn sequence(&mut self, machine: u64, number: &mut u64);
    /// The number of this machine's next command; it must be new.
    fn next_sequence(&mut self, machine: u64, number: &mut u64);
    /// Failed requests in a row.
    fn failures(&mut self, count: &mut u32);
    /// Failed runs of a workload in a row, with the delays of its restart policy.
    fn failed_runs(&mut self, count: &mut u32, policy: RestartPolicy);
    /// Attempts of a candidacy that may have been executed, `remembered` of which an answer could still take back.
    fn unresolved(&mut self, count: &mut u32, remembered: u32);
    /// A tick: its number and its time on the store's clock. The machines compare it with other ticks and with what
    /// they know of the store's time.
    fn tick(&mut self, tick: &mut Tick);
    /// The number of a tick.
    fn tick_number(&mut self, n: &mut u64);
    /// The revision of a timer's record, or the version of a view of the members. The machines only hand it back, and
    /// ask which of two versions is the higher.
    fn revision(&mut self, revision: &mut u64);
    /// What the store's clock said somewhere between these two instants. From it follows what the clock says now, give
    /// or take what the clocks drift.
    fn reading(&mut self, at: &mut Timestamp, emitted: &mut Instant, received: &mut Instant);
    /// What the store's clock said, in an answer that is under way.
    fn store_time(&mut self, at: &mut Timestamp);
    /// How late a tick was when it was delivered, and how many were missed before it. Neither decides anything once the
    /// run's candidacy was entered; before that the lateness counts where there is a limit.
    fn late(&mut self, late: &mut Duration, missed: &mut u64);
    /// Who the process is.
    fn identity(&mut self, identity: &mut Identity);
    /// Whether this command may still be answered. If not, the machine forgets it: what nobody answers only takes up
    /// one of a few places, and so could at most have the answer to another command ignored.
    fn answerable(&mut self, machine: u64, sequence: u64) -> bool;
}

impl CommandId {
    /// Shows the numbers of the command and of its machine.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { machine, sequence } = self;
        visitor.sequence(*machine, sequence);
        visitor.machine(machine);
    }

    /// The number of the machine that sent the command.
    #[must_use]
    pub const fn machine(&self) -> u64 {
        self.machine
    }

    /// Which of that machine's commands it is.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl LeaseKey {
    /// Shows the number of the machine.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self(machine) = self;
        visitor.machine(machine);
    }
}

impl WorkerKey {
    /// Shows the number of the machine.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self(machine) = self;
        visitor.machine(machine);
    }
}

impl TimerKey {
    /// Shows the number of the machine.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self(machine) = self;
        visitor.machine(machine);
    }
}

impl PeriodicKey {
    /// Shows the number of the machine.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self(machine) = self;
        visitor.machine(machine);
    }
}

impl CoordinatorKey {
    /// Shows the number of the machine.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self(machine) = self;
        visitor.machine(machine);
    }
}

impl DueTick {
    /// Shows the tick, how late it was, and how many were missed before it.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { tick, late, missed, catching_up: _ } = self;
        visitor.tick(tick);
        visitor.late(late, missed);
    }
}

impl TimerView {
    /// Shows the numbers and times of a timer's record.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        let Self { revision, base, schedule: _, next, last, claimed, unfinished } = self;
        visitor.revision(revision);
        visitor.tick(base);
        if let Some(next) = next {
            visitor.tick(&mut next.at);
        }
        visitor.tick_number(last);
        visitor.tick_number(claimed);
        unfinished.iter_mut().for_each(|n| visitor.tick_number(n));
    }
}

impl Command {
    /// Shows the numbers and tokens of the command.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        match self {
            Self::Acquire { id, lease, n, ttl: _, floor, wait: _, timeout: _ } => {
                id.visit(visitor);
                lease.visit(visitor);
                visitor.acquisition(n);
                visitor.floor(floor);
            }
            Self::Renew { id, lease, n, token, ttl: _, timeout: _ } => {
                id.visit(visitor);
                lease.visit(visitor);
                visitor.acquisition(n);
                visitor.token(token);
            }
            Self::Release { id, lease, n, token, timeout: _ } => {
                id.visit(visitor);
                lease.visit(visitor);
                visitor.acquisition(n);
                if let Some(token) = token {
                    visitor.token(token);
                }
            }
            Self::ReadTimer { id, timer, schedule: _, last, timeout: _ } => {
                id.visit(visitor);
                timer.visit(visitor);
                if let Some(last) = last {
                    visitor.tick_number(last);
                }
            }
            Self::ChangeTimer { id, timer, revision, change, timeout: _ } => {
                id.visit(visitor);
                timer.visit(visitor);
                visitor.revision(revision);
                match change {
                    TimerChange::Stage { at, schedule: _ } => visitor.tick(at),
                    TimerChange::Rebase { last } => visitor.tick_number(last),
                }
            }
            Self::ClaimTick { id, lease, n, tick, ttl: _, floor, attempts: _, overlap: _, timeout: _ } => {
                id.visit(visitor);
                lease.visit(visitor);
                visitor.acquisition(n);
                visitor.tick_number(tick);
                visitor.floor(floor);
            }
            Self::FinishTick { id, lease, n, tick, token, end: _, timeout: _ } => {
                id.visit(visitor);
                lease.visit(visitor);
                visitor.acquisition(n);
                visitor.tick_number(tick);
                if let Some(token) = token {
                    visitor.token(token);
                }
            }
            Self::Heartbeat {
                id,
                sequence,
                joined,
                draining: _,
                marked: _,
                digests: _,
                labels: _,
                known,
                ttl: _,
                timeout: _,
            } => {
                visitor.sequence(id.machine, sequence);
                id.visit(visitor);
                if let Some(joined) = joined {
                    visitor.store_time(joined);
                }
                if let Some(known) = known {
                    visitor.revision(known);
                }
            }
            Self::Leave { id, ttl: _, timeout: _ } => id.visit(visitor),
            Self::Watch { id, name: _ } => id.visit(visitor),
            Self::Unwatch { name: _ } => {}
            Self::StartWorkload { worker, lease, n, token, deadlines: _ } => {
                worker.visit(visitor);
                lease.visit(visitor);
                visitor.acquisition(n);
                visitor.token(token);
            }
            Self::DrainWorkload { lease, why: _ } | Self::StopWorkload { lease, how: _, why: _ } => {
                lease.visit(visitor);
            }
        }
    }
}

impl Reply {
    /// Shows the token of the reply.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        match self {
            Self::Granted { token } => visitor.token(token),
            Self::Held { token: Some(token), remaining: _ } => visitor.floor(token),
            Self::Held { token: None, remaining: _ }
            | Self::Renewed
            | Self::Released { others_chosen: _ }
            | Self::TickTaken
            | Self::TickOverlaps
            | Self::NotYours
            | Self::Left
            | Self::Watching
            | Self::Failed(_) => {}
        }
    }
}

impl Wake {
    /// Shows the token of the hint.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        match self {
            Self::Held { token, ttl: _ } => visitor.floor(token),
            Self::Free { chosen: _ } => {}
        }
    }
}

impl AcquireFailure {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        match self {
            Self::StoreRegressed { token, floor } => {
                visitor.token(token);
                visitor.floor(floor);
            }
            Self::Busy
            | Self::TickTaken
            | Self::TickOverlaps
            | Self::Unreachable
            | Self::Refused
            | Self::GrantedTooLate
            | Self::GivenUp
            | Self::Draining
            | Self::ShuttingDown => {}
        }
    }
}
