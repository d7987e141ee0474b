//! Which servers keep the store, and how to get at them: settings and URLs.

mod access;
mod endpoint;
mod given;
mod parse;
mod shown;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_store::core::ConfigError;

use access::{Access, Secret};
use endpoint::Address;
pub(crate) use endpoint::Endpoint;
use given::Own;

use crate::link::Given;

/// The settings of a [`RedisStore`](crate::RedisStore): which servers, how to get at them, what keys begin with.
///
/// ```
/// # use tenure_redis::{RedisOptions, RedisStore};
/// let options = RedisOptions::new("redis.example.org")?
///     .username("billing")
///     .password_file("/run/secrets/redis")
///     .tls()
///     .prefix("billing")?;
/// let store = RedisStore::new(options);
/// # Ok::<(), tenure_store::core::ConfigError>(())
/// ```
///
/// The same from a URL: [`from_url`](Self::from_url). What is in files and in the environment is read at each connect, so
/// that passwords and certificates may be replaced while the program runs. No secret shows in `Debug`, in an error or in a
/// log.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisOptions {
    servers: Servers,
    /// How to get at the servers that keep the data.
    access: Access,
    /// Who to be at the Sentinels.
    sentinel_username: Option<String>,
    sentinel_password: Option<Secret>,
    /// What all keys and channels begin with.
    pub(crate) prefix: Arc<str>,
    /// How long connecting may take, the handshakes included.
    pub(crate) connect_timeout: Duration,
    /// The largest step of the server's clock that is assumed.
    pub(crate) clock_step: Duration,
}

/// Where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Servers {
    One(Address),
    Sentinel {
        sentinels: Vec<Address>,
        service: String,
    },
    Cluster(Vec<Address>),
    /// Whatever the program's own client, or connection, leads to.
    Given(Own),
}

/// Which servers, and how to get at each.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// One server; whether it is a node of a Cluster is found out.
    Server(Endpoint),
    /// Whichever server these Sentinels name as the primary.
    Sentinel {
        sentinels: Vec<Endpoint>,
        service: String,
        /// How to get at the primary, which is [`at`](Endpoint::at) an address that they name.
        server: Endpoint,
    },
    /// A Cluster, some of whose nodes these are: at least one.
    Cluster(Vec<Endpoint>),
    /// Whatever this connection of the program leads to.
    Given(Arc<dyn Given>),
}

/// Where a server listens unless it is told otherwise.
const PORT: u16 = 6379;
/// The same for a Sentinel.
const SENTINEL_PORT: u16 = 26379;
/// The longest prefix, in bytes.
const LONGEST_PREFIX: usize = 100;

impl RedisOptions {
    /// For one server: `host`, `host:port` (an IPv6 address in brackets), or the absolute path of a unix socket. The port is
    /// 6379 unless given. If it turns out to be a node of a Cluster, the whole Cluster is used.
    ///
    /// # Errors
    /// [`ConfigError`] for an address that can't be one.
    pub fn new(address: impl AsRef<str>) -> Result<Self, ConfigError> {
        Ok(Self::of(Servers::One(address_of(address.as_ref(), PORT)?)))
    }

    /// For the server that Sentinels, of which these are some, call the primary of a service. Their port is 26379 unless
    /// given.
    ///
    /// # Errors
    /// [`ConfigError`] for an address that can't be one, for no address, and for a service without a name.
    pub fn sentinel(
        sentinels: impl IntoIterator<Item = impl AsRef<str>>,
        service: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let service = service.into();
        if service.is_empty() {
            return Err(ConfigError::new("the service", "\"\"".to_owned(), "must have a name".to_owned()));
        }
        Ok(Self::of(Servers::Sentinel { sentinels: addresses_of(sentinels, SENTINEL_PORT)?, service }))
    }

