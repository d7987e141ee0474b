//! Which servers keep the store, and how to get at them: settings and URLs.

mod access;
mod address;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_store::core::ConfigError;

pub(crate) use access::Access;
use access::{Login, Secret};
pub(crate) use address::Address;

/// The settings of a [`NatsStore`](crate::NatsStore): which servers, how to get at them, which bucket.
///
/// ```
/// # use tenure_nats::{NatsOptions, NatsStore};
/// let options = NatsOptions::new(["one.example.org", "two.example.org"])?
///     .credentials_file("/run/secrets/tenure.creds")
///     .tls()
///     .bucket("billing")?
///     .replicas(3)?;
/// let store = NatsStore::new(options);
/// # Ok::<(), tenure_store::core::ConfigError>(())
/// ```
///
/// The same from a URL: [`from_url`](Self::from_url). What is in files and in the environment is read at each connect, so
/// that passwords and certificates may be replaced while the program runs. No secret shows in `Debug`, in an error or in a
/// log.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsOptions {
    pub(crate) servers: Vec<Address>,
    /// How to get at them.
    pub(crate) access: Access,
    /// Where all records are.
    pub(crate) bucket: Arc<str>,
    /// How many servers keep a bucket that is made.
    pub(crate) replicas: u8,
    /// What the subjects begin with on which answers come.
    pub(crate) inbox_prefix: Option<String>,
    /// How long connecting may take, the look at the bucket included.
    pub(crate) connect_timeout: Duration,
    /// The largest step of the server's clock that is assumed.
    pub(crate) clock_step: Duration,
}

/// Where a server listens unless it is told otherwise.
const PORT: u16 = 4222;
/// The longest name of a bucket, in bytes.
const LONGEST_BUCKET: usize = 100;

impl NatsOptions {
    /// For these servers, of which one is used at a time: `host` or `host:port` (an IPv6 address in brackets). The port is
    /// 4222 unless given. Other servers of their cluster are learned from them.
    ///
    /// # Errors
    /// [`ConfigError`] for an address that can't be one, and for no address.
    pub fn new(servers: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, ConfigError> {
        let servers: Vec<_> =
            servers.into_iter().map(|text| address_of(text.as_ref())).collect::<Result<_, _>>()?;
        if servers.is_empty() {
            let rule = "must be given, one at least".to_owned();
            return Err(ConfigError::new("the address", "not given".to_owned(), rule));
        }
        Ok(Self::of(servers))
    }

    /// For a URL: `nats://host:4222`, or several as in `nats://one,two:4223,three`; `tls` in the place of `nats` encrypts
    /// connections. A user and a password stand before the hosts, `user:password@`, where all but letters, digits, `-`,
    /// `.`, `_` and `~` is best percent-encoded (`@` as `%40`). IPv6 addresses are in brackets.
    ///
    /// Parameters follow after `?`, joined by `&`, values percent-encoded:
    ///
    /// | parameter | |
    /// |---|---|
    /// | `bucket=billing` | where all records are: [`bucket`](Self::bucket) |
    /// | `replicas=3` | how many servers keep it: [`replicas`](Self::replicas) |
    /// | `username=user`, `password_file=/path`, `password_env=NAME` | who to be, with the secret apart from the URL |
    /// | `token_file=/path`, `token_env=NAME` | the same where servers want a token |
    /// | `creds=/path` | [`credentials_file`](Self::credentials_file) |
    /// | `nkey=/path` | [`nkey_file`](Self::nkey_file) |
    /// | `ca=/path.pem` | the authorities that are trusted, instead of those of the system |
    /// | `cert=/path.pem`, `key=/path.pem` | the certificate to show to the server, and its private key |
    /// | `inbox_prefix=_INBOX_billing` | [`inbox_prefix`](Self::inbox_prefix) |
    /// | `connect_timeout=5s` | [`connect_timeout`](Self::connect_timeout) |
    /// | `clock_step=250ms` | [`clock_step`](Self::clock_step) |
    ///
    /// # Errors
    /// [`ConfigError`] says which part is wrong, and shows nothing that may be a secret.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        parse::parse(url)
    }

    fn of(servers: Vec<Address>) -> Self {
        Self {
            servers,
            access: Access::default(),
            bucket: "tenure".into(),
            replicas: 1,
            inbox_prefix: None,
            connect_timeout: Duration::from_secs(5),
            clock_step: Duration::from_millis(250),
        }
    }

