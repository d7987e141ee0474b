//! A primary, its replicas, and three sentinels that watch them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use crate::client::{Client, Reply};
use crate::port::Port;
use crate::program::Program;
use crate::proxy::Proxy;
use crate::redis::{Config, Flavour, Redis};
use crate::time::eventually;

/// The name of the primary at the sentinels.
const NAME: &str = "tenure";
/// How many sentinels there are, and how many of them have to agree.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// Periods in milliseconds: of a sentinel that is made quicker, and how often one by itself says whom it knows.
const QUICK: &str = "200";
const PUBLISH: &str = "2000";

/// A primary, its replicas, and three sentinels that watch them.
///
/// The sentinels take a primary for dead after a second of silence. A failover takes about a second more.
#[derive(Debug)]
pub struct Sentinel {
    servers: Vec<Redis>,
    sentinels: Vec<Watcher>,
    /// What everybody but a client with [`Sentinel::direct`] reaches the first primary by.
    proxy: Option<Proxy>,
    _folder: TempDir,
}

#[derive(Debug)]
struct Watcher {
    flavour: Flavour,
    port: Port,
    tls_port: Option<Port>,
    password: Option<String>,
    configuration: PathBuf,
    log: PathBuf,
    /// `None` while it is down.
    program: Mutex<Option<Program>>,
}

impl Sentinel {
    /// A primary with one replica.
    #[must_use]
    pub fn start() -> Self {
        Self::of(Flavour::Redis)
    }

    /// A primary with one replica, all of this flavour.
    #[must_use]
    pub fn of(flavour: Flavour) -> Self {
        Self::with(&Config::new().flavour(flavour), 1, false)
    }

    /// A primary with one replica, and a [`proxy`](Self::proxy) before the primary.
    #[must_use]
    pub fn behind_a_proxy() -> Self {
        Self::with(&Config::new(), 1, true)
    }

    /// A primary with so many replicas, each a server like this; if they have TLS the sentinels have it, too, and all
    /// use it among themselves. Everybody but the [`direct`](Self::direct) client reaches the primary through a proxy,
    /// if there is to be one, which passes no TLS on.
    #[must_use]
    pub fn with(config: &Config, replicas: usize, proxy: bool) -> Self {
        let folder =
            tempfile::Builder::new().prefix("tenure-sentinel-").tempdir().expect("a temporary folder");
        let config = &config.clone().replicated(folder.path());
        // A server that a proxy is in front of has to announce the proxy's port, which is known when the server is.
        let primary = Redis::with(config.clone());
        let proxy = proxy.then(|| Proxy::to(primary.address()));
        let known = proxy.as_ref().map_or_else(|| among_others(&primary), Proxy::address);
        if let Some(proxy) = &proxy {
            primary.command(&["CONFIG", "SET", "replica-announce-port", &proxy.port().to_string()]).ok();
        }
        let config = config.clone().set("replicaof", &format!("{} {}", known.ip(), known.port()));
        // Else a replica that was away waits for five seconds before it is sent what it has missed.
        primary.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).ok();
        let config = config.set("repl-diskless-sync-delay", "0");
        let replicas: Vec<_> = (0..replicas).map(|_| Redis::with(config.clone())).collect();
        for replica in &replicas {
            eventually("a replica to follow", || (replica.info("master_link_status") == "up").then_some(()));
        }

