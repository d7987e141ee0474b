//! The way between an instance and the store, and what goes wrong on it.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::stream::{Stream, StreamExt};
use tenure_driver::Runtime;
use tenure_driver::core::LeaseName;
use tenure_driver::store_contract::{Hint, Hints, SimpleStore, StoreError, Topic};
use tenure_memory::MemoryStore;

use crate::fault::Fault;
use crate::server::Server;

/// What is wrong between all processes of one name and the store.
#[derive(Default)]
pub(crate) struct Link(Mutex<Trouble>);

#[derive(Default)]
struct Trouble {
    faults: Vec<Fault>,
    /// Those who wait for hints.
    listeners: Vec<Waker>,
}

impl Link {
    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.lock().faults.clone()
    }

    /// Adds a fault, in place of one of its kind.
    pub(crate) fn add(&self, fault: Fault) {
        let mut trouble = self.lock();
        trouble.faults.retain(|other| other.name() != fault.name());
        trouble.faults.push(fault);
    }

    pub(crate) fn remove(&self, gone: impl Fn(&Fault) -> bool) {
        self.lock().faults.retain(|fault| !gone(fault));
        self.look_for_hints();
    }

    /// Has everybody who waits for hints look whether any come now.
    pub(crate) fn look_for_hints(&self) {
        let listeners = mem::take(&mut self.lock().listeners);
        listeners.into_iter().for_each(Waker::wake);
    }

    fn has(&self, fault: Fault) -> bool {
        self.lock().faults.contains(&fault)
    }

    fn time(&self, of: impl Fn(&Fault) -> Option<Duration>) -> Option<Duration> {
        self.lock().faults.iter().find_map(of)
    }

    fn lock(&self) -> MutexGuard<'_, Trouble> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One handle on the store, as one process has it.
pub(crate) struct Connection {
    server: Arc<Server>,
    link: Arc<Link>,
    state: Mutex<Open>,
}

struct Open {
    store: Arc<MemoryStore>,
    /// Of which store it is a handle.
    age: u64,
    watched: BTreeSet<LeaseName>,
}

/// Something that is asked of the store. It may be asked twice.
type Request<T> = Arc<dyn Fn(Arc<MemoryStore>) -> BoxFuture<'static, Result<T, StoreError>> + Send + Sync>;

impl Connection {
    pub(crate) fn new(server: Arc<Server>, link: Arc<Link>) -> Self {
        let (age, store) = (server.age(), Arc::new(server.handle()));
        Self { server, link, state: Mutex::new(Open { store, age, watched: BTreeSet::new() }) }
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_clear(&self) -> bool {
        !self.server.is_down() && self.link.lock().faults.is_empty()
    }

    /// The handle on the store as it is now: one that was wiped has another in its place.
    pub(crate) fn store(&self) -> Arc<MemoryStore> {
        let mut open = self.lock();
        if open.age == self.server.age() {
            return Arc::clone(&open.store);
        }
        open.age = self.server.age();
        let store = Arc::new(self.server.handle());
        // As an adapter does when it connects again.
        for name in &open.watched {
            let _watched = SimpleStore::watch(&*store, name.clone()).now_or_never();
        }
        let wiped = mem::replace(&mut open.store, Arc::clone(&store));
        drop(open);
        drop(wiped);
        store
    }

    /// Takes a request to the store and its answer back. Where the way is not clear the request is on its own: it
    /// arrives also when nobody waits for it any more.
    pub(crate) async fn ask<T, F>(
        self: &Arc<Self>,
        topic: Option<Topic>,
        request: impl Fn(Arc<MemoryStore>) -> F + Send + Sync + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if self.is_clear() {
            return request(self.store()).await;
        }
        let request: Request<T> = Arc::new(move |store| request(store).boxed());
        let (answer, answered) = oneshot::channel();
        let way = Arc::clone(self);
        self.server.network().spawn(Box::pin(async move {
            if let Some(outcome) = way.travel(request).await {
                let _nobody_waits = answer.send(outcome);
            }
        }));
        let outcome: Result<T, StoreError> = match answered.await {
            Ok(outcome) => outcome,
            Err(oneshot::Canceled) => pending().await,
        };
        outcome.map_err(|error| match &topic {
            Some(topic) if error.topic.is_none() => error.about(topic.clone()),
            Some(_) | None => error,
        })
    }

    /// Whether a request arrives now. If not, that is its answer, if one ever comes.
    fn arrives(&self) -> Result<(), Option<StoreError>> {
        let link = &self.link;
        if link.has(Fault::CutOff) || link.has(Fault::RequestsLost) {
            return Err(None);
        }
        if self.server.is_down() || link.has(Fault::Unavailable) {
            return Err(Some(StoreError::transient("the store can't be reached")));
        }
        if link.has(Fault::Refused) {
            return Err(Some(StoreError::rejected("the store refuses: no permission")));
        }
        Ok(())
    }

    /// `None` if no answer ever comes.
    async fn travel<T: Send + 'static>(
        self: Arc<Self>,
        request: Request<T>,
    ) -> Option<Result<T, StoreError>> {
        let link = &self.link;
        if let Err(answer) = self.arrives() {
            return answer.map(Err);
        }
        if let Some(delay) = link.time(requests_late) {
            self.sleep(delay).await;
            // What was on its way when the trouble began is hit by it, too.
            if let Err(answer) = self.arrives() {
                return answer.map(Err);
            }
        }
        if let Some(delay) = link.time(requests_repeated) {
            let (again, way) = (Arc::clone(&request), Arc::clone(&self));
            self.server.network().spawn(Box::pin(async move {
                way.sleep(delay).await;
                if way.arrives().is_ok() {
                    let _nobody_waits = again(way.store()).await;
                }
            }));
        }
        let outcome = request(self.store()).await;
        // The same for an answer.
        if let Some(delay) = link.time(replies_late) {
            self.sleep(delay).await;
        }
        if link.has(Fault::CutOff) || link.has(Fault::RepliesLost) {
            return None;
        }
        if link.has(Fault::ConnectionBroken) {
            return Some(Err(StoreError::unknown("the connection broke before the answer")));
        }
        Some(outcome)
    }

