//! Whatever a foreign or newer process may have left in the files of the embedded store.

#![no_main]

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tenure_sqlite::fuzzing::{self, Act, Cell, Row};

/// What is found.
#[derive(Debug, Arbitrary)]
enum Found {
    Row { row: Columns, now: u64 },
    Rows { rows: Vec<Columns>, high_water: i64, acts: Vec<Doing>, now: u64 },
    Header(Header),
    LivenessFile { name: [u8; 16], contents: Vec<u8> },
    FileName(Vec<u8>),
}

/// A row in which most of the columns are as they should be: else hardly one would be readable.
#[derive(Debug)]
struct Columns(Row);

impl<'a> Arbitrary<'a> for Columns {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let name = vec![b'0' + bytes.int_in_range(0..=3)?];
        let owner = if bytes.ratio(1, 4)? { "fuzz/00000000000000000000000000000001.1" } else { "other/1.1" };
        let boot = if bytes.ratio(1, 4)? { "another" } else { "boot" };
        let whole = |bytes: &mut Unstructured<'a>| Ok(Cell::Integer(bytes.int_in_range(0..=i64::MAX)?));
        let mut row = [
            Cell::Blob(name),
            Cell::Integer(1),
            whole(bytes)?,
            Cell::Text(owner.into()),
            Cell::Text(boot.into()),
            whole(bytes)?,
            whole(bytes)?,
            Cell::Integer(bytes.arbitrary()?),
            Cell::Blob(bytes.arbitrary::<[u8; 16]>()?.into()),
            Cell::Integer(bytes.int_in_range(0..=1)?),
            Cell::Null,
            Cell::Integer(bytes.arbitrary::<u32>()?.into()),
            Cell::Text(b"text".into()),
        ];
        for _ in 0..bytes.int_in_range(0..=3)? {
            let column = bytes.choose_index(row.len())?;
            row[column] = cell(bytes)?;
        }
        Ok(Self(row))
    }
}

fn cell(bytes: &mut Unstructured<'_>) -> Result<Cell> {
    Ok(match bytes.int_in_range(0..=4)? {
        0 => Cell::Null,
        1 => Cell::Integer(bytes.arbitrary()?),
        2 => Cell::Real(bytes.arbitrary()?),
        3 => Cell::Text(bytes.arbitrary()?),
        _ => Cell::Blob(bytes.arbitrary()?),
    })
}

/// The first bytes of a file, ours or nearly so.
#[derive(Debug)]
struct Header(Vec<u8>);

impl<'a> Arbitrary<'a> for Header {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let mut header = vec![0; 100];
        header[..16].copy_from_slice(b"SQLite format 3\0");
        header[60..64].copy_from_slice(&1_u32.to_be_bytes());
        header[68..72].copy_from_slice(b"Tenr");
        for _ in 0..bytes.int_in_range(0..=3)? {
            let at = bytes.choose_index(header.len())?;
            header[at] = bytes.arbitrary()?;
        }
        header.truncate(bytes.int_in_range(0..=header.len())?);
        Ok(Self(header))
    }
}

#[derive(Debug, Arbitrary)]
enum Doing {
    Acquire { name: u8, wait: bool },
    Renew { name: u8, token: u64 },
    Release { name: u8, token: Option<u64> },
    Evict { name: u8, delete: bool },
    List,
    Sweep,
}

impl From<Doing> for Act {
    fn from(doing: Doing) -> Self {
        match doing {
            Doing::Acquire { name, wait } => Self::Acquire { name, wait },
            Doing::Renew { name, token } => Self::Renew { name, token },
            Doing::Release { name, token } => Self::Release { name, token },
            Doing::Evict { name, delete } => Self::Evict { name, delete },
            Doing::List => Self::List,
            Doing::Sweep => Self::Sweep,
        }
    }
}

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|found: Found| {
    match found {
        Found::Row { row, now } => fuzzing::read_row(&row.0, now),
        Found::Rows { rows, high_water, acts, now } => {
            let rows: Vec<Row> = rows.into_iter().map(|row| row.0).collect();
            let acts: Vec<Act> = acts.into_iter().map(Act::from).collect();
            fuzzing::use_rows(&rows, high_water, &acts, now);
        }
        Found::Header(header) => fuzzing::read_header(&header.0),
        Found::LivenessFile { name, contents } => {
            fuzzing::look_at_liveness_file(&FOLDER.path().join("store.db"), &name, &contents);
        }
        Found::FileName(name) => fuzzing::read_file_name(&name),
    }
});
