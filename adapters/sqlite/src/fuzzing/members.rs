//! The same for members.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params_from_iter};
use tenure_core::{Digest, Identity, Incarnation, Instant, Labels};
use tenure_store::{Answer, DrainMark, Heartbeat, Leave, Metadata, Operation, StoreErrorKind};

use super::{BOOT, Cell, transaction, with_database};
use crate::liveness::{Lineage, LiveFolder, Liveness};
use crate::members::{self, COLUMNS};
use crate::schema::ROW_FORMAT;

/// A row of the table of members: its columns in the order of the documentation.
pub type MemberRow = [Cell; 21];

/// What is done with a store in which the rows stand.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "all that can be done")]
#[expect(missing_docs, reason = "they are named after the operations")]
pub enum Act {
    Beat { instance: u8, sequence: u64, known: Option<u64> },
    Leave { instance: u8 },
    Mark { instance: u8, drain: bool },
    List,
    Sweep,
}

fn whole(cell: &Cell) -> Option<u64> {
    match cell {
        Cell::Integer(value) => u64::try_from(*value).ok(),
        Cell::Null | Cell::Real(_) | Cell::Text(_) | Cell::Blob(_) => None,
    }
}

fn integer(cell: &Cell) -> bool {
    matches!(cell, Cell::Integer(_))
}

fn ours(row: &[Cell]) -> bool {
    row[2] == Cell::Integer(i64::from(ROW_FORMAT))
}

/// Names and values in turn, each after its length.
fn are_labels(mut bytes: &[u8]) -> bool {
    let mut texts: Vec<&str> = Vec::new();
    while let [length, rest @ ..] = bytes {
        let length = usize::from(*length);
        let Some(text) = rest.get(..length).and_then(|text| str::from_utf8(text).ok()) else { return false };
        texts.push(text);
        bytes = &rest[length..];
    }
    let pairs = texts.chunks_exact(2);
    pairs.remainder().is_empty() && Labels::new(pairs.map(|pair| (pair[0], pair[1]))).is_ok()
}

/// What the documentation of the crate says of a row: whether this version may act by it.
fn is_member(row: &[Cell]) -> bool {
    let [_, _, _, sequence, joined, boot, since, expires, ttl, _, rest @ ..] = row else { return false };
    let [gone, draining, marked, knows_mark, digests, labels, handle, early, host, pid, text] = rest else {
        return false;
    };
    let people = |cell: &Cell| *cell == Cell::Null || cell.is_text();
    ours(row)
        && [sequence, since, expires, ttl].into_iter().all(|cell| whole(cell).is_some())
        && whole(ttl) <= whole(expires)
        && [joined, gone, draining, marked, knows_mark, early].into_iter().all(integer)
        && boot.is_text()
        && matches!(digests, Cell::Blob(bytes) if bytes.len() % 8 == 0 && bytes.len() <= 8 * 64)
        && matches!(labels, Cell::Blob(bytes) if are_labels(bytes))
        && matches!(handle, Cell::Blob(_))
        && [host, text].into_iter().all(people)
        && matches!(pid, Cell::Null | Cell::Integer(0..=0xffff_ffff))
}

fn rows(connection: &Connection) -> rusqlite::Result<Vec<Vec<Cell>>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM member ORDER BY 1, 2"))?;
    let count = statement.column_count();
    statement
        .query_map([], |row| (0..count).map(|index| Ok(Cell::of(row.get_ref(index)?))).collect())?
        .collect()
}

fn identity(instance: u8) -> Identity {
    Identity::new((instance % 4).to_string(), Incarnation::new(1)).expect("a short name")
}

fn is_of(row: &[Cell], identity: &Identity) -> bool {
    let bits = identity.incarnation().as_u128().to_be_bytes();
    row[0] == Cell::Blob(identity.instance().into()) && row[1] == Cell::Blob(bits.into())
}