        let watcher = |index| Watcher {
            flavour: config.chosen_flavour(),
            port: Port::take(),
            tls_port: config.has_tls().then(Port::take),
            password: config.chosen_sentinel_password().map(str::to_owned),
            configuration: folder.path().join(format!("{index}.conf")),
            log: folder.path().join(format!("{index}.log")),
            program: Mutex::new(None),
        };
        let sentinels: Vec<_> = (0..SENTINELS).map(watcher).collect();
        for (index, sentinel) in sentinels.iter().enumerate() {
            let text = configuration_of(index, &sentinels, known, &replicas)
                + &config.watched(NAME, sentinel.tls_port.as_ref().map(|port| port.number));
            fs::write(&sentinel.configuration, text).expect("the folder can be written to");
        }
        let mut servers = vec![primary];
        servers.extend(replicas);
        let this = Self { servers, sentinels, proxy, _folder: folder };
        this.sentinels.iter().for_each(Watcher::begin);
        this.sentinels.iter().for_each(Watcher::hasten);
        this.settled();
        this
    }

    /// The name of the primary at the sentinels.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// The ports of the sentinels for connections without TLS.
    #[must_use]
    pub fn sentinel_ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(|sentinel| sentinel.port.number).collect()
    }

    /// The ports of the sentinels for connections with TLS; none if they have none.
    #[must_use]
    pub fn sentinel_tls_ports(&self) -> Vec<u16> {
        self.sentinels.iter().filter_map(|sentinel| Some(sentinel.tls_port.as_ref()?.number)).collect()
    }

    /// Where the sentinels say the primary is.
    ///
    /// # Panics
    ///
    /// If no sentinel is up.
    #[must_use]
    pub fn primary_address(&self) -> SocketAddr {
        self.sentinels.iter().find_map(Watcher::primary).expect("a sentinel is up")
    }

    /// The server that the sentinels say is the primary.
    #[must_use]
    pub fn primary(&self) -> &Redis {
        let address = self.primary_address();
        self.servers.iter().find(|server| self.known(server) == address).expect("it is one of ours")
    }

    /// All other servers.
    #[must_use]
    pub fn replicas(&self) -> Vec<&Redis> {
        let address = self.primary_address();
        self.servers.iter().filter(|server| self.known(server) != address).collect()
    }

    /// All servers, that which was the primary at first before the others.
    #[must_use]
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// What stands between the first primary and everybody else. Cut or stalled, it parts that server, and who has a
    /// [`direct`](Self::direct) connection, from the sentinels and the replicas.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("with a proxy")
    }

    /// A connection to the first primary that no partition cuts off.
    #[must_use]
    pub fn direct(&self) -> Client {
        self.servers[0].client()
    }

    /// Has the sentinels make a replica the primary while all is well, and waits until it is.
    pub fn failover(&self) {
        let before = self.primary_address();
        eventually("a sentinel that begins a failover", || {
            // It says that there is no good replica until it has heard from one.
            let reply = self.sentinels[0].client()?.try_command(&["SENTINEL", "FAILOVER", NAME]).ok()?;
            (reply == Reply::Status("OK".to_owned())).then_some(())
        });
        self.moved(before);
    }

    /// Kills the primary, and gives where it was. The sentinels see it about a second later.
    pub fn kill_primary(&self) -> SocketAddr {
        let address = self.primary_address();
        self.primary().kill();
        address
    }

    /// Waits until all sentinels say that the primary is elsewhere, and it says so itself.
    pub fn moved(&self, before: SocketAddr) {
        eventually("a new primary", || {
            let up = self.sentinels.iter().filter(|sentinel| sentinel.program().is_some());
            let primaries: Vec<_> = up.map(Watcher::primary).collect::<Option<_>>()?;
            let same = primaries.windows(2).all(|pair| pair[0] == pair[1]);
            let moved = same && *primaries.first()? != before;
            let primary = self.servers.iter().find(|server| self.known(server) == primaries[0])?;
            let role = primary.try_client()?.try_command(&["ROLE"]).ok()?.array()[0].clone().text();
            (moved && role == "master").then_some(())
        });
    }

    /// Waits until the sentinels know each other and who the primary is, and find it and all replicas well: they would do a
    /// failover. A primary that was replaced is a replica then.
    ///
    /// # Panics
    ///
    /// If some server or sentinel is down.
    pub fn settled(&self) {
        eventually("sentinels that agree", || {
            let primaries: Vec<_> = self.sentinels.iter().map(Watcher::primary).collect::<Option<_>>()?;
            primaries.windows(2).all(|pair| pair[0] == pair[1]).then_some(())
        });
        // Four of these pass until a sentinel tells a server that should be a replica, and is none, to follow. It must not
        // be quick before they agree: one might undo what another has just done.
        let publish = |period| {
            for sentinel in &self.sentinels {
                sentinel
                    .client()
                    .expect("it is up")
                    .command(&["SENTINEL", "DEBUG", "publish-period", period])
                    .ok();
            }
        };
        publish(QUICK);
        eventually("sentinels that find all well", || {
            self.sentinels.iter().all(|sentinel| self.well(sentinel)).then_some(())
        });
        publish(PUBLISH);
    }

    fn well(&self, sentinel: &Watcher) -> bool {
        let Some(mut client) = sentinel.client() else { return false };
        let mut ask = |what| client.try_command(&["SENTINEL", what, NAME]).ok();
        let (Some(Reply::Status(quorum)), Some(Reply::Array(replicas))) = (ask("CKQUORUM"), ask("REPLICAS"))
        else {
            return false;
        };
        let follows = |replica: Reply| {
            let fields = replica.texts();
            let field = |name: &str| fields.chunks(2).find(|pair| pair[0] == name).map(|pair| &*pair[1]);
            field("flags") == Some("slave") && field("master-link-status") == Some("ok")
        };
        quorum.starts_with(&format!("OK {SENTINELS} "))
            && replicas.len() + 1 == self.servers.len()
            && replicas.into_iter().all(follows)
    }

    /// Kills a sentinel.
    pub fn kill_sentinel(&self, index: usize) {
        *self.sentinels[index].program() = None;
    }

    /// Starts a sentinel again, which knows what it knew.
    pub fn restart_sentinel(&self, index: usize) {
        self.kill_sentinel(index);
        self.sentinels[index].begin();
        self.sentinels[index].hasten();
    }

    /// Where everybody reaches a server.
    fn known(&self, server: &Redis) -> SocketAddr {
        match &self.proxy {
            Some(proxy) if server.port() == self.servers[0].port() => proxy.address(),
            _ => among_others(server),
        }
    }
}

