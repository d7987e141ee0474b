//! Tells of watched leases that become free or are taken, and of the members of the fleet.
//!
//! The database is the truth; everything else only says when to look at it:
//! - the bell, a file that is written to after each transaction that others wait for, or that changes the members;
//! - the end of a liveness file's lock: the holder, or a member, has died. The event comes a moment before the lock is free,
//!   so the lock is tried a few times;
//! - where file events can't be had, or get lost, a look now and then at the number that SQLite changes with
//!   every commit, at the holders' locks and at the clock.
//!
//! While nothing is watched and this handle has sent no heartbeat, nothing of this happens.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::BorrowedFd;
use tenure_core::{Instant, LeaseName, Token, Wake};
use tenure_store::{Hint, HintQueue, Holder, StoreError};

use crate::clock;
use crate::database::Database;
use crate::events::Events;
use crate::liveness::{HandleId, Life};
use crate::record::Record;
use crate::tx::WAITER_TTL;

mod members;

use members::MemberWatch;

/// How often to look when file events tell of changes.
const POLL_WITH_EVENTS: Duration = Duration::from_millis(100);
/// How often to look when they don't.
const POLL_WITHOUT_EVENTS: Duration = Duration::from_millis(20);
/// When to try the lock of a holder that seems to have ended.
const PROBES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(8),
    Duration::from_millis(20),
];
/// How often this handle says that it still waits.
const REGISTER: Duration = Duration::from_secs(WAITER_TTL.as_secs() / 3);
/// How soon to try again to write when another process had the database locked.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
/// How long writing may hold the thread up when nobody waits for the result.
const WRITE_PATIENCE: Duration = Duration::from_millis(50);
/// So many registrations are written, and so many leases looked at, before the thread does something else.
const TOGETHER: usize = 100;
/// Looking takes at most a fourth of the thread's time.
const REST_PER_LOOK: u32 = 3;

/// Watches leases on the store's thread.
#[derive(Debug)]
pub(crate) struct Watcher {
    hints: Arc<HintQueue>,
    watched: BTreeMap<LeaseName, Seen>,
    /// `None` until this handle has sent a heartbeat.
    members: Option<MemberWatch>,
    /// Leases that this handle no longer waits for, though the database still says so.
    forgotten: BTreeSet<LeaseName>,
    events: Option<Events>,
    /// Whether to look at all watched leases.
    dirty: bool,
    /// Not before this.
    next_look: Instant,
    /// The last one that was looked at if there are more, and how long that took so far.
    looked_at: Option<LeaseName>,
    looked_for: Duration,
    version: Option<i64>,
    next_poll: Instant,
    /// When to try the locks of holders that seem to have ended; sorted, the next one last.
    probes: Vec<Instant>,
    next_write: Instant,
    /// The last one whose registration was renewed if there are more.
    registered: Option<LeaseName>,
}

/// What was last seen of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Held {
        token: Token,
        /// The holder, if its death can be proven.
        handle: Option<HandleId>,
        expires: Instant,
    },
    /// The holder with this token has died.
    Dead { token: Token },
    Free {
        /// The last token that was seen, or zero.
        after: Token,
        /// The last choice of this handle that was told.
        chosen: u64,
    },
}

impl Watcher {
    pub(crate) const fn new(hints: Arc<HintQueue>) -> Self {
        Self {
            hints,
            watched: BTreeMap::new(),
            members: None,
            forgotten: BTreeSet::new(),
            events: None,
            dirty: false,
            next_look: Instant::ZERO,
            looked_at: None,
            looked_for: Duration::ZERO,
            version: None,
            next_poll: Instant::ZERO,
            probes: Vec::new(),
            next_write: Instant::ZERO,
            registered: None,
        }
    }

