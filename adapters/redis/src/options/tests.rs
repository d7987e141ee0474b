use std::fs;

use redis::{ConnectionAddr, IntoConnectionInfo as _};

use super::*;

/// The settings of a URL with one server, as the client library takes them.
fn info(url: &str) -> redis::ConnectionInfo {
    match options(url).target() {
        Target::Server(server) => server.connection_info().unwrap(),
        other => panic!("{url}: {other:?}"),
    }
}

fn options(url: &str) -> RedisOptions {
    RedisOptions::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refused(url: &str) -> String {
    RedisOptions::from_url(url).expect_err(url).to_string()
}

fn tcp(host: &str, port: u16) -> ConnectionAddr {
    ConnectionAddr::Tcp(host.to_owned(), port)
}

#[test]
fn a_url_of_one_server_gives_host_port_database_and_prefix() {
    for (url, host, port, database) in [
        ("redis://localhost", "localhost", 6379, 0),
        ("redis://localhost/", "localhost", 6379, 0),
        ("REDIS://LocalHost:7000/3", "localhost", 7000, 3),
        ("valkey://redis.example.org:6380/?db=3", "redis.example.org", 6380, 3),
        ("redis://127.0.0.1?db=15&prefix=a", "127.0.0.1", 6379, 15),
        ("redis://[::1]/0", "::1", 6379, 0),
        ("redis://[2001:DB8:0::7]:6400", "2001:db8::7", 6400, 0),
        ("redis://under_score-1.x:1", "under_score-1.x", 1, 0),
    ] {
        let info = info(url);
        assert_eq!(info.addr(), &tcp(host, port), "{url}");
        assert_eq!(info.redis_settings().db(), database, "{url}");
        assert_eq!(info.redis_settings().username(), None, "{url}");
        assert_eq!(info.redis_settings().password(), None, "{url}");
    }
    assert_eq!(&*options("redis://localhost").prefix, "tenure");
    assert_eq!(&*options("redis://localhost?prefix=bill%69ng-2.x_").prefix, "billing-2.x_");
}

#[test]
fn requests_go_out_at_once_and_dead_peers_are_noticed() {
    let info = info("redis://localhost");
    assert!(info.tcp_settings().nodelay());
    assert!(info.tcp_settings().keepalive().is_some());
    assert!(info.redis_settings().protocol().supports_resp3());
    assert!(info.redis_settings().skip_set_lib_name(), "it takes a permission that nobody grants");
}

#[test]
fn a_user_and_a_password_may_have_any_characters_once_they_are_percent_encoded() {
    let odd = "@#/+=%:?&, é[]\u{1}";
    let encoded: String = odd.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for (url, user, password) in [
        (format!("redis://{encoded}:{encoded}@localhost"), Some(odd), odd),
        (format!("redis://:{encoded}@localhost"), None, odd),
        ("redis://me:a+b=c:d@localhost".to_owned(), Some("me"), "a+b=c:d"),
        ("redis://me:@localhost".to_owned(), Some("me"), ""),
    ] {
        let info = info(&url);
        assert_eq!(info.redis_settings().username(), user, "{url}");
        assert_eq!(info.redis_settings().password(), Some(password), "{url}");
    }
    assert_eq!(info("redis://@localhost").redis_settings().password(), None);
}

#[test]
fn a_password_is_read_from_its_file_or_variable_at_each_connect() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pass word");
    let url =
        format!("redis://me@localhost?password_file={}", file.display().to_string().replace(' ', "%20"));
    let server = match options(&url).target() {
        Target::Server(server) => server,
        other => panic!("{other:?}"),
    };
    let password =
        || server.connection_info().map(|info| info.redis_settings().password().map(str::to_owned));

    let missing = password().unwrap_err();
    assert_eq!(missing.kind, tenure_store::StoreErrorKind::Rejected);
    assert!(missing.message.contains("pass word") && missing.message.contains("the password"), "{missing}");
    for (content, expected) in
        [("one\n", "one"), ("two\r\n", "two"), (" three ", " three "), ("a\n\n", "a\n")]
    {
        fs::write(&file, content).unwrap();
        assert_eq!(password().unwrap().as_deref(), Some(expected), "{content:?}");
    }
    for content in [&b""[..], b"\n", b"s\xffcret"] {
        fs::write(&file, content).unwrap();
        let error = password().unwrap_err().to_string();
        assert!(error.contains("pass word") && !error.contains("cret"), "{error}");
    }

    // There is a variable that every run of cargo has, and one that no run has.
    let info = info("redis://localhost?username=me&password_env=CARGO_PKG_NAME");
    assert_eq!(info.redis_settings().username(), Some("me"));
    assert_eq!(info.redis_settings().password(), Some(env!("CARGO_PKG_NAME")));
    let Target::Server(server) = options("redis://localhost?password_env=TENURE_NOT_SET").target() else {
        panic!("it is one server");
    };
    let error = server.connection_info().unwrap_err().to_string();
    assert!(error.contains("\"TENURE_NOT_SET\"") && error.contains("not set"), "{error}");
}

