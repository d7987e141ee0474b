//! A program's own client, or connection.

use std::fmt;
use std::sync::Arc;

use redis::Client;
use redis::aio::ConnectionLike;

use super::{Endpoint, RedisOptions, Servers};
use crate::link::Given;

/// What a program has of its own.
#[derive(Clone)]
pub(super) enum Own {
    /// Its client: it says how to connect.
    Client(Endpoint),
    /// Its connection, on which everything goes.
    Connection(Arc<dyn Given>),
}

impl RedisOptions {
    /// Connects as this client of the program does: to its address, with its login and its TLS. The connections are of the
    /// store's own, supervised and replaced as they are for a URL, and bring hints. What these options say of the server is
    /// ignored; its prefix, time-out and clock are not.
    ///
    /// ```
    /// # use tenure_redis::{RedisOptions, RedisStore, redis};
    /// let client = redis::Client::open("redis://localhost/")?;
    /// let store = RedisStore::new(RedisOptions::from_client(&client).prefix("billing")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn from_client(client: &Client) -> Self {
        Self::of(Servers::Given(Own::Client(client.get_connection_info().clone().into())))
    }

    /// Sends everything on this connection of the program: a `MultiplexedConnection`, a `ConnectionManager`, one to a
    /// Cluster, or whatever else carries commands and can be cloned.
    ///
    /// It is the program's in every way. The store neither replaces it nor closes it: one that is dead for good, as a
    /// `MultiplexedConnection` is once it was closed, makes every request fail, and what is held is lost when its TTL is
    /// over. Nothing can be pushed to the store, so there are no hints: waiters sleep until the TTL is over. Its own
    /// time-outs count besides those of each request, and its own retries must be off: what is sent again after a time-out may
    /// be executed twice. Requests must not be kept waiting by what else goes on it, such as blocking commands. Mostly
    /// [`from_client`](Self::from_client) is the better choice.
    #[must_use]
    pub fn from_connection(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        Self::of(Servers::Given(Own::Connection(Arc::new(connection))))
    }
}

/// Two that are the same, not two that are alike.
impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Client(one), Self::Client(other)) => one.is(other),
            (Self::Connection(one), Self::Connection(other)) => Arc::ptr_eq(one, other),
            (Self::Client(_) | Self::Connection(_), _) => false,
        }
    }
}

impl Eq for Own {}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(server) => write!(f, "Client({server})"),
            Self::Connection(_) => f.write_str("Connection"),
        }
    }
}
