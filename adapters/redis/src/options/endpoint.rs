//! A server's address, and all that connecting to it takes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion, RedisConnectionInfo};
use rustls::crypto::CryptoProvider;
use tenure_store::StoreError;
use tenure_store::url::host_and_port;

use super::access::Access;

/// Where a server is.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A name or an IP address, the latter without brackets.
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Address {
    /// Takes `host` or `host:port`. An error is the rule that is broken, and shows nothing of the text, which may be a password
    /// that is in the wrong place.
    pub(super) fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let (host, port) = host_and_port(text, default_port)?;
        Ok(Self::Tcp(host, port))
    }

    /// The socket at this path.
    pub(super) fn socket(path: PathBuf) -> Result<Self, String> {
        if !path.is_absolute()
            || path.file_name().is_none()
            || path.as_os_str().as_encoded_bytes().ends_with(b"/")
        {
            return Err("have the absolute path of a unix socket".to_owned());
        }
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err("have no zero byte in the path".to_owned());
        }
        Ok(Self::Unix(path))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A server and how to get at it. Shows itself as its address.
#[derive(Clone)]
pub(crate) struct Endpoint {
    address: Address,
    access: How,
}

#[derive(Clone)]
enum How {
    /// By these settings, which are read at each connect.
    Ours(Arc<Access>),
    /// As a program's own client does.
    Given(Arc<ConnectionInfo>),
}

impl Endpoint {
    pub(super) const fn new(address: Address, access: Arc<Access>) -> Self {
        Self { address, access: How::Ours(access) }
    }

    /// The same, at another host: one that a Sentinel or a node of the Cluster named. An IPv6 address has no brackets.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        Self { address: Address::Tcp(host.to_owned(), port), access: self.access.clone() }
    }

    /// What to ask about a server that accepts a connection and then says nothing.
    pub(crate) fn mends_silence(&self) -> &'static str {
        let tls = match &self.access {
            How::Ours(access) => access.tls.is_some(),
            How::Given(info) => matches!(info.addr(), ConnectionAddr::TcpTls { .. }),
        };
        if tls {
            "; does it speak TLS on this port? Without TLS the URL has one s less: redis://"
        } else {
            ""
        }
    }

    /// Whether it comes from the same settings.
    pub(super) fn is(&self, other: &Self) -> bool {
        let same = match (&self.access, &other.access) {
            (How::Ours(one), How::Ours(other)) => Arc::ptr_eq(one, other),
            (How::Given(one), How::Given(other)) => Arc::ptr_eq(one, other),
            (How::Ours(_) | How::Given(_), _) => false,
        };
        same && self.address == other.address
    }

    /// Its host, without brackets, and its port; of a unix socket the path and zero.
    pub(crate) fn host_and_port(&self) -> (String, u16) {
        match &self.address {
            Address::Tcp(host, port) => (host.clone(), *port),
            Address::Unix(path) => (path.display().to_string(), 0),
        }
    }

    /// The number of the database.
    pub(crate) fn database(&self) -> i64 {
        match &self.access {
            How::Ours(access) => access.database.into(),
            How::Given(info) => info.redis_settings().db(),
        }
    }

    /// All that connecting takes. Passwords and certificates are read from their files now.
    ///
    /// # Errors
    /// [`Rejected`](tenure_store::StoreErrorKind::Rejected) names the file that can't be read, or the setting that does not
    /// fit.
    pub(crate) fn connection_info(&self) -> Result<ConnectionInfo, StoreError> {
        let access = match &self.access {
            How::Ours(access) => access,
            How::Given(info) => return Ok(self.as_given(info)),
        };
        let client = |error: redis::RedisError| StoreError::rejected(format!("{self}: {error}"));
        let tls = match (&self.address, &access.tls) {
            (Address::Unix(_), Some(_)) => {
                return Err(StoreError::rejected(format!("there is no TLS on a unix socket: {self}")));
            }
            (_, tls) => tls.as_ref(),
        };
        let address = match &self.address {
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
            Address::Tcp(host, port) if tls.is_none() => ConnectionAddr::Tcp(host.clone(), *port),
            Address::Tcp(host, port) => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
        };
        let mut info = address.into_connection_info().map_err(client)?;
        if let Some(tls) = tls {
            provide_cryptography();
            if let Some(certificates) = tls.certificates()? {
                let client = redis::Client::build_with_tls(info, certificates).map_err(client)?;
                info = client.get_connection_info().clone();
            }
        }
        Ok(info.set_tcp_settings(tcp_settings()).set_redis_settings(settings(access)?))
    }

    fn as_given(&self, info: &ConnectionInfo) -> ConnectionInfo {
        let address = match (&self.address, info.addr()) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Address::Tcp(host, port), ConnectionAddr::TcpTls { insecure, tls_params, .. }) => {
                provide_cryptography();
                ConnectionAddr::TcpTls {
                    host: host.clone(),
                    port: *port,
                    insecure: *insecure,
                    tls_params: tls_params.clone(),
                }
            }
            (Address::Tcp(host, port), _) => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let settings =
            info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        info.clone().set_addr(address).set_redis_settings(settings)
    }
}

/// As a program's own client connects.
impl From<ConnectionInfo> for Endpoint {
    fn from(info: ConnectionInfo) -> Self {
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Address::Tcp(host.clone(), *port)
            }
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            // The client library may come to know more kinds. It can't be connected to, and the error shows this.
            other => Address::Tcp(other.to_string(), 0),
        };
        Self { address, access: How::Given(Arc::new(info)) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}

/// Who to be. The name of the client library is not sent: telling it takes a permission, and Redis 7.0 does not know it.
fn settings(access: &Access) -> Result<RedisConnectionInfo, StoreError> {
    let mut settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(access.database.into())
        .set_skip_set_lib_name();
    if let Some(username) = &access.username {
        settings = settings.set_username(username);
    }
    match &access.password {
        Some(password) => Ok(settings.set_password(password.reveal()?)),
        None if access.username.is_some() => {
            Err(StoreError::rejected("a user is given for the server and no password; give both or neither"))
        }
        None => Ok(settings),
    }
}

/// Requests go out at once, and the kernel notices, too, that nobody is at the other end. The adapter mostly notices earlier,
/// by what is not answered in time.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(Duration::from_secs(20));
    settings
}

/// The client library builds on rustls' default provider of cryptography, and panics if there is none and more than one is
/// compiled in, which some other dependency of the program may bring about.
fn provide_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
