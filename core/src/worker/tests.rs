//! What a worker makes of its lease, of its workload and of a drain.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Restart, RestartPolicy, WorkerOptions};
use crate::command::{Command, Event, Exit, Failure, Misuse, Output, Reply, Stop, StopReason};
use crate::jitter::SplitMix;
use crate::lease::LeaseOptions;
use crate::name::{CommandId, Identity, Incarnation, LeaseKey, LeaseName, Token, WorkerKey};
use crate::node::Node;
use crate::notice::{AcquireFailure, LossReason, Notice};
use crate::time::Instant;
use crate::timing::{LeaseConfig, StoreClock};

mod resting;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(8);

fn options(when: Restart) -> WorkerOptions {
    let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default());
    let mut options = WorkerOptions::new(LeaseOptions::new(timing.expect("the defaults fit")));
    options.restart = RestartPolicy::new(when).delays(FIRST, LONGEST).expect("they fit");
    options
}

/// One worker in a node of its own, before a store that the test plays.
struct Bench {
    node: Node<SplitMix>,
    now: Instant,
    worker: WorkerKey,
    /// Everything that was polled.
    outputs: Vec<Output>,
    /// How much of it was looked at.
    seen: usize,
    token: u64,
}

impl Bench {
    fn new(options: WorkerOptions) -> Self {
        let identity = Identity::new("host", Incarnation::new(7)).expect("a fine name");
        let mut node = Node::new(identity, SplitMix::new(3));
        let now = Instant::from_nanos(1_000_000_000);
        let name = LeaseName::new("work").expect("a fine name");
        let worker = node.start_worker(now, name, options).expect("not shutting down");
        let mut bench = Self { node, now, worker, outputs: Vec::new(), seen: 0, token: 0 };
        bench.poll();
        bench
    }

    /// With its workload started.
    fn running(options: WorkerOptions) -> (Self, LeaseKey) {
        let mut bench = Self::new(options);
        let lease = bench.run();
        (bench, lease)
    }

    fn poll(&mut self) -> Option<Instant> {
        loop {
            match self.node.poll() {
                Output::Wait(wait) => return wait,
                output => self.outputs.push(output),
            }
        }
    }

    /// What came since the last look.
    fn news(&mut self) -> Vec<Output> {
        self.poll();
        let news = self.outputs[self.seen..].to_vec();
        self.seen = self.outputs.len();
        news
    }

    fn handle(&mut self, event: Event) -> Vec<Output> {
        self.node.handle(self.now, event).expect("no misuse");
        self.news()
    }

    fn reply(&mut self, id: CommandId, reply: Reply) -> Vec<Output> {
        self.handle(Event::Reply { id, reply })
    }

    fn exit(&mut self, lease: LeaseKey, exit: Exit) -> Vec<Output> {
        self.handle(Event::WorkloadExited { lease, exit })
    }

    /// Lets time pass until an output of this kind comes, answering renewals and releases with yes.
    fn until<T>(&mut self, wanted: impl Fn(&Output) -> Option<T>) -> T {
        for _ in 0..10_000 {
            let news = self.news();
            let mut found = None;
            for output in &news {
                match output {
                    Output::Command(Command::Renew { id, .. }) => {
                        let event = Event::Reply { id: *id, reply: Reply::Renewed };
                        self.node.handle(self.now, event).expect("no misuse");
                    }
                    Output::Command(Command::Release { id, .. }) => {
                        let event = Event::Reply { id: *id, reply: Reply::Released { others_chosen: false } };
                        self.node.handle(self.now, event).expect("no misuse");
                    }
                    _ => {}
                }
                found = found.or_else(|| wanted(output));
            }
            if let Some(found) = found {
                return found;
            }
            if let Some(wait) = self.poll()
                && self.outputs.len() == self.seen
            {
                self.now = self.now.max(wait);
                self.node.handle(self.now, Event::Timeout).expect("no misuse");
            }
        }
        panic!("it never comes: {:?}", self.outputs);
    }

    fn attempt(&mut self) -> (CommandId, LeaseKey) {
        self.until(|output| match output {
            Output::Command(Command::Acquire { id, lease, .. }) => Some((*id, *lease)),
            _ => None,
        })
    }

