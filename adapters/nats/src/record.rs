//! A lease's record.
//!
//! ```json
//! {"v":1,"owner":"host-7/4f…9c.3","ttl":15000000000,"since":1790000000000000000,"host":"host-7","pid":4711,"text":"…"}
//! ```
//!
//! `ttl` is what its owner asked for, in nanoseconds; the server ends the record after the next whole second. `since` is
//! the wall clock of whoever took it, for people. The token of a grant is the number of the write, which is not known
//! before: so the record of a grant has none, and each later one of the same grant has it in `token`.

use std::time::Duration;

use tenure_core::{LeaseName, Timestamp, Token};
use tenure_store::{Acquire, Holder, LeaseRecord, Metadata, clock};

use crate::link::Stored;
use tenure_json::{Object, Unreadable, Writer};

/// So much of what another program keeps is shown.
const MOST_SHOWN: usize = 300;

/// Who has a lease, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) owner: String,
    /// Zero in what is written for a new grant.
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    pub(crate) since: Timestamp,
    pub(crate) metadata: Metadata,
}

impl Record {
    /// A new grant.
    pub(crate) fn grant(request: &Acquire) -> Self {
        Self {
            owner: request.owner.to_string(),
            token: Token::ZERO,
            ttl: request.ttl,
            since: clock::wall(),
            metadata: request.metadata.clone(),
        }
    }

    /// Reads what stands there.
    pub(crate) fn read(stored: &Stored) -> Result<Self, Unreadable> {
        let object = Object::record(&stored.data)?;
        let token = object.optional("token", "a whole number above zero", |value| {
            value.as_u64().filter(|token| *token > 0)
        })?;
        Ok(Self {
            owner: object.text("owner")?.to_owned(),
            token: Token::new(token.unwrap_or(stored.sequence)),
            ttl: object.length("ttl")?,
            since: object.time("since")?,
            metadata: object.metadata()?,
        })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { owner, token, ttl, since, metadata } = self;
        Writer::record()
            .field("owner", &**owner)
            .some("token", Some(token.get()).filter(|token| *token > 0))
            .length("ttl", *ttl)
            .field("since", since.as_nanos())
            .metadata(metadata)
            .end()
            .into_bytes()
    }

    fn holder(&self) -> Holder {
        let mut holder = Holder::new(&*self.owner);
        holder.token = Some(self.token);
        holder.ttl = Some(self.ttl);
        holder.since = clock::system_time(self.since);
        holder.metadata = self.metadata.clone();
        holder
    }
}

/// Who holds a lease under which this stands, which is no trace; `rest` is what there is of its time.
pub(crate) fn holder(stored: &Stored, rest: Option<Duration>) -> Holder {
    let mut holder = match Record::read(stored) {
        Ok(record) => record.holder(),
        Err(problem) => {
            let text = String::from_utf8_lossy(&stored.data);
            let shown: String = text.chars().take(MOST_SHOWN).collect();
            let mut holder = Holder::new(shown);
            holder.problem = Some(problem.to_string());
            holder
        }
    };
    holder.remaining = rest;
    if stored.ttl.is_none() {
        holder.problem = Some("it has no TTL, so the server never ends it: evict it by deletion".to_owned());
    }
    holder
}

/// What is found at a name.
pub(crate) fn lease(name: LeaseName, stored: &Stored, now: Timestamp) -> LeaseRecord {
    LeaseRecord::new(name, holder(stored, rest(stored, now)))
}

/// When the server is to end a record, by its clock: whole seconds after it was written.
pub(crate) fn ends_in(stored: &Stored, now: Timestamp) -> Option<Duration> {
    Some(stored.ttl?.saturating_sub(now.saturating_since(stored.time)))
}