    /// Be this user.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.access.login = Login::User(name.into(), Secret::Text(password.into()));
        self
    }

    /// Be this user, whose password is the content of this file, without the end of its line.
    #[must_use]
    pub fn user_with_password_file(mut self, name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.access.login = Login::User(name.into(), Secret::File(path.into()));
        self
    }

    /// Be whoever has this token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.access.login = Login::Token(Secret::Text(token.into()));
        self
    }

    /// Be the user of this file, as `nsc` writes it: a JWT and the seed of a key.
    #[must_use]
    pub fn credentials_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.access.login = Login::Credentials(path.into());
        self
    }

    /// Be the user with this key, whose seed (`SU…`) is the content of this file.
    #[must_use]
    pub fn nkey_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.access.login = Login::Nkey(Secret::File(path.into()));
        self
    }

    /// The key-value bucket that has all records: 1 to 100 letters, digits, `_` and `-`. Default: `tenure`. It is made if
    /// there is none. Stores with different buckets know nothing of each other.
    ///
    /// # Errors
    /// [`ConfigError`] for another name.
    pub fn bucket(mut self, bucket: impl AsRef<str>) -> Result<Self, ConfigError> {
        let bucket = bucket.as_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if bucket.is_empty() || bucket.len() > LONGEST_BUCKET || !bucket.chars().all(allowed) {
            let rule = format!("must have 1 to {LONGEST_BUCKET} letters, digits, _ or -");
            return Err(ConfigError::new("the bucket of the store", format!("{bucket:?}"), rule));
        }
        self.bucket = bucket.into();
        Ok(self)
    }

    /// How many servers of a cluster keep the bucket when it is made: 1 to 5. Default: 1. With 3, one may fail. A bucket that
    /// is there is never changed.
    ///
    /// # Errors
    /// [`ConfigError`] for another number.
    pub fn replicas(mut self, replicas: u8) -> Result<Self, ConfigError> {
        if !(1..=5).contains(&replicas) {
            let rule = "must be from 1 to 5, best 1, 3 or 5".to_owned();
            return Err(ConfigError::new("the number of replicas", replicas.to_string(), rule));
        }
        self.replicas = replicas;
        Ok(self)
    }

    /// Encrypts connections by TLS. The server's certificate must be valid, for the name or address by which the server is
    /// reached, and from an authority that this system trusts, unless [others](Self::ca_file) are given.
    ///
    /// The library rustls does it, with what the program installed as rustls' default provider of cryptography, else with
    /// `ring`, which then is installed as that. A server that wants TLS gets it also without this setting; with it, none is
    /// spoken to that does not.
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

    /// What the subjects begin with on which answers come, where a user may listen to no other: letters, digits, `_`, `-`
    /// and single dots between them. Default: `_INBOX`.
    ///
    /// # Errors
    /// [`ConfigError`] for another text.
    pub fn inbox_prefix(mut self, prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        let prefix = prefix.as_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if prefix.len() > LONGEST_BUCKET
            || prefix.split('.').any(|part| part.is_empty() || !part.chars().all(allowed))
        {
            let rule = "must have letters, digits, _, - and single dots between them".to_owned();
            return Err(ConfigError::new("the prefix of the inboxes", format!("{prefix:?}"), rule));
        }
        self.inbox_prefix = Some(prefix.to_owned());
        Ok(self)
    }

    /// How long connecting may take, from the name's look-up to the look at the bucket. Default: 5 seconds. What is asked
    /// for meanwhile waits no longer than its own timeout, and connecting goes on.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The largest step of the clock by which records end that is assumed: of a server's clock, and from one server of a
    /// cluster to another. It is taken off each lease's validity. Default: 250 milliseconds, for clocks that NTP keeps.
    #[must_use]
    pub const fn clock_step(mut self, step: Duration) -> Self {
        self.clock_step = step;
        self
    }
}

/// Shows where the servers are and no credentials, not even a user's name.
impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("servers", &self.servers)
            .field("tls", &self.access.tls.is_some())
            .field("bucket", &self.bucket)
            .field("replicas", &self.replicas)
            .field("connect_timeout", &self.connect_timeout)
            .field("clock_step", &self.clock_step)
            .finish_non_exhaustive()
    }
}

/// Shows where the servers are as a URL without credentials and parameters, such as `tls://one:4222,two:4222`.
impl fmt::Display for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.access.tls.is_some() { "tls://" } else { "nats://" })?;
        for (index, server) in self.servers.iter().enumerate() {
            write!(f, "{}{server}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The address of a server that a program gives.
fn address_of(text: &str) -> Result<Address, ConfigError> {
    // It may be a whole URL by mistake, with a password.
    let shown = if text.contains('@') { "…" } else { text };
    Address::parse(text, PORT)
        .map_err(|rule| ConfigError::new("the address", format!("{shown:?}"), format!("must {rule}")))
}
