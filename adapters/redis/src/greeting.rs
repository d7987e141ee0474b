//! What is asked of a server when a connection to it is new: what it is, and whether it can be used.

use redis::{RedisResult, Value};
use tenure_store::StoreError;

use crate::error::{cant_connect, refused};
use crate::link::{Handle, text};

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) mode: Mode,
    pub(crate) role: Role,
    /// Which program it is: `redis`, `valkey`.
    pub(crate) server: String,
    pub(crate) version: String,
    /// What it may do with leases if its memory is full, where it tells.
    pub(crate) eviction: Option<Eviction>,
}

/// How a server keeps its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Alone, or as the primary or a replica of a pair.
    Standalone,
    /// As a node of a Cluster.
    Cluster,
    /// Not at all: it watches over others.
    Sentinel,
}

/// Whether a server takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Replica,
}

/// A server that throws keys away, and so leases, when its memory is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    /// Its `maxmemory-policy`.
    pub(crate) policy: String,
    /// Its `maxmemory`, in bytes.
    pub(crate) most: u64,
}

/// Asks the server what it is, and whether it can be used. All of it travels together.
pub(crate) async fn greet(handle: &Handle, address: &str) -> Result<Greeting, StoreError> {
    let (hello, info, mut script) = (redis::cmd("HELLO"), memory(), redis::cmd("EVAL"));
    script.arg("return 1").arg(0);
    let (greeting, scripting, memory) =
        futures::join!(handle.send(&hello), handle.send(&script), handle.send(&info));
    let answer = greeting.and_then(Value::extract_error).map_err(|error| cant_connect(address, &error))?;
    let mut greeting = Greeting::read(&answer).ok_or_else(|| {
        StoreError::unsupported(format!(
            "{address} does not say what it is: Redis 6 or newer or Valkey is needed"
        ))
    })?;
    match (greeting.mode, greeting.role) {
        (Mode::Sentinel, _) => {
            return Err(StoreError::rejected(format!(
                "{address} is a Sentinel, which keeps no data: name it in a redis+sentinel:// URL, with the service"
            )));
        }
        (Mode::Standalone, Role::Replica) => {
            return Err(StoreError::transient(format!(
                "{address} is a replica: connect to the primary, or through Sentinel, which follows it"
            )));
        }
        (Mode::Standalone, Role::Primary) | (Mode::Cluster, _) => {}
    }
    check_scripting(scripting, address)?;
    greeting.eviction = memory.ok().as_ref().and_then(text).and_then(Eviction::read);
    Ok(greeting)
}

fn memory() -> redis::Cmd {
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    info
}

/// Nothing works without scripts: better said now than by the first lease.
fn check_scripting(answer: RedisResult<Value>, address: &str) -> Result<(), StoreError> {
    match answer {
        Ok(Value::ServerError(answer)) => {
            let mut error = refused(address, &answer);
            error.message = format!("scripts can't be run: {}", error.message);
            Err(error)
        }
        Ok(_) => Ok(()),
        Err(error) => Err(cant_connect(address, &error)),
    }
}

impl Greeting {
    /// Reads the answer to HELLO: a map, or a flat list in the older protocol.
    fn read(answer: &Value) -> Option<Self> {
        let pairs: Vec<(&Value, &Value)> = match answer {
            Value::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
            Value::Array(flat) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
            _ => return None,
        };
        let field = |name: &str| {
            let (_, value) = pairs.iter().find(|(key, _)| text(key).is_some_and(|key| key == name))?;
            text(value)
        };
        let mode = match field("mode")? {
            "cluster" => Mode::Cluster,
            "sentinel" => Mode::Sentinel,
            _ => Mode::Standalone,
        };
        let role = match field("role") {
            Some("replica" | "slave") => Role::Replica,
            _ => Role::Primary,
        };
        let owned = |name| field(name).unwrap_or_default().to_owned();
        Some(Self { mode, role, server: owned("server"), version: owned("version"), eviction: None })
    }
}

impl Eviction {
    /// Reads what the server says of its memory; `None` if it evicts nothing.
    fn read(info: &str) -> Option<Self> {
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let most = field("maxmemory")?.trim().parse().ok()?;
        let policy = field("maxmemory_policy")?.trim();
        (most > 0 && policy != "noeviction").then(|| Self { policy: policy.to_owned(), most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(pairs: &[(&str, &str)]) -> Vec<(Value, Value)> {
        let string = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        pairs.iter().map(|(key, value)| (string(key), string(value))).collect()
    }

    #[test]
    fn a_greeting_is_read_in_both_protocols() {
        let pairs =
            hello(&[("server", "valkey"), ("version", "9.1.2"), ("mode", "cluster"), ("role", "replica")]);
        let expected = Greeting {
            mode: Mode::Cluster,
            role: Role::Replica,
            server: "valkey".into(),
            version: "9.1.2".into(),
            eviction: None,
        };
        let flat = pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
        assert_eq!(Greeting::read(&Value::Array(flat)).as_ref(), Some(&expected));
        assert_eq!(Greeting::read(&Value::Map(pairs)), Some(expected));
    }

    #[test]
    fn what_does_not_say_its_mode_has_not_greeted() {
        assert_eq!(Greeting::read(&Value::Map(hello(&[("server", "redis")]))), None);
        assert_eq!(Greeting::read(&Value::Okay), None);
    }

    #[test]
    fn a_server_evicts_only_with_a_bound_and_a_policy() {
        let info =
            |most, policy| format!("used_memory:1\r\nmaxmemory:{most}\r\nmaxmemory_policy:{policy}\r\n");
        let eviction = Eviction { policy: "volatile-lru".into(), most: 1000 };
        assert_eq!(Eviction::read(&info(1000, "volatile-lru")), Some(eviction));
        assert_eq!(Eviction::read(&info(1000, "noeviction")), None);
        assert_eq!(Eviction::read(&info(0, "allkeys-lru")), None);
        assert_eq!(Eviction::read("used_memory:1"), None);
    }
}
