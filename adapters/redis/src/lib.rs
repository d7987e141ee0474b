#![cfg(any(feature = "tokio", feature = "smol"))]
//! Redis and Valkey as a store of Tenure.
//!
//! ```
//! use tenure_redis::RedisStore;
//! let store = RedisStore::from_url("redis://user:p%40ss@localhost:6379/0?prefix=billing")?;
//! # Ok::<(), tenure_store::core::ConfigError>(())
//! ```

mod batch;
mod client;
mod cluster;
mod connect;
mod error;
mod greeting;
mod json;
mod keys;
mod leases;
mod link;
mod looking;
mod members;
mod node;
mod options;
mod record;
mod reply;
mod runs;
mod script;
mod sentinel;
mod server;
mod sleep;
mod store;
mod tags;
mod timers;
mod watch;

pub use options::RedisOptions;
pub use redis;
pub use store::RedisStore;
