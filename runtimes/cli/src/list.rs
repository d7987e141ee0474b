//! What all listings have in common.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use comfy_table::{Table, presets};
use serde_json::Value;
use tenure::Timestamp;

use crate::exit;
use crate::failure::Failure;
use crate::say;

/// Writes a list: as JSON for programs, or as a table for people, who are told if there is nothing to list.
pub(crate) fn write<T>(
    json: bool,
    records: &[T],
    as_json: impl Fn(&T) -> Value,
    table: impl Fn(&[T]) -> Table,
    nothing: impl FnOnce() -> String,
) -> Result<u8, Failure> {
    let text = if json {
        format!("{}\n", Value::Array(records.iter().map(as_json).collect()))
    } else if records.is_empty() {
        say::line(format_args!("{}", nothing()));
        return Ok(0);
    } else {
        format!("{}\n", lines(&table(records)))
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(0),
        // Whoever read it has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::new(exit::INTERNAL, format!("can't write the list: {error}"))),
    }
}

/// A table as text, without a line's end at the end.
pub(crate) fn lines(table: &Table) -> String {
    table.trim_fmt()
}

/// A table with these columns.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    rows.into_iter().for_each(|row| {
        table.add_row(row);
    });
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table
}

/// What stands in a table for what is not known.
pub(crate) fn unknown() -> String {
    "-".to_owned()
}

/// Whole milliseconds, for programs.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A time of a store's wall clock as one of the system's.
pub(crate) fn system_time(at: Timestamp) -> SystemTime {
    let span = Duration::from_nanos(at.as_nanos().unsigned_abs());
    if at < Timestamp::EPOCH { SystemTime::UNIX_EPOCH - span } else { SystemTime::UNIX_EPOCH + span }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::time;

    #[test]
    fn all_times_of_a_store_can_be_shown() {
        let shown = |nanos| time(system_time(Timestamp::from_nanos(nanos)));
        assert_eq!(shown(1_500_000_000), "1970-01-01T00:00:01.500Z");
        assert_eq!(shown(-1), "?");
        assert_eq!(shown(i64::MIN), "?");
        assert!(shown(i64::MAX).starts_with("2262-"));
    }
}
