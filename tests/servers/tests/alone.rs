//! A server alone, and the client.

#![cfg(unix)]

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tenure_servers::{Client, Config, Flavour, Redis, Reply, eventually};

fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err()
}

fn a_restart_forgets_and_keeps_the_port(flavour: Flavour) {
    let server = Redis::of(flavour);
    let (port, before) = (server.port(), server.pid().unwrap());
    server.command(&["SET", "key", "value"]).ok();
    assert_eq!(server.command(&["GET", "key"]).text(), "value");

    server.kill();
    assert!(is_gone(before));
    assert_eq!(Client::connect(server.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);

    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid().unwrap(), before);
    assert_eq!(server.command(&["GET", "key"]), Reply::Nil);
}

fn what_is_saved_is_there_after_a_restart(flavour: Flavour) {
    let server = Redis::with(Config::new().flavour(flavour).set("save", "3600 1"));
    server.command(&["SET", "key", "value"]).ok();
    server.stop();
    server.restart();
    assert_eq!(server.command(&["GET", "key"]).text(), "value");
}

fn a_frozen_server_says_nothing_until_it_is_thawed(flavour: Flavour) {
    let server = Redis::of(flavour);
    let mut client = server.client();
    server.freeze();
    client.patience(Duration::from_millis(50));
    let error = client.try_command(&["PING"]).unwrap_err();
    assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()), "{error}");
    let mut late = Client::connect(server.address()).unwrap();
    late.send(&["PING"]).unwrap();

    server.thaw();
    client.patience(Duration::from_secs(30));
    assert_eq!(client.read().unwrap().text(), "PONG");
    assert_eq!(late.read().unwrap().text(), "PONG");
}

fn nothing_is_left_of_a_server_that_is_dropped(flavour: Flavour) {
    let server = Redis::of(flavour);
    let (process, folder) = (server.pid().unwrap(), server.folder().to_owned());
    assert!(!is_gone(process) && folder.exists());
    server.freeze();
    drop(server);
    assert!(is_gone(process));
    assert!(!folder.exists());
}

fn users_have_their_rules(flavour: Flavour) {
    let config =
        Config::new().flavour(flavour).password("secret").user("reader", "on >other ~app:* -@all +get");
    let server = Redis::with(config);
    assert!(
        Client::connect(server.address()).unwrap().command(&["GET", "app:key"]).error().starts_with("NOAUTH")
    );
    server.command(&["SET", "app:key", "value"]).ok();

    let mut reader = Client::connect(server.address()).unwrap();
    assert!(reader.auth("reader", "secret").error().starts_with("WRONGPASS"));
    reader.auth("reader", "other").ok();
    assert_eq!(reader.command(&["GET", "app:key"]).text(), "value");
    assert!(reader.command(&["GET", "another"]).error().starts_with("NOPERM"));
    assert!(reader.command(&["SET", "app:key", "new"]).error().starts_with("NOPERM"));
}

fn all_keys_are_listed_and_flushed(flavour: Flavour) {
    let server = Redis::of(flavour);
    let mut client = server.client();
    let expected: Vec<_> = (1_000..4_000).map(|number| format!("key:{number}")).collect();
    for key in &expected {
        client.send(&["SET", key, ""]).unwrap();
    }
    (0..expected.len()).for_each(|_| client.read().unwrap().ok());
    assert_eq!(server.keys(), expected);
    assert_eq!(server.info("db0").split(',').next(), Some("keys=3000"));
    server.flush();
    assert_eq!(server.keys(), Vec::<String>::new());
}

macro_rules! on {
    ($module:ident, $why:literal, $flavour:ident: $($test:ident)*) => {
        mod $module {
            use super::*;

            $(
                #[test]
                #[ignore = $why]
                fn $test() {
                    super::$test(Flavour::$flavour);
                }
            )*

            #[test]
            #[ignore = $why]
            fn it_is_the_program_that_was_asked_for() {
                let server = Redis::of(Flavour::$flavour);
                let named = server.command(&["INFO", "server"]).text().contains("server_name:valkey");
                assert_eq!(named, Flavour::$flavour == Flavour::Valkey);
                assert_eq!(server.info("process_id"), server.pid().unwrap().to_string());
            }
        }
    };
}

