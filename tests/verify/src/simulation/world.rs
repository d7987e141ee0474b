//! What a fleet looks like from outside, for those who judge it.

use std::collections::BTreeMap;
use std::fmt;

use std::time::Duration;

use tenure_core::{
    Command, CommandId, Deadlines, Event, Exit, Identity, Instant, LeaseKey, LeaseName, LeaseTiming, Missed,
    Notice, Overlap, Reply, TimerName, Token, WorkerKey,
};
use tenure_store::{MemberEntry, Outcome, TimerAct, TimerAnswer, TimerRecord};

use super::LONGEST_DELAY;
use super::member::{Member, Worker};
use super::shares::Shares;
use super::store::Store;
use crate::store::{MemberAct, Record, Waiter};

/// A millisecond of true time.
pub(super) const MS: u64 = 1_000_000;
/// A second of true time.
pub(super) const SECOND: u64 = 1_000 * MS;

/// The processes, the store, and what the leases protect.
#[derive(Debug)]
pub(super) struct World {
    /// True time, in nanoseconds.
    pub(super) now: u64,
    /// What is expected of the fleet.
    pub(super) phase: Phase,
    /// Nothing goes wrong even in the phase of trouble.
    pub(super) benign: bool,
    /// Workers are among those who want leases.
    pub(super) has_workers: bool,
    /// The names of the leases; those of workloads that are shared out stand at the end.
    pub(super) names: Vec<LeaseName>,
    /// How many of these are no workload's.
    pub(super) leases: usize,
    /// What is shared out.
    pub(super) shares: Option<Shares>,
    /// The timing of all leases.
    pub(super) timing: LeaseTiming,
    /// The periodic jobs, and, behind them, the timers that are no job's.
    pub(super) schedules: Vec<Schedule>,
    /// How many of these are jobs.
    pub(super) jobs: usize,
    /// No clock ever runs further off than is assumed, so that ticks must be exact.
    pub(super) exact: bool,
    /// By schedule: since when the store has kept the claims that it granted.
    pub(super) claims_trusted_from: Vec<u64>,
    /// By schedule: whether the store has ever forgotten it.
    pub(super) forgotten: Vec<bool>,
    /// When the store's wall clock was last set back.
    pub(super) wall_set_back: Option<u64>,
    /// The store.
    pub(super) store: Store,
    /// The places in the fleet.
    pub(super) members: Vec<Member>,
    /// All processes that ever were, with the places where they ran.
    pub(super) lives: Vec<Waiter>,
    /// What the leases protect.
    pub(super) resource: Resource,
    /// Since when the store has kept its word; what was believed before counts for nothing.
    pub(super) trusted_from: u64,
    /// Whether the store has kept the highest token.
    pub(super) tokens_kept: bool,
}

/// A periodic job, or a timer that is no job's.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Its name at the store.
    pub(super) name: TimerName,
    /// The period that instances ask for: the first, or some of them the other.
    pub(super) periods: [Duration; 2],
    /// What becomes of missed ticks.
    pub(super) missed: Missed,
    /// The limit of lateness.
    pub(super) late_limit: Option<Duration>,
    /// What becomes of ticks while a run is going on.
    pub(super) overlap: Overlap,
    /// How many runs of one tick may be begun.
    pub(super) attempts: u32,
    /// The index of the lease under which it runs.
    pub(super) lease: Option<usize>,
}

/// What is expected of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Everything may go wrong; nothing unsafe may happen.
    Trouble,
    /// Since then a core is healthy, and must make progress.
    Healed {
        /// In true time.
        since: u64,
    },
    /// The core has recovered, and must lose nothing.
    Settled,
    /// One of the core is gone for good since then.
    Bereft {
        /// In true time.
        since: u64,
        /// Whoever is gone.
        victim: usize,
    },
    /// Everything is given back.
    Ending,
}

impl World {
    /// Whether what this member believes must be true: neither its clock nor the store broke the assumptions.
    pub(super) fn trusts(&self, member: usize) -> bool {
        self.now >= self.trusted_from && self.now >= self.members[member].trusted_from
    }

    /// Which process this is.
    pub(super) fn life(identity: &Identity) -> usize {
        identity.incarnation().as_u128() as usize
    }

    /// Whether the members are listed for as long as they should be: the store's clock has not been wrong for a while.
    pub(super) fn trusts_listing(&self) -> bool {
        let ttl = self.shares.as_ref().map_or(0, Shares::listed_for);
        self.now >= self.trusted_from.saturating_add(ttl + 3 * SECOND)
    }

