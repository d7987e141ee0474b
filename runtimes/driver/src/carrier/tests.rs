use std::sync::{Arc, Mutex};
use std::task::Waker;

use futures::future::pending;
use tenure_core::{
    Acquisition, ClaimEnd, Command, Failure, Identity, Incarnation, JobName, LeaseConfig, LeaseKey,
    LeaseOptions, Node, Output, SplitMix, StoreClock, Token,
};
use tenure_store::{
    Acquire, DrainMark, Eviction, Hints, JobRecord, LeaseRecord, MemberEntry, Metadata, Release, Renew,
    RunRecord, TimerEntry,
};

use super::*;
use crate::subject::Subject;

type Batches = Arc<Mutex<Vec<Vec<String>>>>;

/// Notes what it is asked for, and never answers.
struct Silent(Batches);

impl Store for Silent {
    fn limits(&self) -> Limits {
        let mut limits = Limits::DEFAULT;
        limits.batch = 10;
        limits
    }

    async fn execute(&self, batch: Vec<Operation>, _replies: Replies) {
        let names = batch.iter().map(|operation| {
            let kind = match operation {
                Operation::Acquire(_) => "acquire",
                Operation::Renew(_) => "renew",
                Operation::Release(_) => "release",
                Operation::Timer(request) => match request.act {
                    TimerAct::Renew { tick, .. } => return format!("renew tick {tick}"),
                    TimerAct::Finish { tick, .. } => return format!("finish tick {tick}"),
                    _ => return "timer".to_owned(),
                },
                Operation::Heartbeat(beat) => return format!("heartbeat {}", beat.sequence),
                Operation::Leave(_) => return "leave".to_owned(),
            };
            let tenure_store::Subject::Lease(name) = operation.subject() else { panic!("{operation:?}") };
            format!("{kind} {name}")
        });
        self.0.lock().unwrap().push(names.collect());
        pending().await
    }

    async fn inspect(&self, _name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        pending().await
    }

    async fn list(&self, _after: Option<LeaseName>, _most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        pending().await
    }

    async fn evict(&self, _name: LeaseName, _how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        pending().await
    }

    fn hints(&self) -> Option<Hints> {
        None
    }

    async fn watch(&self, _name: LeaseName) -> Result<(), StoreError> {
        pending().await
    }

    async fn unwatch(&self, _name: LeaseName) {
        pending().await
    }

    async fn timers(&self, _after: Option<TimerName>, _most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        pending().await
    }

    async fn report(&self, _report: RunReport) -> Result<(), StoreError> {
        pending().await
    }

    async fn jobs(&self, _after: Option<JobName>, _most: usize) -> Result<Vec<JobRecord>, StoreError> {
        pending().await
    }

    async fn runs(&self, _job: JobName) -> Result<Vec<RunRecord>, StoreError> {
        pending().await
    }

    async fn forget_job(&self, _job: JobName) -> Result<bool, StoreError> {
        pending().await
    }

    async fn members(&self, _after: Option<Identity>, _most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        pending().await
    }

    async fn mark(&self, _mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        pending().await
    }

    async fn close(&self) {}
}

const TIMEOUT: Duration = Duration::from_secs(2);

struct Bench {
    carrier: Carrier,
    batches: Batches,
    node: Node<SplitMix>,
}

impl Bench {
    fn new() -> Self {
        let batches = Batches::default();
        let identity = Identity::new("test", Incarnation::new(1)).unwrap();
        let node = Node::new(identity, SplitMix::new(1));
        Self { carrier: Carrier::new(AnyStore::new(Silent(Arc::clone(&batches)))), batches, node }
    }

    /// Real keys and ids, which only a node makes.
    fn ids(&mut self, name: &LeaseName) -> (CommandId, LeaseKey) {
        let timing = LeaseConfig::default().resolve(&StoreClock::default()).unwrap();
        let lease = self.node.acquire(Instant::ZERO, name.clone(), LeaseOptions::new(timing)).unwrap();
        match self.node.poll() {
            Output::Command(Command::Acquire { id, .. }) => (id, lease),
            other => panic!("{other:?}"),
        }
    }

    fn order(&mut self, kind: &str, name: &str) -> LeaseKey {
        let name = LeaseName::new(name).unwrap();
        let (id, lease) = self.ids(&name);
        self.order_as(kind, name, id, lease);
        lease
    }

    /// A renewal of a claim, or its end, for this key or a new one.
    fn order_tick(&mut self, kind: &str, tick: u64, lease: Option<LeaseKey>) -> LeaseKey {
        let (id, new) = self.ids(&LeaseName::new(format!("{kind} {tick}")).unwrap());
        let lease = lease.unwrap_or(new);
        let (owner, token) = (self.node.owner(Acquisition(1)), Token::new(1));
        let act = match kind {
            "renew" => TimerAct::Renew { tick, owner, token, ttl: Duration::from_secs(15) },
            _ => TimerAct::Finish { tick, owner, token: Some(token), end: ClaimEnd::Finished },
        };
        let name = TimerName::new("t").unwrap();
        let subject = Subject::Tick(name.clone(), tick);
        let operation = TimerRequest { name, act, timeout: TIMEOUT }.into();
        self.carrier.order(Instant::ZERO, Order { id, by: By::Lease(lease), subject, operation });
        lease
    }

