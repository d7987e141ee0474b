//! The members of the fleet, as they stand in rows, and what each operation does with them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{OptionalExtension as _, Row, params};
use tenure_core::{Digest, Identity, Incarnation, Instant, Labels, Member, Presence, Timestamp};
use tenure_store::{Changed, DrainMark, Heartbeat, Leave, MemberEntry, MemberRecord, Metadata, next_version};

use crate::liveness::{HandleId, Life};
use crate::record::{self, whole};
use crate::schema::ROW_FORMAT;
use crate::tx::{Step, Transaction, duration, signed};

/// The columns, in the order in which [`MemberRow::read`] takes them.
pub(crate) const COLUMNS: &str = "instance, incarnation, format, sequence, joined, boot, since, expires, ttl, listed, \
     gone, draining, marked, knows_mark, digests, labels, handle, early, host, pid, text";

/// So many processes are asked for their lives with each heartbeat: all there are on most machines, and few enough not to
/// be felt where there are more. Then each heartbeat begins elsewhere among them.
const PROBES: usize = 64;

/// A member as it stands in a row.
#[derive(Clone, Debug)]
pub(crate) struct MemberRow {
    pub(crate) record: MemberRecord,
    pub(crate) boot: String,
    /// The handle that sent its last heartbeat.
    pub(crate) handle: Option<HandleId>,
    /// Whether that handle has a liveness file.
    pub(crate) early: bool,
}

/// What those who are to hear of the members want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FleetSight {
    /// The version of the view.
    pub(crate) version: u64,
    /// When the next member is listed no longer, unless a heartbeat of it comes.
    pub(crate) next_end: Option<Instant>,
}

