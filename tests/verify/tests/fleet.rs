//! Fleets that share workloads out: what a user of them runs into, each told by a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::{
    AnyAssigner, Balanced, Command, CoordinatorOptions, Event, Exit, Failure, Identity, Incarnation, Instant,
    LeaseConfig, LeaseKey, LeaseName, LeaseOptions, MemberOptions, Node, Notice, Output, Rebalance,
    Rendezvous, Reply, RestartPolicy, SplitMix, Stop, StoreClock, Timestamp, WorkerOptions,
};
use tenure_store::{Answer, DrainMark, StoreTime};
use tenure_verify::store::{ModelStore, Waiter, member_act};

#[path = "fleet/coming_and_going.rs"]
mod coming_and_going;
#[path = "fleet/draining.rs"]
mod draining;
#[path = "fleet/moving.rs"]
mod moving;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
/// The middle of 2023.
const NOON: i64 = 1_688_212_800_000_000_000;

/// How long it takes until something is seen by others: an answer is on its way for a millisecond, and so is a hint.
const SOON: u64 = 500 * MS;

fn workload(number: usize) -> LeaseName {
    LeaseName::new(format!("work-{number:02}")).expect("a fine name")
}

/// With leases of 15 s, a drain timeout of 30 s, a hold-down of 5 s, and short rests.
fn options(assigner: impl Into<AnyAssigner>) -> CoordinatorOptions {
    let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default());
    let mut lease = LeaseOptions::new(timing.expect("the defaults fit"));
    lease.grace = Duration::from_secs(30);
    let mut worker = WorkerOptions::new(lease);
    let rests = (Duration::from_millis(100), Duration::from_secs(1));
    worker.restart = RestartPolicy::default().delays(rests.0, rests.1).expect("they fit");
    CoordinatorOptions::new(assigner, worker)
}

/// One run of a workload.
#[derive(Clone, Debug)]
struct Run {
    member: usize,
    workload: LeaseName,
    from: u64,
    /// When it ended, and how.
    end: Option<(u64, Exit)>,
}

/// One process.
struct Member {
    node: Node<SplitMix>,
    waiter: Waiter,
    /// How long its work takes to end once it is asked to.
    winds_down: u64,
    /// Its work fails when it is asked to end.
    fails: bool,
    /// Its heartbeats don't get through.
    silent: bool,
    /// What comes to it, and when; the number keeps the order.
    inbox: BTreeMap<(u64, usize), Event>,
    /// The runs that go on, and their place among all.
    working: BTreeMap<LeaseKey, usize>,
    /// What was told that is not about a lease, and when.
    told: Vec<(u64, Notice)>,
}

struct Fleet {
    now: u64,
    store: ModelStore,
    /// What reaches the store now is lost.
    stalled: bool,
    members: BTreeMap<usize, Member>,
    runs: Vec<Run>,
    sent: usize,
    born: usize,
}

impl Fleet {
    fn new() -> Self {
        Self {
            now: 0,
            store: ModelStore::default(),
            stalled: false,
            members: BTreeMap::new(),
            runs: Vec::new(),
            sent: 0,
            born: 0,
        }
    }

    /// A process that starts now, and shares out as many workloads.
    fn join(&mut self, workloads: usize, options: CoordinatorOptions) -> usize {
        let name = format!("host-{}", self.born);
        self.join_as(&name, MemberOptions::default(), workloads, options)
    }

    fn join_as(
        &mut self,
        name: &str,
        member: MemberOptions,
        workloads: usize,
        options: CoordinatorOptions,
    ) -> usize {
        let number = self.born;
        self.born += 1;
        let identity = Identity::new(name, Incarnation::new(number as u128 + 1)).expect("a fine name");
        let mut node = Node::new(identity.clone(), SplitMix::new(number as u64 + 7));
        let now = Instant::from_nanos(self.now);
        node.join(now, member).expect("it fits");
        node.start_coordinator(now, (0..workloads).map(workload), options).expect("it has joined");
        let member = Member {
            node,
            waiter: (number, identity),
            winds_down: 10 * MS,
            fails: false,
            silent: false,
            inbox: BTreeMap::new(),
            working: BTreeMap::new(),
            told: Vec::new(),
        };
        self.members.insert(number, member);
        number
    }

