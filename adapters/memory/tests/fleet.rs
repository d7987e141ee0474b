//! Whole instances over one memory store, in a time that passes when the test says so: the core decides, the store
//! keeps, and what follows is what timers and claims promise.

mod virtual_time;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::executor::block_on;
use tenure_memory::MemoryStore;
use tenure_store::core::{
    Acquisition, Command, CommandId, Event, Every, Exit, Identity, Incarnation, Instant, LeaseConfig,
    LeaseKey, LeaseOptions, Node, Notice, Output, Overlap, Owner, PeriodicOptions, Reply, SplitMix,
    StoreClock, TimerName, TimerOptions,
};
use tenure_store::{Answer, Metadata, Release, Renew, SimpleStore, TickClaim, TimerAct, TimerRequest};

use virtual_time::Clock;

const PERIOD: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(1);

/// One process.
struct Instance {
    node: Node<SplitMix>,
    store: MemoryStore,
    /// When the work under each lease ends.
    running: BTreeMap<LeaseKey, Instant>,
}

/// What happened: which instance came to or ran which tick, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Happened {
    instance: usize,
    tick: u64,
    at: Instant,
}

struct Fleet {
    clock: Clock,
    store: MemoryStore,
    instances: Vec<Option<Instance>>,
    work: Duration,
    ticked: Vec<Happened>,
    ran: Vec<Happened>,
    rebased: usize,
}

impl Fleet {
    fn new(work: Duration) -> Self {
        let clock = Clock::default();
        let store = clock.store();
        Self { clock, store, instances: Vec::new(), work, ticked: Vec::new(), ran: Vec::new(), rebased: 0 }
    }

    fn join(&mut self, begin: impl FnOnce(&mut Node<SplitMix>, Instant)) {
        let number = self.instances.len() as u64;
        let identity = Identity::new("here", Incarnation::new(number.into())).unwrap();
        let mut node = Node::new(identity, SplitMix::new(number));
        begin(&mut node, self.clock.now());
        let instance = Instance { node, store: self.store.handle(), running: BTreeMap::new() };
        self.instances.push(Some(instance));
    }

    fn join_job(&mut self, options: &PeriodicOptions) {
        let options = options.clone();
        self.join(|node, now| {
            node.start_periodic(now, name(), options).unwrap();
        });
    }

    fn join_timer(&mut self, period: Duration) {
        self.join(|node, now| {
            let options = TimerOptions::new(Every::new(period).unwrap());
            node.start_timer(now, name(), options).unwrap();
        });
    }

    fn forget(&self) {
        let request = TimerRequest { name: name(), act: TimerAct::Forget, timeout: TIMEOUT };
        block_on(self.store.timer(request)).unwrap();
    }

    /// Lets time pass, and everything happen that comes due.
    fn pass(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        loop {
            let mut next = end;
            for number in 0..self.instances.len() {
                next = next.min(self.turn(number).unwrap_or(end));
            }
            let now = self.clock.now();
            if now >= end {
                return;
            }
            self.clock.pass(next.saturating_since(now));
        }
    }

    /// Everything that is due at one instance; returns when the next thing is.
    fn turn(&mut self, number: usize) -> Option<Instant> {
        let now = self.clock.now();
        let instance = self.instances[number].as_mut()?;
        let over: Vec<LeaseKey> =
            instance.running.iter().filter(|(_, end)| **end <= now).map(|(lease, _)| *lease).collect();
        for lease in over {
            instance.running.remove(&lease);
            let exit = Event::WorkloadExited { lease, exit: Exit::Completed };
            instance.node.handle(now, exit).unwrap();
        }
        instance.node.handle(now, Event::Timeout).unwrap();
        loop {
            match instance.node.poll() {
                Output::Wait(due) => {
                    return due.into_iter().chain(instance.running.values().copied()).min();
                }
                Output::Notice(Notice::Ticked { due, .. }) => {
                    self.ticked.push(Happened { instance: number, tick: due.tick.n, at: now });
                }
                Output::Notice(Notice::Rebased { .. }) => self.rebased += 1,
                Output::Notice(_) => {}
                Output::Command(Command::StartWorkload { worker, lease, .. }) => {
                    let (_, due) = instance.node.run(worker).unwrap();
                    self.ran.push(Happened { instance: number, tick: due.tick.n, at: now });
                    instance.running.insert(lease, now + self.work);
                }
                Output::Command(
                    Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, .. },
                ) => {
                    instance.running.remove(&lease);
                    let exit = Event::WorkloadExited { lease, exit: Exit::Stopped };
                    instance.node.handle(now, exit).unwrap();
                }
                Output::Command(command) => {
                    let id = command.id();
                    if let Some(event) = instance.execute(command) {
                        instance.node.handle(now, event).unwrap_or_else(|misuse| panic!("{id:?}: {misuse}"));
                    }
                }
            }
        }
    }

    /// Ends a process at once.
    fn kill(&mut self, number: usize) {
        self.instances[number] = None;
    }

    fn numbers(happened: &[Happened]) -> Vec<u64> {
        happened.iter().map(|happened| happened.tick).collect()
    }
}

