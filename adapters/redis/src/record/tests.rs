use tenure_core::{Acquisition, Identity, Incarnation};

use super::*;

const LEFT: Option<Duration> = Some(Duration::from_secs(7));

fn request(metadata: Metadata) -> Acquire {
    Acquire {
        name: LeaseName::new("backup").unwrap(),
        owner: Identity::new("here", Incarnation::new(1)).unwrap().owner(Acquisition(0)),
        ttl: Duration::from_micros(1_000_001),
        floor: Token::ZERO,
        wait: false,
        metadata,
        timeout: Duration::from_secs(1),
    }
}

/// The value as the script makes it.
fn value(request: &Acquire) -> String {
    let Acquire { owner, .. } = request;
    format!("17:{owner}\n{{\"v\":1,\"since\":1700000000000001{}", for_people(request))
}

#[test]
fn what_is_kept_for_people_comes_back_unchanged() {
    let texts = ["", "two\nlines", "\"quoted\" \\ and \0 \u{1b} \u{2028} 🦀", &"\u{1}".repeat(1024)];
    for text in texts {
        let mut metadata = Metadata::new();
        metadata.host = Some(text.into());
        metadata.pid = Some(u32::MAX);
        metadata.text = Some(text.into());
        for metadata in [metadata, Metadata::new()] {
            let request = request(metadata.clone());
            let value = value(&request);
            assert_eq!(value.lines().count(), 2, "a second line, and no third: {value:?}");
            assert!(value.len() < 16384, "the script shows so much: {}", value.len());
            let holder = holder(value.as_bytes(), LEFT);
            assert_eq!(holder.problem, None);
            assert_eq!((holder.owner, holder.token), (request.owner.to_string(), Some(Token::new(17))));
            assert_eq!(holder.ttl, Some(Duration::from_millis(1001)), "what the server was asked for");
            assert_eq!(holder.since, wall_time(1_700_000_000_000_001));
            assert_eq!((holder.remaining, holder.metadata), (LEFT, metadata));
        }
    }
}

#[test]
fn a_record_without_a_second_line_is_readable() {
    let holder = holder(b"17:here/1.2", LEFT);
    assert_eq!(
        (holder.owner.as_str(), holder.token, holder.problem),
        ("here/1.2", Some(Token::new(17)), None)
    );
}

#[test]
fn a_record_that_cant_be_read_is_held_and_says_why() {
    let problem = |value: &[u8]| holder(value, LEFT).problem.unwrap_or_default();
    assert!(problem(b"17:a\n{\"v\":2}").contains("has format 2, this program knows format 1"));
    assert!(problem(b"17:a\n{\"v\":-1}").contains("\"v\" is no number"));
    assert!(problem(b"17:a\n{}").contains("no format"));
    assert!(problem(b"17:a\n[1]").contains("no format"));
    assert!(problem(b"17:a\n").contains("damaged"));
    assert!(problem(b"17:a\n{\"v\":1,\"ttl\":\"x\"}").contains("\"ttl\" is no number"));
    assert!(problem(b"17:a\n{\"v\":1,\"pid\":4294967296}").contains("no process has this id"));
    assert!(problem(b"17:a\n{\"v\":1,\"host\":7}").contains("\"host\" is no text"));
    let newer = holder(b"17:a\n{\"v\":2}", LEFT);
    assert_eq!((newer.owner.as_str(), newer.token, newer.remaining), ("a", Some(Token::new(17)), LEFT));
}

#[test]
fn what_another_program_wrote_is_held_by_it() {
    let long = "ü".repeat(1000);
    for text in ["", "x", ":", "worker-3", "-1:a", "+1:a", "1e3:a", "99999999999999999999:a", &long] {
        let holder = holder(text.as_bytes(), LEFT);
        assert!(holder.problem.is_some_and(|problem| problem.contains("another program")), "{text:?}");
        assert!(text.starts_with(holder.owner.trim_end_matches('…')), "{:?} is of {text:?}", holder.owner);
        assert!(holder.owner.chars().count() <= MOST_SHOWN + 1);
        assert_eq!((holder.token, holder.remaining), (None, LEFT));
    }
    assert_eq!(
        holder(b"\xff\xfe", LEFT).owner,
        "\u{fffd}\u{fffd}",
        "bytes that are no text are shown all the same"
    );
}

#[test]
fn what_has_no_end_says_so() {
    assert!(holder(b"17:a", None).problem.is_some_and(|problem| problem.contains("no TTL")));
}

#[test]
fn times_are_rounded_to_the_side_of_the_holder() {
    assert_eq!(millis(Duration::from_millis(50)), 50);
    assert_eq!(millis(Duration::from_nanos(50_000_001)), 51);
    assert_eq!(millis(Duration::MAX), u64::MAX);
    assert_eq!(remaining(-1), None);
    assert_eq!(remaining(0), Some(Duration::from_millis(1)), "it is there until the millisecond is over");
    assert_eq!(remaining(50), Some(Duration::from_millis(50)));
}

#[test]
fn who_writes_a_second_line_also_tells_of_the_end() {
    assert!(!may_be_foreign(value(&request(Metadata::new())).as_bytes()));
    assert!(may_be_foreign(b"worker-3"));
    assert!(may_be_foreign(b"17:a"));
}
