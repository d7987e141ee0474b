//! The bucket, which is a stream: made if it is not there, and looked at if it is. What is there is never changed.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::Instant;
use tenure_store::{StoreError, clock};
use tokio::time;

use crate::connection::{Connection, NoAnswer};
use crate::error::{Refusal, only_read, strange};
use crate::names::Names;
use crate::options::NatsOptions;

/// How long the server remembers that a record has ended by itself, for those who watch the bucket by other means.
const MARKER: Duration = Duration::from_secs(60);

/// A timer's record with all its claims has some 40 kB, one of a job somewhat more than 100 kB.
const LONGEST_RECORD: i64 = 512 << 10;

/// Sequences that begin below this were not begun at the clock's microseconds, but at 1.
const LOWEST_FIRST: u64 = 1_000_000_000_000_000;

/// Between two attempts at what only time can mend.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes sure that the server can be used, and that there is a bucket that can; tells when it was made.
pub(crate) async fn ensure(
    connection: &Connection,
    options: &NatsOptions,
    names: &Names,
    until: Instant,
) -> Result<String, StoreError> {
    check_version(&connection.server().version)?;
    loop {
        let trouble = match attempt(connection, options, names, until).await {
            Ok(Some(created)) => return Ok(created),
            // Others were faster, or it is not known yet what became of it.
            Ok(None) => None,
            Err(error) if error.failure() == tenure_core::Failure::NotExecuted => Some(error),
            Err(error) => return Err(error),
        };
        if clock::now() + PAUSE >= until {
            let late = || StoreError::transient("the bucket could not be made in time");
            return Err(trouble.unwrap_or_else(late));
        }
        time::sleep(PAUSE).await;
    }
}

/// Looks at the bucket, or makes it; `None` to look again.
async fn attempt(
    connection: &Connection,
    options: &NatsOptions,
    names: &Names,
    until: Instant,
) -> Result<Option<String>, StoreError> {
    let stream = names.stream();
    let info = connection.ask_again(&format!("STREAM.INFO.{stream}"), &Value::Null, until).await;
    let info = info.map_err(no_jetstream)?;
    match Refusal::of(&info) {
        None => return found(&info, options, names).map(Some),
        Some(refusal) if refusal.code == Refusal::NO_STREAM => {}
        Some(refusal) => return Err(refusal.error()),
    }
    let made =
        connection.ask(&format!("STREAM.CREATE.{stream}"), &configuration(options, names), until).await;
    let made = match made {
        Ok(made) => made,
        // It may have been made all the same.
        Err(NoAnswer::Late(_)) => return Ok(None),
        Err(no_answer) => return Err(no_jetstream(no_answer)),
    };
    match Refusal::of(&made) {
        None => {
            tracing::info!(event = "nats.bucket_made", bucket = %options.bucket, "made the bucket");
            found(&made, options, names).map(Some)
        }
        // Somebody else has just made it, at another microsecond.
        Some(refusal) if refusal.code == Refusal::STREAM_IS_DIFFERENT => Ok(None),
        Some(refusal) => Err(refusal.error()),
    }
}

/// JetStream itself does not answer.
fn no_jetstream(no_answer: NoAnswer) -> StoreError {
    match no_answer {
        NoAnswer::Refused(error) => error,
        NoAnswer::Nobody => StoreError::unsupported(
            "JetStream is not enabled on the server, or not for this account: start it with -js, or with a \
             jetstream block in its configuration",
        ),
        NoAnswer::Late(mut error) => {
            error.message += "; has JetStream a leader, and may this user ask it?";
            only_read(error)
        }
    }
}

fn configuration(options: &NatsOptions, names: &Names) -> Value {
    json!({
        "name": names.stream(),
        "description": "records of Tenure",
        "subjects": [names.all()],
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "max_consumers": -1,
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": options.replicas,
        "duplicate_window": 120_000_000_000_u64,
        "allow_rollup_hdrs": true,
        "deny_delete": true,
        "allow_direct": true,
        "allow_msg_ttl": true,
        "subject_delete_marker_ttl": MARKER.as_secs() * 1_000_000_000,
        // Tokens are sequences: so those of a bucket that is made anew are above all earlier ones.
        "first_seq": clock::wall_micros().max(1),
    })
}

