//! The members of a fleet: processes that die, restarts, older and newer versions, damage.

mod common;
mod other;

use std::time::Duration;

use common::*;
use futures::StreamExt as _;
use futures::executor::block_on;
use other::*;
use rusqlite::Connection;
use rustix::process::Signal;
use tenure_sqlite::SqliteStore;
use tenure_store::core::{Digest, Labels, Timestamp};
use tenure_store::{DrainMark, Heartbeat, Hint, Hints, Leave, Operation, Store, StoreErrorKind, Topic};

fn sql(folder: &Folder, sql: &str) {
    Connection::open(folder.database()).unwrap().execute_batch(sql).unwrap();
}

fn count(folder: &Folder, rows: &str) -> i64 {
    let database = Connection::open(folder.database()).unwrap();
    database.query_row(&format!("SELECT count(*) FROM {rows}"), [], |row| row.get(0)).unwrap()
}

fn tables(folder: &Folder) -> Vec<String> {
    let database = Connection::open(folder.database()).unwrap();
    let mut statement =
        database.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
    let tables = statement.query_map([], |row| row.get(0)).unwrap();
    tables.collect::<Result<_, _>>().unwrap()
}

fn leave(store: &SqliteStore, name: &str, process: u64) {
    let leave = Leave { identity: identity(name, process), ttl: TTL, timeout: LIMIT };
    execute(store, vec![leave.into()]).remove(0).unwrap();
}

fn hears_members(hints: &mut Hints) {
    while !matches!(within(hints.next()), Some(Hint::Members | Hint::Resync)) {}
}

#[test]
fn a_member_whose_process_is_killed_is_gone_at_once_and_the_others_are_told() {
    let mut delays = Vec::new();
    for _ in 0..10 {
        let folder = Folder::new();
        let store = folder.store();
        let mut hints = store.hints().unwrap();
        let mut other = Other::start(&folder, "", 1);
        let theirs = identity("theirs", 1);
        assert_eq!(other.ask("beat theirs 1 60000"), [theirs.to_string()]);
        assert_eq!(seen(&store, beat("ours", 2, 1, TTL)), [identity("ours", 2), theirs]);
        let killed = now();
        other.signal(Signal::KILL);
        hears_members(&mut hints);
        delays.push(now() - killed);
        assert_eq!(seen(&store, beat("ours", 2, 2, TTL)), [identity("ours", 2)]);
        assert_eq!(members(&store), [identity("ours", 2)]);
    }
    delays.sort_unstable();
    println!("from a member's death to the hint at another: {delays:?}");
}

#[test]
fn who_looks_without_hints_finds_that_a_member_was_killed_with_its_next_heartbeat_or_list() {
    let folder = Folder::new();
    let (store, operator) = (folder.store(), folder.store());
    for way in ["list", "heartbeat", "mark"] {
        let mut other = Other::start(&folder, "", 1);
        other.ask("beat theirs 1 60000");
        assert_eq!(members(&operator), [identity("theirs", 1)]);
        other.kill();
        match way {
            "list" => {
                assert_eq!(members(&operator), [], "{way}");
                assert_eq!(count(&folder, "member WHERE listed = 1"), 1, "who lists writes nothing");
            }
            "heartbeat" => {
                assert_eq!(seen(&store, beat("ours", 2, 1, TTL)), [identity("ours", 2)], "{way}");
                leave(&store, "ours", 2);
            }
            _ => {
                let mark = DrainMark { instance: "theirs".into(), incarnation: None, drain: true };
                assert_eq!(block_on(operator.mark(mark)), Ok(Vec::new()), "{way}");
            }
        }
        sql(&folder, "DELETE FROM member");
    }
}

#[test]
fn a_killed_member_is_gone_by_its_ttl_alone_when_early_takeover_is_off_on_either_side() {
    for (theirs, ours) in [("?early=off", ""), ("", "?early=off"), ("?early=off", "?early=off")] {
        let folder = Folder::new();
        let store = SqliteStore::from_url(&format!("sqlite:{}{ours}", folder.database().display())).unwrap();
        let mut hints = store.hints().unwrap();
        let mut other = Other::start(&folder, theirs, 1);
        let begun = now();
        other.ask("beat theirs 1 1000");
        assert_eq!(seen(&store, beat("ours", 2, 1, TTL)).len(), 2, "{theirs} {ours}");
        other.kill();
        hears_members(&mut hints);
        assert!(now() - begun >= Duration::from_secs(1), "{theirs} {ours}: too early");
        assert_eq!(seen(&store, beat("ours", 2, 2, TTL)), [identity("ours", 2)], "{theirs} {ours}");
    }
}