    async fn sleep(&self, duration: Duration) {
        let network = self.server.network();
        network.sleep_until(self.server.now() + duration).await;
    }

    pub(crate) fn watched(&self, name: &LeaseName, on: bool) {
        let mut open = self.lock();
        if on {
            open.watched.insert(name.clone());
        } else {
            open.watched.remove(name);
        }
    }

    pub(crate) fn hints(self: &Arc<Self>) -> Option<Hints> {
        let (age, hints) = (self.server.age(), SimpleStore::hints(&*self.store())?);
        Some(HintStream { way: Arc::clone(self), age, hints, missed: false }.boxed())
    }

    fn passes_hints(&self) -> bool {
        !(self.server.is_down() || self.link.has(Fault::CutOff) || self.link.has(Fault::HintsLost))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const fn requests_late(fault: &Fault) -> Option<Duration> {
    if let Fault::RequestsLate(time) = fault { Some(*time) } else { None }
}

const fn requests_repeated(fault: &Fault) -> Option<Duration> {
    if let Fault::RequestsRepeated(time) = fault { Some(*time) } else { None }
}

const fn replies_late(fault: &Fault) -> Option<Duration> {
    if let Fault::RepliesLate(time) = fault { Some(*time) } else { None }
}

/// The hints of one handle, as far as they arrive.
struct HintStream {
    way: Arc<Connection>,
    /// Of which store they are.
    age: u64,
    hints: Hints,
    /// Something has been lost, and that is still to be said.
    missed: bool,
}

impl Stream for HintStream {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Hint>> {
        let way = Arc::clone(&self.way);
        if self.age != way.server.age() {
            let Some(fresh) = SimpleStore::hints(&*way.store()) else { return Poll::Ready(None) };
            (self.age, self.hints, self.missed) = (way.server.age(), fresh, true);
        }
        loop {
            let passes = way.passes_hints();
            if passes && mem::take(&mut self.missed) {
                return Poll::Ready(Some(Hint::Resync));
            }
            match self.hints.poll_next_unpin(cx) {
                Poll::Ready(Some(_)) if !passes => self.missed = true,
                Poll::Pending => {
                    let listeners = &mut way.link.lock().listeners;
                    listeners.retain(|other| !other.will_wake(cx.waker()));
                    listeners.push(cx.waker().clone());
                    return Poll::Pending;
                }
                ready => return ready,
            }
        }
    }
}
