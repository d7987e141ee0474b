use rustls::{AlertDescription, CertificateError};
use tenure_store::StoreErrorKind::{self, Rejected, Transient, Unknown, Unsupported};

use super::*;

fn answer(line: &str) -> ServerError {
    match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
        Ok(Value::ServerError(answer)) => answer,
        other => panic!("{line} is no error: {other:?}"),
    }
}

fn class(line: &str) -> StoreErrorKind {
    refused("10.0.0.1:6379", &answer(line)).kind
}

#[test]
fn each_answer_has_its_class() {
    let table = [
        ("LOADING Redis is loading the dataset in memory", Transient),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Transient),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Transient),
        ("CLUSTERDOWN The cluster is down", Transient),
        ("MOVED 3999 127.0.0.1:6381", Transient),
        ("ASK 3999 127.0.0.1:6381", Transient),
        ("ERR max number of clients reached", Transient),
        ("READONLY You can't write against a read only replica.", Transient),
        ("NOSCRIPT No matching script. Please use EVAL.", Transient),
        ("OOM command not allowed when used memory > 'maxmemory'.", Transient),
        ("NOREPLICAS Not enough good replicas to write.", Transient),
        (
            "MISCONF Redis is configured to save RDB snapshots, but it is unable to persist to disk.",
            Transient,
        ),
        ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Transient),
        ("UNKILLABLE Sorry the script already executed write commands", Transient),
        ("NOAUTH Authentication required.", Rejected),
        ("WRONGPASS invalid username-password pair or user is disabled.", Rejected),
        ("NOPERM this user has no permissions to run the 'eval' command", Rejected),
        ("DENIED Redis is running in protected mode", Rejected),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Rejected),
        ("CROSSSLOT Keys in request don't hash to the same slot", Rejected),
        ("ERR DB index is out of range", Rejected),
        ("ERR value is not an integer or out of range", Rejected),
        ("ERR unknown command 'EVAL', with args beginning with: 'return 1' '0' ", Unsupported),
        ("SOMETHINGNEW that nobody knows yet", Rejected),
    ];
    for (line, class_of_it) in table {
        assert_eq!(class(line), class_of_it, "{line}");
    }
}

#[test]
fn a_permission_that_a_script_lacks_is_rejected_by_every_version() {
    // 6.2, 7.0 and 7.2.
    for line in [
        "ERR Error running script (call to f_4ca2): @user_script:1: @user_script: 1: -NOPERM this user has no \
         permissions to run the 'get' command or its subcommand",
        "ERR The user executing the script can't run this command or subcommand script: c493, on @user_script:1.",
        "ERR ACL failure in script: User x has no permissions to run the 'get' command script: c493, on \
         @user_script:1.",
    ] {
        let error = refused("10.0.0.1:6379", &answer(line));
        assert_eq!(error.kind, Rejected, "{line}");
        assert!(error.message.contains("permission"), "{}", error.message);
    }
}

#[test]
fn a_code_is_found_where_old_servers_hide_it_in_a_script() {
    let hidden = "ERR Error running script (call to f_4ca2): @user_script:4: @user_script: 4: -OOM command not allowed \
                  when used memory > 'maxmemory'.";
    assert_eq!(code(&answer(hidden)), "OOM");
    assert_eq!(class(hidden), Transient);
    let replica = "ERR Error running script (call to f_4ca2): @user_script:4: -READONLY You can't write against a \
                   read only replica.";
    assert!(wants_another_connection(&answer(replica)));
    assert_eq!(code(&answer("ERR OOM is only a word here")), "ERR");
}

#[test]
fn only_a_wrong_server_or_a_lost_login_asks_for_another_connection() {
    for line in ["READONLY x", "MASTERDOWN x", "NOAUTH x"] {
        assert!(wants_another_connection(&answer(line)), "{line}");
    }
    for line in ["LOADING x", "OOM x", "BUSY x", "NOPERM x", "MOVED 1 a:1", "ERR x", "NOSCRIPT x"] {
        assert!(!wants_another_connection(&answer(line)), "{line}");
    }
}

#[test]
fn an_answer_that_repeats_a_password_is_told_without_it() {
    let line = "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `hunter2`, ";
    let answer = answer(line);
    let told = refused("10.0.0.1:6379", &answer).message;
    let lost = lost("10.0.0.1:6379", &answer.clone().into()).message;
    let failed = format!("{:?}", cant_connect("10.0.0.1:6379", &answer.into()));
    for text in [told, lost, failed] {
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("HELLO") && text.contains("10.0.0.1:6379"), "{text}");
    }
}

fn failing(kind: io::ErrorKind, text: &str) -> RedisError {
    RedisError::from(io::Error::new(kind, text.to_owned()))
}

#[test]
fn what_fails_before_anything_was_sent_has_its_class() {
    let kinds = [
        (failing(io::ErrorKind::ConnectionRefused, "Connection refused"), Transient),
        (failing(io::ErrorKind::ConnectionReset, "reset"), Transient),
        (failing(io::ErrorKind::BrokenPipe, "broken pipe"), Transient),
        (failing(io::ErrorKind::TimedOut, "timed out"), Transient),
        (failing(io::ErrorKind::Other, "failed to lookup address information"), Transient),
        (failing(io::ErrorKind::NotFound, "no such socket"), Transient),
        (failing(io::ErrorKind::PermissionDenied, "not your socket"), Rejected),
        (failing(io::ErrorKind::InvalidData, "invalid peer certificate: UnknownIssuer"), Rejected),
        (failing(io::ErrorKind::InvalidData, "received corrupt message"), Rejected),
        ((ErrorKind::AuthenticationFailed, "Password authentication failed").into(), Rejected),
        ((ErrorKind::RESP3NotSupported, "no HELLO").into(), Unsupported),
        ((ErrorKind::InvalidClientConfig, "no address").into(), Rejected),
        ((ErrorKind::Parse, "not Redis").into(), Rejected),
        (answer("WRONGPASS invalid username-password pair").into(), Rejected),
        (answer("ERR max number of clients reached").into(), Transient),
        (answer("LOADING Redis is loading the dataset in memory").into(), Transient),
    ];
    for (error, kind) in kinds {
        assert_eq!(cant_connect("10.0.0.1:6379", &error).kind, kind, "{error}");
    }
}

#[test]
fn of_a_certificate_it_is_told_what_to_do() {
    let says = |error: rustls::Error| {
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        let error = cant_connect("10.0.0.1:6379", &error.into());
        assert_eq!(error.kind, Rejected, "{error}");
        error.message
    };
    for (problem, mend) in [
        (CertificateError::Expired, "renew it"),
        (CertificateError::NotValidYet, "clock"),
        (CertificateError::NotValidForName, "a name that it has"),
        (CertificateError::UnknownIssuer, "ca="),
    ] {
        let said = says(problem.into());
        assert!(said.contains(mend), "{said}");
    }
    let wanted = says(rustls::Error::AlertReceived(AlertDescription::CertificateRequired));
    assert!(wanted.contains("cert="), "{wanted}");
    let none = says(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure));
    assert!(none.contains("on this port"), "{none}");
}

#[test]
fn a_connection_that_fails_with_a_request_under_way_leaves_its_outcome_unknown() {
    let error = failing(io::ErrorKind::UnexpectedEof, "closed");
    assert_eq!(lost("10.0.0.1:6379", &error).kind, Unknown);
}
