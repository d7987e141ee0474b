//! One server and the connection to it, which is made when it is needed and replaced when it is of no use any more.
//!
//! ```text
//!  Idle --a request--> Connecting --greeted--> Connected
//!   ^                      |                       |
//!   +----- it failed ------+                       |
//!   +-- closed, silent, a replica, another login --+
//! ```
//!
//! - One attempt at a time; all requests wait for the same one, each until its own end, and all are told how it ended. It
//!   goes on when one of them gives up.
//! - After a failure the next attempt begins with a pause, up to half a second.
//! - A connection is given up when it ends, when two requests in a row have no answer and nothing else came in, or when the
//!   server says that it is not the one any more. A request that meets a connection that is already replaced changes nothing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, ProtocolVersion, PushInfo, PushKind,
    RedisResult, ServerError, Value,
};
use tenure_core::Instant;
use tenure_store::{StoreError, clock};

use crate::error::{Failed, cant_connect, lost, wants_another_connection};
use crate::link::{Given, Greeting, Handle, Health, Link, Mode, Role, text};
use crate::sleep::{before, sleep};
use crate::watch::Pushes;

/// A server, or whichever server is the primary. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Node {
    inner: Arc<Inner>,
}

/// How a node gets its connection.
#[derive(Clone)]
pub(crate) enum Way {
    /// To this server.
    To(ConnectionInfo),
    /// It has this one, which is the program's.
    Given(Arc<dyn Given>),
}

struct Inner {
    way: Way,
    connect_timeout: Duration,
    pushes: Arc<Pushes>,
    state: Mutex<State>,
    /// How many attempts or connections failed since the last answer.
    failures: AtomicU32,
    generations: AtomicU64,
}

enum State {
    Idle { trouble: Option<StoreError> },
    Connecting { generation: u64, attempt: Attempt, trouble: Option<StoreError> },
    Connected(Arc<Link>),
    Closed,
}

type Attempt = Shared<BoxFuture<'static, Result<Arc<Link>, StoreError>>>;

/// The longest pause before an attempt to connect: a server that is back is found within this.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The pause after the first failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(16);
/// How many requests can be on their way to the task of the connection before a sender waits.
const QUEUE: usize = 1024;

impl Node {
    pub(crate) fn new(way: Way, connect_timeout: Duration, pushes: Arc<Pushes>) -> Self {
        Self {
            inner: Arc::new(Inner {
                way,
                connect_timeout,
                pushes,
                state: Mutex::new(State::Idle { trouble: None }),
                failures: AtomicU32::new(0),
                generations: AtomicU64::new(0),
            }),
        }
    }

    /// Has one command carried out, connecting first if that is needed.
    pub(crate) async fn request(&self, command: &Cmd, until: Instant) -> Result<Value, Failed> {
        let link = self.connected(until).await.map_err(Failed::not_connected)?;
        let asked = link.health.asked();
        let answer = before(until, link.handle.send(command)).await;
        self.inner.judge(&link, answer.ok_or(asked))
    }

    /// Has commands carried out one right after the other, and returns the answer to the last.
    pub(crate) async fn request_all(&self, commands: &Pipeline, until: Instant) -> Result<Value, Failed> {
        let link = self.connected(until).await.map_err(Failed::not_connected)?;
        let asked = link.health.asked();
        let answer = before(until, link.handle.send_all(commands)).await;
        self.inner.judge(&link, answer.ok_or(asked))
    }

    /// Subscribes the connection to channels; all are confirmed when it returns. It returns the connection's number.
    pub(crate) async fn subscribe(&self, channels: &[Vec<u8>], until: Instant) -> Result<u64, Failed> {
        let link = self.connected(until).await.map_err(Failed::not_connected)?;
        let Handle::Own(mut connection) = link.handle.clone() else { return Err(no_pushes()) };
        let asked = link.health.asked();
        let answer = before(until, connection.subscribe(channels)).await;
        let answer = answer.map(|answer| answer.map(|()| Value::Okay)).ok_or(asked);
        self.inner.judge(&link, answer).map(|_| link.generation)
    }

    /// Ends subscriptions.
    pub(crate) async fn unsubscribe(&self, channels: &[Vec<u8>], until: Instant) -> Result<(), Failed> {
        let link = self.connected(until).await.map_err(Failed::not_connected)?;
        let Handle::Own(mut connection) = link.handle.clone() else { return Err(no_pushes()) };
        let asked = link.health.asked();
        let answer = before(until, connection.unsubscribe(channels)).await;
        let answer = answer.map(|answer| answer.map(|()| Value::Okay)).ok_or(asked);
        self.inner.judge(&link, answer).map(drop)
    }