/// The bucket is there; whether it can be used.
fn found(info: &Value, options: &NatsOptions, names: &Names) -> Result<String, StoreError> {
    let config = info.get("config").ok_or_else(|| strange(info))?;
    let Findings { broken, odd } = look(config, options, &names.all());
    let bucket = &options.bucket;
    if !broken.is_empty() {
        return Err(StoreError::unsupported(format!(
            "the bucket {bucket:?} can't be used as it is: {}; change it, or use another one",
            broken.join("; ")
        )));
    }
    if !odd.is_empty() {
        let differs = odd.join("; ");
        tracing::warn!(event = "nats.bucket_differs", %bucket, %differs, "the bucket is not as it would be made; it is used all the same");
    }
    Ok(info.get("created").and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// What is found of a bucket that others may have made.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    /// With it nothing can go on.
    broken: Vec<String>,
    /// With it all can go on, with a restriction.
    odd: Vec<String>,
}

fn look(config: &Value, options: &NatsOptions, subject: &str) -> Findings {
    let number = |name: &str| config.get(name).and_then(Value::as_i64).unwrap_or_default();
    let is = |name: &str| config.get(name).and_then(Value::as_bool).unwrap_or_default();
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let there = |name: &str| config.get(name).is_some_and(|value| !value.is_null() && *value != json!([]));
    let mut findings = Findings::default();
    let mut broken = |wrong: bool, what: String| findings.broken.extend(wrong.then_some(what));
    let subjects = config.get("subjects").and_then(Value::as_array);
    broken(
        !subjects.is_some_and(|subjects| subjects.iter().any(|one| one == subject)),
        format!("its subjects have no {subject:?}"),
    );
    let history = number("max_msgs_per_subject");
    broken(
        history != 1,
        format!(
            "its history (max_msgs_per_subject) is {history} and must be 1: with more, what has ended comes back"
        ),
    );
    broken(!is("allow_msg_ttl"), "records can have no TTL (allow_msg_ttl): nothing would end".to_owned());
    broken(!is("allow_rollup_hdrs"), "records can't be purged (allow_rollup_hdrs)".to_owned());
    let age = number("max_age");
    broken(age != 0, format!("all its records end after {:?} (max_age)", nanos(age)));
    broken(
        text("retention") != "limits",
        format!("its retention is {:?} and must be \"limits\"", text("retention")),
    );
    broken(is("sealed"), "it is sealed".to_owned());
    broken(is("no_ack"), "it acknowledges nothing (no_ack)".to_owned());
    broken(
        is("discard_new_per_subject"),
        "no record can be written again (discard_new_per_subject)".to_owned(),
    );
    for name in ["mirror", "sources", "subject_transform"] {
        broken(there(name), format!("it has what others write ({name})"));
    }
    let limited: Vec<_> = ["max_msgs", "max_bytes"].into_iter().filter(|name| number(name) > 0).collect();
    let drops = text("discard") != "new";
    broken(
        drops && !limited.is_empty(),
        format!(
            "records are dropped where it is full (discard {:?} with {})",
            text("discard"),
            limited.join(", ")
        ),
    );
    let longest = number("max_msg_size");
    broken(
        (1..LONGEST_RECORD).contains(&longest),
        format!("its records may have {longest} bytes (max_msg_size), and {LONGEST_RECORD} are needed"),
    );

    let mut odd = |differs: bool, what: String| findings.odd.extend(differs.then_some(what));
    odd(
        text("storage") != "file",
        format!("its storage is {:?}: a restart loses all records", text("storage")),
    );
    odd(text("persist_mode") == "async", "it acknowledges what is not written yet (persist_mode)".to_owned());
    let replicas = number("num_replicas").max(1);
    odd(
        replicas != i64::from(options.replicas),
        format!("it has {replicas} replicas, not {}", options.replicas),
    );
    odd(!drops && !limited.is_empty(), format!("it can be full ({})", limited.join(", ")));
    let first = config.get("first_seq").and_then(Value::as_u64).unwrap_or_default();
    odd(
        first < LOWEST_FIRST,
        "its sequences were not begun at the clock's microseconds (first_seq): were it made anew, tokens would be \
         lower than before"
            .to_owned(),
    );
    findings
}

fn nanos(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.unsigned_abs())
}