#[test]
fn a_unix_socket_is_named_by_its_path() {
    for url in [
        "redis+unix:///run/my%20redis%3F.sock?db=2",
        "redis+unix:/run/my%20redis%3F.sock?db=2",
        "VALKEY+UNIX:///run/my%20redis%3F.sock?db=2",
    ] {
        let info = info(url);
        assert_eq!(info.addr(), &ConnectionAddr::Unix("/run/my redis?.sock".into()), "{url}");
        assert_eq!(info.redis_settings().db(), 2);
    }
    let info = info("redis+unix://me:p%40ss@/run/redis.sock");
    assert_eq!(info.redis_settings().username(), Some("me"));
    assert_eq!(info.redis_settings().password(), Some("p@ss"));
}

#[test]
fn sentinels_have_their_own_port_and_login_and_the_primary_gets_ours() {
    let url = "redis+sentinel://me:pw@one,two:7000,[::1]/my%2Fservice/4\
               ?sentinel_username=watch&sentinel_password_env=CARGO_PKG_NAME";
    let Target::Sentinel { sentinels, service, server } = options(url).target() else {
        panic!("there are Sentinels");
    };
    assert_eq!(service, "my/service");
    let addresses: Vec<_> = sentinels.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["one:26379", "two:7000", "[::1]:26379"]);
    for sentinel in &sentinels {
        let info = sentinel.connection_info().unwrap();
        assert_eq!(info.redis_settings().username(), Some("watch"));
        assert_eq!(info.redis_settings().password(), Some(env!("CARGO_PKG_NAME")));
        assert_eq!(info.redis_settings().db(), 0);
    }
    let info = server.at("2001:db8::7", 6380).connection_info().unwrap();
    assert_eq!(info.addr(), &tcp("2001:db8::7", 6380));
    assert_eq!(info.redis_settings().username(), Some("me"));
    assert_eq!(info.redis_settings().db(), 4);

    let Target::Sentinel { sentinels, .. } = options("valkey+sentinel://:pw@one/service").target() else {
        panic!("there are Sentinels");
    };
    let info = sentinels[0].connection_info().unwrap();
    assert_eq!(info.redis_settings().password(), None, "the servers' password is not shown to Sentinels");
}

#[test]
fn a_cluster_has_several_nodes_and_one_database() {
    for url in ["redis+cluster://one,two:7001", "valkey+cluster://one,two:7001/0"] {
        let Target::Cluster(nodes) = options(url).target() else { panic!("it is a Cluster") };
        let addresses: Vec<_> = nodes.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["one:6379", "two:7001"], "{url}");
    }
    assert!(refused("redis+cluster://one/3").contains("no database but 0"));
    assert!(refused("redis+cluster://one?db=3").contains("no database but 0"));
}

