//! A client of Redis that knows nothing of Tenure.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a reply may take; a server that is frozen gives none.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that speaks RESP2, one command at a time, and knows nothing else.
///
/// It shares no code with what it is to test: neither with the adapter nor with the library below.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects, and says nothing yet.
    ///
    /// # Errors
    ///
    /// Nothing listens there, or what listens does not answer the handshake of TCP.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let client = Self { stream: BufReader::new(stream) };
        client.patience(PATIENCE);
        Ok(client)
    }

    /// Connects as the default user, who may have a password; `None` if nobody listens there.
    pub(crate) fn connect_as(address: SocketAddr, password: Option<&str>) -> Option<Self> {
        let mut client = Self::connect(address).ok()?;
        if let Some(password) = password {
            client.auth("", password).ok();
        }
        Some(client)
    }

    /// How long to wait for a reply from now on, instead of 30 seconds.
    pub fn patience(&self, patience: Duration) {
        self.stream.get_ref().set_read_timeout(Some(patience)).expect("more than nothing");
    }

    /// Says who one is; an empty name means the default user.
    pub fn auth(&mut self, user: &str, password: &str) -> Reply {
        if user.is_empty() {
            self.command(&["AUTH", password])
        } else {
            self.command(&["AUTH", user, password])
        }
    }

    /// The reply to a command.
    ///
    /// # Panics
    ///
    /// If there is none; [`try_command`](Self::try_command) says so instead.
    pub fn command(&mut self, arguments: &[impl AsRef<[u8]>]) -> Reply {
        self.try_command(arguments).unwrap_or_else(|error| {
            let words: Vec<_> = arguments.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
            panic!("no reply to {words:?}: {error}")
        })
    }

    /// The reply to a command.
    ///
    /// # Errors
    ///
    /// The connection is closed, or nothing came in time; then the next reply would be the one to this command.
    pub fn try_command(&mut self, arguments: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.send(arguments)?;
        self.read()
    }

    /// Sends a command without waiting for its reply.
    ///
    /// # Errors
    ///
    /// The connection is closed.
    pub fn send(&mut self, arguments: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments.iter().map(AsRef::as_ref) {
            bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// The next reply, or the next message to a subscriber.
    ///
    /// # Errors
    ///
    /// The connection is closed, or nothing came in time.
    pub fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let foreign = || io::Error::new(ErrorKind::InvalidData, format!("not RESP2: {line:?}"));
        let said = line.strip_suffix("\r\n").ok_or_else(foreign)?;
        let (kind, rest) = said.split_at_checked(1).ok_or_else(foreign)?;
        let number = || rest.parse::<i64>().map_err(|_| foreign());
        Ok(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(number()?),
            "$" | "*" => match (kind, usize::try_from(number()?)) {
                (_, Err(_)) => Reply::Nil,
                ("$", Ok(length)) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(bytes)
                }
                (_, Ok(length)) => Reply::Array((0..length).map(|_| self.read()).collect::<io::Result<_>>()?),
            },
            _ => return Err(foreign()),
        })
    }
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "RESP2 is finished")]
pub enum Reply {
    /// Nothing is there.
    Nil,
    /// Such as `OK`.
    Status(String),
    /// A code and what it means.
    Error(String),
    /// A number.
    Integer(i64),
    /// A value.
    Bulk(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// That the server says `OK`.
    #[track_caller]
    pub fn ok(self) {
        assert_eq!(self, Self::Status("OK".to_owned()));
    }

    /// The text of a value or a status.
    #[track_caller]
    pub fn text(self) -> String {
        match self {
            Self::Status(text) => text,
            Self::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// The number.
    #[track_caller]
    pub fn integer(self) -> i64 {
        match self {
            Self::Integer(number) => number,
            other => panic!("not a number: {other:?}"),
        }
    }

    /// The parts.
    #[track_caller]
    pub fn array(self) -> Vec<Self> {
        match self {
            Self::Array(parts) => parts,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The parts, which all are texts.
    #[track_caller]
    pub fn texts(self) -> Vec<String> {
        self.array().into_iter().map(Self::text).collect()
    }

    /// What the server complains of.
    #[track_caller]
    pub fn error(self) -> String {
        match self {
            Self::Error(text) => text,
            other => panic!("not an error: {other:?}"),
        }
    }
}
