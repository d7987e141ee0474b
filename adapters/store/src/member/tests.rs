//! What each operation makes of a record, and of a fleet in memory.

use super::*;
use crate::StoreErrorKind;

const TTL: Duration = Duration::from_secs(10);
/// 2026-01-01 in microseconds since 1970.
const NEW_YEAR: u64 = 1_767_225_600_000_000;

fn identity(process: u128) -> Identity {
    Identity::new("here", Incarnation::new(process)).expect("a short name")
}

/// The time so many seconds after the beginning.
fn at(seconds: u64) -> StoreTime {
    let passed = Duration::from_secs(seconds);
    StoreTime {
        wall: Timestamp::EPOCH + Duration::from_micros(NEW_YEAR) + passed,
        now: Instant::ZERO + passed,
    }
}

fn beat(process: u128, sequence: u64) -> Heartbeat {
    Heartbeat {
        identity: identity(process),
        sequence,
        joined: None,
        draining: false,
        marked: false,
        digests: [Digest::new(1)].into(),
        labels: Labels::default(),
        known: None,
        ttl: TTL,
        metadata: Metadata::new(),
        timeout: TTL,
    }
}

fn leave(process: u128) -> Leave {
    Leave { identity: identity(process), ttl: TTL, timeout: TTL }
}

fn mark(drain: bool) -> DrainMark {
    DrainMark { instance: "here".into(), incarnation: None, drain }
}

/// A member that sent heartbeat 5 at second 0.
fn member() -> Option<MemberRecord> {
    let mut record = None;
    assert_eq!(MemberRecord::beat(&mut record, &beat(1, 5), at(0)), Ok(Changed::View));
    record
}

#[test]
fn a_plain_heartbeat_changes_nothing_that_others_see() {
    let mut record = member();
    let mut plain = beat(1, 6);
    plain.metadata.text = Some("for people".into());
    plain.ttl = TTL * 2;
    assert_eq!(MemberRecord::beat(&mut record, &plain, at(4)), Ok(Changed::Record));
    let kept = record.unwrap();
    assert_eq!((kept.sequence, kept.heard, kept.since), (6, at(4).now, at(0).now));
    assert_eq!((kept.joined, kept.ttl, kept.ends()), (at(0).wall, TTL * 2, at(24).now));
    assert_eq!(kept.metadata, plain.metadata);
}

#[test]
fn what_others_see_is_the_drain_the_digests_and_the_labels() {
    let labels = Labels::new([("zone", "a")]).unwrap();
    for other in [
        Heartbeat { draining: true, ..beat(1, 6) },
        Heartbeat { digests: [].into(), ..beat(1, 6) },
        Heartbeat { labels, ..beat(1, 6) },
    ] {
        let mut record = member();
        assert_eq!(MemberRecord::beat(&mut record, &other, at(1)), Ok(Changed::View), "{other:?}");
        let again = Heartbeat { sequence: 7, ..other };
        assert_eq!(MemberRecord::beat(&mut record, &again, at(1)), Ok(Changed::Record), "{again:?}");
    }
}

#[test]
fn a_heartbeat_whose_number_is_not_higher_changes_nothing() {
    for sequence in [5, 4, 0] {
        let mut record = member();
        let before = record.clone();
        let late = Heartbeat { draining: true, digests: [].into(), ttl: TTL * 2, ..beat(1, sequence) };
        assert_eq!(MemberRecord::beat(&mut record, &late, at(9)), Ok(Changed::Nothing));
        assert_eq!(record, before, "number {sequence}");
    }
}

#[test]
fn a_member_is_listed_for_its_ttl_and_remembered_for_twice_as_long() {
    let record = member().unwrap();
    let listed = [0, 9, 10, 19, 20].map(|seconds| record.is_listed(at(seconds).now));
    assert_eq!(listed, [true, true, false, false, false]);
    let remembered = [0, 9, 10, 19, 20].map(|seconds| record.is_remembered(at(seconds).now));
    assert_eq!(remembered, [true, true, true, true, false]);
}