impl Transaction<'_> {
    /// Carries a heartbeat out.
    pub(crate) fn heartbeat(&mut self, beat: &Heartbeat) -> Step<Presence> {
        if let Err(error) = self.state_of_this_boot()? {
            return Ok(Err(error));
        }
        self.look_at_members()?;
        let mut record = self.load_member(&beat.identity)?;
        let changed = match MemberRecord::beat(&mut record, beat, self.time()) {
            Ok(changed) => changed,
            Err(error) => return Ok(Err(error)),
        };
        let (joined, marked) =
            record.as_ref().map_or((self.wall, false), |record| (record.joined, record.marked));
        if let (Changed::Record | Changed::View, Some(record)) = (changed, &record) {
            self.save_member(&beat.identity, record)?;
        }
        let version = match changed {
            Changed::View => self.raise_version()?,
            Changed::Nothing | Changed::Record => self.members_version()?,
        };
        let mut presence = if beat.known == Some(version) {
            Presence::unchanged(joined, version)
        } else {
            Presence::new(joined, version, self.view()?)
        };
        presence.drain = marked;
        Ok(Ok(presence))
    }

    /// Carries a leave out.
    pub(crate) fn leave(&mut self, leave: &Leave) -> Step<()> {
        if let Err(error) = self.state_of_this_boot()? {
            return Ok(Err(error));
        }
        self.look_at_members()?;
        let mut record = self.load_member(&leave.identity)?;
        let changed = MemberRecord::leave(&mut record, leave, self.time());
        if let Some(record) = &record {
            self.save_member(&leave.identity, record)?;
        }
        if changed == Changed::View {
            self.raise_version()?;
        }
        Ok(Ok(()))
    }

    /// Marks members to drain, or no longer; tells who they are.
    pub(crate) fn mark(&mut self, mark: &DrainMark) -> Step<Vec<Identity>> {
        if let Err(error) = self.state_of_this_boot()? {
            return Ok(Err(error));
        }
        self.look_at_members()?;
        let rows: Vec<(Identity, MemberRow)> = self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM member WHERE instance = ?1 ORDER BY incarnation"
            ))?
            .query_map([mark.instance.as_bytes()], |row| Ok((identity(row), MemberRow::read(row))))?
            .filter_map(|row| row.map(|(identity, read)| Some((identity?, read.ok()?))).transpose())
            .collect::<rusqlite::Result<_>>()?;
        let mut concerned = Vec::new();
        let mut changed = false;
        for (identity, mut row) in rows {
            let can_be_marked = row.boot == self.boot && row.record.can_be_marked(mark.drain, self.now);
            if !mark.concerns(&identity) || !can_be_marked {
                continue;
            }
            if row.record.mark(mark.drain) == Changed::View {
                // The handle stays: it is the member's, not the operator's.
                self.connection
                    .prepare_cached(
                        "UPDATE member SET marked = ?3, knows_mark = ?4 WHERE instance = ?1 AND incarnation = ?2",
                    )?
                    .execute(params![
                        instance(&identity),
                        incarnation(&identity),
                        row.record.marked,
                        row.record.knows_mark
                    ])?;
                changed |= self.is_listed(&row);
            }
            concerned.push(identity);
        }
        if changed {
            self.raise_version()?;
        }
        Ok(Ok(concerned))
    }

    /// At most `most` members after `after`, in the order of their identities; those that can't be read among them.
    pub(crate) fn members(
        &self,
        after: Option<&Identity>,
        most: usize,
    ) -> rusqlite::Result<Vec<MemberEntry>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM member WHERE (instance, incarnation) > (?1, ?2) AND (listed = 1 OR format <> ?3) \
             ORDER BY instance, incarnation"
        ))?;
        let (name, bits) = after.map_or((&[][..], [0; 16]), |after| (instance(after), incarnation(after)));
        let mut rows = statement.query(params![name, bits, ROW_FORMAT])?;
        let mut lives: BTreeMap<HandleId, Life> = BTreeMap::new();
        let mut listed = Vec::new();
        while listed.len() < most
            && let Some(row) = rows.next()?
        {
            let Some(identity) = identity(row) else { continue };
            match MemberRow::read(row) {
                Ok(row) if self.is_listed(&row) => {
                    let mut life = |handle| *lives.entry(handle).or_insert_with(|| self.life(handle));
                    if !row.early || row.handle.is_none_or(|handle| life(handle) != Life::Dead) {
                        listed.push(row.record.entry(&identity, self.now));
                    }
                }
                Ok(_) => {}
                Err(problem) => listed.push(MemberEntry::unreadable(identity, problem)),
            }
        }
        Ok(listed)
    }

    /// Whether the members are others than before, and when they may be.
    pub(crate) fn fleet_sight(&self) -> rusqlite::Result<FleetSight> {
        let next_end = self
            .connection
            .prepare_cached("SELECT min(expires) FROM member WHERE listed = 1 AND format = ?1")?
            .query_row([ROW_FORMAT], |row| Ok(row.get_ref(0)?.as_i64_or_null().unwrap_or_default()))?;
        let next_end = next_end.map(|end| Instant::from_nanos(u64::try_from(end).unwrap_or(0)));
        Ok(FleetSight { version: self.members_version()?, next_end })
    }

    /// The members that are listed now, sorted. What can't be read is nobody who counts.
    fn view(&self) -> rusqlite::Result<Vec<Member>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM member WHERE listed = 1 ORDER BY instance, incarnation"
        ))?;
        let mut rows = statement.query([])?;
        let mut members = Vec::new();
        while let Some(row) = rows.next()? {
            if let (Some(identity), Ok(row)) = (identity(row), MemberRow::read(row))
                && self.is_listed(&row)
            {
                members.push(row.record.member(&identity, self.now));
            }
        }
        Ok(members)
    }

    fn is_listed(&self, row: &MemberRow) -> bool {
        row.boot == self.boot && row.record.is_listed(self.now)
    }

    /// The record of a member; `None` also if it can't be read. Nobody but that very process writes it, so that what is
    /// damaged is made anew by its next heartbeat.
    fn load_member(&self, identity: &Identity) -> rusqlite::Result<Option<MemberRecord>> {
        let row = self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM member WHERE instance = ?1 AND incarnation = ?2"
            ))?
            .query_row(params![instance(identity), incarnation(identity)], |row| Ok(MemberRow::read(row)))
            .optional()?;
        Ok(row.and_then(Result::ok).filter(|row| row.boot == self.boot).map(|row| row.record))
    }

    /// Writes a record, and names this handle as the one whose life counts.
    fn save_member(&self, identity: &Identity, record: &MemberRecord) -> rusqlite::Result<()> {
        let MemberRecord { sequence, joined, since, ttl, left, draining, marked, .. } = record;
        let MemberRecord { knows_mark, digests, labels, metadata: Metadata { host, pid, text, .. }, .. } =
            record;
        self.connection
            .prepare_cached(&format!(
                "INSERT OR REPLACE INTO member ({COLUMNS}) VALUES \
                 (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)"
            ))?
            .execute(params![
                instance(identity),
                incarnation(identity),
                ROW_FORMAT,
                signed(*sequence),
                joined.as_nanos(),
                self.boot,
                signed(since.as_nanos()),
                signed(record.ends().as_nanos()),
                duration(*ttl),
                record.is_listed(self.now),
                left,
                draining,
                marked,
                knows_mark,
                write_digests(digests),
                write_labels(labels),
                self.me.handle().as_bytes(),
                self.me.is_visible(),
                host.as_deref(),
                pid,
                text.as_deref(),
            ])
            .map(drop)
    }

    /// The version of the view. One that was lost, or can't be, is taken for none: the next is above the wall clock.
    fn members_version(&self) -> rusqlite::Result<u64> {
        let version = self
            .connection
            .prepare_cached("SELECT version FROM fleet WHERE one = 1")?
            .query_row([], |row| Ok(row.get_ref(0)?.as_i64().ok()))
            .optional()?;
        Ok(version.flatten().and_then(|version| u64::try_from(version).ok()).unwrap_or(0))
    }

    /// What others see has changed: gives the view its next version.
    fn raise_version(&mut self) -> rusqlite::Result<u64> {
        let version = next_version(self.members_version()?, self.wall);
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO fleet (one, version) VALUES (1, ?1)")?
            .execute([signed(version)])?;
        self.ring = true;
        Ok(version)
    }
}

