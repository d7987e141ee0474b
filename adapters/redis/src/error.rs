//! What the server and the client library say, put into the words and classes of the store contract.
//!
//! | what is said | class |
//! |---|---|
//! | LOADING, MASTERDOWN, TRYAGAIN, CLUSTERDOWN, too many clients | transient |
//! | READONLY | transient; another connection is made |
//! | OOM, NOREPLICAS, MISCONF, BUSY | transient, nothing was written |
//! | NOAUTH, WRONGPASS, NOPERM, also where a script met it | rejected |
//! | WRONGTYPE, CROSSSLOT, anything else that the server says | rejected |
//! | a command that the server does not know | unsupported |
//! | no connection: refused, no such host, closed in the handshake | transient |
//! | TLS, a certificate, an answer in another protocol | rejected |
//! | a connection that ends, or stays silent, with the request under way | unknown |

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerError, Value};
use tenure_store::StoreError;

/// A request that failed, and what failed about it.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) cause: Cause,
    pub(crate) error: StoreError,
}

/// What failed.
#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// There is no connection: nothing was sent.
    NotConnected,
    /// The server answered that it can't or won't.
    Refused(ServerError),
    /// The connection ended, or no answer came in time.
    NoAnswer,
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl Failed {
    pub(crate) const fn not_connected(error: StoreError) -> Self {
        Self { cause: Cause::NotConnected, error }
    }

    pub(crate) const fn no_answer(error: StoreError) -> Self {
        Self { cause: Cause::NoAnswer, error }
    }

    pub(crate) fn refused(address: &str, answer: ServerError) -> Self {
        Self { error: refused(address, &answer), cause: Cause::Refused(answer) }
    }

    /// The same, and if a permission was lacking, the first of the keys for which it was asked.
    pub(crate) fn about(mut self, key: Option<&[u8]>) -> Self {
        if let (Cause::Refused(answer), Some(key)) = (&self.cause, key)
            && lacks_permission(answer)
        {
            let key = String::from_utf8_lossy(key);
            self.error.message +=
                &format!(" (asked for the key {key:?}: may this user use keys of this prefix?)");
        }
        self
    }

    /// The code of what the server answered, if it did.
    pub(crate) fn code(&self) -> Option<&str> {
        match &self.cause {
            Cause::Refused(answer) => Some(code(answer)),
            Cause::NotConnected | Cause::NoAnswer => None,
        }
    }
}

/// The codes by which something is decided here.
const CODES: [&str; 19] = [
    "LOADING",
    "MASTERDOWN",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "READONLY",
    "NOSCRIPT",
    "OOM",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
    "UNKILLABLE",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "WRONGTYPE",
    "CROSSSLOT",
    "MOVED",
    "ASK",
    "DENIED",
];

/// The code of an answer. Servers before 7.0 say `ERR` of everything that happens inside of a script, and the code
/// somewhere in the text.
pub(crate) fn code(answer: &ServerError) -> &str {
    let code = answer.code();
    let details = answer.details().unwrap_or_default();
    if code != "ERR" || !details.starts_with("Error running script") {
        return code;
    }
    let mut words = details.split(|letter: char| !letter.is_ascii_uppercase());
    words.find_map(|word| CODES.iter().find(|code| **code == word)).map_or(code, |found| *found)
}

/// Whether this answer says that the connection leads to the wrong server, or is not what it was.
pub(crate) fn wants_another_connection(answer: &ServerError) -> bool {
    matches!(code(answer), "READONLY" | "MASTERDOWN" | "NOAUTH")
}

/// Whether a server took nobody in, or not who was given.
pub(crate) fn wants_another_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || ServerError::try_from(error.clone())
            .is_ok_and(|answer| matches!(code(&answer), "NOAUTH" | "WRONGPASS"))
}

/// Whether it was not done because the user may not.
fn lacks_permission(answer: &ServerError) -> bool {
    let words = words(answer).to_ascii_lowercase();
    let says = |what: &str| words.contains(what);
    code(answer) == "NOPERM"
        || says("acl failure")
        || says("no permissions to")
        || says("the user executing the script")
}

