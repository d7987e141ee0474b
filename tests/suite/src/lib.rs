//! What every runtime of Tenure has to pass.
//!
//! The suite knows a runtime by its [`Host`] alone; each runtime's crate brings its hosts, and runs the suite in a build of
//! its own.

mod counted;
pub mod dropping;
mod host;
pub mod idle;
pub mod leaks;
mod waiting;

pub use counted::{Counted, CountedAlarm, Counts};
pub use host::Host;
