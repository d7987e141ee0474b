//! The operations of a store and their answers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure_core::{CommandId, Event, Failure, Identity, LeaseName, Owner, Presence, Reply, TimerName, Token};

use crate::{Heartbeat, Leave, StoreError, TimerAnswer, TimerRequest};

/// Take a lease if it is free, or confirm it if this very owner has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The lease.
    pub name: LeaseName,
    /// Who asks.
    pub owner: Owner,
    /// How long the record lives. A confirmation extends the record by the whole TTL, like a renewal.
    pub ttl: Duration,
    /// The token of a new grant must be above this one.
    pub floor: Token,
    /// Whether to register this store handle as a waiter if the lease is held.
    pub wait: bool,
    /// What to keep with the record.
    pub metadata: Metadata,
    /// How long the operation may take; after that its outcome is taken as unknown.
    pub timeout: Duration,
}

/// Extend a record that is this owner's and has this token; never create one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The lease.
    pub name: LeaseName,
    /// Who asks.
    pub owner: Owner,
    /// The token of the grant.
    pub token: Token,
    /// How long the record lives from now on.
    pub ttl: Duration,
    /// How long the operation may take.
    pub timeout: Duration,
}

/// Remove a record that is this owner's, and has this token if one is given; wake up to two waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The lease.
    pub name: LeaseName,
    /// Who asks.
    pub owner: Owner,
    /// The token of the grant; `None` if it never became known: then the owner alone must match.
    pub token: Option<Token>,
    /// How long the operation may take.
    pub timeout: Duration,
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a store must carry out every one")]
pub enum Operation {
    /// See [`Acquire`].
    Acquire(Acquire),
    /// See [`Renew`].
    Renew(Renew),
    /// See [`Release`].
    Release(Release),
    /// See [`TimerRequest`].
    Timer(TimerRequest),
    /// See [`Heartbeat`].
    Heartbeat(Heartbeat),
    /// See [`Leave`].
    Leave(Leave),
}

/// What an operation is about. Operations on the same subject keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there is nothing else in a store that the core knows of")]
pub enum Subject<'a> {
    /// A lease.
    Lease(&'a LeaseName),
    /// A timer and its claims.
    Timer(&'a TimerName),
    /// A member of the fleet.
    Member(&'a Identity),
}

impl Operation {
    /// What it is about.
    #[must_use]
    pub const fn subject(&self) -> Subject<'_> {
        match self {
            Self::Acquire(acquire) => Subject::Lease(&acquire.name),
            Self::Renew(renew) => Subject::Lease(&renew.name),
            Self::Release(release) => Subject::Lease(&release.name),
            Self::Timer(request) => Subject::Timer(&request.name),
            Self::Heartbeat(heartbeat) => Subject::Member(&heartbeat.identity),
            Self::Leave(leave) => Subject::Member(&leave.identity),
        }
    }

    /// How long it may take.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        match self {
            Self::Acquire(acquire) => acquire.timeout,
            Self::Renew(renew) => renew.timeout,
            Self::Release(release) => release.timeout,
            Self::Timer(request) => request.timeout,
            Self::Heartbeat(heartbeat) => heartbeat.timeout,
            Self::Leave(leave) => leave.timeout,
        }
    }
}

impl From<Acquire> for Operation {
    fn from(acquire: Acquire) -> Self {
        Self::Acquire(acquire)
    }
}

impl From<Renew> for Operation {
    fn from(renew: Renew) -> Self {
        Self::Renew(renew)
    }
}

impl From<TimerRequest> for Operation {
    fn from(request: TimerRequest) -> Self {
        Self::Timer(request)
    }
}

impl From<Heartbeat> for Operation {
    fn from(heartbeat: Heartbeat) -> Self {
        Self::Heartbeat(heartbeat)
    }
}

impl From<Leave> for Operation {
    fn from(leave: Leave) -> Self {
        Self::Leave(leave)
    }
}

impl From<Release> for Operation {
    fn from(release: Release) -> Self {
        Self::Release(release)
    }
}

/// The answer to [`Acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the driver handles every one")]
pub enum Acquired {
    /// The asker has the lease, with its whole TTL ahead.
    Granted(Token),
    /// Another owner has it.
    Held(Holder),
}

/// The answer to [`Renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the driver handles every one")]
pub enum Renewed {
    /// Extended by the whole TTL.
    Renewed,
    /// The record is not this owner's with this token: it is gone, or somebody else's. Definite.
    NotYours,
}

/// The answer to [`Release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the driver handles every one")]
pub enum Released {
    /// Removed.
    Released {
        /// Whether waiters of other store handles were chosen to try next.
        others_chosen: bool,
    },
    /// There is no such record. Definite.
    NotYours,
}

