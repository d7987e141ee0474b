//! What happens to the files of a store: each trouble is a clear error or a lost lease, never a grant by
//! mistake.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use futures::StreamExt as _;
use futures::executor::block_on;
use rusqlite::Connection;
use tenure_sqlite::SqliteStore;
use tenure_store::core::{Token, Wake};
use tenure_store::{Acquired, Eviction, Hint, Released, Renewed, Store, StoreError, StoreErrorKind};

const TTL: Duration = Duration::from_secs(10);

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// Every operation must fail, in the same way.
fn refused(store: &SqliteStore, kind: StoreErrorKind, words: &[&str]) {
    let check = |what: &str, error: StoreError| {
        assert_eq!(error.kind, kind, "{what}: {error}");
        for word in words {
            assert!(error.to_string().contains(word), "{what}: {error}");
        }
    };
    check("acquire", try_acquire(store, acquire("x", owner(1, 0), TTL)).unwrap_err());
    check("renew", renew(store, "x", owner(1, 0), Token::new(1), TTL).unwrap_err());
    check("release", release(store, "x", owner(1, 0), None).unwrap_err());
    check("inspect", block_on(store.inspect(name("x"))).unwrap_err());
    check("list", block_on(store.list(None, 10)).unwrap_err());
    check("evict", block_on(store.evict(name("x"), Eviction::Delete)).unwrap_err());
    check("watch", block_on(store.watch(name("x"))).unwrap_err());
    block_on(store.unwatch(name("x")));
}

/// Runs SQL on the database as another program would.
fn sql(folder: &Folder, sql: &str) {
    Connection::open(folder.database()).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_path_that_is_no_file_is_refused_with_what_it_is() {
    let folder = Folder::new();
    fs::create_dir(folder.database()).unwrap();
    refused(&folder.store(), StoreErrorKind::Rejected, &["leases.db", "it is a folder"]);

    let missing = SqliteStore::open(folder.path().join("missing/a.db")).unwrap();
    refused(&missing, StoreErrorKind::Rejected, &["missing", "create the folder"]);

    let device = SqliteStore::open("/dev/null").unwrap();
    let error = try_acquire(&device, acquire("x", owner(1, 0), TTL)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");

    let below_a_file = folder.path().join("file");
    fs::write(&below_a_file, "").unwrap();
    let store = SqliteStore::open(below_a_file.join("a.db")).unwrap();
    refused(&store, StoreErrorKind::Rejected, &["choose another path"]);
}

#[test]
fn a_file_of_somebody_else_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    fs::write(folder.database(), "Dear diary, ".repeat(100)).unwrap();
    let before = fs::read(folder.database()).unwrap();
    refused(&folder.store(), StoreErrorKind::Unsupported, &["not an SQLite database", "another path"]);
    assert_eq!(fs::read(folder.database()).unwrap(), before);
    fs::remove_file(folder.database()).unwrap();

    sql(&folder, "CREATE TABLE diary (entry TEXT); INSERT INTO diary VALUES ('Dear diary');");
    let before = fs::read(folder.database()).unwrap();
    refused(&folder.store(), StoreErrorKind::Rejected, &["another program", "left as it is"]);
    assert_eq!(fs::read(folder.database()).unwrap(), before);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["leases.db"], "no other file was made");
}

#[test]
fn a_store_of_a_newer_format_is_refused_also_while_it_is_open() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    sql(&folder, "PRAGMA user_version = 4");
    refused(&store, StoreErrorKind::Unsupported, &["format 4", "update this program"]);
    refused(&folder.store(), StoreErrorKind::Unsupported, &["format 4", "update this program"]);
    sql(&folder, "PRAGMA user_version = 3");
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::Renewed));
}

