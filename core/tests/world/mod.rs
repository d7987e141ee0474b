//! A small world in virtual time: some nodes with drifting clocks, one store, a network that misbehaves.
//!
//! Everything random is drawn from a tape of choices, so that a failing run shrinks. Zero is always the
//! benign choice, and a tape that has run out reads as zeros.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::*;

pub const SECOND: u64 = 1_000_000_000;
pub const TTL: Duration = Duration::from_secs(1);
/// How much longer than usual a message takes at most; its duplicate as much again.
pub const LONG_DELAY: u64 = 3 * SECOND;

pub struct Tape {
    choices: Vec<u16>,
    at: usize,
}

impl Tape {
    pub fn new(choices: Vec<u16>) -> Self {
        Self { choices, at: 0 }
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let choice = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        u64::from(choice) * bound / 65_536
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }
}

/// A clock that starts anywhere and runs at a rate of its own.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: u64,
    /// Parts per million, signed.
    rate: i64,
}

impl Clock {
    fn at(self, true_time: u64) -> u64 {
        let drift = i128::from(true_time) * i128::from(self.rate) / 1_000_000;
        (i128::from(self.offset) + i128::from(true_time) + drift) as u64
    }

    /// The first true time at which the clock shows at least `local`.
    fn when(self, local: u64) -> u64 {
        let (mut low, mut high) = (0, local.saturating_sub(self.offset).saturating_mul(2).saturating_add(2));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(middle) >= local { high = middle } else { low = middle + 1 }
        }
        low
    }
}

#[derive(Clone, Debug)]
pub struct Record {
    pub owner: Owner,
    pub token: Token,
    pub expires: u64,
}

/// What a member stands for, or holds.
struct Candidacy {
    name: LeaseName,
    options: LeaseOptions,
    /// By when it must be decided.
    give_up_at: Option<Instant>,
    /// By when its work must have been stopped hard.
    stop_at: Option<Instant>,
}

pub struct Member {
    pub node: Node<SplitMix>,
    candidacies: BTreeMap<LeaseKey, Candidacy>,
    shut: bool,
    clock: Clock,
    pub paused: bool,
    inbox: Vec<Event>,
    /// Work that runs: by hold, its token and name.
    pub working: BTreeMap<LeaseKey, (LeaseName, Token)>,
    held: BTreeMap<LeaseKey, (LeaseName, Token)>,
    lost: BTreeSet<(LeaseName, Token)>,
    alarm: Option<u64>,
    pub acquired: u64,
    pub losses: u64,
}

enum Happening {
    Wake(usize),
    Arrive(usize, Incarnation, LeaseName, Command),
    Return(usize, Incarnation, CommandId, Reply),
    Resume(usize),
    Finish(usize, LeaseKey),
    Act(usize),
    Stand(usize, Incarnation, LeaseName),
    Hint(usize, Incarnation, Event),
    Expire,
}

/// What the leases protect: it refuses a token below the highest that it has seen.
#[derive(Default)]
struct Resource {
    /// Which grant of its lease a token belongs to, counted in the order of the store.
    grants: BTreeMap<(LeaseName, Token), u64>,
    /// The highest token that was used, and the grant of the last write that was accepted.
    highest: BTreeMap<LeaseName, (Token, u64)>,
}

impl Resource {
    /// S5: once a later holder has written, no earlier one's write is accepted.
    fn write(&mut self, name: &LeaseName, token: Token) -> bool {
        let grant = self.grants[&(name.clone(), token)];
        let (highest, last) = self.highest.entry(name.clone()).or_insert((token, grant));
        if token < *highest {
            return false;
        }
        assert!(grant >= *last, "grant {grant} wrote after grant {last}");
        (*highest, *last) = (token, grant);
        true
    }
}