/// Works with a store in which these rows stand: what can't be read is nobody, and breaks nothing for others; what is of
/// another format stays as it is.
pub fn use_member_rows(entered: &[MemberRow], version: i64, acts: &[Act], now: u64) {
    let now = Instant::from_nanos(now);
    with_database(|connection| {
        connection.execute_batch("DELETE FROM member")?;
        connection.execute("UPDATE store SET boot = ?1, high_water = 0", [BOOT])?;
        connection.execute("UPDATE fleet SET version = ?1", [version])?;
        for row in entered {
            let marks = vec!["?"; row.len()].join(", ");
            // A few columns must not be null.
            let _ = connection
                .prepare_cached(&format!("INSERT OR REPLACE INTO member ({COLUMNS}) VALUES ({marks})"))?
                .execute(params_from_iter(row));
        }
        let read = connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM member ORDER BY 1, 2"))?
            .query_map([], |row| Ok(members::MemberRow::read(row).is_ok()))?
            .collect::<rusqlite::Result<Vec<bool>>>()?;
        assert_eq!(read, rows(connection)?.iter().map(|row| is_member(row)).collect::<Vec<_>>());
        for act in acts {
            let before = rows(connection)?;
            take(connection, *act, now, &before)?;
            let asked = match act {
                Act::Beat { instance, .. } | Act::Leave { instance } => Some(identity(*instance)),
                Act::Mark { .. } | Act::List | Act::Sweep => None,
            };
            let foreign = |rows: Vec<Vec<Cell>>| -> Vec<Vec<Cell>> {
                let is_asked = |row: &[Cell]| asked.as_ref().is_some_and(|asked| is_of(row, asked));
                rows.into_iter().filter(|row| !ours(row) && !is_asked(row)).collect()
            };
            assert_eq!(
                foreign(before),
                foreign(rows(connection)?),
                "{act:?} has touched what another version wrote"
            );
        }
        Ok(())
    });
}

/// Does something; an error if a row breaks it.
fn take(connection: &Connection, act: Act, now: Instant, before: &[Vec<Cell>]) -> rusqlite::Result<()> {
    let live = LiveFolder::of(Path::new("/nowhere/store.db"));
    let me = Liveness::hidden(Lineage::draw().expect("the system has random numbers")).expect("it has more");
    let mut transaction = transaction(connection, &live, &me, now);
    let second = Duration::from_secs(1);
    let readable = |identity: &Identity| before.iter().any(|row| is_of(row, identity) && is_member(row));
    let operation: Operation = match act {
        Act::Beat { instance, sequence, known } => Heartbeat {
            identity: identity(instance),
            sequence: sequence % Heartbeat::HIGHEST_SEQUENCE,
            joined: None,
            draining: sequence.is_multiple_of(2),
            marked: false,
            digests: [Digest::new(sequence)].into(),
            labels: Labels::default(),
            known,
            ttl: second,
            metadata: Metadata::new(),
            timeout: second,
        }
        .into(),
        Act::Leave { instance } => {
            Leave { identity: identity(instance), ttl: second, timeout: second }.into()
        }
        Act::Mark { instance, drain } => {
            let mark = DrainMark { instance: identity(instance).instance().into(), incarnation: None, drain };
            let marked = transaction.mark(&mark)?.expect("it is this machine's");
            assert!(marked.iter().all(readable), "{marked:?}");
            return Ok(());
        }
        Act::List => {
            for entry in transaction.members(None, 100)? {
                let identity = &entry.member.identity;
                assert_eq!(readable(identity), entry.problem.is_none(), "{identity}");
            }
            transaction.fleet_sight()?;
            return Ok(());
        }
        Act::Sweep => {
            transaction.sweep_members()?;
            transaction.named()?;
            return Ok(());
        }
    };
    match (&operation, transaction.apply(&operation)?) {
        (Operation::Heartbeat(beat), Ok(Answer::Heartbeat(presence))) => {
            for member in presence.members.iter().flat_map(|members| members.iter()) {
                assert!(member.identity == beat.identity || readable(&member.identity), "{member:?}");
            }
        }
        (Operation::Heartbeat(beat), Err(error)) => {
            assert_eq!(error.kind, StoreErrorKind::Rejected, "{error}");
            assert!(readable(&beat.identity), "what can't be read refuses nobody: {error}");
        }
        (_, outcome) => assert_eq!(outcome, Ok(Answer::Leave)),
    }
    Ok(())
}
