//! Bugs for tests to plant into the core, so as to see that each of them would be found.
//!
//! Only a build with `RUSTFLAGS="--cfg tenure_planted"` can have any. In every other one [`planted`] is a constant
//! `false`, of which the compiler leaves nothing.

#![cfg_attr(not(tenure_planted), allow(unreachable_pub, reason = "it is public with the cfg alone"))]

#[cfg(tenure_planted)]
use core::sync::atomic::{AtomicUsize, Ordering};

macro_rules! bugs {
    ($($(#[doc = $says:literal])* $bug:ident,)*) => {
        /// A bug that can be planted. Without a place in the core it is a warning: never constructed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(tenure_planted, expect(clippy::exhaustive_enums, reason = "each is to be looked for"))]
        pub enum Bug {
            $($(#[doc = $says])* $bug,)*
        }

        #[cfg(tenure_planted)]
        impl Bug {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$bug),*];
        }
    };
}

bugs! {
    /// Requests have one of two ids in turn, so that a new one has that of an older one.
    RequestIdsWrap,
    /// Validity is counted from when the reply came, not from when the request was emitted.
    ValidityFromReply,
    /// A reply is taken in before what was due when it came, so that a process that was paused does not fence first.
    ReplyBeforeDeadline,
    /// V is the whole TTL: no margin for clocks that drift, nor for the store's grain and steps.
    NoMargin,
    /// What failed is tried again after a millisecond, however often it has failed. Time goes on even so, so that a
    /// simulation under it ends, and can count.
    NoBackoff,
    /// Each machine draws its jitter once and uses it for every delay.
    JitterDrawnOnce,
    /// A renewal that is answered with "not yours" is tried again, and the work goes on.
    NotYoursIgnored,
    /// A grant to an acquisition that is over is dropped and not given back: an orphan until its TTL is over.
    LateGrantDropped,
    /// The store is not told which tokens were seen.
    FloorNotSent,
    /// A grant counts though its token is not above those that were seen.
    FloorNotChecked,
    /// The release is sent when the work is asked to stop, not when it has ended.
    ReleasedBeforeEnd,
    /// A waiter does not look again once its watch is confirmed, and misses what happened just before.
    NoLookAfterWatch,
    /// A renewal makes a lease valid again whose work was asked to stop, or that is lost.
    RenewalRevives,
    /// A workload is started though its lease has come to be stopped since the grant.
    StartedThoughInvalid,
    /// A workload is started twice under one grant.
    StartedTwice,
    /// A worker does not rest between its runs.
    NoRest,
    /// A worker whose workload is told to end goes on to its next candidacy before it has.
    CampaignsBeforeExit,
    /// After a failure a worker rests for ever: it never gets a lease again, and says nothing of it.
    RestsForever,
    /// A tick is delivered twice.
    TickTwice,
    /// A tick is delivered once the high end of the interval in which the store's time lies has reached it.
    TickEarly,
    /// The next tick is due a period after the one before was delivered, whatever the schedule says.
    TickFromNow,
    /// Each instance counts a timer's ticks from when it has read the record first.
    PhasePerInstance,
    /// A run starts before the store has granted the claim of its tick.
    ClaimNotWaitedFor,
    /// A claim is ended as not started, though its run has ended.
    FinishedAsNotStarted,
    /// A timer whose clock has stepped back is not based anew.
    NotRebased,
    /// A member counts for the plan from its first heartbeat on.
    NoHoldDown,
    /// Members count for each other whatever they say that they share out.
    DigestIgnored,
    /// An instance that drains counts for the plan, and starts what belongs to it.
    AssignedWhileDraining,
    /// An instance that has left says that it is there.
    BeatsAfterLeave,
    /// An instance that shuts down leaves before its work has ended.
    LeavesFirst,
}

/// Plants a bug into all machines of this process, in place of the one before; `None` takes it out again.
///
/// Tests that plant must not run beside others of their process.
#[cfg(tenure_planted)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(NOTHING, |bug| bug as usize), Ordering::Relaxed);
}

/// Whether this bug is planted.
#[cfg(tenure_planted)]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as usize
}

/// Whether this bug is planted.
#[cfg(not(tenure_planted))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

#[cfg(tenure_planted)]
const NOTHING: usize = usize::MAX;

#[cfg(tenure_planted)]
static PLANTED: AtomicUsize = AtomicUsize::new(NOTHING);