/// Which faults there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: bool,
    pub duplication: bool,
    pub delay: bool,
    pub pause: bool,
    pub crash: bool,
    pub drift: bool,
    pub actions: bool,
    /// The store says that it failed, before or after it has done what was asked.
    pub trouble: bool,
    /// Several candidates for each name in each member, not all of them patient.
    pub crowd: bool,
    /// Some of the crowd hold for a limited time only.
    pub limits: bool,
    /// Hints that are wrong.
    pub lies: bool,
}

pub struct World {
    pub now: u64,
    tape: Tape,
    faults: Faults,
    pub members: Vec<Member>,
    names: Vec<LeaseName>,
    options: LeaseOptions,
    store_clock: Clock,
    pub records: BTreeMap<LeaseName, Record>,
    /// Who is registered as a waiter, and gets hints.
    waiters: BTreeMap<LeaseName, BTreeSet<(usize, Incarnation)>>,
    high_water: u64,
    granted: BTreeMap<LeaseName, Token>,
    resource: Resource,
    agenda: BTreeMap<(u64, u64), Happening>,
    serial: u64,
    incarnations: u128,
    pub grants: u64,
    pub refused_writes: u64,
    pub events: u64,
}

impl World {
    pub fn new(nodes: usize, names: usize, faults: Faults, options: LeaseOptions, choices: Vec<u16>) -> Self {
        let mut tape = Tape::new(choices);
        let mut clock = |ppm: i64| {
            let rate = if faults.drift { [0, ppm, -ppm, ppm / 2][tape.below(4) as usize] } else { 0 };
            Clock { offset: tape.below(1000) * SECOND, rate }
        };
        let store_clock = clock(10_000);
        let clocks: Vec<_> = (0..nodes).map(|_| clock(10_000)).collect();
        let mut world = Self {
            now: 0,
            tape,
            faults,
            members: Vec::new(),
            names: (0..names).map(|i| LeaseName::new(format!("lease-{i}")).unwrap()).collect(),
            options,
            store_clock,
            records: BTreeMap::new(),
            waiters: BTreeMap::new(),
            high_water: 0,
            granted: BTreeMap::new(),
            resource: Resource::default(),
            agenda: BTreeMap::new(),
            serial: 0,
            incarnations: 0,
            grants: 0,
            refused_writes: 0,
            events: 0,
        };
        for (index, clock) in clocks.into_iter().enumerate() {
            let member = world.born(clock);
            world.members.push(member);
            world.campaign(index);
        }
        world
    }

    fn born(&mut self, clock: Clock) -> Member {
        self.incarnations += 1;
        let identity = Identity::new("node", Incarnation::new(self.incarnations)).unwrap();
        Member {
            node: Node::new(identity, SplitMix::new(self.incarnations as u64)),
            clock,
            paused: false,
            inbox: Vec::new(),
            working: BTreeMap::new(),
            held: BTreeMap::new(),
            lost: BTreeSet::new(),
            alarm: None,
            acquired: 0,
            losses: 0,
            candidacies: BTreeMap::new(),
            shut: false,
        }
    }

    fn plan(&mut self, at: u64, what: Happening) {
        self.serial += 1;
        self.agenda.insert((at, self.serial), what);
    }

    fn local(&self, index: usize) -> Instant {
        Instant::from_nanos(self.members[index].clock.at(self.now))
    }

    fn campaign(&mut self, index: usize) {
        for name in self.names.clone() {
            let crowd = if self.faults.crowd { self.tape.below(3) } else { 0 };
            for _ in 0..=crowd {
                self.stand(index, name.clone());
            }
        }
        self.pump(index);
        if self.faults.actions {
            let at = self.now + self.tape.below(3 * SECOND);
            self.plan(at, Happening::Act(index));
        }
    }

