//! From a URL to a store.

use tenure_driver::AnyStore;
use tenure_driver::core::ConfigError;

/// The store that a URL names. Nothing is connected or opened yet.
///
/// | URL | store | feature |
/// |---|---|---|
/// | `memory:` | in this process, empty at each call | `memory` |
/// | `sqlite:/path/to/file.db` | in a file, for all processes of this machine that may open it; it is made for its owner alone | `sqlite` |
/// | `embedded:app` | in the file of a program named `app`, below the user's state directory: for the processes of one user | `sqlite` |
/// | `redis://host:6379/0` | on a Redis or Valkey server, or in the Cluster that it is a node of; `rediss://` with TLS, `redis+unix:///path.sock` by a unix socket | `redis` |
/// | `redis+sentinel://host1,host2/service` | on the server that Sentinels call the primary | `redis` |
/// | `redis+cluster://host1,host2` | in a Redis or Valkey Cluster | `redis` |
/// | `nats://host1,host2?bucket=tenure&replicas=3` | in a bucket of NATS JetStream; `tls://` with TLS | `nats` |
///
#[cfg_attr(
    all(feature = "redis", any(feature = "tokio", feature = "smol")),
    doc = "All that a URL of Redis can say is at [`RedisOptions::from_url`](crate::RedisOptions::from_url).\n"
)]
#[cfg_attr(
    feature = "nats",
    doc = "All that a URL of NATS can say is at [`NatsOptions::from_url`](crate::NatsOptions::from_url).\n"
)]
/// # Errors
/// [`ConnectError`]. It never shows what may be a secret.
pub fn store(url: &str) -> Result<AnyStore, ConnectError> {
    // Of a URL that is not understood only the scheme is shown: the rest may hold a password.
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(ConnectError::NoScheme { known: KNOWN });
    };
    match scheme.to_ascii_lowercase().as_str() {
        "memory" => memory(rest),
        "sqlite" => sqlite(url),
        "embedded" => embedded_store(rest),
        "nats" | "tls" => nats(url),
        other if is_redis(other) => redis(url),
        _ => Err(ConnectError::UnknownScheme { scheme: presentable(scheme), known: KNOWN }),
    }
}

/// What is shown of a scheme: a URL without one may begin with anything.
fn presentable(scheme: &str) -> String {
    let well_formed = scheme.len() <= 20
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if well_formed { scheme.to_owned() } else { "(not a scheme)".to_owned() }
}

const KNOWN: &str = "memory:, sqlite:/path/to/file.db, embedded:app, redis://host (rediss: with TLS, valkey: likewise), \
     redis+unix:///path.sock, redis+sentinel://host1,host2/service, redis+cluster://host1,host2 and nats://host1,host2 (tls: with TLS)";

/// Whether a scheme, in small letters, is one of Redis: whoever misspells what follows after the + is to be told what
/// there is by those who know.
fn is_redis(scheme: &str) -> bool {
    let name = scheme.split_once('+').map_or(scheme, |(name, _)| name);
    matches!(name, "redis" | "rediss" | "valkey" | "valkeys")
}

#[cfg(feature = "memory")]
fn memory(rest: &str) -> Result<AnyStore, ConnectError> {
    if !rest.is_empty() {
        let rule = "must be just memory:, it has no path or name".to_owned();
        return Err(
            ConfigError::new("the store's URL", "memory: with something after it".to_owned(), rule).into()
        );
    }
    Ok(AnyStore::new(tenure_memory::MemoryStore::new()))
}

#[cfg(not(feature = "memory"))]
fn memory(_rest: &str) -> Result<AnyStore, ConnectError> {
    Err(ConnectError::NotBuiltIn { scheme: "memory", feature: "memory" })
}

#[cfg(all(feature = "sqlite", unix))]
fn sqlite(url: &str) -> Result<AnyStore, ConnectError> {
    let options = tenure_sqlite::SqliteOptions::from_url(url)?;
    Ok(AnyStore::new(tenure_sqlite::SqliteStore::new(options)))
}

#[cfg(not(all(feature = "sqlite", unix)))]
fn sqlite(_url: &str) -> Result<AnyStore, ConnectError> {
    Err(ConnectError::NotBuiltIn { scheme: "sqlite", feature: "sqlite" })
}

/// The store of `embedded:app`.
#[cfg(all(feature = "sqlite", unix))]
pub(crate) fn embedded_store(app: &str) -> Result<AnyStore, ConnectError> {
    let options = tenure_sqlite::SqliteOptions::for_app(app)?;
    Ok(AnyStore::new(tenure_sqlite::SqliteStore::new(options)))
}

#[cfg(not(all(feature = "sqlite", unix)))]
pub(crate) fn embedded_store(_app: &str) -> Result<AnyStore, ConnectError> {
    Err(ConnectError::NotBuiltIn { scheme: "embedded", feature: "sqlite" })
}

#[cfg(all(feature = "redis", any(feature = "tokio", feature = "smol")))]
fn redis(url: &str) -> Result<AnyStore, ConnectError> {
    let options = tenure_redis::RedisOptions::from_url(url)?;
    Ok(AnyStore::new(tenure_redis::RedisStore::new(options)))
}

#[cfg(not(all(feature = "redis", any(feature = "tokio", feature = "smol"))))]
fn redis(_url: &str) -> Result<AnyStore, ConnectError> {
    let feature = if cfg!(feature = "redis") { "tokio` or `smol" } else { "redis" };
    Err(ConnectError::NotBuiltIn { scheme: "redis", feature })
}

#[cfg(feature = "nats")]
fn nats(url: &str) -> Result<AnyStore, ConnectError> {
    let options = tenure_nats::NatsOptions::from_url(url)?;
    Ok(AnyStore::new(tenure_nats::NatsStore::new(options)))
}

#[cfg(not(feature = "nats"))]
fn nats(_url: &str) -> Result<AnyStore, ConnectError> {
    Err(ConnectError::NotBuiltIn { scheme: "nats", feature: "nats" })
}

/// A store that can't be had from its URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text does not begin with a scheme and a colon.
    #[error("the store's URL has no scheme; known are {known}")]
    NoScheme {
        /// The forms that are known.
        known: &'static str,
    },
    /// No store has this scheme.
    #[error("the scheme {scheme:?} of the store's URL is not known; known are {known}")]
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// The forms that are known.
        known: &'static str,
    },
    /// The program was built without this store.
    #[error(
        "the store {scheme}: is not built in here: it needs the feature `{feature}` of the crate `tenure`"
    )]
    NotBuiltIn {
        /// The scheme.
        scheme: &'static str,
        /// The feature that brings the store.
        feature: &'static str,
    },
    /// Part of the URL can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The driver could not be started.
    #[error(transparent)]
    Start(#[from] tenure_driver::StartError),
}

#[cfg(test)]
mod tests;
