//! What a command runs under: a lease, or the claim of a tick.

use std::fmt;

use futures::future::BoxFuture;
use tenure::{Ctx, Deadlines, Lease, LostReason, Renewals, StopReason, Token};

/// A lease that is held, or a run of the driver's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hold<'a> {
    /// A lease.
    Lease(&'a Lease),
    /// A run of a periodic job, and so the claim of its tick.
    Run(&'a Ctx),
    /// The work of a workload, and so its lease.
    Work(&'a Ctx),
}

impl<'a> Hold<'a> {
    /// Of a run that the driver has started.
    pub(crate) fn of(ctx: &'a Ctx) -> Self {
        if ctx.tick().is_some() { Self::Run(ctx) } else { Self::Work(ctx) }
    }
}

impl Hold<'_> {
    pub(crate) fn token(&self) -> Token {
        match self {
            Self::Lease(lease) => lease.token(),
            Self::Run(ctx) | Self::Work(ctx) => ctx.token(),
        }
    }

    pub(crate) fn owner(&self) -> String {
        match self {
            Self::Lease(lease) => lease.owner(),
            Self::Run(ctx) | Self::Work(ctx) => ctx.owner(),
        }
    }

    pub(crate) fn deadlines(&self) -> Deadlines {
        match self {
            Self::Lease(lease) => lease.deadlines(),
            Self::Run(ctx) | Self::Work(ctx) => ctx.deadlines(),
        }
    }

    pub(crate) fn renewals(&self) -> Renewals {
        match self {
            Self::Lease(lease) => lease.renewals(),
            Self::Run(ctx) | Self::Work(ctx) => ctx.renewals(),
        }
    }

    /// Waits until the command must have ended.
    pub(crate) fn lost(&self) -> BoxFuture<'static, LostReason> {
        match self {
            Self::Lease(lease) => {
                let lost = lease.lost();
                Box::pin(async { lost.await.why })
            }
            Self::Run(ctx) | Self::Work(ctx) => Box::pin(ctx.lost()),
        }
    }

    /// Waits until the command is asked to end.
    pub(crate) fn stopping(&self) -> BoxFuture<'static, StopReason> {
        match self {
            Self::Lease(lease) => Box::pin(lease.stopping()),
            Self::Run(ctx) | Self::Work(ctx) => Box::pin(ctx.draining()),
        }
    }

    /// What to call the command: several may run at once, but for `tenure run`.
    pub(crate) fn command(&self) -> String {
        match self {
            Self::Lease(_) => "the command".to_owned(),
            Self::Run(ctx) => format!("the command of tick {}", tick(ctx)),
            Self::Work(ctx) => format!("the command of {:?}", ctx.name()),
        }
    }

    /// Why the command is killed at its last moment.
    pub(crate) const fn ends(&self) -> &'static str {
        match self {
            Self::Lease(_) | Self::Work(_) => "the lease ends",
            Self::Run(_) => "the claim ends",
        }
    }
}

/// The number of a run's tick. Every run of a periodic job has one.
pub(crate) fn tick(ctx: &Ctx) -> u64 {
    ctx.tick().map_or(0, |due| due.tick.n)
}

impl fmt::Display for Hold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(lease) => write!(f, "lease {:?}", lease.name().as_str()),
            Self::Work(ctx) => write!(f, "lease {:?}", ctx.name()),
            Self::Run(ctx) => write!(f, "the claim of tick {} of {:?}", tick(ctx), ctx.name()),
        }
    }
}