    /// What to wait for besides time.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        if self.is_idle() { None } else { self.events.as_ref().map(Events::fd) }
    }

    /// Whether there is nothing to tell of.
    fn is_idle(&self) -> bool {
        self.watched.is_empty() && self.members.is_none()
    }

    /// Something was changed by this handle.
    pub(crate) const fn look_again(&mut self) {
        self.dirty = true;
    }

    /// The members may have been changed by this handle.
    pub(crate) const fn look_at_members(&mut self) {
        if let Some(members) = &mut self.members {
            members.look_again();
        }
    }

    /// The caller learns the members of this version, and hears of every other from now on.
    pub(crate) fn told_members(&mut self, database: &Database, version: u64) {
        if self.is_idle() {
            self.begin(database);
        }
        self.members.get_or_insert_default().told(version);
    }

    /// The caller learns that the lease is held. If that hold ends before it is ever seen here, it must be told
    /// all the same.
    pub(crate) fn told_held(&mut self, name: &LeaseName, holder: &Holder) {
        if let Some(seen) = self.watched.get_mut(name) {
            let token = holder.token.unwrap_or(Token::ZERO);
            if !matches!(seen, Seen::Held { .. }) || seen.token() != token {
                *seen = Seen::Held { token, handle: None, expires: Instant::MAX };
            }
        }
    }

    /// Watches a lease. From then on what happens to it is told, beginning with its being free already.
    pub(crate) fn watch(
        &mut self,
        database: &mut Database,
        name: &LeaseName,
        until: Instant,
    ) -> Result<(), StoreError> {
        if self.is_idle() {
            self.begin(database);
        }
        database.write("can't register as a waiter", until, |transaction| {
            transaction.register(name, false).map(Ok)
        })?;
        self.forgotten.remove(name);
        if !self.watched.contains_key(name) {
            // What is held now is no news; what is free is.
            let sight = database.look(name)?;
            let seen = match (&sight.record, sight.over) {
                (Some(record), false) => held(record),
                _ => Seen::Held { token: Token::ZERO, handle: None, expires: Instant::MAX },
            };
            self.watched.insert(name.clone(), seen);
            self.look(database, name);
        }
        Ok(())
    }

    /// Ends it, and forgets that this handle waits.
    pub(crate) fn unwatch(&mut self, database: Option<&mut Database>, name: &LeaseName) {
        self.watched.remove(name);
        if let Some(database) = database {
            self.forgotten.insert(name.clone());
            self.forget(database, clock::now() + WRITE_PATIENCE);
        }
    }

    /// The database was opened, perhaps in place of another one.
    pub(crate) fn reopened(&mut self, database: &mut Database) {
        self.forgotten.clear();
        self.version = None;
        self.events = None;
        if !self.is_idle() {
            self.begin(database);
            self.dirty = true;
            self.look_at_members();
            // Writes the registrations anew.
            self.next_write = Instant::ZERO;
            self.registered = None;
            self.hints.push(Hint::Resync);
        }
    }

    /// Leaves nothing in the database, if that is possible soon.
    pub(crate) fn end(&mut self, database: Option<&mut Database>) {
        self.hints.close();
        if let Some(database) = database {
            let until = clock::now() + WRITE_PATIENCE;
            // What can't be removed now ends by itself.
            let _ = database.write("can't end the registrations", until, |transaction| {
                transaction.unregister_all().map(Ok)
            });
        }
    }

    /// Does what is due, and says when something will be.
    pub(crate) fn turn(&mut self, database: Option<&mut Database>) -> Option<Instant> {
        let database = database?;
        let now = clock::now();
        if !self.forgotten.is_empty() && now >= self.next_write {
            self.forget(database, now);
        }
        if self.is_idle() {
            self.dirty = false;
            self.looked_at = None;
            return (!self.forgotten.is_empty()).then_some(self.next_write);
        }
        self.take_events(now);
        if now >= self.next_write {
            self.register(database, now);
        }
        let polled = now >= self.next_poll;
        if polled {
            self.next_poll = now + if self.events.is_some() { POLL_WITH_EVENTS } else { POLL_WITHOUT_EVENTS };
            let version = database.data_version().ok();
            if version != self.version || version.is_none() {
                self.dirty = true;
                self.look_at_members();
            }
            self.version = version;
        }
        let probed = self.probes.pop_if(|at| *at <= now).is_some();
        if probed || polled {
            self.probe(database, now);
        }
        if self.wants_to_look() && now >= self.next_look {
            self.look_on(database);
        }
        let look = self.wants_to_look().then_some(self.next_look);
        let members = self
            .members
            .as_mut()
            .and_then(|members| members.turn(database, &self.hints, now, probed, self.events.is_some()));
        [members, Some(self.next_poll), Some(self.next_write), self.probes.last().copied(), look]
            .into_iter()
            .flatten()
            .min()
    }

    /// From nothing to tell of something.
    fn begin(&mut self, database: &Database) {
        // What came before is of no interest.
        if self.events.as_mut().is_none_or(|events| events.take().over) {
            self.events = Events::watch(database.live())
                .inspect_err(|error| tracing::debug!(event = "sqlite.no_file_events", %error, "no file events; looking more often instead"))
                .ok();
        }
        let now = clock::now();
        self.next_poll = now;
        self.next_write = now + REGISTER;
    }

    fn take_events(&mut self, now: Instant) {
        let Some(events) = &mut self.events else { return };
        let noticed = events.take();
        if noticed.over {
            self.events = None;
        }
        if noticed.rung || noticed.over {
            self.dirty = true;
            if let Some(members) = &mut self.members {
                members.look_again();
            }
        }
        let holds = |ended: &HandleId| {
            self.watched
                .values()
                .any(|seen| matches!(seen, Seen::Held { handle: Some(handle), .. } if handle == ended))
        };
        let suspected = self.members.as_mut().is_some_and(|members| members.suspect(&noticed.ended));
        if suspected || noticed.ended.iter().any(holds) {
            self.probes.extend(PROBES.iter().map(|after| now + *after));
            self.probes.sort_unstable_by(|a, b| b.cmp(a));
            // Several that end at once are tried together.
            self.probes.truncate(4 * PROBES.len());
        }
    }

    /// Looks at the leases whose holders have died, or whose time is over.
    fn probe(&mut self, database: &mut Database, now: Instant) {
        let mut lives: BTreeMap<HandleId, Life> = BTreeMap::new();
        let mut changed: Vec<LeaseName> = Vec::new();
        for (name, seen) in &self.watched {
            let Seen::Held { handle, expires, .. } = seen else { continue };
            let dead = handle.is_some_and(|handle| {
                *lives.entry(handle).or_insert_with(|| database.life(handle)) == Life::Dead
            });
            if dead || *expires <= now {
                changed.push(name.clone());
            }
        }
        for name in changed {
            self.look(database, &name);
        }
    }

    const fn wants_to_look(&self) -> bool {
        self.dirty || self.looked_at.is_some()
    }

    /// Looks at the next of the watched leases; what changes meanwhile is looked at once all had their turn.
    fn look_on(&mut self, database: &mut Database) {
        if self.looked_at.is_none() {
            self.dirty = false;
            self.looked_for = Duration::ZERO;
        }
        let begun = clock::now();
        let names = self.next_after(self.looked_at.as_ref());
        for name in &names {
            self.look(database, name);
        }
        let ended = clock::now();
        self.looked_for += ended.saturating_since(begun);
        self.looked_at = go_on_after(names);
        self.next_look =
            if self.looked_at.is_some() { ended } else { ended + self.looked_for * REST_PER_LOOK };
    }

    /// The next of the watched leases.
    fn next_after(&self, name: Option<&LeaseName>) -> Vec<LeaseName> {
        let after = name.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.watched.range::<LeaseName, _>((after, Bound::Unbounded));
        names.map(|(name, _)| name.clone()).take(TOGETHER).collect()
    }

    /// Looks at one lease, and tells what is new.
    fn look(&mut self, database: &mut Database, name: &LeaseName) {
        let Some(seen) = self.watched.get_mut(name) else { return };
        let Ok(sight) = database.look(name) else {
            // What can't be read now is looked at with the next poll.
            self.version = None;
            return;
        };
        let (next, wake) = match &sight.record {
            Some(record) if !sight.over => {
                let next = held(record);
                let (next, wake) =
                    seen.taken(next, record.holder(sight.now).remaining, |handle| database.life(handle));
                // A grant to this handle is no news for it.
                (next, wake.filter(|wake| matches!(wake, Wake::Free { .. }) || !database.is_mine(record)))
            }
            _ => seen.freed(sight.chosen),
        };
        *seen = next;
        if let Some(wake) = wake {
            self.hints.push(Hint::Lease { name: name.clone(), wake });
        }
    }

    /// Says that this handle still waits for the next of the leases.
    fn register(&mut self, database: &mut Database, now: Instant) {
        let names = self.next_after(self.registered.as_ref());
        if names.is_empty() {
            self.registered = None;
            self.next_write = now + REGISTER;
            return;
        }
        let written = database.write("can't register as a waiter", now + WRITE_PATIENCE, |transaction| {
            names.iter().try_for_each(|name| transaction.register(name, false)).map(Ok)
        });
        if written.is_err() {
            self.next_write = now + WRITE_AGAIN;
            return;
        }
        self.registered = go_on_after(names);
        self.next_write = if self.registered.is_some() { now } else { now + REGISTER };
    }

    /// Removes the registrations that are not wanted any more.
    fn forget(&mut self, database: &mut Database, until: Instant) {
        let names = &self.forgotten;
        let forgotten = database.write("can't end a registration", until, |transaction| {
            names.iter().try_for_each(|name| transaction.unregister(name)).map(Ok)
        });
        match forgotten {
            Ok(()) => self.forgotten.clear(),
            Err(_) => self.next_write = clock::now() + WRITE_AGAIN,
        }
    }
}