/// Members that are gone: by time, or with their process.
impl Transaction<'_> {
    /// Looks for the members that are listed no longer, by time or since their process has died; once per transaction.
    pub(crate) fn look_at_members(&mut self) -> rusqlite::Result<()> {
        if !std::mem::replace(&mut self.members_looked_at, true) {
            self.end_members()?;
            let handles = self.member_handles(PROBES)?;
            self.remove_the_dead(handles)?;
        }
        Ok(())
    }

    /// Lists those no longer whose time is over, and removes what need not be remembered. Once another machine has taken the
    /// store over that is its affair: by the clock here nothing can be said of its members.
    pub(crate) fn end_members(&mut self) -> rusqlite::Result<()> {
        if self.state_of_this_boot()?.is_err() {
            return Ok(());
        }
        let now = signed(self.now.as_nanos());
        let ended = self
            .connection
            .prepare_cached(
                "UPDATE member SET listed = 0 WHERE listed = 1 AND expires <= ?1 AND format = ?2",
            )?
            .execute(params![now, ROW_FORMAT])?;
        self.connection
            .prepare_cached(
                "DELETE FROM member WHERE listed = 0 AND expires <= ?1 AND format = ?2 \
                 AND (gone <> 0 OR expires + ttl <= ?1)",
            )?
            .execute(params![now, ROW_FORMAT])?;
        if ended > 0 {
            self.raise_version()?;
        }
        Ok(())
    }

    /// Removes what other boots have left: nobody of them is listed, and their times say nothing here.
    pub(crate) fn sweep_members(&mut self) -> rusqlite::Result<()> {
        if self.state_of_this_boot()?.is_err() {
            return Ok(());
        }
        self.connection
            .prepare_cached("DELETE FROM member WHERE boot <> ?1 AND format = ?2")?
            .execute(params![self.boot, ROW_FORMAT])?;
        self.look_at_members()
    }

    /// At most so many of the other handles whose members are listed and whose death could be proven, beginning somewhere.
    pub(crate) fn member_handles(&self, most: usize) -> rusqlite::Result<Vec<HandleId>> {
        if !self.me.is_visible() {
            return Ok(Vec::new());
        }
        // Handles are random numbers, so this spreads the beginnings over them; the factor is 2^64 over the golden ratio.
        let from = self.now.as_nanos().wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        let mut handles = self.handles_between(&from, &[0xff; 17], most)?;
        handles.extend(self.handles_between(&[], &from, most - handles.len())?);
        Ok(handles)
    }

    /// Each handle once, by one step in the index for each.
    fn handles_between(&self, from: &[u8], to: &[u8], most: usize) -> rusqlite::Result<Vec<HandleId>> {
        let mut next = self.connection.prepare_cached(
            "SELECT handle FROM member WHERE listed = 1 AND early = 1 AND handle > ?1 AND handle <= ?2 \
             ORDER BY handle LIMIT 1",
        )?;
        let (mut handles, mut from) = (Vec::new(), from.to_vec());
        while handles.len() < most {
            let found = next.query_row(params![from, to], |row| row.get::<_, Vec<u8>>(0)).optional()?;
            let Some(found) = found else { break };
            handles.extend(HandleId::from_bytes(&found).filter(|handle| *handle != self.me.handle()));
            from = found;
        }
        Ok(handles)
    }

    /// Whether this handle's members are listed, and their end could be proven.
    pub(crate) fn is_of_a_member(&self, handle: HandleId) -> rusqlite::Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM member WHERE listed = 1 AND early = 1 AND handle = ?1 LIMIT 1")?
            .exists([handle.as_bytes()])
    }

    /// Removes the members of those of these handles whose process has certainly died. No heartbeat of them is to come, so
    /// that they need not be remembered.
    pub(crate) fn remove_the_dead(
        &mut self,
        handles: impl IntoIterator<Item = HandleId>,
    ) -> rusqlite::Result<()> {
        let mut removed = 0;
        for handle in handles {
            if self.life(handle) == Life::Dead {
                removed += self
                    .connection
                    .prepare_cached(
                        "DELETE FROM member WHERE listed = 1 AND early = 1 AND handle = ?1 AND format = ?2",
                    )?
                    .execute(params![handle.as_bytes(), ROW_FORMAT])?;
            }
        }
        if removed > 0 {
            self.raise_version()?;
        }
        Ok(())
    }
}