    fn grant(&mut self, id: CommandId) -> Vec<Output> {
        self.token += 1;
        let token = Token::new(self.token);
        self.reply(id, Reply::Granted { token })
    }

    /// From a rest to the start of the workload.
    fn run(&mut self) -> LeaseKey {
        let (id, lease) = self.attempt();
        let news = self.grant(id);
        assert_eq!(starts(&news), [lease]);
        lease
    }

    /// The rest that follows an exit, and the lease of the run after it.
    fn rest(&mut self, lease: LeaseKey, exit: Exit) -> (Duration, LeaseKey) {
        let ended = self.now;
        self.node.handle(ended, Event::WorkloadExited { lease, exit }).expect("no misuse");
        let (id, next) = self.attempt();
        let rest = self.now.saturating_since(ended);
        assert_eq!(starts(&self.grant(id)), [next]);
        (rest, next)
    }
}

fn starts(outputs: &[Output]) -> Vec<LeaseKey> {
    let start = |output: &Output| match output {
        Output::Command(Command::StartWorkload { lease, .. }) => Some(*lease),
        _ => None,
    };
    outputs.iter().filter_map(start).collect()
}

fn releases(outputs: &[Output]) -> Vec<LeaseKey> {
    let release = |output: &Output| match output {
        Output::Command(Command::Release { lease, .. }) => Some(*lease),
        _ => None,
    };
    outputs.iter().filter_map(release).collect()
}

fn release_id(outputs: &[Output]) -> CommandId {
    let release = |output: &Output| match output {
        Output::Command(Command::Release { id, .. }) => Some(*id),
        _ => None,
    };
    outputs.iter().find_map(release).unwrap_or_else(|| panic!("a release, not {outputs:?}"))
}

fn stops(outputs: &[Output]) -> Vec<Output> {
    let stop = |output: &&Output| {
        matches!(output, Output::Command(Command::DrainWorkload { .. } | Command::StopWorkload { .. }))
    };
    outputs.iter().filter(stop).cloned().collect()
}

fn ended(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Notice(Notice::WorkerEnded { .. })))
}

fn hard(lease: LeaseKey, why: StopReason) -> Output {
    Output::Command(Command::StopWorkload { lease, how: Stop::Hard, why })
}

#[test]
fn a_workload_is_started_once_for_each_grant_with_the_token_of_it() {
    let mut bench = Bench::new(options(Restart::Always));
    let (id, lease) = bench.attempt();
    let worker = bench.worker;
    assert_eq!(bench.outputs[0], Output::Notice(Notice::Campaigning { worker, lease }));
    let news = bench.grant(id);
    let [
        Output::Notice(Notice::Acquired { n, deadlines, .. }),
        Output::Command(Command::StartWorkload {
            worker: of,
            lease: under,
            n: with,
            token,
            deadlines: until,
        }),
    ] = news[..]
    else {
        panic!("{news:?}")
    };
    assert_eq!((of, under, with, token, until), (worker, lease, n, Token::new(1), deadlines));
    // A second answer changes nothing.
    assert!(bench.reply(id, Reply::Granted { token: Token::new(1) }).is_empty());
    assert_eq!(
        (bench.node.worker(lease), bench.node.worker_name(worker)),
        (Some(worker), bench.node.name(lease))
    );
}

#[test]
fn a_lease_that_is_never_granted_starts_nothing() {
    let mut bench = Bench::new(options(Restart::Always));
    for _ in 0..100 {
        let (id, _) = bench.attempt();
        let remaining = Some(Duration::from_secs(15));
        let news = bench.reply(id, Reply::Held { token: Some(Token::new(9)), remaining });
        assert!(starts(&news).is_empty());
    }
    assert!(starts(&bench.outputs).is_empty());
}

#[test]
fn a_start_that_was_not_polled_before_the_fence_never_comes() {
    // There is to be one run, and this is none.
    let mut bench = Bench::new(options(Restart::Never));
    let (id, lease) = bench.attempt();
    let reply = Reply::Granted { token: Token::new(1) };
    bench.node.handle(bench.now, Event::Reply { id, reply }).expect("no misuse");
    let fence_at = bench.node.deadlines(lease).expect("held").fence_at;
    // The driver was kept from polling.
    bench.now = fence_at;
    let news = bench.handle(Event::Timeout);
    assert_eq!((starts(&news), stops(&news), releases(&news)), (Vec::new(), Vec::new(), [lease].into()));
    // The next grant starts it.
    bench.token = 1;
    let next = bench.run();
    assert_ne!(next, lease);
}

