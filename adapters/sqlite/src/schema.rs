//! How a database is opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags, OptionalExtension as _, ffi, params};
use tenure_core::Instant;
use tenure_store::StoreError;

use crate::clock::{self, Boot};
use crate::error::{file_error, is_busy, store_error};
use crate::file::{self, FileId, Identity};
use crate::liveness::LiveFolder;
use crate::options::SqliteOptions;
use crate::tables::{LEASE_TABLES, MEMBER_TABLES, TIMER_TABLES};

/// `PRAGMA application_id` of our databases: "Tenr" in ASCII.
pub(crate) const APPLICATION_ID: i32 = 0x5465_6e72;
/// `PRAGMA user_version`: the format of the tables that this crate writes and reads. Databases of the earlier ones are
/// brought up to it when they are opened.
pub(crate) const FORMAT: i32 = 3;
/// The first format.
const OLDEST: i32 = 1;
/// The column `format` of the rows that this crate writes and reads.
pub(crate) const ROW_FORMAT: i32 = 1;

/// A database that is open and checked.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// Dropped after the connection.
    #[expect(dead_code, reason = "it is there to be dropped")]
    listed: Listed,
    /// With links followed.
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) boot: Boot,
}

/// The databases that this process has open, and how often. Whoever holds it opens and closes files alone.
///
/// When a process closes a file, the system ends all its POSIX locks on that file, also those that SQLite has
/// by other descriptors. So a database file is opened by other means than SQLite's only when it is certain that
/// no handle of this process has it open.
static OPEN: Mutex<BTreeMap<FileId, usize>> = Mutex::new(BTreeMap::new());

fn open_files() -> MutexGuard<'static, BTreeMap<FileId, usize>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the list of databases that are open.
#[derive(Debug)]
pub(crate) struct Listed(FileId);

impl Drop for Listed {
    fn drop(&mut self) {
        let mut open = open_files();
        if let Some(times) = open.get_mut(&self.0) {
            *times -= 1;
            if *times == 0 {
                open.remove(&self.0);
            }
        }
    }
}

/// Opens the database, creating it if it is missing, waiting for other processes until `until`.
pub(crate) fn open(options: &SqliteOptions, until: Instant) -> Result<Opened, StoreError> {
    let boot = Boot::current()?;
    let path = file::locate(options)?;
    let doing = "can't open the store";
    let (connection, before, listed) = {
        let mut open = open_files();
        let before = file::prepare(&path, options)?;
        if !open.contains_key(&before) {
            peek(&path, before)?;
        }
        // Not SQLITE_OPEN_CREATE: the file is there, with the permissions that it should have.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(|error| store_error(&path, doing, &error))?;
        *open.entry(before).or_default() += 1;
        (connection, before, Listed(before))
    };
    let failed = |error: rusqlite::Error| store_error(&path, doing, &error);
    if connection.is_readonly(MAIN_DB).map_err(failed)? {
        return Err(StoreError::rejected(format!(
            "{}: this process may only read it; it needs to write to the file and to its folder",
            path.display()
        )));
    }
    wait_while_busy(&path, doing, until, || configure(&connection))?;
    create_tables(&connection, &path, until)?;
    upgrade(&connection, &path, until)?;
    use_wal(&connection, &path, until)?;
    check_pages(&connection, &path, until)?;
    enter_boot(&connection, &path, &boot, until)?;

    let identity = Identity::of(&path, options.path()).map_err(|error| file_error(&path, doing, &error))?;
    if identity.database() != before {
        return Err(StoreError::transient(format!(
            "{}: the file was replaced while it was being opened; try again",
            path.display()
        )));
    }
    Ok(Opened { connection, listed, path, identity, boot })
}

/// Looks at the header of a database without touching it: no lock, no log, no recovery. What is not ours stays
/// as it is.
///
/// SQLite can't do that. Without its locks and its log it finds a file damaged that another process is writing
/// to, or had been when it was killed; with them it would begin to repair what may be somebody else's.
fn peek(path: &Path, id: FileId) -> Result<(), StoreError> {
    /// Files of others that were refused stay open until the process ends: it may have one of them open as a
    /// database of its own, and closing it here would end the locks on it. So many are kept, each once.
    static REFUSED: Mutex<BTreeMap<FileId, File>> = Mutex::new(BTreeMap::new());
    const MOST: usize = 64;
    let failed = |error: io::Error| file_error(path, "can't look at the store", &error);
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = refused.get(&id) {
        return check_header(path, &read_header(file).map_err(failed)?);
    }
    let file = File::open(path).map_err(failed)?;
    let checked = read_header(&file).map_err(failed).and_then(|header| check_header(path, &header));
    if checked.is_err() && refused.len() < MOST {
        refused.insert(id, file);
    }
    checked
}

