//! Places with a store of their own: a file, or a server.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tenure_servers::{Nats, Proxy, Redis};

use crate::harness::{
    Began, Evidence, Running, bare_tenure, eventually, lives, now, output, witness_program,
};

/// What the places of a test have as their store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    /// A server of its own.
    Redis,
    /// A server of its own.
    Nats,
}

thread_local! {
    static KIND: Cell<Kind> = const { Cell::new(Kind::File) };
}

/// Runs a test whose places have servers as their stores in place of files.
pub(crate) fn on(kind: Kind, test: fn()) {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            KIND.set(Kind::File);
        }
    }
    let _back = Back;
    KIND.set(kind);
    test();
}

/// The tests of these names once more, on servers.
macro_rules! also_on_servers {
    ($($test:ident)*) => {
        mod needs_redis {
            $(
                #[test]
                #[ignore = "needs redis"]
                fn $test() {
                    $crate::place::on($crate::place::Kind::Redis, super::$test);
                }
            )*
        }

        mod needs_nats {
            $(
                #[test]
                #[ignore = "needs nats-server"]
                fn $test() {
                    $crate::place::on($crate::place::Kind::Nats, super::$test);
                }
            )*
        }
    };
}
pub(crate) use also_on_servers;

/// A folder with a store and evidence of its own.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    store: Store,
}

enum Store {
    /// With what is added to its URL.
    File(&'static str),
    /// Behind a proxy, by which everybody reaches it.
    Redis(Box<Redis>, Proxy),
    Nats(Box<Nats>, Proxy),
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// Where a holder's death is not seen, so that a lease passes on by its TTL only. A server never sees it.
    pub(crate) fn without_early_takeover() -> Self {
        Self::with("?early=off")
    }

    fn with(query: &'static str) -> Self {
        let store = match KIND.get() {
            Kind::File => Store::File(query),
            Kind::Redis => return Self::on_redis(),
            Kind::Nats => {
                let server = Nats::start();
                let proxy = Proxy::to(server.address());
                Store::Nats(Box::new(server), proxy)
            }
        };
        Self { folder: tempfile::tempdir().unwrap(), store }
    }

    /// With a server of Redis as its store.
    pub(crate) fn on_redis() -> Self {
        let server = Redis::start();
        let proxy = Proxy::to(server.address());
        Self { folder: tempfile::tempdir().unwrap(), store: Store::Redis(Box::new(server), proxy) }
    }

    /// Whether its store is a file, which shows that a holder's process is gone.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.store, Store::File(_))
    }

    /// The server of Redis that is its store.
    pub(crate) fn server(&self) -> &Redis {
        let Store::Redis(server, _) = &self.store else { panic!("its store is another one") };
        server
    }

    /// What everybody reaches the server by.
    pub(crate) fn proxy(&self) -> &Proxy {
        let (Store::Redis(_, proxy) | Store::Nats(_, proxy)) = &self.store else {
            panic!("its store is a file")
        };
        proxy
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        match &self.store {
            Store::File(query) => format!("sqlite:{}{query}", self.path("leases.db").display()),
            Store::Redis(_, proxy) => proxy.url(),
            Store::Nats(_, proxy) => format!("nats://{}", proxy.address()),
        }
    }

    /// The end of the store's name, as messages have it.
    pub(crate) fn store(&self) -> String {
        match &self.store {
            Store::File(_) => "leases.db".to_owned(),
            Store::Redis(_, proxy) | Store::Nats(_, proxy) => proxy.address().to_string(),
        }
    }