#[test]
fn a_workload_that_the_driver_came_to_too_late_does_not_count_as_a_run() {
    let (mut bench, lease) = Bench::running(options(Restart::Never));
    let (rest, next) = bench.rest(lease, Exit::NotStarted);
    assert!(rest <= FIRST, "{rest:?}");
    assert!(ended(&bench.exit(next, Exit::Completed)));
}

#[test]
fn a_lease_is_released_only_after_the_workload_has_ended_and_the_next_run_has_a_grant_of_its_own() {
    let (mut bench, lease) = Bench::running(options(Restart::Always));
    bench.until(|output| matches!(output, Output::Notice(Notice::Renewed { .. })).then_some(()));
    assert!(releases(&bench.outputs).is_empty());
    let (rest, next) = bench.rest(lease, Exit::Completed);
    assert_eq!(releases(&bench.outputs), [lease]);
    assert!(FIRST / 2 <= rest && rest <= FIRST, "{rest:?}");
    assert_ne!(next, lease);
    let Some(Output::Command(Command::StartWorkload { token, .. })) = bench.outputs.last() else {
        panic!("{:?}", bench.outputs)
    };
    assert_eq!(*token, Token::new(2));
}

#[test]
fn the_exit_of_an_earlier_run_does_not_end_the_next_one() {
    let (mut bench, first) = Bench::running(options(Restart::Always));
    let (_, second) = bench.rest(first, Exit::Completed);
    assert!(bench.exit(first, Exit::Failed).is_empty());
    assert_eq!(bench.node.valid(bench.now, second), Some(Token::new(2)));
}

#[test]
fn the_exit_of_an_earlier_run_that_is_told_twice_does_not_withdraw_the_start_of_the_next_one() {
    let step = Duration::from_millis(1);
    let mut options = options(Restart::Always);
    options.restart = options.restart.delays(step, step).expect("they fit");
    let (mut bench, first) = Bench::running(options);
    // The store does not answer: the first lease is not forgotten when the second one is granted.
    let id = release_id(&bench.exit(first, Exit::Completed));
    bench.reply(id, Reply::Failed(Failure::Unknown));
    let (id, second) = bench.attempt();
    assert_eq!(bench.node.worker(first), Some(bench.worker));
    let reply = Reply::Granted { token: Token::new(2) };
    bench.node.handle(bench.now, Event::Reply { id, reply }).expect("no misuse");
    let next = bench.node.poll();
    assert!(matches!(next, Output::Notice(Notice::Acquired { lease, .. }) if lease == second), "{next:?}");
    // The driver comes to the start only after this.
    let news = bench.exit(first, Exit::Completed);
    assert_eq!((starts(&news), releases(&news)), ([second].into(), Vec::new()));
}

#[test]
fn the_policy_says_whether_a_workload_that_ended_by_itself_is_started_again() {
    let table = [
        (Restart::Always, Exit::Completed, true),
        (Restart::Always, Exit::Failed, true),
        (Restart::OnFailure, Exit::Completed, false),
        (Restart::OnFailure, Exit::Failed, true),
        (Restart::Never, Exit::Completed, false),
        (Restart::Never, Exit::Failed, false),
    ];
    for (when, exit, again) in table {
        let (mut bench, lease) = Bench::running(options(when));
        let news = bench.exit(lease, exit);
        assert_eq!(ended(&news), !again, "{when:?} {exit:?}");
        // Whatever follows, the lease is given back.
        assert_eq!(releases(&news), [lease], "{when:?} {exit:?}");
        if again {
            bench.run();
        }
    }
}

#[test]
fn a_lost_lease_stops_the_workload_and_is_tried_for_again_once_it_has_ended() {
    for when in [Restart::Always, Restart::OnFailure] {
        let (mut bench, lease) = Bench::running(options(when));
        bench.now = bench.poll().expect("a renewal is planned");
        let news = bench.handle(Event::Timeout);
        let [Output::Command(Command::Renew { id: renewal, .. })] = news[..] else { panic!("{news:?}") };
        let news = bench.reply(renewal, Reply::NotYours);
        assert_eq!(stops(&news), [hard(lease, StopReason::Lost)]);
        assert!(releases(&news).is_empty(), "the work has not ended");
        // Nothing is asked of the store meanwhile.
        let before = bench.now;
        bench.now = before + Duration::from_secs(60);
        let news = bench.handle(Event::Timeout);
        assert!(starts(&news).is_empty() && releases(&news).is_empty(), "{news:?}");
        // However a workload ends that was stopped, it is started again.
        let (rest, next) = bench.rest(lease, Exit::Completed);
        assert!(rest <= FIRST && next != lease, "{rest:?}");
    }
}

