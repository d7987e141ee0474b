//! The membership of a node: when it is there, what its replies may be, and that it ends last.

use alloc::collections::BTreeMap;

use super::*;
use crate::command::StopReason;
use crate::member::{Member, MemberOptions, Presence};
use crate::time::Timestamp;

/// A node among others, with a store that answers it.
pub(super) struct Fleet {
    pub(super) node: Node<SplitMix>,
    pub(super) now: Instant,
    version: u64,
    /// How old the store lists it at 0 s.
    pub(super) age: Duration,
    /// What the store lists of this instance; `None` before it was heard of.
    pub(super) own: Option<Member>,
    others: Vec<Member>,
    marked: bool,
    /// Whether heartbeats are answered.
    pub(super) hears: bool,
    /// Whether leases are granted, and everything else about them is answered.
    pub(super) grants: bool,
    token: u64,
    /// The leases under which work was started, and has not ended.
    pub(super) working: BTreeMap<LeaseKey, WorkerKey>,
}

impl Fleet {
    /// One that joins at 0 s; the store lists it as a minute old.
    pub(super) fn new() -> Self {
        let mut node = node();
        node.join(ms(0), MemberOptions::default()).expect("not shutting down");
        let mut fleet = Self::around(node);
        fleet.settle();
        fleet
    }

    pub(super) fn around(node: Node<SplitMix>) -> Self {
        let (now, version, own, others) = (ms(0), 0, None, Vec::new());
        let (marked, hears, grants, token, working) = (false, true, true, 10, BTreeMap::new());
        let age = Duration::from_secs(60);
        Self { node, now, version, age, own, others, marked, hears, grants, token, working }
    }

    /// Another member, that does what this one does.
    pub(super) fn other(&self, instance: &str, age: Duration) -> Member {
        let identity = Identity::new(instance, Incarnation::new(1)).expect("a fine name");
        let own = self.own.as_ref().expect("it has joined");
        let mut member = Member::new(identity, own.joined + Duration::from_secs(1));
        (member.age, member.digests) = (age, own.digests.clone());
        member
    }

    /// These are the others from now on, and this instance is told.
    pub(super) fn see(&mut self, others: impl IntoIterator<Item = Member>) -> Vec<Output> {
        self.others = others.into_iter().collect();
        self.version += 1;
        self.hint()
    }

    /// An operator wants a drain, or no longer.
    pub(super) fn mark(&mut self, drain: bool) -> Vec<Output> {
        self.marked = drain;
        self.version += 1;
        self.hint()
    }

    pub(super) fn hint(&mut self) -> Vec<Output> {
        let soon = self.now + Duration::from_millis(200);
        self.node.handle(self.now, Event::MembersHint).expect("never misuse");
        self.to(soon)
    }

    /// Lets time go on, and answers what is asked; returns everything that was said.
    pub(super) fn to(&mut self, now: Instant) -> Vec<Output> {
        let mut all = self.settle();
        while let Output::Wait(Some(at)) = self.node.poll()
            && at <= now
        {
            assert!(at > self.now, "time stands still");
            self.now = at;
            self.node.handle(at, Event::Timeout).expect("never misuse");
            all.extend(self.settle());
        }
        self.now = now;
        self.node.handle(now, Event::Timeout).expect("never misuse");
        all.extend(self.settle());
        all
    }

    pub(super) fn after(&mut self, time: Duration) -> Vec<Output> {
        self.to(self.now + time)
    }

    pub(super) fn settle(&mut self) -> Vec<Output> {
        let mut all = Vec::new();
        loop {
            let output = self.node.poll();
            match &output {
                Output::Wait(_) => return all,
                Output::Notice(_) => {}
                Output::Command(command) => self.carry_out(command),
            }
            all.push(output);
        }
    }

