//! What stands in rows, and who is asked for its life.

use super::*;
use crate::clock;
use crate::database::Database;
use crate::liveness::Lineage;
use crate::liveness::tests::dies;
use crate::options::SqliteOptions;

fn beat(process: u128) -> Heartbeat {
    Heartbeat {
        identity: Identity::new("here", Incarnation::new(process)).unwrap(),
        sequence: 1,
        joined: None,
        draining: false,
        marked: false,
        digests: [].into(),
        labels: Labels::default(),
        known: None,
        ttl: Duration::from_secs(60),
        metadata: Metadata::new(),
        timeout: Duration::from_secs(1),
    }
}

fn listed(database: &mut Database) -> usize {
    database.members(None, 1000).unwrap().len()
}

fn open(folder: &tempfile::TempDir, early: bool) -> Database {
    let options = SqliteOptions::new(folder.path().join("a.db")).unwrap().early(early);
    Database::open(&options, Lineage::draw().unwrap(), clock::now()).unwrap()
}

fn sees(database: &mut Database, beat: &Heartbeat) -> usize {
    let presence = database.write("can't beat", clock::now(), |transaction| transaction.heartbeat(beat));
    presence.unwrap().members.unwrap().len()
}

/// Adds so many members, each of a process of its own that has died since.
fn add_the_dead(database: &mut Database, many: u128) {
    let other = rusqlite::Connection::open(database.path()).unwrap();
    for process in 1..=many {
        let handle = HandleId::from_bytes(&process.wrapping_mul(u128::MAX / 97).to_be_bytes()).unwrap();
        let beat = beat(process);
        database
            .write("can't add", clock::now(), |transaction| {
                transaction.members_looked_at = true;
                transaction.heartbeat(&beat)
            })
            .unwrap();
        other
            .execute(
                "UPDATE member SET handle = ?1 WHERE incarnation = ?2",
                params![handle.as_bytes(), process.to_be_bytes()],
            )
            .unwrap();
        dies(database.live(), handle);
    }
}

#[test]
fn more_dead_processes_than_are_asked_at_once_are_found_little_by_little_and_by_a_list_at_once() {
    const MANY: usize = 2 * PROBES + 10;
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(&folder, true);
    add_the_dead(&mut database, MANY as u128);
    assert_eq!(listed(&mut database), 0);
    let others = [(); 3].map(|()| sees(&mut database, &beat(0)) - 1);
    assert_eq!(others, [MANY - PROBES, MANY - 2 * PROBES, 0]);
}

#[test]
fn the_dead_are_asked_for_wherever_among_them_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(&folder, true);
    add_the_dead(&mut database, 50);
    for most in [0, 1, 20, 50, 60] {
        for _ in 0..20 {
            let mut handles = database.member_handles(most).unwrap();
            handles.sort_unstable();
            handles.dedup();
            assert_eq!(handles.len(), most.min(50), "each once");
        }
    }
}

#[test]
fn who_offers_no_proof_of_its_death_asks_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(&folder, true);
    add_the_dead(&mut database, 3);
    let mut hidden = open(&folder, false);
    assert_eq!(listed(&mut hidden), 3);
    assert_eq!(hidden.member_handles(10), Ok(Vec::new()));
    assert_eq!(sees(&mut hidden, &beat(10)), 4);
    assert_eq!(sees(&mut database, &beat(11)), 2, "who looks may find out all the same");
}

#[test]
fn the_file_that_proves_a_members_death_is_kept_as_long_as_it_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(&folder, true);
    add_the_dead(&mut database, 2);
    let named = |database: &mut Database| {
        database.write("can't look", clock::now(), |transaction| transaction.named().map(Ok)).unwrap().len()
    };
    assert_eq!(named(&mut database), 2);
    sees(&mut database, &beat(0));
    assert_eq!(named(&mut database), 1, "its own");
}

#[test]
fn who_lost_the_store_to_another_machine_leaves_its_members_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(&folder, true);
    sees(&mut database, &beat(1));
    let other = rusqlite::Connection::open(database.path()).unwrap();
    let rows = |rows: &str| {
        let count = format!("SELECT count(*) FROM member WHERE {rows}");
        other.query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let boot: String = other.query_row("SELECT boot FROM store", [], |row| row.get(0)).unwrap();
    // By the clock here the time of its members was over long ago.
    let taken_over =
        "UPDATE store SET boot = 'another'; UPDATE member SET boot = 'another', expires = 9, ttl = 1";
    other.execute_batch(taken_over).unwrap();
    for _ in 0..2 {
        database
            .write("can't sweep", clock::now(), |transaction| transaction.sweep_members().map(Ok))
            .unwrap();
        database.write("can't end", clock::now(), |transaction| transaction.end_members().map(Ok)).unwrap();
    }
    assert_eq!(rows("listed = 1"), 1);
    // On one's own clock it is over, and forgotten.
    other.execute("UPDATE store SET boot = ?1", [boot]).unwrap();
    database.write("can't sweep", clock::now(), |transaction| transaction.sweep_members().map(Ok)).unwrap();
    assert_eq!(rows("1"), 0);
}

#[test]
fn digests_and_labels_are_read_as_they_were_written_and_nothing_else_is() {
    let digests: Arc<[Digest]> = [0, 1, u64::MAX].map(Digest::new).into();
    assert_eq!(write_digests(&digests).len(), 24);
    assert_eq!(read_digests(&write_digests(&digests)), Some(digests));
    assert_eq!(read_digests(&[0; 7]), None);
    assert_eq!(read_digests(&[0; 8 * 64]).map(|digests| digests.len()), Some(64));
    assert_eq!(read_digests(&[0; 8 * 65]), None);

    let (longest, empty) = ("x".repeat(255), "");
    let labels = Labels::new([("a", longest.as_str()), ("ä", empty)]).unwrap();
    let written = write_labels(&labels);
    assert_eq!(&written[..3], [1, b'a', 255]);
    assert_eq!(read_labels(&written), Some(labels));
    assert_eq!(read_labels(&[]), Some(Labels::default()));
    for end in 1..written.len() {
        let whole = end == 2 + 1 + 255;
        assert_eq!(read_labels(&written[..end]).is_some(), whole, "the first {end} bytes");
    }
    for wrong in [&[0, 0][..], &[1, 0xff, 0], &[65], &[1, b'a', 0, 0]] {
        assert_eq!(read_labels(wrong), None, "{wrong:?}");
    }
}