/// Where to go on after these, if there may be more.
fn go_on_after(mut names: Vec<LeaseName>) -> Option<LeaseName> {
    if names.len() < TOGETHER { None } else { names.pop() }
}

fn held(record: &Record) -> Seen {
    match record {
        Record::Readable(lease) => Seen::Held {
            token: lease.token,
            handle: lease.handle.filter(|_| lease.early),
            expires: lease.expires,
        },
        Record::Unreadable { .. } => Seen::Held { token: Token::ZERO, handle: None, expires: Instant::MAX },
    }
}

impl Seen {
    /// The last token that was seen.
    const fn token(self) -> Token {
        match self {
            Self::Held { token, .. } | Self::Dead { token } => token,
            Self::Free { after, .. } => after,
        }
    }

    /// There is a record that is not over.
    fn taken(
        self,
        next: Self,
        remaining: Option<Duration>,
        life: impl Fn(HandleId) -> Life,
    ) -> (Self, Option<Wake>) {
        let Self::Held { token, handle, .. } = next else { return (next, None) };
        if handle.is_some_and(|handle| life(handle) == Life::Dead) {
            // All who see it try at once: embedded, they are few, and one of them gets it.
            let known = matches!(self, Self::Dead { token: dead } if dead == token);
            return (Self::Dead { token }, (!known).then_some(Wake::Free { chosen: true }));
        }
        if self.token() == token && matches!(self, Self::Held { .. }) {
            return (next, None);
        }
        let ttl = remaining.filter(|_| token > Token::ZERO);
        (next, ttl.map(|ttl| Wake::Held { token, ttl }))
    }

    /// There is no record, or one that is over. `chosen`: the token of the last grant whose end chose this
    /// handle.
    fn freed(self, chosen: u64) -> (Self, Option<Wake>) {
        let after = self.token();
        match self {
            Self::Free { chosen: told, .. } => {
                let wake = (chosen > told).then_some(Wake::Free { chosen: true });
                (Self::Free { after, chosen: chosen.max(told) }, wake)
            }
            Self::Held { .. } | Self::Dead { .. } => {
                // An older choice is for a hold that has long ended.
                let is_chosen = chosen > 0 && chosen >= after.get();
                (Self::Free { after, chosen }, Some(Wake::Free { chosen: is_chosen }))
            }
        }
    }
}

#[cfg(test)]
mod tests;
