//! What other programs, newer versions and damage may leave in the files of a store: for the fuzz target `records`, and
//! only there (`--cfg fuzzing`).
//!
//! Each function panics if something other than "held" or "unknown" is made of what can't be read.

pub mod members;
pub mod timers;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ToSql, params_from_iter, types::ToSqlOutput, types::Value, types::ValueRef};
use tenure_core::{Acquisition, Identity, Incarnation, Instant, LeaseName, Timestamp, Token};
use tenure_store::{
    Acquire, Acquired, Answer, Eviction, Metadata, Operation, Outcome, Release, Released, Renew, Renewed,
};

use crate::liveness::{HandleId, Life, Lineage, LiveFolder, Liveness, said_of};
use crate::record::{self, Record};
use crate::schema::{self, FORMAT, ROW_FORMAT};
use crate::tables;
use crate::tx::Transaction;

const COLUMNS: usize = 13;

/// What stands in a column. SQLite checks neither that a text is UTF-8 nor, in tables that are not strict, its type.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "SQLite's types")]
#[expect(missing_docs, reason = "SQLite's types")]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

/// A row of the table of leases: its columns in the order of the documentation.
pub type Row = [Cell; COLUMNS];

/// What is done with a store in which the rows stand.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "all that can be done")]
#[expect(missing_docs, reason = "they are named after the operations")]
pub enum Act {
    Acquire { name: u8, wait: bool },
    Renew { name: u8, token: u64 },
    Release { name: u8, token: Option<u64> },
    Evict { name: u8, delete: bool },
    List,
    Sweep,
}