#[test]
fn a_mark_does_not_make_a_member_the_operators() {
    let folder = Folder::new();
    let store = folder.store();
    try_beat(&store, beat("ours", 2, 1, TTL)).unwrap();
    let mut operator = Other::start(&folder, "", 1);
    assert_eq!(operator.ask("mark ours"), [identity("ours", 2).to_string()]);
    operator.kill();
    let other = folder.store();
    assert_eq!(seen(&other, beat("theirs", 3, 1, TTL)), [identity("ours", 2), identity("theirs", 3)]);
    assert!(try_beat(&store, beat("ours", 2, 2, TTL)).unwrap().drain);
}

#[test]
fn a_frozen_member_is_not_dead_and_a_copy_of_its_lock_keeps_it() {
    let folder = Folder::new();
    let store = folder.store();
    let mut other = Other::start(&folder, "", 1);
    other.ask("beat theirs 1 60000");
    other.signal(Signal::STOP);
    assert_eq!(seen(&store, beat("ours", 2, 1, TTL)).len(), 2, "frozen");
    other.signal(Signal::CONT);
    let guard = other.ask("guard")[0].parse().unwrap();
    other.kill();
    assert_eq!(seen(&store, beat("ours", 2, 2, TTL)).len(), 2, "somebody has its lock");
    rustix::process::kill_process(rustix::process::Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
    let mut n = 2;
    until("it is gone with the death of the guard", || {
        n += 1;
        seen(&store, beat("ours", 2, n, TTL)).len() == 1
    });
}

#[test]
fn processes_see_each_other_and_hear_of_each_other_in_milliseconds() {
    let folder = Folder::new();
    let (a, b) = (identity("a", 1).to_string(), identity("b", 2).to_string());
    let mut first = Other::start(&folder, "", 1);
    assert_eq!(first.ask("listen"), ["listening"]);
    assert_eq!(first.ask("beat a 1 60000"), std::slice::from_ref(&a));
    let mut second = Other::start(&folder, "", 2);
    assert_eq!(second.ask("listen"), ["listening"]);
    let mut delays = Vec::new();
    for n in 1..50 {
        let begun = now();
        assert_eq!(second.ask(&format!("beat b {n} 60000")), [a.clone(), b.clone()]);
        let answer = first.answer();
        assert_eq!(answer[0], "members", "{answer:?}");
        delays.push(Duration::from_nanos(answer[1].parse().unwrap()).saturating_sub(begun));
        assert_eq!(first.ask(&format!("beat a {} 60000", n + 1)), [a.clone(), b.clone()]);
        sql(&folder, "DELETE FROM member WHERE instance = CAST('b' AS BLOB)");
    }
    delays.sort_unstable();
    println!("from a join to the hint: median {:?}, worst {:?}", delays[delays.len() / 2], delays.last());
}

#[test]
fn a_member_that_runs_out_is_told_though_nobody_does_anything() {
    let folder = Folder::new();
    let (store, other) = (folder.store(), folder.store());
    let mut hints = store.hints().unwrap();
    let version = try_beat(&store, beat("ours", 1, 1, TTL)).unwrap().version;
    let begun = now();
    try_beat(&other, beat("theirs", 2, 1, Duration::from_millis(100))).unwrap();
    hears_members(&mut hints);
    let joined = try_beat(&store, beat("ours", 1, 2, TTL)).unwrap();
    assert!(joined.version > version);
    if joined.members.unwrap().len() == 2 {
        hears_members(&mut hints);
    }
    assert!(now() - begun >= Duration::from_millis(100));
    assert_eq!(seen(&store, beat("ours", 1, 3, TTL)), [identity("ours", 1)]);
}

#[test]
fn what_is_over_leaves_nothing_behind() {
    let folder = Folder::new();
    let store = folder.store();
    let ttl = Duration::from_millis(50);
    for n in 0..100 {
        try_beat(&store, beat("short", n, 1, ttl)).unwrap();
        if n % 2 == 0 {
            let leave = Leave { identity: identity("short", n), ttl, timeout: LIMIT };
            execute(&store, vec![leave.into()]).remove(0).unwrap();
        }
    }
    let mut n = 0;
    until("all but the one who looks are forgotten", || {
        n += 1;
        try_beat(&store, beat("looks", 1000, n, TTL)).unwrap();
        count(&folder, "member") == 1
    });
}

#[test]
fn after_a_restart_of_the_machine_nobody_is_listed() {
    let folder = Folder::new();
    let store = folder.store();
    let before = try_beat(&store, beat("before", 1, 1, TTL)).unwrap();
    block_on(store.close());
    let other = ["store", "member"].map(|table| format!("UPDATE {table} SET boot = 'an earlier one'"));
    sql(&folder, &other.join(";"));
    let store = folder.store();
    assert_eq!(members(&store), []);
    let mut after = beat("after", 2, 1, TTL);
    after.known = Some(before.version);
    let presence = try_beat(&store, after).unwrap();
    assert!(presence.version > before.version);
    assert_eq!(presence.members.unwrap().len(), 1);
    assert_eq!(count(&folder, "member"), 1);
}

#[test]
fn a_row_of_another_boot_is_nobody_though_its_time_is_not_over() {
    let folder = Folder::new();
    let store = folder.store();
    try_beat(&store, beat("here", 1, 1, TTL)).unwrap();
    try_beat(&store, beat("elsewhere", 2, 1, TTL)).unwrap();
    sql(&folder, "UPDATE member SET boot = 'another' WHERE instance = CAST('elsewhere' AS BLOB)");
    assert_eq!(members(&store), [identity("here", 1)]);
    assert_eq!(seen(&store, beat("here", 1, 2, TTL)), [identity("here", 1)]);
    assert_eq!(seen(&store, beat("elsewhere", 2, 1, TTL)).len(), 2, "it begins anew here");
}

#[test]
fn a_store_that_was_taken_over_by_another_machine_takes_no_heartbeats() {
    let folder = Folder::new();
    let store = folder.store();
    try_beat(&store, beat("here", 1, 1, TTL)).unwrap();
    sql(&folder, "UPDATE store SET boot = 'another machine'");
    let error = try_beat(&store, beat("here", 1, 2, TTL)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unsupported, "{error}");
    assert_eq!(error.topic, Some(Topic::from(&identity("here", 1))));
}

#[test]
fn a_database_of_format_2_is_brought_up_to_ours_and_nothing_held_is_lost() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    read_timer(&store, "t");
    let claim = claimed(&store, "t", 1, owner(3, 0), TTL);
    let after = tables(&folder);
    block_on(store.close());
    // As a program of format 2 leaves it: see `the_tables_of_format_2_are_as_they_were`.
    sql(&folder, "DROP TABLE member; DROP TABLE fleet; PRAGMA user_version = 2");

    let stores = [(); 4].map(|()| folder.store());
    std::thread::scope(|scope| {
        for (store, n) in stores.iter().zip(10..) {
            scope.spawn(move || {
                assert_eq!(held(store, "x", owner(n, 0), TTL).token, Some(token));
                try_beat(store, beat("all", n, 1, TTL)).unwrap();
            });
        }
    });
    assert_eq!(tables(&folder), after);
    assert_eq!(seen(&stores[0], beat("all", 10, 2, TTL)).len(), 4);
    assert!(granted(&stores[1], "y", owner(2, 0), TTL) > token);
    let renewed = renew_claim(&stores[2], "t", 1, owner(3, 0), claim);
    assert_eq!(renewed, tenure_store::TimerAnswer::Renewed);
}

