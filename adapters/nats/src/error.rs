//! What the server and the client library say, put into the words and classes of the store contract.
//!
//! | what is said | class |
//! |---|---|
//! | 10071, 10164: another write came first | the condition did not hold: nothing was written |
//! | 10008 and others of 503 or 500 | transient, nothing was written |
//! | no such stream, or nobody who answers for it | transient; the bucket is looked at again |
//! | JetStream off (10039, 10076, nobody answers) | unsupported |
//! | 10165, 10166: no TTL is taken; 10074: replicas without a cluster | unsupported |
//! | a permission, a user, a password | rejected |
//! | anything else that the server says | rejected |
//! | no connection: refused, no such host | transient |
//! | TLS, a certificate | rejected |
//! | no answer in time | unknown |

use async_nats::{ConnectError, ConnectErrorKind};
use serde_json::Value;
use tenure_json::Unreadable;
use tenure_store::{StoreError, StoreErrorKind};

/// What an operator has to give a user. The guide has the whole list.
pub(crate) const NO_PERMISSION: &str =
    "the user lacks a permission: see the list of them in the documentation";

/// What JetStream says no with.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// As of HTTP.
    pub(crate) status: u64,
    /// What exactly it is.
    pub(crate) code: u64,
    pub(crate) words: String,
}

impl Refusal {
    pub(crate) const NO_MESSAGE: u64 = 10037;
    pub(crate) const NO_STREAM: u64 = 10059;
    pub(crate) const STREAM_IS_DIFFERENT: u64 = 10058;
    const WRONG_SEQUENCE: [u64; 2] = [10071, 10164];
    const OFF: [u64; 2] = [10039, 10076];
    const NO_TTL: [u64; 2] = [10165, 10166];

    /// The refusal in an answer, if it is one.
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        let error = answer.get("error")?;
        let number = |name: &str| error.get(name).and_then(Value::as_u64).unwrap_or_default();
        let words = error.get("description").and_then(Value::as_str).unwrap_or("an error without words");
        Some(Self { status: number("code"), code: number("err_code"), words: words.to_owned() })
    }

    /// Whether another write came first.
    pub(crate) fn condition_failed(&self) -> bool {
        Self::WRONG_SEQUENCE.contains(&self.code)
    }

    /// Nothing was done.
    pub(crate) fn error(&self) -> StoreError {
        let Self { status, code, words } = self;
        let says = |what: &str| format!("{words} ({code}){what}");
        match *code {
            code if Self::OFF.contains(&code) => {
                StoreError::unsupported(says("; have JetStream enabled for this account"))
            }
            code if Self::NO_TTL.contains(&code) => StoreError::unsupported(says(
                "; the bucket takes no TTL of its records: see what is said of existing buckets in the documentation",
            )),
            Self::NO_STREAM => StoreError::transient(says("; the bucket is gone, and is made again")),
            _ if self.condition_failed() => StoreError::transient(says("")),
            10074 => StoreError::unsupported(says(
                "; this server is none of a cluster: have the URL say no replicas=, or name the servers of the cluster",
            )),
            10005 => StoreError::transient(says(
                "; so many replicas need as many servers with JetStream that are up and have room",
            )),
            10023 | 10047 | 10077 => StoreError::transient(says(
                "; the server or the bucket has no room left: raise its limits; what is held still ends in time",
            )),
            _ if *status >= 500 || *status == 0 => StoreError::transient(says("")),
            _ => StoreError::rejected(says("")),
        }
    }
}

/// A request that only reads has done nothing, whatever became of it.
pub(crate) fn only_read(mut error: StoreError) -> StoreError {
    if error.kind == StoreErrorKind::Unknown {
        error.kind = StoreErrorKind::Transient;
    }
    error
}

/// What stands there is none of ours.
fn foreign(subject: &str) -> StoreError {
    StoreError::rejected(format!(
        "{subject:?} holds something of another program: remove it there, or choose another bucket for this store"
    ))
}

/// The error of whoever needs what stands there; `advice` tells what can be done about a record of ours.
pub(crate) fn unreadable(problem: &Unreadable, subject: &str, advice: &str) -> StoreError {
    match problem {
        Unreadable::Foreign => foreign(subject),
        Unreadable::Problem(problem) => {
            StoreError::unsupported(format!("{problem} (subject {subject:?}); {advice}"))
        }
    }
}

/// An answer that can't be.
pub(crate) fn strange(answer: &Value) -> StoreError {
    let text = answer.to_string();
    let shown: String = text.chars().take(300).collect();
    StoreError::unsupported(format!("the server gave an answer that can't be: {shown}"))
}

/// Why there is no connection. Nothing was sent.
pub(crate) fn cant_connect(servers: &str, error: &ConnectError) -> StoreError {
    let says = |what: &str| {
        let mut text = format!("can't connect to {servers}: {error}");
        // The library tells the cause by itself for some kinds only.
        let source = std::error::Error::source(error).map(ToString::to_string);
        if let Some(source) = source.filter(|source| !text.contains(source.as_str())) {
            text = format!("{text}: {source}");
        }
        text + what
    };
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation => {
            StoreError::rejected(says("; check who is given to the server, and how"))
        }
        ConnectErrorKind::Authentication | ConnectErrorKind::ServerParse => StoreError::rejected(says("")),
        ConnectErrorKind::Tls => StoreError::rejected(says("; TLS can't be set up")),
        ConnectErrorKind::Io if is_about_tls(error) => StoreError::rejected(says(
            "; TLS can't be agreed on: is the certificate one that this program trusts (ca=), for this host, \
             and does the server want one to be shown (cert=, key=)?",
        )),
        _ => StoreError::transient(says("")),
    }
}

/// Whether rustls said no, and not the network.
fn is_about_tls(error: &ConnectError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return true;
        }
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u64, code: u64) -> Refusal {
        Refusal { status, code, words: "no".to_owned() }
    }

    #[test]
    fn what_the_server_says_is_of_the_class_that_says_who_can_mend_it() {
        use StoreErrorKind::{Rejected, Transient, Unsupported};
        for (status, code, kind) in [
            (503, 10008, Transient),
            (503, 10039, Unsupported),
            (503, 10076, Unsupported),
            (400, 10166, Unsupported),
            (500, 10074, Unsupported),
            (404, 10059, Transient),
            (400, 10164, Transient),
            (500, 10077, Transient),
            (400, 10058, Rejected),
            (400, 10003, Rejected),
        ] {
            assert_eq!(refusal(status, code).error().kind, kind, "{code}");
        }
        assert!(refusal(400, 10071).condition_failed() && refusal(503, 10164).condition_failed());
        assert!(!refusal(404, 10037).condition_failed());
    }

    #[test]
    fn a_refusal_is_read_whatever_is_missing_in_it() {
        let of = |text: &str| Refusal::of(&serde_json::from_str(text).unwrap());
        assert!(of(r#"{"stream":"KV_t","seq":5}"#).is_none());
        let refusal = of(r#"{"error":{"code":400,"err_code":10071,"description":"wrong"},"seq":0}"#).unwrap();
        assert_eq!((refusal.status, refusal.code, &*refusal.words), (400, 10071, "wrong"));
        assert_eq!(of(r#"{"error":{}}"#).unwrap().error().kind, StoreErrorKind::Transient);
    }

    #[test]
    fn who_only_read_has_done_nothing() {
        assert_eq!(only_read(StoreError::unknown("x")), StoreError::transient("x"));
        assert_eq!(only_read(StoreError::rejected("x")), StoreError::rejected("x"));
    }
}
