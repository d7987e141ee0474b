//! The operations, each inside a transaction that somebody else begins and commits.
//!
//! Results have two levels: the outer error means that the transaction is broken and nothing of it may be
//! committed; the inner one is the answer to one operation, and its neighbours are not touched by it.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension as _, params};
use tenure_core::{Instant, LeaseName, Owner, Timestamp, Token};
use tenure_store::{
    Acquire, Acquired, Answer, Eviction, LeaseRecord, Limits, Metadata, Operation, Outcome, Release,
    Released, Renew, Renewed, StoreError, check_claim_floor, check_floor,
};

use crate::clock;
use crate::liveness::{HandleId, Life, LiveFolder, Liveness};
use crate::record::{self, Lease, Record};
use crate::schema::{Opened, ROW_FORMAT};

/// One transaction's view of the world.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    /// This boot.
    pub(crate) boot: &'a str,
    pub(crate) live: &'a LiveFolder,
    /// This handle.
    pub(crate) me: &'a Liveness,
    /// Read after the transaction had begun. It stands still within it: that makes records end early rather
    /// than late, and lets others wait longer rather than shorter.
    pub(crate) now: Instant,
    /// The wall clock at the same time. Timers go by it.
    pub(crate) wall: Timestamp,
    /// The highest token that this handle has ever seen here, above which it stays even if the file was
    /// put back to an older state.
    pub(crate) high_water: u64,
    /// Whether others wait for a lease that has changed hands, or the members have changed: ring the bell after the
    /// commit.
    pub(crate) ring: bool,
    /// Whether the members that are gone by now have been looked for.
    pub(crate) members_looked_at: bool,
}

/// The answer to one operation, in a transaction that is sound.
pub(crate) type Step<T> = rusqlite::Result<Result<T, StoreError>>;

/// SQLite's integers are signed; what is above is refused, with room for a few more grants.
const HIGHEST_TOKEN: u64 = i64::MAX as u64 - 1;

impl<'a> Transaction<'a> {
    /// What a handle does from now on with the database that it has open.
    pub(crate) fn over(opened: &'a Opened, live: &'a LiveFolder, me: &'a Liveness, high_water: u64) -> Self {
        let (connection, boot) = (&opened.connection, opened.boot.id.as_str());
        let (now, wall) = (clock::now(), clock::wall());
        Self { connection, boot, live, me, now, wall, high_water, ring: false, members_looked_at: false }
    }
}