#[test]
fn a_record_of_a_newer_format_is_held_until_an_operator_removes_it() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), Duration::from_millis(50));
    sql(&folder, "UPDATE lease SET format = 2");
    granted(&store, "y", owner(1, 1), Duration::from_millis(50));
    until("a lease as short has run out", || block_on(store.inspect(name("y"))).unwrap().is_none());
    let holder = held(&store, "x", owner(1, 0), TTL);
    assert!(holder.problem.is_some_and(|problem| problem.contains("format 2")));
    assert_eq!((holder.remaining, holder.token), (None, None));
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours));
    assert_eq!(release(&store, "x", owner(1, 0), None), Ok(Released::NotYours));
    assert_eq!(block_on(store.list(None, 10)).unwrap().len(), 1);
    let error = block_on(store.evict(name("x"), Eviction::Replace)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Rejected);
    assert!(block_on(store.evict(name("x"), Eviction::Delete)).unwrap().is_some());
    assert!(granted(&store, "x", owner(1, 2), TTL) > token);
}

#[test]
fn a_record_that_is_damaged_is_held() {
    let folder = Folder::new();
    let store = folder.store();
    granted(&store, "x", owner(1, 0), TTL);
    sql(&folder, "UPDATE lease SET token = -5, pid = -1, handle = x'00', since = -9223372036854775808");
    let holder = held(&store, "x", owner(1, 0), TTL);
    assert!(holder.problem.is_some_and(|problem| problem.contains("damaged")));
    sql(
        &folder,
        "INSERT INTO lease SELECT x'ff', 1, token, owner, boot, expires, ttl, since, handle, early, host, pid, text FROM lease",
    );
    assert_eq!(block_on(store.list(None, 10)).unwrap().len(), 1, "a name that is none is not listed");
}

#[test]
fn a_record_that_is_damaged_stays_held_also_when_its_end_can_not_be_told_or_is_past() {
    for damage in ["expires = -5", "token = -5, expires = 1"] {
        let folder = Folder::new();
        let store = folder.store();
        granted(&store, "x", owner(1, 0), TTL);
        sql(&folder, &format!("UPDATE lease SET {damage}"));
        // What is over is removed beside a batch that acquires, and on opening.
        granted(&store, "y", owner(1, 1), TTL);
        held(&store, "x", owner(2, 0), TTL);
        held(&folder.store(), "x", owner(2, 0), TTL);
        let listed = block_on(store.list(None, 1)).unwrap();
        assert_eq!(listed.iter().map(|record| &record.name).collect::<Vec<_>>(), [&name("x")], "{damage}");
    }
}

#[test]
fn a_row_that_can_not_be_listed_does_not_make_a_page_short() {
    let folder = Folder::new();
    let store = folder.store();
    granted(&store, "b", owner(1, 0), TTL);
    sql(
        &folder,
        "INSERT INTO lease SELECT x'61ff', format, token, owner, boot, expires, ttl, since, handle, early, host, pid, text FROM lease",
    );
    assert_eq!(block_on(store.list(None, 1)).unwrap().len(), 1, "a short page would look like the last");
}

#[test]
fn a_removed_file_loses_its_leases_and_a_new_one_goes_on_with_higher_tokens() {
    let folder = Folder::new();
    let store = folder.store();
    let mut hints = store.hints().unwrap();
    let first = granted(&store, "x", owner(1, 0), TTL);
    block_on(store.watch(name("x"))).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(with_suffix(&folder.database(), suffix)).unwrap();
    }
    assert_eq!(renew(&store, "x", owner(1, 0), first, TTL), Ok(Renewed::NotYours));
    assert!(folder.database().exists());
    assert_eq!(within(hints.next()), Some(Hint::Resync));
    let second = granted(&folder.store(), "x", owner(2, 0), TTL);
    assert!(second > first);
    let mut told = within(hints.next());
    if matches!(told, Some(Hint::Lease { wake: Wake::Free { .. }, .. })) {
        told = within(hints.next());
    }
    assert!(
        matches!(told, Some(Hint::Lease { wake: Wake::Held { token, .. }, .. }) if token == second),
        "the watch goes on: {told:?}"
    );
    assert_eq!(held(&store, "x", owner(1, 0), TTL).token, Some(second));
}

