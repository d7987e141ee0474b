//! The value of a lease's key: `token:owner`, and what is kept for people as JSON in a second line.
//!
//! ```text
//! 1733029800000000:host-7/4f…9c.3
//! {"v":1,"since":1733029800000000,"ttl":30000,"host":"host-7","pid":4711,"text":"…"}
//! ```
//!
//! `since` is the server's wall clock in microseconds, `ttl` the TTL of the grant in milliseconds; both are always
//! there, the others may be left out. A program in another language may leave out the whole second line.

use std::time::Duration;

use serde_json::Value;
use tenure_core::{LeaseName, Token};
use tenure_store::clock::wall_time;
use tenure_store::{Acquire, Holder, LeaseRecord, Metadata};

/// The format of the second line.
const FORMAT: u64 = 1;

/// So much of what another program keeps is shown.
const MOST_SHOWN: usize = 300;

/// The second line from behind `since`, which the server fills in.
pub(crate) fn for_people(request: &Acquire) -> String {
    let Metadata { host, pid, text, .. } = &request.metadata;
    let mut json = format!(r#","ttl":{}"#, millis(request.ttl));
    if let Some(host) = host {
        json += &format!(r#","host":{}"#, Value::from(&**host));
    }
    if let Some(pid) = pid {
        json += &format!(r#","pid":{pid}"#);
    }
    if let Some(text) = text {
        json += &format!(r#","text":{}"#, Value::from(&**text));
    }
    json + "}"
}

/// A TTL as the server takes it, never shorter than was asked for.
pub(crate) fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// What the server says of how long a key lives yet; `None` for one without an end.
pub(crate) fn remaining(ms: i64) -> Option<Duration> {
    // A key is there until its last millisecond is over.
    u64::try_from(ms).ok().map(|ms| Duration::from_millis(ms.max(1)))
}

/// Whether a program that knows nothing of this adapter may have written the value: then nobody will be told when it is
/// gone.
pub(crate) fn may_be_foreign(value: &[u8]) -> bool {
    !value.contains(&b'\n')
}

/// Who holds a lease whose key has this value.
pub(crate) fn holder(value: &[u8], remaining: Option<Duration>) -> Holder {
    let (first, second) = match value.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&value[..end], Some(&value[end + 1..])),
        None => (value, None),
    };
    let mut holder = match token_and_owner(first) {
        Some((token, owner)) => {
            let mut holder = Holder::new(owner);
            holder.token = Some(token);
            if let Some(json) = second {
                holder.problem = read_for_people(json, &mut holder).err();
            }
            holder
        }
        None => {
            let mut holder = Holder::new(shown(value));
            holder.problem = Some("another program has put it there".to_owned());
            holder
        }
    };
    holder.remaining = remaining;
    if remaining.is_none() {
        holder.problem = Some("it has no TTL, so nothing ends it: evict it by deletion".to_owned());
    }
    holder
}

/// Somebody holds a lease whose key is no string.
pub(crate) fn of_another_type(remaining: Option<Duration>) -> Holder {
    let mut holder = Holder::new("");
    holder.remaining = remaining;
    holder.problem = Some("another program keeps something else under its key, not a string".to_owned());
    holder
}

/// What is found at a name.
pub(crate) fn lease(name: LeaseName, value: &[u8], remaining: Option<Duration>) -> LeaseRecord {
    LeaseRecord::new(name, holder(value, remaining))
}

fn token_and_owner(line: &[u8]) -> Option<(Token, &str)> {
    let (token, owner) = str::from_utf8(line).ok()?.split_once(':')?;
    let digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    Some((Token::new(token.parse().ok().filter(|_| digits)?), owner))
}

/// What another program keeps, as far as people want to see it.
pub(crate) fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

fn read_for_people(json: &[u8], holder: &mut Holder) -> Result<(), String> {
    let damaged = |what: &str| format!("what its record says for people is damaged: {what}");
    let json: Value = serde_json::from_slice(json).map_err(|error| damaged(&error.to_string()))?;
    let number = |key: &str| match json.get(key) {
        None => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| damaged(&format!("{key:?} is no number"))),
    };
    let text = |key: &str| match json.get(key) {
        None => Ok(None),
        Some(value) => value
            .as_str()
            .map(|text| Some(text.into()))
            .ok_or_else(|| damaged(&format!("{key:?} is no text"))),
    };
    match number("v")? {
        Some(FORMAT) => {}
        Some(format) => {
            return Err(format!(
                "its record has format {format}, this program knows format {FORMAT}; update it to read the record"
            ));
        }
        None => return Err(damaged("no format is given")),
    }
    holder.ttl = number("ttl")?.map(Duration::from_millis);
    holder.since = number("since")?.and_then(wall_time);
    holder.metadata.host = text("host")?;
    holder.metadata.pid = number("pid")?
        .map(|pid| u32::try_from(pid).map_err(|_| damaged("no process has this id")))
        .transpose()?;
    holder.metadata.text = text("text")?;
    Ok(())
}

#[cfg(test)]
mod tests;
