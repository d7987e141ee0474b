//! An attempt to connect, as [`Node`](crate::node::Node) makes one at a time.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::{Either, Shared, select};
use futures::stream::{FuturesUnordered, StreamExt as _};
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind};
use tenure_core::Instant;
use tenure_store::{StoreError, clock};

use crate::error::cant_connect;
use crate::greeting::greet;
use crate::link::{Given, Handle, Health, Link};
use crate::node::Inner;
use crate::options::Endpoint;
use crate::sentinel::Sentinels;
use crate::sleep::{before, sleep, spawn};

/// How a node gets its connection.
#[derive(Clone)]
pub(crate) enum Way {
    /// To this server.
    To(Endpoint),
    /// To the one that these name.
    Sentinels(Arc<Sentinels>),
    /// It has this one, which is the program's.
    Given(Arc<dyn Given>),
}

impl Way {
    /// Where it leads to, for people.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::To(endpoint) => endpoint.to_string(),
            Self::Sentinels(sentinels) => format!("the primary of {:?}", sentinels.service()),
            Self::Given(_) => "the server of the program's own connection".to_owned(),
        }
    }

    /// What to ask if it is silent there.
    pub(crate) fn mends_silence(&self) -> &'static str {
        match self {
            Self::To(endpoint) => endpoint.mends_silence(),
            // They say it of themselves.
            Self::Sentinels(_) | Self::Given(_) => "",
        }
    }
}

/// An attempt to connect.
pub(crate) struct Connecting {
    pub(crate) way: Way,
    /// How long it may take, after the pause.
    pub(crate) timeout: Duration,
    /// How long to wait before it.
    pub(crate) pause: Duration,
    /// Not the node itself: it would keep the task of the connection alive, and that the node.
    pub(crate) node: Weak<Inner>,
}

/// How long a try may take before another one begins beside it: more than most handshakes.
const STAGGER: Duration = Duration::from_secs(1);
/// How many tries there may be in one attempt: a server that is frozen meets them all when it goes on.
const MOST_TRIES: usize = 4;
/// How many requests can be on their way to the task of the connection before a sender waits.
const QUEUE: usize = 1024;

/// What an attempt comes to; canceled if its runtime ended.
pub(crate) type Attempt = Shared<oneshot::Receiver<Result<Arc<Link>, StoreError>>>;

impl Connecting {
    /// Begins it, to go on whether or not somebody waits for it, until it is over or forgotten.
    pub(crate) fn begin(self) -> Attempt {
        let (mut sender, receiver) = oneshot::channel();
        spawn(async move {
            let over = match select(pin!(self.connect()), sender.cancellation()).await {
                Either::Left((result, _)) => result,
                Either::Right(_) => return,
            };
            // Nobody may be left who wants it.
            let _ = sender.send(over);
        });
        receiver.shared()
    }

    /// When it is over in any case, unless its runtime stands still.
    pub(crate) fn over(&self) -> Instant {
        clock::now() + self.pause + self.timeout + Duration::from_secs(1)
    }

    async fn connect(self) -> Result<Arc<Link>, StoreError> {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
        }
        let limit = clock::now() + self.timeout;
        let mut tries: FuturesUnordered<_> = [self.attempt()].into_iter().collect();
        loop {
            let next = if tries.len() < MOST_TRIES { (clock::now() + STAGGER).min(limit) } else { limit };
            match before(next, tries.next()).await {
                Some(Some(result)) => return result,
                Some(None) | None if next >= limit => return Err(self.too_long()),
                Some(None) | None => tries.push(self.attempt()),
            }
        }
    }

    fn too_long(&self) -> StoreError {
        let (address, timeout) = (self.way.address(), self.timeout);
        StoreError::transient(format!(
            "connecting to {address} took longer than {timeout:?}, the connect timeout{}",
            self.way.mends_silence()
        ))
    }

    async fn attempt(&self) -> Result<Arc<Link>, StoreError> {
        match &self.way {
            Way::Given(connection) => {
                let handle = Handle::Given(Arc::clone(connection));
                greeted(handle, self.way.address(), Arc::default()).await
            }
            Way::To(endpoint) => self.open(endpoint).await,
            Way::Sentinels(sentinels) => {
                let named = sentinels.primary().await?;
                let opened = self.open(&named.primary).await;
                if opened.is_ok() {
                    sentinels.was_right(&named);
                }
                opened
            }
        }
    }

    async fn open(&self, endpoint: &Endpoint) -> Result<Arc<Link>, StoreError> {
        let health = Arc::new(Health::default());
        let address = endpoint.to_string();
        let (node, heard) = (Weak::clone(&self.node), Arc::clone(&health));
        let closed = StoreError::unknown(format!("the connection to {address} was closed"));
        let config = AsyncConnectionConfig::new()
            // The attempt has its own, and each request, too.
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(move |push: PushInfo| {
                let Some(node) = node.upgrade() else { return Err(()) };
                if push.kind == PushKind::Disconnection {
                    node.give_up(&heard, &closed);
                } else if !heard.is_gone() {
                    heard.hear();
                    node.pushed(push);
                }
                Ok(())
            });
        let failed = |error| cant_connect(&address, &error);
        let client = Client::open(endpoint.connection_info()?).map_err(failed)?;
        let connection =
            client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        greeted(Handle::Own(connection), address, health).await
    }
}

/// A connection whose server can be used.
async fn greeted(handle: Handle, address: String, health: Arc<Health>) -> Result<Arc<Link>, StoreError> {
    let greeting = greet(&handle, &address).await?;
    Ok(Arc::new(Link { address, greeting, handle, health }))
}