#[test]
fn with_tls_every_server_is_one_of_tls() {
    for url in
        ["rediss://one:7000", "valkeys://one:7000", "rediss+cluster://one:7000", "VALKEYS+cluster://one:7000"]
    {
        let server = match options(url).target() {
            Target::Server(server) => server,
            Target::Cluster(mut nodes) => nodes.swap_remove(0),
            Target::Sentinel { server, .. } => server,
            Target::Given(_) => panic!("a URL gives no connection"),
        };
        for (server, host, port) in [(server.clone(), "one", 7000), (server.at("other", 7001), "other", 7001)]
        {
            let info = server.connection_info().unwrap();
            let ConnectionAddr::TcpTls { host: host_of, port: port_of, insecure, .. } = info.addr() else {
                panic!("{url}: {:?}", info.addr());
            };
            assert_eq!((&**host_of, *port_of, *insecure), (host, port, false), "{url}");
        }
    }
    let Target::Sentinel { sentinels, server, .. } = options("rediss+sentinel://one/service").target() else {
        panic!("there are Sentinels");
    };
    for endpoint in [&sentinels[0], &server] {
        assert!(matches!(endpoint.connection_info().unwrap().addr(), ConnectionAddr::TcpTls { .. }));
    }
}

#[test]
fn a_certificate_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("empty.pem"), "").unwrap();
    fs::write(path("not.pem"), "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
    for (parameters, file, problem) in [
        (format!("ca={}", path("none.pem")), "none.pem", "authorities"),
        (format!("ca={}", path("empty.pem")), "empty.pem", "no certificate"),
        (format!("ca={}", path("not.pem")), "not.pem", "PEM"),
        (format!("cert={}&key={}", path("none.pem"), path("empty.pem")), "none.pem", "the certificate"),
    ] {
        let url = format!("rediss://localhost?{parameters}");
        let Target::Server(server) = options(&url).target() else { panic!("{url}") };
        let error = server.connection_info().unwrap_err();
        assert_eq!(error.kind, tenure_store::StoreErrorKind::Rejected);
        assert!(error.message.contains(file) && error.message.contains(problem), "{url}: {error}");
    }
    let options = RedisOptions::new("/run/redis.sock").unwrap().tls();
    let Target::Server(server) = options.target() else { panic!("it is one server") };
    assert!(server.connection_info().unwrap_err().message.contains("no TLS on a unix socket"));
}

#[test]
fn times_have_a_unit() {
    let times = |url| {
        let options = options(url);
        (options.connect_timeout, options.clock_step)
    };
    assert_eq!(times("redis://localhost"), (Duration::from_secs(5), Duration::from_millis(100)));
    assert_eq!(
        times("redis://localhost?connect_timeout=1500ms&clock_step=0s"),
        (Duration::from_millis(1500), Duration::ZERO)
    );
    assert_eq!(times("redis://localhost?connect_timeout=2m&clock_step=1s").0, Duration::from_secs(120));
    for value in ["", "5", "s", "5h", "-5s", "+5s", "1.5s", "0ms", "2h", "61m", "99999999999999999999s"] {
        let error = refused(&format!("redis://localhost?connect_timeout={value}"));
        assert!(error.contains("connect_timeout") && error.contains("500ms or 5s"), "{value}: {error}");
    }
}

