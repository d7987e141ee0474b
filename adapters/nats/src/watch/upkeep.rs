//! What keeps the hints coming: a task for each handle that listens.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use tenure_core::Instant;
use tenure_store::{Hint, StoreError, StoreErrorKind, clock};
use tokio::task::JoinHandle;
use tokio::time;

use super::Pushes;
use crate::client::Client;
use crate::connection::Connection;
use crate::link::{Link, PATIENCE};

/// How often those leases are looked at that are waited for: what was told and not heard, or never told, is found by it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long to wait before the next try to listen.
const BACKOFF: Duration = Duration::from_millis(100);

/// So many leases are looked at side by side.
const AT_ONCE: usize = 32;

/// The task, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Upkeep(Mutex<Option<JoinHandle<()>>>);

impl Upkeep {
    /// Listens no longer.
    pub(crate) fn end(&self) {
        if let Some(task) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.end();
    }
}

impl Client {
    /// Begins to listen, unless it does.
    pub(super) fn keep_up(&self) {
        let mut task = self.upkeep.0.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (link, pushes) = (Arc::clone(&self.link), Arc::clone(&self.pushes));
            pushes.set_heard(Ok(false));
            *task = Some(tokio::spawn(keep_up(link, pushes)));
        }
    }
}

/// Runs until it may not listen, or the handle is gone.
async fn keep_up(link: Arc<Link>, pushes: Arc<Pushes>) {
    loop {
        let until = clock::now() + PATIENCE;
        match link.ready(until).await {
            Ok(connection) => match listen(&link, &pushes, &connection).await {
                Err(error) if error.kind == StoreErrorKind::Rejected => {
                    pushes.set_heard(Err(error));
                    return;
                }
                Ok(()) | Err(_) => {}
            },
            // It tells those who wait for it; whoever asks again begins again.
            Err(error) if matches!(error.kind, StoreErrorKind::Rejected | StoreErrorKind::Unsupported) => {
                pushes.set_heard(Err(error));
                return;
            }
            Err(_) => {}
        }
        pushes.set_heard(Ok(false));
        time::sleep(BACKOFF).await;
    }
}

/// Listens until the connection is closed for good.
async fn listen(link: &Arc<Link>, pushes: &Pushes, connection: &Connection) -> Result<(), StoreError> {
    let subject = link.names.wakes();
    let subscribed = connection.client.subscribe(subject.clone()).await;
    let mut messages = subscribed.map_err(|error| StoreError::transient(error.to_string()))?;
    let mut gaps = connection.events.gaps();
    gaps.borrow_and_update();
    connection.round_trip(link, &subject).await?;
    pushes.set_heard(Ok(true));
    pushes.hints.push(Hint::Resync);
    // Beside the hints, which are not to wait for it.
    let mut looking = std::pin::pin!(async {
        loop {
            time::sleep(LOOK_EVERY).await;
            look(link, pushes).await;
        }
    });
    loop {
        let now = clock::now();
        let (free, members) = (pushes.tell_what_is_free(now), pushes.tell_who_may_be_gone(now));
        let next = [free, members].into_iter().flatten().fold(now + LOOK_EVERY, Instant::min);
        tokio::select! {
            () = &mut looking => {}
            message = messages.next() => match message {
                Some(message) => pushes.take(&message.subject, &message.payload, link),
                None => return Ok(()),
            },
            changed = gaps.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                // Heard is what comes after the server has heard of us.
                pushes.set_heard(Ok(false));
                while let Err(error) = connection.round_trip(link, &subject).await {
                    if error.kind == StoreErrorKind::Rejected {
                        return Err(error);
                    }
                    time::sleep(BACKOFF).await;
                }
                pushes.set_heard(Ok(true));
                pushes.hints.push(Hint::Resync);
            }
            () = pushes.news.notified() => {}
            () = time::sleep(next.saturating_since(clock::now())) => {}
        }
    }
}

impl Connection {
    /// Returns once the server has heard of what was subscribed to before: it takes one after the other.
    async fn round_trip(&self, link: &Link, subject: &str) -> Result<(), StoreError> {
        link.time(clock::now() + PATIENCE).await?;
        // What it said before that answer may have been put by, to be taken note of by another task.
        link.time(clock::now() + PATIENCE).await?;
        match self.events.denial(subject) {
            Some(text) => Err(StoreError::rejected(format!("{text}; without it no hints are heard"))),
            None => Ok(()),
        }
    }
}

/// Looks at all that is waited for.
async fn look(link: &Link, pushes: &Pushes) {
    let until = clock::now() + LOOK_EVERY;
    stream::iter(pushes.watched())
        .for_each_concurrent(AT_ONCE, |name| async move {
            // What can't be told now is asked again.
            if let Ok(found) = link.get(&link.names.lease(&name), until).await {
                pushes.found(&name, found.is_none_or(|stored| stored.gone));
            }
        })
        .await;
}