#[test]
fn a_file_that_was_put_back_from_a_copy_revives_no_lease() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    let copy = folder.path().join("copy.db");
    Connection::open(folder.database()).unwrap().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    fs::rename(&copy, folder.database()).unwrap();
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(with_suffix(&folder.database(), suffix)).unwrap();
    }
    // The record is there, unexpired, with owner and token, but it was granted in another file.
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours));
    assert_eq!(held(&store, "x", owner(1, 1), TTL).token, Some(token));
    assert_eq!(held(&folder.store(), "x", owner(2, 0), TTL).token, Some(token), "nor is it free for others");
    assert!(granted(&store, "x", owner(1, 0), TTL) > token, "asked again, it is a new grant");
}

#[test]
fn a_copy_of_a_liveness_file_proves_no_death() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    // As if everything had been moved to another disk and back: of locks there are no copies.
    let live = with_suffix(&folder.database(), ".live");
    let moved = with_suffix(&folder.database(), ".moved");
    fs::rename(&live, &moved).unwrap();
    fs::create_dir(&live).unwrap();
    for entry in fs::read_dir(&moved).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), live.join(entry.file_name())).unwrap();
    }
    assert_eq!(held(&folder.store(), "x", owner(2, 0), TTL).token, Some(token), "its holder lives");
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::Renewed));
}

#[test]
fn a_log_that_was_removed_or_a_folder_that_was_moved_loses_the_leases() {
    for broken in ["-wal", "-shm"] {
        let folder = Folder::new();
        let store = folder.store();
        let token = granted(&store, "x", owner(1, 0), TTL);
        fs::remove_file(with_suffix(&folder.database(), broken)).unwrap();
        assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours), "{broken}");
        assert!(granted(&store, "y", owner(1, 1), TTL) > token);
    }
    let folder = Folder::new();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let store = SqliteStore::open(inner.join("a.db")).unwrap();
    let token = granted(&store, "x", owner(1, 0), TTL);
    fs::rename(&inner, folder.path().join("elsewhere")).unwrap();
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours));
    let error = try_acquire(&store, acquire("x", owner(1, 1), TTL)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours), "lost for good");
    fs::rename(folder.path().join("elsewhere"), &inner).unwrap();
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours), "also when it comes back");
}

#[test]
fn a_file_with_two_names_is_refused_and_one_reached_through_links_is_one_store() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    let link = folder.path().join("link.db");
    symlink(folder.database(), &link).unwrap();
    let linked = SqliteStore::open(&link).unwrap();
    assert_eq!(held(&linked, "x", owner(2, 0), TTL).token, Some(token));
    assert!(!with_suffix(&link, "-wal").exists() && !with_suffix(&link, ".live").exists());

    let second_name = folder.path().join("second.db");
    fs::hard_link(folder.database(), &second_name).unwrap();
    refused(&SqliteStore::open(&second_name).unwrap(), StoreErrorKind::Rejected, &["2 names", "hard links"]);
}

#[test]
fn a_link_that_is_turned_to_another_file_loses_the_leases() {
    let folder = Folder::new();
    let current = folder.path().join("current");
    for release in ["1", "2"] {
        fs::create_dir(folder.path().join(release)).unwrap();
    }
    symlink("1", &current).unwrap();
    let path = current.join("a.db");
    let store = SqliteStore::open(&path).unwrap();
    let token = granted(&store, "x", owner(1, 0), TTL);
    fs::remove_file(&current).unwrap();
    symlink("2", &current).unwrap();
    let next = granted(&SqliteStore::open(&path).unwrap(), "x", owner(2, 0), TTL);
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours), "there is another holder");
    assert_eq!(held(&store, "x", owner(1, 1), TTL).token, Some(next));
}

#[test]
fn leases_of_an_earlier_boot_are_over_and_tokens_still_rise() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    block_on(store.close());
    sql(&folder, "UPDATE store SET boot = 'an earlier one'; UPDATE lease SET boot = 'an earlier one'");
    let store = folder.store();
    assert_eq!(block_on(store.inspect(name("x"))), Ok(None));
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours));
    assert!(granted(&store, "x", owner(1, 0), TTL) > token);
}