#[test]
fn a_url_that_is_wrong_is_refused_with_the_part_that_is_wrong() {
    for (url, part) in [
        ("", "begin with redis:"),
        ("localhost", "begin with redis:"),
        ("http://localhost", "begin with redis:"),
        ("unix:///run/redis.sock", "redis+unix:"),
        ("rediss+unix:///run/redis.sock", "redis+unix:"),
        ("redis+sentinal://a/b", "+sentinel:"),
        ("redis+://a", "+sentinel:"),
        ("redis:", "// and a host"),
        ("redis:localhost", "// and a host"),
        ("redis:/localhost", "// and a host"),
        ("redis://", "name a host"),
        ("redis:///0", "name a host"),
        ("redis://:6379", "name a host"),
        ("redis://a,b", "redis+sentinel: or redis+cluster:"),
        ("redis+cluster://a,,b", "name a host"),
        ("redis+cluster://a,", "name a host"),
        ("redis+sentinel://a/", "name the service"),
        ("redis+sentinel://a", "name the service"),
        ("redis+sentinel://a//0", "name the service"),
        ("redis+sentinel:///service", "name a host"),
        ("redis://a b", "letters, digits"),
        ("redis://bücher.example", "xn--"),
        ("redis://a%20b", "letters, digits"),
        ("redis://0.0.0.0", "can connect to"),
        ("redis://[::]", "can connect to"),
        ("redis://[::1", "]"),
        ("redis://[nonsense]", "IPv6"),
        ("redis://::1", "in brackets"),
        ("redis://[::1]6379", "port from 1 to 65535"),
        ("redis://a:", "port from 1 to 65535"),
        ("redis://a:0", "port from 1 to 65535"),
        ("redis://a:65536", "port from 1 to 65535"),
        ("redis://a:+1", "port from 1 to 65535"),
        ("redis://a:1:2", "port from 1 to 65535"),
        ("redis://a/b", "number where the database"),
        ("redis://a/-1", "number where the database"),
        ("redis://a/+1", "number where the database"),
        ("redis://a/4294967296", "number where the database"),
        ("redis://a//", "number where the database"),
        ("redis://a?db=", "number where the database"),
        ("redis://a/1/2", "nothing after the number"),
        ("redis://a/1?db=1", "database once"),
        ("redis+unix://host/run/redis.sock", "three slashes"),
        ("redis+unix:run/redis.sock", "absolute path"),
        ("redis+unix:///", "absolute path"),
        ("redis+unix:///run/", "absolute path"),
        ("redis+unix:", "absolute path"),
        ("redis+unix:///a%00b", "zero byte"),
        ("redis://a#b", "fragment"),
        ("rediss://a#insecure", "fragment"),
        ("redis://a?insecure=true", "check of certificates"),
        ("rediss://a?insecure", "check of certificates"),
        ("redis://:a%2@b", "%25"),
        ("redis://a?prefix=%zz", "%25"),
        ("redis://:%ff@b", "UTF-8"),
        ("redis://:@b", "password between : and @"),
        ("redis://me@b", "give the user a password"),
        ("redis://b?username=me", "give the user a password"),
        ("redis://me:a@b?username=me", "the user once"),
        ("redis://me:a@b?password_file=/a", "the password once"),
        ("redis://b?password_file=/a&password_env=B", "one of password_file and password_env"),
        ("redis://b?password=a", "password among the parameters"),
        ("redis://b?prefix=", "a value after prefix="),
        ("redis://b?prefix=a:b", "letters, digits, _, - or ."),
        ("redis://b?prefix=%7Ba%7D", "letters, digits, _, - or ."),
        ("redis://b?perfix=a", "\"perfix\""),
        ("redis://b?prefix=a&prefix=a", "\"prefix\" only once"),
        ("redis://b?ca=/a.pem", "begin with rediss"),
        ("rediss://b?ca=", "a path after ca="),
        ("rediss://b?cert=/a.pem", "cert and key together"),
        ("rediss://b?key=/a.pem", "cert and key together"),
        ("redis://b?sentinel_password_env=A", "name Sentinels"),
        ("redis+sentinel://b/c?sentinel_username=a", "give the user a password"),
    ] {
        let error = refused(url);
        assert!(error.contains(part), "{url}: {error}");
    }
    let long = "x".repeat(101);
    assert!(refused(&format!("redis://b?prefix={long}")).contains("1 to 100"));
}

