//! Whatever a foreign or newer process may have left in the files of the embedded store.

#![no_main]

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tenure_sqlite::fuzzing::members::{self, MemberRow};
use tenure_sqlite::fuzzing::timers::{self, ClaimRow, RunRow, TimerRow};
use tenure_sqlite::fuzzing::{self, Act, Cell, Row};

/// What is found.
#[derive(Debug, Arbitrary)]
enum Found {
    Row { row: Columns, now: u64 },
    Rows { rows: Vec<Columns>, high_water: i64, acts: Vec<Doing>, now: u64 },
    Header(Header),
    LivenessFile { name: [u8; 16], contents: Vec<u8> },
    FileName(Vec<u8>),
    Timer { timer: Timer, claims: Vec<Claim>, runs: Vec<Run>, acts: Vec<DoingTimers>, now: u64, wall: i64 },
    Members { members: Vec<Member>, version: i64, acts: Vec<DoingMembers>, now: u64 },
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

/// A row of a timer, of a claim, of a run: most of the columns are as they should be.
#[derive(Debug)]
struct Timer(TimerRow);
#[derive(Debug)]
struct Claim(ClaimRow);
#[derive(Debug)]
struct Run(RunRow);

impl<'a> Arbitrary<'a> for Timer {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let next = bytes.ratio(1, 2)?;
        let row = [
            Cell::Blob(b"t".into()),
            Cell::Integer(1),
            number(bytes)?,
            number(bytes)?,
            Cell::Integer(bytes.arbitrary()?),
            Cell::Text(b"every 1s".into()),
            if next { number(bytes)? } else { Cell::Null },
            if next { Cell::Integer(bytes.arbitrary()?) } else { Cell::Null },
            if next { Cell::Text(b"every 2s".into()) } else { Cell::Null },
            tick(bytes)?,
            tick(bytes)?,
        ];
        damaged(bytes, row).map(Self)
    }
}

impl<'a> Arbitrary<'a> for Claim {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let row = [
            tick(bytes)?,
            Cell::Integer(1),
            owner(bytes)?,
            number(bytes)?,
            boot(bytes)?,
            number(bytes)?,
            number(bytes)?,
            Cell::Integer(bytes.int_in_range(0..=4)?),
            Cell::Integer(bytes.int_in_range(0..=4)?),
            Cell::Integer(bytes.arbitrary()?),
            Cell::Blob(bytes.arbitrary::<[u8; 16]>()?.into()),
            Cell::Integer(bytes.int_in_range(0..=1)?),
            Cell::Null,
            Cell::Integer(bytes.arbitrary::<u32>()?.into()),
            Cell::Text(b"text".into()),
        ];
        damaged(bytes, row).map(Self)
    }
}

impl<'a> Arbitrary<'a> for Run {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let ended = bytes.ratio(1, 2)?;
        let row = [
            Cell::Text(format!("fuzz/1.{}", bytes.int_in_range(0..=3)?).into()),
            Cell::Integer(1),
            number(bytes)?,
            number(bytes)?,
            Cell::Integer(bytes.arbitrary()?),
            if ended { Cell::Integer(bytes.arbitrary()?) } else { Cell::Null },
            if ended { Cell::Text(b"failed".into()) } else { Cell::Null },
            Cell::Null,
            boot(bytes)?,
            number(bytes)?,
            Cell::Integer(bytes.arbitrary()?),
            Cell::Blob(bytes.arbitrary::<[u8; 16]>()?.into()),
            Cell::Integer(bytes.int_in_range(0..=1)?),
        ];
        damaged(bytes, row).map(Self)
    }
}

fn number(bytes: &mut Unstructured<'_>) -> Result<Cell> {
    bytes.int_in_range(0..=i64::MAX).map(Cell::Integer)
}

/// One of a few, so that operations meet them.
fn tick(bytes: &mut Unstructured<'_>) -> Result<Cell> {
    bytes.int_in_range(0..=7).map(Cell::Integer)
}

fn owner(bytes: &mut Unstructured<'_>) -> Result<Cell> {
    let own = bytes.ratio(1, 2)?;
    Ok(Cell::Text(if own { "fuzz/00000000000000000000000000000001.1" } else { "other/1.1" }.into()))
}

fn boot(bytes: &mut Unstructured<'_>) -> Result<Cell> {
    Ok(Cell::Text(if bytes.ratio(1, 4)? { "another" } else { "boot" }.into()))
}

fn damaged<const N: usize>(bytes: &mut Unstructured<'_>, mut row: [Cell; N]) -> Result<[Cell; N]> {
    for _ in 0..bytes.int_in_range(0..=2)? {
        let column = bytes.choose_index(N)?;
        row[column] = cell(bytes)?;
    }
    Ok(row)
}