/// The answer to one operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the driver handles every one")]
pub enum Answer {
    /// To [`Operation::Acquire`].
    Acquire(Acquired),
    /// To [`Operation::Renew`].
    Renew(Renewed),
    /// To [`Operation::Release`].
    Release(Released),
    /// To [`Operation::Timer`].
    Timer(TimerAnswer),
    /// To [`Operation::Heartbeat`].
    Heartbeat(Presence),
    /// To [`Operation::Leave`]: the instance is not listed.
    Leave,
}

impl Answer {
    /// What the core needs to know of it.
    #[must_use]
    pub fn event(&self, id: CommandId) -> Event {
        let reply = match self {
            Self::Acquire(Acquired::Granted(token)) | Self::Timer(TimerAnswer::Granted(token)) => {
                Reply::Granted { token: *token }
            }
            Self::Acquire(Acquired::Held(holder)) => {
                Reply::Held { token: holder.token, remaining: holder.remaining }
            }
            Self::Timer(TimerAnswer::Held { token, remaining }) => {
                Reply::Held { token: Some(*token), remaining: Some(*remaining) }
            }
            Self::Timer(TimerAnswer::Taken) => Reply::TickTaken,
            Self::Timer(TimerAnswer::Overlaps) => Reply::TickOverlaps,
            Self::Renew(Renewed::Renewed) | Self::Timer(TimerAnswer::Renewed) => Reply::Renewed,
            Self::Release(Released::Released { others_chosen }) => {
                Reply::Released { others_chosen: *others_chosen }
            }
            Self::Timer(TimerAnswer::Removed) => Reply::Released { others_chosen: false },
            Self::Renew(Renewed::NotYours)
            | Self::Release(Released::NotYours)
            | Self::Timer(TimerAnswer::NotYours) => Reply::NotYours,
            // It is made anew by reading it, which comes next.
            Self::Timer(TimerAnswer::Gone) => Reply::Failed(Failure::NotExecuted),
            Self::Timer(TimerAnswer::Read { view, at }) => {
                return Event::TimerRead { id, view: view.clone(), at: *at };
            }
            Self::Heartbeat(presence) => return Event::Present { id, presence: presence.clone() },
            Self::Leave => Reply::Left,
        };
        Event::Reply { id, reply }
    }
}

/// The outcome of one operation of a batch.
pub type Outcome = Result<Answer, StoreError>;

/// What is kept with a record for whoever inspects it; it decides nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Metadata {
    /// The holder's host name.
    pub host: Option<Arc<str>>,
    /// The holder's process id.
    pub pid: Option<u32>,
    /// A text of the user's choice, at most [`Metadata::MAX_TEXT_BYTES`].
    pub text: Option<Arc<str>>,
}

impl Metadata {
    /// The longest text: a record stays a small value on every store.
    pub const MAX_TEXT_BYTES: usize = 1024;

    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { host: None, pid: None, text: None }
    }
}

/// Who holds a lease, as far as the store's record tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as the store keeps it; `{instance}/{incarnation}.{n}`, or whatever a foreign program wrote.
    pub owner: String,
    /// The fencing token, if the record has one.
    pub token: Option<Token>,
    /// What remains of the TTL by the store's clock; `None` if the store can't say.
    pub remaining: Option<Duration>,
    /// The TTL that the holder asked for.
    pub ttl: Option<Duration>,
    /// When it was granted, by the wall clock.
    pub since: Option<SystemTime>,
    /// What the holder keeps with the record.
    pub metadata: Metadata,
    /// Why the record counts as held though it can't be read: a newer format, a foreign program's record.
    pub problem: Option<String>,
}

impl Holder {
    /// A holder of whom only the owner is known.
    #[must_use]
    pub fn new(owner: impl Into<String>) -> Self {
        Self {
            owner: owner.into(),
            token: None,
            remaining: None,
            ttl: None,
            since: None,
            metadata: Metadata::new(),
            problem: None,
        }
    }
}

/// A lease that is held, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseRecord {
    /// The lease.
    pub name: LeaseName,
    /// Who holds it.
    pub holder: Holder,
}

impl LeaseRecord {
    /// Who holds which lease.
    #[must_use]
    pub const fn new(name: LeaseName, holder: Holder) -> Self {
        Self { name, holder }
    }
}

/// How an operator takes a lease away from its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a store must carry out every one")]
pub enum Eviction {
    /// Replace the owner, so that the holder's renewals fail and it stops in time; the record keeps its
    /// remaining TTL, so nobody else starts before the holder must have stopped. Safe.
    Replace,
    /// Delete the record at once: another holder may start while this one still works. Only tokens protect.
    Delete,
}
