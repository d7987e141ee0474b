//! The store that the command line names.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use tenure::{AnyStore, NatsOptions, RedisOptions, SqliteOptions, SqliteStore, Tenure};

use crate::args::Membership;
use crate::exit;
use crate::failure::Failure;
use crate::say;

/// The program's name as the embedded store knows it: all that is run without `--store` meets there.
const APP: &str = "tenure";

/// A store and what is known of it.
#[derive(Debug)]
pub(crate) struct Place {
    store: AnyStore,
    /// The store itself if it is the embedded one.
    embedded: Option<SqliteStore>,
    /// What to call it; nothing secret.
    name: String,
}

impl Place {
    /// The store of this URL, or this user's own. Nothing is opened yet.
    pub(crate) fn new(url: Option<&str>) -> Result<Self, Failure> {
        let url = url.filter(|url| !url.is_empty());
        let parts = url.and_then(|url| url.split_once(':'));
        let scheme = parts.map(|(scheme, _)| scheme.to_ascii_lowercase());
        let refused = |error: &dyn std::fmt::Display| Failure::new(exit::REFUSED, error.to_string());
        let options = match (url, scheme.as_deref()) {
            (None, _) => SqliteOptions::for_app(APP),
            (Some(url), Some("sqlite")) => SqliteOptions::from_url(url),
            (Some(_), Some("embedded")) => SqliteOptions::for_app(parts.map_or("", |(_, app)| app)),
            (Some(_), Some("memory")) => {
                return Err(Failure::new(
                    exit::REFUSED,
                    "the store memory: lives in one process only and would keep nobody else out; \
                     leave --store away for a store of this machine",
                ));
            }
            (Some(url), scheme) => {
                let store = tenure::store(url).map_err(|error| refused(&error))?;
                // The rest of the URL may hold a password; the options, which don't show one, know which part does.
                let name = match (RedisOptions::from_url(url), NatsOptions::from_url(url)) {
                    (Ok(options), _) => options.to_string(),
                    (_, Ok(options)) => options.to_string(),
                    (Err(_), Err(_)) => format!("{}:", scheme.unwrap_or("?")),
                };
                return Ok(Self { store, embedded: None, name });
            }
        };
        let options = options.map_err(|error| refused(&error))?;
        let name = options.path().display().to_string();
        let store = SqliteStore::new(options);
        Ok(Self { store: AnyStore::new(store.clone()), embedded: Some(store), name })
    }

    /// What to call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the store's answer to a person, who is told if that takes a while.
    pub(crate) async fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        const A_WHILE: Duration = Duration::from_secs(1);
        let mut answer = pin!(answer);
        match tokio::time::timeout(A_WHILE, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                say::line(format_args!("waiting for an answer from store {}", self.name));
                answer.await
            }
        }
    }

    /// Starts the driver on it.
    pub(crate) fn start(&self) -> Result<Tenure, Failure> {
        tenure::builder().store(self.store.clone()).start().map_err(Failure::from)
    }

    /// The same, for a process that is to join the fleet.
    pub(crate) fn start_as(&self, membership: &Membership) -> Result<Tenure, Failure> {
        let Membership { instance, label, member_ttl, heartbeat } = membership;
        let mut builder = tenure::builder().store(self.store.clone()).member_ttl(*member_ttl);
        if let Some(name) = instance {
            builder = builder.instance(name);
        }
        if let Some(interval) = heartbeat {
            builder = builder.heartbeat(*interval);
        }
        for (name, value) in label {
            builder = builder.label(name, value);
        }
        builder.start().map_err(Failure::from)
    }

    /// A copy of the lock that proves this process alive to others, if the store has one: while it is open
    /// anywhere, nobody takes our leases before their TTL runs out.
    pub(crate) async fn liveness(&self) -> Result<Option<OwnedFd>, Failure> {
        match &self.embedded {
            Some(store) => Ok(store.liveness().await?.map(OwnedFd::from)),
            None => Ok(None),
        }
    }
}
