//! Which node of a Cluster has which slots, as its nodes say it.

use std::fmt;

use redis::{ServerError, Value};

use crate::link::text;
use crate::options::Endpoint;
use crate::tags::{Route, SLOTS, TAGS};

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    /// A name or an IP address, the latter without brackets; or the path of a unix socket.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let (host, port) = endpoint.host_and_port();
        Self { host, port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            0 => f.write_str(&self.host),
            port if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            port => write!(f, "{}:{port}", self.host),
        }
    }
}

/// The node of each [`Route`], by its place; `None` where no node has the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places(Vec<Option<Address>>);

impl Places {
    /// Reads the answer to CLUSTER SLOTS of the node at `asked`; `None` if it is none.
    pub(super) fn read(answer: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut places = vec![None; TAGS.len()];
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [first, last, primary, ..] = &range[..] else { return None };
            let (first, last) = (slot(first)?, slot(last)?);
            // Whose address the node itself does not know can't be asked, but all others can.
            let Some(primary) = node(primary, asked) else { continue };
            for route in Route::all().filter(|route| (first..=last).contains(&route.slot())) {
                places[route.place()] = Some(primary.clone());
            }
        }
        Some(Self(places))
    }

    pub(super) fn of(&self, route: Route) -> Option<&Address> {
        self.0[route.place()].as_ref()
    }

    /// A node said that another has the slot.
    pub(super) fn put(&mut self, route: Route, address: Address) {
        self.0[route.place()] = Some(address);
    }

    /// The routes that have another node there, or none, with those that they have here.
    pub(super) fn not_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (Route, Address)> + 'a {
        let here = Route::all().filter_map(|route| Some((route, self.of(route)?)));
        here.filter(|(route, address)| other.of(*route) != Some(*address))
            .map(|(route, address)| (route, address.clone()))
    }

    /// How many routes have a node.
    pub(super) fn known(&self) -> usize {
        self.nodes().count()
    }

    /// Their nodes, each as often as it has routes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Address> {
        self.0.iter().flatten()
    }

    /// A route that has no node.
    pub(super) fn unknown(&self) -> Option<Route> {
        Route::all().find(|route| self.of(*route).is_none())
    }
}

fn slot(value: &Value) -> Option<u16> {
    match value {
        Value::Int(slot) => u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS),
        _ => None,
    }
}

fn node(value: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = value else { return None };
    let [host, Value::Int(port), ..] = &parts[..] else { return None };
    let host = match host {
        Value::Nil => "",
        host => text(host)?,
    };
    address(host, u16::try_from(*port).ok()?, asked)
}

/// An empty host is that which was asked; `?` is one that is not known.
fn address(host: &str, port: u16, asked: &Address) -> Option<Address> {
    let host = if host.is_empty() { &asked.host } else { host };
    (host != "?" && port != 0).then(|| Address { host: host.to_owned(), port })
}

/// Where a node says that the slot is now, or is moving to: `MOVED 3999 127.0.0.1:6381`, `ASK 3999 ::1:6381`.
pub(super) fn redirect(answer: &ServerError, asked: &Address) -> Option<Address> {
    let place = answer.details()?.split_ascii_whitespace().nth(1)?;
    let (host, port) = place.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address(host, port.parse().ok()?, asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = Value::Array(vec![host, Value::Int(port), string("id"), Value::Array(Vec::new())]);
        let replica = Value::Array(vec![string("10.0.0.9"), Value::Int(1), string("other")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node, replica])
    }

    fn asked() -> Address {
        Address { host: "seed".into(), port: 6379 }
    }

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn each_route_gets_the_primary_of_its_slot() {
        let ranges = vec![
            range(8192, 16_383, string("10.0.0.2"), 7001),
            range(0, 4095, Value::Nil, 7002),
            range(4096, 8191, string(""), 7003),
        ];
        let places = Places::read(&Value::Array(ranges), &asked()).unwrap();
        for route in Route::all() {
            let expected = match route.slot() {
                ..4096 => at("seed", 7002),
                4096..8192 => at("seed", 7003),
                _ => at("10.0.0.2", 7001),
            };
            assert_eq!(places.of(route), Some(&expected));
        }
        assert_eq!((places.known(), places.unknown()), (64, None));
    }

    #[test]
    fn a_slot_without_a_node_has_none() {
        let ranges = vec![range(0, 8191, string("?"), 7000), range(8192, 16_382, string("h"), 7000)];
        let places = Places::read(&Value::Array(ranges), &asked()).unwrap();
        assert_eq!((places.known(), places.unknown()), (32, Some(Route::FIRST)));
    }

    #[test]
    fn what_is_no_list_of_slots_is_refused() {
        let strange = [
            Value::Okay,
            Value::Array(vec![Value::Okay]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(5)])]),
            Value::Array(vec![range(-1, 5, string("h"), 1)]),
            Value::Array(vec![range(0, 16_384, string("h"), 1)]),
        ];
        for answer in strange {
            assert_eq!(Places::read(&answer, &asked()), None, "{answer:?}");
        }
    }

    #[test]
    fn a_redirect_names_where_to_go() {
        let of = |details: &str| {
            let parsed = redis::parse_redis_value(format!("-MOVED {details}\r\n").as_bytes());
            match parsed {
                Ok(Value::ServerError(answer)) => redirect(&answer, &asked()),
                other => panic!("not an error: {other:?}"),
            }
        };
        assert_eq!(of("3999 127.0.0.1:6381"), Some(at("127.0.0.1", 6381)));
        assert_eq!(of("3999 fd00::1:6381"), Some(at("fd00::1", 6381)));
        assert_eq!(of("3999 [fd00::1]:6381"), Some(at("fd00::1", 6381)));
        assert_eq!(of("3999 node.example:6381"), Some(at("node.example", 6381)));
        assert_eq!(of("3999 :6381"), Some(at("seed", 6381)));
        for strange in
            ["3999", "3999 host", "3999 ?:6381", "3999 host:port", "3999 host:0", "3999 host:65536"]
        {
            assert_eq!(of(strange), None, "{strange}");
        }
        assert_eq!(at("fd00::1", 6381).to_string(), "[fd00::1]:6381");
    }
}
