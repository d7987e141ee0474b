//! Leases: taken, extended and ended by conditional writes.
//!
//! What is read is a hint; what a condition held for is the truth. A write that was not answered may be there all the
//! same, or come later: the next one for the same lease finds it by the owner that stands in it, which nobody else has, or
//! makes its condition fail.

mod known;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use tenure_core::{Instant, LeaseName, Token};
use tenure_store::{
    Acquire, Acquired, Eviction, LeaseRecord, Release, Released, Renew, Renewed, StoreError, check_floor,
    clock,
};
use tokio::time;

use crate::client::Client;
use crate::error::unreadable;
use crate::link::{PATIENCE, Stored, Wrote, again};
use crate::record::{self, Record};

pub(crate) use known::Known;

/// Sequences are the server's; a floor above this is none that it has given.
pub(crate) const HIGHEST_FLOOR: Token = Token::new(u64::MAX / 2);

/// A waiter tries again at the latest when the TTL that it was told of is over. One that did not come back this long
/// after that is gone or stuck.
const WAITER_GRACE: Duration = Duration::from_secs(5);

/// How long those wait at the least who find a record that the server should have ended: it does so somewhat late.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// So many of those who wait, and of the traces of those who waited, are looked at to find two.
const MOST_LOOKED_AT: usize = 8;

/// Whoever is told that a lease is free has the server to itself for so long, before it is tidied up there.
const HEAD_START: Duration = Duration::from_millis(20);

/// Who holds a lease that an operator has taken away. No process can have this name.
const EVICTED: &str = "evicted";

impl Client {
    pub(crate) async fn acquire_lease(&self, request: &Acquire) -> Result<Acquired, StoreError> {
        self.limits.check_acquire(request)?;
        check_floor(request, HIGHEST_FLOOR)?;
        let until = clock::now() + request.timeout;
        let subject = self.link.names.lease(&request.name);
        loop {
            let found = match self.pushes.read_free(&request.name, until).await {
                Some(trace) => Some(trace),
                None => self.link.get(&subject, until).await?,
            };
            let seen_at = clock::now();
            let last = found.as_ref().map_or(0, |stored| stored.sequence);
            let held = found.filter(|stored| !stored.gone);
            let record = match held.as_ref().map(Record::read) {
                None => Record::grant(request),
                // It is asked again, or the answer was lost: the same token, and the time begins anew.
                Some(Ok(record)) if request.owner.to_string() == record.owner => {
                    Record { ttl: request.ttl, ..record }
                }
                // The server forgot to end it. By our own clock it is over, and nobody has extended it.
                Some(Ok(record)) if self.known.is_outlived(&request.name, last, record.ttl, seen_at) => {
                    tracing::info!(event = "nats.outlived", lease = %request.name, "took over what the server had not ended");
                    Record::grant(request)
                }
                Some(_) => {
                    let Some(stored) = held else { continue };
                    match self.refuse(request, &stored, seen_at, until).await? {
                        Some(refused) => return Ok(refused),
                        None => Record::grant(request),
                    }
                }
            };
            let written = self.link.write(&subject, record.write(), last, record.ttl, until).await?;
            let Wrote::Written(sequence) = written else {
                again(until).await?;
                continue;
            };
            let is_new = record.token == Token::ZERO;
            let token = if is_new { Token::new(sequence) } else { record.token };
            self.known.holds(&request.name, sequence, Record { token, ..record });
            if is_new {
                self.tell_held(&request.name, token, request.ttl).await;
            }
            return Ok(Acquired::Granted(token));
        }
    }