    /// Asks whether the server is there; for those who only listen. Without an answer, ask again at once: the second
    /// silence replaces the connection.
    pub(crate) async fn ping(&self, until: Instant) -> Result<(), Failed> {
        self.request(&redis::cmd("PING"), until).await.map(drop)
    }

    /// The connection, made first if there is none.
    ///
    /// # Errors
    /// Nothing was sent. Transient but for what only a change of settings can mend.
    pub(crate) async fn connected(&self, until: Instant) -> Result<Arc<Link>, StoreError> {
        let (generation, attempt, trouble) = match self.inner.begin() {
            Begun::Connected(link) => return Ok(link),
            Begun::Closed => return Err(closed()),
            Begun::Attempt { generation, attempt, trouble } => (generation, attempt, trouble),
        };
        match before(until, attempt).await {
            Some(result) => self.inner.end(generation, result),
            None => Err(StoreError::transient(match trouble {
                Some(trouble) => format!("not connected again yet; {}", trouble.message),
                None => format!("not connected to {} yet", self.inner.way.address()),
            })),
        }
    }

    /// Closes the connection. What is asked afterwards is refused.
    pub(crate) fn close(&self) {
        let state = std::mem::replace(&mut *self.inner.lock(), State::Closed);
        if let State::Connected(link) = state {
            link.health.give_up();
        }
    }
}

enum Begun {
    Connected(Arc<Link>),
    Attempt { generation: u64, attempt: Attempt, trouble: Option<StoreError> },
    Closed,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, or the attempt to make one, which begins here if there is none.
    fn begin(self: &Arc<Self>) -> Begun {
        let mut state = self.lock();
        let trouble = match &*state {
            State::Connected(link) => return Begun::Connected(Arc::clone(link)),
            State::Closed => return Begun::Closed,
            State::Connecting { generation, attempt, trouble } => {
                return Begun::Attempt {
                    generation: *generation,
                    attempt: attempt.clone(),
                    trouble: trouble.clone(),
                };
            }
            State::Idle { trouble } => trouble.clone(),
        };
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let connecting = Connecting {
            generation,
            way: self.way.clone(),
            timeout: self.connect_timeout,
            pause: pause_after(self.failures.load(Ordering::Relaxed)),
            // Not the node itself: it would keep the task of the connection alive, and that the node.
            node: Arc::downgrade(self),
        };
        let attempt = connecting.connect().boxed().shared();
        *state = State::Connecting { generation, attempt: attempt.clone(), trouble: trouble.clone() };
        Begun::Attempt { generation, attempt, trouble }
    }

    /// An attempt has ended; whoever sees it first says so to the others.
    fn end(&self, generation: u64, result: Result<Arc<Link>, StoreError>) -> Result<Arc<Link>, StoreError> {
        let mut state = self.lock();
        match &*state {
            State::Closed => return Err(closed()),
            State::Connecting { generation: current, .. } if *current == generation => {}
            // Others have seen it already.
            State::Connecting { .. } | State::Idle { .. } | State::Connected(_) => return result,
        }
        match &result {
            Ok(link) if link.health.is_gone() => {
                // Closed again before anybody could use it.
                self.failures.fetch_add(1, Ordering::Relaxed);
                *state = State::Idle { trouble: None };
            }
            Ok(link) => *state = State::Connected(Arc::clone(link)),
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                *state = State::Idle { trouble: Some(error.clone()) };
            }
        }
        result
    }

    /// What became of a request.
    fn judge(
        &self,
        link: &Link,
        answer: Result<RedisResult<Value>, crate::link::Asked>,
    ) -> Result<Value, Failed> {
        let error = match answer {
            Ok(Ok(Value::ServerError(answer))) => return Err(self.refused(link, answer)),
            Ok(Ok(value)) => {
                self.heard(link);
                return Ok(value);
            }
            Ok(Err(error)) => error,
            Err(asked) => {
                if link.health.unanswered(asked) {
                    self.give_up(link, None);
                }
                let address = &link.address;
                let error = StoreError::unknown(format!("{address} did not answer in time"));
                return Err(Failed::no_answer(error));
            }
        };
        match ServerError::try_from(error) {
            Ok(answer) => Err(self.refused(link, answer)),
            Err(error) => {
                let failed = lost(&link.address, &error);
                self.give_up(link, Some(failed.clone()));
                Err(Failed::no_answer(failed))
            }
        }
    }

    fn heard(&self, link: &Link) {
        link.health.hear();
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    fn refused(&self, link: &Link, answer: ServerError) -> Failed {
        link.health.hear();
        let another = wants_another_connection(&answer);
        let failed = Failed::refused(&link.address, answer);
        if another {
            self.failures.fetch_add(1, Ordering::Relaxed);
            self.give_up(link, Some(failed.error.clone()));
        }
        failed
    }

    /// Gives a connection up, once. It closes when the last request on it is over.
    fn give_up(&self, link: &Link, why: Option<StoreError>) {
        self.drop_link(link.generation, &link.health, why);
    }

    fn drop_link(&self, generation: u64, health: &Health, why: Option<StoreError>) {
        if !health.give_up() {
            return;
        }
        {
            let mut state = self.lock();
            if matches!(&*state, State::Connected(link) if link.generation == generation) {
                *state = State::Idle { trouble: why };
            }
        }
        // After the state: who hears of it and asks for a connection gets another one.
        self.pushes.push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
    }
}