#[test]
fn a_process_with_another_clock_is_refused() {
    let folder = Folder::new();
    block_on(folder.store().list(None, 1)).unwrap();
    sql(&folder, "UPDATE store SET time_namespace = time_namespace + 1");
    refused(&folder.store(), StoreErrorKind::Unsupported, &["another clock", "time namespace"]);
}

#[test]
fn a_store_that_another_machine_has_taken_over_grants_nothing_any_more() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    // What the other machine does when it opens the file.
    sql(&folder, "UPDATE store SET boot = 'of the other machine'; DELETE FROM lease; DELETE FROM waiter");
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::NotYours));
    let error = try_acquire(&store, acquire("y", owner(1, 1), TTL)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("another machine"), "{error}");
}

#[test]
fn tokens_rise_when_the_store_has_lost_its_memory() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    sql(&folder, "UPDATE store SET high_water = 0; DELETE FROM lease");
    assert!(granted(&folder.store(), "x", owner(2, 0), TTL) > token, "by the wall clock");
    let mut request = acquire("y", owner(1, 1), TTL);
    request.floor = Token::new(token.get() * 2);
    let Ok(Acquired::Granted(high)) = try_acquire(&store, request) else { panic!() };
    sql(&folder, "UPDATE store SET high_water = 0; DELETE FROM lease");
    assert!(granted(&store, "y", owner(1, 2), TTL) > high, "by this handle's memory");
}

#[test]
fn a_truncated_or_overwritten_file_is_refused_or_gives_no_lower_token() {
    for damage in ["last page", "half", "all but the header", "zeros in the middle"] {
        let folder = Folder::new();
        let store = folder.store();
        let mut last = Token::ZERO;
        for n in 0..100 {
            last = granted(&store, &format!("lease {n} {}", "x".repeat(200)), owner(1, n), TTL);
        }
        block_on(store.close());
        assert!(
            !with_suffix(&folder.database(), "-wal").exists(),
            "the last to close puts all into one file"
        );
        let mut bytes = fs::read(folder.database()).unwrap();
        let size = bytes.len();
        assert!(size > 5 * 4096);
        match damage {
            "last page" => bytes.truncate(size - 4096),
            "half" => bytes.truncate(size / 2),
            "all but the header" => bytes.truncate(100),
            _ => bytes[4096..size - 4096].fill(0),
        }
        fs::write(folder.database(), &bytes).unwrap();
        match try_acquire(&folder.store(), acquire("new", owner(2, 0), TTL)) {
            Ok(Acquired::Granted(token)) => assert!(token > last, "{damage}"),
            Ok(Acquired::Held(holder)) => panic!("{damage}: {holder:?}"),
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unsupported, "{damage}: {error}");
                assert!(error.to_string().contains("leases.db"), "{damage}: {error}");
                assert!(error.to_string().contains("tokens go on rising"), "{damage}: {error}");
            }
        }
    }
}

#[test]
fn a_file_that_is_destroyed_while_it_is_open_gives_no_lease() {
    let folder = Folder::new();
    let store = folder.store();
    let token = granted(&store, "x", owner(1, 0), TTL);
    // Written over in place, so that it is the same file.
    for suffix in ["", "-wal"] {
        let path = with_suffix(&folder.database(), suffix);
        let size = fs::metadata(&path).unwrap().len();
        fs::write(&path, vec![0xa5; usize::try_from(size).unwrap()]).unwrap();
    }
    let other = SqliteStore::open(folder.database()).unwrap();
    match try_acquire(&other, acquire("x", owner(2, 0), TTL)) {
        Ok(Acquired::Held(holder)) => assert_eq!(holder.token, Some(token)),
        Ok(Acquired::Granted(token)) => panic!("granted {token} though it is held"),
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Unsupported, "{error}"),
    }
}

