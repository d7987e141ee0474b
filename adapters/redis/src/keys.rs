//! The names of keys and channels at the server.

use std::sync::Arc;

use tenure_core::{JobName, LeaseName, TimerName};

pub(crate) use crate::tags::Route;

/// How keys are laid out, which follows from the server's own mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One server holds all keys: standalone, or what Sentinel watches over.
    Single,
    /// A Cluster: a key has one of [the tags](crate::tags::TAGS) in braces, so that all that one script touches lies
    /// in one slot.
    Cluster,
}

/// The names of one store's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    layout: Layout,
    /// A server's databases share its channels: what stands behind the kind of one tells which database it is about.
    database: Arc<str>,
}

/// What belongs to one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseKeys {
    pub(crate) route: Route,
    /// A string, the lease itself: `{prefix}:{name}`.
    pub(crate) lease: Vec<u8>,
    /// A sorted set: until when each of the handles that wait for it is to be counted, in milliseconds.
    pub(crate) waiters: Vec<u8>,
    /// The channel on which its end and its grants are told.
    pub(crate) channel: Vec<u8>,
}

/// What belongs to the members of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetKeys {
    pub(crate) route: Route,
    /// A hash: their records by identity.
    pub(crate) records: Vec<u8>,
    /// A sorted set: until when each of those that are listed is, in microseconds.
    pub(crate) listed: Vec<u8>,
    /// A sorted set: until when each of all that have a record is remembered, in microseconds.
    pub(crate) remembered: Vec<u8>,
    /// A string: the version of the view.
    pub(crate) version: Vec<u8>,
    /// The channel on which a new version is told.
    pub(crate) channel: Vec<u8>,
}

/// What the keys of timers begin with, behind the prefix.
pub(crate) const TIMER: &str = "!timer:";
/// What the keys of jobs begin with, behind the prefix.
pub(crate) const RUNS: &str = "!runs:";

impl Keys {
    pub(crate) fn new(prefix: Arc<str>, layout: Layout, database: i64) -> Self {
        let database = if database == 0 { String::new() } else { format!("@{database}") };
        Self { prefix, layout, database: database.into() }
    }

    /// What belongs to a lease.
    pub(crate) fn lease(&self, name: &LeaseName) -> LeaseKeys {
        let name = name.as_str();
        let route = self.route(name);
        LeaseKeys {
            route,
            lease: self.key(":", route, name),
            waiters: self.key("!waiters:", route, name),
            channel: self.channel(name),
        }
    }

    /// Just the key of a lease.
    pub(crate) fn lease_alone(&self, name: &LeaseName) -> (Route, Vec<u8>) {
        let mut key = Vec::new();
        (self.write_lease(name, &mut key), key)
    }

    /// The same, in place of what was there: for renewals, which are many.
    pub(crate) fn write_lease(&self, name: &LeaseName, key: &mut Vec<u8>) -> Route {
        let route = self.route(name.as_str());
        self.write(key, ":", route, name.as_str());
        route
    }

    /// What all keys of a kind match, and few others do.
    pub(crate) fn pattern(&self, kind: &str) -> Vec<u8> {
        // A prefix has no character that means something else in a pattern, nor has a kind or a tag.
        match self.layout {
            Layout::Single => format!("{}{kind}*", self.prefix).into_bytes(),
            Layout::Cluster => format!("{}{kind}{{*}}:*", self.prefix).into_bytes(),
        }
    }

