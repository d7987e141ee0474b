//! One connection to the servers: requests and their answers. The client library connects again by itself; what this
//! adds is that nothing is sent while there is no connection, that nothing is sent twice, and that a permission that is
//! missing is told at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{
    AuthError, Client, ConnectOptions, Event, HeaderMap, Message, Request, RequestErrorKind, ServerError,
    ServerInfo,
};
use futures::future::{Either, select};
use rustls::crypto::{CryptoProvider, ring};
use serde_json::Value;
use tenure_core::Instant;
use tenure_store::{StoreError, clock};
use tokio::sync::watch;
use tokio::time;

use crate::error::{self, NO_PERMISSION};
use crate::options::NatsOptions;

/// How often the server is asked whether it lives; after two without an answer it is left for another one.
const PING_EVERY: Duration = Duration::from_secs(1);

/// How long at most between two attempts to connect again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A question that only reads is asked again after this time without an answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// So many permissions that are missing are remembered.
const MOST_DENIED: usize = 32;

/// What has happened to the connection.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Rises with each connection that was made again, or on which messages were lost.
    gaps: watch::Sender<u64>,
    /// Rises with each permission that was found to be missing.
    denials: watch::Sender<u64>,
    denied: Mutex<Vec<String>>,
    /// Why there is no connection now, as far as is known.
    trouble: Mutex<Option<String>>,
}

impl Events {
    /// Rises with each connection that was made again, or on which messages were lost.
    pub(crate) fn gaps(&self) -> watch::Receiver<u64> {
        self.gaps.subscribe()
    }

    fn take(&self, event: &Event, servers: &str) {
        match event {
            Event::Connected => {
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
                tracing::info!(event = "nats.connected", %servers, "connected to the store");
                self.gaps.send_modify(|count| *count += 1);
            }
            Event::Disconnected => {
                tracing::warn!(event = "nats.lost", %servers, "the connection to the store is lost");
            }
            Event::SlowConsumer(_) => self.gaps.send_modify(|count| *count += 1),
            Event::ServerError(ServerError::Other(text)) if is_about_permissions(text) => {
                tracing::warn!(event = "nats.denied", error = %text, "the store lacks a permission");
                let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
                if denied.len() >= MOST_DENIED {
                    denied.remove(0);
                }
                denied.push(text.clone());
                drop(denied);
                self.denials.send_modify(|count| *count += 1);
            }
            Event::ServerError(error) => self.has_trouble(&error.to_string(), servers),
            Event::ClientError(error) => self.has_trouble(&error.to_string(), servers),
            Event::LameDuckMode | Event::Draining | Event::Closed => {}
        }
    }

    fn has_trouble(&self, text: &str, servers: &str) {
        let before = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).replace(text.to_owned());
        // Once for each kind of trouble; attempts go on for ever.
        if before.is_none_or(|before| before != text) {
            tracing::warn!(event = "nats.cannot_connect", %servers, error = %text, "no connection to the store");
        } else {
            tracing::debug!(event = "nats.cannot_connect_yet", %servers, error = %text, "still no connection to the store");
        }
    }

    /// What the server has said of this subject, if it is forbidden. Told once.
    pub(crate) fn denial(&self, subject: &str) -> Option<String> {
        let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        let quoted = format!("\"{subject}\"");
        let place = denied.iter().position(|text| text.contains(&quoted) || is_about_inboxes(text))?;
        Some(denied.remove(place))
    }
}

fn is_about_permissions(text: &str) -> bool {
    text.to_ascii_lowercase().contains("permissions violation")
}

/// Whoever may not listen for answers gets none, whatever was asked.
fn is_about_inboxes(text: &str) -> bool {
    text.to_ascii_lowercase().contains("for subscription") && !text.contains("\"tenure.")
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    /// It was not sent, or the server said that it forbids it: nothing was done.
    Refused(StoreError),
    /// Nobody is there who could answer: nothing was done.
    Nobody,
    /// No answer came in time.
    Late(StoreError),
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) events: Arc<Events>,
    servers: String,
}

impl Connection {
    /// Connects to one of the servers.
    pub(crate) async fn open(options: &NatsOptions) -> Result<Self, StoreError> {
        if options.access.tls.is_some() && CryptoProvider::get_default().is_none() {
            // Somebody else may be as far.
            let _ = ring::default_provider().install_default();
        }
        let (servers, events) = (options.to_string(), Arc::new(Events::default()));
        let access = options.access.clone();
        let mut how = ConnectOptions::with_auth_callback(move |nonce| {
            let auth = access.auth(&nonce).map_err(AuthError::new);
            async move { auth }
        });
        let taker = {
            let (events, servers) = (Arc::clone(&events), servers.clone());
            move |event| {
                events.take(&event, &servers);
                futures::future::ready(())
            }
        };
        how = how
            .name("tenure")
            .no_echo()
            .ping_interval(PING_EVERY)
            .connection_timeout(options.connect_timeout)
            .reconnect_delay_callback(pause)
            .event_callback(taker);
        if let Some(prefix) = &options.inbox_prefix {
            how = how.custom_inbox_prefix(prefix);
        }
        if let Some(tls) = &options.access.tls {
            how = how.require_tls(true);
            if let Some(ca) = &tls.ca {
                how = how.add_root_certificates(ca.clone());
            }
            if let Some((certificate, key)) = &tls.identity {
                how = how.add_client_certificate(certificate.clone(), key.clone());
            }
        }
        let addresses: Vec<String> = options.servers.iter().map(ToString::to_string).collect();
        let late = || {
            let time = options.connect_timeout;
            StoreError::transient(format!("can't connect to {servers}: no answer in {time:?}"))
        };
        let client = time::timeout(options.connect_timeout, how.connect(addresses))
            .await
            .map_err(|_| late())?
            .map_err(|error| error::cant_connect(&servers, &error))?;
        Ok(Self { client, events, servers })
    }

