//! A server's address.

use std::fmt;
use std::net::Ipv6Addr;

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
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let Some((host, port)) = rest.split_once(']') else {
                    return Err("have a ] at the end of an IPv6 address".to_owned());
                };
                let Ok(host) = host.parse::<Ipv6Addr>() else {
                    return Err("have an IPv6 address between [ and ]".to_owned());
                };
                (host.to_string(), port)
            }
            None => {
                let end = text.find(':').unwrap_or(text.len());
                (text[..end].to_ascii_lowercase(), &text[end..])
            }
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() {
            return Err("name a host (an IPv6 address in brackets: [::1]:4222)".to_owned());
        }
        if !host.chars().all(allowed) {
            return Err(
                "have hosts of letters, digits, -, . and _ only (an international name in its form xn--…)"
                    .to_owned(),
            );
        }
        if host == "0.0.0.0" || host == "::" {
            return Err(
                "name a host that one can connect to; 0.0.0.0 and :: are where a server listens".to_owned()
            );
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(default_port),
            None => None,
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => digits.parse().ok(),
            Some(_) => None,
        };
        match port {
            None | Some(0) => Err(
                "have a port from 1 to 65535 after a host's colon (an IPv6 address is in brackets: [::1]:4222)"
                    .to_owned(),
            ),
            Some(port) => Ok(Self { host, port }),
        }
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