    fn stand(&mut self, index: usize, name: LeaseName) {
        let now = self.local(index);
        let mut options = self.options.clone();
        if self.faults.crowd {
            options.wait = match self.tape.below(4) {
                1 => WaitLimit::No,
                2 => WaitLimit::AtMost(Duration::from_nanos(self.tape.below(2 * SECOND))),
                _ => WaitLimit::Forever,
            };
            if self.faults.limits && self.tape.one_in(3) {
                options.max_hold = Some(Duration::from_nanos(self.tape.below(2 * SECOND)));
            }
        }
        let give_up_at = match options.wait {
            WaitLimit::AtMost(limit) if !limit.is_zero() => Some(now + limit),
            _ => None,
        };
        let member = &mut self.members[index];
        let key = member.node.acquire(now, name.clone(), options.clone()).unwrap();
        member.candidacies.insert(key, Candidacy { name, options, give_up_at, stop_at: None });
    }

    /// Ends all faults.
    pub fn heal(&mut self) {
        self.faults = Faults { drift: self.faults.drift, ..Faults::default() };
        for index in 0..self.members.len() {
            if self.members[index].paused {
                self.resume(index);
            }
        }
    }

    /// Ends everything in an orderly way.
    pub fn shutdown(&mut self) {
        for index in 0..self.members.len() {
            let now = self.local(index);
            self.members[index].shut = true;
            self.members[index].node.shutdown(now);
            self.pump(index);
        }
    }