impl MemberRow {
    /// Reads a row, or says why it can't be read.
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, String> {
        record::check_format(row, 2)?;
        let digests = row.get_ref(14).ok().and_then(|value| read_digests(value.as_blob().ok()?));
        let labels = row.get_ref(15).ok().and_then(|value| read_labels(value.as_blob().ok()?));
        let (Some(digests), Some(labels)) = (digests, labels) else {
            return Err("the record is damaged: its digests or labels can't be read".to_owned());
        };
        let read = || -> rusqlite::Result<Self> {
            let (ends, ttl) = (whole(row, 7)?, whole(row, 8)?);
            let heard = ends
                .checked_sub(ttl)
                .ok_or_else(|| rusqlite::Error::IntegralValueOutOfRange(8, signed(ttl)))?;
            let record = MemberRecord {
                sequence: whole(row, 3)?,
                joined: Timestamp::from_nanos(row.get(4)?),
                since: Instant::from_nanos(whole(row, 6)?),
                heard: Instant::from_nanos(heard),
                ttl: Duration::from_nanos(ttl),
                left: row.get(10)?,
                draining: row.get(11)?,
                marked: row.get(12)?,
                knows_mark: row.get(13)?,
                digests,
                labels,
                metadata: record::metadata(row, 18)?,
            };
            let handle = HandleId::from_bytes(row.get_ref(16)?.as_blob()?);
            Ok(Self { record, boot: row.get(5)?, handle, early: row.get(17)? })
        };
        read().map_err(|error| record::damaged(&error))
    }
}

/// Who it is, by the first two columns; `None` if that can't be anybody.
pub(crate) fn identity(row: &Row<'_>) -> Option<Identity> {
    let bits = row.get_ref(1).ok()?.as_blob().ok()?.try_into().ok()?;
    record::name(row, |name| Identity::new(name, Incarnation::new(u128::from_be_bytes(bits))).ok())
}

fn instance(identity: &Identity) -> &[u8] {
    identity.instance().as_bytes()
}

fn incarnation(identity: &Identity) -> [u8; 16] {
    identity.incarnation().as_u128().to_be_bytes()
}

/// Eight bytes for each, the highest first.
fn write_digests(digests: &[Digest]) -> Vec<u8> {
    digests.iter().flat_map(|digest| digest.get().to_be_bytes()).collect()
}

fn read_digests(bytes: &[u8]) -> Option<Arc<[Digest]>> {
    let (digests, rest) = bytes.as_chunks::<8>();
    (rest.is_empty() && digests.len() <= Heartbeat::MOST_DIGESTS)
        .then(|| digests.iter().map(|digest| Digest::new(u64::from_be_bytes(*digest))).collect())
}

/// For each label its name and its value, each after a byte with its length.
fn write_labels(labels: &Labels) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        bytes.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn read_labels(mut bytes: &[u8]) -> Option<Labels> {
    let mut text = || -> Option<&str> {
        let (length, rest) = bytes.split_first()?;
        let (text, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        str::from_utf8(text).ok()
    };
    let mut labels = Vec::new();
    while let Some(name) = text() {
        labels.push((name, text()?));
    }
    // What is left over is no label.
    let labels = Labels::new(labels).ok()?;
    bytes.is_empty().then_some(labels)
}

#[cfg(test)]
mod tests;