impl Cell {
    fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(value) => Self::Integer(value),
            ValueRef::Real(value) => Self::Real(value),
            ValueRef::Text(bytes) => Self::Text(bytes.to_vec()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::Text(bytes) if str::from_utf8(bytes).is_ok())
    }

    fn is_whole(&self) -> bool {
        matches!(self, Self::Integer(0..))
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Integer(value) => ToSqlOutput::Owned(Value::Integer(*value)),
            Self::Real(value) => ToSqlOutput::Owned(Value::Real(*value)),
            Self::Text(bytes) => ToSqlOutput::Borrowed(ValueRef::Text(bytes)),
            Self::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// What the documentation of the crate says of a row: whether this version may act by it.
fn is_readable(row: &Row) -> bool {
    let [_, format, token, owner, boot, expires, ttl, since, handle, early, host, pid, text] = row;
    let people = |cell: &Cell| *cell == Cell::Null || cell.is_text();
    *format == Cell::Integer(i64::from(ROW_FORMAT))
        && [token, expires, ttl].into_iter().all(Cell::is_whole)
        && [owner, boot].into_iter().all(Cell::is_text)
        && matches!(since, Cell::Integer(_))
        && matches!(handle, Cell::Blob(_))
        && matches!(early, Cell::Integer(_))
        && [host, text].into_iter().all(people)
        && matches!(pid, Cell::Null | Cell::Integer(0..=0xffff_ffff))
}

fn cells(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let mut cells = [const { Cell::Null }; COLUMNS];
    for (index, cell) in cells.iter_mut().enumerate() {
        *cell = Cell::of(row.get_ref(index)?);
    }
    Ok(cells)
}

/// Reads one row, at `now` in the boot "boot".
pub fn read_row(row: &Row, now: u64) {
    let now = Instant::from_nanos(now);
    with_database(|connection| {
        // What is no number is null there.
        let (row, read, name) = connection
            .prepare_cached("SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13")?
            .query_row(params_from_iter(row), |row| {
                Ok((cells(row)?, Record::read(row), record::name(row, |text| LeaseName::new(text).ok())))
            })?;
        let readable = is_readable(&row);
        assert_eq!(matches!(read, Record::Readable(_)), readable, "{row:?}");
        let here = row[4] == Cell::Text(BOOT.into());
        let over = matches!(row[5], Cell::Integer(expires) if Instant::from_nanos(expires as u64) <= now);
        assert_eq!(read.is_over(BOOT, now), readable && (!here || over), "{row:?}");
        assert_eq!(read.holder(now).problem.is_none(), readable);
        assert!(name.is_none_or(|name| row[0] == Cell::Blob(name.as_str().into())));
        Ok(())
    });
}

/// Works with a store in which these rows stand, at `now`: what can't be read stays as it is and is held.
pub fn use_rows(rows: &[Row], high_water: i64, acts: &[Act], now: u64) {
    with_database(|connection| {
        connection.execute_batch("DELETE FROM lease; DELETE FROM waiter")?;
        connection.execute("UPDATE store SET boot = ?1, high_water = ?2", (BOOT, high_water))?;
        for row in rows {
            // A few columns must not be null.
            let _ = connection
                .prepare_cached("INSERT OR REPLACE INTO lease VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)")?
                .execute(params_from_iter(row));
        }
        for act in acts {
            let before = unreadable(connection)?;
            let outcome = take(connection, *act, Instant::from_nanos(now));
            let after = unreadable(connection)?;
            let deleted = matches!(act, Act::Evict { delete: true, .. });
            assert!(
                deleted || before == after,
                "{act:?} has touched what it can't read: {before:?}, then {after:?}"
            );
            let bytes = |name: u8| Cell::Blob(lease_name(name).as_str().into());
            let held = |name: u8| before.iter().any(|row| row[0] == bytes(name));
            match (act, outcome) {
                (Act::Acquire { name, .. }, Some(Ok(answer))) if held(*name) => {
                    assert!(
                        matches!(answer, Answer::Acquire(Acquired::Held(_))),
                        "{answer:?}, but it is held"
                    );
                }
                (Act::Renew { name, .. }, Some(answer)) if held(*name) => {
                    assert_eq!(answer.ok(), Some(Answer::Renew(Renewed::NotYours)));
                }
                (Act::Release { name, .. }, Some(answer)) if held(*name) => {
                    assert_eq!(answer.ok(), Some(Answer::Release(Released::NotYours)));
                }
                _ => {}
            }
        }
        Ok(())
    });
}

/// Does something in a transaction; `None` if that is no operation, or the transaction is broken.
fn take(connection: &Connection, act: Act, now: Instant) -> Option<Outcome> {
    let live = LiveFolder::of(Path::new("/nowhere/store.db"));
    let me = Liveness::hidden(Lineage::draw().ok()?).ok()?;
    let mut transaction = transaction(connection, &live, &me, now);
    let identity = Identity::new("fuzz", Incarnation::new(1)).ok()?;
    let owner = identity.owner(Acquisition(1));
    let second = Duration::from_secs(1);
    let operation: Operation = match act {
        Act::Acquire { name, wait } => Acquire {
            name: lease_name(name),
            owner,
            ttl: second,
            floor: Token::ZERO,
            wait,
            metadata: Metadata::new(),
            timeout: second,
        }
        .into(),
        Act::Renew { name, token } => {
            Renew { name: lease_name(name), owner, token: Token::new(token), ttl: second, timeout: second }
                .into()
        }
        Act::Release { name, token } => {
            Release { name: lease_name(name), owner, token: token.map(Token::new), timeout: second }.into()
        }
        Act::Evict { name, delete } => {
            let how = if delete { Eviction::Delete } else { Eviction::Replace };
            let _ = transaction.evict(&lease_name(name), how);
            return None;
        }
        Act::List => {
            let _ = transaction.list(None, 100);
            let _ = transaction.named();
            return None;
        }
        Act::Sweep => {
            let _ = transaction.sweep(b"", 100);
            let _ = transaction.sweep_waiters();
            return None;
        }
    };
    transaction.apply(&operation).ok()
}

fn transaction<'a>(
    connection: &'a Connection,
    live: &'a LiveFolder,
    me: &'a Liveness,
    now: Instant,
) -> Transaction<'a> {
    let wall = Timestamp::EPOCH;
    Transaction {
        connection,
        boot: BOOT,
        live,
        me,
        now,
        wall,
        high_water: 0,
        ring: false,
        members_looked_at: false,
    }
}

