//! A random walk through everything that can happen to a node, with its books checked at every step.

use alloc::collections::BTreeMap;

use super::*;
use crate::jitter::Jitter;
use crate::lease::Phase;

mod fleet;
mod timers;

struct Walk {
    node: Node<SplitMix>,
    dice: SplitMix,
    now: Instant,
    keys: Vec<LeaseKey>,
    workers: Vec<WorkerKey>,
    /// Leases under which a workload was started, and has not ended.
    working: BTreeMap<LeaseKey, (WorkerKey, Token)>,
    /// Commands that want a reply; some are answered twice.
    open: Vec<Command>,
    token: u64,
    pace: timers::Pace,
    fleet: fleet::Fleet,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            node: node(),
            dice: SplitMix::new(seed),
            now: ms(0),
            keys: Vec::new(),
            workers: Vec::new(),
            working: BTreeMap::new(),
            open: Vec::new(),
            token: 0,
            pace: timers::Pace::default(),
            fleet: fleet::Fleet::default(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.dice.below(bound as u64) as usize
    }

    fn some_name(&mut self) -> LeaseName {
        name(["a", "b", "c"][self.below(3)])
    }

    fn step(&mut self) {
        let index = self.below(self.keys.len().max(1));
        let key = self.keys.get(index).copied();
        match (self.below(25), key) {
            (18, _) => self.start_something_timed(),
            (19, _) if self.below(5) == 0 => self.end_something_timed(),
            (20, _) if self.below(20) == 0 => self.step_the_stores_clock(),
            (22 | 23, _) => self.do_something_in_the_fleet(),
            (0, _) if self.node.len() < 12 => {
                let wait = [
                    WaitLimit::Forever,
                    WaitLimit::Forever,
                    WaitLimit::No,
                    WaitLimit::AtMost(Duration::from_secs(self.below(20) as u64)),
                ][self.below(4)];
                let max_hold = (self.below(3) == 0).then(|| Duration::from_secs(20));
                let grace = Duration::from_secs(self.below(2) as u64 * 5);
                let options = LeaseOptions { wait, max_hold, grace, ..options() };
                let name = self.some_name();
                self.keys.push(self.node.acquire(self.now, name, options).expect("not shutting down"));
            }
            (16, _) if self.workers.len() < 3 => {
                let when = [Restart::Always, Restart::OnFailure, Restart::Never][self.below(3)];
                let mut options = WorkerOptions::new(options());
                options.restart = RestartPolicy::new(when);
                options.lease.max_hold = (self.below(3) == 0).then(|| Duration::from_secs(20));
                let name = self.some_name();
                let worker = self.node.start_worker(self.now, name, options).expect("not shutting down");
                self.workers.push(worker);
            }
            (17, _) if !self.workers.is_empty() && self.below(4) == 0 => {
                let index = self.below(self.workers.len());
                let worker = self.workers[index];
                if self.below(2) == 0 {
                    self.node.drain_worker(self.now, worker).expect("known");
                } else {
                    self.node.stop_worker(self.now, worker).expect("known");
                }
            }
            // The work of a worker ends when it does, see below.
            (1, Some(key)) if self.node.worker(key).is_some() => {}
            (1, Some(key)) => self.node.release(self.now, key).expect("known"),
            (2, Some(key)) => self.node.drain(self.now, key).expect("known"),
            (3, Some(lease)) => {
                let exit = [Exit::Completed, Exit::Failed, Exit::NotStarted][self.below(3)];
                self.exits(lease, exit);
                self.working.remove(&lease);
                self.node.handle(self.now, Event::WorkloadExited { lease, exit }).expect("known");
            }
            (4, _) => {
                let name = self.some_name();
                let wake = match self.below(3) {
                    0 => Wake::Free { chosen: true },
                    1 => Wake::Free { chosen: false },
                    _ => Wake::Held { token: Token::new(self.token), ttl: Duration::from_secs(3) },
                };
                self.node.handle(self.now, Event::Hint { name, wake }).expect("a hint is never misuse");
            }
            (5, _) if self.below(8) == 0 => {
                self.node.handle(self.now, Event::Resync).expect("never misuse");
            }
            (6 | 7, _) => {
                self.now = self.now + Duration::from_millis(self.dice.below(6_000));
                self.node.handle(self.now, Event::Timeout).expect("never misuse");
            }
            _ if !self.open.is_empty() => {
                let index = self.below(self.open.len());
                let command = self.open[index].clone();
                if self.below(8) > 0 {
                    self.open.swap_remove(index);
                }
                let event = self.answer(&command);
                self.node.handle(self.now, event).expect("it fits");
            }
            _ => {}
        }
        self.drain();
        self.check();
    }