/// An answer that says that it was not done.
pub(crate) fn refused(address: &str, answer: &ServerError) -> StoreError {
    let code = code(answer);
    let words = words(answer);
    let at = format!("{words} ({address})");
    let lower = words.to_ascii_lowercase();
    match code {
        "LOADING" => StoreError::transient(format!("{at}; it will answer once its data are loaded")),
        "MASTERDOWN" => StoreError::transient(format!("{at}; this is a replica that has lost its primary")),
        "TRYAGAIN" | "CLUSTERDOWN" => StoreError::transient(format!(
            "{at}; slots are moving or a node has failed: see `CLUSTER INFO` if it lasts"
        )),
        "MOVED" => StoreError::transient(format!("{at}; the key is kept by another node")),
        "ASK" => StoreError::transient(format!(
            "{at}; the key is being moved to another node, where it can be had meanwhile only with the permission +asking"
        )),
        "READONLY" => StoreError::transient(format!(
            "{at}; this is a replica: connect to the primary, or through Sentinel, which follows it"
        )),
        "NOSCRIPT" => StoreError::transient(at),
        "OOM" => StoreError::transient(format!(
            "{at}; the server is out of memory: raise its maxmemory or free some; what is held is still renewed \
             and released"
        )),
        "NOREPLICAS" => {
            StoreError::transient(format!("{at}; too few replicas are connected for min-replicas-to-write"))
        }
        "MISCONF" => StoreError::transient(format!(
            "{at}; the server can't save its data, and refuses writes: see its log"
        )),
        "BUSY" | "UNKILLABLE" => StoreError::transient(format!(
            "{at}; a script of somebody runs there without end: `SCRIPT KILL` ends it"
        )),
        "NOAUTH" => StoreError::rejected(format!("{at}; it wants a password, and none was given")),
        "WRONGPASS" => StoreError::rejected(format!("{at}; check the user and the password")),
        "NOPERM" => StoreError::rejected(format!("{at}; {NO_PERMISSION}")),
        "DENIED" => StoreError::rejected(format!(
            "{at}; the server is in protected mode: give it a password or bind it to an address"
        )),
        "WRONGTYPE" => StoreError::rejected(format!(
            "{at}; a key of this name is that of another program: delete it, or use another prefix"
        )),
        "CROSSSLOT" => StoreError::rejected(format!("{at}; a proxy or a module changes keys on the way")),
        _ if lower.contains("max number of clients") => StoreError::transient(format!(
            "{at}; raise its maxclients, or find who holds so many connections"
        )),
        _ if lacks_permission(answer) => StoreError::rejected(format!("{at}; {NO_PERMISSION}")),
        _ if lower.contains("unknown command") || lower.contains("unknown redis command") => {
            StoreError::unsupported(format!(
                "{at}; Redis 6 or newer or Valkey is needed, with scripting (EVAL), and no command renamed"
            ))
        }
        _ if !mends_database(&lower).is_empty() => {
            StoreError::rejected(format!("{at}{}", mends_database(&lower)))
        }
        _ => StoreError::rejected(at),
    }
}

const NO_PERMISSION: &str = "the user lacks a permission: see the list of them in the documentation";

/// What to do about a database that can't be chosen, if the server says so in these words, in small letters.
fn mends_database(words: &str) -> &'static str {
    if words.contains("select is not allowed") {
        "; a Cluster has only database 0: give no other number"
    } else if words.contains("db index") {
        "; the server has no database of this number: its setting `databases` says how many it has"
    } else if words.contains("no permissions to run the 'select' command") {
        "; the user may choose no database: give the user +select, or use database 0"
    } else {
        ""
    }
}

/// The server's own words. A server that does not know a command repeats its arguments, and so, of HELLO, the password.
fn words(answer: &ServerError) -> String {
    let details = answer.details().unwrap_or_default();
    let details = details.split(", with args beginning with").next().unwrap_or_default();
    let text = format!("{} {details}", answer.code());
    text.trim_end().to_owned()
}

