//! Sentinels: asked for the primary before each connection to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, ProtocolVersion, RedisError, Value};
use tenure_store::{StoreError, StoreErrorKind, clock};

use crate::error::{cant_connect, strange, wants_another_login};
use crate::link::text;
use crate::options::Endpoint;
use crate::sleep::before;

/// How long one Sentinel may take, connecting included, before the next is asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// The Sentinels that watch over one service.
pub(crate) struct Sentinels {
    all: Vec<Endpoint>,
    /// Which of them is asked first: that whose answer was last of use. While that is not known yet it is the next one, for
    /// one that is cut off from the others goes on naming what was the primary.
    first: AtomicUsize,
    service: String,
    /// How to get at the primary, whatever its address.
    server: Endpoint,
}

/// A primary, and which of the Sentinels says so.
pub(crate) struct Named {
    pub(crate) primary: Endpoint,
    by: usize,
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<Endpoint>, service: String, server: Endpoint) -> Self {
        Self { all: sentinels, first: AtomicUsize::new(0), service, server }
    }

    /// The service, for people.
    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    /// Where the primary is, by the first Sentinel that knows.
    ///
    /// # Errors
    /// Transient if no Sentinel could be reached; rejected if those that could do not know the service, or want another login.
    pub(crate) async fn primary(&self) -> Result<Named, StoreError> {
        let first = self.first.load(Ordering::Relaxed);
        let mut failed = Vec::new();
        for by in (0..self.all.len()).map(|place| (first + place) % self.all.len()) {
            match self.ask(&self.all[by]).await {
                Ok((host, port)) => {
                    self.first.store((by + 1) % self.all.len(), Ordering::Relaxed);
                    return Ok(Named { primary: self.server.at(&host, port), by });
                }
                Err(error) => failed.push(error),
            }
        }
        let said: Vec<&str> = failed.iter().map(|error| &*error.message).collect();
        let message = format!("no Sentinel names the primary of {:?}: {}", self.service, said.join("; "));
        // What one that can't be reached would say is not known.
        let kinds = failed.iter().map(|error| error.kind);
        let kind = kinds.min_by_key(|kind| *kind != StoreErrorKind::Transient);
        Err(StoreError::new(kind.unwrap_or(StoreErrorKind::Rejected), message))
    }

    async fn ask(&self, sentinel: &Endpoint) -> Result<(String, u16), StoreError> {
        let address = sentinel;
        let asked = before(clock::now() + PATIENCE, self.request(sentinel)).await;
        let answer = asked.ok_or_else(|| {
            let mends = sentinel.mends_silence();
            StoreError::transient(format!("{address} did not answer in time{mends}"))
        })??;
        let parts = match &answer {
            Value::Nil => {
                return Err(StoreError::rejected(format!("{address} knows no service of this name")));
            }
            Value::Array(parts) => &parts[..],
            _ => return Err(strange(&answer)),
        };
        match parts {
            [host, port] => text(host)
                .zip(text(port))
                .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?))),
            _ => None,
        }
        .ok_or_else(|| strange(&answer))
    }

    async fn request(&self, sentinel: &Endpoint) -> Result<Value, StoreError> {
        // They have no databases, and the older ones only the older protocol.
        let info = sentinel.connection_info()?;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_db(0);
        let failed = |error: RedisError| {
            let mut failed = cant_connect(&sentinel.to_string(), &error);
            if wants_another_login(&error) {
                // The URL's first password is that of the servers.
                failed.message += " (for Sentinels it is sentinel_password_file= or sentinel_password_env=)";
            }
            failed
        };
        let client = Client::open(info.set_redis_settings(settings)).map_err(failed)?;
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer = connection.send_packed_command(&command).await;
        answer.and_then(Value::extract_error).map_err(|error| match failed(error) {
            unknown if unknown.kind == StoreErrorKind::Unsupported => StoreError::rejected(format!(
                "{sentinel} is no Sentinel: give the addresses of those (their port is 26379 unless they are told \
                 another), or, for this server itself, a URL with redis:// in place of redis+sentinel://"
            )),
            other => other,
        })
    }

    /// The server that was named is the primary.
    pub(crate) fn was_right(&self, named: &Named) {
        self.first.store(named.by, Ordering::Relaxed);
    }
}
