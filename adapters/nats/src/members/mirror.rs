//! All members as a handle has last read them: only what was written since is read again.
//!
//! The server tells what stands under some subjects in the order in which it was written. So whoever has read up to a
//! write knows all that was written before it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use tenure_core::{Identity, Instant, Timestamp};
use tenure_json::member;
use tenure_store::{MemberEntry, MemberRecord, StoreError, StoreTime, clock};

use super::version::{Seen, Version};
use super::{later, version_of};
use crate::link::{Link, Stored, again};
use crate::names::Kind;

/// Who is looked for before the end of those who are listed, at the latest so long after.
const LONGEST_LOOK: Duration = Duration::from_secs(3600);

/// All members, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// Which bucket it is of.
    epoch: u64,
    /// The number of the last write that was read, and the server's time of it.
    position: u64,
    time: Timestamp,
    records: BTreeMap<Identity, Read>,
    version: Option<(u64, Option<Version>)>,
}

/// A member's record, and the number of its write; in words why it can't be read.
#[derive(Debug)]
struct Read {
    sequence: u64,
    record: Result<MemberRecord, String>,
}

impl Mirror {
    /// Reads what was written since, up to this write at least.
    pub(super) async fn refresh(
        &mut self,
        link: &Link,
        at_least: u64,
        until: Instant,
    ) -> Result<(), StoreError> {
        let subjects = link.names.all_of(Kind::Member);
        loop {
            let next = link.next(&subjects, self.position + 1, until).await?;
            if self.epoch != link.epoch() {
                // It is another bucket, of which nothing was read yet.
                *self = Self { epoch: link.epoch(), ..Self::default() };
                continue;
            }
            match next {
                Some(stored) => self.take(link, &stored),
                None if self.position >= at_least => return Ok(()),
                // A server that was cut off told what it knew.
                None => again(until).await?,
            }
            if clock::now() >= until {
                return Err(StoreError::transient("there was no time left to read all members"));
            }
        }
    }

    fn take(&mut self, link: &Link, stored: &Stored) {
        (self.position, self.time) = (stored.sequence, self.time.max(stored.time));
        if stored.subject == link.names.version() {
            self.version = Some((stored.sequence, version_of(stored)));
            return;
        }
        let name = link.names.name_in(Kind::Member, &stored.subject);
        let Some(identity) = name.as_deref().and_then(Identity::parse) else { return };
        if stored.gone {
            self.records.remove(&identity);
        } else {
            let record = member::read(&stored.data).map_err(|problem| problem.to_string());
            self.records.insert(identity, Read { sequence: stored.sequence, record });
        }
    }

    /// A time that is not before that of any write that was read.
    pub(super) fn time_after(&self, time: StoreTime) -> StoreTime {
        later(time, self.time)
    }

    /// Forgets those who are not even remembered.
    pub(super) fn forget(&mut self, now: Instant) {
        self.records.retain(|_, read| read.record.as_ref().map_or(true, |record| record.is_remembered(now)));
    }

    /// The version and the number of its write.
    pub(super) fn version(&self) -> (u64, Option<Version>) {
        self.version.clone().unwrap_or_default()
    }

    /// All records that can be read, with the numbers of their writes, sorted by identity.
    pub(super) fn readable(&self) -> impl Iterator<Item = (&Identity, u64, &MemberRecord)> {
        self.records.iter().filter_map(|(identity, read)| {
            read.record.as_ref().ok().map(|record| (identity, read.sequence, record))
        })
    }

    /// A digest of what is seen at this time, and when the first of those who are listed may be gone.
    pub(super) fn seen(&self, now: Instant) -> (u64, Instant) {
        let (mut seen, mut next_end) = (Seen::new(), now + LONGEST_LOOK);
        for (identity, _, record) in self.readable().filter(|(_, _, record)| record.is_listed(now)) {
            seen.add(identity, record);
            next_end = next_end.min(record.ends());
        }
        (seen.end(), next_end)
    }

    /// Those who are listed at this time, and those who can't be read, after this one.
    pub(super) fn entries(
        &self,
        after: Option<&Identity>,
        time: StoreTime,
    ) -> impl Iterator<Item = MemberEntry> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.records.range::<Identity, _>((after, Bound::Unbounded)).filter_map(move |(identity, read)| {
            match &read.record {
                Ok(record) => record.is_listed(time.now).then(|| record.entry(identity, time.now)),
                Err(problem) => Some(MemberEntry::unreadable(identity.clone(), problem.clone())),
            }
        })
    }
}
