//! A server's address.

use std::fmt;

use tenure_store::url::host_and_port;

/// Where a server is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// A name or an IP address, the latter without brackets.
    host: String,
    port: u16,
}

impl Address {
    /// Takes `host` or `host:port`. An error is the rule that is broken, and shows nothing of the text, which may be a password
    /// that is in the wrong place.
    pub(super) fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let (host, port) = host_and_port(text, default_port)?;
        Ok(Self { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
