//! What keeps the hints coming.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream;
use redis::Value;
use tenure_core::{Instant, LeaseName, Wake};
use tenure_store::{Hint, StoreError, StoreErrorKind, clock};

use super::{Pushes, subscribe};
use crate::keys::Route;
use crate::looking::PATIENCE;
use crate::script::{self, Call};
use crate::server::Server;
use crate::sleep::sleep;

/// How often a connection is asked whether it lives: a waiter hears of a release at the latest so long after a
/// connection has died unseen, and twice the time that an answer may take.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How long the answer may take.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// How often those leases are looked at whose holders may tell nobody of the end.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long to wait before the next try to subscribe again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// So many subscriptions are asked for at once, and so many leases looked at in one call.
const AT_ONCE: usize = 100;

/// Runs until the hints end, and with them whoever polls this.
pub(super) async fn keep_up(server: Arc<Server>, pushes: Arc<Pushes>) {
    let mut backoff = BACKOFF.0;
    let mut ping_at = clock::now() + PING_EVERY;
    let mut look_at = clock::now() + LOOK_EVERY;
    loop {
        let now = clock::now();
        let (listening, lost, foreign) = {
            let mut state = pushes.lock();
            let listening = !state.leases.is_empty() || state.members.is_some();
            let foreign = state.leases.values().any(|lease| lease.foreign);
            (listening, std::mem::take(&mut state.lost) && listening, foreign)
        };
        let members = pushes.look_at_members();
        let free = pushes.tell_what_is_free(now);
        if lost {
            if subscribe_again(&server, &pushes).await {
                pushes.hints.push(Hint::Resync);
                backoff = BACKOFF.0;
                ping_at = clock::now() + PING_EVERY;
            } else {
                sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF.1);
                pushes.lock().lost = true;
            }
        } else if listening && now >= ping_at {
            // One that did not answer is asked again at once: whether it is of use any more is decided over there.
            let answered = ping(&server, &pushes).await;
            ping_at = clock::now() + if answered { PING_EVERY } else { BACKOFF.0 };
        } else if foreign && now >= look_at {
            // What can't be told now is asked again.
            let _ = look_for_the_end(&server, &pushes).await;
            look_at = clock::now() + LOOK_EVERY;
        } else if members.is_some_and(|end| now >= end) {
            pushes.members_may_be_gone();
        } else {
            let looks = [foreign.then_some(look_at), members, free, listening.then_some(ping_at)];
            let next = looks.into_iter().flatten().min();
            something_to_do(&pushes, next).await;
            if !listening {
                ping_at = clock::now() + PING_EVERY;
            }
        }
    }
}

/// Waits until a connection was lost, something else is listened to, a member may be gone sooner than was known, or the
/// time has come.
async fn something_to_do(pushes: &Pushes, at: Option<Instant>) {
    let woken = pin!(poll_fn(|context| {
        pushes.upkeep.register(context.waker());
        // It is polled for each hint, too.
        if pushes.news.swap(false, Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }));
    match at {
        Some(at) => match select(woken, pin!(sleep(at.saturating_since(clock::now())))).await {
            Either::Left(_) | Either::Right(_) => {}
        },
        None => woken.await,
    }
}

/// Subscribes to everything again; `false` if that did not work.
async fn subscribe_again(server: &Server, pushes: &Pushes) -> bool {
    let until = clock::now() + PATIENCE;
    // What is rejected here is the login, which may be mended.
    if server.keys(until).await.is_err() {
        return false;
    }
    let mut channels: Vec<(Route, Vec<u8>)> = {
        let state = pushes.lock();
        let leases = state.leases.iter().map(|(channel, lease)| (lease.route, channel.clone()));
        leases.chain(state.members.iter().map(|members| (Route::FIRST, members.channel.clone()))).collect()
    };
    let mut heard = stream::iter(channels.drain(..))
        .map(|(route, channel)| async move { subscribe(server, route, &channel, until).await })
        .buffer_unordered(AT_ONCE);
    while let Some(subscribed) = heard.next().await {
        match subscribed {
            Ok(()) => {}
            // Nor will it be allowed the next time.
            Err(error) if error.kind == StoreErrorKind::Rejected => {}
            Err(_) => return false,
        }
    }
    true
}

/// Asks each connection on which something is listened to whether it lives.
async fn ping(server: &Server, pushes: &Pushes) -> bool {
    let routes: BTreeSet<Route> = {
        let state = pushes.lock();
        state
            .leases
            .values()
            .map(|lease| lease.route)
            .chain(state.members.iter().map(|_| Route::FIRST))
            .collect()
    };
    let (command, until) = (redis::cmd("PING"), clock::now() + PING_TIMEOUT);
    let answers = routes.into_iter().map(|route| server.command(route, &command, until));
    futures::future::join_all(answers).await.iter().all(is_heard)
}

/// Whether a connection that was asked need not be asked again at once: what answers lives, whatever it says, and where
/// nothing could be sent there is none.
fn is_heard(answer: &Result<Value, StoreError>) -> bool {
    answer.as_ref().err().is_none_or(|error| error.kind != StoreErrorKind::Unknown)
}

/// Looks at the leases whose holders may tell nobody of the end, and hints at those that nobody has any more.
async fn look_for_the_end(server: &Server, pushes: &Pushes) -> Result<(), StoreError> {
    let until = clock::now() + PING_TIMEOUT;
    let keys = server.keys(until).await?;
    let mut by_route: BTreeMap<Route, Vec<(Vec<u8>, LeaseName)>> = BTreeMap::new();
    for (channel, lease) in pushes.lock().leases.iter().filter(|(_, lease)| lease.foreign) {
        by_route.entry(lease.route).or_default().push((channel.clone(), lease.name.clone()));
    }
    // One node that does not answer is no reason not to look at the others.
    let looks = by_route.into_iter().map(async |(route, leases)| {
        for leases in leases.chunks(AT_ONCE) {
            let mut call = Call::new();
            leases.iter().for_each(|(_, name)| call.push_key(&keys.lease_alone(name).1));
            let Ok(Value::Array(found)) = server.run(route, &script::LOOK, &call, until).await else {
                return;
            };
            for ((channel, name), _) in leases.iter().zip(&found).filter(|(_, found)| is_free(found)) {
                let mut state = pushes.lock();
                let Some(lease) = state.leases.get_mut(channel) else { continue };
                // Once told, until somebody of that kind has it again.
                if std::mem::take(&mut lease.foreign) {
                    drop(state);
                    pushes.hints.push(Hint::Lease { name: name.clone(), wake: Wake::Free { chosen: false } });
                }
            }
        }
    });
    futures::future::join_all(looks).await;
    Ok(())
}

fn is_free(found: &Value) -> bool {
    matches!(found, Value::Array(parts) if parts.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_is_heard_whatever_it_says() {
        assert!(is_heard(&Ok(Value::Okay)));
        assert!(is_heard(&Err(StoreError::rejected("NOPERM"))), "else it were asked all the time");
        assert!(is_heard(&Err(StoreError::transient("LOADING"))));
        assert!(!is_heard(&Err(StoreError::unknown("no answer"))));
    }
}
