//! The instances of a fleet as a store keeps them: one bounded record each, and what every operation makes of it.
//!
//! An adapter loads the record of an incarnation, lets [`MemberRecord::beat`], [`MemberRecord::leave`] or
//! [`MemberRecord::mark`] act on it, and writes it back, all in one atomic step. Where that has changed what others see
//! ([`Changed`]), and where a member's time is over, the version of the view rises.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Digest, Identity, Incarnation, Instant, Labels, Member, Presence, Timestamp};

use crate::{Metadata, StoreError, StoreTime, clock};

#[cfg(test)]
mod tests;

/// Show that an instance is alive, and say what it says of itself. The answer is the view of those that are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "drivers make them, stores carry them out")]
pub struct Heartbeat {
    /// Who it is.
    pub identity: Identity,
    /// Rises with each heartbeat of an incarnation. One that is not above the last changes nothing; the view is told all
    /// the same.
    pub sequence: u64,
    /// When the instance joined, if it knows: adopted if the store does not.
    pub joined: Option<Timestamp>,
    /// Whether it drains by its own will.
    pub draining: bool,
    /// Whether an operator wants it to drain, as far as it has heard: adopted if the store does not know the instance, so
    /// that it stays drained when its record is lost, or was forgotten while it could not be heard of. Of one that the
    /// store knows it tells whether the operator's wish has been heard of.
    pub marked: bool,
    /// The kinds of plans that it takes part in, at most [`Heartbeat::MOST_DIGESTS`]; sorted, each once.
    pub digests: Arc<[Digest]>,
    /// What its program says of it.
    pub labels: Labels,
    /// The version of the view that it knows, and need not be told again.
    pub known: Option<u64>,
    /// How long it is listed from now on.
    pub ttl: Duration,
    /// What to keep with the record for whoever inspects it.
    pub metadata: Metadata,
    /// How long the operation may take; after that its outcome is taken as unknown.
    pub timeout: Duration,
}

impl Heartbeat {
    /// The most kinds of plans that an instance takes part in: each of them travels to every other instance.
    pub const MOST_DIGESTS: usize = 64;
    /// The highest sequence number that is taken: some stores keep signed numbers.
    pub const HIGHEST_SEQUENCE: u64 = i64::MAX as u64;
}

/// List an instance no longer, and none of its heartbeats that come later.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "drivers make them, stores carry them out")]
pub struct Leave {
    /// Who it is.
    pub identity: Identity,
    /// For how long heartbeats that come late are refused.
    pub ttl: Duration,
    /// How long the operation may take.
    pub timeout: Duration,
}

/// An operator's wish that instances drain, or no longer. Heartbeats don't touch it where there is a record, and bring it
/// back where there is none: an instance that comes back and knows of a mark makes it again only if the store has forgotten
/// that instance. As long as it is remembered the mark can be taken from it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "drivers make them, stores carry them out")]
pub struct DrainMark {
    /// The name of the instance.
    pub instance: Arc<str>,
    /// Which process of that name; `None` for all of them.
    pub incarnation: Option<Incarnation>,
    /// Whether they are to drain.
    pub drain: bool,
}

impl DrainMark {
    /// Whether it is about this member.
    #[must_use]
    pub fn concerns(&self, identity: &Identity) -> bool {
        identity.instance() == &*self.instance
            && self.incarnation.is_none_or(|incarnation| incarnation == identity.incarnation())
    }
}

/// A member of the fleet, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberEntry {
    /// What the others see of it.
    pub member: Member,
    /// Whether an operator wants it to drain.
    pub marked: bool,
    /// Whether it has said since that it knows: it takes nothing new any more.
    pub knows_mark: bool,
    /// How long ago its last heartbeat came, by the store's clock.
    pub heard: Duration,
    /// The TTL that it asked for.
    pub ttl: Duration,
    /// What it keeps with its record.
    pub metadata: Metadata,
    /// Why its record can't be read: a newer format, damage. Of such a member only the identity is known. It is not in
    /// the view that heartbeats bring back.
    pub problem: Option<String>,
}

