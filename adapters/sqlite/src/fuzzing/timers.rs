//! The same for timers, claims and the records of jobs.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params_from_iter};
use tenure_core::{
    Acquisition, ClaimEnd, Every, Identity, Incarnation, Instant, JobName, Overlap, Owner, Tick, TimerChange,
    TimerName, Timestamp, Token,
};
use tenure_store::{
    Metadata, RunOutcome, RunReport, StoreError, TickClaim, TimerAct, TimerAnswer, TimerRequest,
};

use super::{BOOT, Cell, transaction, with_database};
use crate::liveness::{Lineage, LiveFolder, Liveness};
use crate::schema::ROW_FORMAT;

/// A row of the table of timers: its columns in the order of [`TIMER`].
pub type TimerRow = [Cell; 11];
/// A row of the table of claims, without the name: its columns in the order of [`CLAIM`].
pub type ClaimRow = [Cell; 15];
/// A row of the table of runs, without the job: its columns in the order of [`RUN`].
pub type RunRow = [Cell; 13];

const TIMER: &str =
    "name, format, revision, base_n, base_at, schedule, next_n, next_at, next_schedule, last, claimed";
const CLAIM: &str =
    "tick, format, owner, token, boot, expires, ttl, begun, attempts, since, handle, early, host, pid, text";
const RUN: &str =
    "owner, format, number, tick, started, ended, outcome, text, boot, expires, silent, handle, early";

/// What is done with a timer whose rows these are, or a job.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "all that can be done")]
#[expect(missing_docs, reason = "they are named after the operations")]
pub enum Act {
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

fn whole(cell: &Cell) -> bool {
    matches!(cell, Cell::Integer(0..))
}

fn integer(cell: &Cell) -> bool {
    matches!(cell, Cell::Integer(_))
}

fn small(cell: &Cell) -> bool {
    matches!(cell, Cell::Integer(0..=0xffff_ffff))
}

fn blob(cell: &Cell) -> bool {
    matches!(cell, Cell::Blob(_))
}

fn text(cell: &Cell) -> bool {
    cell.is_text()
}

fn may_be(is: fn(&Cell) -> bool, cell: &Cell) -> bool {
    *cell == Cell::Null || is(cell)
}

fn ours(format: &Cell) -> bool {
    *format == Cell::Integer(i64::from(ROW_FORMAT))
}

/// What the documentation of the crate says of a row: whether this version may act by it.
fn is_timer(row: &[Cell]) -> bool {
    let [_, format, revision, base_n, base_at, schedule, next_n, next_at, next_schedule, last, claimed] = row
    else {
        return false;
    };
    let next = [next_n, next_at, next_schedule];
    ours(format)
        && [revision, base_n, last, claimed].into_iter().all(whole)
        && integer(base_at)
        && text(schedule)
        && (next.iter().all(|cell| **cell == Cell::Null)
            || (whole(next_n) && integer(next_at) && text(next_schedule)))
}

fn is_claim(row: &[Cell]) -> bool {
    let [
        tick,
        format,
        owner,
        token,
        boot,
        expires,
        ttl,
        begun,
        attempts,
        since,
        handle,
        early,
        host,
        pid,
        note,
    ] = row
    else {
        return false;
    };
    ours(format)
        && [tick, token, expires, ttl].into_iter().all(whole)
        && [owner, boot].into_iter().all(text)
        && [begun, attempts].into_iter().all(small)
        && [since, early].into_iter().all(integer)
        && blob(handle)
        && [host, note].into_iter().all(|cell| may_be(text, cell))
        && may_be(small, pid)
}

fn is_run(row: &[Cell]) -> bool {
    let [owner, format, number, tick, started, ended, outcome, note, boot, expires, silent, handle, early] =
        row
    else {
        return false;
    };
    let outcome_is_known = match outcome {
        Cell::Null => true,
        Cell::Text(word) => {
            str::from_utf8(word).is_ok_and(|word| RunOutcome::parse(word).is_some()) && integer(ended)
        }
        Cell::Integer(_) | Cell::Real(_) | Cell::Blob(_) => false,
    };
    ours(format)
        && [number, expires].into_iter().all(whole)
        && may_be(whole, tick)
        && [owner, boot].into_iter().all(text)
        && [started, silent, early].into_iter().all(integer)
        && outcome_is_known
        && may_be(text, note)
        && blob(handle)
}

/// All rows of a table.
fn rows(connection: &Connection, table: &str, columns: &str) -> rusqlite::Result<Vec<Vec<Cell>>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {columns} FROM {table} ORDER BY 1, 2"))?;
    let count = statement.column_count();
    statement
        .query_map([], |row| (0..count).map(|index| Ok(Cell::of(row.get_ref(index)?))).collect())?
        .collect()
}

/// The rows that this version must not act by: timers, claims and runs.
fn unreadable(connection: &Connection) -> rusqlite::Result<[Vec<Vec<Cell>>; 3]> {
    let of = |table, columns, is: fn(&[Cell]) -> bool| -> rusqlite::Result<Vec<Vec<Cell>>> {
        Ok(rows(connection, table, columns)?.into_iter().filter(|row| !is(row)).collect())
    };
    Ok([of("timer", TIMER, is_timer)?, of("claim", CLAIM, is_claim)?, of("run", RUN, is_run)?])
}