/// What there is of a record's time, by the server's clock, which ends it; never more than its owner asked for.
pub(crate) fn rest(stored: &Stored, now: Timestamp) -> Option<Duration> {
    let ttl = stored.ttl?;
    let ttl = Record::read(stored).map_or(ttl, |record| record.ttl.min(ttl));
    Some(ttl.saturating_sub(now.saturating_since(stored.time)))
}

/// Whether the server should have ended it by its own clock, whose steps are no longer than this. A server that has crashed
/// may bring records back that had ended, and never end them again.
pub(crate) fn is_overdue(stored: &Stored, now: Timestamp, step: Duration) -> bool {
    stored.ttl.is_some_and(|ttl| now.saturating_since(stored.time) > ttl + step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(data: &str) -> Stored {
        Stored {
            subject: "$KV.t.lease.ka".to_owned(),
            sequence: 77,
            time: Timestamp::from_nanos(1_000_000_000),
            gone: false,
            ttl: Some(Duration::from_secs(2)),
            data: data.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_record_is_written_as_documented_and_read_again() {
        let mut metadata = Metadata::new();
        metadata.host = Some("höst".into());
        let mut record = Record {
            owner: "host/01.4".to_owned(),
            token: Token::ZERO,
            ttl: Duration::from_millis(1500),
            since: Timestamp::from_nanos(5),
            metadata,
        };
        let text = String::from_utf8(record.write()).unwrap();
        assert_eq!(text, r#"{"v":1,"owner":"host/01.4","ttl":1500000000,"since":5,"host":"höst"}"#);
        let read = Record::read(&stored(&text)).unwrap();
        assert_eq!(read.token, Token::new(77), "the number of the write");
        record.token = Token::new(5);
        let text = String::from_utf8(record.write()).unwrap();
        assert!(text.contains(r#""token":5,"#), "{text}");
        assert_eq!(Record::read(&stored(&text)).unwrap(), record);
    }

    #[test]
    fn what_can_not_be_read_is_held_by_somebody() {
        for data in
            ["", "x", "[]", "{}", r#"{"v":2}"#, r#"{"v":1}"#, r#"{"v":1,"owner":"a","ttl":-1,"since":0}"#]
        {
            let holder = holder(&stored(data), None);
            assert!(holder.problem.is_some() && holder.token.is_none(), "{data}: {holder:?}");
        }
        let newer = holder(&stored(r#"{"v":2}"#), None).problem.unwrap();
        assert!(newer.contains("format 2"), "{newer}");
    }

    #[test]
    fn what_is_told_of_the_rest_is_never_more_than_was_asked_for() {
        let record = stored(r#"{"v":1,"owner":"a","ttl":1500000000,"since":0}"#);
        let at = |nanos| rest(&record, Timestamp::from_nanos(nanos));
        assert_eq!(at(1_000_000_000), Some(Duration::from_millis(1500)));
        assert_eq!(at(2_000_000_000), Some(Duration::from_millis(500)));
        assert_eq!(at(9_000_000_000), Some(Duration::ZERO));
        assert_eq!(at(0), Some(Duration::from_millis(1500)));
        assert_eq!(ends_in(&record, Timestamp::from_nanos(2_500_000_000)), Some(Duration::from_millis(500)));
        assert_eq!(rest(&Stored { ttl: None, ..record }, Timestamp::EPOCH), None);
    }

    #[test]
    fn what_the_server_brings_back_after_its_end_is_over_by_its_own_clock() {
        let record = stored(r#"{"v":1,"owner":"a","ttl":1500000000,"since":0}"#);
        let step = Duration::from_millis(250);
        let at = |nanos| is_overdue(&record, Timestamp::from_nanos(nanos), step);
        // Written at one second, for two at the server.
        assert!(!at(0) && !at(2_600_000_000), "what was asked for is not what the server goes by");
        assert!(!at(3_250_000_000) && at(3_250_000_001));
        let endless = Stored { ttl: None, ..record.clone() };
        assert!(!is_overdue(&endless, Timestamp::MAX, step), "no clock of a server's ends it");
    }
}