/// The header of a file, or less if the file is shorter.
fn read_header(file: &File) -> io::Result<Vec<u8>> {
    let mut header = vec![0; HEADER];
    let mut length = 0;
    while length < HEADER {
        match file.read_at(&mut header[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    header.truncate(length);
    Ok(header)
}

/// The length of an SQLite file's header, and what stands where in it:
/// <https://sqlite.org/fileformat2.html#the_database_header>.
const HEADER: usize = 100;

pub(crate) fn check_header(path: &Path, header: &[u8]) -> Result<(), StoreError> {
    if header.is_empty() {
        return Ok(());
    }
    let number = |at: usize| -> Option<i32> {
        header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes)
    };
    match (number(68), number(60)) {
        (Some(application), Some(format)) if header.starts_with(b"SQLite format 3\0") => {
            check_ids(path, (application, format))
        }
        _ => Err(store_error(path, "can't look at the store", &failure(ffi::SQLITE_NOTADB, None))),
    }
}

/// An error as SQLite would give it.
fn failure(code: i32, message: Option<String>) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), message)
}

/// Application id and format of a database.
fn ids(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let application = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let format = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok((application, format))
}

fn check_ids(path: &Path, (application, format): (i32, i32)) -> Result<(), StoreError> {
    if application != APPLICATION_ID {
        return Err(StoreError::rejected(format!(
            "{}: it is a database of another program (application id {application:#x}), so it was left as it \
             is; choose another path",
            path.display()
        )));
    }
    if (OLDEST..FORMAT).contains(&format) { Ok(()) } else { check_format(path, format) }
}

/// Refuses every format but ours, also the earlier ones: a database that is open has been brought up to it.
pub(crate) fn check_format(path: &Path, format: i32) -> Result<(), StoreError> {
    if format == FORMAT {
        return Ok(());
    }
    let advice = if format > FORMAT {
        "update this program; until then it can't know who holds a lease"
    } else {
        "this is no format of a published version; choose another path"
    };
    Err(StoreError::unsupported(format!(
        "{}: the store has format {format}, this program knows format {FORMAT}: {advice}",
        path.display()
    )))
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // Waiting is done by `wait_while_busy`, which knows how long each operation may take.
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    // NORMAL: a commit survives the death of any process; after a power failure the last ones may be gone,
    // but then every lease is over anyway, and tokens go on above the wall clock.
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON; PRAGMA journal_size_limit = 8388608;",
    )?;
    Ok(())
}

/// Creates the tables in a database that is empty. This is done before the change to WAL: so the first page
/// of the file itself always says whose it is.
fn create_tables(connection: &Connection, path: &Path, until: Instant) -> Result<(), StoreError> {
    let doing = "can't create the tables";
    let known = wait_while_busy(path, doing, until, || ids(connection))?;
    if known != (0, 0) {
        return check_ids(path, known);
    }
    transaction(connection, path, doing, until, |connection| {
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let ids = ids(connection)?;
        if tables > 0 || ids != (0, 0) {
            return Ok(check_ids(path, ids));
        }
        connection.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};
             {LEASE_TABLES} {TIMER_TABLES} {MEMBER_TABLES}
             INSERT INTO store VALUES (1, '', 0, 0);"
        ))?;
        Ok(Ok(()))
    })
}

/// Brings a database of an earlier format up to ours. What stands in it stays; programs that know only the earlier
/// format are refused from then on.
fn upgrade(connection: &Connection, path: &Path, until: Instant) -> Result<(), StoreError> {
    let doing = "can't bring the store up to the format of this program";
    let (_, format) = wait_while_busy(path, doing, until, || ids(connection))?;
    if format == FORMAT {
        return Ok(());
    }
    transaction(connection, path, doing, until, |connection| {
        let known = ids(connection)?;
        if let Err(error) = check_ids(path, known) {
            return Ok(Err(error));
        }
        // Another process may have done it by now.
        let tables = match known.1 {
            FORMAT => return Ok(Ok(())),
            OLDEST => [TIMER_TABLES, MEMBER_TABLES].concat(),
            _ => MEMBER_TABLES.to_owned(),
        };
        connection.execute_batch(&format!("{tables} PRAGMA user_version = {FORMAT};"))?;
        Ok(Ok(()))
    })
}