/// Servers before these lose the end of a record while others are renewed, or know no TTL at all.
fn check_version(version: &str) -> Result<(), StoreError> {
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<u64> = numbers.split('.').map_while(|number| number.parse().ok()).collect();
    let [major, minor, patch, ..] = numbers[..] else {
        return Err(StoreError::unsupported(format!(
            "the server has the version {version:?}, which is none"
        )));
    };
    let lacks = match (major, minor, patch) {
        (0 | 1, ..) | (2, 0..=10, _) => "has no TTL for single records",
        (2, 11, 0..=9) | (2, 12, 0) => "keeps records whose TTL is over while others are renewed",
        _ => return Ok(()),
    };
    Err(StoreError::unsupported(format!(
        "nats-server {version} {lacks}: 2.11.10 or newer is needed, but not 2.12.0"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_do_not_end_records_are_refused() {
        for version in ["2.11.10", "2.11.11", "2.12.1", "2.12.8", "2.14.6", "2.15.1", "3.0.0", "2.15.0-RC.1"]
        {
            assert_eq!(check_version(version), Ok(()), "{version}");
        }
        for version in
            ["2.9.10", "2.10.26", "2.11.0", "2.11.9", "2.12.0", "2.12.0-beta.1", "1.4.1", "", "x", "2.11"]
        {
            let error = check_version(version).expect_err(version);
            assert_eq!(error.kind, tenure_store::StoreErrorKind::Unsupported);
        }
        let error = check_version("2.10.26").unwrap_err().to_string();
        assert!(error.contains("2.10.26") && error.contains("2.11.10"), "{error}");
    }

    #[test]
    fn a_bucket_as_it_is_made_is_fine_and_each_difference_is_named() {
        let options = NatsOptions::new(["one"]).unwrap();
        let names = Names::new(&options.bucket);
        let made = configuration(&options, &names);
        assert_eq!(look(&made, &options, &names.all()), Findings::default());
        let with = |name: &str, value: Value| {
            let mut config = made.clone();
            config[name] = value;
            look(&config, &options, &names.all())
        };
        for (name, value) in [
            ("max_msgs_per_subject", json!(5)),
            ("allow_msg_ttl", json!(false)),
            ("allow_rollup_hdrs", json!(null)),
            ("max_age", json!(1_000_000_000)),
            ("subjects", json!(["$KV.other.>"])),
            ("retention", json!("workqueue")),
            ("sealed", json!(true)),
            ("no_ack", json!(true)),
            ("mirror", json!({"name": "x"})),
            ("sources", json!([{"name": "x"}])),
            ("max_msg_size", json!(1000)),
        ] {
            let findings = with(name, value);
            assert_eq!((findings.broken.len(), findings.odd.len()), (1, 0), "{name}: {findings:?}");
        }
        for (name, value) in [
            ("storage", json!("memory")),
            ("num_replicas", json!(3)),
            ("first_seq", json!(0)),
            ("max_bytes", json!(1 << 30)),
            ("persist_mode", json!("async")),
        ] {
            let findings = with(name, value);
            assert_eq!((findings.broken.len(), findings.odd.len()), (0, 1), "{name}: {findings:?}");
        }
        let mut full = made.clone();
        (full["discard"], full["max_msgs"]) = (json!("old"), json!(100));
        assert_eq!(look(&full, &options, &names.all()).broken.len(), 1, "leases would vanish");
    }
}
