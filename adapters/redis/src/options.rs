//! Where the server is and how it is used: settings and URLs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
use tenure_store::core::ConfigError;

/// The settings of a [`RedisStore`](crate::RedisStore).
#[derive(Clone)]
pub struct RedisOptions {
    /// Where to connect to.
    pub(crate) target: Target,
    /// What all keys and channels begin with.
    pub(crate) prefix: Arc<str>,
    /// How long connecting may take, the handshakes included.
    pub(crate) connect_timeout: Duration,
    /// The largest step of the server's clock that is assumed.
    pub(crate) clock_step: Duration,
}

/// Which servers.
#[derive(Clone)]
pub(crate) enum Target {
    /// One server; whether it is a node of a Cluster is found out.
    Server(ConnectionInfo),
    /// Whichever server these Sentinels name as the primary.
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        /// How to connect to the primary; its address is that of a placeholder.
        server: ConnectionInfo,
    },
    /// A Cluster, some of whose nodes these are.
    Cluster(Vec<ConnectionInfo>),
}

impl RedisOptions {
    /// For a URL.
    ///
    /// # Errors
    /// [`ConfigError`] says which part of the URL is wrong.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        use redis::IntoConnectionInfo as _;
        let (plain, query) = url.split_once('?').unwrap_or((url, ""));
        let prefix = query.strip_prefix("prefix=").unwrap_or("tenure");
        let wrong = |_| ConfigError::new("the store's URL", "…".to_owned(), "must be one".to_owned());
        let info = plain.into_connection_info().map_err(wrong)?;
        Ok(Self {
            target: Target::Server(info),
            prefix: prefix.into(),
            connect_timeout: Duration::from_secs(5),
            clock_step: Duration::from_millis(100),
        })
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
