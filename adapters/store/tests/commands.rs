//! What a node says is carried to a store and back by what this crate has for that, in virtual time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use tenure_memory::MemoryStore;
use tenure_store::core::{
    ClaimEnd, Command, Event, Every, Exit, Identity, Incarnation, Instant, LeaseConfig, LeaseKey, LeaseName,
    LeaseOptions, LeaseTiming, MemberOptions, Node, Notice, Output, PeriodicOptions, SplitMix, StoreClock,
    TimerName, TimerOptions, Timestamp,
};
use tenure_store::{Metadata, Operation, Replies, SimpleStore, Store, TimerAct, TimerRequest};

struct Bench {
    node: Node<SplitMix>,
    store: MemoryStore,
    clock: Arc<AtomicU64>,
    metadata: Metadata,
    /// The kinds of operations that were carried.
    carried: BTreeSet<String>,
    /// How the runs were ended, and whether with their tokens.
    finished: Vec<(ClaimEnd, bool)>,
    notices: Vec<Notice>,
    /// The claim of the run that goes on.
    working: Option<LeaseKey>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(1_000_000_000));
        let (now, wall) = (clock.clone(), clock.clone());
        let store = MemoryStore::with_clocks(
            move || Instant::from_nanos(now.load(Ordering::Relaxed)),
            move || Timestamp::from_nanos(wall.load(Ordering::Relaxed).cast_signed()),
        );
        let mut bench = Self {
            node: Node::new(Identity::new("unused", Incarnation::new(0)).unwrap(), SplitMix::new(0)),
            store,
            clock,
            metadata: Metadata::new(),
            carried: BTreeSet::new(),
            finished: Vec::new(),
            notices: Vec::new(),
            working: None,
        };
        bench.restart("a");
        bench
    }

    /// Another process goes on with the same store.
    fn restart(&mut self, instance: &str) {
        let identity = Identity::new(instance, Incarnation::new(u128::from(instance.as_bytes()[0]))).unwrap();
        self.node = Node::new(identity, SplitMix::new(7));
        self.metadata.host = Some(instance.into());
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.load(Ordering::Relaxed))
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        self.node.handle(now, event).expect("what comes of an outcome fits its command");
    }

    /// Does what the node says for so long.
    fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        loop {
            match self.node.poll() {
                Output::Command(command) => self.carry(&command),
                Output::Notice(notice) => {
                    if let Notice::Renewed { lease, .. } = notice
                        && self.working == Some(lease)
                    {
                        self.work_ends();
                    }
                    self.notices.push(notice);
                }
                Output::Wait(Some(at)) if at <= end => {
                    self.clock.store(at.as_nanos(), Ordering::Relaxed);
                    self.handle(Event::Timeout);
                }
                Output::Wait(_) => return self.clock.store(end.as_nanos(), Ordering::Relaxed),
            }
        }
    }

    fn carry(&mut self, command: &Command) {
        let Some(operation) = Operation::of(command, &self.node, &self.metadata) else {
            return match command {
                // It works until its claim was renewed once.
                Command::StartWorkload { lease, .. } => self.working = Some(*lease),
                Command::DrainWorkload { .. } => self.work_ends(),
                other => panic!("{other} is an operation, or is not to be expected"),
            };
        };
        let (id, kind) = (command.id().expect("an operation is answered"), operation.kind());
        self.carried.insert(format!("{kind:?}"));
        if let Operation::Timer(TimerRequest { act: TimerAct::Finish { token, end, .. }, .. }) = &operation {
            self.finished.push((*end, token.is_some()));
        }
        let outcome = Arc::new(Mutex::new(None));
        let place = outcome.clone();
        let replies = Replies::new(1, move |_, outcome| *place.lock().unwrap() = Some(outcome));
        block_on(Store::execute(&self.store, vec![operation], replies));
        let outcome = outcome.lock().unwrap().take().expect("there always is an outcome");
        self.handle(kind.event(id, &outcome));
    }

    fn work_ends(&mut self) {
        if let Some(lease) = self.working.take() {
            self.handle(Event::WorkloadExited { lease, exit: Exit::Completed });
        }
    }
}

fn timing() -> LeaseTiming {
    LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default()).unwrap()
}

fn options() -> LeaseOptions {
    LeaseOptions::new(timing())
}

fn every(period: u64) -> TimerOptions {
    TimerOptions::new(Every::new(Duration::from_secs(period)).unwrap())
}

#[test]
fn every_command_to_the_store_has_its_operation_and_every_outcome_its_event() {
    let mut bench = Bench::new();
    let now = bench.now();
    let name = LeaseName::new("backup").unwrap();
    let mut named = options();
    named.text = Some("the nightly one".into());
    let lease = bench.node.acquire(now, name.clone(), named).unwrap();
    bench.node.join(now, MemberOptions::default()).unwrap();
    let job = PeriodicOptions::new(every(10), options());
    bench.node.start_periodic(now, TimerName::new("reports").unwrap(), job).unwrap();
    bench.node.start_timer(now, TimerName::new("pulse").unwrap(), every(10)).unwrap();
    bench.run(Duration::from_secs(60));

    let record = block_on(SimpleStore::inspect(&bench.store, name.clone())).unwrap().expect("it is held");
    assert_eq!(record.holder.owner, bench.node.owner(tenure_store::core::Acquisition(1)).to_string());
    assert_eq!(record.holder.metadata.text.as_deref(), Some("the nightly one"));
    assert_eq!(record.holder.metadata.host.as_deref(), Some("a"));
    let now = bench.now();
    assert_eq!(bench.node.valid(now, lease), record.holder.token);

    bench.node.release(now, lease).unwrap();
    bench.node.shutdown(now);
    bench.run(Duration::from_secs(5));
    assert!(bench.node.is_empty(), "{:?}", bench.notices);
    assert_eq!(block_on(SimpleStore::inspect(&bench.store, name)).unwrap(), None);
    assert_eq!(block_on(SimpleStore::members(&bench.store, None, 9)).unwrap(), []);

    assert!(bench.finished.len() >= 5, "{:?}", bench.finished);
    assert!(bench.finished.iter().all(|ended| *ended == (ClaimEnd::Finished, true)), "{:?}", bench.finished);

    // The next process wants another schedule.
    bench.restart("b");
    let now = bench.now();
    bench.node.start_timer(now, TimerName::new("pulse").unwrap(), every(20)).unwrap();
    bench.run(Duration::from_secs(60));

    let carried: Vec<_> = bench.carried.iter().map(String::as_str).collect();
    let all = [
        "Acquire",
        "ChangeTimer",
        "ClaimTick",
        "FinishTick",
        "Heartbeat",
        "Leave",
        "ReadTimer",
        "Release",
        "Renew",
        "RenewClaim",
    ];
    assert_eq!(carried, all);
}