/// Works with a timer and a job whose rows these are: what can't be read stays as it is, a claim is held, a timer is not
/// used, a run is left out.
pub fn use_timer_rows(
    timer: &TimerRow,
    claims: &[ClaimRow],
    runs: &[RunRow],
    acts: &[Act],
    now: u64,
    wall: i64,
) {
    // At the very end of time, which no clock reaches, everything is over, and what can't be read is, too.
    let (now, wall) = (Instant::from_nanos(now.min(u64::MAX - 1)), Timestamp::from_nanos(wall));
    with_database(|connection| {
        connection.execute_batch("DELETE FROM timer; DELETE FROM claim; DELETE FROM run")?;
        connection.execute("UPDATE store SET boot = ?1, high_water = 0", [BOOT])?;
        let marks = |count: usize| vec!["?"; count].join(", ");
        let enter = |table: &str, columns: &str, row: Vec<&Cell>| -> rusqlite::Result<()> {
            let marks = marks(row.len());
            // A few columns must not be null.
            let _ = connection
                .prepare_cached(&format!("INSERT OR REPLACE INTO {table} ({columns}) VALUES ({marks})"))?
                .execute(params_from_iter(row));
            Ok(())
        };
        let name = Cell::Blob(b"t".to_vec());
        enter("timer", TIMER, [&name].into_iter().chain(&timer[1..]).collect())?;
        for claim in claims {
            enter("claim", &format!("name, {CLAIM}"), [&name].into_iter().chain(claim).collect())?;
        }
        for run in runs {
            enter("run", &format!("job, {RUN}"), [&name].into_iter().chain(run).collect())?;
        }
        for act in acts {
            let before = unreadable(connection)?;
            let timers = rows(connection, "timer", TIMER)?.len();
            let outcome = take(connection, *act, now, wall);
            assert_eq!(before, unreadable(connection)?, "{act:?} has touched what it can't read");
            let held = |tick: u8| before[1].iter().any(|row| row[0] == Cell::Integer((tick % 8).into()));
            match (act, outcome) {
                (_, Some(outcome)) if !before[0].is_empty() => {
                    assert!(outcome.is_err(), "{outcome:?}, but the timer can't be read");
                }
                (Act::Claim { tick, .. }, Some(Ok(answer))) if timers > 0 && held(*tick) => {
                    assert!(
                        matches!(answer, TimerAnswer::Held { .. } | TimerAnswer::Taken),
                        "{answer:?}, but it is held"
                    );
                }
                (Act::Renew { tick, .. } | Act::Finish { tick, .. }, Some(answer)) if held(*tick) => {
                    assert_eq!(answer, Ok(TimerAnswer::NotYours));
                }
                _ => {}
            }
        }
        Ok(())
    });
}

/// Does something; `None` if that is no operation on a timer, or the transaction is broken.
fn take(
    connection: &Connection,
    act: Act,
    now: Instant,
    wall: Timestamp,
) -> Option<Result<TimerAnswer, StoreError>> {
    let live = LiveFolder::of(Path::new("/nowhere/store.db"));
    let me = Liveness::hidden(Lineage::draw().ok()?).ok()?;
    let mut transaction = transaction(connection, &live, &me, now);
    transaction.wall = wall;
    let owner: Owner = Identity::new("fuzz", Incarnation::new(1)).ok()?.owner(Acquisition(1));
    let name = TimerName::new("t").ok()?;
    let job = JobName::new("t").ok()?;
    let second = Duration::from_secs(1);
    let act = match act {
        Act::Read { last } => TimerAct::Read {
            schedule: "every 1s".into(),
            last: last.map(|last| last % TimerRequest::HIGHEST_TICK),
        },
        Act::Stage { revision, n, at } => {
            let at = Tick { n: n % TimerRequest::HIGHEST_TICK, at: Timestamp::from_nanos(at) };
            let schedule = Every::new(second).ok()?.into();
            TimerAct::Change { revision, change: TimerChange::Stage { at, schedule } }
        }
        Act::Rebase { revision, last } => {
            let last = last % TimerRequest::HIGHEST_TICK;
            TimerAct::Change { revision, change: TimerChange::Rebase { last } }
        }
        Act::Claim { tick, attempts, overlap } => TimerAct::Claim(TickClaim {
            tick: (tick % 8).into(),
            owner,
            ttl: second,
            floor: Token::ZERO,
            attempts,
            overlap: [Overlap::Skip, Overlap::Queue, Overlap::Allow][usize::from(overlap % 3)],
            metadata: Metadata::new(),
        }),
        Act::Renew { tick, token } => {
            TimerAct::Renew { tick: (tick % 8).into(), owner, token: Token::new(token), ttl: second }
        }
        Act::Finish { tick, token, end } => TimerAct::Finish {
            tick: (tick % 8).into(),
            owner,
            token: token.map(Token::new),
            end: [ClaimEnd::Finished, ClaimEnd::Interrupted, ClaimEnd::NotStarted][usize::from(end % 3)],
        },
        Act::List => {
            let readable = rows(connection, "run", RUN).ok()?.iter().filter(|row| is_run(row)).count();
            assert_eq!(transaction.runs(&job).map(|runs| runs.len()).ok(), Some(readable));
            let _ = transaction.timers(None, 100);
            let _ = transaction.jobs(None, 100);
            return None;
        }
        Act::Report { run, ended } => {
            let mut report = RunReport::new(job, format!("fuzz/1.{}", run % 4), second, second);
            report.outcome = ended.then_some(RunOutcome::Failed);
            let _ = transaction.report(&report);
            return None;
        }
        Act::Sweep => {
            let _ = transaction.named();
            return None;
        }
    };
    transaction.timer(&TimerRequest { name, act, timeout: second }).ok()
}