    /// Another has the lease: remembers since when it is known to stand as it does, and waits if that is wanted. `None` if it
    /// is over by the server's own clock.
    async fn refuse(
        &self,
        request: &Acquire,
        stored: &Stored,
        seen_at: Instant,
        until: Instant,
    ) -> Result<Option<Acquired>, StoreError> {
        let ttl = Record::read(stored).ok().map(|record| record.ttl);
        let outlived = ttl.map(|ttl| self.known.sees(&request.name, stored.sequence, ttl, seen_at));
        // Who can't hear of a release would take the place of those who can.
        let registers = async {
            if request.wait && self.pushes.watches(&request.name) {
                let longest = stored.ttl.unwrap_or_default().max(ttl.unwrap_or_default());
                self.register(&request.name, longest, until).await;
            }
        };
        let (time, ()) = join(self.link.time(until), registers).await;
        let now = time?.wall;
        if record::is_overdue(stored, now, self.limits.clock.step) {
            tracing::info!(event = "nats.outlived", lease = %request.name, "took over what the server had not ended");
            return Ok(None);
        }
        // When the server ends it, or when it is outlived, whichever comes first; it may be due already, and late.
        let rest = record::ends_in(stored, now).map(|rest| {
            let rest = outlived.map_or(rest, |at| rest.min(at.saturating_since(clock::now())));
            if rest.is_zero() { LOOK_AGAIN } else { rest }
        });
        Ok(Some(Acquired::Held(record::holder(stored, rest))))
    }

    /// Registers as one who waits. It is best effort: who is not chosen tries all the same.
    pub(crate) async fn register(&self, name: &LeaseName, ttl: Duration, until: Instant) {
        let subject = self.link.names.waiter(name, &self.handle);
        let _ = self.link.put(&subject, b"{\"v\":1}".to_vec(), ttl + WAITER_GRACE, until).await;
    }

    pub(crate) async fn renew_lease(&self, request: &Renew) -> Result<Renewed, StoreError> {
        self.limits.check_renew(request)?;
        let until = clock::now() + request.timeout;
        let subject = self.link.names.lease(&request.name);
        let owner = request.owner.to_string();
        let mut known = self.known.record(&request.name, &owner, request.token);
        loop {
            let (last, record) = match known.take() {
                Some(known) => known,
                None => {
                    let found = self.link.get(&subject, until).await?.filter(|stored| !stored.gone);
                    let ours = |record: &Record| record.owner == owner && record.token == request.token;
                    let record = found.as_ref().and_then(|stored| Record::read(stored).ok()).filter(ours);
                    match (found, record) {
                        (Some(stored), Some(record)) => (stored.sequence, record),
                        (_, _) => {
                            self.known.forget(&request.name, &owner);
                            return Ok(Renewed::NotYours);
                        }
                    }
                }
            };
            let record = Record { ttl: request.ttl, ..record };
            let written = self.link.write(&subject, record.write(), last, record.ttl, until).await;
            match written? {
                Wrote::Written(sequence) => {
                    self.known.holds(&request.name, sequence, record);
                    return Ok(Renewed::Renewed);
                }
                // Perhaps by an earlier write of our own, whose answer was lost.
                Wrote::Changed => {}
            }
            if clock::now() >= until {
                return Err(StoreError::transient("there was no time left to look again"));
            }
        }
    }

    pub(crate) async fn release_lease(&self, request: &Release) -> Result<Released, StoreError> {
        let until = clock::now() + request.timeout;
        let subject = self.link.names.lease(&request.name);
        let owner = request.owner.to_string();
        let mut known = request.token.and_then(|token| self.known.record(&request.name, &owner, token));
        loop {
            let last = match known.take() {
                Some((last, _)) => last,
                None => {
                    let found = self.link.get(&subject, until).await?;
                    let last = found.as_ref().map_or(0, |stored| stored.sequence);
                    let ours = |record: &Record| {
                        record.owner == owner && request.token.is_none_or(|token| token == record.token)
                    };
                    let record = found.filter(|stored| !stored.gone).map(|stored| Record::read(&stored));
                    match record {
                        Some(Ok(record)) if ours(&record) => last,
                        // Nobody has it. A grant that was asked for and never answered may still come: it must not then.
                        None if request.token.is_none() => {
                            if self.link.purge(&subject, last, until).await? == Wrote::Changed {
                                again(until).await?;
                                continue;
                            }
                            return Ok(Released::NotYours);
                        }
                        _ => {
                            self.known.forget(&request.name, &owner);
                            return Ok(Released::NotYours);
                        }
                    }
                }
            };
            let (purged, waiting) =
                join(self.link.purge(&subject, last, until), self.waiting(&request.name, until)).await;
            match purged? {
                Wrote::Written(_) => {}
                Wrote::Changed => {
                    again(until).await?;
                    continue;
                }
            }
            self.known.forget(&request.name, &owner);
            let others_chosen = self.tell_free(&request.name, waiting).await;
            return Ok(Released::Released { others_chosen });
        }
    }

