//! The embedded store of Tenure: several processes on one machine, no server.

#[cfg(not(unix))]
compile_error!("tenure-sqlite works on Unix systems only: it needs flock(2) and a clock that counts suspend");

mod clock;
mod database;
mod error;
mod events;
mod file;
mod hints;
mod liveness;
mod options;
mod queue;
mod record;
mod schema;
mod store;
mod tx;
mod watcher;
mod worker;

pub use options::SqliteOptions;
pub use store::SqliteStore;
