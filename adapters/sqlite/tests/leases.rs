//! Taking, keeping and giving back leases, within one process and between handles.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use common::*;
use futures::executor::block_on;
use tenure_store::core::Token;
use tenure_store::{
    Acquired, Answer, Eviction, Metadata, Operation, Release, Released, Renew, Renewed, Store, StoreErrorKind,
};

const TTL: Duration = Duration::from_secs(10);

#[test]
fn a_lease_is_taken_kept_and_given_back() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    let first = granted(&a, "x", owner(1, 0), TTL);
    assert!(first.get() > 1_500_000_000_000_000, "tokens begin at the wall clock's microseconds");
    let holder = held(&b, "x", owner(2, 0), TTL);
    assert_eq!((holder.owner, holder.token), (owner(1, 0).to_string(), Some(first)));
    assert!(holder.remaining.is_some_and(|left| left <= TTL && left > TTL / 2));
    assert_eq!(holder.ttl, Some(TTL));
    assert!(holder.since.is_some() && holder.problem.is_none());

    assert_eq!(granted(&a, "x", owner(1, 0), TTL), first, "asked again, the same token");
    assert_eq!(held(&a, "x", owner(1, 1), TTL).token, Some(first), "another acquisition is a stranger");
    assert_eq!(renew(&a, "x", owner(1, 0), first, TTL), Ok(Renewed::Renewed));
    assert_eq!(renew(&a, "x", owner(1, 0), Token::new(first.get() + 1), TTL), Ok(Renewed::NotYours));
    assert_eq!(renew(&b, "x", owner(2, 0), first, TTL), Ok(Renewed::NotYours));
    assert_eq!(release(&b, "x", owner(2, 0), Some(first)), Ok(Released::NotYours));
    assert_eq!(release(&a, "x", owner(1, 0), Some(Token::new(1))), Ok(Released::NotYours));
    assert_eq!(
        release(&a, "x", owner(1, 0), None),
        Ok(Released::Released { others_chosen: false }),
        "the owner alone is enough when the token is not known"
    );
    assert_eq!(renew(&a, "x", owner(1, 0), first, TTL), Ok(Renewed::NotYours), "never created again");
    assert!(granted(&b, "x", owner(2, 0), TTL) > first);
}

#[test]
fn a_lease_that_ran_out_passes_on_and_is_never_revived() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    let first = granted(&a, "x", owner(1, 0), Duration::from_millis(50));
    let mut second = None;
    until("the lease passes on", || {
        match try_acquire(&b, acquire("x", owner(2, 0), TTL)).unwrap() {
            Acquired::Granted(token) => second = Some(token),
            Acquired::Held(_) => {}
        }
        second.is_some()
    });
    assert!(second > Some(first));
    assert_eq!(renew(&a, "x", owner(1, 0), first, TTL), Ok(Renewed::NotYours));
    assert_eq!(release(&b, "x", owner(2, 0), second), Ok(Released::Released { others_chosen: false }));
    assert_eq!(renew(&a, "x", owner(1, 0), first, TTL), Ok(Renewed::NotYours));
}

#[test]
fn names_are_compared_byte_by_byte_and_listed_in_the_order_of_their_bytes() {
    let folder = Folder::new();
    let store = folder.store();
    let long = |end: &str| format!("{}{end}", "x".repeat(254));
    let names = [
        "A",
        "a",
        "a/b",
        "x/a/b",
        "\u{e9}",
        "e\u{301}",
        "%",
        "_",
        " ",
        "\0",
        "\u{1f600}",
        "'; DROP TABLE lease;--",
        &long("1"),
        &long("2"),
    ];
    let mut tokens: Vec<Token> = names.iter().map(|name| granted(&store, name, owner(1, 0), TTL)).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), names.len(), "each is a lease of its own");

    let mut sorted: Vec<&str> = names.to_vec();
    sorted.sort_unstable();
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = block_on(store.list(after.take(), 3)).unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        listed.extend(page.into_iter().map(|record| record.name.as_str().to_owned()));
    }
    assert_eq!(listed, sorted);
}

