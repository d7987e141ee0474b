//! Fleets that share timers and periodic jobs: what a user of them runs into, each told by a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::{
    AnySchedule, Command, DueTick, Event, Every, Exit, Failure, Identity, Incarnation, Instant, LeaseConfig,
    LeaseKey, LeaseName, LeaseOptions, Missed, Node, Notice, Output, Overlap, PeriodicKey, PeriodicOptions,
    Reply, SplitMix, StoreClock, TickMiss, TimerName, TimerOptions, Timestamp,
};
use tenure_store::{Answer, StoreTime};
use tenure_verify::store::{ModelStore, Waiter, timer_act};

#[path = "timers/claims.rs"]
mod claims;
#[path = "timers/policies.rs"]
mod policies;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// The middle of 2023.
const NOON: i64 = 1_688_212_800_000_000_000;
const TTL: u64 = 15 * SECOND;

fn every(seconds: u64) -> TimerOptions {
    let schedule: AnySchedule = Every::new(Duration::from_secs(seconds)).expect("a fine period").into();
    TimerOptions::new(schedule)
}

fn job(seconds: u64) -> PeriodicOptions {
    let timing = LeaseConfig::new(Duration::from_nanos(TTL)).resolve(&StoreClock::default());
    PeriodicOptions::new(every(seconds), LeaseOptions::new(timing.expect("the defaults fit")))
}

fn timer_name(text: &str) -> TimerName {
    TimerName::new(text).expect("a fine name")
}

/// One run of a tick.
#[derive(Clone, Debug)]
struct Run {
    member: usize,
    job: TimerName,
    due: DueTick,
    from: u64,
    /// When it ended, and how.
    end: Option<(u64, Exit)>,
}

/// One process. Its instants are true time, shifted and stretched.
struct Member {
    node: Node<SplitMix>,
    waiter: Waiter,
    skew: u64,
    /// Its clock: true time times this over a million.
    rate: u64,
    latency: u64,
    /// How long a run takes.
    length: u64,
    /// It can't do anything before this time.
    asleep_until: u64,
    /// What comes to it, and when; the number keeps the order.
    inbox: BTreeMap<(u64, usize), Event>,
    /// The runs that go on, and their place among all.
    working: BTreeMap<LeaseKey, usize>,
    skipped: Vec<(u64, TickMiss)>,
    missed: Vec<(u64, u64, TickMiss)>,
}

struct Fleet {
    now: u64,
    store: ModelStore,
    /// How far the store's wall clock has stepped.
    stepped: i64,
    /// What reaches the store now is lost.
    stalled: bool,
    members: BTreeMap<usize, Member>,
    runs: Vec<Run>,
    sent: usize,
}

impl Fleet {
    fn new() -> Self {
        Self {
            now: 0,
            store: ModelStore::default(),
            stepped: 0,
            stalled: false,
            members: BTreeMap::new(),
            runs: Vec::new(),
            sent: 0,
        }
    }

    /// A process that starts now.
    fn join(&mut self, skew: u64, rate: u64) -> usize {
        let number = self.sent;
        self.sent += 1;
        let identity = Identity::new(format!("host-{number}"), Incarnation::new(number as u128 + 1));
        let identity = identity.expect("a fine name");
        let node = Node::new(identity.clone(), SplitMix::new(number as u64 + 7));
        let member = Member {
            node,
            waiter: (number, identity),
            skew,
            rate,
            latency: MS,
            length: MS,
            asleep_until: 0,
            inbox: BTreeMap::new(),
            working: BTreeMap::new(),
            skipped: Vec::new(),
            missed: Vec::new(),
        };
        self.members.insert(number, member);
        number
    }

    /// A process that starts now, and has this job.
    fn with_job(&mut self, text: &str, options: PeriodicOptions) -> usize {
        let member = self.join(0, 1_000_000);
        self.start(member, text, options);
        member
    }

    fn start(&mut self, member: usize, text: &str, options: PeriodicOptions) -> PeriodicKey {
        let now = self.now;
        let member = self.member(member);
        let now = member.local(now);
        member.node.start_periodic(now, timer_name(text), options).expect("not shutting down")
    }

    fn member(&mut self, number: usize) -> &mut Member {
        self.members.get_mut(&number).expect("it lives")
    }

    /// It is gone, without a word.
    fn kill(&mut self, number: usize) {
        self.members.remove(&number);
    }

    fn wall(&self, at: u64) -> Timestamp {
        Timestamp::from_nanos(NOON + self.stepped + i64::try_from(at).expect("this century"))
    }

    /// Carries out what every process says, until none says more.
    fn settle(&mut self) {
        let numbers: Vec<_> = self.members.keys().copied().collect();
        for number in numbers {
            loop {
                let member = self.members.get_mut(&number).expect("it lives");
                if member.asleep_until > self.now {
                    break;
                }
                match member.node.poll() {
                    Output::Wait(_) => break,
                    Output::Notice(Notice::TickSkipped { tick, why, .. }) => member.skipped.push((tick, why)),
                    Output::Notice(Notice::TicksMissed { last, count, why, .. }) => {
                        member.missed.push((last, count, why));
                    }
                    Output::Notice(_) => {}
                    Output::Command(command) => self.carry_out(number, &command),
                }
            }
        }
    }