    fn member(&mut self, number: usize) -> &mut Member {
        self.members.get_mut(&number).expect("it lives")
    }

    /// It is gone, without a word, and its work with it.
    fn kill(&mut self, number: usize) {
        let member = self.members.remove(&number).expect("it lives");
        for run in member.working.into_values() {
            self.runs[run].end = Some((self.now, Exit::Stopped));
        }
    }

    fn shutdown(&mut self, number: usize) {
        let now = Instant::from_nanos(self.now);
        self.member(number).node.shutdown(now);
    }

    /// An operator's wish.
    fn mark(&mut self, name: &str, drain: bool) {
        let time = self.time(self.now);
        let mark = DrainMark { instance: name.into(), incarnation: None, drain };
        if self.store.members.mark(&mark, time).1 {
            self.hint();
        }
    }

    /// The names of those that the store lists.
    fn listed(&self) -> Vec<String> {
        let listed = self.store.members.list(None, usize::MAX, self.time(self.now));
        listed.into_iter().map(|entry| entry.member.identity.instance().to_owned()).collect()
    }

    fn time(&self, at: u64) -> StoreTime {
        let wall = Timestamp::from_nanos(NOON + i64::try_from(at).expect("this century"));
        StoreTime { wall, now: Instant::from_nanos(at) }
    }

    fn hint(&mut self) {
        let numbers: Vec<_> = self.members.keys().copied().collect();
        for number in numbers {
            self.deliver(number, self.now + MS, Event::MembersHint);
        }
    }

    /// Carries out what every process says, until none says more.
    fn settle(&mut self) {
        let numbers: Vec<_> = self.members.keys().copied().collect();
        for number in numbers {
            loop {
                let now = self.now;
                let member = self.member(number);
                match member.node.poll() {
                    Output::Wait(_) => break,
                    Output::Notice(notice) => member.told.push((now, notice)),
                    Output::Command(command) => self.carry_out(number, &command),
                }
            }
        }
    }

