//! Virtual time and faults, for the tests of programs that use Tenure.
//!
//! A [`Fleet`] runs instances of a program over one store in memory. Time stands still until the test lets it pass, so
//! "after 30 s the lease was lost" and "the tick at two in the morning ran once on three instances" are tests of some
//! milliseconds, that give the same result each time. Each instance is a process of its own: it can be frozen, crash, and
//! be cut off from the store, and what it asks of the store can be lost, late, repeated and refused. Each such [`Fault`] is
//! injected by its name.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//! use tenure::Tenure;
//! use tenure::testing::{Fault, Fleet};
//!
//! /// The program: one of its instances at a time does the work.
//! async fn program(tenure: Tenure, log: Arc<Mutex<Vec<String>>>) {
//!     let name = tenure.identity().instance().to_owned();
//!     let work = move |ctx: tenure::Ctx| {
//!         log.lock().unwrap().push(name.clone());
//!         async move {
//!             ctx.draining().await;
//!         }
//!     };
//!     tenure.worker("leader", work).start().unwrap().ended().await;
//! }
//!
//! let fleet = Fleet::new();
//! let log = Arc::default();
//! for name in ["blue", "green"] {
//!     fleet.spawn(name, program(fleet.start(name), Arc::clone(&log)));
//! }
//! fleet.advance(Duration::from_secs(60));
//! fleet.inject("blue", Fault::Frozen);
//! fleet.advance(Duration::from_secs(60));
//! assert_eq!(*log.lock().unwrap(), ["blue", "green"]);
//! ```
//!
//! What is tested this way must wait by Tenure's clock, which is [`Tenure::sleep`](tenure_driver::Tenure::sleep) and
//! [`Ctx::sleep`](tenure_driver::Ctx::sleep), or for other tasks; not by the timers, sockets and threads of a runtime,
//! since there is none. The deadlines of leases, timers and schedules are on that clock anyway. Channels and locks of any
//! crate work, as long as they need no runtime.

mod fault;
mod fleet;
mod link;
mod server;
mod store;
mod task;
mod wall;

pub use fault::{Fault, StoreFault, UnknownFault};
pub use fleet::Fleet;
pub use store::InstanceStore;
pub use task::{Crashed, Task};
/// Why a time on [`TestRuntime`] did not come.
pub use tenure_driver::testing::Stalled;
/// The runtime of an instance, as its [`Builder`](tenure_driver::Builder) has it.
pub use tenure_driver::testing::TestRuntime;
pub use wall::WallTime;
