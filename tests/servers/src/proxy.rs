//! What can go wrong between a program and a server.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::port::Port;
use crate::time::now;

/// A thread here does nothing that would need more.
const STACK: usize = 64 * 1024;
const CHUNK: usize = 16 * 1024;

/// The way that bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there are two ways between two")]
pub enum Direction {
    /// From the program to the server.
    Requests,
    /// From the server to the program.
    Replies,
}

/// A port of 127.0.0.1 behind which is a server, until something goes wrong.
///
/// A connection that has lost bytes stays dead for good, however things stand later: what came after them would make no
/// sense to either side. Only what is new works again, as it is where a firewall has forgotten a connection.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    accepted: AtomicU64,
    requests: AtomicU64,
    replies: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    delay: Duration,
    /// What becomes of new connections.
    swallowing: Swallowing,
    cut: bool,
    open: BTreeMap<u64, Connection>,
}

/// Whose bytes vanish.
#[derive(Clone, Copy, Debug, Default)]
struct Swallowing {
    requests: bool,
    replies: bool,
}

impl Swallowing {
    fn add(&mut self, direction: Direction) {
        match direction {
            Direction::Requests => self.requests = true,
            Direction::Replies => self.replies = true,
        }
    }

    fn has(self, direction: Direction) -> bool {
        match direction {
            Direction::Requests => self.requests,
            Direction::Replies => self.replies,
        }
    }
}

#[derive(Debug)]
struct Connection {
    program: TcpStream,
    server: TcpStream,
    swallowing: Swallowing,
}

impl Connection {
    fn close(&self) {
        let _ = self.program.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Proxy {
    /// A port that leads to this address; nothing goes wrong yet.
    ///
    /// A program sees a connection that is closed at once, where the server itself would have refused it.
    #[must_use]
    pub fn to(server: impl Into<SocketAddr>) -> Self {
        let shared = Shared {
            server: server.into(),
            state: Mutex::default(),
            accepted: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            replies: AtomicU64::new(0),
        };
        let proxy = Self { port: Port::take(), shared: Arc::new(shared), accepting: Mutex::new(None) };
        proxy.listen();
        proxy
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

    /// Where to find the server by way of it, such as `redis://127.0.0.1:20000`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Has everything from now on arrive so much later, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Closes all connections, and refuses new ones.
    pub fn cut(&self) {
        self.shared.state().cut = true;
        self.stop_listening();
        self.close();
    }

    /// Closes all connections; new ones work.
    pub fn close(&self) {
        for connection in self.shared.state().open.values() {
            connection.close();
        }
    }

    /// Everything vanishes, in both directions: connections stay open and new ones are accepted, but nothing arrives.
    pub fn stall(&self) {
        self.swallow(Direction::Requests);
        self.swallow(Direction::Replies);
    }

    /// Requests arrive and are carried out, but their replies vanish.
    pub fn drop_replies(&self) {
        self.swallow(Direction::Replies);
    }

    /// Everything vanishes in one direction.
    pub fn swallow(&self, direction: Direction) {
        let mut state = self.shared.state();
        state.swallowing.add(direction);
        state.open.values_mut().for_each(|connection| connection.swallowing.add(direction));
    }

    /// Nothing goes wrong with new connections from now on, nor with old ones that have lost nothing.
    ///
    /// # Panics
    ///
    /// If another program has taken the port while the proxy was cut off.
    pub fn restore(&self) {
        let mut state = self.shared.state();
        let cut = std::mem::take(&mut state.cut);
        (state.delay, state.swallowing) = Default::default();
        drop(state);
        if cut {
            self.listen();
        }
    }

    /// How many connections it has accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.state().open.len()
    }

    /// How many bytes have come from that side so far, whether or not they arrived.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.shared.bytes(direction).load(Ordering::Relaxed)
    }

    fn listen(&self) {
        let listener = TcpListener::bind(self.address()).expect("the port is our own");
        let shared = Arc::clone(&self.shared);
        let accept = move || {
            for program in listener.incoming() {
                if shared.state().cut {
                    break;
                }
                let Ok(program) = program else { continue };
                let id = shared.accepted.fetch_add(1, Ordering::Relaxed);
                // A server that is frozen or gone must not keep others waiting.
                spawn("connect", {
                    let shared = Arc::clone(&shared);
                    move || shared.connect(id, program)
                });
            }
        };
        *self.accepting() = Some(spawn("accept", accept));
    }

    fn stop_listening(&self) {
        if let Some(accepting) = self.accepting().take() {
            // It sees that it is to end when the next connection comes.
            let _ = TcpStream::connect(self.address());
            let _ = accepting.join();
        }
    }

    fn accepting(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Requests => &self.requests,
            Direction::Replies => &self.replies,
        }
    }

    /// Serves a connection to its end.
    fn connect(self: Arc<Self>, id: u64, program: TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else { return };
        let copy = |stream: &TcpStream| stream.try_clone().expect("there are file descriptors left");
        let _ = (program.set_nodelay(true), server.set_nodelay(true));
        {
            let mut state = self.state();
            if state.cut {
                return;
            }
            let connection =
                Connection { program: copy(&program), server: copy(&server), swallowing: state.swallowing };
            state.open.insert(id, connection);
        }
        let replies = {
            let (shared, from, to) = (Arc::clone(&self), copy(&server), copy(&program));
            spawn("replies", move || shared.pump(id, Direction::Replies, from, to))
        };
        self.pump(id, Direction::Requests, program, server);
        let _ = replies.join();
        self.state().open.remove(&id);
    }

    /// Moves bytes in one direction, until that side closes it.
    fn pump(&self, id: u64, direction: Direction, mut from: TcpStream, to: TcpStream) {
        let (sender, receiver) = channel();
        let out = to.try_clone().expect("there are file descriptors left");
        let writer = spawn("write", move || write(&receiver, out));
        let mut chunk = [0; CHUNK];
        loop {
            let length = match from.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(length) => length,
            };
            self.bytes(direction).fetch_add(length as u64, Ordering::Relaxed);
            let (delay, swallowed) = {
                let state = self.state();
                (
                    state.delay,
                    state.open.get(&id).is_none_or(|connection| connection.swallowing.has(direction)),
                )
            };
            if !swallowed && sender.send((now() + delay, chunk[..length].to_vec())).is_err() {
                break;
            }
        }
        drop(sender);
        let _ = writer.join();
        // The end of a connection is a packet like any other: it may be lost, too.
        let lost = self.state().open.get(&id).is_some_and(|connection| connection.swallowing.has(direction));
        if !lost {
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        }
    }
}

/// Writes what comes, each at its time.
fn write(chunks: &Receiver<(Duration, Vec<u8>)>, mut to: TcpStream) {
    for (due, bytes) in chunks {
        thread::sleep(due.saturating_sub(now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = thread::Builder::new().name(format!("proxy: {name}")).stack_size(STACK);
    thread.spawn(work).expect("there are threads left")
}
