//! The members of the fleet: a hash with their records, and beside it until when each of them is listed, and remembered.
//!
//! What becomes of a record is decided here, by [`MemberRecord`]: it is read together with the server's time, and written
//! on the condition that it is what it was, and that its time is not over meanwhile. Who is listed follows from the times
//! alone: whoever writes first moves those on whose time is over, and then gives the view its next version. So a
//! heartbeat takes two requests, and one that changes nothing for others brings no list back.

use std::time::Duration;

use redis::Value;
use tenure_core::{Identity, Instant, Presence};
use tenure_json::member;
use tenure_store::{
    Changed, DrainMark, Heartbeat, Leave, MemberEntry, MemberRecord, StoreError, StoreErrorKind, StoreTime,
    clock,
};

use crate::client::Client;
use crate::error::strange;
use crate::keys::FleetKeys;
use crate::looking::PATIENCE;
use crate::reply::{self, again, micros, only_read, parts};
use crate::script::{self, Call};

/// So many records are read at once for a list.
const READ_AT_ONCE: usize = 500;

/// Who publishes what nobody has been told by an answer.
const NOBODY: &str = "-";

/// A member as it was read.
struct Read {
    time: StoreTime,
    /// Its record as it stands there; `None` if there is none.
    text: Option<Vec<u8>>,
    /// Until when it is listed, as it stands there.
    ends: Option<Vec<u8>>,
}

/// What is to be written, and who wants to know what.
struct Write<'a> {
    identity: &'a Identity,
    /// `None` if all stays as it is.
    record: Option<&'a MemberRecord>,
    changed: Changed,
    /// Who has changed it, and need not be told.
    by: &'a str,
    /// The version that the asker knows, or a word that asks for no view.
    known: &'a str,
}

/// What a write was answered with.
struct Written {
    time: StoreTime,
    version: u64,
    /// How long until the first of the others is listed no longer.
    next_end: Option<Duration>,
    /// Identities and records.
    view: Option<Vec<Value>>,
}

impl Client {
    pub(crate) async fn beat(&self, beat: &Heartbeat) -> Result<Presence, StoreError> {
        self.limits.check_heartbeat(beat)?;
        let until = clock::now() + beat.timeout;
        let keys = self.server.keys(until).await?.fleet();
        match self.hear_members(keys.route, keys.channel.clone(), until).await {
            // A connection that brings no hints can still send heartbeats.
            Err(error) if error.kind != StoreErrorKind::Unsupported => return Err(only_read(error)),
            Ok(()) | Err(_) => {}
        }
        let known = beat.known.map(|version| version.to_string()).unwrap_or_default();
        loop {
            let read = self.read_member(&keys, &beat.identity, until).await?;
            // Nobody but that very process writes its record, so that what is damaged is made anew.
            let mut record = read.record();
            let changed = MemberRecord::beat(&mut record, beat, read.time)?;
            let (joined, marked) =
                record.as_ref().map_or((read.time.wall, false), |record| (record.joined, record.marked));
            let write = Write {
                identity: &beat.identity,
                record: record.as_ref().filter(|_| changed != Changed::Nothing),
                changed,
                by: &self.handle,
                known: &known,
            };
            let Some(written) = self.write_member(&keys, &read, &write, until).await? else {
                again(until).await?;
                continue;
            };
            let Written { time, version, next_end, view } = written;
            self.pushes.told_members(version, next_end);
            let mut presence = match view {
                None => Presence::unchanged(joined, version),
                Some(view) => {
                    let (pairs, _) = view.as_chunks::<2>();
                    let member = |[identity, record]: &[Value; 2]| {
                        let identity = identity_of(identity)?;
                        // What can't be read is nobody who counts.
                        let record = member::read(reply::bytes(record)?).ok()?;
                        record.is_listed(time.now).then(|| record.member(&identity, time.now))
                    };
                    Presence::new(joined, version, pairs.iter().filter_map(member))
                }
            };
            presence.drain = marked;
            return Ok(presence);
        }
    }