#[test]
fn a_gap_begins_the_age_anew_and_keeps_the_rest() {
    let mut record = member();
    record.as_mut().unwrap().mark(true);
    let error = MemberRecord::beat(&mut record, &beat(1, 5), at(15)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Rejected, "it came late: {error}");
    let claims = Heartbeat { joined: Some(at(14).wall), ..beat(1, 6) };
    assert_eq!(MemberRecord::beat(&mut record, &claims, at(15)), Ok(Changed::View));
    let kept = record.unwrap();
    assert_eq!((kept.since, kept.joined, kept.marked), (at(15).now, at(0).wall, true));
    let member = kept.member(&identity(1), at(17).now);
    assert_eq!((member.age, member.draining), (Duration::from_secs(2), true));
}

#[test]
fn a_record_that_is_forgotten_is_made_anew_and_keeps_when_it_joined() {
    let mut record = member();
    record.as_mut().unwrap().mark(true);
    // Not even its numbers are known any more.
    assert_eq!(MemberRecord::beat(&mut record, &beat(1, 1), at(20)), Ok(Changed::View));
    let kept = record.unwrap();
    assert_eq!((kept.joined, kept.since, kept.sequence), (at(0).wall, at(20).now, 1));
    assert!(kept.marked, "it is still to be seen");
    let mut lost = None;
    let claims = Heartbeat { joined: Some(at(3).wall), ..beat(1, 1) };
    assert_eq!(MemberRecord::beat(&mut lost, &claims, at(20)), Ok(Changed::View));
    assert_eq!(lost.map(|record| record.joined), Some(at(3).wall), "only it knows");
}

#[test]
fn a_tombstone_refuses_heartbeats_for_its_ttl_whoever_was_there_before() {
    for (mut record, changed) in [(member(), Changed::View), (None, Changed::Record)] {
        assert_eq!(MemberRecord::leave(&mut record, &leave(1), at(8)), changed);
        assert!(!record.as_ref().unwrap().is_listed(at(8).now));
        for (sequence, seconds) in [(5, 8), (6, 9), (1000, 17)] {
            let done = MemberRecord::beat(&mut record, &beat(1, sequence), at(seconds));
            assert_eq!(done.map_err(|error| error.kind), Err(StoreErrorKind::Rejected), "{sequence}");
        }
        assert_eq!(MemberRecord::leave(&mut record, &leave(1), at(12)), Changed::Record, "once more");
        assert!(record.as_ref().unwrap().is_remembered(at(21).now), "that counts from the last");
        assert_eq!(MemberRecord::beat(&mut record, &beat(1, 7), at(22)), Ok(Changed::View));
    }
}

#[test]
fn a_mark_is_another_thing_than_the_members_own_will() {
    let mut record = member();
    let kept = record.as_mut().unwrap();
    assert_eq!([kept.mark(true), kept.mark(true)], [Changed::View, Changed::Nothing]);
    let will = Heartbeat { draining: true, ..beat(1, 6) };
    assert_eq!(MemberRecord::beat(&mut record, &will, at(1)), Ok(Changed::View));
    let kept = record.as_mut().unwrap();
    assert_eq!(kept.mark(false), Changed::View);
    let entry = kept.entry(&identity(1), at(3).now);
    assert_eq!((entry.marked, entry.member.draining, entry.heard), (false, true, Duration::from_secs(2)));
}

