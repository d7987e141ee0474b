//! Hints: what handles tell each other, and what becomes of it.
//!
//! They travel beside the bucket, as plain messages of the server, which keeps none of them. On the subject of a lease a
//! release says `free <releasing handle> <chosen handle>… +<how many others wait>`, and a grant
//! `held <handle> <token> <ttl in ms>`; on that of the members a new version says `<version> <handle>`. All of a
//! handle's hints come by one subscription, which the client library makes again with each connection. What was missed
//! meanwhile, or on any other way, is found by looking.

mod upkeep;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use tenure_core::{Instant, LeaseName, Token, Wake};
use tenure_store::{Hint, HintQueue, Hints, StoreError, StoreErrorKind, clock};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time;

use crate::client::Client;
use crate::link::{Link, PATIENCE, Stored};
use crate::names::Names;

pub(crate) use upkeep::Upkeep;

/// What is heard, and what is listened to.
#[derive(Debug)]
pub(crate) struct Pushes {
    /// What this handle calls itself in what it tells.
    handle: String,
    names: Names,
    hints: Arc<HintQueue>,
    state: Mutex<State>,
    /// There is something new to be seen to.
    news: Notify,
    /// Whether what is told is heard now; else why not.
    heard: watch::Sender<Result<bool, StoreError>>,
}

#[derive(Debug, Default)]
struct State {
    leases: BTreeMap<LeaseName, Watched>,
    members: Option<Members>,
}

/// The members of the fleet, as those hear of them who send heartbeats.
#[derive(Clone, Debug, Default)]
struct Members {
    /// The last version that this handle knows.
    told: u64,
    /// When one of the others may be gone, by the clock of this machine.
    next_end: Option<Instant>,
}

/// A lease that is watched.
#[derive(Debug, Default)]
struct Watched {
    /// It was found or said to be free, and nobody has had it since.
    free: bool,
    /// Others were chosen, and this handle is one of many: when it hears of it, unless somebody has the lease by then.
    free_at: Option<Instant>,
    /// This handle was chosen: what stands there is read while whoever waits is still on its way to ask for it.
    ahead: Option<JoinHandle<Result<Option<Stored>, StoreError>>>,
}

/// Those who know when a member will be gone look one after the other within this time after it.
const STAGGER: Duration = Duration::from_millis(250);

/// For each that waits the others leave those that were chosen so much more of a start: a thousand who wait hear that the
/// lease is held again only after all of them have been told.
const START_FOR_EACH: Duration = Duration::from_micros(250);
/// At most.
const LONGEST_START: Duration = Duration::from_secs(1);
/// So few don't get into each other's way: what they leave by themselves is enough.
const FEW: u64 = 20;

impl Pushes {
    pub(crate) fn new(handle: &str, names: &Names) -> Self {
        Self {
            handle: handle.to_owned(),
            names: names.clone(),
            hints: Arc::default(),
            state: Mutex::default(),
            news: Notify::new(),
            heard: watch::Sender::new(Ok(false)),
        }
    }

    /// Takes what was told. Anybody may tell anything.
    fn take(&self, subject: &str, text: &[u8], link: &Arc<Link>) {
        let Some(hint) = str::from_utf8(text).ok().and_then(|text| self.hint(subject, text)) else { return };
        if let Hint::Lease { name, wake: Wake::Free { chosen: true } } = &hint {
            self.read_ahead(name, link);
        }
        self.hints.push(hint);
    }

    /// Whoever was chosen asks for the lease next, and has to know what stands there.
    fn read_ahead(&self, name: &LeaseName, link: &Arc<Link>) {
        let (link, subject) = (Arc::clone(link), link.names.lease(name));
        let read = tokio::spawn(async move { link.get(&subject, clock::now() + PATIENCE).await });
        if let Some(watched) = self.lock().leases.get_mut(name) {
            watched.ahead = Some(read);
        }
    }

    /// The trace that was read ahead of whoever was chosen, once; `None` if it is to be read now. What is old by then does
    /// no harm: a write on it fails.
    pub(crate) async fn read_free(&self, name: &LeaseName, until: Instant) -> Option<Stored> {
        let ahead = self.lock().leases.get_mut(name)?.ahead.take()?;
        let read = time::timeout(until.saturating_since(clock::now()), ahead).await.ok()?.ok()?.ok()?;
        read.filter(|stored| stored.gone)
    }

    /// Ends the hints.
    pub(crate) fn close(&self) {
        self.hints.close();
    }

    pub(crate) fn watches(&self, name: &LeaseName) -> bool {
        self.lock().leases.contains_key(name)
    }

    /// A heartbeat was answered with this version of the members' view: other versions are news from now on. And with how
    /// long it is until one of the others is listed no longer, unless it is heard of: nobody tells of that.
    pub(crate) fn told_members(&self, version: u64, next_end: Option<Duration>) {
        let mut state = self.lock();
        let Some(members) = &mut state.members else { return };
        members.told = members.told.max(version);
        // Not all handles at once: the first that looks tells the others.
        members.next_end = next_end.map(|wait| clock::now() + wait + self.stagger());
        drop(state);
        self.news.notify_one();
    }

    /// A part of [`STAGGER`] that other handles hardly have.
    fn stagger(&self) -> Duration {
        let sum = self.handle.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        STAGGER * (sum % 256) / 256 + Duration::from_millis(1)
    }