    pub(crate) async fn farewell(&self, leave: &Leave) -> Result<(), StoreError> {
        self.limits.check(&leave.clone().into())?;
        let until = clock::now() + leave.timeout;
        let keys = self.server.keys(until).await?.fleet();
        loop {
            let read = self.read_member(&keys, &leave.identity, until).await?;
            let mut record = read.record();
            let changed = MemberRecord::leave(&mut record, leave, read.time);
            let write = Write {
                identity: &leave.identity,
                record: record.as_ref(),
                changed,
                by: NOBODY,
                known: "any",
            };
            if self.write_member(&keys, &read, &write, until).await?.is_some() {
                return Ok(());
            }
            again(until).await?;
        }
    }

    /// Marks members to drain, or no longer; tells who they are.
    pub(crate) async fn mark_members(&self, mark: &DrainMark) -> Result<Vec<Identity>, StoreError> {
        let until = clock::now() + PATIENCE;
        let keys = self.server.keys(until).await?.fleet();
        loop {
            let call =
                Call::new().key(&keys.records).key(&keys.remembered).arg(format!("{}/", mark.instance));
            let answer =
                self.server.run(keys.route, &script::MARK_READ, &call, until).await.map_err(only_read)?;
            let (time, found) = timed(&answer, &keys.records)?;
            let (mut concerned, mut changed) = (Vec::new(), false);
            let mut writes: Vec<(&[u8], &[u8], String)> = Vec::new();
            for [name, text] in found.as_chunks::<2>().0 {
                let (Some(identity), Some(name), Some(text)) =
                    (identity_of(name), reply::bytes(name), reply::bytes(text))
                else {
                    continue;
                };
                let Ok(mut record) = member::read(text) else { continue };
                if !mark.concerns(&identity) || !record.can_be_marked(mark.drain, time.now) {
                    continue;
                }
                if record.mark(mark.drain) == Changed::View {
                    changed |= record.is_listed(time.now);
                    writes.push((name, text, member::write(&record)));
                }
                concerned.push(identity);
            }
            concerned.sort();
            if writes.is_empty() {
                return Ok(concerned);
            }
            let mut call = keys.call().arg(&keys.channel).arg(NOBODY).arg(u8::from(changed));
            for (name, before, after) in writes {
                call = call.arg(name).arg(before).arg(after);
            }
            let written = self.server.run(keys.route, &script::MARK_WRITE, &call, until).await?;
            match parts(&written, &keys.records)? {
                [Value::BulkString(what)] if what == b"written" => return Ok(concerned),
                [Value::BulkString(what)] if what == b"changed" => again(until).await?,
                _ => return Err(strange(&written)),
            }
        }
    }

    /// At most `most` members after `after`, sorted by identity; those that can't be read among them.
    pub(crate) async fn list_members(
        &self,
        after: Option<Identity>,
        most: usize,
    ) -> Result<Vec<MemberEntry>, StoreError> {
        let keys = self.server.keys(clock::now() + PATIENCE).await?.fleet();
        let call = Call::new().key(&keys.records).key(&keys.listed);
        let (_, listed) = self.read_members(&keys, &call).await?;
        // The order of the texts is not that of the identities: the name may go on with less than a slash.
        let mut identities: Vec<Identity> = listed.iter().filter_map(identity_of).collect();
        identities.retain(|identity| after.as_ref().is_none_or(|after| identity > after));
        identities.sort();
        let mut entries = Vec::new();
        let mut rest = &identities[..];
        while entries.len() < most && !rest.is_empty() {
            let (some, others) = rest.split_at(rest.len().min(most - entries.len()).min(READ_AT_ONCE));
            rest = others;
            let mut call = Call::new().key(&keys.records).key(&keys.listed);
            some.iter().for_each(|identity| call.push_arg(identity.to_string()));
            let (time, records) = self.read_members(&keys, &call).await?;
            let entry = |(identity, record): (&Identity, &Value)| match reply::bytes(record) {
                None => Some(MemberEntry::unreadable(identity.clone(), "its record is missing")),
                Some(record) => match member::read(record) {
                    Ok(record) if record.is_listed(time.now) => Some(record.entry(identity, time.now)),
                    Ok(_) => None,
                    Err(problem) => Some(MemberEntry::unreadable(identity.clone(), problem.to_string())),
                },
            };
            entries.extend(some.iter().zip(&records).filter_map(entry));
        }
        Ok(entries)
    }

