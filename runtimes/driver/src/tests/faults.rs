//! A store that does what a test wants of it.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use tenure_core::{LeaseName, Token};
use tenure_memory::MemoryStore;
use tenure_store::{
    Acquired, Answer, Eviction, Hints, LeaseRecord, Limits, Operation, Outcome, Released, Renewed, Replies,
    SimpleStore, Store, StoreError,
};

use crate::Runtime;
use crate::testing::TestRuntime;

/// What becomes of one operation.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// It is executed and answered.
    None,
    /// It is executed this much later, and answered.
    Late(Duration),
    /// It is executed at once, and answered this much later.
    Slow(Duration),
    /// It is executed, and the answer is lost.
    LoseAnswer,
    /// It is not executed, and the store says so.
    Fail,
    /// It is refused.
    Refuse,
    /// It is not executed, and never answered.
    Hang,
    /// It is executed, and never answered.
    HangAfter,
    /// The adapter panics.
    Panic,
    /// It is answered with what belongs to another operation.
    Nonsense,
    /// It is granted with this token, whatever the store has.
    Grant(u64),
}

impl Fault {
    /// What a bad store does with an operation, by a number from 0 to 99: in half of the cases something is wrong.
    pub(super) fn of_a_bad_store(chance: u64) -> Self {
        match chance {
            0..10 => Self::LoseAnswer,
            10..20 => Self::Fail,
            20..30 => Self::Late(Duration::from_millis(chance * 100)),
            30..40 => Self::Slow(Duration::from_millis(chance * 100)),
            40..43 => Self::Hang,
            43..46 => Self::HangAfter,
            46..48 => Self::Panic,
            48..50 => Self::Nonsense,
            _ => Self::None,
        }
    }
}

type Choice = Box<dyn FnMut(&Operation) -> Fault + Send>;

/// What becomes of each operation, and what was asked so far.
#[derive(Clone, Default)]
pub(super) struct Plan(Arc<Mutex<Planned>>);

#[derive(Default)]
struct Planned {
    choice: Option<Choice>,
    log: Vec<(&'static str, LeaseName, Option<Token>)>,
    watched: BTreeSet<LeaseName>,
    closed: usize,
    hang_looks: bool,
    hang_close: bool,
}

impl Plan {
    pub(super) fn set(&self, choice: impl FnMut(&Operation) -> Fault + Send + 'static) {
        self.0.lock().unwrap().choice = Some(Box::new(choice));
    }

    pub(super) fn all(&self, fault: Fault) {
        self.set(move |_| fault.clone());
    }

    /// Only operations of this kind.
    pub(super) fn only(&self, kind: &'static str, fault: Fault) {
        self.set(move |operation| if kind_of(operation) == kind { fault.clone() } else { Fault::None });
    }

    pub(super) fn heal(&self) {
        self.0.lock().unwrap().choice = None;
    }

    pub(super) fn hang_looks(&self) {
        self.0.lock().unwrap().hang_looks = true;
    }

    pub(super) fn hang_close(&self) {
        self.0.lock().unwrap().hang_close = true;
    }

    pub(super) fn count(&self, kind: &str) -> usize {
        self.0.lock().unwrap().log.iter().filter(|(logged, ..)| *logged == kind).count()
    }

    pub(super) fn forget(&self) {
        self.0.lock().unwrap().log.clear();
    }

    pub(super) fn log(&self) -> Vec<(&'static str, LeaseName, Option<Token>)> {
        self.0.lock().unwrap().log.clone()
    }

    /// What is watched for this one process.
    pub(super) fn watched(&self) -> BTreeSet<LeaseName> {
        self.0.lock().unwrap().watched.clone()
    }

    pub(super) fn closed(&self) -> usize {
        self.0.lock().unwrap().closed
    }

    fn of(&self, operation: &Operation) -> Fault {
        let mut planned = self.0.lock().unwrap();
        let token = match operation {
            Operation::Acquire(_) => None,
            Operation::Renew(renew) => Some(renew.token),
            Operation::Release(release) => release.token,
        };
        planned.log.push((kind_of(operation), operation.name().clone(), token));
        planned.choice.as_mut().map_or(Fault::None, |choice| choice(operation))
    }
}

fn kind_of(operation: &Operation) -> &'static str {
    match operation {
        Operation::Acquire(_) => "acquire",
        Operation::Renew(_) => "renew",
        Operation::Release(_) => "release",
    }
}

