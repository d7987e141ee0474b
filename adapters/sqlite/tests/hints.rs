//! Waking those who wait: between two handles of one process.

mod common;

use std::time::Duration;

use common::*;
use futures::StreamExt as _;
use futures::executor::block_on;
use tenure_sqlite::SqliteStore;
use tenure_store::core::{LeaseName, Wake};
use tenure_store::{Acquired, Eviction, Hint, Hints, Released, Store};

const TTL: Duration = Duration::from_secs(10);

fn watching(store: &SqliteStore, lease: &str) -> Hints {
    let hints = store.hints().unwrap();
    block_on(store.watch(name(lease))).unwrap();
    hints
}

fn next(hints: &mut Hints) -> (LeaseName, Wake) {
    match within(hints.next()) {
        Some(Hint::Lease { name, wake }) => (name, wake),
        other => panic!("{other:?}"),
    }
}

/// The number of waiters that the database knows.
fn waiters(folder: &Folder) -> i64 {
    let database = rusqlite::Connection::open(folder.database()).unwrap();
    database.query_row("SELECT count(*) FROM waiter", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_waiter_is_told_that_the_lease_is_free_and_that_somebody_has_it() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    let first = granted(&a, "x", owner(1, 0), TTL);
    let mut hints = watching(&b, "x");
    assert!(b.hints().is_none(), "hints are asked for once");

    assert_eq!(release(&a, "x", owner(1, 0), Some(first)), Ok(Released::Released { others_chosen: true }));
    assert_eq!(next(&mut hints), (name("x"), Wake::Free { chosen: true }));
    let second = granted(&a, "x", owner(1, 1), TTL);
    let (_, Wake::Held { token, ttl }) = next(&mut hints) else { panic!() };
    assert_eq!(token, second);
    assert!(ttl <= TTL && ttl > TTL / 2);
    let mut again = acquire("x", owner(2, 0), TTL);
    again.wait = true;
    assert!(matches!(try_acquire(&b, again), Ok(Acquired::Held(_))));
    block_on(a.evict(name("x"), Eviction::Delete)).unwrap();
    assert_eq!(next(&mut hints), (name("x"), Wake::Free { chosen: true }));
    block_on(b.close());
    assert_eq!(block_on(hints.next()), None, "the stream ends with the store");
}

#[test]
fn a_lease_that_is_free_already_when_the_watch_begins_is_told_at_once() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    let first = granted(&a, "x", owner(1, 0), TTL);
    let mut request = acquire("x", owner(2, 0), TTL);
    request.wait = true;
    assert!(matches!(try_acquire(&b, request), Ok(Acquired::Held(_))));
    assert_eq!(release(&a, "x", owner(1, 0), Some(first)), Ok(Released::Released { others_chosen: true }));
    let mut hints = watching(&b, "x");
    assert_eq!(next(&mut hints), (name("x"), Wake::Free { chosen: true }), "no release is missed in between");
}

#[test]
fn a_lease_that_runs_out_is_told_and_nobody_is_chosen() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    granted(&a, "x", owner(1, 0), Duration::from_millis(50));
    let mut hints = watching(&b, "x");
    assert_eq!(next(&mut hints), (name("x"), Wake::Free { chosen: false }));
}

#[test]
fn a_release_chooses_two_of_many_and_all_are_told() {
    let folder = Folder::new();
    let holder = folder.store();
    let first = granted(&holder, "x", owner(1, 0), TTL);
    let waiters: Vec<(SqliteStore, Hints)> = (0..10)
        .map(|_| {
            let store = folder.store();
            let hints = watching(&store, "x");
            (store, hints)
        })
        .collect();
    assert_eq!(
        release(&holder, "x", owner(1, 0), Some(first)),
        Ok(Released::Released { others_chosen: true })
    );
    let (stores, hints): (Vec<_>, Vec<_>) = waiters.into_iter().unzip();
    let told: Vec<Wake> = hints.into_iter().map(|mut hints| next(&mut hints).1).collect();
    let chosen = |wake: &&Wake| **wake == Wake::Free { chosen: true };
    assert_eq!(told.iter().filter(chosen).count(), 2);
    assert!(told[..2].iter().all(|wake| chosen(&wake)), "those who have waited longest: {told:?}");
    drop(stores);
}