    /// For a Cluster, of which these are some nodes. The port is 6379 unless given.
    ///
    /// # Errors
    /// [`ConfigError`] for an address that can't be one, and for no address.
    pub fn cluster(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, ConfigError> {
        Ok(Self::of(Servers::Cluster(addresses_of(nodes, PORT)?)))
    }

    /// For a URL.
    ///
    /// | URL | servers |
    /// |---|---|
    /// | `redis://host:6379/0` | one server, or the Cluster that it is a node of |
    /// | `redis+unix:///path/to/redis.sock` | one server, by its unix socket |
    /// | `redis+sentinel://host1:26379,host2/service/0` | what Sentinels call the primary of `service` |
    /// | `redis+cluster://host1:6379,host2` | a Cluster |
    ///
    /// `valkey` in the place of `redis` is the same. With `rediss` or `valkeys` connections are encrypted by TLS (to
    /// Sentinels, too), and the server's certificate is checked. A user and a password stand before the hosts:
    /// `user:password@` or `:password@`, where all but letters, digits, `-`, `.`, `_` and `~` is best percent-encoded
    /// (`@` as `%40`). IPv6 addresses are in brackets. The number of the database is 0 unless given (always 0 in a Cluster).
    ///
    /// Parameters follow after `?`, joined by `&`, values percent-encoded:
    ///
    /// | parameter | |
    /// |---|---|
    /// | `prefix=billing` | what all keys begin with: [`prefix`](Self::prefix) |
    /// | `db=3` | the number of the database, another way to say it |
    /// | `username=user`, `password_file=/path`, `password_env=NAME` | who to be, with the secret apart from the URL |
    /// | `sentinel_username`, `sentinel_password_file`, `sentinel_password_env` | the same for the Sentinels, if they want it |
    /// | `ca=/path.pem` | the authorities that are trusted, instead of those of the system |
    /// | `cert=/path.pem`, `key=/path.pem` | the certificate to show to the server, and its private key |
    /// | `connect_timeout=5s` | [`connect_timeout`](Self::connect_timeout) |
    /// | `clock_step=100ms` | [`clock_step`](Self::clock_step) |
    ///
    /// # Errors
    /// [`ConfigError`] says which part is wrong, and shows nothing that may be a secret.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        parse::parse(url)
    }

    fn of(servers: Servers) -> Self {
        Self {
            servers,
            access: Access::default(),
            sentinel_username: None,
            sentinel_password: None,
            prefix: "tenure".into(),
            connect_timeout: Duration::from_secs(5),
            clock_step: Duration::from_millis(100),
        }
    }