impl Transaction<'_> {
    pub(crate) fn apply(&mut self, operation: &Operation) -> rusqlite::Result<Outcome> {
        let outcome = match operation {
            Operation::Acquire(request) => self.acquire(request)?.map(Answer::Acquire),
            Operation::Renew(request) => Ok(Answer::Renew(self.renew(request)?)),
            Operation::Release(request) => Ok(Answer::Release(self.release(request)?)),
            Operation::Timer(request) => self.timer(request)?.map(Answer::Timer),
            Operation::Heartbeat(beat) => self.heartbeat(beat)?.map(Answer::Heartbeat),
            Operation::Leave(leave) => self.leave(leave)?.map(|()| Answer::Leave),
        };
        Ok(outcome.map_err(|error| error.about(operation.subject())))
    }

    fn acquire(&mut self, request: &Acquire) -> Step<Acquired> {
        let name = &request.name;
        let previous = match self.find(name)? {
            None => None,
            Some(record) if record.is_over(self.boot, self.now) => Some(record),
            Some(Record::Readable(lease)) if lease.owner == request.owner.to_string() => {
                if self.is_lost(&lease) {
                    // A copy of a file that this handle has lost: its grant is void, but it is the asker's.
                    Some(Record::Readable(lease))
                } else {
                    self.extend(name, request.ttl)?;
                    return Ok(Ok(Acquired::Granted(lease.token)));
                }
            }
            Some(Record::Readable(lease)) if self.is_dead(&lease) => Some(Record::Readable(lease)),
            Some(record) => {
                if request.wait {
                    self.register(name, true)?;
                }
                return Ok(Ok(Acquired::Held(record.holder(self.now))));
            }
        };
        let previous = match previous {
            Some(Record::Readable(lease)) => lease.token.get(),
            _ => 0,
        };
        let token = match self.next_token(previous.max(request.floor.get()))? {
            Ok(token) => token,
            Err(error) => return Ok(Err(error)),
        };
        self.write(name, &request.owner, token, request)?;
        self.ring |= self.somebody_waits(name)?;
        Ok(Ok(Acquired::Granted(token)))
    }

    fn renew(&mut self, request: &Renew) -> rusqlite::Result<Renewed> {
        match self.find(&request.name)? {
            Some(Record::Readable(lease))
                if self.is_held_by(&lease, &request.owner, Some(request.token)) && !self.is_lost(&lease) =>
            {
                self.extend(&request.name, request.ttl)?;
                Ok(Renewed::Renewed)
            }
            _ => Ok(Renewed::NotYours),
        }
    }

    fn release(&mut self, request: &Release) -> rusqlite::Result<Released> {
        match self.find(&request.name)? {
            Some(Record::Readable(lease)) if self.is_held_by(&lease, &request.owner, request.token) => {
                self.delete(&request.name)?;
                let others_chosen = self.choose(&request.name, lease.token.get())?;
                Ok(Released::Released { others_chosen })
            }
            _ => Ok(Released::NotYours),
        }
    }

    /// Takes a lease away; tells who had it.
    pub(crate) fn evict(&mut self, name: &LeaseName, how: Eviction) -> Step<Option<LeaseRecord>> {
        let Some(record) = self.find(name)?.filter(|record| !record.is_over(self.boot, self.now)) else {
            return Ok(Ok(None));
        };
        let evicted = LeaseRecord::new(name.clone(), record.holder(self.now));
        match (how, record) {
            (Eviction::Replace, Record::Readable(_)) => {
                // The handle stays: if its process dies before the TTL is over, the lease is free at once.
                self.connection
                    .prepare_cached("UPDATE lease SET owner = ?2 WHERE name = ?1")?
                    .execute(params![name.as_str().as_bytes(), EVICTED])?;
            }
            (Eviction::Replace, Record::Unreadable { problem, .. }) => {
                let message = format!("{problem}; its holder can't be replaced, only be removed at once");
                return Ok(Err(StoreError::rejected(message).about(name)));
            }
            (Eviction::Delete, record) => {
                self.delete(name)?;
                let token = match record {
                    Record::Readable(lease) => lease.token.get(),
                    Record::Unreadable { .. } => self.state()?.0,
                };
                self.choose(name, token)?;
            }
        }
        Ok(Ok(Some(evicted)))
    }

    /// The row of a lease, also when it is over.
    pub(crate) fn find(&self, name: &LeaseName) -> rusqlite::Result<Option<Record>> {
        self.connection
            .prepare_cached(&format!("SELECT {} FROM lease WHERE name = ?1", record::COLUMNS))?
            .query_row([name.as_str().as_bytes()], |row| Ok(Record::read(row)))
            .optional()
    }

    fn is_held_by(&self, lease: &Lease, owner: &Owner, token: Option<Token>) -> bool {
        lease.boot == self.boot
            && lease.expires > self.now
            && token.is_none_or(|token| lease.token == token)
            && lease.owner == owner.to_string()
    }

    /// Whether the grant was made to this handle in a file that was replaced since: see
    /// [`Lineage`](crate::liveness::Lineage).
    fn is_lost(&self, lease: &Lease) -> bool {
        lease.handle.is_some_and(|handle| handle.is_earlier_than(self.me.handle()))
    }

    /// Whether the holder's process has certainly died.
    fn is_dead(&self, lease: &Lease) -> bool {
        lease.early && lease.handle.is_some_and(|handle| self.life(handle) == Life::Dead)
    }

    pub(crate) fn life(&self, handle: HandleId) -> Life {
        self.live.life(handle, self.me)
    }

    /// Above every earlier grant's, above `at_least`, and above the wall clock: if the file is lost together
    /// with its high water, tokens still go on rising.
    pub(crate) fn next_token(&mut self, at_least: u64) -> Step<Token> {
        let stored = match self.state_of_this_boot()? {
            Ok(high_water) => high_water,
            Err(error) => return Ok(Err(error)),
        };
        let highest = stored.max(self.high_water).max(at_least);
        if highest >= HIGHEST_TOKEN {
            return Ok(Err(StoreError::rejected(format!(
                "no token is left above {highest}, the highest that was given: the store can grant nothing any \
                 more; was it changed by hand?"
            ))));
        }
        let token = highest.max(clock::micros(self.wall).saturating_sub(1)) + 1;
        self.connection
            .prepare_cached("UPDATE store SET high_water = ?1 WHERE one = 1")?
            .execute([signed(token)])?;
        self.high_water = token;
        Ok(Ok(Token::new(token)))
    }

    /// The highest token ever given; an error if the store is on another clock now.
    pub(crate) fn state_of_this_boot(&self) -> Step<u64> {
        let (high_water, boot) = self.state()?;
        Ok(if boot == self.boot {
            Ok(high_water)
        } else {
            Err(StoreError::unsupported(
                "another machine has taken the store over: leases are on one machine's clock, so nothing is granted \
                 here any more; give each machine a store of its own",
            ))
        })
    }

    /// The highest token ever given, and the boot whose clock the store is on.
    fn state(&self) -> rusqlite::Result<(u64, String)> {
        let (high_water, boot): (i64, String) = self
            .connection
            .prepare_cached("SELECT high_water, boot FROM store WHERE one = 1")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let high_water =
            u64::try_from(high_water).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, high_water))?;
        Ok((high_water, boot))
    }

    fn write(
        &self,
        name: &LeaseName,
        owner: &Owner,
        token: Token,
        request: &Acquire,
    ) -> rusqlite::Result<()> {
        let Metadata { host, pid, text, .. } = &request.metadata;
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO lease (name, format, token, owner, boot, expires, ttl, since, handle, \
                 early, host, pid, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute(params![
                name.as_str().as_bytes(),
                ROW_FORMAT,
                signed(token.get()),
                owner.to_string(),
                self.boot,
                signed((self.now + request.ttl).as_nanos()),
                duration(request.ttl),
                signed(clock::micros(self.wall)),
                self.me.handle().as_bytes(),
                self.me.is_visible(),
                host.as_deref(),
                pid,
                text.as_deref(),
            ])
            .map(drop)
    }

    /// Gives the holder the whole TTL from now on, and names this handle as the one whose life counts.
    fn extend(&self, name: &LeaseName, ttl: std::time::Duration) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE lease SET expires = ?2, ttl = ?3, handle = ?4, early = ?5 WHERE name = ?1",
            )?
            .execute(params![
                name.as_str().as_bytes(),
                signed((self.now + ttl).as_nanos()),
                duration(ttl),
                self.me.handle().as_bytes(),
                self.me.is_visible(),
            ])
            .map(drop)
    }

    fn delete(&self, name: &LeaseName) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("DELETE FROM lease WHERE name = ?1")?
            .execute([name.as_str().as_bytes()])
            .map(drop)
    }
}

