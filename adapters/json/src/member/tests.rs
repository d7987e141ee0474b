use std::time::Duration;

use tenure_core::{Instant, Timestamp};
use tenure_store::Metadata;

use super::*;

fn record() -> MemberRecord {
    MemberRecord {
        sequence: 5,
        joined: Timestamp::from_nanos(1),
        since: Instant::from_nanos(2),
        heard: Instant::from_nanos(3),
        ttl: Duration::from_nanos(4),
        left: false,
        draining: false,
        marked: false,
        knows_mark: false,
        digests: [].into(),
        labels: Labels::default(),
        metadata: Metadata::new(),
    }
}

#[test]
fn a_record_is_written_as_documented() {
    let mut record = record();
    assert_eq!(write(&record), r#"{"v":1,"sequence":5,"joined":1,"since":2,"heard":3,"ttl":4}"#);
    record.marked = true;
    record.digests = [Digest::new(255), Digest::new(u64::MAX)].into();
    record.labels = Labels::new([("zone", "a"), ("build", "\"1\"")]).unwrap();
    record.metadata.pid = Some(9);
    assert_eq!(
        write(&record),
        concat!(
            r#"{"v":1,"sequence":5,"joined":1,"since":2,"heard":3,"ttl":4,"marked":true,"#,
            r#""digests":["00000000000000ff","ffffffffffffffff"],"labels":{"build":"\"1\"","zone":"a"},"pid":9}"#
        )
    );
}

#[test]
fn every_record_comes_back_unchanged_also_at_the_ends_of_its_numbers() {
    let most: Vec<Digest> = (0..Heartbeat::MOST_DIGESTS as u64).map(|n| Digest::new(u64::MAX - n)).collect();
    let labels = (0..Labels::MOST).map(|n| (format!("{n:02}{}", "ä".repeat(31)), "x".repeat(255)));
    let labels = Labels::new(labels).unwrap();
    for whole in [0, 1, (1 << 53) + 1, i64::MAX as u64, u64::MAX] {
        for time in [i64::MIN, -1, 0, i64::MAX] {
            for flags in 0..16_u8 {
                let flag = |bit: u8| flags & bit != 0;
                let mut record = record();
                record.sequence = whole;
                record.joined = Timestamp::from_nanos(time);
                (record.since, record.heard) = (Instant::from_nanos(whole), Instant::from_nanos(whole / 2));
                record.ttl = Duration::from_nanos(whole);
                (record.left, record.draining) = (flag(1), flag(2));
                (record.marked, record.knows_mark) = (flag(4), flag(8));
                if flag(1) {
                    record.digests = most.clone().into();
                    record.labels = labels.clone();
                    record.metadata.host = Some("a \"b\" \\ 🦀\n".into());
                    record.metadata.pid = Some(u32::MAX);
                    record.metadata.text = Some("".into());
                }
                assert_eq!(read(write(&record).as_bytes()), Ok(record));
            }
        }
    }
}

#[test]
fn what_is_no_record_is_an_error() {
    let mut whole = record();
    whole.marked = true;
    whole.digests = [Digest::new(255)].into();
    whole.labels = Labels::new([("zone", "a")]).unwrap();
    let whole = write(&whole);
    for foreign in ["", "x", "{}", "7 {\"v\":1}"] {
        assert_eq!(read(foreign.as_bytes()), Err(Unreadable::Foreign), "{foreign:?}");
    }
    let many = format!("[{}]", ["\"1\""; Heartbeat::MOST_DIGESTS + 1].join(","));
    for (field, wrong) in [
        ("\"v\":1", "\"v\":2"),
        ("\"sequence\":5", "\"sequence\":-5"),
        ("\"ttl\":4", "\"tt\":4"),
        ("\"marked\":true", "\"marked\":1"),
        ("\"00000000000000ff\"", "255"),
        ("\"00000000000000ff\"", "\"+ff\""),
        ("\"00000000000000ff\"", "\"1000000000000000f\""),
        ("[\"00000000000000ff\"]", &many),
        ("{\"zone\":\"a\"}", "{\"zone\":1}"),
        ("{\"zone\":\"a\"}", "{\"\":\"a\"}"),
        ("{\"zone\":\"a\"}", "[]"),
    ] {
        let text = whole.replace(field, wrong);
        assert_ne!(text, whole);
        assert!(matches!(read(text.as_bytes()), Err(Unreadable::Problem(_))), "{text}");
    }
}
