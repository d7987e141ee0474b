//! Servers of one's own, and faults between them and Tenure, for its tests.
//!
//! - [`Redis`]: a server of Redis or Valkey alone; killed, frozen, started again.
//! - [`Sentinel`]: a primary and a replica with the sentinels that watch them.
//! - [`Cluster`]: primaries that share the slots, and their replicas.
//! - [`Nats`], [`NatsCluster`]: a server of NATS alone, and three that keep a stream together.
//! - [`Client`], [`NatsClient`]: a client that knows nothing of Tenure, nor of the library that its adapter is built on.
//! - `candidate`, with the feature `stores`: candidates for leases, and whatever else the tests of stores do.
//! - [`Proxy`]: what can go wrong between a program and a server.
//!
//! Each server runs on a port of its own on the loopback interface, in a temporary folder of its own, and ends with
//! the test, even if that is killed. Nothing here is for use outside of tests: what fails, panics and says why.

#![cfg(unix)]
#![forbid(unsafe_code)]

#[cfg(feature = "stores")]
pub mod candidate;
mod certificates;
mod client;
mod cluster;
mod nats;
mod nats_client;
mod port;
mod program;
mod proxy;
mod redis;
mod sentinel;
mod time;

pub use certificates::Certificates;
pub use client::{Client, Reply};
pub use cluster::Cluster;
pub use nats::{Nats, NatsCluster, NatsConfig};
pub use nats_client::{NatsClient, NatsMessage};
pub use proxy::{Direction, Proxy};
pub use redis::{Config, Flavour, Redis};
pub use sentinel::Sentinel;
pub use time::{LIMIT, eventually};