/// The owner in place of an evicted one. No process can have it: every real owner has a slash.
const EVICTED: &str = "evicted";

/// As SQLite keeps it; times and tokens stay far below the limit.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn duration(value: std::time::Duration) -> i64 {
    i64::try_from(value.as_nanos()).unwrap_or(i64::MAX)
}

/// The highest floor that is taken: half of what SQLite's signed integers hold, so that no floor, however
/// wrong, can use the tokens up.
const HIGHEST_FLOOR: Token = Token::new(1 << 62);

/// Refuses what no store should be asked, before anything is done.
pub(crate) fn check(operation: &Operation, limits: &Limits) -> Result<(), StoreError> {
    limits.check(operation)?;
    match operation {
        Operation::Acquire(request) => check_floor(request, HIGHEST_FLOOR),
        Operation::Timer(request) => check_claim_floor(request, HIGHEST_FLOOR),
        Operation::Renew(_) | Operation::Release(_) | Operation::Heartbeat(_) | Operation::Leave(_) => Ok(()),
    }
}

/// Waiters.
impl Transaction<'_> {
    /// Notes that this handle waits for the lease. `again` forgets that it was chosen: it has tried since.
    pub(crate) fn register(&self, name: &LeaseName, again: bool) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO waiter (name, handle, boot, since, expires, early, chosen)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)
                 ON CONFLICT (name, handle) DO UPDATE SET boot = ?3, expires = ?5, early = ?6,
                 chosen = CASE WHEN ?7 THEN 0 ELSE chosen END",
            )?
            .execute(params![
                name.as_str().as_bytes(),
                self.me.handle().as_bytes(),
                self.boot,
                signed(self.now.as_nanos()),
                signed((self.now + WAITER_TTL).as_nanos()),
                self.me.is_visible(),
                again,
            ])
            .map(drop)
    }

    /// Forgets that this handle waits for the lease.
    pub(crate) fn unregister(&self, name: &LeaseName) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("DELETE FROM waiter WHERE name = ?1 AND handle = ?2")?
            .execute(params![name.as_str().as_bytes(), self.me.handle().as_bytes()])
            .map(drop)
    }

    /// Forgets all that this handle waits for.
    pub(crate) fn unregister_all(&self) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("DELETE FROM waiter WHERE handle = ?1")?
            .execute([self.me.handle().as_bytes()])
            .map(drop)
    }

    /// Whether other handles wait for the lease.
    fn somebody_waits(&self, name: &LeaseName) -> rusqlite::Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM waiter WHERE name = ?1 AND handle <> ?2 LIMIT 1")?
            .exists(params![name.as_str().as_bytes(), self.me.handle().as_bytes()])
    }

    /// Chooses up to two of the other handles that wait, those that have waited longest; the dead are removed.
    /// Whoever was chosen before and has not tried since is passed over. `token` is that of the grant that
    /// has ended.
    fn choose(&mut self, name: &LeaseName, token: u64) -> rusqlite::Result<bool> {
        /// So many are woken at once: the second for the case that the first can't.
        const CHOSEN: usize = 2;
        /// So many are looked at, that is, at most so many corpses hold up a release.
        const CANDIDATES: i64 = 32;
        let bytes = name.as_str().as_bytes();
        let candidates: Vec<(HandleId, bool)> = self
            .connection
            .prepare_cached(
                "SELECT handle, early FROM waiter WHERE name = ?1 AND handle <> ?2 AND boot = ?3 AND \
                 expires > ?4 AND chosen = 0 ORDER BY since LIMIT ?5",
            )?
            .query_map(
                params![
                    bytes,
                    self.me.handle().as_bytes(),
                    self.boot,
                    signed(self.now.as_nanos()),
                    CANDIDATES
                ],
                |row| Ok((row.get_ref(0)?.as_blob().ok().and_then(HandleId::from_bytes), row.get(1)?)),
            )?
            .filter_map(|row| row.map(|(handle, early)| Some((handle?, early))).transpose())
            .collect::<rusqlite::Result<_>>()?;
        let mut chosen = 0;
        for (handle, early) in candidates {
            if early && self.life(handle) == Life::Dead {
                self.connection
                    .prepare_cached("DELETE FROM waiter WHERE name = ?1 AND handle = ?2")?
                    .execute(params![bytes, handle.as_bytes()])?;
                continue;
            }
            if chosen == CHOSEN {
                break;
            }
            self.connection
                .prepare_cached("UPDATE waiter SET chosen = ?3 WHERE name = ?1 AND handle = ?2")?
                .execute(params![bytes, handle.as_bytes(), signed(token)])?;
            chosen += 1;
        }
        // Those who are not chosen want to know as well.
        self.ring |= self.somebody_waits(name)?;
        Ok(chosen > 0)
    }

    /// Whether this handle was chosen, and when the grant with which token ended.
    pub(crate) fn chosen(&self, name: &LeaseName) -> rusqlite::Result<u64> {
        let chosen: Option<i64> = self
            .connection
            .prepare_cached("SELECT chosen FROM waiter WHERE name = ?1 AND handle = ?2")?
            .query_row(params![name.as_str().as_bytes(), self.me.handle().as_bytes()], |row| row.get(0))
            .optional()?;
        Ok(chosen.and_then(|token| u64::try_from(token).ok()).unwrap_or(0))
    }
}