/// The rows that this version must not act by.
fn unreadable(connection: &Connection) -> rusqlite::Result<Vec<Row>> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {} FROM lease ORDER BY name", record::COLUMNS))?;
    let rows = statement.query_map([], cells)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().filter(|row| !is_readable(row)).collect())
}

/// Reads the header of a file: only an empty one and ours may be used.
pub fn read_header(bytes: &[u8]) {
    let number = |at: usize| bytes.get(at..at + 4).map(|bytes| [bytes[0], bytes[1], bytes[2], bytes[3]]);
    let ours = bytes.starts_with(b"SQLite format 3\0")
        && number(68) == Some(schema::APPLICATION_ID.to_be_bytes())
        && number(60).is_some_and(|format| (1..=FORMAT).contains(&i32::from_be_bytes(format)));
    let checked = schema::check_header(Path::new("/nowhere/store.db"), bytes);
    assert_eq!(checked.is_ok(), ours || bytes.is_empty());
}

/// Looks at a file in the folder `live` that has this name and these contents, and is not locked: only what its own
/// process wrote into it proves that it is dead.
pub fn look_at_liveness_file(live: &Path, name: &[u8; 16], contents: &[u8]) {
    let folder = LiveFolder::of(live);
    let handle = HandleId::from_bytes(name).expect("it has the right length");
    let write = || {
        folder.create()?;
        std::fs::write(folder.file(handle), contents)?;
        folder.file(handle).metadata()
    };
    let meta = write().expect("a folder that can be written to");
    let written_by_its_process = str::from_utf8(contents)
        .ok()
        .and_then(|said| said.split_once('\n'))
        .is_some_and(|(boot, _)| contents.len() <= 1024 && said_of(boot, &meta).as_bytes() == contents);
    let expected = if written_by_its_process { Life::Dead } else { Life::Unknown };
    assert_eq!(folder.probe(handle), expected, "{contents:?}");
    assert!(!folder.lives_in(BOOT), "nobody lives");
    assert_eq!(folder.abandoned(10), [handle]);
    folder.bury(handle);
    assert_eq!(folder.abandoned(10), []);
}

/// Reads the name of a file: only the one name of a handle is one.
pub fn read_file_name(name: &[u8]) {
    let handle = HandleId::from_file_name(name);
    assert!(handle.is_none_or(|handle| format!("{handle:?}").as_bytes() == name));
    let right = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    assert_eq!(handle.is_some(), name.len() == 32 && name.iter().all(right));
}

const BOOT: &str = "boot";

fn lease_name(number: u8) -> LeaseName {
    LeaseName::new(format!("{}", number % 4)).expect("a short name")
}

/// With the tables of a store in memory, though less strict than ours.
fn with_database(run: impl FnOnce(&Connection) -> rusqlite::Result<()>) {
    thread_local! {
        static DATABASE: RefCell<Option<Connection>> = const { RefCell::new(None) };
    }
    DATABASE.with_borrow_mut(|database| {
        let connection = database.get_or_insert_with(|| {
            let connection = Connection::open_in_memory().expect("memory");
            let tables = [tables::LEASE_TABLES, tables::TIMER_TABLES, tables::MEMBER_TABLES]
                .concat()
                .replace("STRICT, ", "")
                .replace(" STRICT", "");
            connection.execute_batch(&tables).expect("the tables");
            connection.execute("INSERT INTO store VALUES (1, '', 0, 0)", []).expect("the state");
            connection
        });
        run(connection).expect("a database in memory that nobody else uses");
    });
}