    /// What the server has said of itself.
    pub(crate) fn server(&self) -> ServerInfo {
        self.client.server_info()
    }

    /// The answer to one request, as it comes. It is sent at most once.
    pub(crate) async fn request(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Vec<u8>,
        until: Instant,
    ) -> Result<Message, NoAnswer> {
        self.connected(until).await.map_err(NoAnswer::Refused)?;
        let rest = until.saturating_since(clock::now());
        let mut request = Request::new().payload(payload.into()).timeout(Some(rest));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let mut denials = self.events.denials.subscribe();
        let asked =
            std::pin::pin!(time::timeout(rest, self.client.send_request(subject.to_owned(), request)));
        let denied = std::pin::pin!(async {
            loop {
                if let Some(text) = self.events.denial(subject) {
                    return text;
                }
                if denials.changed().await.is_err() {
                    futures::future::pending::<()>().await;
                }
            }
        });
        let answer = match select(asked, denied).await {
            Either::Left((answer, _)) => answer,
            Either::Right((text, _)) => {
                return Err(NoAnswer::Refused(StoreError::rejected(format!("{text}; {NO_PERMISSION}"))));
            }
        };
        let late =
            || NoAnswer::Late(StoreError::unknown(format!("{} did not answer in {rest:?}", self.servers)));
        match answer {
            Err(_) => Err(late()),
            Ok(Ok(message)) => Ok(message),
            Ok(Err(error)) => match error.kind() {
                RequestErrorKind::NoResponders => Err(NoAnswer::Nobody),
                RequestErrorKind::TimedOut => Err(late()),
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    Err(NoAnswer::Refused(StoreError::rejected(error.to_string())))
                }
                // The connection was closed before it could be sent, or with it under way.
                RequestErrorKind::Other => Err(NoAnswer::Late(StoreError::unknown(error.to_string()))),
            },
        }
    }

    /// The answer of JetStream's own interface, whose subjects begin with `$JS.API.`.
    pub(crate) async fn ask(&self, what: &str, body: &Value, until: Instant) -> Result<Value, NoAnswer> {
        let payload = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.request(&format!("$JS.API.{what}"), None, payload, until).await?;
        serde_json::from_slice(&answer.payload).map_err(|_| {
            NoAnswer::Refused(StoreError::unsupported("JetStream answered with something else than JSON"))
        })
    }

    /// The same for a request that only reads. While a stream has no leader nobody answers, and a question that was asked
    /// then is never answered: so it is asked again, which does nothing.
    pub(crate) async fn ask_again(
        &self,
        what: &str,
        body: &Value,
        until: Instant,
    ) -> Result<Value, NoAnswer> {
        loop {
            let soon = until.min(clock::now() + ASK_AGAIN_AFTER);
            match self.ask(what, body, soon).await {
                Err(NoAnswer::Late(_)) if soon < until => {}
                answer => return answer,
            }
        }
    }

    /// Waits until there is a connection. What is published without one would be sent later, when nobody wants it any more.
    async fn connected(&self, until: Instant) -> Result<(), StoreError> {
        let mut gaps = self.events.gaps();
        loop {
            if self.client.connection_state() == State::Connected {
                return Ok(());
            }
            let rest = until.saturating_since(clock::now());
            if rest.is_zero() {
                let trouble = self.events.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let why = trouble.map_or_else(String::new, |trouble| format!(": {trouble}"));
                return Err(StoreError::transient(format!("no connection to {}{why}", self.servers)));
            }
            // News may be lost where there are many.
            let _ = time::timeout(rest.min(Duration::from_millis(50)), gaps.changed()).await;
        }
    }
}

/// How long to wait before this attempt to connect.
fn pause(attempt: usize) -> Duration {
    match attempt {
        0 | 1 => Duration::ZERO,
        attempt => {
            let doublings = u32::try_from(attempt.min(10)).unwrap_or(10);
            (Duration::from_millis(5) * 2_u32.pow(doublings)).min(LONGEST_PAUSE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_to_connect_come_less_often_but_never_end() {
        assert_eq!(
            [pause(0), pause(1), pause(2)],
            [Duration::ZERO, Duration::ZERO, Duration::from_millis(20)]
        );
        assert_eq!(pause(usize::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn a_permission_that_is_missing_is_told_to_whom_it_concerns() {
        let events = Events::default();
        let deny = |text: &str| {
            events.take(&Event::ServerError(ServerError::Other(text.to_owned())), "x");
        };
        deny("Permissions Violation for Publish to \"$KV.t.lease.ka\"");
        assert_eq!(events.denial("$KV.t.lease.kb"), None);
        assert!(events.denial("$KV.t.lease.ka").is_some());
        assert_eq!(events.denial("$KV.t.lease.ka"), None, "once");
        deny("Permissions Violation for Subscription to \"_INBOX.x.*\"");
        assert!(events.denial("$KV.t.lease.kb").is_some(), "no answer can come");
    }
}
