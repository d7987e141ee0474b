//! Any sequence of events into a node, honest or hostile: replies of any kind to any command, forged ids, hints that
//! lie, clocks that jump in both directions, applications that do everything at the wrong time.
//!
//! Whatever comes in, the node must not panic or run hot, must refuse misuse without a change, must keep to what it
//! has said before, and must come to an end once everything is given up. No store is modelled, so nothing is said here
//! about what others hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::{
    Acquisition, Command, CommandId, Event, Exit, Failure, Identity, Incarnation, Instant, LeaseConfig,
    LeaseKey, LeaseName, LeaseOptions, LeaseTiming, Misuse, Node, Notice, Output, PeriodicKey,
    PeriodicOptions, Reply, RestartPolicy, SplitMix, StoreClock, TimerKey, TimerName, TimerOptions,
    Timestamp, Token, WaitLimit, WorkerKey, WorkerOptions,
};
use tenure_store::{Answer, StoreTime, TimerAct};

use crate::store::{MemberAct, ModelStore, member_act, timer_act};

mod forged;
mod sharing;
mod step;

use sharing::Sharing;
pub use step::{Shape, ShareOptions, Step, TickOptions, steps};

/// More outputs than any step can lead to.
const OUTPUTS: usize = 10_000;
/// More deadlines than there are in what is left when all is given up.
const LAST_DEADLINES: usize = 10_000;

/// Where the store's wall clock begins.
const WALL: i64 = 1_700_000_000_000_000_000;

const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// How often something happened, so that a test can tell that it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reached {
    /// Grants that counted.
    pub acquired: u64,
    /// Grants that were not above the floor.
    pub regressed: u64,
    /// Acknowledged renewals.
    pub renewed: u64,
    /// Leases that were lost.
    pub lost: u64,
    /// Leases that were given back.
    pub released: u64,
    /// Workloads that were started.
    pub started: u64,
    /// Workloads that were to be started again.
    pub restarting: u64,
    /// Workloads that did not end after their hard stop.
    pub stuck: u64,
    /// Ticks that were told.
    pub ticked: u64,
    /// Ticks that were claimed and run.
    pub tick_runs: u64,
    /// Ticks that a job skipped.
    pub ticks_skipped: u64,
    /// Timers that were based anew.
    pub rebased: u64,
    /// Schedules that could not be read.
    pub unreadable: u64,
    /// Views of the members that were taken over.
    pub views: u64,
    /// Workloads that came to belong to the node.
    pub assigned: u64,
    /// Workloads that came to belong elsewhere.
    pub dropped: u64,
    /// Drains of the whole instance.
    pub drained: u64,
    /// Drains that were taken back.
    pub resumed: u64,
    /// Times that it left in order.
    pub left: u64,
    /// Misuse that was refused.
    pub misuse: u64,
}

/// Takes all steps, and then gives everything up.
///
/// # Panics
/// At the first thing that must not be.
#[must_use]
pub fn run(steps: &[Step]) -> Reached {
    let mut run = Run::new();
    for step in steps {
        run.step(step);
    }
    run.end();
    run.reached
}