    async fn read_members(
        &self,
        keys: &FleetKeys,
        call: &Call,
    ) -> Result<(StoreTime, Vec<Value>), StoreError> {
        let until = clock::now() + PATIENCE;
        let answer = self.server.run(keys.route, &script::MEMBERS_READ, call, until).await?;
        timed(&answer, &keys.records).map(|(time, found)| (time, found.to_vec()))
    }

    async fn read_member(
        &self,
        keys: &FleetKeys,
        identity: &Identity,
        until: Instant,
    ) -> Result<Read, StoreError> {
        let call = Call::new().key(&keys.records).key(&keys.listed).arg(identity.to_string());
        let answer =
            self.server.run(keys.route, &script::MEMBER_READ, &call, until).await.map_err(only_read)?;
        let [seconds, micros, text, ends] = parts(&answer, &keys.records)? else {
            return Err(strange(&answer));
        };
        let time = reply::time(seconds, micros).ok_or_else(|| strange(&answer))?;
        let owned = |value| reply::bytes(value).map(<[u8]>::to_vec);
        Ok(Read { time, text: owned(text), ends: owned(ends) })
    }

    /// Writes a member if it is what it was; `None` if it is not.
    async fn write_member(
        &self,
        keys: &FleetKeys,
        read: &Read,
        write: &Write<'_>,
        until: Instant,
    ) -> Result<Option<Written>, StoreError> {
        let Write { identity, record, changed, by, known } = write;
        let mut call = keys
            .call()
            .arg(&keys.channel)
            .arg(by)
            .arg(identity.to_string())
            .arg(read.text.as_deref().unwrap_or_default())
            .arg(read.ends.as_deref().unwrap_or_default());
        match record {
            Some(record) => {
                call.push_arg(member::write(record));
                match record.left {
                    true => call.push_arg(""),
                    false => call.push_arg(micros(record.ends())),
                }
                call.push_arg(micros(record.forgotten_at()));
                call.push_arg(u8::from(*changed == Changed::View));
            }
            None => {
                for nothing in ["", "", "", "0"] {
                    call.push_arg(nothing);
                }
            }
        }
        call.push_arg(known);
        let answer = self.server.run(keys.route, &script::MEMBER_WRITE, &call, until).await?;
        let written = |parts: &[Value]| {
            let [_, seconds, micros, version, next_end, view @ ..] = parts else { return None };
            let time = reply::time(seconds, micros)?;
            let next_end = reply::number(next_end)
                .map(|end| Instant::from_nanos(end.saturating_mul(1000)))
                .map(|end| end.saturating_since(time.now));
            let view = match view {
                [] => None,
                [Value::Array(view)] => Some(view.clone()),
                _ => return None,
            };
            Some(Written { time, version: reply::number(version)?, next_end, view })
        };
        match parts(&answer, &keys.records)? {
            [Value::BulkString(what)] if what == b"changed" => Ok(None),
            parts => written(parts).map(Some).ok_or_else(|| strange(&answer)),
        }
    }
}

impl Read {
    /// Its record; `None` also if it can't be read.
    fn record(&self) -> Option<MemberRecord> {
        member::read(self.text.as_deref()?).ok()
    }
}

impl FleetKeys {
    /// A call of one of the scripts that change members.
    fn call(&self) -> Call {
        Call::new().key(&self.records).key(&self.listed).key(&self.remembered).key(&self.version)
    }
}

/// What was found, and when.
fn timed<'a>(answer: &'a Value, key: &[u8]) -> Result<(StoreTime, &'a [Value]), StoreError> {
    match parts(answer, key)? {
        [seconds, micros, Value::Array(found)] => {
            let time = reply::time(seconds, micros).ok_or_else(|| strange(answer))?;
            Ok((time, found))
        }
        _ => Err(strange(answer)),
    }
}

/// Who it is; `None` if that can't be anybody.
fn identity_of(value: &Value) -> Option<Identity> {
    Identity::parse(str::from_utf8(reply::bytes(value)?).ok()?)
}
