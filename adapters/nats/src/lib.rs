//! NATS JetStream as a store of Tenure: a key-value bucket with all records.
//!
//! ```
//! use tenure_nats::NatsStore;
//! let store = NatsStore::from_url("nats://user:p%40ss@one,two,three?bucket=billing&replicas=3")?;
//! # Ok::<(), tenure_store::core::ConfigError>(())
//! ```

mod batch;
mod bucket;
mod client;
mod connection;
mod error;
mod leases;
mod link;
mod looking;
mod members;
mod names;
mod options;
mod record;
mod runs;
mod store;
mod timers;
mod times;
mod watch;

pub use options::NatsOptions;
pub use store::NatsStore;