    /// Who to be at the servers. Goes with a password; without a user's name that of the user `default` is given.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.access.username = Some(name.into());
        self
    }

    /// The password.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.access.password = Some(Secret::Text(password.into()));
        self
    }

    /// The password is the content of this file, without the end of its line.
    #[must_use]
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.access.password = Some(Secret::File(path.into()));
        self
    }

    /// The password is the value of this environment variable.
    #[must_use]
    pub fn password_env(mut self, name: impl Into<String>) -> Self {
        self.access.password = Some(Secret::Variable(name.into()));
        self
    }

    /// Who to be at the Sentinels. Default: nobody, as they mostly want no password.
    #[must_use]
    pub fn sentinel_username(mut self, name: impl Into<String>) -> Self {
        self.sentinel_username = Some(name.into());
        self
    }

    /// The Sentinels' password.
    #[must_use]
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Some(Secret::Text(password.into()));
        self
    }

    /// The Sentinels' password is the content of this file, without the end of its line.
    #[must_use]
    pub fn sentinel_password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.sentinel_password = Some(Secret::File(path.into()));
        self
    }

    /// The Sentinels' password is the value of this environment variable.
    #[must_use]
    pub fn sentinel_password_env(mut self, name: impl Into<String>) -> Self {
        self.sentinel_password = Some(Secret::Variable(name.into()));
        self
    }

    /// The number of the database. Default: 0, which is the only one in a Cluster.
    #[must_use]
    pub const fn database(mut self, number: u32) -> Self {
        self.access.database = number;
        self
    }

    /// What all keys and channels of the store begin with: 1 to 100 letters, digits, `_`, `-` and `.`. Default: `tenure`.
    /// Stores with different prefixes on one server know nothing of each other.
    ///
    /// # Errors
    /// [`ConfigError`] for another prefix.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        let prefix = prefix.as_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if prefix.is_empty() || prefix.len() > LONGEST_PREFIX || !prefix.chars().all(allowed) {
            let rule = format!("must have 1 to {LONGEST_PREFIX} letters, digits, _, - or .");
            return Err(ConfigError::new("the prefix of the store's keys", format!("{prefix:?}"), rule));
        }
        self.prefix = prefix.into();
        Ok(self)
    }

    /// Encrypts connections by TLS, to Sentinels too. The server's certificate must be valid, for the name or address by
    /// which the server is reached, and from an authority that this system trusts, unless [others](Self::ca_file) are given.
    ///
    /// The library rustls does it, with what the program installed as rustls' default provider of cryptography, else with
    /// `ring`, which then is installed as that.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.access.tls.get_or_insert_default();
        self
    }

    /// As [`tls`](Self::tls), with the authorities whose certificates are in this PEM file, and no others.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.access.tls.get_or_insert_default().ca = Some(path.into());
        self
    }

    /// As [`tls`](Self::tls), with a certificate to show to the server and its private key, both PEM files (mutual TLS).
    #[must_use]
    pub fn identity_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.access.tls.get_or_insert_default().identity = Some((certificate.into(), key.into()));
        self
    }

    /// How long connecting may take, from the name's look-up to the server's greeting. Default: 5 seconds. What is asked for
    /// meanwhile waits no longer than its own timeout, and connecting goes on.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The largest step of the server's clock, and offset between its clock and those of its replicas, that is assumed. It is
    /// taken off each lease's validity. Default: 100 milliseconds, for clocks that NTP keeps.
    #[must_use]
    pub const fn clock_step(mut self, step: Duration) -> Self {
        self.clock_step = step;
        self
    }

    /// Which servers, and how to get at each.
    pub(crate) fn target(&self) -> Target {
        let access = Arc::new(self.access.clone());
        let endpoint = |address: &Address| Endpoint::new(address.clone(), Arc::clone(&access));
        match &self.servers {
            Servers::One(address) => Target::Server(endpoint(address)),
            Servers::Cluster(nodes) => Target::Cluster(nodes.iter().map(endpoint).collect()),
            Servers::Given(Own::Client(server)) => Target::Server(server.clone()),
            Servers::Given(Own::Connection(connection)) => Target::Given(Arc::clone(connection)),
            Servers::Sentinel { sentinels, service } => {
                let sentinel = Arc::new(Access {
                    username: self.sentinel_username.clone(),
                    password: self.sentinel_password.clone(),
                    database: 0,
                    tls: self.access.tls.clone(),
                });
                let ask = |address: &Address| Endpoint::new(address.clone(), Arc::clone(&sentinel));
                Target::Sentinel {
                    sentinels: sentinels.iter().map(ask).collect(),
                    service: service.clone(),
                    server: endpoint(&sentinels[0]),
                }
            }
        }
    }
}

/// Shows where the servers are and no credentials, not even a user's name.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("servers", &self.servers)
            .field("database", &self.access.database)
            .field("tls", &self.access.tls.is_some())
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("clock_step", &self.clock_step)
            .finish_non_exhaustive()
    }
}

/// The address of a server that a program gives.
fn address_of(text: &str, port: u16) -> Result<Address, ConfigError> {
    // It may be a whole URL by mistake, with a password.
    let shown = if text.contains('@') { "…" } else { text };
    let refuse = |rule: &str| ConfigError::new("the address", format!("{shown:?}"), format!("must {rule}"));
    if text.starts_with('/') {
        return Address::socket(text.into()).map_err(|rule| refuse(&rule));
    }
    Address::parse(text, port).map_err(|rule| refuse(&rule))
}

fn addresses_of(
    texts: impl IntoIterator<Item = impl AsRef<str>>,
    port: u16,
) -> Result<Vec<Address>, ConfigError> {
    let refuse = |rule: &str| ConfigError::new("the address", "not given".to_owned(), rule.to_owned());
    let addresses: Vec<_> =
        texts.into_iter().map(|text| address_of(text.as_ref(), port)).collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err(refuse("must be given, one at least"));
    }
    Ok(addresses)
}
