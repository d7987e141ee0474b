//! Ports that stay one's own while nothing listens there.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// Below the range from which systems take the ports of outgoing connections (from 32768 on Linux, from 49152 elsewhere):
/// else one of those could take the port of a server that is down, or a client could reach itself by trying to connect.
const PORTS: std::ops::Range<u16> = 11_000..32_000;

/// A TCP port of 127.0.0.1.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// The UDP port of the same number is the mark by which all that use this crate leave a port to each other, also while
    /// the server is down. It ends with the process.
    _mark: UdpSocket,
}

impl Port {
    /// A port that nothing listens on and that nobody else has taken by this function.
    pub(crate) fn take() -> Self {
        let random = RandomState::new();
        (0..1_000_u32)
            .map(|attempt| random.hash_one(attempt))
            .find_map(|random| {
                let number = PORTS.start + (random % PORTS.len() as u64) as u16;
                let mark = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
                TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
                Some(Self { number, _mark: mark })
            })
            .expect("one of a thousand ports is free")
    }
}