    /// The name that a key of this kind is about; `None` for a key that is none of ours.
    pub(crate) fn name_in<'a>(&self, kind: &str, key: &'a [u8]) -> Option<&'a str> {
        let key = str::from_utf8(key).ok()?;
        let rest = key.strip_prefix(&*self.prefix)?.strip_prefix(kind)?;
        let name = match self.layout {
            Layout::Single => rest,
            Layout::Cluster => rest.split_once("}:")?.1,
        };
        (self.key(kind, self.route(name), name) == key.as_bytes()).then_some(name)
    }

    /// The highest token given: one key for the whole store, in a Cluster one for each tag.
    pub(crate) fn high_water(&self, route: Route) -> Vec<u8> {
        self.key("!token", route, "")
    }

    pub(crate) fn timer(&self, name: &TimerName) -> (Route, Vec<u8>) {
        let route = self.route(name.as_str());
        (route, self.key(TIMER, route, name.as_str()))
    }

    /// The runs of a job, a hash by owner.
    pub(crate) fn job(&self, name: &JobName) -> (Route, Vec<u8>) {
        let route = self.route(name.as_str());
        (route, self.key(RUNS, route, name.as_str()))
    }

    /// All that is about members: there is one of each of these in the whole store.
    pub(crate) fn fleet(&self) -> FleetKeys {
        let route = Route::FIRST;
        FleetKeys {
            route,
            records: self.key("!members", route, ""),
            listed: self.key("!members-listed", route, ""),
            remembered: self.key("!members-remembered", route, ""),
            version: self.key("!members-version", route, ""),
            channel: format!("{}!wake-members{}", self.prefix, self.database).into_bytes(),
        }
    }

    /// The channel that has to do with this name.
    fn channel(&self, name: &str) -> Vec<u8> {
        format!("{}!wake{}:{name}", self.prefix, self.database).into_bytes()
    }

    fn route(&self, name: &str) -> Route {
        match self.layout {
            Layout::Single => Route::FIRST,
            Layout::Cluster => Route::of(name),
        }
    }

    fn key(&self, kind: &str, route: Route, name: &str) -> Vec<u8> {
        let mut key = Vec::new();
        self.write(&mut key, kind, route, name);
        key
    }

    fn write(&self, key: &mut Vec<u8>, kind: &str, route: Route, name: &str) {
        key.clear();
        key.extend_from_slice(self.prefix.as_bytes());
        key.extend_from_slice(kind.as_bytes());
        if self.layout == Layout::Cluster {
            key.extend_from_slice(format!("{{{}}}:", route.tag()).as_bytes());
        }
        key.extend_from_slice(name.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server has one set of channels for all its databases: what happens in one is no news in the others.
    #[test]
    fn each_database_has_channels_of_its_own() {
        let channels = |database| {
            let keys = Keys::new("t".into(), Layout::Single, database);
            (keys.lease(&LeaseName::new("a").unwrap()).channel, keys.fleet().channel)
        };
        assert_eq!(channels(0), (b"t!wake:a".to_vec(), b"t!wake-members".to_vec()));
        assert_eq!(channels(3), (b"t!wake@3:a".to_vec(), b"t!wake-members@3".to_vec()));
    }

    #[test]
    fn the_names_in_keys_are_those_that_the_keys_were_made_of() {
        for layout in [Layout::Single, Layout::Cluster] {
            let keys = Keys::new("te.nure-1_x".into(), layout, 0);
            for name in ["a", ":", "}:", "{x}", "{0}:a", "!waiters:a", "a:b", "\0", "ä*?[x]\\"] {
                let (_, key) = keys.lease_alone(&LeaseName::new(name).unwrap());
                assert_eq!(keys.name_in(":", &key), Some(name), "{layout:?}");
                assert_eq!(keys.name_in("!timer:", &key), None, "{layout:?}");
                let (_, timer) = keys.timer(&TimerName::new(name).unwrap());
                assert_eq!((keys.name_in("!timer:", &timer), keys.name_in(":", &timer)), (Some(name), None));
            }
            for foreign in [&b"te.nure-1_xy:a"[..], b"tenure-1_x:a", b"te.nure-1_x", b"te.nure-1_x:\xff", b""]
            {
                assert_eq!(keys.name_in(":", foreign), None, "{layout:?}");
            }
        }
        let keys = Keys::new("t".into(), Layout::Cluster, 0);
        let (_, key) = keys.lease_alone(&LeaseName::new("b").unwrap());
        let of_another_tag = String::from_utf8(key).unwrap().replace('b', "c");
        assert_eq!(
            keys.name_in(":", of_another_tag.as_bytes()),
            None,
            "no lease has this name under this tag"
        );
    }
}