#[test]
fn the_tables_of_format_2_are_as_they_were() {
    let folder = Folder::new();
    granted(&folder.store(), "x", owner(1, 0), TTL);
    for table in [
        "CREATE TABLE timer (name BLOB NOT NULL PRIMARY KEY, format INTEGER NOT NULL, revision INTEGER NOT NULL, \
         base_n INTEGER NOT NULL, base_at INTEGER NOT NULL, schedule TEXT NOT NULL, next_n INTEGER, next_at INTEGER, \
         next_schedule TEXT, last INTEGER NOT NULL, claimed INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE TABLE claim (name BLOB NOT NULL, tick INTEGER NOT NULL, format INTEGER NOT NULL, owner TEXT NOT NULL, \
         token INTEGER NOT NULL, boot TEXT NOT NULL, expires INTEGER NOT NULL, ttl INTEGER NOT NULL, begun INTEGER \
         NOT NULL, attempts INTEGER NOT NULL, since INTEGER NOT NULL, handle BLOB NOT NULL, early INTEGER NOT NULL, \
         host TEXT, pid INTEGER, text TEXT, PRIMARY KEY (name, tick)) STRICT, WITHOUT ROWID",
        "CREATE TABLE run (job BLOB NOT NULL, owner TEXT NOT NULL, format INTEGER NOT NULL, number INTEGER NOT NULL, \
         tick INTEGER, started INTEGER NOT NULL, ended INTEGER, outcome TEXT, text TEXT, boot TEXT NOT NULL, expires \
         INTEGER NOT NULL, silent INTEGER NOT NULL, handle BLOB NOT NULL, early INTEGER NOT NULL, PRIMARY KEY (job, \
         owner)) STRICT, WITHOUT ROWID",
        "CREATE INDEX run_by_number ON run (job, number)",
    ] {
        let words = |text: &str| -> String { text.split_whitespace().collect() };
        let found = tables(&folder).iter().any(|found| words(found) == words(table));
        assert!(found, "{table} is not among {:?}", tables(&folder));
    }
}