    /// Whether somebody of the core may work: not all of them drain.
    pub(super) fn may_work(&self) -> bool {
        self.members.iter().any(|member| member.core && !member.node.is_draining())
    }

    /// How long a healthy fleet takes until each workload has the owner that it belongs to, in true time; nothing if
    /// none are shared out.
    pub(super) fn shared_out_after(&self) -> u64 {
        let Some(shares) = &self.shares else { return 0 };
        // Whoever has it by an earlier plan gives it back after its grace and its hard stop, or its record is over.
        let handed_over = self.timing.outlived_after() + self.timing.ttl() + LONGEST_DELAY * 102 / 100;
        (shares.agreed_after() + handed_over).as_nanos() as u64 + SECOND
    }

    /// The place of a timer among the schedules.
    pub(super) fn schedule(&self, name: &TimerName) -> Option<usize> {
        self.schedules.iter().position(|schedule| schedule.name == *name)
    }

    /// The record of a schedule.
    pub(super) fn record(&self, schedule: usize) -> Option<&TimerRecord> {
        self.store.timer(&self.schedules[schedule].name)
    }

    /// Whether this process still runs, perhaps paused.
    pub(super) fn lives(&self, life: usize) -> bool {
        let member = &self.members[self.lives[life].0];
        member.life == life && member.condition != super::member::Condition::Down
    }
}

/// What the leases protect: it refuses a token below the highest that it has seen.
#[derive(Debug, Default)]
pub(super) struct Resource {
    highest: BTreeMap<usize, Token>,
}

impl Resource {
    /// A write under this token; tells whether it is accepted.
    pub(super) fn write(&mut self, name: usize, token: Token) -> bool {
        let highest = self.highest.entry(name).or_insert(token);
        let accepted = token >= *highest;
        *highest = token.max(*highest);
        accepted
    }
}

/// Something that has just happened.
#[derive(Debug)]
pub(super) enum Fact<'a> {
    /// The store has executed a command.
    Executed {
        /// The process that sent it.
        life: usize,
        /// The lease.
        name: usize,
        /// What it was.
        command: &'a Command,
        /// The unexpired record before.
        before: Option<&'a Record>,
        /// What the store answers.
        reply: Option<Reply>,
        /// The unexpired record afterwards.
        after: Option<&'a Record>,
    },
    /// The store has carried out an operation on a timer.
    TimerExecuted {
        /// The process that sent it.
        life: usize,
        /// Which schedule.
        schedule: usize,
        /// The command that it was.
        id: CommandId,
        /// What it was.
        act: &'a TimerAct,
        /// The record before.
        before: Option<&'a TimerRecord>,
        /// What the store answers.
        answer: &'a TimerAnswer,
        /// The record afterwards.
        after: Option<&'a TimerRecord>,
    },
    /// A node has said something about a timer or a job to its application.
    TimerNoticed {
        /// Where.
        member: usize,
        /// Which schedule.
        schedule: usize,
        /// What.
        notice: &'a Notice,
    },
    /// A node has said something about the claim of a tick to its application.
    ClaimNoticed {
        /// Where.
        member: usize,
        /// The job and the number of the tick.
        run: (usize, u64),
        /// What.
        notice: &'a Notice,
    },
    /// The store has carried out what a process asked about its membership.
    MemberExecuted {
        /// The process that sent it.
        life: usize,
        /// What it was.
        act: &'a MemberAct,
        /// What was listed of it before.
        before: Option<&'a MemberEntry>,
        /// What the store answers.
        outcome: &'a Outcome,
        /// All who are listed afterwards.
        listed: &'a [MemberEntry],
    },
    /// A node has said something about its membership, its drain, or what it shares out.
    MemberNoticed {
        /// Where.
        member: usize,
        /// What.
        notice: &'a Notice,
    },
    /// An event is about to go into a node.
    Heard {
        /// Where.
        member: usize,
        /// What.
        event: &'a Event,
    },
    /// A node has emitted a command.
    Emitted {
        /// Where.
        member: usize,
        /// What.
        command: &'a Command,
    },
    /// A node has said something to its application.
    Noticed {
        /// Where.
        member: usize,
        /// The lease.
        name: usize,
        /// What.
        notice: &'a Notice,
        /// What it had heard just before, if anything.
        cause: Option<&'a Event>,
    },
    /// A node has said something about a worker to its application.
    WorkerNoticed {
        /// Where.
        member: usize,
        /// The worker.
        worker: &'a Worker,
        /// What.
        notice: &'a Notice,
    },
    /// A node has nothing more to say.
    Polled {
        /// Where.
        member: usize,
        /// Until when it waits.
        wait: Option<Instant>,
    },
    /// Work has begun.
    Started {
        /// Where.
        member: usize,
        /// The lease.
        lease: LeaseKey,
        /// The worker whose workload it is.
        worker: Option<WorkerKey>,
        /// The token of the grant.
        token: Token,
        /// When it ends.
        deadlines: Deadlines,
    },
    /// Work has ended, or will never begin.
    WorkEnded {
        /// Where.
        member: usize,
        /// Under which lease.
        lease: LeaseKey,
        /// The worker whose workload it was.
        worker: Option<WorkerKey>,
        /// How.
        exit: Exit,
    },
    /// A write has reached what the leases protect.
    Written {
        /// From which process.
        life: usize,
        /// The lease.
        name: usize,
        /// Under which token.
        token: Token,
        /// Whether it was accepted.
        accepted: bool,
    },
    /// A message was lost.
    Lost {
        /// Whose.
        life: usize,
        /// The command that it was, or answers.
        id: Option<CommandId>,
        /// What was lost.
        what: &'static str,
    },
    /// Something went wrong, or was mended, or a user did something.
    Struck {
        /// Where, unless it concerns all.
        member: Option<usize>,
        /// What.
        what: What,
    },
}