impl Way {
    /// Where it leads to, for people.
    fn address(&self) -> String {
        match self {
            Self::To(info) => info.addr().to_string(),
            Self::Given(_) => "the server of the program's own connection".to_owned(),
        }
    }
}

/// An attempt to connect.
struct Connecting {
    generation: u64,
    way: Way,
    timeout: Duration,
    pause: Duration,
    node: Weak<Inner>,
}

impl Connecting {
    async fn connect(self) -> Result<Arc<Link>, StoreError> {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
        }
        let address = self.way.address();
        let limit = clock::now() + self.timeout;
        before(limit, self.attempt()).await.unwrap_or_else(|| {
            Err(StoreError::transient(format!(
                "connecting to {address} took longer than {:?}, the connect timeout",
                self.timeout
            )))
        })
    }

    async fn attempt(&self) -> Result<Arc<Link>, StoreError> {
        let health = Arc::new(Health::default());
        let address = self.way.address();
        let handle = match &self.way {
            Way::Given(connection) => Handle::Given(Arc::clone(connection)),
            Way::To(info) => {
                self.open(info, &health).await.map_err(|error| cant_connect(&address, &error))?
            }
        };
        let greeting = greet(&handle, &address).await?;
        Ok(Arc::new(Link { generation: self.generation, address, greeting, handle, health }))
    }

    async fn open(&self, info: &ConnectionInfo, health: &Arc<Health>) -> RedisResult<Handle> {
        let (node, health, generation) = (Weak::clone(&self.node), Arc::clone(health), self.generation);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(move |push: PushInfo| {
                let Some(node) = node.upgrade() else { return Err(()) };
                health.hear();
                if push.kind == PushKind::Disconnection {
                    node.drop_link(generation, &health, None);
                } else if !health.is_gone() {
                    node.pushes.push(push);
                }
                Ok(())
            });
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.clone().set_redis_settings(settings))?;
        client.get_multiplexed_async_connection_with_config(&config).await.map(Handle::Own)
    }
}

/// Asks the server what it is, and whether it can be used.
async fn greet(handle: &Handle, address: &str) -> Result<Greeting, StoreError> {
    let answer = handle.send(&redis::cmd("HELLO")).await;
    let answer = answer.and_then(Value::extract_error).map_err(|error| cant_connect(address, &error))?;
    let greeting = Greeting::read(&answer).ok_or_else(|| {
        StoreError::unsupported(format!(
            "{address} does not say what it is: Redis 6 or newer or Valkey is needed"
        ))
    })?;
    match (greeting.mode, greeting.role) {
        (Mode::Sentinel, _) => Err(StoreError::rejected(format!(
            "{address} is a Sentinel, which keeps no data: name it in a redis+sentinel:// URL, with the service"
        ))),
        (Mode::Standalone, Role::Replica) => Err(StoreError::transient(format!(
            "{address} is a replica: connect to the primary, or through Sentinel, which follows it"
        ))),
        (Mode::Standalone, Role::Primary) | (Mode::Cluster, _) => Ok(greeting),
    }
}

fn pause_after(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    let longest = FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE);
    let mut byte = [0; 1];
    // Without random numbers all pause equally long.
    let _ = getrandom::fill(&mut byte);
    longest / 2 + longest * u32::from(byte[0]) / 512
}

fn closed() -> StoreError {
    StoreError::rejected("the store was closed; open it again")
}

fn no_pushes() -> Failed {
    Failed::not_connected(StoreError::unsupported("the program's own connection brings no hints"))
}