#[test]
fn a_member_that_can_not_be_read_is_listed_with_its_problem_and_spoils_nobodys_heartbeat() {
    for (damage, word) in [
        ("format = 2", "format 2"),
        ("ttl = -1", "damaged"),
        ("ttl = expires + 1", "damaged"),
        ("sequence = -1", "damaged"),
        ("digests = x'01'", "damaged"),
        ("digests = zeroblob(520)", "damaged"),
        ("labels = x'0261'", "damaged"),
        ("labels = x'0161'", "damaged"),
        ("labels = x'000161'", "damaged"),
        ("labels = x'01ff0161'", "damaged"),
        ("pid = -1", "damaged"),
    ] {
        let folder = Folder::new();
        let store = folder.store();
        try_beat(&store, beat("a", 1, 1, TTL)).unwrap();
        let mut other = beat("b", 2, 1, TTL);
        other.joined = Some(Timestamp::from_nanos(5));
        try_beat(&store, other.clone()).unwrap();
        sql(&folder, &format!("UPDATE member SET {damage} WHERE instance = CAST('b' AS BLOB)"));
        assert_eq!(seen(&store, beat("a", 1, 2, TTL)), [identity("a", 1)], "{damage}");
        let listed = block_on(store.members(None, 10)).unwrap();
        let [fine, unreadable] = &listed[..] else { panic!("{damage}: {listed:?}") };
        assert_eq!((fine.problem.as_deref(), &unreadable.member.identity), (None, &identity("b", 2)));
        assert!(
            unreadable.problem.as_deref().is_some_and(|problem| problem.contains(word)),
            "{unreadable:?}"
        );
        let mark = DrainMark { instance: "b".into(), incarnation: None, drain: true };
        assert_eq!(block_on(store.mark(mark)), Ok(Vec::new()), "{damage}");
        other.sequence = 2;
        let presence = try_beat(&store, other).unwrap();
        assert_eq!(presence.joined, Timestamp::from_nanos(5), "its own next heartbeat makes it anew");
        assert_eq!(presence.members.unwrap().len(), 2, "{damage}");
    }
}

#[test]
fn a_version_that_was_lost_or_can_not_be_begins_above_the_clock() {
    let folder = Folder::new();
    let store = folder.store();
    let mut last = try_beat(&store, beat("a", 1, 1, TTL)).unwrap().version;
    for (n, damage) in ["DELETE FROM fleet", "UPDATE fleet SET version = -5"].into_iter().enumerate() {
        sql(&folder, damage);
        let version = try_beat(&store, beat("b", n as u64, 1, TTL)).unwrap().version;
        assert!(version > last, "{damage}: {version} after {last}");
        last = version;
    }
}

#[test]
fn a_member_goes_on_in_a_file_that_has_taken_the_place_of_the_lost_one() {
    let folder = Folder::new();
    let store = folder.store();
    let mut hints = store.hints().unwrap();
    let joined = try_beat(&store, beat("a", 1, 1, TTL)).unwrap().joined;
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", folder.database().display())).unwrap();
    }
    let mut again = beat("a", 1, 2, TTL);
    again.joined = Some(joined);
    assert_eq!(try_beat(&store, again).unwrap().joined, joined);
    try_beat(&folder.store(), beat("b", 2, 1, TTL)).unwrap();
    hears_members(&mut hints);
    assert_eq!(seen(&store, beat("a", 1, 3, TTL)), [identity("a", 1), identity("b", 2)]);
}

#[test]
fn heartbeats_travel_beside_leases_in_one_batch() {
    let folder = Folder::new();
    let store = folder.store();
    let batch = vec![
        Operation::Acquire(acquire("x", owner(1, 0), TTL)),
        Heartbeat { ttl: Duration::ZERO, ..beat("wrong", 1, 1, TTL) }.into(),
        beat("a", 1, 1, TTL).into(),
        Operation::Acquire(acquire("y", owner(1, 1), TTL)),
        Heartbeat { digests: [Digest::new(1)].into(), labels: Labels::default(), ..beat("b", 2, 1, TTL) }
            .into(),
    ];
    let outcomes = execute(&store, batch);
    let fine: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, false, true, true, true], "{outcomes:?}");
    assert_eq!(members(&store), [identity("a", 1), identity("b", 2)]);
}
