//! What is told of watched leases, and when they are looked at.

use futures::{FutureExt as _, StreamExt as _};
use tenure_core::{Identity, Incarnation, Labels};
use tenure_store::{Heartbeat, Metadata};

use super::*;
use crate::liveness::tests::dies;

const LATER: Instant = Instant::MAX;

fn held(token: u64) -> Seen {
    Seen::Held { token: Token::new(token), handle: None, expires: LATER }
}

fn free(after: u64, chosen: u64) -> Seen {
    Seen::Free { after: Token::new(after), chosen }
}

#[test]
fn a_lease_that_becomes_free_is_told_once_and_chosen_only_by_the_hold_that_ended() {
    assert_eq!(held(5).freed(0), (free(5, 0), Some(Wake::Free { chosen: false })));
    assert_eq!(held(5).freed(5), (free(5, 5), Some(Wake::Free { chosen: true })));
    assert_eq!(held(5).freed(4), (free(5, 4), Some(Wake::Free { chosen: false })), "an older choice");
    assert_eq!(held(5).freed(6), (free(5, 6), Some(Wake::Free { chosen: true })), "one hold was missed");
    assert_eq!(free(5, 5).freed(5), (free(5, 5), None));
    assert_eq!(free(5, 0).freed(7), (free(5, 7), Some(Wake::Free { chosen: true })));
    assert_eq!(free(5, 7).freed(0), (free(5, 7), None), "this handle has tried since");
}

#[test]
fn a_grant_is_told_once_and_a_renewal_is_not_told() {
    let ttl = Duration::from_secs(1);
    let alive = |_: HandleId| Life::Alive;
    let told = Some(Wake::Held { token: Token::new(6), ttl });
    assert_eq!(free(5, 0).taken(held(6), Some(ttl), alive), (held(6), told));
    assert_eq!(held(5).taken(held(6), Some(ttl), alive), (held(6), told), "its being free was missed");
    assert_eq!(held(6).taken(held(6), Some(ttl), alive), (held(6), None));
    assert_eq!(free(5, 0).taken(held(0), None, alive), (held(0), None), "one that can't be read");
}

#[test]
fn many_leases_are_looked_at_and_registered_little_by_little() {
    const MANY: usize = 2 * TOGETHER + 1;
    let folder = tempfile::tempdir().unwrap();
    let options = crate::SqliteOptions::new(folder.path().join("a.db")).unwrap();
    let lineage = crate::liveness::Lineage::draw().unwrap();
    let mut database = Database::open(&options, lineage, clock::now()).unwrap();
    let mut watcher = Watcher::new(Arc::default());
    for n in 0..MANY {
        watcher.watch(&mut database, &LeaseName::new(n.to_string()).unwrap(), clock::now()).unwrap();
    }
    let other = rusqlite::Connection::open(options.path()).unwrap();
    other.execute_batch("DELETE FROM waiter").unwrap();
    watcher.next_write = Instant::ZERO;
    watcher.look_again();
    let mut registered = Vec::new();
    while watcher.next_write <= clock::now() || watcher.wants_to_look() {
        watcher.next_look = Instant::ZERO;
        watcher.next_poll = Instant::MAX;
        watcher.turn(Some(&mut database));
        let count = "SELECT count(*) FROM waiter";
        registered.push(other.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap());
    }
    assert_eq!(registered, [100, 200, 201], "one step for each turn");
    assert!(watcher.registered.is_none() && watcher.looked_at.is_none());
}

