//! What most programs name: `use tenure::prelude::*;`.
//!
//! The handles, what work gets to know, the settings that are chosen most often, and the errors that programs tell apart.
//! All of it is also at the root of the crate. The handles are those of async programs: the module `blocking` has its own, of
//! the same names. It grows only by names that are unlikely to be another's.
//!
#![cfg_attr(all(feature = "tokio", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "tokio", feature = "memory")), doc = "```ignore")]
//! use tenure::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = tenure::connect("memory:").await?;
//! let worker: Worker = tenure
//!     .worker("queue", |ctx: Ctx| async move {
//!         ctx.draining().await;
//!     })
//!     .restart(Restart::OnFailure)
//!     .start()?;
//! worker.drain().await?;
//! tenure.shutdown().await?;
//! # Ok(())
//! # }
//! ```

pub use crate::{
    AcquireError, Balanced, Coordinator, Ctx, DueTick, Jobs, Lease, LeaseConfig, Lost, Missed, Overlap,
    Periodic, Primary, Rebalance, Rendezvous, Restart, StopReason, Tenure, Timer, Token, Worker,
};
#[cfg(feature = "cron")]
pub use tenure_cron::Cron;
