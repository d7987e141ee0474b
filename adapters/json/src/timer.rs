//! A timer's record as text.
//!
//! ```json
//! {"v":1,"revision":1,"base":{"n":0,"at":1790000000000000000},"schedule":"every 10m",
//!  "next":{"n":7,"at":1790004200000000000,"schedule":"every 5m"},"last":6,"claimed":6,
//!  "claims":[{"tick":6,"owner":"host/0123….4","token":1790003600000123,"ttl":15000000000,
//!    "ends":1790003615000000000,"begun":1,"attempts":1,"since":1790003600000000000,"host":"…","pid":1,"text":"…"}]}
//! ```
//!
//! `next` is only there if something is staged. A store that knows the token of a grant only by writing it, as the number
//! of the write, leaves it out of what it writes then. A claim that can't be read is kept as it stands, and counts as held.

use std::sync::Arc;

use serde_json::Value;
use tenure_core::{Instant, NextSchedule, Tick, Token};
use tenure_store::{Claim, TimerRecord};

use crate::{Object, Unreadable, Writer, array};

/// A timer, loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The record.
    pub record: TimerRecord,
    /// The claims that can't be read, as they stand. In the record they are those of nobody.
    pub unreadable: Vec<Value>,
}

/// Reads a record at this time; `written_as` is the token of a claim that has none of its own.
///
/// # Errors
/// It can't be read. A claim that can't be read is no error.
pub fn read(bytes: &[u8], written_as: Option<Token>, now: Instant) -> Result<Loaded, Unreadable> {
    let object = Object::record(bytes)?;
    let next = match object.object("next")? {
        Some(next) => Some(NextSchedule {
            at: Tick { n: next.whole("n")?, at: next.time("at")? },
            schedule: next.text("schedule")?.into(),
        }),
        None => None,
    };
    let mut record = TimerRecord {
        revision: object.whole("revision")?,
        base: object.tick("base")?,
        schedule: object.text("schedule").map(Arc::from)?,
        next,
        last: object.whole("last")?,
        claimed: object.whole("claimed")?,
        claims: Vec::new(),
    };
    let mut unreadable = Vec::new();
    for value in object.list("claims")? {
        match Object::within(value.clone()).and_then(|claim| read_claim(&claim, written_as)) {
            Ok(claim) => record.claims.push(claim),
            Err(_) => {
                let tick = value.get("tick").and_then(Value::as_u64).unwrap_or(u64::MAX);
                record.claims.push(Claim::unreadable(tick, now));
                unreadable.push(value.clone());
            }
        }
    }
    record.claims.sort_by_key(|claim| claim.tick);
    Ok(Loaded { record, unreadable })
}

fn read_claim(claim: &Object, written_as: Option<Token>) -> Result<Claim, Unreadable> {
    let owner = claim.text("owner")?;
    let token = match written_as {
        Some(token) => claim.optional("token", "a whole number", Value::as_u64)?.unwrap_or(token.get()),
        None => claim.whole("token")?,
    };
    // By these two it is told which claims are readable, and which has a token to come.
    if owner.is_empty() || token == 0 {
        return Err(Unreadable::damaged("a claim is that of nobody"));
    }
    let token = Token::new(token);
    Ok(Claim {
        tick: claim.whole("tick")?,
        owner: owner.to_owned(),
        token,
        ttl: claim.length("ttl")?,
        ends: claim.instant("ends")?,
        begun: claim.small("begun")?,
        attempts: claim.small("attempts")?,
        since: claim.time("since")?,
        metadata: claim.metadata()?,
    })
}

/// Writes a record. A claim whose token is zero has just been granted: `new` stands in the place of its token, which is left
/// out if that is `None`. It comes before anything that can't be read.
#[must_use]
pub fn write(record: &TimerRecord, unreadable: &[Value], new: Option<&str>) -> String {
    let TimerRecord { revision, base, schedule, next, last, claimed, claims } = record;
    let ours = claims.iter().filter(|claim| !claim.owner.is_empty()).map(|claim| write_claim(claim, new));
    let claims = array(ours.chain(unreadable.iter().map(Value::to_string)));
    let mut text = Writer::record()
        .field("revision", *revision)
        .raw("base", &write_tick(*base).end())
        .field("schedule", &**schedule);
    if let Some(next) = next {
        text = text.raw("next", &write_tick(next.at).field("schedule", &*next.schedule).end());
    }
    text.field("last", *last).field("claimed", *claimed).raw("claims", &claims).end()
}

fn write_tick(tick: Tick) -> Writer {
    Writer::within().field("n", tick.n).field("at", tick.at.as_nanos())
}

fn write_claim(claim: &Claim, new: Option<&str>) -> String {
    let Claim { tick, owner, token, ttl, ends, begun, attempts, since, metadata } = claim;
    let token = if *token == Token::ZERO { new.map(Value::from) } else { Some(token.get().into()) };
    Writer::within()
        .field("tick", *tick)
        .field("owner", &**owner)
        .some("token", token)
        .length("ttl", *ttl)
        .field("ends", ends.as_nanos())
        .field("begun", *begun)
        .field("attempts", *attempts)
        .field("since", since.as_nanos())
        .metadata(metadata)
        .end()
}

#[cfg(test)]
mod tests;