    fn carry_out(&mut self, command: &Command) {
        let answer = match command {
            Command::Heartbeat { id, draining, digests, known, .. } => {
                if !self.hears {
                    return;
                }
                let presence = self.beat(*draining, digests, *known);
                Event::Present { id: *id, presence }
            }
            Command::Leave { id, .. } if self.hears => Event::Reply { id: *id, reply: Reply::Left },
            Command::StartWorkload { worker, lease, .. } => {
                assert!(self.working.insert(*lease, *worker).is_none(), "started twice");
                return;
            }
            Command::Acquire { id, .. } if self.grants => {
                self.token += 1;
                Event::Reply { id: *id, reply: Reply::Granted { token: Token::new(self.token) } }
            }
            Command::Renew { id, .. } if self.grants => Event::Reply { id: *id, reply: Reply::Renewed },
            Command::Release { id, .. } if self.grants => {
                Event::Reply { id: *id, reply: Reply::Released { others_chosen: false } }
            }
            _ => return,
        };
        self.node.handle(self.now, answer).expect("it fits");
    }

    fn beat(&mut self, draining: bool, digests: &[crate::Digest], known: Option<u64>) -> Presence {
        let identity = self.node.identity().clone();
        let joined = Timestamp::from_nanos(1_000);
        let own = self.own.get_or_insert_with(|| Member::new(identity, joined));
        if (own.draining, &*own.digests) != (draining, digests) || self.version == 0 {
            self.version += 1;
            (own.draining, own.digests) = (draining, digests.into());
        }
        let mut listed = own.clone();
        listed.age = self.age + self.now.saturating_since(ms(0));
        listed.draining |= self.marked;
        let members = self.others.iter().cloned().chain([listed]);
        let presence = if known == Some(self.version) {
            Presence::unchanged(joined, self.version)
        } else {
            Presence::new(joined, self.version, members)
        };
        Presence { drain: self.marked, ..presence }
    }

    /// All work ends that was started.
    pub(super) fn work_ends(&mut self, exit: Exit) -> Vec<Output> {
        for lease in core::mem::take(&mut self.working).into_keys() {
            self.node.handle(self.now, Event::WorkloadExited { lease, exit }).expect("known");
        }
        self.settle()
    }

    /// The names of the workloads that run, sorted.
    pub(super) fn running(&self) -> Vec<&str> {
        let names = self.working.keys().map(|lease| self.node.name(*lease).expect("it is held").as_str());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }
}

pub(super) fn notices(outputs: &[Output]) -> Vec<&Notice> {
    outputs.iter().filter_map(|o| if let Output::Notice(notice) = o { Some(notice) } else { None }).collect()
}

pub(super) fn told(outputs: &[Output], notice: &Notice) -> usize {
    notices(outputs).into_iter().filter(|it| *it == notice).count()
}

pub(super) fn count(outputs: &[Output], of: impl Fn(&Command) -> bool) -> usize {
    commands(outputs).iter().filter(|command| of(command)).count()
}

fn is_heartbeat(command: &Command) -> bool {
    matches!(command, Command::Heartbeat { .. })
}

fn is_leave(command: &Command) -> bool {
    matches!(command, Command::Leave { .. })
}

#[test]
fn an_instance_joins_once_and_its_members_are_known_after_the_first_answer() {
    let mut node = node();
    node.join(ms(0), MemberOptions::default()).expect("fine");
    node.join(ms(0), MemberOptions { ttl: Duration::from_secs(60), ..MemberOptions::default() })
        .expect("harmless");
    let mut fleet = Fleet::around(node);
    fleet.hears = false;
    assert_eq!(count(&fleet.settle(), is_heartbeat), 1);
    assert_eq!((fleet.node.members(), fleet.node.len()), (None, 1));
    fleet.hears = true;
    let outputs = fleet.after(Duration::from_secs(5));
    assert!(matches!(
        notices(&outputs)[..],
        [Notice::HeartbeatFailed { .. }, Notice::Joined { .. }, Notice::MembersChanged { count: 1, .. }]
    ));
    let (members, _) = fleet.node.members().expect("it was answered");
    assert_eq!(&members[0].identity, fleet.node.identity());
}