    fn carry_out(&mut self, number: usize, command: &Command) {
        let now = self.now;
        let member = self.members.get_mut(&number).expect("it lives");
        match command {
            Command::StartWorkload { worker, lease, .. } => {
                let workload = member.node.worker_name(*worker).expect("it lives").clone();
                member.working.insert(*lease, self.runs.len());
                self.runs.push(Run { member: number, workload, from: now, end: None });
            }
            Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, how: Stop::Ask, .. } => {
                let exit = if member.fails { Exit::Failed } else { Exit::Completed };
                let at = now + member.winds_down;
                self.deliver(number, at, Event::WorkloadExited { lease: *lease, exit });
            }
            Command::StopWorkload { lease, how: Stop::Hard, .. } => {
                let exit = Event::WorkloadExited { lease: *lease, exit: Exit::Stopped };
                self.deliver(number, now, exit);
            }
            _ if self.stalled => {}
            Command::Heartbeat { id, .. } | Command::Leave { id, .. } => {
                if member.silent {
                    return;
                }
                let act = member_act(member.node.identity(), command).expect("it is one");
                let time = self.time(now + MS);
                let (outcome, changed) = self.store.execute_member(time, &act);
                let refused = Event::Reply { id: *id, reply: Reply::Failed(Failure::Refused) };
                let event = outcome.map_or(refused, |answer: Answer| answer.event(*id));
                self.deliver(number, now + 2 * MS, event);
                if changed {
                    self.hint();
                }
            }
            _ => self.carry_out_lease(number, command),
        }
    }

    fn carry_out_lease(&mut self, number: usize, command: &Command) {
        let now = self.now;
        let member = self.member(number);
        let name = match command {
            Command::Watch { name, .. } | Command::Unwatch { name } => name.clone(),
            Command::Acquire { lease, .. }
            | Command::Renew { lease, .. }
            | Command::Release { lease, .. } => member.node.name(*lease).expect("it has not ended").clone(),
            other => panic!("{other} is of no coordinator"),
        };
        let from = member.waiter.clone();
        let time = Instant::from_nanos(now + MS);
        let (reply, woken) = self.store.execute(time, &from, &name, command);
        for woken in woken {
            let hint = Event::Hint { name: woken.name, wake: woken.wake };
            if self.members.contains_key(&woken.waiter.0) {
                self.deliver(woken.waiter.0, now + 2 * MS, hint);
            }
        }
        if let (Some(id), Some(reply)) = (command.id(), reply) {
            self.deliver(number, now + 2 * MS, Event::Reply { id, reply });
        }
    }

    fn deliver(&mut self, number: usize, at: u64, event: Event) {
        self.sent += 1;
        let place = self.sent;
        self.member(number).inbox.insert((at, place), event);
    }

    fn run_to(&mut self, until: u64) {
        self.settle();
        let mut standing = 0;
        while let Some(next) = self.next().filter(|next| *next <= until) {
            standing = if next == self.now { standing + 1 } else { 0 };
            assert!(standing < 2_000, "time stands still");
            self.now = next;
            let (now, local, runs) = (self.now, Instant::from_nanos(self.now), &mut self.runs);
            for member in self.members.values_mut() {
                while let Some(first) = member.inbox.first_entry()
                    && first.key().0 <= now
                {
                    let event = first.remove();
                    if let Event::WorkloadExited { lease, exit } = &event {
                        let Some(run) = member.working.remove(lease) else { continue };
                        runs[run].end = Some((now, *exit));
                    }
                    member.node.handle(local, event).expect("it fits");
                }
                member.node.handle(local, Event::Timeout).expect("never misuse");
            }
            self.settle();
        }
        self.now = until;
        self.assert_no_overlap();
    }

    fn run_for(&mut self, time: u64) {
        self.run_to(self.now + time);
    }

    fn next(&mut self) -> Option<u64> {
        let now = self.now;
        let next = |member: &mut Member| {
            let due = match member.node.poll() {
                Output::Wait(at) => at.map(Instant::as_nanos),
                output => panic!("{output:?} was not polled"),
            };
            let comes = member.inbox.keys().next().map(|(at, _)| *at);
            Some(due.into_iter().chain(comes).min()?.max(now))
        };
        self.members.values_mut().filter_map(next).min()
    }

    /// Who works on what now.
    fn owners(&self) -> BTreeMap<LeaseName, usize> {
        let going_on = self.runs.iter().filter(|run| run.end.is_none());
        going_on.map(|run| (run.workload.clone(), run.member)).collect()
    }

    /// How many workloads each of these works on.
    fn shares(&self, members: &[usize]) -> Vec<usize> {
        let owners = self.owners();
        members.iter().map(|member| owners.values().filter(|owner| *owner == member).count()).collect()
    }

    /// How often work began somewhere else than where it was before, since this time.
    fn moves_since(&self, time: u64) -> usize {
        let mut before: BTreeMap<&LeaseName, usize> = BTreeMap::new();
        let mut moves = 0;
        for run in &self.runs {
            let owner = before.insert(&run.workload, run.member);
            moves += usize::from(run.from >= time && owner != Some(run.member));
        }
        moves
    }

    /// Never two at work on one workload.
    fn assert_no_overlap(&self) {
        let mut last_end: BTreeMap<&LeaseName, u64> = BTreeMap::new();
        for run in &self.runs {
            let end = run.end.map_or(u64::MAX, |(at, _)| at);
            let before = last_end.insert(&run.workload, end).unwrap_or(0);
            assert!(run.from >= before, "{run:?} begins before {before}");
        }
    }

    /// The longest time that a workload of this many was without an owner between two times.
    fn longest_gap(&self, workloads: usize, from: u64, to: u64) -> u64 {
        let gap = |number: usize| {
            let name = workload(number);
            let (mut covered, mut longest) = (from, 0);
            for run in self.runs.iter().filter(|run| run.workload == name && run.from <= to) {
                longest = longest.max(run.from.saturating_sub(covered));
                covered = covered.max(run.end.map_or(to, |(at, _)| at));
            }
            longest.max(to.saturating_sub(covered))
        };
        (0..workloads).map(gap).max().unwrap_or(0)
    }
}

impl Member {
    fn heard(&self, wanted: impl Fn(&Notice) -> bool) -> Option<u64> {
        self.told.iter().find(|(_, notice)| wanted(notice)).map(|(at, _)| *at)
    }
}