    /// Processes that name this place on their command line and live, apart from parts of `tenure`.
    pub(crate) fn workers(&self) -> Vec<Pid> {
        let folder = self.folder.path().to_str().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap();
        processes
            .filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?))
            .filter(|process| {
                let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains(folder) && !line.starts_with("tenure\0") && lives(*process)
            })
            .collect()
    }

    /// `tenure` with these arguments, on the store of this place, with nothing of our own environment that it
    /// would look at.
    pub(crate) fn tenure(&self, arguments: &[&str]) -> Command {
        let mut command = bare_tenure();
        command.args(arguments).env("TENURE_STORE", self.url()).env("HOME", self.folder.path());
        command
    }

    /// `tenure run` of a witness on a lease named `job`. It leaves its evidence in the file `evidence`.
    pub(crate) fn work(&self, options: &[&str], evidence: &str, witness: &[&str]) -> Running {
        let file = self.path(evidence);
        let mut arguments = vec!["run", "--lease", "job"];
        arguments.extend(options);
        let mut command = self.tenure(&arguments);
        command.arg("--").arg(witness_program()).arg("work").arg(file).args(witness);
        Running::start(command)
    }

    /// `tenure every` of a witness on a timer named `job`, which works so many milliseconds for each tick. It leaves its
    /// evidence in the file `evidence`.
    pub(crate) fn ticks(&self, period: &str, options: &[&str], evidence: &str, millis: u64) -> Running {
        let mut command = self.every(period, options);
        command.arg(witness_program()).arg("tick").arg(self.path(evidence)).arg(millis.to_string());
        Running::start(command)
    }

    /// `tenure every` on a timer named `job`; the command is still to be added.
    pub(crate) fn every(&self, period: &str, options: &[&str]) -> Command {
        let mut arguments = vec!["every", period, "--name", "job"];
        arguments.extend(options);
        let mut command = self.tenure(&arguments);
        command.arg("--");
        command
    }

    /// `tenure worker` with these options; the command is still to be added.
    pub(crate) fn worker(&self, options: &[&str]) -> Command {
        let mut command = self.tenure(&[&["worker"], options].concat());
        command.arg("--");
        command
    }

    /// The instances that are listed, by their names.
    pub(crate) fn instances(&self) -> BTreeMap<String, Value> {
        let name = |instance: &Value| instance["instance"].as_str().unwrap().to_owned();
        self.list(&["instances"]).into_iter().map(|instance| (name(&instance), instance)).collect()
    }

    /// Which instance has which lease.
    pub(crate) fn holders(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let leases = self.list(&["leases"]).into_iter();
        leases.map(|lease| (text(&lease["lease"]), text(&lease["instance"]))).collect()
    }

    /// What `tenure` lists as JSON.
    pub(crate) fn list(&self, arguments: &[&str]) -> Vec<Value> {
        let mut command = self.tenure(arguments);
        command.arg("--json");
        let (code, out, err) = output(command);
        assert_eq!(code, Some(0), "{err}");
        let Value::Array(list) = serde_json::from_str(&out).unwrap() else { panic!("{out}") };
        list
    }

    /// The recorded runs of the job, the latest first.
    pub(crate) fn runs(&self) -> Vec<Value> {
        self.list(&["jobs", "history", "job"])
    }

    /// The outcomes of the recorded runs of a tick, the latest first.
    pub(crate) fn outcomes(&self, tick: u64) -> Vec<String> {
        let runs = self.runs().into_iter().filter(|run| run["index"] == tick);
        runs.map(|run| run["outcome"].as_str().unwrap().to_owned()).collect()
    }

    /// The evidence so far.
    pub(crate) fn evidence(&self, file: &str) -> Evidence {
        Evidence::read(&self.path(file))
    }

    /// Waits for the first command that began under a token above `above`.
    pub(crate) fn began_above(&self, file: &str, above: u64) -> Began {
        eventually("the next command to begin", || {
            self.evidence(file).began.into_iter().find(|began| began.token > above)
        })
    }

    /// Waits until somebody has done a unit of work under this token.
    pub(crate) fn worked(&self, file: &str, token: u64) {
        eventually("a unit of work", || {
            self.evidence(file).history.units.iter().any(|unit| unit.token == token).then_some(())
        });
    }
}

/// Keeps everybody else from the store until it is dropped.
#[expect(dead_code, reason = "dropping them is what counts")]
pub(crate) enum Blocked<'a> {
    File(Connection),
    Server(Frozen<'a>),
}

/// A server that stands still.
pub(crate) struct Frozen<'a>(&'a Store);

impl<'a> Frozen<'a> {
    fn new(store: &'a Store) -> Self {
        match store {
            Store::File(_) => {}
            Store::Redis(server, _) => server.freeze(),
            Store::Nats(server, _) => server.freeze(),
        }
        Self(store)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        match self.0 {
            Store::File(_) => {}
            Store::Redis(server, _) => server.thaw(),
            Store::Nats(server, _) => server.thaw(),
        }
    }
}

/// Keeps everybody else from writing to the store until the result is dropped.
pub(crate) fn block(place: &Place) -> Blocked<'_> {
    match &place.store {
        Store::File(_) => {
            let connection = Connection::open(place.path("leases.db")).unwrap();
            connection.busy_timeout(Duration::from_secs(10)).unwrap();
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            Blocked::File(connection)
        }
        store @ (Store::Redis(..) | Store::Nats(..)) => Blocked::Server(Frozen::new(store)),
    }
}

/// Stops a program, but not in the middle of a transaction: there it would keep the whole store locked, and nobody could
/// go on. That is safe, and not what is to be shown. `None` if it was such a moment, and the program goes on. A server is
/// never locked.
pub(crate) fn stop(place: &Place, running: &Running) -> Option<u64> {
    let stopped = now();
    running.signal(Signal::STOP);
    let Store::File(_) = &place.store else { return Some(stopped) };
    let connection = Connection::open(place.path("leases.db")).unwrap();
    connection.busy_timeout(Duration::from_millis(500)).unwrap();
    let unlocked = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok();
    if !unlocked {
        running.signal(Signal::CONT);
    }
    unlocked.then_some(stopped)
}