#[test]
fn one_that_fails_in_a_batch_leaves_its_neighbours_alone_and_order_is_kept() {
    let folder = Folder::new();
    let store = folder.store();
    let mut floor_too_high = acquire("b", owner(1, 1), TTL);
    floor_too_high.floor = Token::new(u64::MAX);
    let mut text_too_long = acquire("c", owner(1, 2), TTL);
    text_too_long.metadata.text = Some("x".repeat(Metadata::MAX_TEXT_BYTES + 1).into());
    let outcomes = execute(
        &store,
        vec![
            Operation::Acquire(acquire("a", owner(1, 0), TTL)),
            Operation::Acquire(floor_too_high),
            Operation::Acquire(text_too_long),
            Operation::Acquire(acquire("d", owner(1, 3), Duration::MAX)),
            Operation::Acquire(acquire("d", owner(1, 3), Duration::from_millis(1))),
            Operation::Acquire(acquire("d", owner(1, 3), Duration::ZERO)),
            Operation::Renew(Renew {
                name: name("e"),
                owner: owner(1, 4),
                token: Token::new(u64::MAX),
                ttl: TTL,
                timeout: LIMIT,
            }),
            Operation::Release(Release { name: name("a"), owner: owner(1, 0), token: None, timeout: LIMIT }),
            Operation::Acquire(acquire("a", owner(1, 5), TTL)),
        ],
    );
    assert!(matches!(outcomes[0], Ok(Answer::Acquire(Acquired::Granted(_)))));
    for index in [1, 2, 3, 4, 5] {
        let error = outcomes[index].as_ref().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
        assert!(error.lease().is_some(), "{error}");
    }
    assert_eq!(outcomes[6], Ok(Answer::Renew(Renewed::NotYours)));
    assert_eq!(outcomes[7], Ok(Answer::Release(Released::Released { others_chosen: false })));
    assert!(matches!(outcomes[8], Ok(Answer::Acquire(Acquired::Granted(_)))), "after the release before it");
    assert_eq!(block_on(store.list(None, 10)).unwrap().len(), 1);
}

#[test]
fn one_that_breaks_the_transaction_of_a_batch_leaves_its_neighbours_alone() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "held", owner(1, 0), TTL);
    // A disk that fails at one lease only is hard to have; this undoes the whole transaction as well.
    rusqlite::Connection::open(folder.database())
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER broken BEFORE INSERT ON lease WHEN NEW.name = CAST('b' AS BLOB)
             BEGIN SELECT RAISE(ROLLBACK, 'it breaks'); END",
        )
        .unwrap();
    let renewal = Renew { name: name("held"), owner: owner(1, 0), token, ttl: TTL, timeout: LIMIT };
    let outcomes = execute(
        &store,
        vec![
            Operation::Acquire(acquire("a", owner(1, 1), TTL)),
            Operation::Acquire(acquire("b", owner(1, 2), TTL)),
            Operation::Renew(renewal),
            Operation::Acquire(acquire("c", owner(1, 3), TTL)),
        ],
    );
    let Ok(Answer::Acquire(Acquired::Granted(a))) = outcomes[0] else { panic!("{outcomes:?}") };
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!(error.lease(), Some(&name("b")));
    assert!(error.to_string().contains("it breaks"), "{error}");
    assert_eq!(outcomes[2], Ok(Answer::Renew(Renewed::Renewed)));
    let Ok(Answer::Acquire(Acquired::Granted(c))) = outcomes[3] else { panic!("{outcomes:?}") };
    assert!(token < a && a < c);
    let listed: Vec<_> = block_on(store.list(None, 10)).unwrap();
    let names: Vec<&str> = listed.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(names, ["a", "c", "held"], "what was told is what is kept");
    assert_eq!(listed[0].holder.token, Some(a));
}

#[test]
fn a_token_is_above_the_floor_and_stays_above_all_that_were_given_before() {
    let folder = Folder::new();
    let store = folder.store();
    let first = granted(&store, "a", owner(1, 0), TTL);
    let mut request = acquire("b", owner(1, 1), TTL);
    request.floor = Token::new(first.get() + 1_000_000_000_000);
    let Ok(Acquired::Granted(second)) = try_acquire(&store, request.clone()) else { panic!() };
    assert_eq!(second.get(), request.floor.get() + 1);
    assert_eq!(granted(&store, "c", owner(1, 2), TTL).get(), second.get() + 1);

    block_on(store.close());
    let store = folder.store();
    assert_eq!(granted(&store, "d", owner(1, 3), TTL).get(), second.get() + 2, "the high water is kept");
    request.name = name("e");
    request.floor = Token::new(1 << 62);
    let Ok(Acquired::Granted(last)) = try_acquire(&store, request.clone()) else { panic!() };
    assert_eq!(last.get(), (1 << 62) + 1, "the highest floor");
    request.name = name("f");
    request.floor = Token::new((1 << 62) + 1);
    let error = try_acquire(&store, request).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
    assert_eq!(granted(&store, "f", owner(1, 5), TTL).get(), last.get() + 1, "others go on");
}