#[test]
fn that_an_instance_knows_of_the_mark_is_kept_until_it_is_another_and_is_nothing_that_others_see() {
    let mut record = member();
    let says = |sequence, marked| Heartbeat { marked, ..beat(1, sequence) };
    let knows =
        |record: &Option<MemberRecord>| record.as_ref().unwrap().entry(&identity(1), at(3).now).knows_mark;
    record.as_mut().unwrap().mark(true);
    assert!(!knows(&record), "it can't have heard yet");
    assert_eq!(MemberRecord::beat(&mut record, &says(6, false), at(1)), Ok(Changed::Record));
    assert!(!knows(&record), "the answer may have been lost");
    assert_eq!(MemberRecord::beat(&mut record, &says(7, true), at(1)), Ok(Changed::Record));
    assert!(knows(&record));
    record.as_mut().unwrap().mark(true);
    assert!(knows(&record), "it is the same mark");
    record.as_mut().unwrap().mark(false);
    assert!(!knows(&record));
    assert_eq!(MemberRecord::beat(&mut record, &says(8, true), at(2)), Ok(Changed::Record));
    record.as_mut().unwrap().mark(true);
    assert!(!knows(&record), "that was the mark before");

    let mut lost = None;
    MemberRecord::beat(&mut lost, &says(9, true), at(2)).unwrap();
    assert!(knows(&lost), "it has brought the mark back itself");
}

#[test]
fn a_mark_is_taken_from_one_that_is_only_remembered_and_no_one_else_sees_that() {
    let (mut fleet, ttl) = (Fleet::default(), TTL);
    let mark = |drain| DrainMark { instance: identity(1).instance().into(), incarnation: None, drain };
    let (listed, gone) = (at(0), StoreTime { now: at(0).now + ttl, ..at(0) });
    fleet.beat(&beat(1, 1), listed).unwrap();
    assert_eq!(fleet.mark(&mark(true), listed), (vec![identity(1)], true));
    assert_eq!(fleet.mark(&mark(true), gone), (vec![], true), "its end shows");
    let version = fleet.version();
    assert_eq!(fleet.mark(&mark(false), gone), (vec![identity(1)], false));
    assert_eq!(fleet.mark(&mark(false), gone), (vec![], false), "there is nothing to take back");
    assert_eq!(fleet.version(), version);
    let (presence, _) = fleet.beat(&Heartbeat { marked: true, ..beat(1, 2) }, gone).unwrap();
    assert!(!presence.drain);

    fleet.mark(&mark(true), gone);
    fleet.leave(&Leave { identity: identity(1), ttl, timeout: ttl }, gone);
    assert_eq!(fleet.mark(&mark(false), gone), (vec![], false), "it never comes back");
}

#[test]
fn a_mark_that_the_store_has_lost_is_brought_back_by_whoever_has_heard_of_it() {
    for heard in [true, false] {
        let says = |sequence| Heartbeat { marked: heard, ..beat(1, sequence) };
        let mut record = None;
        assert_eq!(MemberRecord::beat(&mut record, &says(9), at(20)), Ok(Changed::View));
        assert_eq!(record.as_ref().unwrap().marked, heard);
        // From then on it is the operator's affair.
        record.as_mut().unwrap().mark(!heard);
        assert_eq!(MemberRecord::beat(&mut record, &says(10), at(21)), Ok(Changed::Record));
        assert_eq!(record.as_ref().unwrap().marked, !heard);
    }
}

#[test]
fn a_version_is_above_the_last_and_not_below_the_clock() {
    let wall = at(0).wall;
    assert_eq!(next_version(0, wall), NEW_YEAR);
    assert_eq!(next_version(NEW_YEAR, wall), NEW_YEAR + 1);
    assert_eq!(
        next_version(NEW_YEAR + 7, Timestamp::from_nanos(-1)),
        NEW_YEAR + 8,
        "a clock that was set back"
    );
    assert_eq!(next_version(u64::MAX, wall), u64::MAX);
}