/// Where the other servers and the sentinels reach a server that no proxy is in front of.
fn among_others(server: &Redis) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, server.port_among_others()).into()
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for sentinel in &self.sentinels {
                println!("a sentinel said:\n{}", fs::read_to_string(&sentinel.log).unwrap_or_default());
            }
        }
    }
}

impl Watcher {
    fn begin(&self) {
        let mut command = Command::new(self.flavour.program());
        command.arg(&self.configuration).arg("--sentinel");
        *self.program() = Some(Program::start(command, &self.log));
    }

    /// Waits until it answers, and makes it quicker: by itself it looks at a server's role every ten seconds, and
    /// tries a connection that was refused again after fifteen.
    fn hasten(&self) {
        let mut client = eventually("a sentinel to answer", || {
            let mut program = self.program();
            let program = program.as_mut().expect("it was just started");
            assert!(!program.has_ended(), "the sentinel does not start:\n{}", program.said());
            self.client()
        });
        for period in ["ping-period", "info-period", "ask-period", "min-link-reconnect-period"] {
            client.command(&["SENTINEL", "DEBUG", period, QUICK]).ok();
        }
    }

    fn client(&self) -> Option<Client> {
        Client::connect_as((Ipv4Addr::LOCALHOST, self.port.number).into(), self.password.as_deref())
    }

    fn primary(&self) -> Option<SocketAddr> {
        let reply = self.client()?.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        let address = reply.texts();
        format!("{}:{}", address[0], address[1]).parse().ok()
    }

    fn program(&self) -> MutexGuard<'_, Option<Program>> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a sentinel knows when it begins: else it takes them seconds to find each other and the replicas.
fn configuration_of(index: usize, sentinels: &[Watcher], primary: SocketAddr, replicas: &[Redis]) -> String {
    let identity = |index: usize| format!("{:040x}", index + 1);
    let (host, port) = (primary.ip(), primary.port());
    let mut text = format!(
        "port {}\nbind 127.0.0.1\nprotected-mode no\nlogfile \"\"\n\
         sentinel myid {}\n\
         sentinel monitor {NAME} {host} {port} {QUORUM}\n\
         sentinel down-after-milliseconds {NAME} 1000\n\
         sentinel failover-timeout {NAME} 3000\n",
        sentinels[index].port.number,
        identity(index),
    );
    for replica in replicas {
        text += &format!("sentinel known-replica {NAME} {host} {}\n", replica.port_among_others());
    }
    for (other, sentinel) in sentinels.iter().enumerate().filter(|(other, _)| *other != index) {
        let port = sentinel.tls_port.as_ref().unwrap_or(&sentinel.port).number;
        text += &format!("sentinel known-sentinel {NAME} {host} {port} {}\n", identity(other));
    }
    text
}