    fn hint(&self, subject: &str, text: &str) -> Option<Hint> {
        if subject == self.names.wake_members() {
            let (version, by) = text.split_once(' ')?;
            let version: u64 = version.parse().ok()?;
            let mut state = self.lock();
            let members = state.members.as_mut()?;
            let news = version != std::mem::replace(&mut members.told, version);
            // What a heartbeat of this handle has changed is told by its answer.
            return (news && by != self.handle).then_some(Hint::Members);
        }
        let name = self.names.lease_of_wake(subject)?;
        let mut state = self.lock();
        let watched = state.leases.get_mut(&name)?;
        let mut words = text.split(' ');
        let (what, by) = (words.next()?, words.next()?);
        if by == self.handle {
            return None;
        }
        let wake = match what {
            "free" => {
                let words: Vec<&str> = words.collect();
                let chosen = words.contains(&&*self.handle);
                let others = words.last().and_then(|word| word.strip_prefix('+')?.parse().ok()).unwrap_or(0);
                watched.free = true;
                if !chosen && others > FEW {
                    let start = START_FOR_EACH.saturating_mul(others.try_into().unwrap_or(u32::MAX));
                    let at = clock::now() + start.min(LONGEST_START);
                    watched.free_at = Some(watched.free_at.unwrap_or(at).min(at));
                    drop(state);
                    self.news.notify_one();
                    return None;
                }
                Wake::Free { chosen }
            }
            "held" => {
                *watched = Watched::default();
                Wake::Held {
                    token: Token::new(words.next()?.parse().ok()?),
                    ttl: Duration::from_millis(words.next()?.parse().ok()?),
                }
            }
            _ => return None,
        };
        drop(state);
        Some(Hint::Lease { name, wake })
    }

    /// Hints at what was held back until now; tells until when the next one is.
    fn tell_what_is_free(&self, now: Instant) -> Option<Instant> {
        let (mut due, mut next) = (Vec::new(), None);
        for (name, watched) in &mut self.lock().leases {
            match watched.free_at {
                Some(at) if at <= now => {
                    watched.free_at = None;
                    due.push(Hint::Lease { name: name.clone(), wake: Wake::Free { chosen: false } });
                }
                Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                None => {}
            }
        }
        for hint in due {
            self.hints.push(hint);
        }
        next
    }

    /// Hints, once, that a member may be gone; tells until when the next look at that is.
    fn tell_who_may_be_gone(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        let members = state.members.as_mut()?;
        let due = members.next_end.take_if(|end| *end <= now).is_some();
        let next = members.next_end;
        drop(state);
        if due {
            self.hints.push(Hint::Members);
        }
        next
    }

    /// It was found that a lease is free, or not.
    fn found(&self, name: &LeaseName, free: bool) {
        let mut state = self.lock();
        let Some(watched) = state.leases.get_mut(name) else { return };
        let known = std::mem::replace(&mut watched.free, free);
        drop(state);
        if free && !known {
            self.hints.push(Hint::Lease { name: name.clone(), wake: Wake::Free { chosen: false } });
        }
    }

    /// Whether what is told is heard from now on.
    fn set_heard(&self, heard: Result<bool, StoreError>) {
        drop(self.heard.send_replace(heard));
    }

    fn watched(&self) -> Vec<LeaseName> {
        self.lock().leases.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// The hints; `None` if somebody has them.
    pub(crate) fn hear(&self) -> Option<Hints> {
        Some(self.pushes.hints.listen()?.boxed())
    }

    pub(crate) async fn watch_lease(&self, name: &LeaseName) -> Result<(), StoreError> {
        let until = clock::now() + PATIENCE;
        // Before it is listened to: what comes meanwhile is not missed.
        self.pushes.lock().leases.insert(name.clone(), Watched::default());
        if let Err(error) = self.listen(until).await {
            self.pushes.lock().leases.remove(name);
            return Err(error);
        }
        let subject = self.link.names.lease(name);
        match self.link.get(&subject, until).await {
            Ok(Some(stored)) if !stored.gone => {
                self.register(name, stored.ttl.unwrap_or_default(), until).await;
                Ok(())
            }
            Ok(_) => {
                // Who waits tries once more now, and need not be told.
                if let Some(watched) = self.pushes.lock().leases.get_mut(name) {
                    watched.free = true;
                }
                Ok(())
            }
            Err(error) => {
                self.pushes.lock().leases.remove(name);
                Err(error)
            }
        }
    }

    pub(crate) async fn unwatch_lease(&self, name: &LeaseName) {
        if self.pushes.lock().leases.remove(name).is_some() {
            // Who does not come back is soon forgotten anyway.
            let subject = self.link.names.waiter(name, &self.handle);
            let _ = self.link.remove(&subject, clock::now() + PATIENCE).await;
        }
    }

    /// From now on this handle hears of members, unless it may not.
    pub(crate) async fn hear_members(&self, until: Instant) -> Result<(), StoreError> {
        self.pushes.lock().members.get_or_insert_default();
        let rejected = |error: &StoreError| error.kind == StoreErrorKind::Rejected;
        // Who may not listen can still send heartbeats, and does not ask for it with each.
        if self.pushes.heard.borrow().as_ref().is_err_and(rejected) {
            return Ok(());
        }
        self.listen(until).await.or_else(|error| if rejected(&error) { Ok(()) } else { Err(error) })
    }

    /// Returns once what is told is heard.
    async fn listen(&self, until: Instant) -> Result<(), StoreError> {
        self.keep_up();
        let mut heard = self.pushes.heard.subscribe();
        loop {
            match &*heard.borrow_and_update() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(error.clone()),
            }
            let rest = until.saturating_since(clock::now());
            let changed = time::timeout(rest, heard.changed()).await;
            if changed.is_err() {
                return Err(StoreError::transient("nothing is heard from the server yet"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