#[test]
fn a_store_whose_tokens_are_used_up_grants_nothing_and_keeps_what_is_held() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    rusqlite::Connection::open(folder.database())
        .unwrap()
        .execute("UPDATE store SET high_water = ?1", [i64::MAX - 2])
        .unwrap();
    assert_eq!(granted(&store, "y", owner(1, 1), TTL).get(), i64::MAX as u64 - 1);
    let error = try_acquire(&store, acquire("z", owner(1, 2), TTL)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::Renewed));
}

#[test]
fn eviction_replaces_the_holder_or_removes_the_record() {
    let folder = Folder::new();
    let (a, b) = (folder.store(), folder.store());
    assert_eq!(block_on(b.evict(name("x"), Eviction::Replace)), Ok(None));
    let mut request = acquire("x", owner(1, 0), TTL);
    request.metadata.host = Some("here".into());
    request.metadata.pid = Some(7);
    request.metadata.text = Some("backup".into());
    let Ok(Acquired::Granted(token)) = try_acquire(&a, request.clone()) else { panic!() };

    let evicted = block_on(b.evict(name("x"), Eviction::Replace)).unwrap().unwrap();
    assert_eq!(evicted.holder.owner, owner(1, 0).to_string());
    assert_eq!(evicted.holder.metadata, request.metadata);
    assert_eq!(renew(&a, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours));
    let holder = held(&b, "x", owner(2, 0), TTL);
    assert!(holder.remaining.is_some_and(|left| left > TTL / 2), "nobody starts before its time");
    block_on(b.evict(name("x"), Eviction::Replace)).unwrap();
    assert_eq!(block_on(b.inspect(name("x"))).unwrap().unwrap().holder.owner, "evicted");

    assert!(block_on(b.evict(name("x"), Eviction::Delete)).unwrap().is_some());
    assert_eq!(block_on(b.inspect(name("x"))), Ok(None));
    assert!(granted(&b, "x", owner(2, 0), TTL) > token);
}

#[test]
fn all_files_are_for_this_user_alone_and_a_closed_store_leaves_no_liveness_file() {
    let folder = Folder::new();
    let store = folder.store();
    granted(&store, "x", owner(1, 0), TTL);
    let mode = |suffix: &str| {
        let path = format!("{}{suffix}", folder.database().display());
        std::fs::metadata(&path).unwrap_or_else(|error| panic!("{path}: {error}")).permissions().mode()
            & 0o777
    };
    assert_eq!((mode(""), mode("-wal"), mode("-shm"), mode(".live")), (0o600, 0o600, 0o600, 0o700));
    let handles = || {
        let live = format!("{}.live", folder.database().display());
        let modes: Vec<u32> = std::fs::read_dir(live)
            .unwrap()
            .filter_map(|entry| Some(entry.unwrap().metadata().ok()?.permissions().mode() & 0o777))
            .collect();
        assert!(modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
        modes.len() - 1
    };
    assert_eq!(handles(), 1);
    let clone = store.clone();
    drop(store);
    granted(&clone, "y", owner(1, 1), TTL);
    block_on(clone.close());
    assert_eq!(handles(), 0);
    let error = try_acquire(&clone, acquire("x", owner(1, 2), TTL)).unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");

    let other = folder.store();
    assert_eq!(
        held(&other, "x", owner(2, 0), TTL).owner,
        owner(1, 0).to_string(),
        "a lease not given back stays"
    );
    drop(other);
    until("a dropped store removes its file too", || handles() == 0);
}

#[test]
fn nothing_is_opened_before_the_first_operation() {
    let folder = Folder::new();
    let store = folder.store();
    assert_eq!(store.path(), folder.database());
    assert!(!folder.database().exists());
    block_on(store.close());
    assert!(!folder.database().exists());
}
