//! A store that does what a test wants of it.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join_all;
use tenure_core::{Identity, JobName, LeaseName, TimerName, Token};
use tenure_memory::MemoryStore;
use tenure_store::{
    Acquired, Answer, DrainMark, Eviction, Hints, JobRecord, LeaseRecord, Limits, MemberEntry, Operation,
    Outcome, Released, Renewed, Replies, RunRecord, RunReport, SimpleStore, Store, StoreError, Subject,
    TimerAct, TimerAnswer, TimerEntry, TimerRequest,
};

use crate::Runtime;
use crate::testing::TestRuntime;

/// What becomes of one operation.
#[derive(Clone, Debug, Default)]
pub(super) enum Fault {
    /// It is executed and answered.
    #[default]
    None,
    /// It is executed this much later, and answered.
    Late(Duration),
    /// It is executed this much later, even if nobody waits for it any more: it was on its way already.
    Astray(Duration),
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
    /// What a bad store does with an operation, by a number from 0 to 99: in half of the cases something is wrong. What
    /// goes astray arrives after the TTL.
    pub(super) fn of_a_bad_store(chance: u64) -> Self {
        match chance {
            0..10 => Self::LoseAnswer,
            10..20 => Self::Fail,
            20..27 => Self::Late(Duration::from_millis(chance * 100)),
            27..30 => Self::Astray(super::TTL + Duration::from_millis(chance * 100)),
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
    log: Vec<(&'static str, String, Option<Token>)>,
    watched: BTreeSet<LeaseName>,
    closed: usize,
    hang_looks: bool,
    hang_close: bool,
    reports: Vec<RunReport>,
    report_fault: Fault,
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
        let mut planned = self.0.lock().unwrap();
        planned.choice = None;
        planned.report_fault = Fault::None;
    }

    /// What becomes of reports about runs: executed, failed, refused, or never answered.
    pub(super) fn reports(&self, fault: Fault) {
        self.0.lock().unwrap().report_fault = fault;
    }

    /// The reports so far.
    pub(super) fn reported(&self) -> Vec<RunReport> {
        self.0.lock().unwrap().reports.clone()
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

    pub(super) fn log(&self) -> Vec<(&'static str, String, Option<Token>)> {
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
            Operation::Timer(TimerRequest { act: TimerAct::Renew { token, .. }, .. }) => Some(*token),
            Operation::Timer(TimerRequest { act: TimerAct::Finish { token, .. }, .. }) => *token,
            Operation::Timer(_) | Operation::Heartbeat(_) | Operation::Leave(_) => None,
        };
        let name = match operation.subject() {
            Subject::Lease(name) => name.as_str(),
            Subject::Timer(name) => name.as_str(),
            Subject::Member(identity) => identity.instance(),
        };
        planned.log.push((kind_of(operation), name.to_owned(), token));
        planned.choice.as_mut().map_or(Fault::None, |choice| choice(operation))
    }
}

fn kind_of(operation: &Operation) -> &'static str {
    match operation {
        Operation::Acquire(_) => "acquire",
        Operation::Renew(_) => "renew",
        Operation::Release(_) => "release",
        Operation::Timer(request) => match request.act {
            TimerAct::Read { .. } => "read",
            TimerAct::Change { .. } => "change",
            TimerAct::Claim(_) => "claim",
            TimerAct::Renew { .. } => "renew claim",
            TimerAct::Finish { .. } => "finish",
            TimerAct::Forget => "forget",
        },
        Operation::Heartbeat(_) => "heartbeat",
        Operation::Leave(_) => "leave",
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
        carry_out(&self.store, operation).await
    }

    async fn one(&self, operation: Operation) -> Outcome {
        let about = tenure_store::Topic::from(operation.subject());
        match self.plan.of(&operation) {
            Fault::None => self.carry_out(operation).await,
            Fault::Late(delay) => {
                self.sleep(delay).await;
                self.carry_out(operation).await
            }
            Fault::Astray(delay) => {
                let (answer, answered) = oneshot::channel();
                let (store, runtime) = (Arc::clone(&self.store), self.runtime.clone());
                self.runtime.spawn(Box::pin(async move {
                    runtime.sleep_until(Runtime::now(&runtime) + delay).await;
                    let _nobody_waits = answer.send(carry_out(&store, operation).await);
                }));
                answered.await.unwrap_or_else(|_| Err(StoreError::unknown("the store is gone").about(about)))
            }
            Fault::Slow(delay) => {
                let outcome = self.carry_out(operation).await;
                self.sleep(delay).await;
                outcome
            }
            Fault::LoseAnswer => {
                let _executed = self.carry_out(operation).await;
                Err(StoreError::unknown("the connection broke").about(about))
            }
            Fault::Fail => Err(StoreError::transient("the server is down").about(about)),
            Fault::Refuse => Err(StoreError::rejected("not allowed").about(about)),
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
                Operation::Timer(request) => Answer::Timer(match request.act {
                    TimerAct::Read { .. } | TimerAct::Claim(_) => TimerAnswer::Removed,
                    TimerAct::Change { .. } | TimerAct::Finish { .. } | TimerAct::Forget => {
                        TimerAnswer::Renewed
                    }
                    TimerAct::Renew { .. } => TimerAnswer::Taken,
                }),
                Operation::Heartbeat(_) => Answer::Leave,
                Operation::Leave(_) => Answer::Renew(Renewed::Renewed),
            }),
            Fault::Grant(token) => {
                let _executed = self.carry_out(operation).await;
                Ok(Answer::Acquire(Acquired::Granted(Token::new(token))))
            }
        }
    }
}

async fn carry_out(store: &MemoryStore, operation: Operation) -> Outcome {
    match operation {
        Operation::Acquire(acquire) => store.acquire(acquire).await.map(Answer::Acquire),
        Operation::Renew(renew) => store.renew(renew).await.map(Answer::Renew),
        Operation::Release(release) => store.release(release).await.map(Answer::Release),
        Operation::Timer(request) => store.timer(request).await.map(Answer::Timer),
        Operation::Heartbeat(beat) => store.heartbeat(beat).await.map(Answer::Heartbeat),
        Operation::Leave(leave) => store.leave(leave).await.map(|()| Answer::Leave),
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

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        SimpleStore::timers(&*self.store, after, most).await
    }

    async fn report(&self, report: RunReport) -> Result<(), StoreError> {
        let fault = {
            let mut planned = self.plan.0.lock().unwrap();
            planned.reports.push(report.clone());
            planned.report_fault.clone()
        };
        match fault {
            Fault::Fail => Err(StoreError::transient("the server is down").about(&report.job)),
            Fault::Refuse => Err(StoreError::unsupported("no records here").about(&report.job)),
            Fault::Hang => pending().await,
            _ => SimpleStore::report(&*self.store, report).await,
        }
    }

    async fn jobs(&self, after: Option<JobName>, most: usize) -> Result<Vec<JobRecord>, StoreError> {
        SimpleStore::jobs(&*self.store, after, most).await
    }

    async fn runs(&self, job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        SimpleStore::runs(&*self.store, job).await
    }

    async fn forget_job(&self, job: JobName) -> Result<bool, StoreError> {
        SimpleStore::forget_job(&*self.store, job).await
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        SimpleStore::members(&*self.store, after, most).await
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        SimpleStore::mark(&*self.store, mark).await
    }

    async fn close(&self) {
        self.plan.0.lock().unwrap().closed += 1;
        SimpleStore::close(&*self.store).await;
        if self.plan.0.lock().unwrap().hang_close {
            pending().await
        }
    }
}