    fn order_as(&mut self, kind: &str, name: LeaseName, id: CommandId, lease: LeaseKey) {
        let (owner, ttl, timeout) = (self.node.owner(Acquisition(1)), Duration::from_secs(15), TIMEOUT);
        let (token, floor, metadata) = (Token::new(1), Token::ZERO, Metadata::new());
        let subject = Subject::Lease(name.clone());
        let operation = match kind {
            "acquire" => {
                Operation::Acquire(Acquire { name, owner, ttl, floor, wait: true, metadata, timeout })
            }
            "renew" => Operation::Renew(Renew { name, owner, token, ttl, timeout }),
            _ => Operation::Release(Release { name, owner, token: Some(token), timeout }),
        };
        self.carrier.order(Instant::ZERO, Order { id, by: By::Lease(lease), subject, operation });
    }

    /// Everything that came back.
    fn deliveries(&mut self, now: Instant) -> Vec<(String, Failure)> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        while let Poll::Ready(delivery) = self.carrier.poll(now, &mut cx) {
            if let Delivery::Outcome { order, outcome } = delivery {
                let name = order.subject.lease().unwrap_or("a tick").to_owned();
                all.push((name, outcome.unwrap_err().failure()));
            }
        }
        all
    }
}

#[test]
fn releases_and_acquisitions_travel_before_renewals_and_together_with_them() {
    let mut bench = Bench::new();
    for (kind, name) in [("renew", "a"), ("acquire", "b"), ("renew", "c"), ("release", "d")] {
        bench.order(kind, name);
    }
    assert!(bench.carrier.launch(Instant::ZERO));
    assert_eq!(bench.deliveries(Instant::ZERO), []);
    assert_eq!(*bench.batches.lock().unwrap(), [["acquire b", "release d", "renew a", "renew c"]]);
    assert!(!bench.carrier.launch(Instant::ZERO));
}

#[test]
fn a_renewal_that_was_not_sent_does_not_follow_the_release_of_its_lease() {
    let mut bench = Bench::new();
    let name = LeaseName::new("a").unwrap();
    let lease = bench.order("renew", "a");
    let (id, _) = bench.ids(&LeaseName::new("other").unwrap());
    bench.order_as("release", name, id, lease);
    bench.carrier.launch(Instant::ZERO);
    assert_eq!(bench.deliveries(Instant::ZERO), [("a".to_owned(), Failure::NotExecuted)]);
    assert_eq!(*bench.batches.lock().unwrap(), [["release a"]]);
}

#[test]
fn ends_of_claims_travel_before_renewals_and_leave_none_of_the_same_claim_behind() {
    let mut bench = Bench::new();
    let first = bench.order_tick("renew", 1, None);
    bench.order_tick("renew", 2, None);
    bench.order("acquire", "a");
    bench.order_tick("finish", 1, Some(first));
    bench.carrier.launch(Instant::ZERO);
    assert_eq!(bench.deliveries(Instant::ZERO), [("a tick".to_owned(), Failure::NotExecuted)]);
    assert_eq!(*bench.batches.lock().unwrap(), [["acquire a", "finish tick 1", "renew tick 2"]]);
}

#[test]
fn many_acquisitions_do_not_keep_renewals_waiting() {
    let mut bench = Bench::new();
    for n in 0..20 {
        bench.order("acquire", &n.to_string());
    }
    for n in 0..3 {
        bench.order("renew", &format!("held {n}"));
    }
    bench.carrier.launch(Instant::ZERO);
    bench.deliveries(Instant::ZERO);
    let batches = bench.batches.lock().unwrap();
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 3]);
    assert_eq!(batches[0][7..], ["renew held 0", "renew held 1", "renew held 2"]);
}

#[test]
fn beyond_so_many_batches_operations_wait_and_are_answered_when_their_time_is_over() {
    let mut bench = Bench::new();
    for n in 0..MAX_BATCHES * 10 + 5 {
        bench.order("acquire", &n.to_string());
    }
    bench.carrier.launch(Instant::ZERO);
    assert_eq!(bench.deliveries(Instant::ZERO), []);
    assert_eq!(bench.batches.lock().unwrap().len(), MAX_BATCHES);

    // The store never answers: the requests are given up, what waited is certainly not executed.
    let late = Instant::ZERO + TIMEOUT * 2 + BACKSTOP;
    let given_up = bench.deliveries(late);
    assert_eq!(given_up.len(), MAX_BATCHES * 10);
    assert!(given_up.iter().all(|(_, failure)| *failure == Failure::Unknown));
    bench.carrier.launch(late);
    let unsent = bench.deliveries(late);
    assert_eq!(unsent.len(), 5);
    assert!(unsent.iter().all(|(_, failure)| *failure == Failure::NotExecuted));
    assert_eq!(bench.carrier.len(), 0);
    assert_eq!(bench.carrier.deadline(), None);
}
