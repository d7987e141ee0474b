//! A timer's record as text.
//!
//! ```json
//! {"v":1,"revision":1,"base":{"n":0,"at":1790000000000000000},"schedule":"every 10m",
//!  "next":{"n":7,"at":1790004200000000000,"schedule":"every 5m"},"last":6,"claimed":6,
//!  "claims":[{"tick":6,"owner":"host/0123….4","token":1790003600000123,"ttl":15000000000,
//!    "ends":1790003615000000000,"begun":1,"attempts":1,"since":1790003600000000000,"host":"…","pid":1,"text":"…"}]}
//! ```
//!
//! `next` is only there if something is staged. A claim that can't be read is kept as it stands, and counts as held.

use std::sync::Arc;

use serde_json::Value;
use tenure_core::{Instant, NextSchedule, Tick, Token};
use tenure_store::{Claim, TimerRecord};

use crate::json::{Object, Unreadable, Writer, array};

/// What stands in the place of the token that the server is yet to give. Within a text of JSON quotes are escaped, so
/// that nothing that a user says looks like this.
const UNKNOWN_TOKEN: &str = r#""token":"new""#;

/// A timer, loaded.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) record: TimerRecord,
    /// The claims that can't be read, as they stand. In the record they are those of nobody.
    pub(crate) unreadable: Vec<Value>,
}

/// A record as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// All of it.
    Whole(String),
    /// What stands before and after the token of a new grant.
    AroundToken(String, String),
}

/// Reads a record at this time.
pub(crate) fn read(bytes: &[u8], now: Instant) -> Result<Loaded, Unreadable> {
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
        match Object::within(value.clone()).and_then(|claim| read_claim(&claim)) {
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

fn read_claim(claim: &Object) -> Result<Claim, Unreadable> {
    let owner = claim.text("owner")?;
    let token = Token::new(claim.whole("token")?);
    // By these two it is told which claims are readable, and which has a token to come.
    if owner.is_empty() || token == Token::ZERO {
        return Err(Unreadable::damaged("a claim is that of nobody"));
    }
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

/// Writes a record; a claim whose token is zero has just been granted.
pub(crate) fn write(record: &TimerRecord, unreadable: &[Value]) -> Written {
    let TimerRecord { revision, base, schedule, next, last, claimed, claims } = record;
    let ours = claims.iter().filter(|claim| !claim.owner.is_empty()).map(write_claim);
    // They come last: there might be something in them that looks like a token to come.
    let claims = array(ours.chain(unreadable.iter().map(Value::to_string)));
    let mut text = Writer::record()
        .field("revision", *revision)
        .raw("base", &write_tick(*base).end())
        .field("schedule", &**schedule);
    if let Some(next) = next {
        text = text.raw("next", &write_tick(next.at).field("schedule", &*next.schedule).end());
    }
    let text = text.field("last", *last).field("claimed", *claimed).raw("claims", &claims).end();
    let granted = record.claims.iter().any(|claim| !claim.owner.is_empty() && claim.token == Token::ZERO);
    match text.split_once(UNKNOWN_TOKEN) {
        Some((before, after)) if granted => {
            Written::AroundToken(format!("{before}\"token\":"), after.to_owned())
        }
        _ => Written::Whole(text),
    }
}

fn write_tick(tick: Tick) -> Writer {
    Writer::within().field("n", tick.n).field("at", tick.at.as_nanos())
}

fn write_claim(claim: &Claim) -> String {
    let Claim { tick, owner, token, ttl, ends, begun, attempts, since, metadata } = claim;
    let token = if *token == Token::ZERO { Value::from("new") } else { Value::from(token.get()) };
    Writer::within()
        .field("tick", *tick)
        .field("owner", &**owner)
        .field("token", token)
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
