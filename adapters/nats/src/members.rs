//! The members of the fleet: a record for each, and one for the version of the view.
//!
//! What becomes of a record is decided here, by [`MemberRecord`], at the server's time. The version stands beside a digest
//! of what others see, and the time at which the first of those who are listed may be gone: until then whoever knows the
//! version need not look at the others. Whoever has changed something, or comes after that time, reads what was written
//! since it last looked, and raises the version if the digest is another one.

mod mirror;
mod version;

use std::time::Duration;

use tenure_core::{Identity, Instant, Presence, Timestamp};
use tenure_json::member;
use tenure_store::{
    Changed, DrainMark, Heartbeat, Leave, MemberEntry, MemberRecord, StoreError, StoreTime, clock,
    next_version,
};

pub(crate) use self::mirror::Mirror;
use self::version::Version;
use crate::client::Client;
use crate::link::{PATIENCE, Stored, Wrote, again};

/// What others see at some time.
struct View {
    time: StoreTime,
    version: u64,
    members: Vec<(Identity, MemberRecord)>,
}

impl Client {
    pub(crate) async fn beat(&self, beat: &Heartbeat) -> Result<Presence, StoreError> {
        self.limits.check_heartbeat(beat)?;
        let until = clock::now() + beat.timeout;
        self.hear_members(until).await?;
        loop {
            let (last, mut record, time) = self.read_member(&beat.identity, until).await?;
            let changed = MemberRecord::beat(&mut record, beat, time)?;
            let (joined, marked) =
                record.as_ref().map_or((time.wall, false), |record| (record.joined, record.marked));
            let mut written = last;
            if let Some(record) = record.filter(|_| changed != Changed::Nothing) {
                match self.write_member(&beat.identity, &record, last, time, until).await? {
                    Wrote::Written(sequence) => written = sequence,
                    Wrote::Changed => {
                        again(until).await?;
                        continue;
                    }
                }
            }
            let mut presence = match beat.known.filter(|_| changed != Changed::View) {
                Some(known) if self.is_version(known, time, until).await? => {
                    Presence::unchanged(joined, known)
                }
                _ => {
                    let view = self.look_at_members(written, until).await?;
                    self.pushes.told_members(view.version, view.next_end(&beat.identity));
                    if beat.known == Some(view.version) {
                        Presence::unchanged(joined, view.version)
                    } else {
                        let member = |(identity, record): &(Identity, MemberRecord)| {
                            record.member(identity, view.time.now)
                        };
                        Presence::new(joined, view.version, view.members.iter().map(member))
                    }
                }
            };
            presence.drain = marked;
            return Ok(presence);
        }
    }

    pub(crate) async fn farewell(&self, leave: &Leave) -> Result<(), StoreError> {
        self.limits.check(&leave.clone().into())?;
        let until = clock::now() + leave.timeout;
        loop {
            let (last, mut record, time) = self.read_member(&leave.identity, until).await?;
            let changed = MemberRecord::leave(&mut record, leave, time);
            let Some(record) = record else { return Ok(()) };
            match self.write_member(&leave.identity, &record, last, time, until).await? {
                Wrote::Written(sequence) => {
                    if changed == Changed::View {
                        // It has left, whether the others are told at once or find out.
                        let _ = self.look_at_members(sequence, until).await;
                    }
                    return Ok(());
                }
                Wrote::Changed => again(until).await?,
            }
        }
    }

    /// Marks members to drain, or no longer; tells who they are.
    pub(crate) async fn mark_members(&self, mark: &DrainMark) -> Result<Vec<Identity>, StoreError> {
        let until = clock::now() + PATIENCE;
        let mut mirror = self.mirror.lock().await;
        loop {
            mirror.refresh(&self.link, 0, until).await?;
            let time = self.link.time(until).await?;
            let (mut concerned, mut written, mut late) = (Vec::new(), None, false);
            for (identity, sequence, record) in mirror.readable() {
                if !mark.concerns(identity) || !record.can_be_marked(mark.drain, time.now) {
                    continue;
                }
                concerned.push(identity.clone());
                let mut record = record.clone();
                if record.mark(mark.drain) == Changed::View {
                    match self.write_member(identity, &record, sequence, time, until).await? {
                        Wrote::Written(sequence) => written = Some(sequence),
                        Wrote::Changed => late = true,
                    }
                }
            }
            if late {
                again(until).await?;
                continue;
            }
            drop(mirror);
            if let Some(sequence) = written {
                self.look_at_members(sequence, until).await?;
            }
            concerned.sort();
            return Ok(concerned);
        }
    }

