use std::time::Duration;

use tenure_core::{Acquisition, Identity, Incarnation, Overlap, Timestamp};
use tenure_store::{Metadata, StoreTime, TickClaim, TimerAct, TimerAnswer};

use super::*;

const NOW: Instant = Instant::from_nanos(1_790_000_000_000_000_000);

fn claim(tick: u64, owner: &str, token: u64) -> Claim {
    Claim {
        tick,
        owner: owner.to_owned(),
        token: Token::new(token),
        ttl: Duration::from_secs(15),
        ends: NOW + Duration::from_secs(15),
        begun: 1,
        attempts: 2,
        since: Timestamp::from_nanos(1_790_000_000_000_000_000),
        metadata: Metadata::new(),
    }
}

fn timer(claims: Vec<Claim>) -> TimerRecord {
    TimerRecord {
        revision: 3,
        base: Tick { n: 0, at: Timestamp::from_nanos(1_790_000_000_000_000_000) },
        schedule: "every 10m".into(),
        next: None,
        last: 6,
        claimed: 6,
        claims,
    }
}

fn written(number: u64) -> Option<Token> {
    Some(Token::new(number))
}

fn text(record: &TimerRecord) -> String {
    write(record, &[], None)
}

#[test]
fn a_record_is_written_as_documented() {
    let mut claim = claim(6, "host/00000000000000000000000000000001.4", 1_790_003_600_000_123);
    claim.metadata.host = Some("höst".into());
    claim.metadata.pid = Some(1);
    let mut record = timer(vec![claim]);
    record.next =
        Some(NextSchedule { at: Tick { n: 7, at: Timestamp::from_nanos(-1) }, schedule: "x".into() });
    assert_eq!(
        text(&record),
        concat!(
            r#"{"v":1,"revision":3,"base":{"n":0,"at":1790000000000000000},"schedule":"every 10m","#,
            r#""next":{"n":7,"at":-1,"schedule":"x"},"last":6,"claimed":6,"claims":[{"tick":6,"#,
            r#""owner":"host/00000000000000000000000000000001.4","token":1790003600000123,"ttl":15000000000,"#,
            r#""ends":1790000015000000000,"begun":1,"attempts":2,"since":1790000000000000000,"#,
            r#""host":"höst","pid":1}]}"#
        )
    );
}

#[test]
fn every_record_comes_back_unchanged_also_at_the_ends_of_its_numbers() {
    for whole in [0, 1, (1 << 53) + 1, i64::MAX as u64, u64::MAX] {
        for time in [i64::MIN, -1, 0, (1 << 53) + 1, i64::MAX] {
            for words in ["", "every 1s", "a \"b\" \\ \n\u{0} 🦀 {\"token\":\"new\"}", "\"token\":\"new\""]
            {
                let at = Tick { n: whole, at: Timestamp::from_nanos(time) };
                let mut metadata = Metadata::new();
                metadata.host = Some(words.into());
                metadata.pid = Some(u32::MAX);
                metadata.text = Some(words.into());
                let claim = Claim {
                    tick: whole,
                    owner: format!("o{words}"),
                    token: Token::new(whole.max(1)),
                    ttl: Duration::from_nanos(whole),
                    ends: Instant::from_nanos(whole),
                    begun: u32::MAX,
                    attempts: 0,
                    since: at.at,
                    metadata,
                };
                let record = TimerRecord {
                    revision: whole,
                    base: at,
                    schedule: words.into(),
                    next: (time >= 0).then(|| NextSchedule { at, schedule: words.into() }),
                    last: whole,
                    claimed: whole,
                    claims: vec![claim; 3],
                };
                let loaded = read(text(&record).as_bytes(), written(1), NOW).unwrap();
                assert_eq!(loaded.record, record);
                assert_eq!(loaded.unreadable, [] as [Value; 0]);
            }
        }
    }
}

