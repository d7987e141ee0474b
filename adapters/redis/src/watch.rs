//! Hints: what the server pushes over the connection, and what becomes of it.
//!
//! Each watched lease has a channel, to which the connection that also carries the requests is subscribed. A release
//! publishes `free <releasing handle> <chosen handle>… +<how many others wait>` there, a grant
//! `held <handle> <token> <ttl in ms>`.
//!
//! Whoever listens to the hints also keeps them coming: as long as the stream is polled, what is watched is subscribed to
//! again after the connection was lost, and a connection on which nothing is heard is asked whether it lives.

mod upkeep;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, join};
use futures::task::AtomicWaker;
use futures::{FutureExt, Stream, StreamExt};
use redis::{PushInfo, PushKind, Value};
use tenure_core::{Instant, LeaseName, Token, Wake};
use tenure_store::{Hint, HintQueue, HintStream, Hints, StoreError, StoreErrorKind, clock};

use crate::client::Client;
use crate::keys::Route;
use crate::leases::WAITER_GRACE;
use crate::looking::PATIENCE;
use crate::record::millis;
use crate::script::{self, Call};
use crate::server::Server;

/// What comes in without having been asked for, and what is listened to.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    /// What this handle calls itself in what it publishes.
    handle: String,
    hints: Arc<HintQueue>,
    state: Mutex<State>,
    /// Who keeps the subscriptions up.
    upkeep: AtomicWaker,
    /// There is something new to be seen to.
    news: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// By channel.
    leases: BTreeMap<Vec<u8>, Watched>,
    members: Option<Members>,
    /// Some connection was lost, and what was subscribed to on it was not subscribed to again yet.
    lost: bool,
}

/// The members of the fleet, as those hear of them who send heartbeats.
#[derive(Clone, Debug)]
struct Members {
    /// Where a new version of the view is told.
    channel: Vec<u8>,
    /// The last version that this handle knows.
    told: u64,
    /// When one of the others may be gone, by the clock of this machine.
    next_end: Option<Instant>,
}

/// Those who know when a member will be gone look one after the other within this time after it.
const STAGGER: Duration = Duration::from_millis(250);

/// A lease that is watched.
#[derive(Clone, Debug)]
struct Watched {
    name: LeaseName,
    route: Route,
    /// The last answer was that somebody has it who may tell nobody of the end.
    foreign: bool,
    /// Others were chosen, and this handle is one of many: when it hears of it, unless somebody has the lease by then.
    free_at: Option<Instant>,
}

/// For each that waits the others leave those that were chosen so much more of a start. A thousand who wait hear that the
/// lease is held again only after all of them have been told, which takes a machine that runs them all many times as long
/// as the chosen one needs.
const START_FOR_EACH: Duration = Duration::from_micros(250);
/// At most.
const LONGEST_START: Duration = Duration::from_secs(1);
/// So few don't get into each other's way: what they leave by themselves is enough.
const FEW: u64 = 20;

impl Watched {
    const fn new(name: LeaseName, route: Route) -> Self {
        Self { name, route, foreign: false, free_at: None }
    }
}

impl Pushes {
    pub(crate) fn new(handle: &str) -> Self {
        Self { handle: handle.to_owned(), ..Self::default() }
    }