#[test]
fn a_fleet_notices_who_is_gone_with_whatever_is_done_next() {
    let began = || {
        let mut fleet = Fleet::default();
        fleet.beat(&beat(1, 1), at(0)).unwrap();
        fleet.beat(&beat(2, 1), at(5)).unwrap();
        fleet
    };
    let version = began().version();
    let mut fleet = began();
    assert!(!fleet.advance(at(9)) && fleet.advance(at(10)) && !fleet.advance(at(10)));
    assert!(fleet.version() > version);
    let mut fleet = began();
    let (presence, changed) = fleet.beat(&beat(2, 2), at(10)).unwrap();
    assert!(changed && presence.version > version);
    assert_eq!(presence.members.unwrap().len(), 1);
    let mut fleet = began();
    fleet.beat(&beat(1, 1), at(10)).unwrap_err();
    assert!(fleet.version() > version, "also when that fails");
    let mut fleet = began();
    assert!(fleet.leave(&leave(3), at(10)), "also when nobody leaves");
    let mut fleet = began();
    assert_eq!(fleet.mark(&mark(true), at(10)), (vec![identity(2)], true));
    assert_eq!(fleet.listed(), 1);
    assert_eq!(began().list(None, 10, at(10)).len(), 1);
    fleet.advance(at(40));
    assert!(fleet.is_empty());
}

#[test]
fn a_fleet_tells_its_view_unless_it_is_known() {
    let mut fleet = Fleet::default();
    fleet.beat(&beat(2, 1), at(0)).unwrap();
    let (first, changed) = fleet.beat(&beat(1, 1), at(1)).unwrap();
    assert!(changed);
    let who: Vec<Identity> = first
        .members
        .iter()
        .flat_map(|members| members.iter())
        .map(|member| member.identity.clone())
        .collect();
    assert_eq!(who, [identity(1), identity(2)]);
    let knows = |version, sequence| Heartbeat { known: Some(version), ..beat(1, sequence) };
    let (same, changed) = fleet.beat(&knows(first.version, 2), at(2)).unwrap();
    assert_eq!((same.members, same.version, changed), (None, first.version, false));
    let (other, _) = fleet.beat(&knows(first.version + 1, 3), at(2)).unwrap();
    assert_eq!(other.members.map(|members| members.len()), Some(2), "a version that never was");
}

#[test]
fn a_fleet_that_was_written_down_goes_on_as_if_it_had_not_been() {
    let mut fleet = Fleet::default();
    for process in 1..4 {
        fleet.beat(&beat(process, 1), at(0)).unwrap();
    }
    fleet.leave(&leave(1), at(1));
    fleet.mark(&mark(true), at(1));
    let records = fleet.records().map(|(identity, record)| (identity.clone(), record.clone()));
    let restored = Fleet::restore(fleet.version(), fleet.listed(), records);
    assert_eq!(restored, fleet);
    let mut restored = Fleet::restore(restored.version(), restored.listed(), []);
    let version = restored.version();
    assert!(restored.advance(at(1)) && restored.version() > version, "members that were lost are a change");
}

#[test]
fn a_mark_concerns_a_name_or_one_process_of_it() {
    let all = mark(true);
    assert!(all.concerns(&identity(1)) && all.concerns(&identity(2)));
    let one = DrainMark { incarnation: Some(Incarnation::new(2)), ..all };
    assert!(!one.concerns(&identity(1)) && one.concerns(&identity(2)));
    let other = Identity::new("here too", Incarnation::new(2)).unwrap();
    assert!(!one.concerns(&other) && !mark(true).concerns(&other));
}

#[test]
fn what_is_no_heartbeat_is_refused_with_whose_it_was() {
    let limits = crate::Limits::DEFAULT;
    assert_eq!(limits.check(&beat(1, 1).into()), Ok(()));
    let digests = |count: u64| (0..count).map(Digest::new).collect();
    for (wrong, word) in [
        (Heartbeat { digests: digests(65), ..beat(1, 1) }, "at most 64"),
        (Heartbeat { sequence: u64::MAX, ..beat(1, 1) }, "number of a heartbeat"),
        (Heartbeat { ttl: Duration::ZERO, ..beat(1, 1) }, "too short"),
    ] {
        let error = limits.check(&wrong.into()).unwrap_err();
        assert_eq!(
            (error.kind, error.topic.as_ref()),
            (StoreErrorKind::Rejected, Some(&(&identity(1)).into()))
        );
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(limits.check(&Heartbeat { digests: digests(64), ..beat(1, 1) }.into()), Ok(()));
    assert!(limits.check(&Leave { ttl: Duration::MAX, ..leave(1) }.into()).is_err());
}