/// A node under attack, and what it has said.
struct Run {
    node: Node<SplitMix>,
    clock: Instant,
    /// The latest that it was told.
    latest: Instant,
    commands: Vec<Command>,
    ids: BTreeSet<CommandId>,
    leases: Vec<LeaseKey>,
    workers: Vec<WorkerKey>,
    timers: Vec<TimerKey>,
    periodics: Vec<PeriodicKey>,
    /// The timers of a store that means well, what was asked of it, and by how much its wall clock was set.
    store: ModelStore,
    acts: BTreeMap<CommandId, (TimerName, TimerAct)>,
    member_acts: BTreeMap<CommandId, MemberAct>,
    sharing: Sharing,
    wall: Timestamp,
    /// The last tick of each timer.
    ticks: BTreeMap<TimerKey, u64>,
    /// The ticks that were run, of jobs that begin each once.
    runs: BTreeSet<(PeriodicKey, u64)>,
    once: BTreeSet<PeriodicKey>,
    /// The floors of claims.
    floors: BTreeMap<(LeaseKey, Acquisition), Token>,
    /// When it last had nothing to say.
    polled: Instant,
    /// When it wants to be woken; only right after a poll.
    wait: Option<Instant>,
    /// The highest token that was acquired under each name.
    highest: BTreeMap<LeaseName, Token>,
    held: BTreeMap<LeaseKey, (Acquisition, Token)>,
    /// Those whose fence the clock had reached when something came in, whatever that was.
    fenced: BTreeSet<LeaseKey>,
    lost: BTreeSet<LeaseKey>,
    /// The leases under which a workload was ever started.
    started: BTreeSet<LeaseKey>,
    /// What runs, under which lease, as far as the node was told.
    working: BTreeMap<WorkerKey, LeaseKey>,
    reached: Reached,
}

impl Run {
    fn new() -> Self {
        let identity = Identity::new("hostile", Incarnation::new(1)).expect("a short name");
        Self {
            node: Node::new(identity, SplitMix::new(1)),
            clock: Instant::from_nanos(10_000_000_000),
            latest: Instant::ZERO,
            commands: Vec::new(),
            ids: BTreeSet::new(),
            leases: Vec::new(),
            workers: Vec::new(),
            timers: Vec::new(),
            periodics: Vec::new(),
            store: ModelStore::default(),
            acts: BTreeMap::new(),
            member_acts: BTreeMap::new(),
            sharing: Sharing::default(),
            wall: Timestamp::from_nanos(WALL),
            ticks: BTreeMap::new(),
            runs: BTreeSet::new(),
            once: BTreeSet::new(),
            floors: BTreeMap::new(),
            polled: Instant::ZERO,
            wait: None,
            highest: BTreeMap::new(),
            held: BTreeMap::new(),
            fenced: BTreeSet::new(),
            lost: BTreeSet::new(),
            started: BTreeSet::new(),
            working: BTreeMap::new(),
            reached: Reached::default(),
        }
    }

    fn step(&mut self, step: &Step) {
        let before = self.node.clone();
        if self.take(step).is_err() {
            self.reached.misuse += 1;
            assert_eq!(self.node, before, "{step:?} is misuse, which must change nothing");
        }
        if matches!(step, Step::Timeout | Step::Due) {
            self.poll();
            let settled = self.node.clone();
            self.node.handle(self.clock, Event::Timeout).expect("a timeout is never wrong");
            self.poll();
            assert_eq!(self.node, settled, "a repeated timeout must change nothing");
        }
    }