/// A small tmpfs, or `None` with a word about it when this process may not mount.
fn small_file_system(at: &Path) -> Option<Mounted> {
    use rustix::mount::{MountFlags, mount};
    fs::create_dir(at).unwrap();
    match mount("tenure-test", at, "tmpfs", MountFlags::empty(), Some(c"size=256k")) {
        Ok(()) => Some(Mounted(at.to_owned())),
        Err(error) => {
            println!("skipped: a file system can't be mounted here ({error})");
            None
        }
    }
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_file_that_is_mounted_without_its_folder_is_refused() {
    let folder = Folder::new();
    let store = folder.store();
    granted(&store, "x", owner(1, 0), TTL);
    // As a container has it that was given the file alone: its log would be another one.
    let alone = folder.path().join("alone.db");
    fs::write(&alone, "").unwrap();
    if let Err(error) = rustix::mount::mount_bind(folder.database(), &alone) {
        println!("skipped: a file can't be mounted here ({error})");
        return;
    }
    let _mounted = Mounted(alone.clone());
    refused(&SqliteStore::open(&alone).unwrap(), StoreErrorKind::Rejected, &["alone.db", "mount the folder"]);
    assert!(!with_suffix(&alone, "-wal").exists());
}

#[test]
fn a_full_disk_is_a_transient_error_and_leases_go_on_when_there_is_room_again() {
    let folder = Folder::new();
    let at = folder.path().join("small");
    let Some(_mounted) = small_file_system(&at) else { return };
    let store = SqliteStore::open(at.join("a.db")).unwrap();
    let token = granted(&store, "x", owner(1, 0), TTL);
    let ballast = at.join("ballast");
    let filled = fs::write(&ballast, vec![1; 1 << 20]);
    assert!(filled.is_err(), "the disk is full now");
    let mut failure = None;
    until("the disk's being full is felt", || {
        match try_acquire(&store, acquire("y", owner(1, 1), TTL)) {
            Ok(Acquired::Granted(token)) => {
                let _ = release(&store, "y", owner(1, 1), Some(token));
            }
            Ok(Acquired::Held(_)) => {}
            Err(error) => failure = Some(error),
        }
        failure.is_some()
    });
    let failure = failure.unwrap();
    assert!(
        matches!(failure.kind, StoreErrorKind::Transient | StoreErrorKind::Unknown),
        "time may mend it: {failure}"
    );
    assert!(failure.to_string().contains("full"), "{failure}");
    fs::remove_file(&ballast).unwrap();
    assert_eq!(renew(&store, "x", owner(1, 0), token, TTL), Ok(Renewed::Renewed));
    block_on(store.close());

    // A store that can't even be created.
    let _ = fs::write(&ballast, vec![1; 1 << 20]);
    let store = SqliteStore::open(at.join("b.db")).unwrap();
    let error = try_acquire(&store, acquire("x", owner(1, 0), TTL)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Transient, "{error}");
}

#[test]
fn a_file_system_that_may_only_be_read_is_refused() {
    use rustix::mount::{MountFlags, mount_remount};
    let folder = Folder::new();
    let at = folder.path().join("small");
    let Some(_mounted) = small_file_system(&at) else { return };
    let store = SqliteStore::open(at.join("a.db")).unwrap();
    granted(&store, "x", owner(1, 0), Duration::from_millis(50));
    block_on(store.close());
    // The thread of the store has just closed its files.
    until("the file system can be made read-only", || mount_remount(&at, MountFlags::RDONLY, c"").is_ok());
    refused(&SqliteStore::open(at.join("a.db")).unwrap(), StoreErrorKind::Rejected, &["a.db"]);
    refused(&SqliteStore::open(at.join("new.db")).unwrap(), StoreErrorKind::Rejected, &["new.db"]);
}

#[test]
fn a_file_system_that_is_not_local_is_refused_unless_that_is_wanted() {
    let store = SqliteStore::open("/proc/a.db").unwrap();
    refused(&store, StoreErrorKind::Rejected, &["file system", "fs=any"]);
    let store = SqliteStore::from_url("sqlite:/proc/a.db?fs=any").unwrap();
    let error = try_acquire(&store, acquire("x", owner(1, 0), TTL)).unwrap_err();
    assert!(!error.to_string().contains("fs=any"), "{error}");
}