#[derive(Debug, Arbitrary)]
enum DoingTimers {
    Read { last: Option<u64> },
    Stage { revision: u64, n: u64, at: i64 },
    Rebase { revision: u64, last: u64 },
    Claim { tick: u8, attempts: u32, overlap: u8 },
    Renew { tick: u8, token: u64 },
    Finish { tick: u8, token: Option<u64>, end: u8 },
    List,
    Report { run: u8, ended: bool },
    Sweep,
}

impl From<DoingTimers> for timers::Act {
    fn from(doing: DoingTimers) -> Self {
        match doing {
            DoingTimers::Read { last } => Self::Read { last },
            DoingTimers::Stage { revision, n, at } => Self::Stage { revision, n, at },
            DoingTimers::Rebase { revision, last } => Self::Rebase { revision, last },
            DoingTimers::Claim { tick, attempts, overlap } => Self::Claim { tick, attempts, overlap },
            DoingTimers::Renew { tick, token } => Self::Renew { tick, token },
            DoingTimers::Finish { tick, token, end } => Self::Finish { tick, token, end },
            DoingTimers::List => Self::List,
            DoingTimers::Report { run, ended } => Self::Report { run, ended },
            DoingTimers::Sweep => Self::Sweep,
        }
    }
}

/// A row of a member: most of the columns are as they should be.
#[derive(Debug)]
struct Member(MemberRow);

impl<'a> Arbitrary<'a> for Member {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let name = vec![b'0' + bytes.int_in_range(0..=3)?];
        let incarnation = u128::from(bytes.int_in_range(0..=2_u8)?).to_be_bytes();
        let boot = if bytes.ratio(1, 4)? { "another" } else { "boot" };
        let expires = bytes.int_in_range(0..=i64::MAX)?;
        let flag = |bytes: &mut Unstructured<'a>| Ok(Cell::Integer(bytes.int_in_range(0..=1)?));
        let mut row = [
            Cell::Blob(name),
            Cell::Blob(incarnation.into()),
            Cell::Integer(1),
            Cell::Integer(bytes.int_in_range(0..=9)?),
            Cell::Integer(bytes.arbitrary()?),
            Cell::Text(boot.into()),
            Cell::Integer(bytes.int_in_range(0..=i64::MAX)?),
            Cell::Integer(expires),
            Cell::Integer(bytes.int_in_range(0..=expires)?),
            flag(bytes)?,
            flag(bytes)?,
            flag(bytes)?,
            flag(bytes)?,
            flag(bytes)?,
            Cell::Blob(vec![7; 8 * bytes.int_in_range(0..=3)?]),
            Cell::Blob(if bytes.arbitrary()? { b"\x01a\x02bc".into() } else { Vec::new() }),
            Cell::Blob(bytes.arbitrary::<[u8; 16]>()?.into()),
            flag(bytes)?,
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

#[derive(Debug, Arbitrary)]
enum DoingMembers {
    Beat { instance: u8, sequence: u64, known: Option<u64> },
    Leave { instance: u8 },
    Mark { instance: u8, drain: bool },
    List,
    Sweep,
}

impl From<DoingMembers> for members::Act {
    fn from(doing: DoingMembers) -> Self {
        match doing {
            DoingMembers::Beat { instance, sequence, known } => Self::Beat { instance, sequence, known },
            DoingMembers::Leave { instance } => Self::Leave { instance },
            DoingMembers::Mark { instance, drain } => Self::Mark { instance, drain },
            DoingMembers::List => Self::List,
            DoingMembers::Sweep => Self::Sweep,
        }
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
        header[60..64].copy_from_slice(&bytes.int_in_range(1..=3_u32)?.to_be_bytes());
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
        Found::Timer { timer, claims, runs, acts, now, wall } => {
            let claims: Vec<ClaimRow> = claims.into_iter().map(|claim| claim.0).collect();
            let runs: Vec<RunRow> = runs.into_iter().map(|run| run.0).collect();
            let acts: Vec<timers::Act> = acts.into_iter().map(timers::Act::from).collect();
            timers::use_timer_rows(&timer.0, &claims, &runs, &acts, now, wall);
        }
        Found::Members { members, version, acts, now } => {
            let rows: Vec<MemberRow> = members.into_iter().map(|member| member.0).collect();
            let acts: Vec<members::Act> = acts.into_iter().map(members::Act::from).collect();
            members::use_member_rows(&rows, version, &acts, now);
        }
        Found::FileName(name) => fuzzing::read_file_name(&name),
    }
});