pub(super) struct Faulty {
    store: Arc<MemoryStore>,
    plan: Plan,
    runtime: TestRuntime,
}

impl Faulty {
    pub(super) fn new(store: MemoryStore, plan: Plan, runtime: TestRuntime) -> Self {
        Self { store: Arc::new(store), plan, runtime }
    }

    async fn sleep(&self, duration: Duration) {
        self.runtime.sleep_until(Runtime::now(&self.runtime) + duration).await;
    }

    async fn carry_out(&self, operation: Operation) -> Outcome {
        match operation {
            Operation::Acquire(acquire) => self.store.acquire(acquire).await.map(Answer::Acquire),
            Operation::Renew(renew) => self.store.renew(renew).await.map(Answer::Renew),
            Operation::Release(release) => self.store.release(release).await.map(Answer::Release),
        }
    }

    async fn one(&self, operation: Operation) -> Outcome {
        let name = operation.name().clone();
        match self.plan.of(&operation) {
            Fault::None => self.carry_out(operation).await,
            Fault::Late(delay) => {
                self.sleep(delay).await;
                self.carry_out(operation).await
            }
            Fault::Slow(delay) => {
                let outcome = self.carry_out(operation).await;
                self.sleep(delay).await;
                outcome
            }
            Fault::LoseAnswer => {
                let _executed = self.carry_out(operation).await;
                Err(StoreError::unknown("the connection broke").about(&name))
            }
            Fault::Fail => Err(StoreError::transient("the server is down").about(&name)),
            Fault::Refuse => Err(StoreError::rejected("not allowed").about(&name)),
            Fault::Hang => pending().await,
            Fault::HangAfter => {
                let _executed = self.carry_out(operation).await;
                pending().await
            }
            Fault::Panic => panic!("an adapter's bug"),
            Fault::Nonsense => Ok(match operation {
                Operation::Acquire(_) => Answer::Renew(Renewed::Renewed),
                Operation::Renew(_) => Answer::Release(Released::NotYours),
                Operation::Release(_) => Answer::Acquire(Acquired::Granted(Token::new(1))),
            }),
            Fault::Grant(token) => {
                let _executed = self.carry_out(operation).await;
                Ok(Answer::Acquire(Acquired::Granted(Token::new(token))))
            }
        }
    }
}

impl Store for Faulty {
    fn limits(&self) -> Limits {
        SimpleStore::limits(&*self.store)
    }

    async fn execute(&self, batch: Vec<Operation>, replies: Replies) {
        let replies = Mutex::new(replies);
        join_all(batch.into_iter().enumerate().map(|(index, operation)| {
            let replies = &replies;
            async move {
                let outcome = self.one(operation).await;
                replies.lock().unwrap().deliver(index, outcome);
            }
        }))
        .await;
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        if self.plan.0.lock().unwrap().hang_looks {
            return pending().await;
        }
        SimpleStore::inspect(&*self.store, name).await
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        SimpleStore::list(&*self.store, after, most).await
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        SimpleStore::evict(&*self.store, name, how).await
    }

    fn hints(&self) -> Option<Hints> {
        SimpleStore::hints(&*self.store)
    }

    async fn watch(&self, name: LeaseName) -> Result<(), StoreError> {
        self.plan.0.lock().unwrap().watched.insert(name.clone());
        SimpleStore::watch(&*self.store, name).await
    }

    async fn unwatch(&self, name: LeaseName) {
        self.plan.0.lock().unwrap().watched.remove(&name);
        SimpleStore::unwatch(&*self.store, name).await;
    }

    async fn close(&self) {
        self.plan.0.lock().unwrap().closed += 1;
        SimpleStore::close(&*self.store).await;
        if self.plan.0.lock().unwrap().hang_close {
            pending().await
        }
    }
}