#[test]
fn the_token_of_what_was_granted_by_a_write_is_the_number_of_the_write() {
    let record = timer(vec![claim(5, "o", 7), claim(6, "p", 0)]);
    let loaded = read(text(&record).as_bytes(), written(88), NOW).unwrap();
    assert_eq!(loaded.record.claims, [claim(5, "o", 7), claim(6, "p", 88)]);
    let again = read(text(&loaded.record).as_bytes(), written(99), NOW).unwrap();
    assert_eq!(again.record, loaded.record, "and stays so");
}

#[test]
fn a_claim_that_can_not_be_read_is_held_by_nobody_and_stays_as_it_stands() {
    let damaged = r#"{"v":1,"revision":1,"base":{"n":0,"at":0},"schedule":"every 1s","last":6,"claimed":6,
        "claims":[{"tick":6,"owner":"a/1.1","token":1.8446744077441114e+19},7,{"tick":5,"owner":"","token":1}]}"#;
    let Loaded { record, unreadable } = read(damaged.as_bytes(), written(1), NOW).unwrap();
    assert_eq!(record.claims.iter().map(|claim| claim.tick).collect::<Vec<_>>(), [5, 6, u64::MAX]);
    let owner = Identity::new("a", Incarnation::new(1)).unwrap().owner(Acquisition(1));
    let time = StoreTime { wall: Timestamp::EPOCH, now: NOW };
    let act = TimerAct::Claim(TickClaim {
        tick: 6,
        owner,
        ttl: Duration::from_secs(1),
        floor: Token::ZERO,
        attempts: 5,
        overlap: Overlap::Allow,
        metadata: Metadata::new(),
    });
    let mut after = Some(record.clone());
    let answer = TimerRecord::apply(&mut after, &act, time, |_| -> Result<Token, ()> { panic!("no grant") });
    assert!(matches!(answer, Ok(TimerAnswer::Held { .. })), "{answer:?}");
    let text = write(&record, &unreadable, None);
    assert_eq!(read(text.as_bytes(), written(1), NOW).unwrap().unreadable, unreadable);
    assert!(text.contains("1.8446744077441114e+19"), "{text}");
}

#[test]
fn what_is_no_record_is_an_error_that_says_why() {
    let whole = text(&timer(Vec::new()));
    for foreign in ["", "x", "7", "[]", "{}", "12:owner", "{\"v\":1", "\u{feff}"] {
        assert_eq!(
            read(foreign.as_bytes(), written(1), NOW).unwrap_err(),
            Unreadable::Foreign,
            "{foreign:?}"
        );
    }
    assert_eq!(read(b"\xff\xfe", written(1), NOW).unwrap_err(), Unreadable::Foreign);
    let problem = |text: String| match read(text.as_bytes(), written(1), NOW) {
        Err(Unreadable::Problem(problem)) => problem,
        other => panic!("{text:?} is read as {other:?}"),
    };
    assert!(problem(whole.replace("\"v\":1", "\"v\":2")).contains("format 2, this program knows format 1"));
    assert!(problem(whole.replace("\"v\":1", "\"v\":\"1\"")).contains("damaged"));
    for (field, wrong) in [
        ("\"revision\":3", "\"revision\":-3"),
        ("\"revision\":3", "\"revision\":3.5"),
        ("\"revision\":3", "\"revision\":18446744073709551616"),
        ("\"last\":6", "\"lost\":6"),
        ("\"claims\":[]", "\"claims\":{}"),
        ("\"at\":1790000000000000000", "\"at\":9790000000000000000"),
        ("\"base\":{", "\"base\":[],\"b\":{"),
        ("\"schedule\":\"every 10m\"", "\"schedule\":null"),
        ("\"last\"", "\"next\":7,\"last\""),
    ] {
        let text = whole.replace(field, wrong);
        assert_ne!(text, whole);
        assert!(problem(text).starts_with("the record is damaged"), "{wrong}");
    }
    // Nested deeper than anybody reads.
    assert_eq!(read("[".repeat(100_000).as_bytes(), written(1), NOW).unwrap_err(), Unreadable::Foreign);
}