/// What can go wrong, or be mended, or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Crash,
    Start,
    Pause,
    Resume,
    CutOff,
    Mute,
    Deaf,
    Linked,
    StoreDown,
    StoreUp,
    StoreWiped,
    StoreForgotTokens,
    StoreSet,
    StoreSetTooFar,
    WallSet,
    WallSetBack,
    TimerForgotten,
    StoreSlow,
    Healed,
    Settled,
    Shutdown,
    GiveUp,
    Drain,
    Stand,
    Stuck,
    Marked,
    Unmarked,
    DrainAll,
    GoOn,
    Silenced,
    MembersForgotten,
}

impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Executed { life, name, command, before, reply, after } => {
                write!(f, "store: process {life} about lease {name}: {command} -> ")?;
                match reply {
                    Some(reply) => write!(f, "{reply:?}")?,
                    None => f.write_str("done")?,
                }
                let show = |record: &Option<&Record>| {
                    record.map_or("free".into(), |record| {
                        format!("token {} until {:?}", record.token, record.expires)
                    })
                };
                if before == after { Ok(()) } else { write!(f, " ({} -> {})", show(before), show(after)) }
            }
            Self::TimerExecuted { life, schedule, id, act, answer, after, .. } => {
                write!(
                    f,
                    "store: process {life} about timer {schedule}: {id} {act:?} -> {answer:?} ({after:?})"
                )
            }
            Self::TimerNoticed { member, schedule, notice } => {
                write!(f, "node {member} says of timer {schedule}: {notice:?}")
            }
            Self::ClaimNoticed { member, run: (job, tick), notice } => {
                write!(f, "node {member} says of tick {tick} of job {job}: {notice:?}")
            }
            Self::MemberExecuted { life, act, outcome, listed, .. } => {
                write!(f, "store: process {life}: {act:?} -> {outcome:?}, {} are listed", listed.len())
            }
            Self::MemberNoticed { member, notice } => write!(f, "node {member} says {notice:?}"),
            Self::Heard { member, event } => write!(f, "node {member} hears {event:?}"),
            Self::Emitted { member, command } => write!(f, "node {member} emits {command}"),
            Self::Noticed { member, name, notice, .. } => {
                write!(f, "node {member} says of lease {name}: {notice:?}")
            }
            Self::WorkerNoticed { member, notice, .. } => write!(f, "node {member} says {notice:?}"),
            Self::Polled { member, wait: Some(wait) } => write!(f, "node {member} waits until {wait:?}"),
            Self::Polled { member, wait: None } => write!(f, "node {member} waits"),
            Self::Started { member, lease, token, .. } => {
                write!(f, "node {member}: work under {lease} begins, with token {token}")
            }
            Self::WorkEnded { member, lease, exit, .. } => {
                write!(f, "node {member}: work under {lease}: {exit:?}")
            }
            Self::Written { life, name, token, accepted } => {
                let verdict = if *accepted { "accepted" } else { "refused" };
                write!(f, "resource {name}: a write of process {life} with token {token} is {verdict}")
            }
            Self::Lost { life, id, what } => {
                write!(f, "network: {what} of process {life} is lost")?;
                id.map_or(Ok(()), |id| write!(f, " ({id})"))
            }
            Self::Struck { member: Some(member), what } => write!(f, "node {member}: {what:?}"),
            Self::Struck { member: None, what } => write!(f, "{what:?}"),
        }
    }
}