    fn carry_out(&mut self, number: usize, command: &Command) {
        let (now, stalled) = (self.now, self.stalled);
        let member = self.members.get_mut(&number).expect("it lives");
        match command {
            Command::StartWorkload { worker, lease, .. } => {
                let (job, due) = member.node.run(*worker).expect("all work here is of jobs");
                let job = member.node.periodic_name(job).expect("it lives").clone();
                member.working.insert(*lease, self.runs.len());
                self.runs.push(Run { member: number, job, due, from: now, end: None });
                let ends = now + member.length;
                let exit = Event::WorkloadExited { lease: *lease, exit: Exit::Completed };
                self.deliver(number, ends, exit);
            }
            Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, .. } => {
                let exit = Event::WorkloadExited { lease: *lease, exit: Exit::Stopped };
                self.deliver(number, now, exit);
            }
            _ => {
                let executed = now + member.latency;
                let arrives = executed + member.latency;
                let act = timer_act(&member.node, command);
                let name = match command {
                    Command::Watch { name, .. } | Command::Unwatch { name } => Some(name.clone()),
                    _ => command_lease(command).and_then(|lease| member.node.name(lease).cloned()),
                };
                let from = member.waiter.clone();
                if stalled {
                    return;
                }
                let time = StoreTime { wall: self.wall(executed), now: Instant::from_nanos(executed) };
                let Some(id) = command.id() else {
                    if let Some(name) = name {
                        self.store.execute(time.now, &from, &name, command);
                    }
                    return;
                };
                let event = match (act, name) {
                    (Some((name, act)), _) => {
                        Answer::Timer(self.store.execute_timer(time, &name, &act)).event(id)
                    }
                    (None, Some(name)) => {
                        let (reply, woken) = self.store.execute(time.now, &from, &name, command);
                        for woken in woken {
                            let hint = Event::Hint { name: woken.name, wake: woken.wake };
                            if self.members.contains_key(&woken.waiter.0) {
                                self.deliver(woken.waiter.0, arrives, hint);
                            }
                        }
                        Event::Reply { id, reply: reply.unwrap_or(Reply::Failed(Failure::Refused)) }
                    }
                    (None, None) => Event::Reply { id, reply: Reply::Failed(Failure::Refused) },
                };
                self.deliver(number, arrives, event);
            }
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
            assert!(standing < 200, "time stands still");
            self.now = next;
            let (now, runs) = (self.now, &mut self.runs);
            for member in self.members.values_mut().filter(|member| member.asleep_until <= now) {
                let local = member.local(now);
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
    }

    fn run_for(&mut self, time: u64) {
        self.run_to(self.now + time);
    }

    fn next(&mut self) -> Option<u64> {
        let now = self.now;
        let next = |member: &mut Member| {
            let due = match member.node.poll() {
                Output::Wait(at) => at.map(|at| member.truly(at)),
                // It was asleep, and has still to say it.
                output => panic!("{output:?} was not polled"),
            };
            let comes = member.inbox.keys().next().map(|(at, _)| *at);
            Some(due.into_iter().chain(comes).min()?.max(now))
        };
        let awake = self.members.values_mut().filter(|member| member.asleep_until <= now);
        let next = awake.filter_map(next).min();
        let wakes = self.members.values().map(|member| member.asleep_until).filter(|at| *at > now).min();
        next.into_iter().chain(wakes).min()
    }

    /// The numbers of a job's ticks that were run, in the order of their starts.
    fn ran(&self, text: &str) -> Vec<u64> {
        let name = timer_name(text);
        self.runs.iter().filter(|run| run.job == name).map(|run| run.due.tick.n).collect()
    }

    /// Each tick was run once, none early, each soon, and none is left out.
    fn assert_each_once(&self, text: &str, first: u64, at_most: u64) {
        let ran = self.ran(text);
        let wanted: Vec<_> = (first..first + ran.len() as u64).collect();
        assert_eq!(ran, wanted);
        for run in &self.runs {
            let late = self.wall(run.from).as_nanos() - run.due.tick.at.as_nanos();
            assert!((0..=at_most as i64).contains(&late), "{late} ns late: {run:?}");
        }
    }

    /// No two runs of the job at once.
    fn assert_no_overlap(&self, text: &str) {
        let name = timer_name(text);
        let mut last_end = 0;
        for run in self.runs.iter().filter(|run| run.job == name) {
            assert!(run.from >= last_end, "{run:?} begins before {last_end}");
            last_end = run.end.map_or(u64::MAX, |(at, _)| at);
        }
    }
}

impl Member {
    fn local(&self, at: u64) -> Instant {
        let stretched = u128::from(at) * u128::from(self.rate) / 1_000_000;
        Instant::from_nanos(self.skew + u64::try_from(stretched).expect("this century"))
    }

    fn truly(&self, at: Instant) -> u64 {
        let stretched = u128::from(at.as_nanos().saturating_sub(self.skew)) * 1_000_000;
        u64::try_from(stretched.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }
}

fn command_lease(command: &Command) -> Option<LeaseKey> {
    match command {
        Command::Acquire { lease, .. } | Command::Renew { lease, .. } | Command::Release { lease, .. } => {
            Some(*lease)
        }
        _ => None,
    }
}
