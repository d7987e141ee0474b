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
//!   goes on when one of them gives up. Within it a new try begins each second while the earlier ones go on: what was sent
//!   into a hole is not waited for, and Sentinels may name another server meanwhile.
//! - After a failure the next attempt begins with a pause, up to half a second.
//! - A connection is given up when it ends, when two requests in a row have no answer and nothing else came in, or when the
//!   server says that it is not the one any more. A request that meets a connection that is already replaced changes nothing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisResult, ServerError, Value};
use tenure_core::Instant;
use tenure_store::{StoreError, clock};

use crate::connect::{Attempt, Connecting, Way};
use crate::error::{Failed, lost, wants_another_connection};
use crate::greeting::Eviction;
use crate::link::{Asked, Health, Link};
use crate::sleep::{before, is_in_runtime};
use crate::watch::Pushes;

/// A server, or whichever server is the primary. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Node {
    inner: Arc<Inner>,
}

/// A node's part that the task of its connection knows, too.
pub(crate) struct Inner {
    way: Way,
    connect_timeout: Duration,
    pushes: Arc<Pushes>,
    state: Mutex<State>,
    /// How many attempts or connections failed since the last answer.
    failures: AtomicU32,
    generations: AtomicU64,
    /// What was last logged of a server that may throw leases away.
    warned: Mutex<Option<(String, Eviction)>>,
    /// When a lost connection was last warned of.
    told_lost: Mutex<Option<Instant>>,
}

enum State {
    Idle {
        /// Why there is no connection, if there should be one.
        trouble: Option<StoreError>,
    },
    Connecting(Pending),
    Connected(Arc<Link>),
    Closed,
}

/// An attempt that is under way.
#[derive(Clone)]
struct Pending {
    generation: u64,
    attempt: Attempt,
    /// When it is given up: its runtime stands still, or is none of ours any more.
    over: Instant,
    trouble: Option<StoreError>,
}

