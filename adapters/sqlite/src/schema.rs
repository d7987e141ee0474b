//! The tables of a store, and how a database is opened.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags, OptionalExtension as _, params};
use tenure_core::Instant;
use tenure_store::StoreError;

use crate::clock::{self, Boot};
use crate::error::{is_busy, store_error};
use crate::file::{self, Identity};
use crate::options::SqliteOptions;

/// `PRAGMA application_id` of our databases: "Tenr" in ASCII.
pub(crate) const APPLICATION_ID: i32 = 0x5465_6e72;
/// `PRAGMA user_version`: the format of the tables that this crate writes and reads.
pub(crate) const FORMAT: i32 = 1;

/// The tables of format 1. They are described in the documentation of the crate.
const TABLES: &str = "
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    time_namespace INTEGER NOT NULL,
    high_water INTEGER NOT NULL
) STRICT;
CREATE TABLE lease (
    name BLOB NOT NULL PRIMARY KEY,
    format INTEGER NOT NULL,
    token INTEGER NOT NULL,
    owner TEXT NOT NULL,
    boot TEXT NOT NULL,
    expires INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    since INTEGER NOT NULL,
    handle BLOB NOT NULL,
    early INTEGER NOT NULL,
    host TEXT,
    pid INTEGER,
    text TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE waiter (
    name BLOB NOT NULL,
    handle BLOB NOT NULL,
    boot TEXT NOT NULL,
    since INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    early INTEGER NOT NULL,
    chosen INTEGER NOT NULL,
    PRIMARY KEY (name, handle)
) STRICT, WITHOUT ROWID;
";

/// A database that is open and checked.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// With links followed.
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) boot: Boot,
}

/// All openings of this process happen one after the other: see [`file::prepare`].
static OPENING: Mutex<()> = Mutex::new(());

/// Opens the database, creating it if it is missing, waiting for other processes until `until`.
pub(crate) fn open(options: &SqliteOptions, until: Instant) -> Result<Opened, StoreError> {
    let boot = Boot::current()?;
    let path = file::locate(options)?;
    let doing = "can't open the store";
    let (connection, before) = {
        let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let before = file::prepare(&path, options)?;
        peek(&path)?;
        // Not SQLITE_OPEN_CREATE: the file is there, with the permissions that it should have.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(|error| store_error(&path, doing, &error))?;
        (connection, before)
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
    use_wal(&connection, &path, until)?;
    check_pages(&connection, &path, until)?;
    enter_boot(&connection, &path, &boot, until)?;

    let identity = Identity::of(&path).map_err(|error| crate::error::file_error(&path, doing, &error))?;
    if identity.database() != before {
        return Err(StoreError::transient(format!(
            "{}: the file was replaced while it was being opened; try again",
            path.display()
        )));
    }
    Ok(Opened { connection, path, identity, boot })
}

/// Looks at a database without touching it: no lock, no log, no recovery. What is not ours stays as it is.
fn peek(path: &Path) -> Result<(), StoreError> {
    let doing = "can't look at the store";
    let empty = path.metadata().map_err(|error| crate::error::file_error(path, doing, &error))?.len() == 0;
    if empty {
        return Ok(());
    }
    let url = format!("file:{}?immutable=1", percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC));
    // SQLite itself has to do it: were this process to open and close the file by other means, the system
    // would end the locks that another handle of this process has on it.
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let ids = Connection::open_with_flags(url, flags).and_then(|connection| ids(&connection));
    check_ids(path, ids.map_err(|error| store_error(path, doing, &error))?)
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
    check_format(path, format)
}

/// Refuses every format but ours.
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
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; {TABLES}
             INSERT INTO store VALUES (1, '', 0, 0);"
        ))?;
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
    let damaged = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(store_error(path, doing, &rusqlite::Error::SqliteFailure(damaged, Some(said))))
}

/// Ends everything that is of an earlier boot of the machine, and refuses processes of other time namespaces.
/// Usually reading is enough for that: who only wants to look is not held up by others' transactions.
fn enter_boot(connection: &Connection, path: &Path, boot: &Boot, until: Instant) -> Result<(), StoreError> {
    let doing = "can't read the state of the store";
    let stored = wait_while_busy(path, doing, until, || stored_boot(connection))?;
    if is_this_boot(path, stored, boot)? {
        return Ok(());
    }
    transaction(connection, path, doing, until, |connection| {
        match is_this_boot(path, stored_boot(connection)?, boot) {
            Ok(false) => {}
            Ok(true) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
        connection.execute(
            "UPDATE store SET boot = ?1, time_namespace = ?2 WHERE one = 1",
            params![boot.id, boot.time_namespace],
        )?;
        // What a newer version wrote counts as held until that version removes it.
        connection.execute("DELETE FROM lease WHERE format = ?1", [FORMAT])?;
        connection.execute("DELETE FROM waiter", [])?;
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

/// Whether the store's times are of this boot, and on this process's clock.
fn is_this_boot(path: &Path, stored: Option<Boot>, boot: &Boot) -> Result<bool, StoreError> {
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
    Ok(stored.id == boot.id)
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
                    return Err(StoreError::transient(format!(
                        "{}: {doing}: another process has kept the store locked for {:?}; was one that uses it \
                         stopped in the middle of a transaction?",
                        path.display(),
                        now.saturating_since(begun)
                    )));
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
