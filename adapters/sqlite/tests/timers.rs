//! Timers, claims and records of jobs: restarts, deaths, newer versions and damage.

mod common;
mod other;

use std::fs;

use common::*;
use futures::executor::block_on;
use other::*;
use rusqlite::Connection;
use tenure_sqlite::SqliteStore;
use tenure_store::core::{ClaimEnd, Token};
use tenure_store::{
    Operation, Renewed, RunOutcome, RunReport, RunState, Store, StoreErrorKind, TimerAct, TimerAnswer,
    TimerRequest, Topic,
};

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

#[test]
fn a_database_of_format_1_is_brought_up_to_ours_and_nothing_held_is_lost() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    let after = tables(&folder);
    block_on(store.close());
    // As a program of format 1 leaves it: see `the_tables_of_format_1_are_as_they_were`.
    sql(
        &folder,
        "DROP TABLE timer; DROP TABLE claim; DROP TABLE run; DROP TABLE member; DROP TABLE fleet; \
         PRAGMA user_version = 1",
    );

    let stores = [(); 4].map(|()| folder.store());
    std::thread::scope(|scope| {
        for (store, n) in stores.iter().zip(10..) {
            scope.spawn(move || assert_eq!(held(store, "x", owner(n, 0), TTL).token, Some(token)));
        }
    });
    assert_eq!(renew(&stores[0], "x", owner(1, 0), token, TTL), Ok(Renewed::Renewed));
    assert_eq!(tables(&folder), after);
    assert!(granted(&stores[1], "y", owner(2, 0), TTL) > token);
    read_timer(&stores[2], "t");
    assert!(claimed(&stores[2], "t", 1, owner(3, 0), TTL) > token);
}

#[test]
fn the_tables_of_format_1_are_as_they_were() {
    let folder = Folder::new();
    granted(&folder.store(), "x", owner(1, 0), TTL);
    for table in [
        "CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), boot TEXT NOT NULL, time_namespace INTEGER \
         NOT NULL, high_water INTEGER NOT NULL) STRICT",
        "CREATE TABLE lease (name BLOB NOT NULL PRIMARY KEY, format INTEGER NOT NULL, token INTEGER NOT NULL, owner \
         TEXT NOT NULL, boot TEXT NOT NULL, expires INTEGER NOT NULL, ttl INTEGER NOT NULL, since INTEGER NOT NULL, \
         handle BLOB NOT NULL, early INTEGER NOT NULL, host TEXT, pid INTEGER, text TEXT) STRICT, WITHOUT ROWID",
        "CREATE TABLE waiter (name BLOB NOT NULL, handle BLOB NOT NULL, boot TEXT NOT NULL, since INTEGER NOT NULL, \
         expires INTEGER NOT NULL, early INTEGER NOT NULL, chosen INTEGER NOT NULL, PRIMARY KEY (name, handle)) \
         STRICT, WITHOUT ROWID",
    ] {
        let words = |text: &str| -> String { text.split_whitespace().collect() };
        let found = tables(&folder).iter().any(|found| words(found) == words(table));
        assert!(found, "{table} is not among {:?}", tables(&folder));
    }
}

#[test]
fn a_format_older_than_the_first_is_refused() {
    let folder = Folder::new();
    let store = folder.store();
    granted(&store, "x", owner(1, 0), TTL);
    block_on(store.close());
    sql(&folder, "PRAGMA user_version = 0");
    let error = try_acquire(&folder.store(), acquire("y", owner(1, 1), TTL)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("format 0"), "{error}");
}

