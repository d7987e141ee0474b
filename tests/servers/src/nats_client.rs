//! A client of NATS that knows nothing of Tenure, nor of the library that its adapter is built on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take before there is taken to be none.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection, which waits for each answer.
#[derive(Debug)]
pub struct NatsClient {
    reader: BufReader<TcpStream>,
    asked: u64,
}

/// A message that came in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NatsMessage {
    /// Where it was published.
    pub subject: String,
    /// Its headers as text; empty if it has none.
    pub headers: String,
    /// What it says.
    pub payload: Vec<u8>,
}

impl NatsClient {
    /// A connection as this user; `None` if there is none to be had.
    #[must_use]
    pub fn connect(address: SocketAddr, user: Option<(&str, &str)>) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut this = Self { reader: BufReader::new(stream), asked: 0 };
        this.line()?;
        let user =
            user.map_or_else(String::new, |(user, pass)| format!(r#","user":"{user}","pass":"{pass}""#));
        this.send(
            format!(
                "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true{user}}}\r\n\
                 SUB _INBOX.tests.* 1\r\nPING\r\n"
            )
            .as_bytes(),
        )?;
        loop {
            match &*this.line()? {
                "PONG" => return Some(this),
                line if line.starts_with("-ERR") => return None,
                _ => {}
            }
        }
    }

    /// Publishes something with these headers, each such as `Nats-TTL: 5s`, and gives the answer; `None` if there is none.
    pub fn publish(&mut self, subject: &str, headers: &[&str], payload: &[u8]) -> Option<Vec<u8>> {
        let mut head = "NATS/1.0\r\n".to_owned();
        for header in headers {
            head += &format!("{header}\r\n");
        }
        head += "\r\n";
        self.asked += 1;
        let inbox = format!("_INBOX.tests.{}", self.asked);
        let (head_len, all) = (head.len(), head.len() + payload.len());
        let mut text = format!("HPUB {subject} {inbox} {head_len} {all}\r\n{head}").into_bytes();
        text.extend_from_slice(payload);
        text.extend_from_slice(b"\r\n");
        self.send(&text)?;
        self.answer(&inbox)
    }

    /// The answer to a request; `None` if there is none.
    pub fn request(&mut self, subject: &str, payload: &[u8]) -> Option<Vec<u8>> {
        self.asked += 1;
        let inbox = format!("_INBOX.tests.{}", self.asked);
        let mut text = format!("PUB {subject} {inbox} {}\r\n", payload.len()).into_bytes();
        text.extend_from_slice(payload);
        text.extend_from_slice(b"\r\n");
        self.send(&text)?;
        self.answer(&inbox)
    }

    /// Listens to this subject, too.
    pub fn subscribe(&mut self, subject: &str) -> Option<()> {
        self.send(format!("SUB {subject} 2\r\n").as_bytes())
    }

    /// The next message, `None` if none comes for a while.
    pub fn next_message(&mut self) -> Option<NatsMessage> {
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split(' ').collect();
            let (head, all) = match words[..] {
                ["PING"] => {
                    self.send(b"PONG\r\n")?;
                    continue;
                }
                ["MSG", .., all] => (0, all.parse().ok()?),
                ["HMSG", .., head, all] => (head.parse().ok()?, all.parse().ok()?),
                _ => continue,
            };
            let subject = words[1].to_owned();
            let mut bytes = vec![0; all + 2];
            self.reader.read_exact(&mut bytes).ok()?;
            bytes.truncate(all);
            let payload = bytes.split_off(head);
            return Some(NatsMessage {
                subject,
                headers: String::from_utf8_lossy(&bytes).into_owned(),
                payload,
            });
        }
    }

    fn answer(&mut self, inbox: &str) -> Option<Vec<u8>> {
        loop {
            let message = self.next_message()?;
            if message.subject == inbox {
                // Nobody is there who could answer.
                return (!message.headers.starts_with("NATS/1.0 503")).then_some(message.payload);
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Option<()> {
        self.reader.get_mut().write_all(bytes).ok()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }
}