    /// Does one thing; an error is the node's refusal.
    fn take(&mut self, step: &Step) -> Result<(), Misuse> {
        match *step {
            Step::Acquire { name, wait, max_hold } => {
                let mut options = options();
                options.wait = wait;
                options.max_hold = max_hold.then_some(Duration::from_secs(2));
                let lease = self.tell(|node, now| node.acquire(now, lease_name(name), options))?;
                self.leases.push(lease);
            }
            Step::Release(index) => {
                if let Some(lease) = pick(&self.leases, index) {
                    // It says that the work has ended.
                    self.working.retain(|_, working| *working != lease);
                    self.tell(|node, now| node.release(now, lease))?;
                }
            }
            Step::Drain(index) => {
                if let Some(lease) = pick(&self.leases, index) {
                    self.tell(|node, now| node.drain(now, lease))?;
                }
            }
            Step::StartWorker { name, when } => {
                let mut options = WorkerOptions::new(options());
                options.restart =
                    RestartPolicy::new(when).delays(FIRST_DELAY, LONGEST_DELAY).expect("in order");
                let worker = self.tell(|node, now| node.start_worker(now, lease_name(name), options))?;
                self.workers.push(worker);
            }
            Step::DrainWorker(index) => {
                if let Some(worker) = pick(&self.workers, index) {
                    self.tell(|node, now| node.drain_worker(now, worker))?;
                }
            }
            Step::StopWorker(index) => {
                if let Some(worker) = pick(&self.workers, index) {
                    self.tell(|node, now| node.stop_worker(now, worker))?;
                }
            }
            Step::StartTimer { name, tick } => {
                let options = tick_options(tick);
                let timer = self.tell(|node, now| node.start_timer(now, timer_name(name), options))?;
                self.timers.push(timer);
            }
            Step::StopTimer(index) => {
                if let Some(timer) = pick(&self.timers, index) {
                    self.tell(|node, now| node.stop_timer(now, timer))?;
                }
            }
            Step::StartPeriodic { name, tick, attempts, overlap, under_lease } => {
                let mut options = PeriodicOptions::new(tick_options(tick), options());
                options.lease = under_lease.then(|| lease_name(name));
                (options.attempts, options.overlap) = (attempts, overlap);
                let periodic = self.tell(|node, now| node.start_periodic(now, timer_name(name), options))?;
                self.periodics.push(periodic);
                if attempts == 1 {
                    self.once.insert(periodic);
                }
            }
            Step::DrainPeriodic(index) => {
                if let Some(periodic) = pick(&self.periodics, index) {
                    self.tell(|node, now| node.drain_periodic(now, periodic))?;
                }
            }
            Step::StopPeriodic(index) => {
                if let Some(periodic) = pick(&self.periodics, index) {
                    self.tell(|node, now| node.stop_periodic(now, periodic))?;
                }
            }
            Step::TimerRead { command, view } => {
                if let Some(id) = self.command(command) {
                    self.read(id, view)?;
                }
            }
            Step::ForgedRead { machine, view } => self.read(forged_id(machine), view)?,
            Step::Join { .. }
            | Step::StartCoordinator { .. }
            | Step::AddWorkload { .. }
            | Step::RemoveWorkload { .. }
            | Step::DrainCoordinator(_)
            | Step::StopCoordinator(_)
            | Step::DrainAll
            | Step::Resume
            | Step::Mark { .. }
            | Step::Present { .. }
            | Step::ForgedPresent { .. }
            | Step::MembersHint
            | Step::ForgetMembers => self.take_sharing(step)?,
            Step::SetWall { back: true, by } => self.wall = self.wall.saturating_sub(by),
            Step::SetWall { back: false, by } => self.wall = self.wall + by,
            Step::Exited { index, exit } => {
                if let Some(lease) = pick(&self.leases, index) {
                    self.working.retain(|_, working| *working != lease);
                    self.event(Event::WorkloadExited { lease, exit })?;
                }
            }
            Step::Timeout => self.event(Event::Timeout)?,
            Step::Due => {
                self.poll();
                let due = self.wait.unwrap_or(self.clock);
                self.wall = self.wall + due.saturating_since(self.clock);
                self.clock = due;
                self.event(Event::Timeout)?;
            }
            Step::Reply { command, reply } => {
                if let Some(id) = self.command(command) {
                    self.event(Event::Reply { id, reply })?;
                }
            }
            Step::Yes(command) => {
                if let Some(answer) = self.usual_answer(command) {
                    self.event(answer)?;
                }
            }
            Step::Forged { machine, reply } => self.event(Event::Reply { id: forged_id(machine), reply })?,
            Step::Hint { name, wake } => self.event(Event::Hint { name: lease_name(name), wake })?,
            Step::Resync => self.event(Event::Resync)?,
            Step::Shutdown => self.tell(|node, now| {
                node.shutdown(now);
                Ok(())
            })?,
            Step::Forward(by) => {
                self.clock = self.clock + by;
                self.wall = self.wall + by;
            }
            Step::Backward(by) => self.clock = self.clock.saturating_sub(by),
            Step::Poll => self.poll(),
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), Misuse> {
        self.tell(|node, now| node.handle(now, event))
    }

    /// Calls the node, by the clock.
    fn tell<T>(
        &mut self,
        call: impl FnOnce(&mut Node<SplitMix>, Instant) -> Result<T, Misuse>,
    ) -> Result<T, Misuse> {
        let now = self.latest.max(self.clock);
        let ends =
            |lease: &LeaseKey| self.node.deadlines(*lease).is_some_and(|deadlines| deadlines.fence_at <= now);
        let fenced: Vec<_> = self.held.keys().copied().filter(ends).collect();
        let result = call(&mut self.node, self.clock)?;
        self.latest = now;
        self.fenced.extend(fenced);
        Ok(result)
    }

    /// The id of a command: mostly one of the latest, sometimes any.
    fn command(&self, index: u8) -> Option<CommandId> {
        let count = self.commands.len().max(1);
        let index = usize::from(index);
        let index = if index < 200 { count.saturating_sub(1 + index % 4) } else { index % count };
        self.commands.get(index)?.id()
    }

    /// A record of a timer, forged.
    fn read(&mut self, id: CommandId, shape: Shape) -> Result<(), Misuse> {
        let near = self.ticks.values().max().copied().unwrap_or(1);
        let (view, at) = forged::view(shape, near, self.wall);
        self.event(Event::TimerRead { id, view, at })
    }

    /// What a store that agrees would say to a late command.
    fn usual_answer(&mut self, index: u8) -> Option<Event> {
        let id = self.command(index)?;
        let command = self.commands.iter().find(|command| command.id() == Some(id))?;
        if let Some((name, act)) = self.acts.get(&id) {
            let time = StoreTime { wall: self.wall, now: self.clock };
            let answer = self.store.execute_timer(time, name, act);
            return Some(Answer::Timer(answer).event(id));
        }
        if let Some(act) = self.member_acts.get(&id) {
            let time = StoreTime { wall: self.wall, now: self.clock };
            let (outcome, _) = self.store.execute_member(time, act);
            let refused = Event::Reply { id, reply: Reply::Failed(Failure::Refused) };
            return Some(outcome.map_or(refused, |answer| answer.event(id)));
        }
        let reply = match command {
            Command::Acquire { floor, .. } => {
                Reply::Granted { token: Token::new(floor.get().saturating_add(1)) }
            }
            Command::Renew { .. } => Reply::Renewed,
            Command::Release { .. } => Reply::Released { others_chosen: index % 2 == 1 },
            Command::Watch { .. } => Reply::Watching,
            Command::Unwatch { .. }
            | Command::StartWorkload { .. }
            | Command::DrainWorkload { .. }
            | Command::StopWorkload { .. } => return None,
            Command::ReadTimer { .. }
            | Command::ChangeTimer { .. }
            | Command::ClaimTick { .. }
            | Command::FinishTick { .. }
            | Command::Heartbeat { .. }
            | Command::Leave { .. } => unreachable!("these are carried out"),
        };
        Some(Event::Reply { id, reply })
    }

    /// Polls until there is nothing more, which must be soon.
    fn poll(&mut self) {
        for _ in 0..OUTPUTS {
            match self.node.poll() {
                Output::Command(command) => {
                    self.check_command(&command);
                    if let Some(id) = command.id() {
                        assert!(self.ids.insert(id), "{id} was given out before");
                        self.acts.extend(timer_act(&self.node, &command).map(|act| (id, act)));
                        let act = member_act(self.node.identity(), &command);
                        self.member_acts.extend(act.map(|act| (id, act)));
                        self.commands.push(command);
                    }
                }
                Output::Notice(notice) => self.check_notice(&notice),
                Output::Wait(wait) => {
                    self.polled = self.latest;
                    self.wait = wait;
                    return self.check_waiting();
                }
            }
        }
        panic!("poll never comes to an end");
    }

    fn check_command(&mut self, command: &Command) {
        self.check_sharing_command(command);
        match *command {
            // S9. Another grant to the same acquisition, by a store that has lost the first one, goes back at any time.
            Command::Release { lease, n, token, .. } | Command::FinishTick { lease, n, token, .. } => {
                let held = self.held.get(&lease);
                if held.is_some_and(|held| held.0 == n && token.is_none_or(|it| it == held.1)) {
                    assert_eq!(self.node.valid(self.latest, lease), None, "released while valid");
                    let works = self.working.values().any(|working| *working == lease);
                    assert!(!works, "released while its work runs");
                }
            }
            Command::StartWorkload { worker, lease, token, deadlines, .. } => {
                // S3.
                assert!(self.latest < deadlines.fence_at, "started past the fence");
                assert_eq!(self.node.valid(self.latest, lease), Some(token), "started without a lease");
                assert!(self.started.insert(lease), "started twice under {lease}");
                assert_eq!(self.working.insert(worker, lease), None, "{worker} runs twice");
                self.reached.started += 1;
                if let Some((periodic, due)) = self.node.run(worker) {
                    self.reached.tick_runs += 1;
                    if self.once.contains(&periodic) {
                        // T2.
                        assert!(self.runs.insert((periodic, due.tick.n)), "{periodic} runs {due:?} again");
                    }
                }
            }
            Command::ClaimTick { lease, n, floor, .. } => {
                // Any of its attempts may be the one that counts.
                self.floors.entry((lease, n)).or_insert(floor);
            }
            Command::Acquire { .. }
            | Command::Renew { .. }
            | Command::ReadTimer { .. }
            | Command::ChangeTimer { .. }
            | Command::Heartbeat { .. }
            | Command::Leave { .. }
            | Command::Watch { .. }
            | Command::Unwatch { .. }
            | Command::DrainWorkload { .. }
            | Command::StopWorkload { .. } => {}
        }
    }

    fn check_notice(&mut self, notice: &Notice) {
        self.check_sharing_notice(notice);
        match notice {
            // S6.
            Notice::Acquired { lease, n, token, .. } => {
                if let Some(name) = self.node.name(*lease).cloned() {
                    let before = self.highest.insert(name, *token);
                    assert!(before.is_none_or(|before| before < *token), "{token:?} after {before:?}");
                } else {
                    // Several claims of a job may be asked for at once, and be granted in any order.
                    assert!(self.node.claim(*lease).is_some(), "it has not ended");
                    assert!(self.floors[&(*lease, *n)] < *token, "{token:?} is not above its floor");
                }
                assert_eq!(self.held.insert(*lease, (*n, *token)), None, "acquired twice under {lease}");
                self.reached.acquired += 1;
            }
            Notice::Failed { why: tenure_core::AcquireFailure::StoreRegressed { token, floor }, .. } => {
                assert!(token <= floor);
                self.reached.regressed += 1;
            }
            Notice::Renewed { .. } => self.reached.renewed += 1,
            Notice::Lost { lease, .. } => {
                assert!(self.lost.insert(*lease), "lost twice");
                self.reached.lost += 1;
            }
            Notice::Released { .. } => self.reached.released += 1,
            Notice::Campaigning { worker, lease } => {
                assert!(!self.working.contains_key(worker), "{worker} campaigns while its work runs");
                self.leases.push(*lease);
            }
            // T2, T4.
            Notice::Ticked { timer, due } => {
                let before = self.ticks.insert(*timer, due.tick.n);
                assert!(before.is_none_or(|before| before < due.tick.n), "{due:?} after {before:?}");
                self.reached.ticked += 1;
            }
            Notice::TickSkipped { .. } => self.reached.ticks_skipped += 1,
            Notice::Rebased { .. } => self.reached.rebased += 1,
            Notice::ScheduleUnreadable { .. } => self.reached.unreadable += 1,
            Notice::Restarting { at, .. } => {
                // It was decided after the last time that there was nothing to poll.
                assert!(*at >= self.polled + FIRST_DELAY / 2, "a worker that does not rest");
                assert!(*at <= self.latest + LONGEST_DELAY, "a worker that rests too long");
                self.reached.restarting += 1;
            }
            Notice::Stuck { worker, lease } => {
                assert_eq!(self.working.get(worker), Some(lease), "nothing runs that could be stuck");
                self.reached.stuck += 1;
            }
            Notice::WorkerEnded { worker } => {
                assert!(!self.working.contains_key(worker), "{worker} ended while its work runs");
            }
            _ => {}
        }
    }

    /// What holds whenever the node waits.
    fn check_waiting(&self) {
        assert!(self.wait.is_none_or(|wait| wait > self.latest), "it waits for what is due");
        for key in self.held.keys() {
            let valid = self.node.valid(self.latest, *key);
            // S7.
            assert!(valid.is_none() || !self.lost.contains(key), "valid after it was lost");
            // S3.
            assert!(valid.is_none() || !self.fenced.contains(key), "valid after its fence");
            if valid.is_some() {
                let fence_at = self.node.deadlines(*key).expect("it is held").fence_at;
                assert!(
                    self.wait.is_some_and(|wait| wait <= fence_at),
                    "no wake-up before the fence is armed"
                );
            }
        }
    }

    /// Gives everything up, lets all work end and time pass: then nothing is left.
    fn end(&mut self) {
        self.clock = self.clock.max(self.latest);
        self.give_up().expect("nothing of it is misuse");
        for _ in 0..LAST_DEADLINES {
            let Some(wait) = self.wait else { break };
            self.clock = wait;
            self.event(Event::Timeout).expect("a timeout is never wrong");
            self.poll();
        }
        assert!(self.node.is_empty(), "{} machines never end", self.node.len());
    }

    fn give_up(&mut self) -> Result<(), Misuse> {
        self.take(&Step::Shutdown)?;
        self.poll();
        self.working.clear();
        for lease in self.leases.clone() {
            self.event(Event::WorkloadExited { lease, exit: Exit::Completed })?;
            self.tell(|node, now| node.release(now, lease))?;
        }
        self.poll();
        Ok(())
    }
}

fn pick<T: Copy>(of: &[T], index: u8) -> Option<T> {
    of.get(usize::from(index) % of.len().max(1)).copied()
}

/// An id that another node gave out.
fn forged_id(machine: u8) -> CommandId {
    let identity = Identity::new("other", Incarnation::new(2)).expect("a short name");
    let mut other = Node::new(identity, SplitMix::new(2));
    for _ in 0..=machine {
        other.acquire(Instant::ZERO, lease_name(0), options()).expect("it is not shutting down");
    }
    match other.poll() {
        Output::Command(Command::Acquire { id, .. }) => id,
        output => panic!("the first candidate asks at once: {output:?}"),
    }
}

fn lease_name(number: u8) -> LeaseName {
    LeaseName::new(format!("name-{number}")).expect("a short name")
}

fn timer_name(number: u8) -> TimerName {
    TimerName::new(format!("name-{number}")).expect("a short name")
}

fn tick_options(tick: TickOptions) -> TimerOptions {
    let mut options = TimerOptions::new(forged::schedule(tick.schedule));
    (options.missed, options.late_limit) = (tick.missed, tick.late_limit);
    options
}

fn options() -> LeaseOptions {
    let mut options = LeaseOptions::new(timing());
    options.wait = WaitLimit::Forever;
    options.grace = Duration::from_millis(300);
    options
}

fn timing() -> LeaseTiming {
    LeaseConfig::new(Duration::from_secs(1)).resolve(&StoreClock::default()).expect("the defaults fit")
}