#[test]
fn settings_that_do_not_fit_change_nothing_and_nobody_joins_after_a_shutdown() {
    let mut node = node();
    let before = node.clone();
    let wrong = MemberOptions { heartbeat: Some(Duration::from_secs(14)), ..MemberOptions::default() };
    assert!(matches!(node.join(ms(9), wrong), Err(Misuse::Config(_))));
    assert_eq!(node, before);
    node.shutdown(ms(9));
    assert_eq!(node.join(ms(9), MemberOptions::default()), Err(Misuse::ShuttingDown));
}

#[test]
fn hints_and_a_resync_bring_a_heartbeat_and_mean_nothing_to_whoever_has_not_joined() {
    for event in [Event::MembersHint, Event::Resync] {
        let mut node = node();
        node.handle(ms(1), event.clone()).expect("never misuse");
        assert_eq!(drain(&mut node), []);
        let mut fleet = Fleet::new();
        fleet.to(ms(1_000));
        fleet.node.handle(ms(1_000), event).expect("never misuse");
        assert_eq!(count(&fleet.settle(), is_heartbeat), 1);
    }
}

#[test]
fn answers_that_a_command_can_not_have_are_misuse_and_change_nothing() {
    let mut node = node();
    node.join(ms(0), MemberOptions::default()).expect("fine");
    let worker = node.start_worker(ms(0), name("w"), WorkerOptions::new(options())).expect("fine");
    let outputs = drain(&mut node);
    let ids: Vec<_> = commands(&outputs).iter().filter_map(Command::id).collect();
    let [acquire, beat] = ids[..] else { panic!("{outputs:?}") };
    let before = node.clone();
    for wrong in [Reply::Left, Reply::Renewed, Reply::Watching, GRANTED, Reply::NotYours] {
        let event = Event::Reply { id: beat, reply: wrong };
        assert_eq!(node.handle(ms(9), event), Err(Misuse::WrongReply { id: beat, reply: wrong }));
    }
    let event = Event::Reply { id: acquire, reply: Reply::Left };
    assert_eq!(node.handle(ms(9), event), Err(Misuse::WrongReply { id: acquire, reply: Reply::Left }));
    let presence = Presence::unchanged(Timestamp::from_nanos(0), 1);
    let never = CommandId { machine: beat.machine, sequence: 1 };
    let of_worker = CommandId { machine: worker.0, sequence: 0 };
    let unmade = CommandId { machine: 99, sequence: 0 };
    for id in [acquire, never, of_worker, unmade] {
        let event = Event::Present { id, presence: presence.clone() };
        assert_eq!(node.handle(ms(9), event), Err(Misuse::UnknownCommand(id)));
    }
    let event = Event::Reply { id: never, reply: Reply::Failed(Failure::Unknown) };
    assert_eq!(node.handle(ms(9), event), Err(Misuse::UnknownCommand(never)));
    // Its number is no lease's, worker's or coordinator's.
    let key = LeaseKey(beat.machine);
    assert_eq!(node.release(ms(9), key), Err(Misuse::UnknownLease(key)));
    let key = WorkerKey(beat.machine);
    assert_eq!(node.drain_worker(ms(9), key), Err(Misuse::UnknownWorker(key)));
    assert_eq!(node, before);
}

#[test]
fn the_heartbeat_ends_last() {
    let mut fleet = Fleet::new();
    let held = fleet.node.acquire(ms(0), name("guard"), options()).expect("fine");
    fleet.settle();
    fleet.node.shutdown(ms(100));
    let outputs = fleet.to(ms(100));
    let says = |c: &Command| matches!(c, Command::Heartbeat { draining: true, .. });
    assert_eq!(count(&outputs, says), 1, "it says at once that it drains: {outputs:?}");
    let outputs = fleet.to(ms(20_000));
    assert!(count(&outputs, is_heartbeat) >= 3, "work goes on, and so does the heartbeat");
    assert_eq!(count(&outputs, is_leave), 0);
    fleet.node.release(ms(20_000), held).expect("known");
    let outputs = fleet.settle();
    assert_eq!((count(&outputs, is_leave), told(&outputs, &Notice::Left)), (1, 1));
    let ended = outputs.iter().position(|o| *o == Output::Notice(Notice::Ended { lease: held }));
    let leaves = outputs.iter().position(|o| matches!(o, Output::Command(command) if is_leave(command)));
    assert!(ended < leaves, "{outputs:?}");
    assert!(fleet.node.is_empty() && fleet.node.deadlines.is_empty());
}