    fn answer(&mut self, command: &Command) -> Event {
        let id = command.id().expect("it wants a reply");
        if let Command::ReadTimer { .. } | Command::ChangeTimer { .. } = command
            && self.below(6) > 0
        {
            return self.read_timer(id, command);
        }
        if let Command::Heartbeat { draining, digests, known, .. } = command
            && self.below(6) > 0
        {
            return Event::Present { id, presence: self.presence(*draining, digests, *known) };
        }
        Event::Reply { id, reply: self.reply_to(command) }
    }

    fn reply_to(&mut self, command: &Command) -> Reply {
        match self.below(12) {
            0 => return Reply::Failed(Failure::NotExecuted),
            1 => return Reply::Failed(Failure::Unknown),
            2 if self.below(4) == 0 => return Reply::Failed(Failure::Refused),
            _ => {}
        }
        let yes = self.below(3) > 0;
        match command {
            Command::ReadTimer { .. } | Command::ChangeTimer { .. } | Command::Heartbeat { .. } => {
                Reply::Failed(Failure::Unknown)
            }
            Command::Leave { .. } => Reply::Left,
            Command::ClaimTick { .. } if !yes => self.no_claim(),
            Command::FinishTick { .. } if yes => Reply::Released { others_chosen: false },
            Command::Acquire { floor, .. } | Command::ClaimTick { floor, .. } if yes => {
                self.token = self.token.max(floor.get()) + 1;
                Reply::Granted { token: Token::new(self.token) }
            }
            Command::Acquire { .. } => Reply::Held {
                token: yes.then_some(Token::new(self.token)),
                remaining: Some(Duration::from_millis(self.dice.below(9_000))),
            },
            Command::Renew { .. } if yes => Reply::Renewed,
            Command::Release { .. } if yes => Reply::Released { others_chosen: self.below(2) == 0 },
            Command::Watch { .. } => Reply::Watching,
            _ => Reply::NotYours,
        }
    }

