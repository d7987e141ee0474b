//! The proxy, before a server that says everything twice.

#![cfg(unix)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure_servers::{Direction, Proxy, eventually};

/// Says each byte twice, and tells what it has read.
fn server() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            thread::spawn(move || {
                let mut chunk = [0; 64];
                while let Ok(length @ 1..) = stream.read(&mut chunk) {
                    let _ = sender.send(chunk[..length].to_vec());
                    let twice: Vec<_> = chunk[..length].iter().flat_map(|&byte| [byte, byte]).collect();
                    let _ = stream.write_all(&twice);
                }
            });
        }
    });
    (address, receiver)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn works(stream: &mut TcpStream) -> bool {
    let mut reply = [0; 2];
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut reply).is_ok() && &reply == b"xx"
}

/// That nothing comes for a while, and no end either.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = stream.read(&mut [0]).map_err(|error| error.kind());
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    matches!(error, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn what_is_not_disturbed_works_and_is_counted() {
    let (address, _told) = server();
    let proxy = Proxy::to(address);
    let mut stream = connect(&proxy);
    assert!(works(&mut stream) && works(&mut stream));
    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));
    assert_eq!((proxy.bytes(Direction::Requests), proxy.bytes(Direction::Replies)), (2, 4));
    drop(stream);
    eventually("the connection to be closed", || (proxy.open() == 0).then_some(()));
}

#[test]
fn a_delay_is_that_of_each_byte_in_both_directions() {
    let (address, _told) = server();
    let proxy = Proxy::to(address);
    let mut stream = connect(&proxy);
    assert!(works(&mut stream));
    proxy.delay(Duration::from_millis(100));
    let start = now();
    let sent = b"0123456789";
    for byte in sent {
        stream.write_all(&[*byte]).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    let mut replies = [0; 20];
    stream.read_exact(&mut replies).unwrap();
    let took = now() - start;
    assert_eq!(&replies, b"00112233445566778899");
    // One after the other would be 2 s at least.
    assert!(took >= Duration::from_millis(200), "{took:?}");
    println!("ten bytes 10 ms apart, there and back: {took:?}");
}

#[test]
fn cut_off_it_closes_and_refuses_until_it_is_restored() {
    let (address, _told) = server();
    let proxy = Proxy::to(address);
    let mut stream = connect(&proxy);
    assert!(works(&mut stream));
    proxy.cut();
    assert!(!works(&mut stream));
    assert_eq!(TcpStream::connect(proxy.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    proxy.restore();
    assert!(!works(&mut stream));
    assert!(works(&mut connect(&proxy)));
}

#[test]
fn what_is_closed_can_be_connected_again_at_once() {
    let (address, _told) = server();
    let proxy = Proxy::to(address);
    let mut stream = connect(&proxy);
    assert!(works(&mut stream));
    proxy.close();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert!(works(&mut connect(&proxy)));
}

#[test]
fn a_stalled_connection_stays_dead_and_open() {
    let (address, told) = server();
    let proxy = Proxy::to(address);
    let mut old = connect(&proxy);
    assert!(works(&mut old));
    told.recv().unwrap();
    proxy.stall();
    let mut new = connect(&proxy);
    for stream in [&mut old, &mut new] {
        stream.write_all(b"lost").unwrap();
        assert!(is_silent(stream));
    }
    proxy.restore();
    old.write_all(b"lost, too").unwrap();
    assert!(is_silent(&mut old) && is_silent(&mut new));
    assert!(works(&mut connect(&proxy)));
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [b"x"]);
}

#[test]
fn requests_are_carried_out_while_their_replies_are_lost() {
    let (address, told) = server();
    let proxy = Proxy::to(address);
    let mut stream = connect(&proxy);
    assert!(works(&mut stream));
    told.recv().unwrap();
    proxy.drop_replies();
    stream.write_all(b"request").unwrap();
    assert_eq!(told.recv().unwrap(), b"request");
    assert!(is_silent(&mut stream));
    eventually("the reply to be lost", || (proxy.bytes(Direction::Replies) == 16).then_some(()));
}

#[test]
fn replies_arrive_while_requests_are_lost() {
    let (address, told) = server();
    let proxy = Proxy::to(address);
    let mut stream = connect(&proxy);
    stream.write_all(b"1").unwrap();
    told.recv().unwrap();
    proxy.swallow(Direction::Requests);
    stream.write_all(b"2").unwrap();
    let mut reply = [0; 2];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"11");
    assert!(is_silent(&mut stream));
    assert!(told.try_recv().is_err());
}

#[test]
fn a_server_that_refuses_shows_as_a_connection_that_is_closed() {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let proxy = Proxy::to(address);
    assert!(matches!(connect(&proxy).read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!((proxy.accepted(), proxy.open()), (1, 0));
}