/// The longest pause before an attempt to connect: a server that is back is found within this.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The pause after the first failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(16);

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
                warned: Mutex::new(None),
                told_lost: Mutex::new(None),
            }),
        }
    }

    /// Whether its connection is the program's.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self.inner.way, Way::Given(_))
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

    /// The connection, made first if there is none.
    ///
    /// # Errors
    /// Nothing was sent. Transient but for what only a change of settings can mend.
    pub(crate) async fn connected(&self, until: Instant) -> Result<Arc<Link>, StoreError> {
        if !is_in_runtime() {
            return Err(no_runtime());
        }
        let mut left_behind = false;
        loop {
            let pending = match self.inner.begin() {
                Begun::Connected(link) => return Ok(link),
                Begun::Closed => return Err(closed()),
                Begun::Attempt(pending) => pending,
            };
            match before(until.min(pending.over), pending.attempt.clone()).await {
                Some(Ok(result)) => return self.inner.end(pending.generation, result),
                // Another runtime ended, or stands still, with it.
                None | Some(Err(_)) if clock::now() < until && !left_behind => {
                    left_behind = true;
                    self.inner.leave(pending);
                }
                Some(Err(_)) => return Err(no_runtime()),
                None => {
                    return Err(StoreError::transient(match pending.trouble {
                        Some(trouble) => format!("not connected again yet; {}", trouble.message),
                        None => {
                            let way = &self.inner.way;
                            format!("not connected to {} yet{}", way.address(), way.mends_silence())
                        }
                    }));
                }
            }
        }
    }

    /// Has the next request go on another connection. This one closes when the last request on it is over.
    pub(crate) fn replace(&self) {
        let mut state = self.inner.lock();
        if let State::Connected(link) = &*state {
            link.health.give_up();
            *state = State::Idle { trouble: None };
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
    Attempt(Pending),
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
            State::Connecting(pending) => return Begun::Attempt(pending.clone()),
            State::Idle { trouble } => trouble.clone(),
        };
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let connecting = Connecting {
            way: self.way.clone(),
            timeout: self.connect_timeout,
            pause: pause_after(self.failures.load(Ordering::Relaxed)),
            // Not the node itself: it would keep the task of the connection alive, and that the node.
            node: Arc::downgrade(self),
        };
        let over = connecting.over();
        let pending = Pending { generation, attempt: connecting.begin(), over, trouble };
        *state = State::Connecting(pending.clone());
        Begun::Attempt(pending)
    }

    /// An attempt has ended; whoever sees it first says so to the others.
    fn end(&self, generation: u64, result: Result<Arc<Link>, StoreError>) -> Result<Arc<Link>, StoreError> {
        let mut state = self.lock();
        match &*state {
            State::Closed => return Err(closed()),
            State::Connecting(pending) if pending.generation == generation => {}
            // Others have seen it already.
            State::Connecting(_) | State::Idle { .. } | State::Connected(_) => return result,
        }
        *state = match &result {
            Ok(link) if !link.health.is_gone() => State::Connected(Arc::clone(link)),
            // Closed again before anybody could use it.
            Ok(_) => State::Idle { trouble: None },
            Err(error) => State::Idle { trouble: Some(error.clone()) },
        };
        let connected = matches!(&*state, State::Connected(_));
        drop(state);
        match &result {
            Ok(link) => self.log_connected(link),
            Err(error) => self.log_failure(error),
        }
        if !connected {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// An attempt will not end.
    fn leave(&self, left: Pending) {
        let mut state = self.lock();
        if matches!(&*state, State::Connecting(pending) if pending.generation == left.generation) {
            *state = State::Idle { trouble: left.trouble };
        }
    }

    /// What became of a request.
    fn judge(&self, link: &Link, answer: Result<RedisResult<Value>, Asked>) -> Result<Value, Failed> {
        let error = match answer {
            Ok(Ok(Value::ServerError(answer))) => return Err(self.refused(link, answer)),
            Ok(Ok(value)) => {
                self.heard(link);
                return Ok(value);
            }
            Ok(Err(error)) => error,
            Err(asked) => {
                let silent = link.health.unanswered(asked);
                let error = StoreError::unknown(format!("{} did not answer in time", link.address));
                if silent {
                    self.give_up(&link.health, &error);
                }
                return Err(Failed::no_answer(error));
            }
        };
        match ServerError::try_from(error) {
            Ok(answer) => Err(self.refused(link, answer)),
            Err(error) => {
                let failed = lost(&link.address, &error);
                self.give_up(&link.health, &failed);
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
            self.give_up(&link.health, &failed.error);
            // The next connection may lead to the same server.
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        failed
    }

    /// Gives a connection up, once. It closes when the last request on it is over.
    pub(crate) fn give_up(&self, health: &Arc<Health>, why: &StoreError) {
        if !health.give_up() {
            return;
        }
        let mut state = self.lock();
        // Another one may be in its place, or none that anybody used.
        let State::Connected(link) = &*state else { return };
        if !Arc::ptr_eq(&link.health, health) {
            return;
        }
        let address = link.address.clone();
        *state = State::Idle { trouble: Some(why.clone()) };
        drop(state);
        self.log_lost(&address, why);
        // After the state: who hears of it and asks for a connection gets another one.
        self.pushes.push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
    }

    /// Takes what the server pushes over a connection.
    pub(crate) fn pushed(&self, push: PushInfo) {
        self.pushes.push(push);
    }

    fn log_connected(&self, link: &Link) {
        let Link { address, greeting, .. } = link;
        let (server, version) = (&greeting.server, &greeting.version);
        tracing::info!(event = "redis.connected", %address, %server, %version, "connected to the store");
        let Some(eviction) = &greeting.eviction else { return };
        let warning = Some((address.clone(), eviction.clone()));
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if *warned != warning {
            *warned = warning;
            let Eviction { policy, most } = eviction;
            tracing::warn!(
                event = "redis.eviction_policy", %address, %policy, maxmemory = *most,
                "the server may throw leases away when its memory is full: set maxmemory-policy to noeviction"
            );
        }
    }

    /// Once at `warn`; what follows without an answer in between is the same trouble. So is what follows soon: a server
    /// that closes idle connections does so again and again.
    fn log_lost(&self, address: &str, error: &StoreError) {
        let now = clock::now();
        let mut told = self.told_lost.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = told.is_some_and(|at| now.saturating_since(at) < TOLD_FOR);
        if self.failures.load(Ordering::Relaxed) == 0 && !lately {
            *told = Some(now);
            drop(told);
            tracing::warn!(
                event = "redis.lost", %address, %error,
                "the connection to the store is lost; if the server closes those that are idle, set its timeout to 0"
            );
        } else {
            drop(told);
            tracing::debug!(event = "redis.lost_again", %address, %error, "the connection to the store is lost again");
        }
    }

    fn log_failure(&self, error: &StoreError) {
        if self.failures.load(Ordering::Relaxed) == 0 {
            // A target of its own: whoever shows the error itself can leave this out.
            tracing::warn!(
                target: "tenure_redis::cannot_connect", event = "redis.cannot_connect", %error,
                "no connection to the store"
            );
        } else {
            tracing::debug!(event = "redis.cannot_connect_yet", %error, "still no connection to the store");
        }
    }
}

/// For so long after a lost connection was warned of, another one is not.
const TOLD_FOR: Duration = Duration::from_secs(300);

fn pause_after(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    let longest = FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE);
    let mut byte = [0; 1];
    // Without random numbers all pause equally long.
    let _ = getrandom::fill(&mut byte);
    longest / 2 + longest * u32::from(byte[0]) / 510
}

fn no_runtime() -> StoreError {
    StoreError::rejected(
        "there is no runtime to connect in: use the store within Tokio, or with the feature smol",
    )
}

pub(crate) fn closed() -> StoreError {
    StoreError::rejected("the store was closed; open it again")
}