    /// At most `most` members after `after`, sorted by identity; those that can't be read among them.
    pub(crate) async fn list_members(
        &self,
        after: Option<Identity>,
        most: usize,
    ) -> Result<Vec<MemberEntry>, StoreError> {
        let until = clock::now() + PATIENCE;
        let mut mirror = self.mirror.lock().await;
        mirror.refresh(&self.link, 0, until).await?;
        let time = self.link.time(until).await?;
        Ok(mirror.entries(after.as_ref(), time).take(most).collect())
    }

    /// A member's record and the number of the last write there, and the server's time after it was read. What can't be
    /// read counts as none: nobody but that very process writes it.
    async fn read_member(
        &self,
        identity: &Identity,
        until: Instant,
    ) -> Result<(u64, Option<MemberRecord>, StoreTime), StoreError> {
        let found = self.link.get(&self.link.names.member(identity), until).await?;
        let time = self.link.time(until).await?;
        let last = found.as_ref().map_or(0, |stored| stored.sequence);
        let record = found.filter(|stored| !stored.gone).and_then(|stored| member::read(&stored.data).ok());
        Ok((last, record, time))
    }

    async fn write_member(
        &self,
        identity: &Identity,
        record: &MemberRecord,
        last: u64,
        time: StoreTime,
        until: Instant,
    ) -> Result<Wrote, StoreError> {
        // The server may end it a little early, by its own reckoning.
        let ttl = record.forgotten_at().saturating_since(time.now) + Duration::from_secs(1);
        let data = member::write(record).into_bytes();
        self.link.write(&self.link.names.member(identity), data, last, ttl, until).await
    }

    /// Whether this is the version at this time, as far as can be told without looking at all members.
    async fn is_version(&self, known: u64, time: StoreTime, until: Instant) -> Result<bool, StoreError> {
        let stored = self.link.get(&self.link.names.version(), until).await?;
        let version = stored.as_ref().and_then(version_of);
        Ok(version.is_some_and(|version| version.number == known && time.now < version.next_end))
    }

    /// What others see, all writes up to this one among it; raises the version if that is another thing than before.
    async fn look_at_members(&self, written: u64, until: Instant) -> Result<View, StoreError> {
        let subject = self.link.names.version();
        let late = |_| StoreError::transient("others look at the members all the time");
        let rest = until.saturating_since(clock::now());
        let mut mirror = tokio::time::timeout(rest, self.mirror.lock()).await.map_err(late)?;
        loop {
            mirror.refresh(&self.link, written, until).await?;
            let time = mirror.time_after(self.link.time(until).await?);
            mirror.forget(time.now);
            let (last, before) = mirror.version();
            let (digest, next_end) = mirror.seen(time.now);
            let number = match &before {
                Some(before) if before.digest == digest && time.now < before.next_end => before.number,
                // Only time has gone by.
                Some(before) if before.digest == digest => {
                    let version = Version { next_end, ..before.clone() };
                    // Whoever else has written it has looked at the same time.
                    let _ = self.link.write_endless(&subject, version.write(), last, until).await?;
                    before.number
                }
                _ => {
                    let number = next_version(before.map_or(0, |before| before.number), time.wall);
                    let version = Version { number, digest, next_end };
                    match self.link.write_endless(&subject, version.write(), last, until).await? {
                        Wrote::Written(_) => {
                            let text = format!("{number} {}", self.handle);
                            self.link.tell(self.link.names.wake_members(), text).await;
                            number
                        }
                        Wrote::Changed => {
                            again(until).await?;
                            continue;
                        }
                    }
                }
            };
            let listed = mirror.readable().filter(|(_, _, record)| record.is_listed(time.now));
            let members = listed.map(|(identity, _, record)| (identity.clone(), record.clone())).collect();
            return Ok(View { time, version: number, members });
        }
    }
}

impl View {
    /// How long until the first of the others is listed no longer, unless it is heard of.
    fn next_end(&self, but: &Identity) -> Option<Duration> {
        let others = self.members.iter().filter(|(identity, _)| identity != but);
        others.map(|(_, record)| record.ends().saturating_since(self.time.now)).min()
    }
}

fn version_of(stored: &Stored) -> Option<Version> {
    if stored.gone { None } else { Version::read(&stored.data) }
}

/// The later of two times of the server.
fn later(time: StoreTime, other: Timestamp) -> StoreTime {
    if other > time.wall { StoreTime { wall: other, now: crate::link::instant(other) } } else { time }
}