#[test]
fn a_timer_of_a_newer_format_is_an_error_that_names_it_and_can_be_forgotten() {
    for (damage, word) in [
        ("format = 2", "format 2"),
        ("base_n = -1", "damaged"),
        ("next_n = 5", "damaged"),
        ("next_at = 5", "damaged"),
    ] {
        let folder = Folder::new();
        let store = folder.store();
        read_timer(&store, "t");
        read_timer(&store, "u");
        claimed(&store, "t", 1, owner(1, 0), TTL);
        sql(&folder, &format!("UPDATE timer SET {damage} WHERE name = CAST('t' AS BLOB)"));
        let read = TimerAct::Read { schedule: READ.into(), last: None };
        let batch = ["t", "u"].map(|name| {
            let (name, act) = (timer_name(name), read.clone());
            Operation::Timer(TimerRequest { name, act, timeout: LIMIT })
        });
        let outcomes = execute(&store, batch.into());
        assert!(outcomes[1].is_ok(), "its neighbour: {outcomes:?}");
        let error = outcomes[0].clone().unwrap_err();
        assert_eq!(error.topic, Some(Topic::from(&timer_name("t"))));
        assert_eq!(error.kind, StoreErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        let listed = block_on(store.timers(None, 10)).unwrap();
        let [unreadable, other] = &listed[..] else { panic!("{listed:?}") };
        assert_eq!((unreadable.name.as_str(), other.name.as_str()), ("t", "u"));
        let problem = unreadable.problem.as_deref().unwrap();
        assert!(problem.contains(word) && problem.contains("forget it"), "{problem}");
        assert_eq!((other.problem.as_deref(), &*other.record.schedule), (None, READ));
        assert!(
            timer(
                &store,
                "t",
                TimerAct::Renew { tick: 1, owner: owner(1, 0), token: Token::new(1), ttl: TTL }
            )
            .is_err()
        );
        assert_eq!(timer(&store, "t", TimerAct::Forget), Ok(TimerAnswer::Removed));
        assert_eq!(count(&folder, "claim"), 0);
        read_timer(&store, "t");
    }
}

#[test]
fn a_claim_that_can_not_be_read_is_held_and_stays_as_it_is() {
    for damage in ["format = 2, expires = 1", "token = -1", "expires = -1", "begun = -1, boot = 'another'"] {
        let folder = Folder::new();
        let store = folder.store();
        read_timer(&store, "t");
        let token = claimed(&store, "t", 1, owner(1, 0), TTL);
        sql(&folder, &format!("UPDATE claim SET {damage}"));
        let row = || count(&folder, &format!("claim WHERE ({}) = (1)", damage.replace(", ", " AND ")));
        assert_eq!(row(), 1);
        assert!(matches!(claim(&store, "t", 1, owner(1, 0), TTL), TimerAnswer::Held { .. }), "{damage}");
        assert!(matches!(claim(&store, "t", 1, owner(2, 0), TTL), TimerAnswer::Held { .. }), "{damage}");
        assert_eq!(renew_claim(&store, "t", 1, owner(1, 0), token), TimerAnswer::NotYours);
        assert_eq!(finish(&store, "t", 1, owner(1, 0), ClaimEnd::Finished), TimerAnswer::NotYours);
        assert_eq!(claim(&store, "t", 2, owner(2, 0), TTL), TimerAnswer::Overlaps, "{damage}");
        assert_eq!(read_timer(&store, "t").unfinished, [1]);
        assert_eq!(row(), 1, "{damage}");
        assert_eq!(count(&folder, "claim"), 1);
    }
}

#[test]
fn claims_of_an_earlier_boot_are_over_and_their_ticks_run_again_if_they_may() {
    let folder = Folder::new();
    let store = folder.store();
    read_timer(&store, "t");
    let token = claimed(&store, "t", 1, owner(1, 0), TTL);
    report(&store, "j", &owner(1, 0), TTL);
    let view = read_timer(&store, "t");
    read_timer(&store, "u");
    claimed(&store, "u", 1, owner(1, 1), TTL);
    assert_eq!(finish(&store, "u", 1, owner(1, 1), ClaimEnd::Interrupted), TimerAnswer::Removed);
    block_on(store.close());
    let tables = ["store", "claim", "run"].map(|table| format!("UPDATE {table} SET boot = 'an earlier one'"));
    sql(&folder, &tables.join(";"));
    let store = folder.store();
    assert_eq!(read_timer(&store, "t"), view, "timers are on the wall clock");
    assert_eq!(renew_claim(&store, "t", 1, owner(1, 0), token), TimerAnswer::NotYours);
    let next = claimed(&store, "t", 1, owner(2, 0), TTL);
    assert!(next > token);
    let answer = claim(&store, "t", 1, owner(3, 0), TTL);
    assert!(matches!(answer, TimerAnswer::Held { token, .. } if token == next), "{answer:?}");
    assert_eq!(runs(&store, "j")[0].state, RunState::Abandoned);
    assert_eq!(claim(&store, "u", 1, owner(1, 1), TTL), TimerAnswer::Taken, "it has given that back");
    claimed(&store, "u", 1, owner(2, 1), TTL);
}

#[test]
fn a_claim_passes_on_and_a_run_is_abandoned_at_once_when_their_process_is_killed() {
    let folder = Folder::new();
    let store = folder.store();
    let mut other = Other::start(&folder, "", 1);
    assert_eq!(other.ask("claim t 1 60000")[0], "granted");
    assert_eq!(other.ask("report j"), ["reported"]);
    assert!(matches!(claim(&store, "t", 1, owner(2, 0), TTL), TimerAnswer::Held { .. }));
    assert_eq!(runs(&store, "j")[0].state, RunState::Running);
    let handles = || block_on(store.timers(None, 1)).unwrap().remove(0);
    let entry = handles();
    assert!(entry.record.claims[0].ends > entry.time.now);
    other.kill();
    let entry = handles();
    assert!(entry.record.claims[0].ends < entry.time.now, "its owner is known to be dead");
    let run = runs(&store, "j").remove(0);
    assert_eq!(run.state, RunState::Abandoned);
    assert!(
        run.ended.is_some_and(|ended| ended <= entry.time.wall + LIMIT),
        "not at the end of its TTL: {run:?}"
    );
    let token = claimed(&store, "t", 1, owner(2, 0), TTL);
    assert_eq!(renew_claim(&store, "t", 1, owner(2, 0), token), TimerAnswer::Renewed);
}

#[test]
fn a_claim_passes_on_by_its_ttl_alone_when_early_takeover_is_off_on_either_side() {
    for (theirs, ours) in [("?early=off", ""), ("", "?early=off")] {
        let folder = Folder::new();
        let store = SqliteStore::from_url(&format!("sqlite:{}{ours}", folder.database().display())).unwrap();
        let mut other = Other::start(&folder, theirs, 1);
        let begun = now();
        assert_eq!(other.ask("claim t 1 1000")[0], "granted");
        assert_eq!(other.ask("report j"), ["reported"]);
        other.kill();
        assert_eq!(runs(&store, "j")[0].state, RunState::Running, "nobody can tell");
        until("the claim passes on", || {
            matches!(claim(&store, "t", 1, owner(2, 0), TTL), TimerAnswer::Granted(_))
        });
        assert!(now() - begun >= std::time::Duration::from_secs(1), "{theirs} {ours}: too early");
    }
}

#[test]
fn the_file_of_a_dead_process_stays_as_long_as_a_claim_or_a_run_names_it() {
    let folder = Folder::new();
    for (command, n) in [("claim t 1 60000", 1), ("report j", 2), ("acquire x 50", 3)] {
        let mut other = Other::start(&folder, "", n);
        other.ask(command);
        other.kill();
    }
    let live = || fs::read_dir(format!("{}.live", folder.database().display())).unwrap().count();
    let store = folder.store();
    until("the lease is over", || block_on(store.inspect(name("x"))).unwrap().is_none());
    // Cleaning comes with the first batch.
    granted(&store, "y", owner(9, 0), TTL);
    assert_eq!(live(), 4, "those of the claim and of the run, this store's own, and the bell");
    assert_eq!(runs(&store, "j")[0].state, RunState::Abandoned);
    claimed(&store, "t", 1, owner(9, 0), TTL);
}

#[test]
fn a_removed_file_loses_its_claims_and_one_that_was_put_back_revives_none() {
    let folder = Folder::new();
    let store = folder.store();
    read_timer(&store, "t");
    let token = claimed(&store, "t", 1, owner(1, 0), TTL);
    let copy = folder.path().join("copy.db");
    Connection::open(folder.database()).unwrap().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    let remove = |suffix: &&str| fs::remove_file(format!("{}{suffix}", folder.database().display())).unwrap();
    ["", "-wal", "-shm"].iter().for_each(remove);
    assert_eq!(renew_claim(&store, "t", 1, owner(1, 0), token), TimerAnswer::NotYours);
    assert_eq!(claim(&store, "t", 2, owner(1, 0), TTL), TimerAnswer::Taken, "the timer has to be made anew");
    fs::rename(&copy, folder.database()).unwrap();
    ["-wal", "-shm"].iter().for_each(remove);
    assert_eq!(renew_claim(&store, "t", 1, owner(1, 0), token), TimerAnswer::NotYours);
    assert!(matches!(claim(&store, "t", 1, owner(2, 0), TTL), TimerAnswer::Held { .. }), "nor is it free");
    assert!(claimed(&store, "t", 1, owner(1, 0), TTL) > token, "asked again, it is a new grant");
}

#[test]
fn a_store_that_can_not_be_opened_any_more_loses_its_claims_and_knows_nothing_of_its_timers() {
    let folder = Folder::new();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let store = SqliteStore::open(inner.join("a.db")).unwrap();
    read_timer(&store, "t");
    let token = claimed(&store, "t", 1, owner(1, 0), TTL);
    fs::rename(&inner, folder.path().join("moved")).unwrap();
    fs::write(&inner, "no folder").unwrap();
    assert_eq!(renew_claim(&store, "t", 1, owner(1, 0), token), TimerAnswer::NotYours, "lost for good");
    let read = TimerAct::Read { schedule: READ.into(), last: None };
    let error = timer(&store, "t", read).unwrap_err();
    assert_eq!(error.topic, Some(Topic::from(&timer_name("t"))), "{error}");
}

#[test]
fn a_token_is_above_those_of_the_claims_that_are_there_though_the_high_water_was_lost() {
    let folder = Folder::new();
    let store = folder.store();
    read_timer(&store, "t");
    claimed(&store, "t", 1, owner(1, 0), TTL);
    sql(&folder, "UPDATE claim SET token = token * 2; UPDATE store SET high_water = 0");
    assert_eq!(finish(&store, "t", 1, owner(1, 0), ClaimEnd::Interrupted), TimerAnswer::Removed);
    let highest = block_on(store.timers(None, 1)).unwrap()[0].record.claims[0].token;
    assert!(claimed(&store, "t", 1, owner(2, 0), TTL) > highest);
}

#[test]
fn what_is_finished_trimmed_or_forgotten_leaves_no_rows() {
    let folder = Folder::new();
    let store = folder.store();
    read_timer(&store, "t");
    for tick in 1..50 {
        claimed(&store, "t", tick, owner(1, tick), TTL);
        assert_eq!(finish(&store, "t", tick, owner(1, tick), ClaimEnd::Finished), TimerAnswer::Removed);
    }
    assert_eq!((count(&folder, "timer"), count(&folder, "claim")), (1, 0));
    claimed(&store, "t", 50, owner(1, 50), TTL);
    assert_eq!(timer(&store, "t", TimerAct::Forget), Ok(TimerAnswer::Removed));
    assert_eq!((count(&folder, "timer"), count(&folder, "claim")), (0, 0));
    for n in 0..RunReport::MOST_RUNS as u64 + 20 {
        report(&store, "j", &owner(1, n), TTL);
    }
    assert_eq!(count(&folder, "run"), RunReport::MOST_RUNS as i64);
    assert_eq!(block_on(store.forget_job(job_name("j"))), Ok(true));
    assert_eq!(count(&folder, "run"), 0);
}

#[test]
fn a_run_that_can_not_be_read_is_left_out_and_left_alone() {
    let folder = Folder::new();
    let store = folder.store();
    for n in 0..3 {
        report(&store, "j", &owner(1, n), TTL);
    }
    report(&store, "k", &owner(1, 0), TTL);
    sql(
        &folder,
        "UPDATE run SET format = 2 WHERE number = 3; UPDATE run SET outcome = 'exploded', ended = 1 WHERE number = 2;
         UPDATE run SET format = 2 WHERE job = CAST('k' AS BLOB)",
    );
    for n in 0..3 {
        report(&store, "j", &owner(1, n), TTL);
    }
    let owners: Vec<_> = runs(&store, "j").into_iter().map(|run| run.owner).collect();
    assert_eq!(owners, [owner(1, 0).to_string()]);
    let jobs = block_on(store.jobs(None, 1)).unwrap();
    assert_eq!(jobs.iter().map(|job| (job.name.as_str(), job.kept)).collect::<Vec<_>>(), [("j", 1)]);
    assert_eq!(block_on(store.jobs(Some(job_name("j")), 1)), Ok(Vec::new()));
    assert_eq!(count(&folder, "run WHERE format = 2 OR outcome = 'exploded'"), 3);
}

#[test]
fn an_outcome_is_kept_as_a_word() {
    let folder = Folder::new();
    let store = folder.store();
    for (n, outcome) in
        [RunOutcome::Succeeded, RunOutcome::Failed, RunOutcome::Stopped].into_iter().enumerate()
    {
        let mut report = RunReport::new(job_name("j"), owner(1, n as u64).to_string(), TTL, LIMIT);
        report.outcome = Some(outcome);
        block_on(store.report(report)).unwrap();
    }
    for word in ["succeeded", "failed", "stopped"] {
        assert_eq!(count(&folder, &format!("run WHERE outcome = '{word}'")), 1, "{word}");
    }
}

#[test]
fn each_tick_that_several_processes_claim_at_once_is_granted_to_one() {
    let folder = Folder::new();
    let store = folder.store();
    let mut others: Vec<Other> = (0..4).map(|number| Other::start(&folder, "", number)).collect();
    let mut highest = Token::ZERO;
    for tick in 1..40 {
        for other in &mut others {
            other.send(&format!("claim t {tick} 60000"));
        }
        let answers: Vec<_> = others.iter_mut().map(Other::answer).collect();
        let granted: Vec<_> = (0..4).filter(|number| answers[*number][0] == "granted").collect();
        assert_eq!(granted.len(), 1, "tick {tick}: {answers:?}");
        let token = Token::new(answers[granted[0]][1].parse().unwrap());
        assert!(token > highest);
        highest = token;
        let ended = finish(&store, "t", tick, owner(granted[0] as u64, 0), ClaimEnd::Finished);
        assert_eq!(ended, TimerAnswer::Removed);
    }
}
