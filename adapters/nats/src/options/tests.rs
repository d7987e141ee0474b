use super::*;

fn url(text: &str) -> NatsOptions {
    NatsOptions::from_url(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_url_says_what_the_settings_say() {
    let new = |hosts: &[&str]| NatsOptions::new(hosts.iter().copied()).unwrap();
    for (text, options) in [
        ("nats://localhost", new(&["localhost:4222"])),
        ("NATS://LOCALHOST:4222/", new(&["localhost"])),
        ("nats://one,two:4000,[::1]", new(&["one", "two:4000", "[::1]:4222"])),
        ("tls://one", new(&["one"]).tls()),
        ("nats://user:p%40ss@one", new(&["one"]).user("user", "p@ss")),
        ("nats://one?bucket=b-1&replicas=3", new(&["one"]).bucket("b-1").unwrap().replicas(3).unwrap()),
        ("nats://one?username=u&password_file=/p", new(&["one"]).user_with_password_file("u", "/p")),
        ("tls://one?creds=/c&ca=/ca", new(&["one"]).credentials_file("/c").ca_file("/ca")),
        ("tls://one?nkey=/n&cert=/c&key=/k", new(&["one"]).nkey_file("/n").identity_files("/c", "/k")),
        ("nats://one?inbox_prefix=_I.x", new(&["one"]).inbox_prefix("_I.x").unwrap()),
        (
            "nats://one?connect_timeout=2s&clock_step=0s",
            new(&["one"]).connect_timeout(Duration::from_secs(2)).clock_step(Duration::ZERO),
        ),
    ] {
        assert!(url(text) == options, "{text}: {:?} is not {options:?}", url(text));
    }
}

#[test]
fn a_url_that_can_not_be_right_is_refused_and_shows_no_secret() {
    for text in [
        "",
        "localhost",
        "redis://s3cr3t@one",
        "nats:s3cr3t",
        "nats://",
        "nats://s3cr3t@one",
        "nats://user:@one",
        "nats://:s3cr3t@one",
        "nats://user:sec@ret@one",
        "nats://user:sec/ret@one",
        "nats://one/s3cr3t",
        "nats://one:0",
        "nats://one:65536",
        "nats://one,,two",
        "nats://one?password=s3cr3t",
        "nats://one?token=s3cr3t",
        "nats://one?s3cr3t=1",
        "nats://one?bucket=a.b",
        "nats://one?bucket=",
        "nats://one?replicas=0",
        "nats://one?replicas=x",
        "nats://one?ca=/s3cr3t",
        "tls://one?cert=/c",
        "tls://one?insecure=1",
        "nats://one?username=u",
        "nats://one?password_env=X",
        "nats://one?creds=/c&nkey=/n",
        "nats://user:s3cr3t@one?creds=/c",
        "nats://one?bucket=a&bucket=b",
        "nats://one?inbox_prefix=a..b",
        "nats://one?inbox_prefix=a.*",
        "nats://one?connect_timeout=5",
        "nats://one#s3cr3t",
    ] {
        let error = NatsOptions::from_url(text).expect_err(text).to_string();
        let shows = error.contains("s3cr3t") && !text.contains("?s3cr3t");
        assert!(!shows, "{text}: {error}");
    }
    let error = NatsOptions::new(["nats://user:s3cr3t@one"]).unwrap_err().to_string();
    assert!(!error.contains("s3cr3t"), "{error}");
    assert!(NatsOptions::new([""; 0]).is_err());
}

#[test]
fn options_show_where_the_servers_are_and_no_credentials() {
    let options = url("tls://user:s3cr3t@one,[::1]:4000?bucket=b");
    assert_eq!(options.to_string(), "tls://one:4222,[::1]:4000");
    let debug = format!("{options:?}");
    assert!(!debug.contains("s3cr3t") && !debug.contains("user"), "{debug}");
}