/// How long a waiter is remembered without a sign of it. Whoever waits longer renews its registration.
pub(crate) const WAITER_TTL: std::time::Duration = std::time::Duration::from_secs(60);

/// All leases: cleaning up and listing.
impl Transaction<'_> {
    /// Looks at the next `most` leases after `from` and removes those that are over; returns where to go on.
    pub(crate) fn sweep(&self, from: &[u8], most: usize) -> rusqlite::Result<Vec<u8>> {
        let mut rows: Vec<(Vec<u8>, bool)> = self
            .connection
            .prepare_cached(&format!(
                "SELECT {} FROM lease WHERE name > ?1 ORDER BY name LIMIT ?2",
                record::COLUMNS
            ))?
            .query_map(params![from, i64::try_from(most).unwrap_or(i64::MAX)], |row| {
                let name = row.get_ref(0)?.as_blob().unwrap_or_default().to_owned();
                Ok((name, Record::read(row).is_over(self.boot, self.now)))
            })?
            .collect::<rusqlite::Result<_>>()?;
        for (name, _) in rows.iter().filter(|(_, over)| *over) {
            self.connection.prepare_cached("DELETE FROM lease WHERE name = ?1")?.execute([name])?;
        }
        // At the end of the table it begins anew.
        Ok(if rows.len() < most { Vec::new() } else { rows.pop().map(|(name, _)| name).unwrap_or_default() })
    }

    /// Removes the waiters that gave no sign for long.
    pub(crate) fn sweep_waiters(&self) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("DELETE FROM waiter WHERE boot <> ?1 OR expires <= ?2")?
            .execute(params![self.boot, signed(self.now.as_nanos())])
            .map(drop)
    }

    /// The handles that hold leases or claims, wait for a lease, run a job, or are a member's.
    pub(crate) fn named(&self) -> rusqlite::Result<BTreeSet<HandleId>> {
        self.connection
            .prepare_cached(
                "SELECT handle FROM lease WHERE boot = ?1 AND expires > ?2
                 UNION SELECT handle FROM waiter WHERE boot = ?1 AND expires > ?2
                 UNION SELECT handle FROM claim WHERE boot = ?1 AND expires > ?2
                 UNION SELECT handle FROM run WHERE boot = ?1 AND expires > ?2 AND outcome IS NULL
                 UNION SELECT handle FROM member WHERE boot = ?1 AND expires > ?2 AND listed = 1",
            )?
            .query_map(params![self.boot, signed(self.now.as_nanos())], |row| {
                Ok(row.get_ref(0)?.as_blob().ok().and_then(HandleId::from_bytes))
            })?
            .filter_map(Result::transpose)
            .collect()
    }

    /// At most `most` leases that are held, after `after`, in the order of their names' bytes.
    pub(crate) fn list(&self, after: Option<&LeaseName>, most: usize) -> rusqlite::Result<Vec<LeaseRecord>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {} FROM lease WHERE name > ?1 ORDER BY name",
            record::COLUMNS
        ))?;
        let mut rows = statement.query([after.map_or("", LeaseName::as_str).as_bytes()])?;
        let mut listed = Vec::new();
        while listed.len() < most
            && let Some(row) = rows.next()?
        {
            let record = Record::read(row);
            if !record.is_over(self.boot, self.now)
                && let Some(name) = record::name(row, |text| LeaseName::new(text).ok())
            {
                listed.push(LeaseRecord::new(name, record.holder(self.now)));
            }
        }
        Ok(listed)
    }
}