    /// Takes what the server, or the library, pushes. It must not wait.
    pub(crate) fn push(&self, push: PushInfo) {
        match (push.kind, &push.data[..]) {
            (PushKind::Disconnection, _) => self.lost(),
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) => {
                if let Some(hint) = self.hint(channel, message) {
                    self.hints.push(hint);
                }
            }
            _ => {}
        }
    }

    /// A connection is gone, or was given up: what was listened to on it is not heard any more.
    pub(crate) fn lost(&self) {
        let mut state = self.lock();
        if state.leases.is_empty() && state.members.is_none() {
            return;
        }
        state.lost = true;
        drop(state);
        self.wake_upkeep();
    }

    /// Ends the hints.
    pub(crate) fn close(&self) {
        self.hints.close();
        self.wake_upkeep();
    }

    /// Whether the lease with this channel is watched.
    pub(crate) fn watches(&self, channel: &[u8]) -> bool {
        self.lock().leases.contains_key(channel)
    }

    /// Whether anything is listened to where the keys of this route are.
    pub(crate) fn listens_at(&self, route: Route) -> bool {
        let state = self.lock();
        let members = state.members.is_some() && route == Route::FIRST;
        members || state.leases.values().any(|watched| watched.route == route)
    }

    /// A try for a lease was answered: somebody has it, who may be one that tells nobody of the end.
    pub(crate) fn is_held(&self, channel: &[u8], foreign: bool) {
        let mut state = self.lock();
        let Some(watched) = state.leases.get_mut(channel) else { return };
        let before = std::mem::replace(&mut watched.foreign, foreign);
        drop(state);
        if foreign && !before {
            self.wake_upkeep();
        }
    }

    /// A heartbeat was answered with this version of the members' view: other versions are news from now on. And with how
    /// long it is until one of the others is listed no longer, unless it is heard of: nobody tells of that.
    pub(crate) fn told_members(&self, version: u64, next_end: Option<Duration>) {
        let mut state = self.lock();
        let Some(members) = &mut state.members else { return };
        members.told = members.told.max(version);
        // Not all handles at once: the first that looks tells the others.
        let next_end = next_end.map(|wait| clock::now() + wait + self.stagger());
        let before = std::mem::replace(&mut members.next_end, next_end);
        let sooner = next_end.is_some_and(|end| before.is_none_or(|before| end < before));
        drop(state);
        if sooner {
            self.wake_upkeep();
        }
    }

    /// When to look whether a member is gone of whom nobody says so.
    fn look_at_members(&self) -> Option<Instant> {
        self.lock().members.as_ref()?.next_end
    }

    /// The time has come: hints at it, once.
    fn members_may_be_gone(&self) {
        let mut state = self.lock();
        let due = state.members.as_mut().and_then(|members| members.next_end.take()).is_some();
        drop(state);
        if due {
            self.hints.push(Hint::Members);
        }
    }

    /// A part of [`STAGGER`] that other handles hardly have.
    fn stagger(&self) -> Duration {
        let sum = self.handle.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        STAGGER * (sum % 256) / 256 + Duration::from_millis(1)
    }

    /// What a message is a hint of. Anybody may publish anything.
    fn hint(&self, channel: &[u8], message: &[u8]) -> Option<Hint> {
        let mut state = self.lock();
        if let Some(members) = &mut state.members
            && members.channel == channel
        {
            let (version, by) = str::from_utf8(message).ok()?.split_once(' ')?;
            let version: u64 = version.parse().ok()?;
            let news = version != std::mem::replace(&mut members.told, version);
            // What a heartbeat of this handle has changed is told by its answer.
            return (news && by != self.handle).then_some(Hint::Members);
        }
        let watched = state.leases.get_mut(channel)?;
        let mut words = str::from_utf8(message).ok()?.split(' ');
        let (what, by) = (words.next()?, words.next()?);
        if by == self.handle {
            return None;
        }
        let wake = match what {
            "free" => {
                let words: Vec<&str> = words.collect();
                let chosen = words.contains(&&*self.handle);
                let others = words.last().and_then(|word| word.strip_prefix('+')?.parse().ok()).unwrap_or(0);
                if !chosen && others > FEW {
                    let start = START_FOR_EACH.saturating_mul(others.try_into().unwrap_or(u32::MAX));
                    let at = clock::now() + start.min(LONGEST_START);
                    watched.free_at = Some(watched.free_at.unwrap_or(at).min(at));
                    drop(state);
                    self.wake_upkeep();
                    return None;
                }
                Wake::Free { chosen }
            }
            "held" => {
                watched.free_at = None;
                Wake::Held {
                    token: Token::new(words.next()?.parse().ok()?),
                    ttl: Duration::from_millis(words.next()?.parse().ok()?),
                }
            }
            _ => return None,
        };
        Some(Hint::Lease { name: watched.name.clone(), wake })
    }

    /// Hints at what was held back until now; tells until when the next one is.
    fn tell_what_is_free(&self, now: Instant) -> Option<Instant> {
        let mut due = Vec::new();
        let mut next = None;
        for watched in self.lock().leases.values_mut() {
            match watched.free_at {
                Some(at) if at <= now => {
                    watched.free_at = None;
                    due.push(Hint::Lease { name: watched.name.clone(), wake: Wake::Free { chosen: false } });
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

    fn wake_upkeep(&self) {
        self.news.store(true, Ordering::Release);
        self.upkeep.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// The hints; `None` if somebody has them, or there are none.
    pub(crate) fn hear(&self) -> Option<Hints> {
        if !self.server.pushes() {
            return None;
        }
        let hints = self.pushes.hints.listen()?;
        let upkeep = upkeep::keep_up(Arc::clone(&self.server), Arc::clone(&self.pushes)).boxed();
        Some(Listening { hints, upkeep: Some(upkeep) }.boxed())
    }

    pub(crate) async fn watch_lease(&self, name: &LeaseName) -> Result<(), StoreError> {
        let until = clock::now() + PATIENCE;
        let keys = self.server.keys(until).await?;
        let of = keys.lease(name);
        // Before it is subscribed to: if the connection is lost meanwhile it belongs to what is to be subscribed to again.
        let watched = Watched::new(name.clone(), of.route);
        self.pushes.lock().leases.insert(of.channel.clone(), watched);
        self.pushes.wake_upkeep();
        let call = Call::new().key(of.lease).key(of.waiters).arg(&self.handle).arg(millis(WAITER_GRACE));
        let (heard, registered) = join(
            subscribe(&self.server, of.route, &of.channel, until),
            self.server.run(of.route, &script::WATCH, &call, until),
        )
        .await;
        match heard.and(registered) {
            Ok(_) => Ok(()),
            Err(error) => {
                if error.kind == StoreErrorKind::Rejected {
                    // It may have been registered all the same, and would be chosen and not hear it.
                    self.unwatch_lease(name).await;
                } else {
                    self.pushes.lock().leases.remove(&of.channel);
                }
                Err(error)
            }
        }
    }

    pub(crate) async fn unwatch_lease(&self, name: &LeaseName) {
        if self.pushes.lock().leases.is_empty() {
            return;
        }
        let until = clock::now() + PATIENCE;
        let Ok(keys) = self.server.keys(until).await else {
            // Without a connection there is no subscription to end, but none is to come back with the next one.
            return self.pushes.lock().leases.retain(|_, watched| watched.name != *name);
        };
        let of = keys.lease(name);
        if self.pushes.lock().leases.remove(&of.channel).is_none() {
            return;
        }
        let call = Call::new().key(of.waiters).arg(&self.handle);
        let mut unsubscribe = redis::cmd("UNSUBSCRIBE");
        unsubscribe.arg(&of.channel);
        // Where it fails there is no subscription any more, and who does not come back is soon forgotten.
        let _ = join(
            self.server.command(of.route, &unsubscribe, until),
            self.server.run(of.route, &script::UNWATCH, &call, until),
        )
        .await;
        if self.pushes.watches(&of.channel) {
            // It was watched again meanwhile, and which of the two came first at the server can't be told.
            self.pushes.lost();
        }
    }

    /// Listens to changes of the members, if that has not begun: to be called before each heartbeat. Whoever may not listen
    /// hears nothing.
    ///
    /// # Errors
    /// It can't be told whether it is listened to. Unsupported if the connection brings no hints.
    pub(crate) async fn hear_members(
        &self,
        route: Route,
        channel: Vec<u8>,
        until: Instant,
    ) -> Result<(), StoreError> {
        {
            let mut state = self.pushes.lock();
            if state.members.is_some() {
                return Ok(());
            }
            state.members = Some(Members { channel: channel.clone(), told: 0, next_end: None });
        }
        self.pushes.wake_upkeep();
        match subscribe(&self.server, route, &channel, until).await {
            Err(error) if error.kind != StoreErrorKind::Rejected => {
                self.pushes.lock().members = None;
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

/// Subscribes to a channel, and returns once the server has confirmed it.
async fn subscribe(server: &Server, route: Route, channel: &[u8], until: Instant) -> Result<(), StoreError> {
    if !server.pushes() {
        return Err(StoreError::rejected(
            "what is pushed over the program's own connection does not come here: waiters sleep until the TTL is over",
        ));
    }
    let mut command = redis::cmd("SUBSCRIBE");
    command.arg(channel);
    server.command(route, &command, until).await.map(drop).map_err(|mut error| {
        if error.kind == StoreErrorKind::Rejected {
            error.message += "; to be woken by a release the user needs the permission +subscribe and the channels of the \
                              prefix (&prefix*); without them waiters sleep until the TTL is over";
        }
        error
    })
}

/// The hints, and what keeps them coming.
struct Listening {
    hints: HintStream,
    upkeep: Option<BoxFuture<'static, ()>>,
}

impl Stream for Listening {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        if let Some(upkeep) = &mut self.upkeep
            && upkeep.poll_unpin(context).is_ready()
        {
            self.upkeep = None;
        }
        self.hints.poll_next_unpin(context)
    }
}

#[cfg(test)]
mod tests;