fn use_wal(connection: &Connection, path: &Path, until: Instant) -> Result<(), StoreError> {
    let doing = "can't switch to the write-ahead log";
    let mode: String = wait_while_busy(path, doing, until, || {
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
    })?;
    if mode == "wal" {
        return Ok(());
    }
    Err(StoreError::unsupported(format!(
        "{}: {doing}: the file system has no memory that processes can share; choose a path on a local disk",
        path.display()
    )))
}

/// Looks through the whole file, if that is quick: a file that was cut, or that does not fit its log, is refused
/// as a whole and not only where it is damaged.
fn check_pages(connection: &Connection, path: &Path, until: Instant) -> Result<(), StoreError> {
    /// 4 MB, some ten thousand leases; it takes some ten milliseconds.
    const MOST: i64 = 1024;
    let doing = "can't check the file";
    let pages: i64 = wait_while_busy(path, doing, until, || {
        connection.query_row("PRAGMA page_count", [], |row| row.get(0))
    })?;
    if pages > MOST {
        return Ok(());
    }
    let said: String = wait_while_busy(path, doing, until, || {
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    })?;
    if said == "ok" {
        return Ok(());
    }
    Err(store_error(path, doing, &failure(ffi::SQLITE_CORRUPT, Some(said))))
}

/// Ends everything that is of an earlier boot of the machine, and refuses processes of other time namespaces.
/// Usually reading is enough for that: who only wants to look is not held up by others' transactions.
fn enter_boot(connection: &Connection, path: &Path, boot: &Boot, until: Instant) -> Result<(), StoreError> {
    let doing = "can't read the state of the store";
    let stored = wait_while_busy(path, doing, until, || stored_boot(connection))?;
    if other_boot(path, stored, boot)?.is_none() {
        return Ok(());
    }
    transaction(connection, path, doing, until, |connection| {
        match other_boot(path, stored_boot(connection)?, boot) {
            Ok(Some(stored)) if LiveFolder::of(path).lives_in(&stored) => {
                return Ok(Err(StoreError::unsupported(format!(
                    "{}: processes that run now use this store and have another boot id than this one ({stored} and \
                     {}), so their leases are not over; containers that share a store must see the machine's own \
                     /proc/sys/kernel/random/boot_id",
                    path.display(),
                    boot.id
                ))));
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
        connection.execute(
            "UPDATE store SET boot = ?1, time_namespace = ?2 WHERE one = 1",
            params![boot.id, boot.time_namespace],
        )?;
        // What a newer version wrote counts as held until that version removes it.
        connection.execute("DELETE FROM lease WHERE format = ?1", [ROW_FORMAT])?;
        connection.execute("DELETE FROM waiter", [])?;
        connection.execute("DELETE FROM member WHERE format = ?1", [ROW_FORMAT])?;
        connection.execute("UPDATE fleet SET version = version + 1", [])?;
        Ok(Ok(()))
    })
}

fn stored_boot(connection: &Connection) -> rusqlite::Result<Option<Boot>> {
    connection
        .query_row("SELECT boot, time_namespace FROM store WHERE one = 1", [], |row| {
            Ok(Boot { id: row.get(0)?, time_namespace: row.get(1)? })
        })
        .optional()
}

/// The id of the boot that the store's times are of, if it is another one than this process's.
fn other_boot(path: &Path, stored: Option<Boot>, boot: &Boot) -> Result<Option<String>, StoreError> {
    let Some(stored) = stored else {
        return Err(StoreError::unsupported(format!(
            "{}: the store has lost its state; stop all programs that use it and move it away together with its \
             -wal and -shm files",
            path.display()
        )));
    };
    if stored.id == boot.id && stored.time_namespace != boot.time_namespace {
        return Err(StoreError::unsupported(format!(
            "{}: the processes that use this store have another clock than this one (time namespaces {} and {}), \
             so it can't know when their leases end; run it in the same time namespace",
            path.display(),
            stored.time_namespace,
            boot.time_namespace
        )));
    }
    Ok((stored.id != boot.id).then_some(stored.id))
}

/// Runs a transaction that is begun as a writer; it is rolled back if either result is an error.
pub(crate) fn transaction<T>(
    connection: &Connection,
    path: &Path,
    doing: &str,
    until: Instant,
    run: impl FnOnce(&Connection) -> rusqlite::Result<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    wait_while_busy(path, doing, until, || begin(connection))?;
    let result = match run(connection) {
        // Before the change to WAL a commit waits for those who read.
        Ok(Ok(value)) => {
            wait_while_busy(path, doing, until, || connection.execute_batch("COMMIT")).map(|()| value)
        }
        Ok(Err(error)) => Err(error),
        Err(error) => Err(store_error(path, doing, &error)),
    };
    if !connection.is_autocommit() {
        // Nothing to be done about it: a connection that can't roll back fails at its next use.
        let _ = connection.execute_batch("ROLLBACK");
    }
    result
}

/// Begins a transaction as a writer, if nobody else is in one.
pub(crate) fn begin(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)
}

/// Tries again while another process has the database locked, until `until`.
///
/// SQLite's own way of waiting sleeps ever longer and lets a process wait for hundreds of milliseconds behind
/// others that take turns; this one yields first and then looks every 200 µs.
pub(crate) fn wait_while_busy<T>(
    path: &Path,
    doing: &str,
    until: Instant,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    const YIELDS: u32 = 16;
    const PAUSE: Duration = Duration::from_micros(200);
    let begun = clock::now();
    let mut attempts = 0;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if is_busy(&error) => {
                let now = clock::now();
                if now >= until {
                    let waited = now.saturating_since(begun);
                    let why = if waited < PAUSE {
                        "another process has the store locked, and no time was left to wait for it".to_owned()
                    } else {
                        format!(
                            "another process has kept the store locked for {waited:?}; was one that uses it \
                             stopped in the middle of a transaction?"
                        )
                    };
                    return Err(StoreError::transient(format!("{}: {doing}: {why}", path.display())));
                }
                if attempts < YIELDS {
                    std::thread::yield_now()
                } else {
                    std::thread::sleep(PAUSE)
                }
                attempts += 1;
            }
            Err(error) => return Err(store_error(path, doing, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_tells_whose_the_file_is() {
        let path = Path::new("/a.db");
        let mut header = b"SQLite format 3\0".to_vec();
        header.resize(HEADER, 0);
        header[68..72].copy_from_slice(&APPLICATION_ID.to_be_bytes());
        header[60..64].copy_from_slice(&FORMAT.to_be_bytes());
        assert_eq!(check_header(path, &header), Ok(()));
        assert_eq!(check_header(path, &[]), Ok(()), "an empty file becomes a store");
        header[60..64].copy_from_slice(&OLDEST.to_be_bytes());
        assert_eq!(check_header(path, &header), Ok(()), "it is brought up to ours");
        let refused = |header: &[u8]| check_header(path, header).unwrap_err().to_string();
        assert!(refused(&header[..70]).contains("not an SQLite database"));
        assert!(refused(&[b'x'; HEADER]).contains("not an SQLite database"));
        for format in [FORMAT + 1, OLDEST - 1, -1] {
            header[60..64].copy_from_slice(&format.to_be_bytes());
            assert!(refused(&header).contains(&format!("format {format},")));
        }
        header[71] = 0;
        assert!(refused(&header).contains("another program"));
    }

    #[test]
    fn a_boot_of_which_a_process_lives_is_not_taken_for_one_that_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(folder.path().join("a.db")).unwrap();
        let lineage = crate::liveness::Lineage::draw().unwrap();
        let process = crate::database::Database::open(&options, lineage, clock::now()).unwrap();
        let Opened { connection, path, boot, .. } = &open(&options, clock::now()).unwrap();
        // As a process of a container that has a boot id of its own.
        let other = Boot { id: "of a container".to_owned(), ..boot.clone() };
        let error = enter_boot(connection, path, &other, clock::now()).unwrap_err().to_string();
        assert!(error.contains("boot id") && error.contains("of a container"), "{error}");
        assert_eq!(stored_boot(connection).unwrap().as_ref(), Some(boot));
        drop(process);
        assert_eq!(enter_boot(connection, path, &other, clock::now()), Ok(()));
        assert_eq!(stored_boot(connection).unwrap(), Some(other));
    }

    #[test]
    fn looking_at_a_file_of_the_same_process_again_and_again_ends_none_of_its_locks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("diary.db");
        let diary = Connection::open(&path).unwrap();
        diary.execute_batch("CREATE TABLE diary (entry TEXT); BEGIN EXCLUSIVE").unwrap();
        let options = SqliteOptions::new(&path).unwrap();
        for _ in 0..3 {
            assert!(open(&options, clock::now()).unwrap_err().to_string().contains("another program"));
        }
        // Another process would see the lock. This one asks the system, which lists all locks by inode.
        let inode = std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
        let mine = |line: &str| line.contains("POSIX") && line.contains(&format!(":{inode} "));
        let look = || std::fs::read_to_string("/proc/locks").ok();
        // The system tells them piece by piece. While others take and end theirs some are left out of what it tells; but
        // what is gone is never told again.
        let is_there = |_| look().is_none_or(|locks| locks.lines().any(mine));
        assert!((0..1000).any(is_there), "the lock is still there: {:?}", look());
    }
}