    /// Lets everything happen until `end`.
    pub fn run_until(&mut self, end: u64) {
        while let Some((&(at, serial), _)) = self.agenda.iter().next() {
            if at > end {
                break;
            }
            let what = self.agenda.remove(&(at, serial)).unwrap();
            self.now = self.now.max(at);
            self.events += 1;
            self.happen(what);
            self.check();
        }
        self.now = self.now.max(end);
        self.check();
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Expire => {}
            Happening::Wake(index) => {
                if self.members[index].alarm == Some(self.now) {
                    self.members[index].alarm = None;
                    self.input(index, Event::Timeout);
                }
            }
            Happening::Arrive(index, incarnation, name, command) => {
                self.execute(index, incarnation, name, &command);
            }
            Happening::Return(index, incarnation, id, reply) => {
                if self.incarnation(index) == incarnation {
                    self.input(index, Event::Reply { id, reply });
                }
            }
            Happening::Resume(index) => self.resume(index),
            Happening::Finish(index, lease) => {
                if self.members[index].working.contains_key(&lease) && !self.members[index].paused {
                    self.end_work(index, lease);
                }
            }
            Happening::Act(index) => self.act(index),
            Happening::Stand(index, incarnation, name) => {
                if self.members[index].paused {
                    return self.plan(self.now + SECOND / 10, Happening::Stand(index, incarnation, name));
                }
                if self.incarnation(index) == incarnation && !self.members[index].shut {
                    self.stand(index, name);
                    self.pump(index);
                }
            }
            Happening::Hint(index, incarnation, event) => {
                if self.incarnation(index) == incarnation {
                    self.input(index, event);
                }
            }
        }
    }

    fn act(&mut self, index: usize) {
        if !self.faults.actions {
            return;
        }
        let now = self.local(index);
        if !self.members[index].paused {
            self.meddle(index);
        }
        let keys: Vec<_> = self.members[index].held.keys().copied().collect();
        if !self.members[index].paused
            && let Some(&key) = keys.first()
        {
            match self.tape.below(4) {
                1 => self.end_work(index, key),
                2 => {
                    self.members[index].node.drain(now, key).unwrap();
                    self.pump(index);
                }
                3 if self.faults.crash => {
                    let clock = self.members[index].clock;
                    self.members[index] = self.born(clock);
                    self.campaign(index);
                    return;
                }
                _ => {}
            }
        }
        let at = self.now + SECOND / 10 + self.tape.below(3 * SECOND);
        self.plan(at, Happening::Act(index));
    }

    /// Gives up, drains, or misleads.
    fn meddle(&mut self, index: usize) {
        let now = self.local(index);
        let member = &self.members[index];
        let idle: Vec<_> =
            member.candidacies.keys().copied().filter(|key| !member.working.contains_key(key)).collect();
        if self.faults.crowd && !idle.is_empty() {
            let key = idle[self.tape.below(idle.len() as u64) as usize];
            match self.tape.below(6) {
                1 => self.members[index].node.release(now, key).unwrap(),
                2 => self.members[index].node.drain(now, key).unwrap(),
                _ => {}
            }
            self.pump(index);
        }
        if self.faults.lies {
            let name = self.names[self.tape.below(self.names.len() as u64) as usize].clone();
            let wake = match self.tape.below(5) {
                1 => Wake::Free { chosen: true },
                2 => Wake::Free { chosen: false },
                3 => {
                    let ttl = Duration::from_nanos(self.tape.below(3 * SECOND));
                    Wake::Held { token: Token::new(self.tape.below(100)), ttl }
                }
                4 => return self.input(index, Event::Resync),
                _ => return,
            };
            self.input(index, Event::Hint { name, wake });
        }
    }

    fn end_work(&mut self, index: usize, lease: LeaseKey) {
        let now = self.local(index);
        self.members[index].working.remove(&lease);
        self.members[index].node.handle(now, Event::WorkloadExited { lease, exit: Exit::Completed }).unwrap();
        self.pump(index);
    }

    fn resume(&mut self, index: usize) {
        self.members[index].paused = false;
        // A stop that is found to be due only now begins now.
        self.members[index].candidacies.values_mut().for_each(|candidacy| candidacy.stop_at = None);
        // A write that it was about to send when it was paused.
        for (name, token) in self.members[index].working.values() {
            self.refused_writes += u64::from(!self.resource.write(name, *token));
        }
        let mut inbox = std::mem::take(&mut self.members[index].inbox);
        // What a process sees first after a pause is anybody's guess.
        if !inbox.is_empty() && self.tape.one_in(2) {
            inbox.rotate_right(1);
        }
        for event in inbox {
            self.input(index, event);
        }
        self.input(index, Event::Timeout);
    }

    fn input(&mut self, index: usize, event: Event) {
        if self.members[index].paused {
            self.members[index].inbox.push(event);
            return;
        }
        if self.faults.pause && self.tape.one_in(60) {
            self.members[index].paused = true;
            self.members[index].inbox.push(event);
            let at = self.now + 1 + self.tape.below(4 * SECOND);
            self.plan(at, Happening::Resume(index));
            return;
        }
        let now = self.local(index);
        self.members[index].node.handle(now, event).expect("an honest driver makes no mistakes");
        self.pump(index);
    }

    /// Carries out what a node says, until it has nothing more to say.
    fn pump(&mut self, index: usize) {
        loop {
            let local = self.local(index);
            match self.members[index].node.poll() {
                Output::Command(command) => self.command(index, command),
                Output::Notice(notice) => self.notice(index, notice, local),
                Output::Wait(wait) => {
                    if let Some(wait) = wait {
                        let at = self.members[index].clock.when(wait.as_nanos()).max(self.now);
                        if self.members[index].alarm != Some(at) {
                            self.members[index].alarm = Some(at);
                            self.plan(at, Happening::Wake(index));
                        }
                    }
                    for (key, (_, token)) in &self.members[index].held {
                        // S3: while it is held, a wake-up at or before the fence is armed.
                        if self.members[index].node.valid(local, *key) == Some(*token) {
                            let fence = self.members[index].node.deadlines(*key).unwrap().fence_at;
                            assert!(wait.is_some_and(|wait| wait <= fence), "no wake-up before the fence");
                        }
                    }
                    for (key, candidacy) in &self.members[index].candidacies {
                        let over = |at: Option<Instant>| at.is_some_and(|at| at <= local);
                        assert!(!over(candidacy.give_up_at), "{key} waits beyond its limit");
                        let works = self.members[index].working.contains_key(key);
                        assert!(!works || !over(candidacy.stop_at), "{key} works beyond its maximum hold");
                    }
                    return;
                }
            }
        }
    }

    fn command(&mut self, index: usize, command: Command) {
        match &command {
            Command::StopWorkload { lease, how: Stop::Hard, .. } => {
                if self.members[index].working.contains_key(lease) {
                    self.end_work(index, *lease);
                } else {
                    let now = self.local(index);
                    self.members[index]
                        .node
                        .handle(now, Event::WorkloadExited { lease: *lease, exit: Exit::Completed })
                        .unwrap();
                }
            }
            Command::DrainWorkload { lease, .. } | Command::StopWorkload { lease, .. } => {
                let at = self.now + self.tape.below(SECOND / 2);
                self.plan(at, Happening::Finish(index, *lease));
            }
            Command::Watch { .. } | Command::Unwatch { .. } => {
                let (Command::Watch { name, .. } | Command::Unwatch { name }) = &command else { return };
                let (name, incarnation) = (name.clone(), self.incarnation(index));
                self.plan(self.now + 1, Happening::Arrive(index, incarnation, name, command));
            }
            Command::Release { lease, token, .. } => {
                // S9: invalid before the release is sent.
                let now = self.local(index);
                let valid = self.members[index].node.valid(now, *lease);
                assert!(
                    valid.is_none() || token.is_some_and(|token| Some(token) > valid),
                    "released while valid"
                );
                assert!(
                    !self.members[index].working.contains_key(lease),
                    "released before the work has ended"
                );
                self.send(index, command);
            }
            Command::Acquire { .. } => {
                assert!(!self.members[index].shut, "a candidacy begins in a shutdown");
                self.send(index, command);
            }
            Command::StartWorkload { .. } => unreachable!("there are no workers in this world"),
            Command::Renew { .. } => self.send(index, command),
        }
    }

    fn delay(&mut self) -> u64 {
        let short = SECOND / 1000 + self.tape.below(SECOND / 100);
        if self.faults.delay && self.tape.one_in(12) { short + self.tape.below(LONG_DELAY) } else { short }
    }

    fn incarnation(&self, index: usize) -> Incarnation {
        self.members[index].node.identity().incarnation()
    }

    fn send(&mut self, index: usize, command: Command) {
        let (Command::Acquire { lease, .. } | Command::Renew { lease, .. } | Command::Release { lease, .. }) =
            command
        else {
            return;
        };
        let incarnation = self.incarnation(index);
        let name = self.members[index].node.name(lease).expect("the node gives the name").clone();
        if self.faults.loss && self.tape.one_in(8) {
            return;
        }
        let at = self.now + self.delay();
        if self.faults.duplication && self.tape.one_in(8) {
            let later = at + self.delay();
            self.plan(later, Happening::Arrive(index, incarnation, name.clone(), command.clone()));
        }
        self.plan(at, Happening::Arrive(index, incarnation, name, command));
    }

    /// The store: atomic, by its own clock.
    fn execute(&mut self, index: usize, incarnation: Incarnation, name: LeaseName, command: &Command) {
        let owner = |n: &Acquisition| Identity::new("node", incarnation).unwrap().owner(*n);
        let store_now = self.store_clock.at(self.now);
        self.records.retain(|_, record| record.expires > store_now);
        if self.faults.trouble
            && self.tape.one_in(12)
            && let Some(id) = command.id()
        {
            let failure = if self.tape.one_in(8) { Failure::Refused } else { Failure::NotExecuted };
            let at = self.now + self.delay();
            return self.plan(at, Happening::Return(index, incarnation, id, Reply::Failed(failure)));
        }
        let (id, mut reply) = match command {
            Command::Acquire { id, n, ttl, floor, wait, .. } => {
                let expires = store_now + ttl.as_nanos() as u64;
                let reply = match self.records.get_mut(&name) {
                    Some(record) if record.owner == owner(n) => {
                        record.expires = expires;
                        Reply::Granted { token: record.token }
                    }
                    Some(record) => {
                        if *wait {
                            self.waiters.entry(name).or_default().insert((index, incarnation));
                        }
                        Reply::Held {
                            token: Some(record.token),
                            remaining: Some(Duration::from_nanos(record.expires - store_now)),
                        }
                    }
                    None => {
                        self.high_water = self.high_water.max(floor.get()) + 1;
                        let token = Token::new(self.high_water);
                        // S6: tokens strictly rise over grants.
                        assert!(self.granted.insert(name.clone(), token) < Some(token));
                        self.records.insert(name.clone(), Record { owner: owner(n), token, expires });
                        self.grants += 1;
                        self.waiters.entry(name.clone()).or_default().remove(&(index, incarnation));
                        self.hints(&name, |_| Wake::Held { token, ttl: *ttl });
                        self.resource.grants.insert((name, token), self.grants);
                        Reply::Granted { token }
                    }
                };
                let check = self.store_clock.when(expires);
                self.plan(check, Happening::Expire);
                (*id, reply)
            }
            Command::Renew { id, n, token, ttl, .. } => match self.records.get_mut(&name) {
                Some(record) if record.owner == owner(n) && record.token == *token => {
                    record.expires = store_now + ttl.as_nanos() as u64;
                    let check = self.store_clock.when(record.expires);
                    self.plan(check, Happening::Expire);
                    (*id, Reply::Renewed)
                }
                _ => (*id, Reply::NotYours),
            },
            Command::Release { id, n, token, .. } => {
                let ours = self.records.get(&name).is_some_and(|record| {
                    record.owner == owner(n) && token.is_none_or(|token| token == record.token)
                });
                if ours {
                    self.records.remove(&name);
                    let others = self.waiters.get(&name).into_iter().flatten();
                    let others_chosen = others.take(2).any(|(waiter, _)| *waiter != index);
                    self.hints(&name, |place| Wake::Free { chosen: place < 2 });
                    (*id, Reply::Released { others_chosen })
                } else {
                    (*id, Reply::NotYours)
                }
            }
            Command::Watch { id, .. } => {
                self.waiters.entry(name).or_default().insert((index, incarnation));
                (*id, Reply::Watching)
            }
            Command::Unwatch { .. } => {
                self.waiters.entry(name).or_default().remove(&(index, incarnation));
                return;
            }
            Command::StartWorkload { .. } | Command::DrainWorkload { .. } | Command::StopWorkload { .. } => {
                return;
            }
        };
        if self.faults.trouble && self.tape.one_in(12) {
            reply = Reply::Failed(Failure::Unknown);
        }
        if self.faults.loss && self.tape.one_in(8) {
            // A watch has no timeout: the driver answers for the store in the end.
            if !matches!(command, Command::Watch { .. }) {
                return;
            }
            reply = Reply::Failed(Failure::Unknown);
        }
        let at = self.now + self.delay();
        if self.faults.duplication && self.tape.one_in(10) {
            let later = at + self.delay();
            self.plan(later, Happening::Return(index, incarnation, id, reply));
        }
        self.plan(at, Happening::Return(index, incarnation, id, reply));
    }

    /// Tells all who wait for a lease, the longest waiting first; some don't hear it.
    fn hints(&mut self, name: &LeaseName, wake: impl Fn(usize) -> Wake) {
        let waiters: Vec<_> = self.waiters.get(name).into_iter().flatten().copied().collect();
        for (place, (index, incarnation)) in waiters.into_iter().enumerate() {
            if self.faults.loss && self.tape.one_in(4) {
                continue;
            }
            let event = Event::Hint { name: name.clone(), wake: wake(place) };
            let at = self.now + self.delay();
            self.plan(at, Happening::Hint(index, incarnation, event));
        }
    }

    fn notice(&mut self, index: usize, notice: Notice, now: Instant) {
        let Some(lease) = notice.lease() else { return };
        match notice {
            Notice::Acquired { token, deadlines, .. } => {
                assert!(now < deadlines.fence_at, "work starts only before the fence");
                let name = self.members[index].node.name(lease).unwrap().clone();
                assert!(self.resource.write(&name, token), "a new holder is refused");
                let member = &mut self.members[index];
                assert!(!member.lost.contains(&(name.clone(), token)), "valid again under a lost token");
                let candidacy = member.candidacies.get_mut(&lease).unwrap();
                candidacy.give_up_at = None;
                candidacy.stop_at = candidacy.options.max_hold.map(|limit| now + limit + self.options.grace);
                member.working.insert(lease, (name.clone(), token));
                member.held.insert(lease, (name, token));
                member.acquired += 1;
            }
            Notice::Lost { token, .. } => {
                let member = &mut self.members[index];
                let (name, held) = member.held.remove(&lease).unwrap();
                assert_eq!(held, token);
                member.lost.insert((name, token));
                member.losses += 1;
            }
            Notice::Released { .. } => {
                self.members[index].held.remove(&lease);
            }
            Notice::Failed { why, .. } => {
                assert!(!matches!(why, AcquireFailure::StoreRegressed { .. }), "the store never regressed");
                let candidacy = self.members[index].candidacies.get_mut(&lease).unwrap();
                candidacy.give_up_at = None;
            }
            Notice::Ended { .. } => {
                self.members[index].held.remove(&lease);
                let Candidacy { name, .. } = self.members[index].candidacies.remove(&lease).unwrap();
                if !self.faults.crowd && !self.members[index].shut {
                    return self.stand(index, name);
                }
                let at = self.now + SECOND / 50 + self.tape.below(SECOND / 2);
                self.plan(at, Happening::Stand(index, self.incarnation(index), name));
            }
            _ => {}
        }
    }

    /// What must hold at every moment.
    fn check(&self) {
        let store_now = self.store_clock.at(self.now);
        let mut workers: BTreeMap<&LeaseName, usize> = BTreeMap::new();
        for (index, member) in self.members.iter().enumerate() {
            let local = Instant::from_nanos(member.clock.at(self.now));
            for (key, (name, token)) in &member.held {
                let deadlines = member.node.deadlines(*key);
                assert!(
                    member.node.valid(local, *key).is_none()
                        || deadlines.is_some_and(|deadlines| local < deadlines.fence_at)
                );
                // While it is stopped as well: until then nobody else can have it.
                if deadlines.is_some_and(|deadlines| local < deadlines.valid_until) {
                    // S2': belief implies ownership.
                    let record =
                        self.records.get(name).unwrap_or_else(|| panic!("{index} believes in nothing"));
                    assert_eq!(
                        record.owner.identity(),
                        member.node.identity(),
                        "{index} believes in another's lease"
                    );
                    assert_eq!(record.token, *token, "{index} believes in an older grant");
                    assert!(record.expires > store_now, "{index} believes in a lease that is over");
                    // S7 is part of it: a lost token never comes back.
                    assert!(!member.lost.contains(&(name.clone(), *token)));
                }
            }
            // S4: work overlaps no other's, but for processes that are paused inside it.
            if !member.paused {
                for (name, _) in member.working.values() {
                    if let Some(other) = workers.insert(name, index) {
                        panic!("{other} and {index} both work under {name} at {}", self.now);
                    }
                }
            }
        }
    }

    /// How many members have a valid lease of this name.
    pub fn valid_holders(&self, name: &LeaseName) -> usize {
        let valid = |member: &&Member| {
            let local = Instant::from_nanos(member.clock.at(self.now));
            member
                .held
                .iter()
                .any(|(key, (held, _))| held == name && member.node.valid(local, *key).is_some())
        };
        self.members.iter().filter(valid).count()
    }

    /// How many leases the store holds for somebody.
    pub fn valid_records(&self) -> usize {
        let store_now = self.store_clock.at(self.now);
        self.records.values().filter(|record| record.expires > store_now).count()
    }

    /// When the store's clock shows this.
    pub fn when_store(&self, store_time: u64) -> u64 {
        self.store_clock.when(store_time)
    }

    pub fn names(&self) -> Vec<LeaseName> {
        self.names.clone()
    }
}
