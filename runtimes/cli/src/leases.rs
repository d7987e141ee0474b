//! `tenure leases`: what is held, by whom.

use comfy_table::Table;
use serde_json::{Value, json};
use tenure::LeaseRecord;

use crate::args::Leases;
use crate::failure::Failure;
use crate::holder::{instance, printable, span, time};
use crate::list::{self, millis, unknown};
use crate::store::Place;

/// Lists the leases.
pub(crate) async fn leases(args: &Leases, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let records = place.answer(tenure.leases()).await;
    let _ = tenure.shutdown().await;
    let records = records.map_err(|error| Failure::from(error).at(place.name()))?;
    let nothing = || format!("no leases are held in {}", place.name());
    list::write(args.json, &records, as_json, table, nothing)
}

/// A lease as an object. The names of the fields are part of the interface; what is not known is null.
pub(crate) fn as_json(record: &LeaseRecord) -> Value {
    let holder = &record.holder;
    json!({
        "lease": record.name.as_str(),
        "instance": instance(&holder.owner),
        "owner": holder.owner,
        "host": holder.metadata.host.as_deref(),
        "pid": holder.metadata.pid,
        "token": holder.token.map(tenure::Token::get),
        "since": holder.since.map(time),
        "ttl_ms": holder.ttl.map(millis),
        "remaining_ms": holder.remaining.map(millis),
        "text": holder.metadata.text.as_deref(),
        "problem": holder.problem,
    })
}

pub(crate) fn table(records: &[LeaseRecord]) -> Table {
    let header = ["LEASE", "INSTANCE", "HOST", "PID", "TOKEN", "SINCE", "REMAINING"];
    list::table(
        header,
        records.iter().map(|record| {
            let holder = &record.holder;
            [
                printable(record.name.as_str()),
                printable(instance(&holder.owner)),
                holder.metadata.host.as_deref().map_or_else(unknown, printable),
                holder.metadata.pid.map_or_else(unknown, |pid| pid.to_string()),
                holder.token.map_or_else(unknown, |token| token.to_string()),
                holder.since.map_or_else(unknown, time),
                holder.remaining.map_or_else(unknown, span),
            ]
        }),
    )
}
