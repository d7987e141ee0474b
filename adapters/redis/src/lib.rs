//! Redis and Valkey as a store of Tenure.
//!
//! ```
//! use tenure_redis::RedisStore;
//! let store = RedisStore::from_url("redis://user:p%40ss@localhost:6379/0?prefix=billing")?;
//! # Ok::<(), tenure_store::core::ConfigError>(())
//! ```

// With neither runtime there is nothing here. The attribute stands at each item: at the crate it would take the
// documentation along.
#[cfg(any(feature = "tokio", feature = "smol"))]
mod batch;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod client;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod cluster;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod connect;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod error;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod greeting;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod keys;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod leases;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod link;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod looking;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod members;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod node;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod options;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod record;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod reply;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod runs;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod script;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod sentinel;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod server;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod sleep;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod store;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod tags;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod timers;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod watch;

#[cfg(any(feature = "tokio", feature = "smol"))]
pub use options::RedisOptions;
#[cfg(any(feature = "tokio", feature = "smol"))]
pub use redis;
#[cfg(any(feature = "tokio", feature = "smol"))]
pub use store::RedisStore;
