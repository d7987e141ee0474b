//! `tenure release`: take a lease away from its holder.

use tenure::Eviction;

use crate::args::Release;
use crate::failure::Failure;
use crate::holder::{describe, span};
use crate::say;
use crate::store::Place;

/// Takes the lease away and tells who had it.
pub(crate) async fn release(args: &Release, place: &Place) -> Result<u8, Failure> {
    let tenure = place.start()?;
    let how = if args.now { Eviction::Delete } else { Eviction::Replace };
    let evicted = place.answer(tenure.evict(&args.name, how)).await;
    let _ = tenure.shutdown().await;
    let name = &args.name;
    let Some(record) = evicted.map_err(|error| Failure::from(error).at(place.name()))? else {
        say::line(format_args!("lease {name:?} is not held; nothing was done"));
        return Ok(0);
    };
    let holder = describe(&record.holder);
    if args.now {
        say::line(format_args!("lease {name:?} was held by {holder}; it is free now"));
        say::line(format_args!(
            "warning: until that holder notices it may work alongside the next one; only tokens protect"
        ));
    } else {
        let left = record.holder.remaining.map_or_else(String::new, |left| format!(" in {}", span(left)));
        say::line(format_args!(
            "lease {name:?} was held by {holder}, which has to stop now; it becomes free{left}"
        ));
    }
    Ok(0)
}
