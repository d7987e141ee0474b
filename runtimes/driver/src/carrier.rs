//! Carries commands to the store and brings the outcomes back.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::channel::{mpsc, oneshot};
use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::{FuturesUnordered, StreamExt};
use tenure_core::{CommandId, Instant, LeaseName, TimerName};
use tenure_store::{
    Answer, Limits, Operation, Outcome, Replies, RunReport, Store, StoreError, TimerAct, TimerAnswer,
    TimerRequest,
};

use crate::store::AnyStore;
use crate::watches::{Watch, Watches};

mod answering;
mod order;

use answering::{AnswerOnDrop, ReportOnDrop, WatchOnDrop};
pub(crate) use order::{By, Order, Origin};

/// The most batches on their way at once. What comes beyond waits and travels together in the next.
const MAX_BATCHES: usize = 32;
/// A batch is given up this much after twice its longest timeout: everybody has long given up on it, and a
/// store that never answers must not pile up requests.
const BACKSTOP: Duration = Duration::from_secs(1);
/// How long a person who looks at the store, or a watch, waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What comes back.
pub(crate) enum Delivery {
    /// The outcome of an operation.
    Outcome { order: Origin, outcome: Outcome },
    /// The answer to a watch command.
    Watched { id: CommandId, name: LeaseName, result: Result<(), StoreError> },
    /// The answer to a report about a run.
    Reported { run: u64, result: Result<(), StoreError> },
    /// A request ended in a panic of the store.
    Panicked,
}

pub(crate) struct Carrier {
    store: AnyStore,
    limits: Limits,
    /// Everything but renewals that waits to be sent.
    urgent: VecDeque<Waiting>,
    /// Renewals that wait to be sent; those that `latest` does not name any more are void.
    renewals: VecDeque<Waiting>,
    /// The renewal of each lease and claim that waits to be sent.
    latest: HashMap<By, CommandId>,
    /// Outcomes that need no request.
    settled: VecDeque<Delivery>,
    watches: Watches,
    requests: FuturesUnordered<BoxFuture<'static, Ended>>,
    next: u64,
    batches: BTreeMap<u64, Batch>,
    backstops: BTreeMap<(Instant, u64), AbortHandle>,
    deliveries: mpsc::UnboundedReceiver<Message>,
    sender: mpsc::UnboundedSender<Message>,
    pub(crate) counts: Counts,
}

/// What was carried so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    pub(crate) batches: u64,
    pub(crate) abandoned: u64,
}

#[derive(Debug)]
struct Waiting {
    order: Order,
    since: Instant,
}

impl Waiting {
    fn origin(&self) -> Origin {
        self.order.origin(self.since)
    }
}

struct Batch {
    /// The operations without an outcome; in order, so that one run of a test is like another.
    open: BTreeMap<usize, Origin>,
    /// Whether the store's future is still there.
    running: bool,
}

/// A request has ended, one way or another.
struct Ended {
    request: u64,
    deadline: Instant,
    panicked: bool,
}

/// What requests tell from wherever they run.
enum Message {
    Outcome { batch: u64, index: usize, outcome: Outcome },
    Watched { id: Option<CommandId>, name: LeaseName, result: Result<(), StoreError> },
    Reported { run: u64, result: Result<(), StoreError> },
}

impl Carrier {
    pub(crate) fn new(store: AnyStore) -> Self {
        let limits = store.limits();
        let (sender, deliveries) = mpsc::unbounded();
        Self {
            store,
            limits,
            urgent: VecDeque::new(),
            renewals: VecDeque::new(),
            latest: HashMap::new(),
            settled: VecDeque::new(),
            watches: Watches::default(),
            requests: FuturesUnordered::new(),
            next: 0,
            batches: BTreeMap::new(),
            backstops: BTreeMap::new(),
            deliveries,
            sender,
            counts: Counts::default(),
        }
    }

    pub(crate) fn store(&self) -> &AnyStore {
        &self.store
    }

    /// How much is on its way or waits to be sent.
    pub(crate) fn len(&self) -> usize {
        self.requests.len() + self.urgent.len() + self.renewals.len() + self.watches.waiting()
    }

    /// How many entries all tables have, but for batches whose answers a store has kept beyond their futures.
    pub(crate) fn entries(&self) -> usize {
        let closed = self.batches.values().filter(|batch| batch.open.is_empty()).count();
        closed + self.latest.len() + self.settled.len() + self.watches.entries()
    }

    /// Takes an operation; it is sent by the next [`Carrier::launch`].
    pub(crate) fn order(&mut self, now: Instant, order: Order) {
        let waiting = Waiting { order, since: now };
        if waiting.order.operation.kind().is_renewal() {
            self.latest.insert(waiting.order.by, waiting.order.id);
            self.renewals.push_back(waiting);
        } else {
            // A renewal of the same lease that was not sent yet would come after it: it is void.
            self.latest.remove(&waiting.order.by);
            self.urgent.push_back(waiting);
        }
    }