#[test]
fn a_workload_that_was_cut_by_a_loss_is_not_started_again_if_there_is_one_run_at_most() {
    let (mut bench, lease) = Bench::running(options(Restart::Never));
    let kill_at = bench.node.deadlines(lease).expect("held").kill_at;
    bench.now = kill_at;
    assert_eq!(stops(&bench.handle(Event::Timeout)), [hard(lease, StopReason::Fence)]);
    assert!(ended(&bench.exit(lease, Exit::Failed)));
}

#[test]
fn a_drain_lets_the_workload_end_in_order_and_starts_nothing_any_more() {
    let (mut bench, lease) = Bench::running(options(Restart::Always));
    bench.node.drain_worker(bench.now, bench.worker).expect("known");
    let news = bench.news();
    assert_eq!(news, [Output::Command(Command::DrainWorkload { lease, why: StopReason::Drain })]);
    // It goes on for a while, and the lease is renewed meanwhile.
    bench.until(|output| matches!(output, Output::Notice(Notice::Renewed { .. })).then_some(()));
    assert!(bench.node.deadlines(lease).is_some() && releases(&bench.outputs).is_empty());
    bench.node.drain_worker(bench.now, bench.worker).expect("known");
    assert!(stops(&bench.news()).is_empty(), "a repeated drain says nothing new");
    let news = bench.exit(lease, Exit::Failed);
    assert!(ended(&news) && releases(&news) == [lease], "{news:?}");
    // Nothing follows but the end of the release.
    bench.until(|output| matches!(output, Output::Notice(Notice::Ended { .. })).then_some(()));
    assert!(bench.node.is_empty());
    bench.node.drain_worker(bench.now, bench.worker).expect("it was known");
    assert_eq!(starts(&bench.outputs), [lease]);
}

#[test]
fn a_drain_that_takes_too_long_ends_in_a_hard_stop_and_what_does_not_end_then_is_named_and_keeps_its_lease() {
    let mut options = options(Restart::Always);
    options.lease.grace = Duration::from_secs(30);
    let (mut bench, lease) = Bench::running(options);
    let begun = bench.now;
    bench.node.drain_worker(begun, bench.worker).expect("known");
    bench.until(|output| (*output == hard(lease, StopReason::Drain)).then_some(()));
    assert_eq!(bench.now, begun + Duration::from_secs(30));
    let worker = bench.worker;
    bench.until(|output| (*output == Output::Notice(Notice::Stuck { worker, lease })).then_some(()));
    // The stop budget of the default timing is 2 s.
    assert_eq!(bench.now, begun + Duration::from_secs(32));
    let before = bench.outputs.len();
    for _ in 0..10 {
        bench.until(|output| matches!(output, Output::Notice(Notice::Renewed { .. })).then_some(()));
    }
    let later = &bench.outputs[before..];
    assert!(releases(later).is_empty() && stops(later).is_empty(), "{later:?}");
    assert!(
        !later.iter().any(|output| matches!(output, Output::Notice(Notice::Stuck { .. }))),
        "named twice"
    );
    assert!(ended(&bench.exit(lease, Exit::Failed)));
}

#[test]
fn a_lease_that_is_lost_in_a_drain_stops_the_workload_by_the_rules_of_loss() {
    let (mut bench, lease) = Bench::running(options(Restart::Always));
    let deadlines = bench.node.deadlines(lease).expect("held");
    bench.node.drain_worker(bench.now, bench.worker).expect("known");
    bench.news();
    // The store is silent from now on.
    let mut seen = Vec::new();
    while bench.now < deadlines.kill_at {
        bench.now = bench.poll().expect("something is planned");
        seen.extend(stops(&bench.handle(Event::Timeout)).into_iter().map(|stop| (bench.now, stop)));
    }
    let ask = Output::Command(Command::StopWorkload { lease, how: Stop::Ask, why: StopReason::Fence });
    let kill = hard(lease, StopReason::Fence);
    assert_eq!(seen, [(deadlines.fence_at, ask), (deadlines.kill_at, kill)]);
    assert!(ended(&bench.exit(lease, Exit::Failed)), "the drain goes on");
}