impl MemberEntry {
    /// A member whose record can't be read, for this reason.
    #[must_use]
    pub fn unreadable(identity: Identity, problem: impl Into<String>) -> Self {
        Self {
            member: Member::new(identity, Timestamp::EPOCH),
            marked: false,
            knows_mark: false,
            heard: Duration::ZERO,
            ttl: Duration::ZERO,
            metadata: Metadata::new(),
            problem: Some(problem.into()),
        }
    }
}

/// The record of one incarnation. It is bounded: labels and digests are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "adapters write and read them")]
pub struct MemberRecord {
    /// The highest sequence number of its heartbeats.
    pub sequence: u64,
    /// When it joined, by the wall clock. It never changes.
    pub joined: Timestamp,
    /// Since when it has been here without a break, by the clock of expiry.
    pub since: Instant,
    /// When its last heartbeat came, by the clock of expiry.
    pub heard: Instant,
    /// The TTL that it asked for. It is listed for so long after its last heartbeat, and remembered for twice as long.
    pub ttl: Duration,
    /// It has left: it is not listed any more, and only remembered.
    pub left: bool,
    /// Whether it drains by its own will.
    pub draining: bool,
    /// Whether an operator wants it to drain.
    pub marked: bool,
    /// Whether a heartbeat has said since that it knows. No one else sees that.
    pub knows_mark: bool,
    /// The kinds of plans that it takes part in.
    pub digests: Arc<[Digest]>,
    /// What its program says of it.
    pub labels: Labels,
    /// What it keeps with its record.
    pub metadata: Metadata,
}

/// What an operation has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "an adapter must handle every one")]
pub enum Changed {
    /// Nothing: the record stays as it is.
    Nothing,
    /// The record, in nothing that others see.
    Record,
    /// What others see: the version of the view rises, and they are to be told.
    View,
}

impl MemberRecord {
    /// Carries a heartbeat out on the record of its incarnation, `None` if there is none.
    ///
    /// # Errors
    /// [`StoreErrorKind::Rejected`](crate::StoreErrorKind::Rejected) if it comes late: the incarnation has left, or its
    /// time was over after a later heartbeat than this one.
    pub fn beat(record: &mut Option<Self>, beat: &Heartbeat, time: StoreTime) -> Result<Changed, StoreError> {
        let before = record.take_if(|record| !record.is_remembered(time.now));
        let known = record.as_ref().or(before.as_ref());
        let joined = known.map(|record| record.joined).or(beat.joined).unwrap_or(time.wall);
        let marked = known.map_or(beat.marked, |record| record.marked);
        let Some(record) = record else {
            *record = Some(Self {
                sequence: beat.sequence,
                joined,
                since: time.now,
                heard: time.now,
                ttl: beat.ttl,
                left: false,
                draining: beat.draining,
                marked,
                knows_mark: marked && beat.marked,
                digests: Arc::clone(&beat.digests),
                labels: beat.labels.clone(),
                metadata: beat.metadata.clone(),
            });
            return Ok(Changed::View);
        };
        let listed = record.is_listed(time.now);
        if record.left || (!listed && beat.sequence <= record.sequence) {
            let text = format!("{} is gone: this heartbeat of it came late", beat.identity);
            return Err(StoreError::rejected(text));
        }
        if beat.sequence <= record.sequence {
            return Ok(Changed::Nothing);
        }
        let same = listed
            && record.draining == beat.draining
            && record.digests == beat.digests
            && record.labels == beat.labels;
        if !listed {
            record.since = time.now;
        }
        (record.sequence, record.heard, record.ttl) = (beat.sequence, time.now, beat.ttl);
        record.draining = beat.draining;
        record.knows_mark = record.marked && beat.marked;
        record.digests = Arc::clone(&beat.digests);
        record.labels = beat.labels.clone();
        record.metadata = beat.metadata.clone();
        Ok(if same { Changed::Record } else { Changed::View })
    }

