//! A member's record as text.
//!
//! ```json
//! {"v":1,"sequence":5,"joined":1790000000000000000,"since":1790000000000000000,"heard":1790000020000000000,
//!  "ttl":15000000000,"marked":true,"digests":["00000000000000ff"],"labels":{"zone":"a"},"host":"…","pid":1,"text":"…"}
//! ```
//!
//! `left`, `draining`, `marked` and `knows_mark` are only there if they are true, `digests` and `labels` if there are any. A
//! digest has 16 hexadecimal digits.

use std::sync::Arc;

use serde_json::Value;
use tenure_core::{Digest, Labels};
use tenure_store::{Heartbeat, MemberRecord};

use crate::{Object, Unreadable, Writer, array};

/// Reads a record.
pub fn read(bytes: &[u8]) -> Result<MemberRecord, Unreadable> {
    let object = Object::record(bytes)?;
    let digests = object.optional("digests", "a list of digests", read_digests)?;
    let labels = object.optional("labels", "a set of labels", read_labels)?;
    Ok(MemberRecord {
        sequence: object.whole("sequence")?,
        joined: object.time("joined")?,
        since: object.instant("since")?,
        heard: object.instant("heard")?,
        ttl: object.length("ttl")?,
        left: object.flag("left")?,
        draining: object.flag("draining")?,
        marked: object.flag("marked")?,
        knows_mark: object.flag("knows_mark")?,
        digests: digests.unwrap_or_else(|| Arc::from([])),
        labels: labels.unwrap_or_default(),
        metadata: object.metadata()?,
    })
}

fn read_digests(value: &Value) -> Option<Arc<[Digest]>> {
    let digests = value.as_array().filter(|digests| digests.len() <= Heartbeat::MOST_DIGESTS)?;
    let read = |digest: &Value| {
        let digits =
            digest.as_str().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        u64::from_str_radix(digits, 16).ok().map(Digest::new)
    };
    digests.iter().map(read).collect()
}

fn read_labels(value: &Value) -> Option<Labels> {
    let labels = value.as_object()?.iter().map(|(name, value)| Some((name, value.as_str()?)));
    Labels::new(labels.collect::<Option<Vec<_>>>()?).ok()
}

/// Writes a record.
pub fn write(record: &MemberRecord) -> String {
    let MemberRecord { sequence, joined, since, heard, ttl, left, draining, marked, knows_mark, .. } = record;
    let MemberRecord { digests, labels, metadata, .. } = record;
    let mut text = Writer::record()
        .field("sequence", *sequence)
        .field("joined", joined.as_nanos())
        .field("since", since.as_nanos())
        .field("heard", heard.as_nanos())
        .length("ttl", *ttl)
        .flag("left", *left)
        .flag("draining", *draining)
        .flag("marked", *marked)
        .flag("knows_mark", *knows_mark);
    if !digests.is_empty() {
        let digests = digests.iter().map(|digest| format!("\"{:016x}\"", digest.get()));
        text = text.raw("digests", &array(digests));
    }
    if !labels.is_empty() {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        text = text.field("labels", labels);
    }
    text.metadata(metadata).end()
}

#[cfg(test)]
mod tests;