impl Instance {
    /// Has the store carry out a command, and gives its answer.
    fn execute(&self, command: Command) -> Option<Event> {
        let owner = |n: Acquisition| -> Owner { self.node.owner(n) };
        let timer = |name: TimerName, act: TimerAct| {
            block_on(self.store.timer(TimerRequest { name, act, timeout: TIMEOUT })).map(Answer::Timer)
        };
        let claimed = |lease: LeaseKey| self.node.claim(lease).map(|(name, tick)| (name.clone(), tick));
        let id: CommandId = command.id()?;
        let answer = match command {
            Command::ReadTimer { timer: key, schedule, last, .. } => timer(
                self.node.timer_name(key)?.clone(),
                TimerAct::Read { schedule: schedule.text().into(), last },
            ),
            Command::ChangeTimer { timer: key, revision, change, .. } => {
                timer(self.node.timer_name(key)?.clone(), TimerAct::Change { revision, change })
            }
            Command::ClaimTick { lease, n, tick, ttl, floor, attempts, overlap, .. } => {
                let (owner, metadata) = (owner(n), Metadata::new());
                let claim = TickClaim { tick, owner, ttl, floor, attempts, overlap, metadata };
                timer(claimed(lease)?.0, TimerAct::Claim(claim))
            }
            Command::FinishTick { lease, n, tick, token, end, .. } => {
                timer(claimed(lease)?.0, TimerAct::Finish { tick, owner: owner(n), token, end })
            }
            Command::Renew { lease, n, token, ttl, timeout, .. } => match claimed(lease) {
                Some((name, tick)) => timer(name, TimerAct::Renew { tick, owner: owner(n), token, ttl }),
                None => {
                    let name = self.node.name(lease)?.clone();
                    let renew = Renew { name, owner: owner(n), token, ttl, timeout };
                    block_on(self.store.renew(renew)).map(Answer::Renew)
                }
            },
            Command::Release { lease, n, token, timeout, .. } => {
                let name = self.node.name(lease)?.clone();
                let release = Release { name, owner: owner(n), token, timeout };
                block_on(self.store.release(release)).map(Answer::Release)
            }
            Command::Watch { .. } => return Some(Event::Reply { id, reply: Reply::Watching }),
            Command::Acquire { .. }
            | Command::Heartbeat { .. }
            | Command::Leave { .. }
            | Command::Unwatch { .. }
            | Command::StartWorkload { .. }
            | Command::DrainWorkload { .. }
            | Command::StopWorkload { .. } => return None,
        };
        Some(match answer {
            Ok(answer) => answer.event(id),
            Err(error) => Event::Reply { id, reply: Reply::Failed(error.failure()) },
        })
    }
}

fn name() -> TimerName {
    TimerName::new("job").unwrap()
}

fn job() -> PeriodicOptions {
    let timing = LeaseConfig::new(Duration::from_secs(6)).resolve(&StoreClock::default()).unwrap();
    let every = Every::new(PERIOD).unwrap();
    PeriodicOptions::new(TimerOptions::new(every), LeaseOptions::new(timing))
}

#[test]
fn each_tick_runs_on_one_instance_in_order_and_never_early() {
    let mut fleet = Fleet::new(Duration::from_secs(3));
    let begun = fleet.clock.now();
    for _ in 0..3 {
        fleet.join_job(&job());
        fleet.pass(Duration::from_millis(700));
    }
    fleet.pass(PERIOD * 100);
    assert_eq!(Fleet::numbers(&fleet.ran), (1..=100).collect::<Vec<_>>());
    for ran in &fleet.ran {
        let due = begun + PERIOD * ran.tick as u32;
        let late = ran.at.saturating_since(due);
        assert!(ran.at >= due && late < Duration::from_millis(500), "{ran:?} is {late:?} late");
    }
}

#[test]
fn instances_that_are_all_down_for_a_while_go_on_with_the_latest_tick() {
    let mut fleet = Fleet::new(Duration::from_secs(1));
    fleet.join_job(&job());
    fleet.pass(PERIOD * 2 + PERIOD / 2);
    fleet.kill(0);
    fleet.pass(PERIOD * 5);
    fleet.join_job(&job());
    fleet.pass(PERIOD * 2);
    assert_eq!(Fleet::numbers(&fleet.ran), [1, 2, 7, 8, 9]);
}

