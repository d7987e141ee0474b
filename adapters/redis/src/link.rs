//! One connection: made, greeted, and watched for whether it answers.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, Value};
use tenure_core::Instant;
use tenure_store::clock;

use crate::greeting::Greeting;

/// A text of the server, whichever kind of string it comes as.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// A connection, and what its server said of itself.
pub(crate) struct Link {
    /// Where it leads to, for people: never with credentials.
    pub(crate) address: String,
    pub(crate) greeting: Greeting,
    pub(crate) handle: Handle,
    pub(crate) health: Arc<Health>,
}

/// What carries commands.
#[derive(Clone)]
pub(crate) enum Handle {
    /// A connection of ours, with pushes.
    Own(MultiplexedConnection),
    /// That of the program.
    Given(Arc<dyn Given>),
}

impl Handle {
    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Own(connection) => connection.clone().send_packed_command(command).await,
            Self::Given(connection) => connection.send(command).await,
        }
    }

    /// Sends commands one right after the other, and returns the answer to the last.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Value> {
        let last = commands.len().saturating_sub(1);
        let answers = match self {
            Self::Own(connection) => connection.clone().send_packed_commands(commands, last, 1).await,
            Self::Given(connection) => connection.send_all(commands, last).await,
        };
        Ok(answers?.pop().unwrap_or(Value::Nil))
    }
}

/// A connection that the program gave us: anything that carries commands and can be cloned.
pub(crate) trait Given: Send + Sync + 'static {
    fn send<'a>(&'a self, command: &'a Cmd) -> RedisFuture<'a, Value>;
    fn send_all<'a>(&'a self, commands: &'a Pipeline, skipped: usize) -> RedisFuture<'a, Vec<Value>>;
    /// The number of the database that it works in.
    fn database(&self) -> i64;
}

impl fmt::Debug for dyn Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Given for C {
    fn send<'a>(&'a self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }

    fn send_all<'a>(&'a self, commands: &'a Pipeline, skipped: usize) -> RedisFuture<'a, Vec<Value>> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_commands(commands, skipped, 1).await })
    }

    fn database(&self) -> i64 {
        self.get_db()
    }
}

/// How many requests in a row may end without an answer before a connection is given up.
///
/// One may be a server that is busy for a while; a second one, sent after the first had ended, says that nobody is there.
const MOST_SILENCES: u32 = 2;

/// Whether anything comes in on a connection.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// How much has come in: answers and pushes.
    heard: AtomicU64,
    /// The connection was given up, or is closed.
    gone: AtomicBool,
    silence: Mutex<Silence>,
}

#[derive(Debug, Default)]
struct Silence {
    requests: u32,
    /// How much had come in by then.
    heard: u64,
    /// When the last of these requests had ended.
    since: Instant,
}

/// How things stood when a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    heard: u64,
    at: Instant,
}

impl Health {
    /// Something came in.
    pub(crate) fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// How much has come in.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub(crate) fn asked(&self) -> Asked {
        Asked { heard: self.heard(), at: clock::now() }
    }

    /// A request had no answer in time. Whether the connection is to be given up for that.
    pub(crate) fn unanswered(&self, asked: Asked) -> bool {
        let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = self.heard();
        if silence.heard != heard {
            *silence = Silence { heard, ..Silence::default() };
        }
        // Requests that were sent side by side are one silence.
        if asked.heard == heard && (silence.requests == 0 || asked.at >= silence.since) {
            silence.requests += 1;
            silence.since = clock::now();
        }
        silence.requests >= MOST_SILENCES
    }

    /// Marks the connection as given up; whether it was not yet.
    pub(crate) fn give_up(&self) -> bool {
        !self.gone.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}
