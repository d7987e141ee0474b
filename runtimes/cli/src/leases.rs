//! `tenure leases`: what is held, by whom.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use serde_json::{Value, json};
use tenure::LeaseRecord;

use crate::args::Leases;
use crate::exit;
use crate::failure::Failure;
use crate::holder::{instance, printable, span, time};
use crate::say;
use crate::store::Place;

/// Lists the leases.
pub(crate) async fn leases(args: &Leases, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let records = place.answer(tenure.leases()).await;
    let _ = tenure.shutdown().await;
    let records = records.map_err(|error| Failure::from(error).at(place.name()))?;
    let text = if args.json {
        format!("{}\n", Value::Array(records.iter().map(as_json).collect()))
    } else if records.is_empty() {
        say::line(format_args!("no leases are held in {}", place.name()));
        return Ok(0);
    } else {
        format!("{}\n", table(&records).trim_fmt())
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(0),
        // Whoever read it has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::new(exit::INTERNAL, format!("can't write the list: {error}"))),
    }
}

/// A lease as an object. The names of the fields are part of the interface; what is not known is null.
fn as_json(record: &LeaseRecord) -> Value {
    let holder = &record.holder;
    json!({
        "lease": record.name.as_str(),
        "instance": instance(holder),
        "owner": holder.owner,
        "host": holder.metadata.host.as_deref(),
        "pid": holder.metadata.pid,
        "token": holder.token.map(tenure::Token::get),
        "since": holder.since.map(time),
        "ttl_ms": holder.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
        "remaining_ms": holder.remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        "text": holder.metadata.text.as_deref(),
        "problem": holder.problem,
    })
}

fn table(records: &[LeaseRecord]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["LEASE", "INSTANCE", "HOST", "PID", "TOKEN", "SINCE", "REMAINING"]);
    for record in records {
        let holder = &record.holder;
        let unknown = || "-".to_owned();
        table.add_row([
            printable(record.name.as_str()),
            printable(instance(holder)),
            holder.metadata.host.as_deref().map_or_else(unknown, printable),
            holder.metadata.pid.map_or_else(unknown, |pid| pid.to_string()),
            holder.token.map_or_else(unknown, |token| token.to_string()),
            holder.since.map_or_else(unknown, time),
            holder.remaining.map_or_else(unknown, span),
        ]);
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table
}