#[test]
fn whoever_was_chosen_and_does_not_try_is_passed_over_the_next_time() {
    let folder = Folder::new();
    let holder = folder.store();
    granted(&holder, "x", owner(1, 0), TTL);
    let (a, b) = (folder.store(), folder.store());
    let (mut of_a, mut of_b) = (watching(&a, "x"), watching(&b, "x"));
    let choose = |lease_owner| release(&holder, "x", lease_owner, None);
    assert_eq!(choose(owner(1, 0)), Ok(Released::Released { others_chosen: true }));
    assert_eq!(next(&mut of_a).1, Wake::Free { chosen: true });
    assert_eq!(next(&mut of_b).1, Wake::Free { chosen: true });
    granted(&holder, "x", owner(1, 1), TTL);
    assert!(matches!(next(&mut of_a).1, Wake::Held { .. }));
    let mut again = acquire("x", owner(2, 0), TTL);
    again.wait = true;
    assert!(matches!(try_acquire(&b, again), Ok(Acquired::Held(_))), "one of them tries");
    assert_eq!(choose(owner(1, 1)), Ok(Released::Released { others_chosen: true }));
    let free = |hints: &mut Hints| loop {
        if let (_, Wake::Free { chosen }) = next(hints) {
            return chosen;
        }
    };
    assert_eq!((free(&mut of_a), free(&mut of_b)), (false, true));
}

#[test]
fn whoever_was_told_that_a_lease_is_held_is_told_of_its_end_however_short_that_hold_was() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    let mut hints = watching(&b, "x");
    assert_eq!(next(&mut hints).1, Wake::Free { chosen: false });
    for n in 0..100 {
        let token = granted(&a, "x", owner(1, n), TTL);
        assert_eq!(held(&b, "x", owner(2, n), TTL).token, Some(token));
        release(&a, "x", owner(1, n), Some(token)).unwrap();
        while !matches!(next(&mut hints).1, Wake::Free { .. }) {}
    }
}

#[test]
fn a_waiter_is_told_also_when_the_bell_or_its_whole_folder_was_removed() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    granted(&a, "x", owner(1, 0), TTL);
    let mut hints = watching(&b, "x");
    let live = format!("{}.live", folder.database().display());
    let mut told_after = |removed: &str, n: u64| {
        release(&a, "x", owner(1, n), None).unwrap();
        while !matches!(next(&mut hints).1, Wake::Free { .. }) {}
        granted(&a, "x", owner(1, n + 1), TTL);
        assert!(matches!(next(&mut hints).1, Wake::Held { .. }), "{removed}");
    };
    told_after("nothing", 0);
    std::fs::remove_file(format!("{live}/bell")).unwrap();
    told_after("the bell", 1);
    granted(&folder.store(), "makes a new bell", owner(3, 0), TTL);
    told_after("another bell is there", 2);
    std::fs::remove_dir_all(&live).unwrap();
    told_after("the folder", 3);
    granted(&folder.store(), "makes a new folder", owner(3, 1), TTL);
    told_after("another folder is there", 4);
}

#[test]
fn whoever_no_longer_waits_leaves_nothing_behind() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    let first = granted(&a, "x", owner(1, 0), TTL);
    let hints = watching(&b, "x");
    block_on(b.watch(name("y"))).unwrap();
    let mut request = acquire("x", owner(2, 0), TTL);
    request.wait = true;
    assert!(matches!(try_acquire(&b, request.clone()), Ok(Acquired::Held(_))));
    request.name = name("z");
    granted(&a, "z", owner(1, 1), TTL);
    assert!(matches!(try_acquire(&b, request), Ok(Acquired::Held(_))));
    assert_eq!(waiters(&folder), 3);
    for lease in ["x", "y", "z", "never waited for"] {
        block_on(b.unwatch(name(lease)));
    }
    assert_eq!(waiters(&folder), 0);
    assert_eq!(release(&a, "x", owner(1, 0), Some(first)), Ok(Released::Released { others_chosen: false }));

    block_on(b.watch(name("x"))).unwrap();
    block_on(b.close());
    assert_eq!(waiters(&folder), 0, "nor does a store that is closed");
    drop(hints);
}