    /// Carries a leave out. The record stays for the TTL that it gives, so that no heartbeat that comes late makes it
    /// anew.
    pub fn leave(record: &mut Option<Self>, leave: &Leave, time: StoreTime) -> Changed {
        let listed = record.as_ref().is_some_and(|record| record.is_listed(time.now));
        let gone = record.get_or_insert_with(|| Self {
            sequence: 0,
            joined: time.wall,
            since: time.now,
            heard: time.now,
            ttl: leave.ttl,
            left: true,
            draining: false,
            marked: false,
            knows_mark: false,
            digests: Arc::from([]),
            labels: Labels::default(),
            metadata: Metadata::new(),
        });
        (gone.left, gone.heard, gone.ttl) = (true, time.now, leave.ttl);
        if listed { Changed::View } else { Changed::Record }
    }

    /// Carries an operator's wish out. What the instance has said of an earlier one counts no more.
    pub const fn mark(&mut self, drain: bool) -> Changed {
        if self.marked == drain {
            return Changed::Nothing;
        }
        (self.marked, self.knows_mark) = (drain, false);
        Changed::View
    }

    /// Whether an operator's wish concerns it at this time: as long as it is listed. A mark is also taken from one that is
    /// only remembered, with which it would come back; no one else sees that.
    #[must_use]
    pub fn can_be_marked(&self, drain: bool, now: Instant) -> bool {
        let would_come_back = self.marked && !drain && !self.left && self.is_remembered(now);
        self.is_listed(now) || would_come_back
    }

    /// Whether it is one of the view at this time, by the clock of expiry.
    #[must_use]
    pub fn is_listed(&self, now: Instant) -> bool {
        !self.left && now < self.ends()
    }

    /// When it is listed no longer, unless another heartbeat comes.
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.heard + self.ttl
    }

    /// Whether it is still needed to tell heartbeats that come late: for another TTL after its end.
    #[must_use]
    pub fn is_remembered(&self, now: Instant) -> bool {
        now < self.forgotten_at()
    }

    /// When it can be removed, unless another heartbeat comes.
    #[must_use]
    pub fn forgotten_at(&self) -> Instant {
        if self.left { self.heard + self.ttl } else { self.heard + self.ttl.saturating_mul(2) }
    }

    /// What others see of it at this time.
    #[must_use]
    pub fn member(&self, identity: &Identity, now: Instant) -> Member {
        let mut member = Member::new(identity.clone(), self.joined);
        member.age = now.saturating_since(self.since);
        member.draining = self.draining || self.marked;
        member.digests = Arc::clone(&self.digests);
        member.labels = self.labels.clone();
        member
    }

    /// What a list tells of it at this time.
    #[must_use]
    pub fn entry(&self, identity: &Identity, now: Instant) -> MemberEntry {
        MemberEntry {
            member: self.member(identity, now),
            marked: self.marked,
            knows_mark: self.knows_mark,
            heard: now.saturating_since(self.heard),
            ttl: self.ttl,
            metadata: self.metadata.clone(),
            problem: None,
        }
    }
}

/// The next version of a view. It rises, and does not fall when the store loses its memory, as long as its wall clock
/// stands later then: like a token, it begins with the clock's microseconds.
#[must_use]
pub fn next_version(version: u64, wall: Timestamp) -> u64 {
    version.saturating_add(1).max(clock::micros(wall))
}

/// The instances of a fleet in memory: for adapters that keep them all in one place, and for models of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fleet {
    records: BTreeMap<Identity, MemberRecord>,
    /// How many of them are listed, when the version was last looked at.
    listed: usize,
    version: u64,
}

impl Fleet {
    /// What was written down before: the version, how many were listed at that time, and all records.
    #[must_use]
    pub fn restore(
        version: u64,
        listed: usize,
        records: impl IntoIterator<Item = (Identity, MemberRecord)>,
    ) -> Self {
        Self { records: records.into_iter().collect(), listed, version }
    }