on! { needs_redis, "needs redis", Redis:
    a_restart_forgets_and_keeps_the_port
    what_is_saved_is_there_after_a_restart
    a_frozen_server_says_nothing_until_it_is_thawed
    nothing_is_left_of_a_server_that_is_dropped
    users_have_their_rules
    all_keys_are_listed_and_flushed
}

on! { needs_valkey, "needs valkey", Valkey:
    a_restart_forgets_and_keeps_the_port
    what_is_saved_is_there_after_a_restart
    a_frozen_server_says_nothing_until_it_is_thawed
    nothing_is_left_of_a_server_that_is_dropped
    users_have_their_rules
    all_keys_are_listed_and_flushed
}

mod more {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{Ipv6Addr, SocketAddr};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::process::Stdio;

    use super::*;

    mod needs_redis {
        use super::*;

        #[test]
        #[ignore = "needs redis"]
        fn a_server_listens_where_it_is_told_to() {
            let server = Redis::with(Config::new().loopback6().socket());
            let address = SocketAddr::from((Ipv6Addr::LOCALHOST, server.port()));
            assert_eq!(Client::connect(address).unwrap().command(&["PING"]).text(), "PONG");

            let mut socket = UnixStream::connect(server.socket()).unwrap();
            socket.write_all(b"PING\r\n").unwrap();
            let mut pong = [0; 7];
            socket.read_exact(&mut pong).unwrap();
            assert_eq!(&pong, b"+PONG\r\n");
        }

        /// Not a test, but the process that the one below kills.
        #[test]
        #[ignore = "needs redis"]
        fn a_process_that_does_not_end_its_server() {
            if std::env::var_os("TENURE_TEST_ENDLESS").is_some() {
                let server = Redis::start();
                println!("server {}", server.address());
                std::thread::sleep(tenure_servers::LIMIT);
            }
        }

        #[test]
        #[ignore = "needs redis"]
        fn a_server_does_not_outlive_a_process_that_is_killed() {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--nocapture", "a_process_that_does_not_end_its_server"]);
            let mut child = command.env("TENURE_TEST_ENDLESS", "1").stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            // The name of the test may stand before it.
            let server = lines.find_map(|line| line.split_once("server ")?.1.parse().ok());
            let server: SocketAddr = server.expect("its address");
            assert!(Client::connect(server).is_ok());
            child.kill().unwrap();
            child.wait().unwrap();
            // Who inherits the process may leave it a zombie, so that its number says nothing.
            eventually("the server to be gone", || Client::connect(server).is_err().then_some(()));
        }

        #[test]
        #[ignore = "needs redis"]
        fn a_server_that_cannot_start_says_why() {
            let start = || Redis::with(Config::new().set("maxmemory", "plenty"));
            let panic = std::panic::catch_unwind(start).unwrap_err();
            let said = panic.downcast_ref::<String>().unwrap();
            assert!(said.contains("argument must be a memory value"), "{said}");
        }

        #[test]
        #[ignore = "needs redis"]
        fn tls_shows_a_certificate_and_may_ask_for_one() {
            // It comes with the server.
            let cli = |server: &Redis, more: &[&Path]| {
                let mut command = Command::new("redis-cli");
                command.args(["-h", "127.0.0.1", "-p", &server.tls_port().to_string(), "--tls", "--cacert"]);
                command.arg(&server.certificates().ca);
                if let [certificate, key] = more {
                    command.arg("--cert").arg(certificate).arg("--key").arg(key);
                }
                let output = command.arg("PING").output().unwrap();
                String::from_utf8(output.stdout).unwrap()
            };
            let server = Redis::with(Config::new().tls());
            assert_eq!(cli(&server, &[]), "PONG\n");

            let server = Redis::with(Config::new().mutual_tls());
            assert_eq!(cli(&server, &[]), "");
            let certificates = server.certificates();
            let client = [&*certificates.client, &*certificates.client_key];
            assert_eq!(cli(&server, &client), "PONG\n");
        }
    }
}