#[test]
fn what_can_not_be_written_now_is_tried_later_and_not_at_full_speed() {
    let folder = tempfile::tempdir().unwrap();
    let options = crate::SqliteOptions::new(folder.path().join("a.db")).unwrap();
    let lineage = crate::liveness::Lineage::draw().unwrap();
    let mut database = Database::open(&options, lineage, clock::now()).unwrap();
    let name = LeaseName::new("x").unwrap();
    let mut watcher = Watcher::new(Arc::default());
    watcher.watch(&mut database, &name, clock::now()).unwrap();

    let other = rusqlite::Connection::open(options.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    watcher.unwatch(Some(&mut database), &name);
    watcher.next_write = Instant::ZERO;
    let begun = clock::now();
    let due = watcher.turn(Some(&mut database)).expect("it is tried again");
    assert!(due >= begun + WRITE_AGAIN, "not at once");
    other.execute_batch("COMMIT").unwrap();
    watcher.next_write = Instant::ZERO;
    assert_eq!(watcher.turn(Some(&mut database)), None, "nothing is left to do");
}

#[test]
fn the_death_of_a_holder_is_told_once_to_all() {
    let handle = HandleId::from_bytes(&[7; 16]);
    let of_the_dead = Seen::Held { token: Token::new(5), handle, expires: LATER };
    let (next, wake) = of_the_dead.taken(of_the_dead, None, |_| Life::Dead);
    assert_eq!((next, wake), (Seen::Dead { token: Token::new(5) }, Some(Wake::Free { chosen: true })));
    assert_eq!(next.taken(of_the_dead, None, |_| Life::Dead), (next, None));
    assert_eq!(of_the_dead.taken(of_the_dead, None, |_| Life::Unknown), (of_the_dead, None));
    assert_eq!(next.freed(0).1, Some(Wake::Free { chosen: false }), "then an operator removed it");
}

fn beat(process: u128, ttl: Duration) -> Heartbeat {
    Heartbeat {
        identity: Identity::new("here", Incarnation::new(process)).unwrap(),
        sequence: 1,
        joined: None,
        draining: false,
        marked: false,
        digests: [].into(),
        labels: Labels::default(),
        known: None,
        ttl,
        metadata: Metadata::new(),
        timeout: ttl,
    }
}

fn beats(database: &mut Database, beat: &Heartbeat) -> u64 {
    database.write("can't beat", clock::now(), |transaction| transaction.heartbeat(beat)).unwrap().version
}

#[test]
fn the_end_of_a_members_process_is_found_by_its_file_event_and_told_once() {
    const TTL: Duration = Duration::from_secs(60);
    let folder = tempfile::tempdir().unwrap();
    let options = crate::SqliteOptions::new(folder.path().join("a.db")).unwrap();
    let mut database =
        Database::open(&options, crate::liveness::Lineage::draw().unwrap(), clock::now()).unwrap();
    let dead = HandleId::from_bytes(&[7; 16]).unwrap();
    beats(&mut database, &beat(1, TTL));
    let other = rusqlite::Connection::open(options.path()).unwrap();
    other.execute("UPDATE member SET handle = ?1", [dead.as_bytes()]).unwrap();
    let hints: Arc<HintQueue> = Arc::default();
    let mut stream = hints.listen().unwrap();
    let mut members = MemberWatch::default();
    // Looks that come anyway are left out: they would find it, too, though later.
    members.never_looks();
    members.told(beats(&mut database, &beat(2, TTL)));
    let now = clock::now();
    members.turn(&mut database, &hints, now, true, true);
    assert!(!members.suspect(&[]));
    assert_eq!(stream.next().now_or_never(), None, "nothing has happened");
    assert!(members.suspect(&[HandleId::from_bytes(&[8; 16]).unwrap(), dead]));
    members.turn(&mut database, &hints, now, true, true);
    assert_eq!(stream.next().now_or_never(), None, "it is about to end");
    dies(database.live(), dead);
    members.turn(&mut database, &hints, now, false, true);
    assert_eq!(stream.next().now_or_never(), None, "its lock is not to be tried now");
    for told in [Some(Some(Hint::Members)), None] {
        members.turn(&mut database, &hints, now, true, true);
        assert_eq!(stream.next().now_or_never(), told);
    }
    assert_eq!(database.members(None, 10).unwrap().len(), 1);
}

#[test]
fn the_end_of_a_members_time_is_awaited_and_told_once() {
    const TTL: Duration = Duration::from_secs(60);
    let folder = tempfile::tempdir().unwrap();
    let options = crate::SqliteOptions::new(folder.path().join("a.db")).unwrap();
    let mut database =
        Database::open(&options, crate::liveness::Lineage::draw().unwrap(), clock::now()).unwrap();
    let hints: Arc<HintQueue> = Arc::default();
    let mut stream = hints.listen().unwrap();
    let mut members = MemberWatch::default();
    members.never_looks();
    beats(&mut database, &beat(1, TTL));
    members.told(beats(&mut database, &beat(2, TTL * 2)));
    let now = clock::now();
    let end = members.turn(&mut database, &hints, now, false, true).unwrap();
    assert!(end > now + TTL / 2 && end <= now + TTL, "when the first one ends");
    let other = rusqlite::Connection::open(options.path()).unwrap();
    other
        .execute("UPDATE member SET expires = 1, ttl = 1 WHERE expires <= ?1", [end.as_nanos() as i64])
        .unwrap();
    let mut at = |now: Instant| members.turn(&mut database, &hints, now, false, true);
    at(now);
    assert_eq!(stream.next().now_or_never(), None, "not before");
    for told in [Some(Some(Hint::Members)), None] {
        let next = at(end).unwrap();
        assert_eq!(stream.next().now_or_never(), told);
        assert!(next > end, "then the other one's is awaited");
    }
}