    fn drain(&mut self) {
        for output in drain(&mut self.node) {
            self.pace_of(&output);
            self.fleet_of(&output);
            match output {
                Output::Command(Command::StartWorkload { worker, lease, token, .. }) => {
                    assert_eq!(self.node.valid(self.now, lease), Some(token), "started without a lease");
                    assert!(!self.works(worker), "{worker} is started beside itself");
                    self.working.insert(lease, (worker, token));
                }
                Output::Command(
                    Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, .. },
                ) => {
                    let of_worker = self.node.worker(lease).is_some();
                    assert!(
                        !of_worker || self.working.contains_key(&lease),
                        "what was never started is stopped"
                    );
                }
                Output::Command(Command::Release { lease, token, .. })
                    if self
                        .working
                        .get(&lease)
                        .is_some_and(|(_, under)| token.is_none_or(|it| it == *under)) =>
                {
                    panic!("released while the work runs")
                }
                Output::Command(Command::FinishTick { lease, token: Some(token), .. })
                    if self.node.worker(lease).is_some_and(|worker| self.works(worker))
                        && self.granted(lease) == Some(token) =>
                {
                    panic!("finished while the work runs")
                }
                Output::Notice(Notice::Campaigning { worker, lease }) => {
                    assert!(!self.works(worker), "{worker} campaigns while it works");
                    self.keys.push(lease);
                }
                Output::Notice(Notice::WorkerEnded { worker }) => {
                    assert!(!self.works(worker), "{worker} has ended, and works");
                    self.workers.retain(|other| *other != worker);
                }
                Output::Command(command) if command.id().is_some() => self.open.push(command),
                Output::Notice(Notice::Ended { lease }) => self.keys.retain(|key| *key != lease),
                _ => {}
            }
        }
        if self.open.len() > 30 {
            self.open.remove(0);
        }
    }

    fn works(&self, worker: WorkerKey) -> bool {
        self.working.values().any(|(other, _)| *other == worker)
    }

    /// What holds whenever everything was polled.
    fn check(&self) {
        let node = &self.node;
        assert!(node.ready.is_empty() && node.output.is_empty() && node.resync_from.is_none());
        let mut deadlines = alloc::collections::BTreeSet::new();
        for (key, entry) in &node.leases {
            assert_eq!(entry.deadline, entry.lease.deadline());
            assert!(entry.deadline.is_none_or(|at| at > self.now), "{key} is overdue");
            deadlines.extend(entry.deadline.map(|at| (at, Machine::Lease(*key))));
            let phase = entry.lease.phase();
            let may_sleep = phase == Phase::Idle || phase == Phase::Holding && node.deadlines(*key).is_none();
            assert!(entry.deadline.is_some() || may_sleep, "{key} hangs for ever");
            let Some(slot) = entry.slot().map(|slot| &node.slots[&slot]) else { continue };
            let queued = slot.candidates.contains(key);
            // A candidate that ends its part never comes back to it.
            assert_eq!(queued, queued && phase != Phase::Done, "{key}");
            if slot.active != Some(*key) && queued {
                assert_eq!(phase, Phase::Idle, "{key} talks to the store out of turn");
            }
        }
        for (key, entry) in &node.workers {
            let deadline = entry.check(self.now);
            deadlines.extend(deadline.map(|at| (at, Machine::Worker(*key))));
        }
        for (key, entry) in &node.timers {
            let deadline = entry.check(self.now);
            deadlines.extend(deadline.map(|at| (at, Machine::Timer(*key))));
        }
        deadlines.extend(self.check_fleet());
        assert_eq!(deadlines, node.deadlines);
        self.check_jobs();
        assert_eq!(node.names.len(), node.slots.len());
        for (id, slot) in &node.slots {
            assert_eq!(node.names[&slot.name], *id);
            assert_eq!(slot.leases, node.leases.values().filter(|entry| entry.slot() == Some(*id)).count());
            assert!(slot.leases > 0 && slot.impatient.is_subset(&slot.candidates));
            assert_eq!(slot.active.is_some(), !slot.candidates.is_empty(), "nobody takes the turn");
            let phase = slot.active.map(|key| node.leases[&key].lease.phase());
            assert_ne!(phase, Some(Phase::Idle), "whoever has its turn takes it");
            if matches!(phase, Some(Phase::Waiting(_) | Phase::Holding)) {
                assert!(slot.impatient.is_empty(), "a try is answered at once");
            }
            let watching = matches!(slot.watch, Watch::Asked { .. } | Watch::On);
            assert_eq!(watching, node.watched.contains(id));
            let wanted = match phase {
                None => false,
                Some(Phase::Holding) => slot.candidates.len() > 1,
                Some(_) => true,
            };
            assert!(
                wanted || !(watching || slot.registered),
                "the store goes on telling us of {}",
                slot.name
            );
        }
    }
}

#[test]
fn the_books_agree_whatever_happens_and_nothing_is_left_in_the_end() {
    let mut seen = fleet::Marks::default();
    for seed in 0..300 {
        let mut walk = Walk::new(seed);
        for _ in 0..600 {
            walk.step();
        }
        walk.node.shutdown(walk.now);
        walk.drain();
        walk.check();
        for lease in core::mem::take(&mut walk.working).into_keys() {
            let exited = Event::WorkloadExited { lease, exit: Exit::Completed };
            walk.node.handle(walk.now, exited).expect("known");
        }
        for key in walk.keys.clone() {
            walk.node.release(walk.now, key).expect("known");
        }
        walk.drain();
        while let Output::Wait(Some(at)) = walk.node.poll() {
            walk.now = at;
            walk.node.handle(at, Event::Timeout).expect("never misuse");
            walk.drain();
            walk.check();
        }
        walk.check_ends();
        walk.check_fleet_ends();
        seen.add(&walk.fleet.marks);
        let node = &walk.node;
        assert!(node.is_empty() && node.slots.is_empty() && node.names.is_empty());
        assert!(node.watched.is_empty() && node.deadlines.is_empty());
    }
    seen.check();
}
