//! Getting at a server in every way that a URL can say, and as a user who may do no more than the guide says.

#![cfg(feature = "tokio")]

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{Candidate, Runtime};
use tenure_redis::RedisStore;
use tenure_servers::{Config, Proxy, Redis, Sentinel};
use tenure_store::core::LeaseName;
use tenure_store::{Store, StoreError, StoreErrorKind, clock};

/// Reads a lease that nobody has, which takes a connection, a login and a script.
fn look(runtime: &Runtime, url: &str) -> Result<(), StoreError> {
    let store = RedisStore::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    runtime.block_on(async {
        let found = store.inspect(LeaseName::new("nobody's").unwrap()).await;
        store.close().await;
        assert!(!matches!(found, Ok(Some(_))), "{found:?}");
        found.map(|_| ())
    })
}

/// In either runtime: each has a way of its own to connect.
fn works(url: &str) {
    for runtime in Runtime::each() {
        look(&runtime, url).unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

/// Fails for this reason, in either runtime, for whoever has to change something, and without showing the password.
fn is_refused(url: &str, reasons: &[&str]) {
    for runtime in Runtime::each() {
        let error = look(&runtime, url).expect_err(url);
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind, StoreErrorKind::Rejected, "{url}: {text}");
        assert!(reasons.iter().all(|reason| text.to_ascii_lowercase().contains(reason)), "{url}: {text}");
        assert!(!text.contains("s3cret"), "{url}: {text}");
    }
}

mod needs_redis {
    use super::*;

    /// Whatever a password may have in it, percent-encoded.
    const ODD: &str = "s3cret@#/+=%:?&,é\"'\\";

    fn encoded(text: &str) -> String {
        text.bytes().map(|byte| format!("%{byte:02X}")).collect()
    }

    #[test]
    #[ignore = "needs redis"]
    fn one_server_is_reached_by_name_by_ipv6_and_by_its_unix_socket_in_any_database() {
        let server = Redis::with(Config::new().loopback6().socket());
        let port = server.port();
        works(&format!("redis://127.0.0.1:{port}/3"));
        works(&format!("redis://[::1]:{port}?db=15"));
        works(&format!("valkey://localhost:{port}"));
        works(&format!("redis+unix://{}?db=2", server.socket().display()));
        is_refused(&format!("redis://127.0.0.1:{port}/16"), &["db", "out of range"]);
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_key_lands_in_the_database_of_the_url() {
        let server = Redis::start();
        let store = RedisStore::from_url(&format!("{}/5?prefix=app", server.url())).unwrap();
        Runtime::tokio().block_on(Candidate::new("backup", 1).gets(&store));
        assert!(server.keys().is_empty(), "database 0");
        let mut client = server.client();
        client.command(&["SELECT", "5"]).ok();
        assert!(client.command(&["GET", "app:backup"]).text().contains(':'));
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_user_and_a_password_with_any_characters_log_in() {
        let server = Redis::start();
        // By the client: a configuration file would need escapes of its own.
        server.command(&["ACL", "SETUSER", "me@work", "on", &format!(">{ODD}"), "~*", "&*", "+@all"]).ok();
        let at = server.address();
        let (user, password) = (encoded("me@work"), encoded(ODD));
        works(&format!("redis://{user}:{password}@{at}"));

        let file = server.folder().join("the password");
        fs::write(&file, format!("{ODD}\n")).unwrap();
        let file = file.display().to_string().replace(' ', "%20");
        works(&format!("redis://{user}@{at}?password_file={file}"));

        is_refused(&format!("redis://{user}:s3cret@{at}"), &["wrongpass", "check the user and the password"]);
        server.command(&["CONFIG", "SET", "requirepass", ODD]).ok();
        works(&format!("redis://:{password}@{at}"));
        is_refused(&format!("redis://{at}"), &["noauth"]);
    }

    #[test]
    #[ignore = "needs redis"]
    fn tls_works_with_the_servers_authority_and_with_no_other() {
        let server = Redis::with(Config::new().tls().loopback6());
        let others = tempfile::tempdir().unwrap();
        let others = tenure_servers::Certificates::within(others.path()).ca.display().to_string();
        let (port, ca) = (server.tls_port(), server.certificates().ca.display().to_string());
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            works(&format!("rediss://{host}:{port}?ca={ca}"));
        }
        works(&format!("valkeys://localhost:{port}/1?ca={ca}"));
        // Its authority is not one that the system trusts.
        is_refused(&format!("rediss://:s3cret@localhost:{port}"), &["certificate"]);
        is_refused(&format!("rediss://:s3cret@localhost:{port}?ca={others}"), &["certificate"]);
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_certificate_that_is_over_or_for_another_host_is_refused_with_what_to_do() {
        let server = Redis::with(Config::new().tls());
        let certificates = server.certificates();
        let show =
            |file: &Path| server.command(&["CONFIG", "SET", "tls-cert-file", file.to_str().unwrap()]).ok();
        let at = format!("localhost:{}?ca={}", server.tls_port(), certificates.ca.display());
        show(&certificates.expired);
        is_refused(&format!("rediss://:s3cret@{at}"), &["certificate expired", "renew it", "clock"]);
        show(&certificates.elsewhere);
        is_refused(
            &format!("rediss://:s3cret@{at}"),
            &["not valid for name \"localhost\"", "elsewhere.example", "connect by a name that it has"],
        );
        show(&certificates.own);
        let own = certificates.own.display();
        is_refused(
            &format!("rediss://localhost:{}?ca={own}", server.tls_port()),
            &["ca:true", "authority", "has signed"],
        );
        show(&certificates.server);
        works(&format!("rediss://{at}"));
    }

    #[test]
    #[ignore = "needs redis"]
    fn mutual_tls_takes_a_certificate_of_ours() {
        let server = Redis::with(Config::new().mutual_tls());
        let (port, certificates) = (server.tls_port(), server.certificates());
        let ca = certificates.ca.display();
        let (certificate, key) = (certificates.client.display(), certificates.client_key.display());
        works(&format!("rediss://localhost:{port}?ca={ca}&cert={certificate}&key={key}"));
        is_refused(&format!("rediss://localhost:{port}?ca={ca}"), &["certificaterequired", "cert="]);
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_url_that_does_not_fit_the_server_is_told_what_would() {
        let server = Redis::start();
        let at = server.address();
        // It waits for the end of what it takes for a command.
        for runtime in Runtime::each() {
            let error = look(&runtime, &format!("rediss://{at}")).expect_err("no TLS there");
            assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
            assert!(error.message.contains("does it speak TLS on this port?"), "{error}");
        }
        is_refused(&format!("redis+sentinel://{at}/service"), &["is no sentinel", "redis://"]);
        is_refused(&format!("redis://{at}/99"), &["no database of this number", "`databases`"]);
        server.command(&["ACL", "SETUSER", "some", "on", ">s3cret", "~*", "&*", "+@all", "-select"]).ok();
        is_refused(&format!("redis://some:s3cret@{at}/1"), &["+select"]);
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_prefix_that_the_user_may_not_use_is_told_with_a_key_of_it_also_where_lists_are_empty() {
        let server = Redis::start();
        server.command(&["ACL", "SETUSER", "some", "on", ">s3cret", "~tenure:*", "&tenure:*", "+@all"]).ok();
        let at = server.address();
        works(&format!("redis://some:s3cret@{at}"));
        let other = format!("redis://some:s3cret@{at}?prefix=other");
        is_refused(&other, &["\"other:nobody's\"", "prefix"]);
        let runtime = Runtime::tokio();
        let list = |url: &str| {
            let store = RedisStore::from_url(url).unwrap();
            runtime.block_on(async {
                let found = store.list(None, 10).await;
                store.close().await;
                found
            })
        };
        let error = list(&other).expect_err("it may not see what there is");
        assert!(error.message.contains("\"other:any\""), "{error}");
        assert!(list(&format!("redis://some:s3cret@{at}")).unwrap().is_empty());
    }

    /// Sentinels on these ports, and the service that they watch.
    fn sentinels(ports: &[u16], service: &str) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{}/{service}", hosts.join(","))
    }

    #[test]
    #[ignore = "needs redis"]
    fn sentinels_have_a_password_of_their_own() {
        let passwords = Config::new().password("s3cret-server").sentinel_password("s3cret-sentinel");
        let sentinel = Sentinel::with(&passwords, 1, false);
        let at = sentinels(&sentinel.sentinel_ports(), sentinel.name());
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, name).unwrap();
            format!("sentinel_password_file={}", path.display())
        };
        let (right, wrong) = (file("s3cret-sentinel"), file("s3cret-server"));
        works(&format!("redis+sentinel://:s3cret-server@{at}?{right}"));
        let own = "sentinel_password";
        is_refused(&format!("redis+sentinel://:s3cret-server@{at}"), &["no sentinel", "noauth", own]);
        is_refused(
            &format!("redis+sentinel://:s3cret-server@{at}?{wrong}"),
            &["no sentinel", "authentication", own],
        );
        // Each is told only its own: the server's complaint is not that of a Sentinel.
        is_refused(&format!("redis+sentinel://:s3cret-sentinel@{at}?{right}"), &["wrongpass"]);
        is_refused(&format!("redis+sentinel://{at}?{right}"), &["noauth"]);
    }

    #[test]
    #[ignore = "needs redis"]
    fn tls_leads_to_sentinels_and_to_the_primary_that_they_name() {
        let sentinel = Sentinel::with(&Config::new().tls(), 1, false);
        let at = sentinels(&sentinel.sentinel_tls_ports(), sentinel.name());
        let ca = sentinel.primary().certificates().ca.display();
        works(&format!("rediss+sentinel://{at}?ca={ca}"));
        is_refused(&format!("rediss+sentinel://{at}"), &["no sentinel", "certificate"]);
    }

    #[test]
    #[ignore = "needs redis"]
    fn a_slow_handshake_of_tls_is_waited_for() {
        let server = Redis::with(Config::new().tls());
        let proxy = Proxy::to(([127, 0, 0, 1], server.tls_port()));
        proxy.delay(Duration::from_millis(350));
        let url = format!("rediss://localhost:{}?ca={}", proxy.port(), server.certificates().ca.display());
        let begin = clock::now();
        look(&Runtime::tokio(), &url).unwrap();
        let passed = clock::now().saturating_since(begin);
        assert!(passed >= Duration::from_millis(700), "it was not slow: {passed:?}");
    }
}

mod needs_valkey {
    use super::*;

    #[test]
    #[ignore = "needs valkey"]
    fn valkey_is_reached_under_its_own_name() {
        let server = Redis::with(Config::new().valkey().socket());
        works(&format!("valkey://127.0.0.1:{}/3", server.port()));
        works(&format!("valkey+unix://{}", server.socket().display()));
    }
}