#[test]
fn no_error_and_no_debug_shows_a_secret() {
    let accepted = [
        "redis://s3cret-user:s3cret@localhost/1?prefix=a",
        "redis+unix://s3cret-user:s3cret@/run/redis.sock",
        "rediss+sentinel://s3cret-user:s3cret@one,two/service?ca=/a.pem",
        "valkeys+cluster://:s3cret@one,two",
    ];
    for url in accepted {
        let options = options(url);
        let store = crate::RedisStore::new(options.clone());
        let shown = format!("{options:?} {options:#?} {store:?} {:?}", options.target());
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    for url in [
        "s3cret",
        "s3cret@host",
        "s3cret://host",
        "http://me:s3cret@host",
        "redis:me:s3cret@host",
        "redis://me:s3cret",
        "redis://me:s3cret@",
        "redis://me:s3cret@host:port",
        "redis://me:s3cret@host/x",
        "redis://me:s3cret@host/s3cret",
        "redis://me:s3cret@host?perfix=a",
        "redis://me:s3cret@host#x",
        "redis://me:s3cret#x@host",
        "redis://me:x#s3cret@host",
        "redis://me:s3cret?x@host",
        "redis://me:x?s3cret@host",
        "redis://me:x?y=s3cret@host",
        "redis://me:x?s3cret",
        "redis://me:s3cret/x@host",
        "redis://me:x/s3cret@host",
        "redis://me:x/s3cret",
        "redis://me:s3cret@x@host",
        "redis://me:x@s3cret@host",
        "redis://me:s3cret%@host",
        "redis://me:s3cret%ff@host",
        "redis://s3cret@host",
        "redis://host?password=s3cret",
        "redis://host?S3CRET-s3cret",
        "redis+unix://me:s3cret@host/run/redis.sock",
        "redis+unix://me:s3cret",
        "redis+sentinel://me:s3cret@one,two",
        "redis+sentinel://me:s3cret,one/service",
        "redis+cluster://me:s3cret@one/3",
    ] {
        let error = RedisOptions::from_url(url).expect_err(url);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("s3cret"), "{url}: {shown}");
    }
    let error = RedisOptions::new("redis://me:s3cret@host").unwrap_err().to_string();
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn the_same_can_be_said_without_a_url() {
    let said = |options: &RedisOptions| {
        let (Target::Server(server) | Target::Sentinel { server, .. }) = options.target() else {
            panic!("{options:?}");
        };
        let info = server.connection_info().unwrap();
        format!("{options:?} {:?} {:?}", info.redis_settings(), info.redis_settings().password())
    };
    let by_hand = RedisOptions::new("[::1]:7000")
        .and_then(|options| options.username("me").password("p@ss").database(3).prefix("a"))
        .unwrap()
        .connect_timeout(Duration::from_secs(1))
        .clock_step(Duration::ZERO);
    let url = "redis://me:p%40ss@[::1]:7000/3?prefix=a&connect_timeout=1s&clock_step=0s";
    assert_eq!(said(&by_hand), said(&options(url)));

    let by_hand = RedisOptions::sentinel(["one", "two:7000"], "service").unwrap().tls();
    assert_eq!(said(&by_hand), said(&options("rediss+sentinel://one,two:7000/service")));
    let by_hand = RedisOptions::new("/run/redis.sock").unwrap();
    assert_eq!(said(&by_hand), said(&options("redis+unix:///run/redis.sock")));
    let by_hand = RedisOptions::cluster(["one", "two"]).unwrap();
    assert_eq!(format!("{by_hand:?}"), format!("{:?}", options("redis+cluster://one,two")));

    assert!(RedisOptions::cluster([""; 0]).unwrap_err().to_string().contains("one at least"));
    assert!(RedisOptions::sentinel(["a"], "").is_err());
    for address in ["", "a b", "a:b", "relative/path", "/", "redis://host"] {
        assert!(RedisOptions::new(address).is_err(), "{address}");
    }
    assert!(RedisOptions::new("a").unwrap().prefix("").is_err());
}
#[test]
fn a_client_of_the_program_is_followed_in_all_that_it_says() {
    let info = "rediss://me:pw@host:7000/2".into_connection_info().unwrap();
    let client = redis::Client::open(info).unwrap();
    let Target::Server(server) = RedisOptions::from_client(&client).target() else {
        panic!("it is one server")
    };
    assert_eq!(server.to_string(), "host:7000");
    for (server, host) in [(server.clone(), "host"), (server.at("other", 7000), "other")] {
        let info = server.connection_info().unwrap();
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("me"), Some("pw"), 2));
        assert!(settings.protocol().supports_resp3(), "hints come by it");
        assert!(matches!(info.addr(), ConnectionAddr::TcpTls { host: name, .. } if name == host));
    }
}
