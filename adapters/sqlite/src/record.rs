//! A row of the table of leases.

use std::time::Duration;

use rusqlite::{Row, types::ValueRef};
use tenure_core::{Instant, Token};
use tenure_store::clock::wall_time;
use tenure_store::{Holder, Metadata};

use crate::liveness::HandleId;
use crate::schema::ROW_FORMAT;

/// The columns, in the order in which [`Record::read`] takes them.
pub(crate) const COLUMNS: &str =
    "name, format, token, owner, boot, expires, ttl, since, handle, early, host, pid, text";

/// What stands in a row.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Readable(Lease),
    /// Of a newer format, or damaged: it counts as held, whatever it says.
    Unreadable {
        owner: String,
        problem: String,
    },
}

/// A lease as it stands in a row.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) token: Token,
    pub(crate) owner: String,
    pub(crate) boot: String,
    /// On the clock of that boot.
    pub(crate) expires: Instant,
    pub(crate) ttl: Duration,
    /// Wall clock, microseconds.
    pub(crate) since: i64,
    /// The handle that took or last renewed it.
    pub(crate) handle: Option<HandleId>,
    /// Whether that handle has a liveness file.
    pub(crate) early: bool,
    pub(crate) metadata: Metadata,
}

impl Record {
    /// Reads a row; never fails, since a row that can't be read is held.
    pub(crate) fn read(row: &Row<'_>) -> Self {
        let owner = || match row.get_ref(3) {
            Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        if let Err(problem) = check_format(row, 1) {
            return Self::Unreadable { owner: owner(), problem };
        }
        match Lease::read(row) {
            Ok(lease) => Self::Readable(lease),
            Err(error) => Self::Unreadable { owner: owner(), problem: damaged(&error) },
        }
    }

    /// Whether nobody holds the lease any more: its time is over, or the machine was started again.
    pub(crate) fn is_over(&self, boot: &str, now: Instant) -> bool {
        match self {
            Self::Readable(lease) => lease.boot != boot || lease.expires <= now,
            Self::Unreadable { .. } => false,
        }
    }

    /// For those who want to know who holds it.
    pub(crate) fn holder(&self, now: Instant) -> Holder {
        match self {
            Self::Readable(lease) => {
                let mut holder = Holder::new(lease.owner.clone());
                holder.token = Some(lease.token);
                holder.remaining = Some(lease.expires.saturating_since(now));
                holder.ttl = Some(lease.ttl);
                holder.since = u64::try_from(lease.since).ok().and_then(wall_time);
                holder.metadata = lease.metadata.clone();
                holder
            }
            Self::Unreadable { owner, problem } => {
                let mut holder = Holder::new(owner.clone());
                holder.problem = Some(problem.clone());
                holder
            }
        }
    }
}

pub(crate) fn damaged(error: &rusqlite::Error) -> String {
    format!("the record is damaged: {error}")
}

/// Refuses a row of another format, which stands in this column, with the reason.
pub(crate) fn check_format(row: &Row<'_>, column: usize) -> Result<(), String> {
    match row.get::<_, i64>(column) {
        Ok(format) if format == i64::from(ROW_FORMAT) => Ok(()),
        Ok(format) => Err(format!(
            "the record has format {format}, this program knows format {ROW_FORMAT}; update it to read the record"
        )),
        Err(error) => Err(damaged(&error)),
    }
}

/// A number that can't be negative.
pub(crate) fn whole(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

/// What is kept for people: host, process id and text, from this column on.
pub(crate) fn metadata(row: &Row<'_>, first: usize) -> rusqlite::Result<Metadata> {
    let mut metadata = Metadata::new();
    metadata.host = row.get(first)?;
    metadata.pid = row.get(first + 1)?;
    metadata.text = row.get(first + 2)?;
    Ok(metadata)
}

impl Lease {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            token: Token::new(whole(row, 2)?),
            owner: row.get(3)?,
            boot: row.get(4)?,
            expires: Instant::from_nanos(whole(row, 5)?),
            ttl: Duration::from_nanos(whole(row, 6)?),
            since: row.get(7)?,
            handle: HandleId::from_bytes(row.get_ref(8)?.as_blob()?),
            early: row.get(9)?,
            metadata: metadata(row, 10)?,
        })
    }
}

/// The name in the first column; `None` if it can't be one.
pub(crate) fn name<T>(row: &Row<'_>, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let bytes = row.get_ref(0).ok()?.as_blob().ok()?;
    read(str::from_utf8(bytes).ok()?)
}