#[test]
fn a_worker_can_be_drained_wherever_it_is() {
    // Before its first candidacy.
    let identity = Identity::new("host", Incarnation::new(7)).expect("a fine name");
    let mut node = Node::new(identity, SplitMix::new(3));
    let name = LeaseName::new("work").expect("a fine name");
    let worker = node.start_worker(Instant::ZERO, name, options(Restart::Always)).expect("runs");
    node.drain_worker(Instant::ZERO, worker).expect("known");
    assert_eq!(node.poll(), Output::Notice(Notice::WorkerEnded { worker }));
    assert_eq!(node.poll(), Output::Wait(None));
    assert!(node.is_empty());

    // In its candidacy: what may have been granted is given back.
    let mut bench = Bench::new(options(Restart::Always));
    let (_, lease) = bench.attempt();
    bench.node.drain_worker(bench.now, bench.worker).expect("known");
    let news = bench.news();
    assert!(ended(&news) && releases(&news) == [lease], "{news:?}");

    // Granted, but not started.
    let mut bench = Bench::new(options(Restart::Always));
    let (id, lease) = bench.attempt();
    let reply = Reply::Granted { token: Token::new(1) };
    bench.node.handle(bench.now, Event::Reply { id, reply }).expect("no misuse");
    bench.node.drain_worker(bench.now, bench.worker).expect("known");
    let news = bench.news();
    assert_eq!((starts(&news), stops(&news), releases(&news)), (Vec::new(), Vec::new(), [lease].into()));
    assert!(ended(&news));

    // At rest.
    let (mut bench, lease) = Bench::running(options(Restart::Always));
    bench.exit(lease, Exit::Completed);
    bench.node.drain_worker(bench.now, bench.worker).expect("known");
    assert!(ended(&bench.news()));
}

#[test]
fn a_worker_that_is_stopped_has_its_workload_stopped_hard_at_once_also_in_a_drain() {
    let (mut bench, lease) = Bench::running(options(Restart::Always));
    bench.node.drain_worker(bench.now, bench.worker).expect("known");
    bench.news();
    bench.node.stop_worker(bench.now, bench.worker).expect("known");
    assert_eq!(stops(&bench.news()), [hard(lease, StopReason::Drain)]);
    bench.node.stop_worker(bench.now, bench.worker).expect("known");
    assert!(stops(&bench.news()).is_empty());
    assert!(ended(&bench.exit(lease, Exit::Failed)));
}

#[test]
fn a_shutdown_drains_the_workers() {
    let (mut bench, lease) = Bench::running(options(Restart::Always));
    bench.node.shutdown(bench.now);
    let news = bench.news();
    assert_eq!(news, [Output::Command(Command::DrainWorkload { lease, why: StopReason::Drain })]);
    let name = LeaseName::new("more").expect("a fine name");
    let refused = bench.node.start_worker(bench.now, name, options(Restart::Always));
    assert_eq!(refused, Err(Misuse::ShuttingDown));
    assert!(ended(&bench.exit(lease, Exit::Completed)));

    let mut bench = Bench::new(options(Restart::Always));
    bench.node.shutdown(bench.now);
    assert!(ended(&bench.news()), "its candidacy ends");
}

#[test]
fn a_maximum_hold_passes_the_work_on_and_the_worker_campaigns_again() {
    let mut options = options(Restart::OnFailure);
    options.lease.max_hold = Some(Duration::from_secs(60));
    let (mut bench, lease) = Bench::running(options);
    let drain = Output::Command(Command::DrainWorkload { lease, why: StopReason::MaxHold });
    bench.until(|output| (*output == drain).then_some(()));
    let (rest, _) = bench.rest(lease, Exit::Completed);
    assert!(rest <= FIRST, "{rest:?}");
}