    pub(crate) async fn evict_lease(
        &self,
        name: &LeaseName,
        how: Eviction,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let until = clock::now() + PATIENCE;
        let subject = self.link.names.lease(name);
        loop {
            let Some(stored) = self.link.get(&subject, until).await?.filter(|stored| !stored.gone) else {
                return Ok(None);
            };
            let now = self.link.time(until).await?.wall;
            let evicted = record::lease(name.clone(), &stored, now);
            let written = match how {
                Eviction::Delete => self.link.purge(&subject, stored.sequence, until).await?,
                Eviction::Replace => {
                    let record = Record::read(&stored).map_err(|problem| {
                        unreadable(
                            &problem,
                            &subject,
                            "whoever has it can't be told apart, but it can be deleted",
                        )
                    })?;
                    // Its owner relies on what it asked for, the server on the next whole second.
                    let rest = record.ttl.saturating_sub(now.saturating_since(stored.time));
                    let rest = rest.max(Duration::from_millis(1));
                    let record = Record { owner: EVICTED.to_owned(), ttl: rest, ..record };
                    self.link.write(&subject, record.write(), stored.sequence, rest, until).await?
                }
            };
            match written {
                Wrote::Written(_) if how == Eviction::Delete => {
                    self.tell_all_free(name).await;
                    return Ok(Some(evicted));
                }
                Wrote::Written(_) => return Ok(Some(evicted)),
                Wrote::Changed => again(until).await?,
            }
        }
    }

    /// Those who wait for a lease, the ones that have waited longest first: at most two that are not this handle, and how
    /// many there are besides.
    async fn waiting(&self, name: &LeaseName, until: Instant) -> (Vec<Stored>, usize) {
        let subjects = self.link.names.waiters(name);
        let (found, first) =
            join(self.link.subjects(&subjects, until), self.link.next(&subjects, 0, until)).await;
        let Ok((_, found)) = found else { return (Vec::new(), 0) };
        let own = self.link.names.waiter(name, &self.handle);
        let others = found.iter().filter(|subject| **subject != own).count();
        let (mut chosen, mut next) = (Vec::new(), first.ok().flatten());
        for _ in 0..MOST_LOOKED_AT {
            // They lie in the order in which they were written last.
            let Some(stored) = next.take() else { break };
            let sequence = stored.sequence;
            if !stored.gone && stored.subject != own {
                chosen.push(stored);
            }
            if chosen.len() == others.min(2) {
                break;
            }
            next = self.link.next(&subjects, sequence + 1, until).await.ok().flatten();
        }
        let rest = others.saturating_sub(chosen.len());
        (chosen, rest)
    }

    async fn tell_held(&self, name: &LeaseName, token: Token, ttl: Duration) {
        let text = format!("held {} {token} {}", self.handle, ttl.as_millis());
        self.link.tell(self.link.names.wake(name), text).await;
    }

    async fn tell_all_free(&self, name: &LeaseName) {
        let text = format!("free {} +0", self.handle);
        self.link.tell(self.link.names.wake(name), text).await;
    }

    /// Tells that a lease is free, and who is to try first; whether anybody is.
    async fn tell_free(&self, name: &LeaseName, (chosen, rest): (Vec<Stored>, usize)) -> bool {
        let mut text = format!("free {}", self.handle);
        for handle in chosen.iter().filter_map(|waiter| waiter.subject.rsplit('.').next()) {
            text = text + " " + handle;
        }
        self.link.tell(self.link.names.wake(name), format!("{text} +{rest}")).await;
        let others_chosen = !chosen.is_empty();
        // Whoever was named must register again to be named again. That has time, and who has done so by then stays.
        for waiter in chosen {
            let link = Arc::clone(&self.link);
            tokio::spawn(async move {
                time::sleep(HEAD_START).await;
                link.purge(&waiter.subject, waiter.sequence, clock::now() + PATIENCE).await
            });
        }
        others_chosen
    }
}