    pub(crate) fn watch(&mut self, name: LeaseName, watch: Watch) {
        if let Some(id) = self.watches.want(name.clone(), watch) {
            let result = Err(StoreError::transient("it is not needed any more").about(&name));
            self.settled.push_back(Delivery::Watched { id, name, result });
        }
    }

    /// Asks the store for something for a person. `answer` always gets an answer.
    pub(crate) fn look<T: Send + 'static>(
        &mut self,
        now: Instant,
        work: BoxFuture<'static, Result<T, StoreError>>,
        answer: oneshot::Sender<Result<T, StoreError>>,
    ) {
        let mut answer = AnswerOnDrop(Some(answer));
        self.start(now + PATIENCE, Box::pin(async move { answer.send(work.await) }));
    }

    /// Removes a timer for a person. `answer` always gets an answer.
    pub(crate) fn forget_timer(
        &mut self,
        now: Instant,
        name: TimerName,
        answer: oneshot::Sender<Result<bool, StoreError>>,
    ) {
        let outcome = Arc::new(Mutex::new(None));
        let place = Arc::clone(&outcome);
        let replies = Replies::new(1, move |_, outcome| {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        });
        let request = TimerRequest { name: name.clone(), act: TimerAct::Forget, timeout: PATIENCE };
        let executing = self.store.executing(vec![Operation::Timer(request)], replies);
        let work = async move {
            executing.await;
            let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
            match outcome {
                Some(Ok(Answer::Timer(TimerAnswer::Removed))) => Ok(true),
                Some(Ok(Answer::Timer(TimerAnswer::NotYours))) => Ok(false),
                Some(Err(error)) => Err(error),
                Some(Ok(_)) | None => Err(StoreError::unknown("the store did not answer").about(&name)),
            }
        };
        self.look(now, Box::pin(work), answer);
    }

    /// Reports about a run. There always is an answer.
    pub(crate) fn report(&mut self, now: Instant, run: u64, report: RunReport) {
        let mut done = ReportOnDrop { run: Some(run), sender: self.sender.clone() };
        let deadline = now + report.timeout * 2 + BACKSTOP;
        let reporting = self.store.reporting(report);
        self.start(deadline, Box::pin(async move { done.send(reporting.await) }));
    }

    /// Sends what waits, as far as there is room. Returns whether there is something new to poll.
    pub(crate) fn launch(&mut self, now: Instant) -> bool {
        let before = self.next;
        while let Some((name, watch)) = self.watches.next() {
            let mut done =
                WatchOnDrop { name: Some(name.clone()), id: watch.id(), sender: self.sender.clone() };
            let (watching, unwatching) = match watch {
                Watch::On(_) => (Some(self.store.watching(name)), None),
                Watch::Off => (None, Some(self.store.unwatching(name))),
            };
            let request = async move {
                let result = match (watching, unwatching) {
                    (Some(watching), _) => watching.await,
                    (None, Some(unwatching)) => {
                        unwatching.await;
                        Ok(())
                    }
                    (None, None) => Ok(()),
                };
                done.send(result);
            };
            self.start(now + PATIENCE, Box::pin(request));
        }
        while self.batches.len() < MAX_BATCHES && self.launch_batch(now) {}
        self.next != before || !self.settled.is_empty()
    }

    fn launch_batch(&mut self, now: Instant) -> bool {
        let most = self.limits.batch.max(1);
        // Whoever releases or acquires is waiting for it; but renewals must not starve.
        let reserved = self.latest.len().min(most / 2);
        let mut orders: Vec<Waiting> = Vec::new();
        while orders.len() < most - reserved
            && let Some(waiting) = self.urgent.pop_front()
        {
            orders.extend(self.in_time(now, waiting));
        }
        while orders.len() < most
            && let Some(waiting) = self.renewals.pop_front()
        {
            if self.latest.get(&waiting.order.by) == Some(&waiting.order.id) {
                self.latest.remove(&waiting.order.by);
                orders.extend(self.in_time(now, waiting));
            } else {
                self.unsent(waiting, "a later request took its place");
            }
        }
        if orders.is_empty() {
            return false;
        }
        self.counts.batches += 1;
        self.counts.operations += orders.len() as u64;

        let batch = self.next;
        let longest =
            orders.iter().map(|waiting| waiting.order.operation.timeout()).max().unwrap_or_default();
        let open = orders.iter().map(Waiting::origin).enumerate().collect();
        let operations: Vec<_> = orders.into_iter().map(|waiting| waiting.order.operation).collect();
        let sender = self.sender.clone();
        let replies = Replies::new(operations.len(), move |index, outcome| {
            let _gone = sender.unbounded_send(Message::Outcome { batch, index, outcome });
        });
        self.batches.insert(batch, Batch { open, running: true });
        let request = self.store.executing(operations, replies);
        self.start(now + longest * 2 + BACKSTOP, request);
        true
    }

    /// The order, unless it waited for longer than it may take.
    fn in_time(&mut self, now: Instant, mut waiting: Waiting) -> Option<Waiting> {
        let waited = now.saturating_since(waiting.since);
        let left = waiting.order.operation.timeout().saturating_sub(waited);
        if left.is_zero() {
            self.unsent(
                waiting,
                "too many requests are on their way to the store, which does not answer them",
            );
            return None;
        }
        match &mut waiting.order.operation {
            Operation::Acquire(acquire) => acquire.timeout = left,
            Operation::Renew(renew) => renew.timeout = left,
            Operation::Release(release) => release.timeout = left,
            Operation::Timer(request) => request.timeout = left,
            Operation::Heartbeat(beat) => beat.timeout = left,
            Operation::Leave(leave) => leave.timeout = left,
        }
        Some(waiting)
    }

    fn unsent(&mut self, waiting: Waiting, why: &str) {
        let order = waiting.origin();
        let outcome = Err(StoreError::transient(format!("not sent: {why}")).about(&order.subject));
        self.settled.push_back(Delivery::Outcome { order, outcome });
    }

    /// Has a request polled until it ends, or until `deadline`.
    fn start(&mut self, deadline: Instant, request: BoxFuture<'static, ()>) {
        let id = self.next;
        self.next += 1;
        let (request, abort) = abortable(AssertUnwindSafe(request).catch_unwind());
        self.backstops.insert((deadline, id), abort);
        self.requests.push(Box::pin(async move {
            let panicked = matches!(request.await, Ok(Err(_)));
            Ended { request: id, deadline, panicked }
        }));
    }

    /// The next thing that came back.
    pub(crate) fn poll(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<Delivery> {
        loop {
            if let Some(delivery) = self.settled.pop_front() {
                return Poll::Ready(delivery);
            }
            // Requests first: they bring messages.
            if let Poll::Ready(Some(ended)) = self.requests.poll_next_unpin(cx) {
                self.backstops.remove(&(ended.deadline, ended.request));
                if let Some(batch) = self.batches.get_mut(&ended.request) {
                    batch.running = false;
                    self.close(ended.request);
                }
                if ended.panicked {
                    return Poll::Ready(Delivery::Panicked);
                }
                continue;
            }
            return match self.deliveries.poll_next_unpin(cx) {
                Poll::Ready(Some(Message::Outcome { batch, index, outcome })) => {
                    let order = self.batches.get_mut(&batch).and_then(|batch| batch.open.remove(&index));
                    self.close(batch);
                    match order {
                        Some(order) => Poll::Ready(Delivery::Outcome { order, outcome }),
                        // It was given up, and that was said already.
                        None => continue,
                    }
                }
                Poll::Ready(Some(Message::Watched { id, name, result })) => {
                    self.watches.ended(&name);
                    match id {
                        Some(id) => Poll::Ready(Delivery::Watched { id, name, result }),
                        None => continue,
                    }
                }
                Poll::Ready(Some(Message::Reported { run, result })) => {
                    Poll::Ready(Delivery::Reported { run, result })
                }
                // Only now: what has come counts, however late this looks at it.
                Poll::Ready(None) | Poll::Pending if self.give_up(now) => continue,
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            };
        }
    }

    /// When the next request is given up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.backstops.first_key_value().map(|(&(deadline, _), _)| deadline)
    }

    /// Gives up what is overdue; tells whether anything was.
    fn give_up(&mut self, now: Instant) -> bool {
        let before = self.counts.abandoned;
        while let Some(entry) = self.backstops.first_entry()
            && entry.key().0 <= now
        {
            let ((_, request), abort) = entry.remove_entry();
            // The future is dropped when it is polled next, which this brings about.
            abort.abort();
            self.counts.abandoned += 1;
            if let Some(batch) = self.batches.remove(&request) {
                for order in batch.open.into_values() {
                    let error = StoreError::unknown("the store did not answer").about(&order.subject);
                    self.settled.push_back(Delivery::Outcome { order, outcome: Err(error) });
                }
            }
        }
        self.counts.abandoned != before
    }

    /// Forgets a batch once nothing of it is open. One whose store kept the replies beyond its future stays
    /// until all are there: the backstop is set for it.
    fn close(&mut self, batch: u64) {
        if self.batches.get(&batch).is_some_and(|batch| !batch.running && batch.open.is_empty()) {
            self.batches.remove(&batch);
        }
    }
}

#[cfg(test)]
mod tests;