#[test]
fn a_workload_that_outlives_its_maximum_hold_is_abandoned_and_not_started_beside_itself() {
    let mut options = options(Restart::Always);
    options.lease.max_hold = Some(Duration::from_secs(60));
    let (mut bench, lease) = Bench::running(options);
    bench.until(|output| {
        let abandoned = LossReason::Abandoned;
        matches!(output, Output::Notice(Notice::Lost { why, .. }) if *why == abandoned).then_some(())
    });
    let before = bench.outputs.len();
    bench.now = bench.now + Duration::from_secs(3600);
    bench.handle(Event::Timeout);
    assert!(starts(&bench.outputs[before..]).is_empty());
    let (_, next) = bench.rest(lease, Exit::Failed);
    assert_ne!(next, lease);
}

#[test]
fn a_key_of_something_else_is_misuse_and_changes_nothing() {
    let (mut bench, lease) = Bench::running(options(Restart::Always));
    let before = bench.node.clone();
    let now = bench.now;
    for wrong in [WorkerKey(0), WorkerKey(lease.0), WorkerKey(99)] {
        assert_eq!(bench.node.drain_worker(now, wrong), Err(Misuse::UnknownWorker(wrong)));
        assert_eq!(bench.node.stop_worker(now, wrong), Err(Misuse::UnknownWorker(wrong)));
    }
    let wrong = LeaseKey(bench.worker.0);
    assert_eq!(bench.node.release(now, wrong), Err(Misuse::UnknownLease(wrong)));
    let id = CommandId { machine: bench.worker.0, sequence: 0 };
    let reply = Event::Reply { id, reply: Reply::Renewed };
    assert_eq!(bench.node.handle(now, reply), Err(Misuse::UnknownCommand(id)));
    assert_eq!(bench.node, before);
}

#[test]
fn a_refusal_that_comes_with_a_drain_is_not_followed_by_another_candidacy() {
    for shutdown in [false, true] {
        let mut bench = Bench::new(options(Restart::Always));
        let (id, _) = bench.attempt();
        let reply = Reply::Failed(Failure::Refused);
        bench.node.handle(bench.now, Event::Reply { id, reply }).expect("no misuse");
        // The driver has not polled since.
        if shutdown {
            bench.node.shutdown(bench.now);
        } else {
            bench.node.drain_worker(bench.now, bench.worker).expect("known");
        }
        assert!(ended(&bench.news()), "{:?}", bench.outputs);
        assert!(bench.node.is_empty());
    }
}

#[test]
fn a_lease_that_was_given_back_and_is_forgotten_before_the_start_was_polled_starts_nothing() {
    let mut bench = Bench::new(options(Restart::Always));
    let (id, lease) = bench.attempt();
    let reply = Reply::Granted { token: Token::new(1) };
    bench.node.handle(bench.now, Event::Reply { id, reply }).expect("no misuse");
    // Somebody gives the worker's lease back, twice, the second time long after its record is over.
    bench.node.release(bench.now, lease).expect("known");
    bench.now = bench.now + Duration::from_secs(3600);
    bench.node.release(bench.now, lease).expect("known");
    let news = bench.news();
    assert!(starts(&news).is_empty() && news.contains(&Output::Notice(Notice::Ended { lease })), "{news:?}");
    bench.token = 1;
    bench.run();
}

#[test]
fn a_run_that_ended_by_its_own_clock_counts_as_stopped_though_the_core_has_not_stopped_it() {
    let table = [(Restart::Always, true), (Restart::OnFailure, true), (Restart::Never, false)];
    for (when, again) in table {
        let (mut bench, lease) = Bench::running(options(when));
        let news = bench.exit(lease, Exit::Stopped);
        assert_eq!(ended(&news), !again, "{when:?}");
        assert_eq!(releases(&news), [lease]);
        let failures = news.iter().find_map(|output| match output {
            Output::Notice(Notice::Restarting { failures, .. }) => Some(*failures),
            _ => None,
        });
        assert_eq!(failures, again.then_some(0));
    }
}

#[test]
fn a_worker_whose_candidacy_is_given_up_by_its_key_campaigns_again_unless_it_is_drained() {
    let mut bench = Bench::new(options(Restart::Always));
    let (_, lease) = bench.attempt();
    bench.node.release(bench.now, lease).expect("known");
    assert!(!ended(&bench.news()), "it never gives up by itself");
    let next = bench.run();
    assert_ne!(next, lease);
}