#[test]
fn a_run_whose_process_dies_is_repeated_elsewhere_as_often_as_it_may() {
    for (attempts, expected) in [(1, vec![1, 2]), (2, vec![1, 1, 2])] {
        let mut fleet = Fleet::new(Duration::from_secs(1));
        let mut options = job();
        options.attempts = attempts;
        for _ in 0..2 {
            fleet.join_job(&options);
        }
        fleet.pass(PERIOD + Duration::from_millis(500));
        let first = fleet.ran[0];
        fleet.kill(first.instance);
        // Its claim runs out well before the next tick.
        fleet.pass(PERIOD);
        assert_eq!(Fleet::numbers(&fleet.ran), expected, "with {attempts} attempts");
        assert!(fleet.ran[1..].iter().all(|ran| ran.instance != first.instance));
    }
}

#[test]
fn a_tick_that_comes_during_a_run_is_skipped_or_waits_or_runs_beside_it() {
    for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Allow] {
        let mut fleet = Fleet::new(PERIOD * 3 / 2);
        let begun = fleet.clock.now();
        let mut options = job();
        options.overlap = overlap;
        for _ in 0..2 {
            fleet.join_job(&options);
        }
        fleet.pass(PERIOD * 5 + PERIOD * 3 / 4);
        let when = |ran: &Happened| (ran.tick, ran.at.saturating_since(begun).as_secs());
        let ran: Vec<_> = fleet.ran.iter().map(when).collect();
        match overlap {
            Overlap::Skip => assert_eq!(ran, [(1, 10), (3, 30), (5, 50)]),
            Overlap::Allow => assert_eq!(ran, [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]),
            // Which of those that waited comes next depends on who looks first, but it does at once.
            Overlap::Queue => {
                let starts: Vec<u64> = ran.iter().map(|(_, at)| *at).collect();
                assert_eq!(starts, [10, 25, 40, 55], "{ran:?}");
                assert!(ran.is_sorted_by(|one, next| one.0 < next.0), "{ran:?}");
            }
        }
    }
}

#[test]
fn every_instance_comes_to_every_tick_once_and_a_later_registration_changes_the_schedule_at_the_next() {
    let mut fleet = Fleet::new(Duration::ZERO);
    let begun = fleet.clock.now();
    fleet.join_timer(PERIOD);
    fleet.join_timer(PERIOD);
    fleet.pass(PERIOD * 3 + PERIOD / 2);
    fleet.join_timer(PERIOD * 3);
    fleet.pass(PERIOD * 16);
    // Tick 4 is the last of the old schedule, and the base of the new one. The others hear of it with their next look.
    let seen = |instance: usize| -> Vec<(u64, u64)> {
        let of = fleet.ticked.iter().filter(|ticked| ticked.instance == instance);
        of.map(|ticked| (ticked.tick, ticked.at.saturating_since(begun).as_secs())).collect()
    };
    assert_eq!(seen(2), [(4, 40), (5, 70), (6, 100), (7, 130), (8, 160), (9, 190)]);
    for instance in 0..2 {
        let all = seen(instance);
        assert_eq!(all[..4], [(1, 10), (2, 20), (3, 30), (4, 40)]);
        assert_eq!(all[4..], seen(2)[1..], "instance {instance}");
    }
}

#[test]
fn numbers_go_on_when_a_timer_was_forgotten_or_the_clock_was_set_back() {
    let mut fleet = Fleet::new(Duration::from_secs(1));
    for _ in 0..3 {
        fleet.join_job(&job());
    }
    fleet.pass(PERIOD * 5 + PERIOD / 2);
    assert_eq!(Fleet::numbers(&fleet.ran), [1, 2, 3, 4, 5]);
    fleet.forget();
    // Until they look again they have no timer; what they claim meanwhile is not to be had.
    fleet.pass(Duration::from_secs(700));
    let after = Fleet::numbers(&fleet.ran);
    assert!(after.len() > 6 && after.is_sorted_by(|a, b| a < b), "{after:?}");

    fleet.clock.set_wall(-3_600_000_000_000);
    fleet.pass(Duration::from_secs(1400));
    assert!(fleet.rebased > 0, "somebody has noticed");
    let later = Fleet::numbers(&fleet.ran);
    assert!(later.len() > after.len() + 50 && later.is_sorted_by(|a, b| a < b), "{later:?}");
}