/// Why there is no connection. Nothing was sent.
pub(crate) fn cant_connect(address: &str, error: &RedisError) -> StoreError {
    if let Ok(answer) = ServerError::try_from(error.clone()) {
        return refused(address, &answer);
    }
    let io = io_error(error);
    let says = |what: &str| format!("can't connect to {address}: {}{what}", plain(error));
    match error.kind() {
        ErrorKind::RESP3NotSupported => {
            StoreError::unsupported(says("; Redis 6 or newer or Valkey is needed"))
        }
        ErrorKind::AuthenticationFailed => StoreError::rejected(says("; check the user and the password")),
        ErrorKind::Parse => StoreError::rejected(says(
            "; what answers there does not speak the protocol of Redis, or wants TLS (rediss://)",
        )),
        ErrorKind::Client | ErrorKind::InvalidClientConfig => StoreError::rejected(says("")),
        // In the handshake only the choice of the database is put into the library's own words.
        ErrorKind::Server(_) => {
            StoreError::rejected(says(mends_database(&plain(error).to_ascii_lowercase())))
        }
        _ => match io.map(io::Error::kind) {
            Some(io::ErrorKind::InvalidData) => StoreError::rejected(says(mends_tls(io))),
            Some(io::ErrorKind::PermissionDenied) => {
                StoreError::rejected(says("; may this user use the socket?"))
            }
            Some(
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof,
            ) => {
                // Its own words, if it said any, were lost with the connection.
                StoreError::transient(says(
                    "; it closed the connection at once: too many clients, or does it want TLS (rediss://)?",
                ))
            }
            _ => StoreError::transient(says("")),
        },
    }
}

/// What the system, or TLS, said. The library hands it out within a shared pointer.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    match source.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        Some(shared) => shared.downcast_ref(),
        None => source.downcast_ref(),
    }
}

/// What to do about TLS that fails.
fn mends_tls(error: Option<&io::Error>) -> &'static str {
    use rustls::{AlertDescription, CertificateError as Problem, Error as Tls};
    match error.and_then(|error| error.get_ref()?.downcast_ref()) {
        Some(Tls::InvalidCertificate(Problem::Expired | Problem::ExpiredContext { .. })) => {
            "; the server's certificate is over: renew it, unless it is this machine's clock that is wrong"
        }
        Some(Tls::InvalidCertificate(Problem::NotValidYet | Problem::NotValidYetContext { .. })) => {
            "; the server's certificate does not count yet: is this machine's clock wrong?"
        }
        Some(Tls::InvalidCertificate(Problem::NotValidForName | Problem::NotValidForNameContext { .. })) => {
            "; connect by a name that it has, or have the server show a certificate with this one"
        }
        // The type of this error belongs to a crate below rustls.
        Some(Tls::InvalidCertificate(Problem::Other(other)))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            "; the certificate is that of an authority (CA:TRUE), which no server may show: have it show one that the \
             authority has signed, or sign it anew with basicConstraints=CA:FALSE"
        }
        Some(Tls::InvalidCertificate(_)) => {
            "; the certificate is not one that this program trusts: give its authority by ca="
        }
        Some(Tls::AlertReceived(AlertDescription::CertificateRequired)) => {
            "; the server wants a certificate: give one by cert=, with its key by key="
        }
        _ => "; TLS can't be agreed on: does the server speak it on this port?",
    }
}

/// A request whose connection failed. It may have been executed.
pub(crate) fn lost(address: &str, error: &RedisError) -> StoreError {
    StoreError::unknown(format!("the connection to {address} failed: {}", plain(error)))
}

/// What the library says, without what may be secret in it.
fn plain(error: &RedisError) -> String {
    let text = error.to_string();
    text.split(", with args beginning with").next().unwrap_or_default().to_owned()
}

/// An answer that no script of ours gives.
pub(crate) fn strange(answer: &Value) -> StoreError {
    StoreError::unsupported(format!("the server gave an answer that can't be: {answer:?}"))
}

#[cfg(test)]
mod tests;
