//! What is left behind, and what is done while nothing is to be done: nothing.

mod common;
mod other;

use std::fs;
use std::process::Command;
use std::time::Duration;

use common::*;
use futures::StreamExt as _;
use futures::executor::block_on;
use other::*;
use tenure_sqlite::SqliteStore;
use tenure_store::{Hint, Operation, Released, Store};

fn liveness_files(folder: &Folder) -> usize {
    let live = format!("{}.live", folder.database().display());
    fs::read_dir(live).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() != "bell").count()
}

#[test]
fn the_files_of_dead_processes_are_removed_once_their_leases_are_over() {
    let folder = Folder::new();
    for round in 0..3 {
        let mut other = Other::start(&folder, "", round);
        other.acquire(&format!("short-{round}"), Duration::from_millis(50));
        other.kill();
    }
    let mut holder = Other::start(&folder, "", 7);
    holder.acquire("long", TTL);
    holder.kill();
    let files = || liveness_files(&folder);
    let store = folder.store();
    until("the short leases are over", || {
        (0..3).all(|round| block_on(store.inspect(name(&format!("short-{round}")))).unwrap().is_none())
    });
    // Cleaning comes with the first batch; other processes may have done a part of it with theirs.
    assert!(files() >= 2);
    granted(&store, "y", owner(9, 0), TTL);
    assert_eq!(files(), 2, "one that a lease still names, and this store's own");
    granted(&store, "long", owner(9, 1), TTL);
}

#[test]
fn leases_that_ran_out_leave_nothing_behind() {
    const LEASES: usize = 2_000;
    let folder = Folder::new();
    let store = folder.store();
    let count = |table: &str| -> i64 {
        let database = rusqlite::Connection::open(folder.database()).unwrap();
        database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let names: Vec<String> = (0..LEASES).map(|n| format!("lease {n}")).collect();
    for names in names.chunks(250) {
        let batch = names.iter().map(|lease| {
            let mut request = acquire(lease, owner(1, 0), Duration::from_millis(50));
            request.wait = true;
            Operation::Acquire(request)
        });
        assert!(execute(&store, batch.collect()).iter().all(Result::is_ok));
    }
    // Each batch that acquires removes a few of those that are over: more than it adds.
    let mut batches = 0;
    until("the table is as small as in the beginning", || {
        let token = granted(&store, "the only one", owner(2, batches), TTL);
        assert!(count("lease") > 0);
        release(&store, "the only one", owner(2, batches), Some(token)).unwrap();
        batches += 1;
        count("lease") == 0
    });
    assert_eq!(count("waiter"), 0);
    assert_eq!(block_on(store.list(None, 10)), Ok(vec![]));
}

#[test]
fn waiters_that_died_leave_nothing_behind() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    granted(&store, "y", owner(1, 1), TTL);
    for round in 0..3 {
        let mut other = Other::start(&folder, "", 10 + round);
        for lease in ["x", "y"] {
            assert_eq!(other.ask(&format!("wait {lease}")), ["waiting"]);
        }
        other.kill();
    }
    let waiters = |lease: &str| -> i64 {
        let database = rusqlite::Connection::open(folder.database()).unwrap();
        let count = "SELECT count(*) FROM waiter WHERE name = CAST(?1 AS BLOB)";
        database.query_row(count, [lease], |row| row.get(0)).unwrap()
    };
    assert_eq!((waiters("x"), waiters("y")), (3, 3));
    // A release sees that nobody is there who could be woken.
    assert_eq!(
        release(&store, "x", owner(1, 0), Some(token)),
        Ok(Released::Released { others_chosen: false })
    );
    assert_eq!(waiters("x"), 0);
    // And those that were not heard of for long are removed, by whoever comes next.
    let database = rusqlite::Connection::open(folder.database()).unwrap();
    database.execute("UPDATE waiter SET expires = 1", []).unwrap();
    let next = folder.store();
    held(&next, "y", owner(2, 0), TTL);
    assert_eq!(waiters("y"), 0);
    assert_eq!(liveness_files(&folder), 2, "those of the two stores that are open");
}

#[test]
fn neither_files_nor_threads_pile_up() {
    let folder = Folder::new();
    let mut other = Other::start(&folder, "", 1);
    assert_eq!(other.ask("leaks"), ["0", "0"], "more open files, more threads");
}

#[test]
fn a_store_that_is_dropped_without_being_closed_ends_its_thread_and_removes_its_file() {
    let folder = Folder::new();
    let store = folder.store();
    let hints = store.hints().unwrap();
    let clone = store.clone();
    granted(&store, "x", owner(1, 0), TTL);
    block_on(store.watch(name("x"))).unwrap();
    drop(store);
    let token = granted(&clone, "y", owner(1, 1), TTL);
    assert_eq!(liveness_files(&folder), 1);
    drop(clone);
    let last: Vec<Hint> = within(hints.collect());
    assert!(last.len() < 10, "the stream of hints ends: {last:?}");
    until("its file is removed", || liveness_files(&folder) == 0);
    assert_eq!(held(&folder.store(), "y", owner(2, 0), TTL).token, Some(token), "its process lives on");
}

#[test]
fn a_handle_without_early_takeover_makes_no_liveness_file() {
    let folder = Folder::new();
    let store = SqliteStore::from_url(&format!("sqlite:{}?early=off", folder.database().display())).unwrap();
    granted(&store, "x", owner(1, 0), TTL);
    let live = format!("{}.live", folder.database().display());
    let files: Vec<_> = fs::read_dir(live).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["bell"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_that_watches_nothing_sleeps_and_never_wakes_up() {
    let folder = Folder::new();
    let mut other = Other::start(&folder, "", 1);
    let token = other.acquire("x", TTL);
    assert_eq!(other.ask(&format!("renew x {token} 60000")), ["Renewed"]);
    let task = fs::read_dir(format!("/proc/{}/task", other.child.id()))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|task| fs::read_to_string(task.join("comm")).unwrap() == "tenure-sqlite\n")
        .expect("the thread of the store");
    let status = |key: &str| -> String {
        let status = fs::read_to_string(task.join("status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned()
    };
    until("the thread sleeps", || status("State:").starts_with('S'));
    let sleeps = || status("voluntary_ctxt_switches:").parse::<u64>().unwrap();
    let before = sleeps();
    // Others work meanwhile, until a lease has run out.
    let store = folder.store();
    granted(&store, "y", owner(2, 0), Duration::from_millis(500));
    until("a while is over", || block_on(store.inspect(name("y"))).unwrap().is_none());
    let woken = sleeps() - before;
    assert!(woken <= 1, "it woke up {woken} times; the first may be its falling asleep");
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_in_another_time_namespace_is_refused() {
    let folder = Folder::new();
    granted(&folder.store(), "x", owner(1, 0), TTL);
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", "100000", "--fork", "--kill-child", "--"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: a time namespace can't be made here");
        return;
    }
    let mut command = unshare();
    command.arg(std::env::current_exe().unwrap());
    let mut other = Other::start_by(command, &folder, "", 2);
    let answer = other.ask("acquire x 1000").join(" ");
    assert!(answer.starts_with("failed") && answer.contains("another clock"), "{answer}");
}