    /// The version of the view, as of the last operation.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// How many members were listed then.
    #[must_use]
    pub const fn listed(&self) -> usize {
        self.listed
    }

    /// All records, also of those that are only remembered; sorted by identity.
    pub fn records(&self) -> impl Iterator<Item = (&Identity, &MemberRecord)> {
        self.records.iter()
    }

    /// Forgets what is over at this time; tells whether that has changed what others see.
    pub fn advance(&mut self, time: StoreTime) -> bool {
        self.records.retain(|_, record| record.is_remembered(time.now));
        let listed = self.records.values().filter(|record| record.is_listed(time.now)).count();
        // Whoever joins or leaves is counted at once, so that only time can have made a difference.
        let changed = listed != std::mem::replace(&mut self.listed, listed);
        if changed {
            self.version = next_version(self.version, time.wall);
        }
        changed
    }

    /// Carries a heartbeat out; tells the view, and whether what others see has changed.
    ///
    /// # Errors
    /// As of [`MemberRecord::beat`].
    pub fn beat(&mut self, beat: &Heartbeat, time: StoreTime) -> Result<(Presence, bool), StoreError> {
        let expired = self.advance(time);
        let mut record = self.records.remove(&beat.identity);
        let done = MemberRecord::beat(&mut record, beat, time);
        let presence = record.as_ref().map(|record| (record.joined, record.marked));
        self.records.extend(record.map(|record| (beat.identity.clone(), record)));
        let changed = self.changed(done?, time);
        let (joined, marked) = presence.unwrap_or((time.wall, false));
        let mut presence = if beat.known == Some(self.version) {
            Presence::unchanged(joined, self.version)
        } else {
            let listed = self.records.iter().filter(|(_, record)| record.is_listed(time.now));
            let members = listed.map(|(identity, record)| record.member(identity, time.now));
            Presence::new(joined, self.version, members)
        };
        presence.drain = marked;
        Ok((presence, changed || expired))
    }

    /// Carries a leave out; tells whether what others see has changed.
    pub fn leave(&mut self, leave: &Leave, time: StoreTime) -> bool {
        let expired = self.advance(time);
        let mut record = self.records.remove(&leave.identity);
        let done = MemberRecord::leave(&mut record, leave, time);
        self.records.extend(record.map(|record| (leave.identity.clone(), record)));
        self.changed(done, time) || expired
    }

    /// Marks the members that this concerns; tells who they are, and whether what others see has changed.
    pub fn mark(&mut self, mark: &DrainMark, time: StoreTime) -> (Vec<Identity>, bool) {
        let mut changed = self.advance(time);
        let mut concerned = Vec::new();
        for (identity, record) in &mut self.records {
            if mark.concerns(identity) && record.can_be_marked(mark.drain, time.now) {
                concerned.push(identity.clone());
                let listed = record.is_listed(time.now);
                changed |= record.mark(mark.drain) == Changed::View && listed;
            }
        }
        if changed {
            self.version = next_version(self.version, time.wall);
        }
        (concerned, changed)
    }

    /// At most `most` of the listed members, those after `after`, sorted by identity.
    #[must_use]
    pub fn list(&self, after: Option<&Identity>, most: usize, time: StoreTime) -> Vec<MemberEntry> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let records = self.records.range::<Identity, _>((after, Bound::Unbounded));
        let listed = records.filter(|(_, record)| record.is_listed(time.now));
        listed.map(|(identity, record)| record.entry(identity, time.now)).take(most).collect()
    }

    fn changed(&mut self, changed: Changed, time: StoreTime) -> bool {
        self.listed = self.records.values().filter(|record| record.is_listed(time.now)).count();
        if changed == Changed::View {
            self.version = next_version(self.version, time.wall);
        }
        changed == Changed::View
    }

    /// Whether nothing is remembered of anybody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