#[test]
fn a_shutdown_while_a_heartbeat_is_under_way_and_before_any_was_answered_ends() {
    let mut node = node();
    node.join(ms(0), MemberOptions::default()).expect("fine");
    let mut fleet = Fleet::around(node.clone());
    fleet.hears = false;
    let outputs = fleet.settle();
    let beat = commands(&outputs)[0].id().expect("it wants an answer");
    fleet.node.shutdown(ms(1));
    assert_eq!(count(&fleet.settle(), is_leave), 1);
    let presence = Presence::unchanged(Timestamp::from_nanos(0), 1);
    fleet.node.handle(ms(2), Event::Present { id: beat, presence: presence.clone() }).expect("it was asked");
    assert_eq!(fleet.node.counters().stale_replies, 1);
    // The store never answers: by then it lists the instance no longer.
    let outputs = fleet.to(ms(17_501));
    assert!(count(&outputs, is_leave) < 20 && count(&outputs, is_heartbeat) == 0);
    assert_eq!(told(&outputs, &Notice::Left), 1);
    assert!(fleet.node.is_empty() && fleet.node.deadlines.is_empty());
    // Late answers are dropped.
    fleet.node.handle(fleet.now, Event::Present { id: beat, presence }).expect("late, but known");
    let failed = Event::Reply { id: beat, reply: Reply::Failed(Failure::Unknown) };
    fleet.node.handle(fleet.now, failed).expect("late, but known");
    assert_eq!(fleet.node.counters().stale_replies, 3);

    // Before the first heartbeat has left.
    let mut fleet = Fleet::around(node);
    fleet.node.shutdown(ms(0));
    let outputs = fleet.settle();
    assert_eq!(told(&outputs, &Notice::Left), 1);
    assert!(fleet.node.is_empty());
}

#[test]
fn an_instance_that_never_joined_shuts_down_without_leaving() {
    let mut node = node();
    node.shutdown(ms(0));
    assert_eq!(drain(&mut node), []);
    assert!(node.is_empty());
}

#[test]
fn an_instance_whose_heartbeats_fail_keeps_its_work() {
    let mut fleet = Fleet::new();
    fleet.node.start_worker(ms(0), name("w"), WorkerOptions::new(options())).expect("fine");
    fleet.settle();
    fleet.hears = false;
    let outputs = fleet.to(ms(3_600_000));
    assert_eq!(fleet.running(), ["w"]);
    let stops = |c: &Command| matches!(c, Command::DrainWorkload { .. } | Command::StopWorkload { .. });
    assert_eq!(count(&outputs, stops), 0);
    assert_eq!(told(&outputs, &Notice::HeartbeatFailed { failure: Failure::Unknown }), 1);
    let beats = count(&outputs, is_heartbeat);
    assert!((300..1_440).contains(&beats), "{beats}");
}

#[test]
fn work_that_refuses_to_end_keeps_the_instance_listed() {
    let mut fleet = Fleet::new();
    fleet.node.start_worker(ms(0), name("w"), WorkerOptions::new(options())).expect("fine");
    fleet.settle();
    fleet.node.shutdown(ms(0));
    let outputs = fleet.to(ms(600_000));
    assert_eq!(count(&outputs, is_leave), 0);
    assert!(count(&outputs, is_heartbeat) >= 119);
    let hard = Command::StopWorkload {
        lease: *fleet.working.keys().next().expect("it runs"),
        how: Stop::Hard,
        why: StopReason::Drain,
    };
    assert!(commands(&outputs).contains(&hard));
    let outputs = fleet.work_ends(Exit::Stopped);
    assert_eq!((count(&outputs, is_leave), told(&outputs, &Notice::Left)), (1, 1));
}
