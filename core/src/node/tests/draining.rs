//! The drain of a whole instance: by the program, by an operator, by both, and taken back.

use super::claims::Bench;
use super::members::{Fleet, count, notices, told};
use super::timers::{every, timer_name};
use super::*;
use crate::periodic::PeriodicOptions;
use crate::timer::TickMiss;

const BY_PROGRAM: Notice = Notice::Draining { by_operator: false };
const BY_OPERATOR: Notice = Notice::Draining { by_operator: true };

fn worker_options() -> WorkerOptions {
    WorkerOptions::new(options())
}

fn is_acquire(command: &Command) -> bool {
    matches!(command, Command::Acquire { .. })
}

fn is_drain(command: &Command) -> bool {
    matches!(command, Command::DrainWorkload { .. })
}

fn is_start(command: &Command) -> bool {
    matches!(command, Command::StartWorkload { .. })
}

fn place(outputs: &[Output], of: impl Fn(&Output) -> bool) -> usize {
    outputs.iter().position(of).unwrap_or_else(|| panic!("it was to be said: {outputs:?}"))
}

#[test]
fn a_drain_is_told_before_any_work_is_asked_to_end_and_its_end_once_nothing_is_held() {
    let mut fleet = Fleet::new();
    let guard = fleet.node.acquire(ms(0), name("guard"), options()).expect("fine");
    fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    fleet.settle();
    fleet.node.drain_all(ms(10));
    assert!(fleet.node.is_draining());
    let outputs = fleet.settle();
    assert_eq!((told(&outputs, &BY_PROGRAM), count(&outputs, is_drain)), (1, 2));
    let first = place(&outputs, |o| matches!(o, Output::Command(command) if is_drain(command)));
    assert!(place(&outputs, |o| *o == Output::Notice(BY_PROGRAM)) < first);
    let says = |c: &Command| matches!(c, Command::Heartbeat { draining: true, .. });
    assert_eq!(count(&outputs, says), 1);
    // Harmless when repeated.
    fleet.node.drain_all(ms(10));
    assert_eq!(fleet.settle(), []);
    assert_eq!(told(&fleet.work_ends(Exit::Completed), &Notice::Drained), 0, "the guard is still held");
    fleet.node.release(fleet.now, guard).expect("known");
    let outputs = fleet.settle();
    assert_eq!(told(&outputs, &Notice::Drained), 1);
    assert_eq!(outputs.last(), Some(&Output::Notice(Notice::Drained)));
    // It stays a member, one that drains, and says so once.
    let outputs = fleet.to(ms(600_000));
    assert_eq!((told(&outputs, &Notice::Drained), count(&outputs, is_acquire)), (0, 0));
    assert!(fleet.own.as_ref().is_some_and(|own| own.draining));
}

#[test]
fn a_drain_without_a_grace_stops_everything_hard_also_what_drains_already() {
    let is_hard = |c: &Command| matches!(c, Command::StopWorkload { how: Stop::Hard, .. });
    for drains in [false, true] {
        let mut fleet = Fleet::new();
        fleet.node.acquire(ms(0), name("guard"), options()).expect("fine");
        fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
        fleet.settle();
        if drains {
            fleet.node.drain_all(ms(5));
            assert_eq!(count(&fleet.settle(), is_hard), 0);
        }
        fleet.node.stop_all(ms(10));
        let outputs = fleet.settle();
        assert_eq!(count(&outputs, is_hard), 2);
        assert_eq!(told(&outputs, &BY_PROGRAM), usize::from(!drains));
        fleet.node.stop_all(ms(20));
        assert_eq!(count(&fleet.settle(), is_hard), 0, "harmless when repeated");
    }
}

#[test]
fn the_drain_of_an_idle_instance_is_over_at_once_and_needs_no_members() {
    let mut node = node();
    node.drain_all(ms(0));
    assert_eq!(drain(&mut node), [Output::Notice(BY_PROGRAM), Output::Notice(Notice::Drained)]);
    node.resume(ms(1));
    assert_eq!(drain(&mut node), [Output::Notice(Notice::Resumed)]);
    node.resume(ms(1));
    assert_eq!(drain(&mut node), []);
    node.drain_all(ms(2));
    assert_eq!(drain(&mut node), [Output::Notice(BY_PROGRAM), Output::Notice(Notice::Drained)], "once each");
}

#[test]
fn while_it_lasts_a_new_candidacy_fails_at_once_and_the_store_is_not_asked() {
    let (mut node, held) = holder();
    node.drain_all(ms(2));
    drain(&mut node);
    for free in ["other", "backup"] {
        let key = node.acquire(ms(3), name(free), options()).expect("it fails later");
        let outputs = drain(&mut node);
        assert_eq!(failures(&outputs), [(key, AcquireFailure::Draining)]);
        assert_eq!(commands(&outputs), []);
        assert_eq!(outputs.last(), Some(&Output::Notice(Notice::Ended { lease: key })));
    }
    node.release(ms(4), held).expect("known");
    let id = release_of(&drain(&mut node), held);
    let outputs = reply(&mut node, ms(5), id, Reply::Released { others_chosen: false });
    assert_eq!(outputs.last(), Some(&Output::Notice(Notice::Drained)));
    node.resume(ms(6));
    let key = node.acquire(ms(6), name("other"), options()).expect("fine");
    attempt(&drain(&mut node), key);
}

#[test]
fn candidates_that_queue_do_not_come_to_their_turn_because_those_before_them_leave() {
    let mut node = node();
    // Workers and guards in turn, for one name.
    let first = node.acquire(ms(0), name("backup"), options()).expect("fine");
    for _ in 0..3 {
        node.start_worker(ms(0), name("backup"), worker_options()).expect("fine");
        node.acquire(ms(0), name("backup"), options()).expect("fine");
    }
    attempt(&drain(&mut node), first);
    node.drain_all(ms(1));
    let outputs = drain(&mut node);
    assert_eq!(count(&outputs, is_acquire), 0, "{outputs:?}");
    let failed = failures(&outputs);
    assert_eq!(failed.len(), 7);
    assert!(failed.iter().all(|(_, why)| *why == AcquireFailure::Draining), "{failed:?}");
}

#[test]
fn a_worker_waits_until_the_drain_is_over_and_then_goes_on_at_once() {
    let mut fleet = Fleet::new();
    let worker = fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    fleet.settle();
    fleet.node.drain_all(ms(10));
    fleet.settle();
    let outputs = fleet.work_ends(Exit::Completed);
    assert_eq!(told(&outputs, &Notice::WorkerEnded { worker }), 0, "it only waits");
    let late = fleet.node.start_worker(ms(10), name("late"), worker_options()).expect("it waits");
    let outputs = fleet.to(ms(300_000));
    assert_eq!((count(&outputs, is_acquire), count(&outputs, is_start)), (0, 0));
    fleet.node.resume(fleet.now);
    let outputs = fleet.settle();
    assert_eq!(told(&outputs, &Notice::Resumed), 1);
    assert_eq!(fleet.running(), ["late", "w"]);
    assert!(fleet.working.values().all(|it| *it == worker || *it == late));
}

#[test]
fn a_worker_that_is_told_to_go_on_while_its_work_still_ends_follows_after_the_shortest_rest() {
    let mut fleet = Fleet::new();
    fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    fleet.settle();
    fleet.node.drain_all(ms(10));
    fleet.settle();
    fleet.node.resume(ms(20));
    assert_eq!(count(&fleet.settle(), is_start), 0);
    let outputs = fleet.work_ends(Exit::Stopped);
    assert_eq!(told(&outputs, &Notice::Drained), 0, "it drains no more");
    let outputs = fleet.after(Duration::from_secs(1));
    assert_eq!(count(&outputs, is_start), 1);
}

#[test]
fn a_candidacy_that_the_drain_has_ended_counts_as_no_failure() {
    let mut fleet = Fleet::new();
    fleet.grants = false;
    fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    fleet.settle();
    fleet.node.drain_all(ms(10));
    fleet.node.resume(ms(10));
    let outputs = fleet.settle();
    let restarts = notices(&outputs).into_iter().find_map(|notice| match notice {
        Notice::Restarting { failures, at, .. } => Some((*failures, *at)),
        _ => None,
    });
    let (failures, at) = restarts.expect("it campaigns again");
    assert_eq!(failures, 0);
    assert!(at <= ms(1_010), "{at:?}");
}

#[test]
fn a_grant_that_comes_after_the_drain_has_begun_goes_back() {
    let mut fleet = Fleet::new();
    fleet.grants = false;
    fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    let outputs = fleet.settle();
    let id = commands(&outputs).iter().find(|c| is_acquire(c)).and_then(Command::id).expect("an attempt");
    fleet.node.drain_all(ms(10));
    fleet.settle();
    fleet.node.handle(ms(20), Event::Reply { id, reply: GRANTED }).expect("it fits");
    let outputs = fleet.settle();
    let gives_back =
        |c: &Command| matches!(c, Command::Release { token: Some(token), .. } if token.get() == 10);
    assert_eq!((count(&outputs, gives_back), count(&outputs, is_start)), (1, 0), "{outputs:?}");
}

#[test]
fn what_was_granted_and_not_yet_polled_is_not_started() {
    let mut fleet = Fleet::new();
    fleet.grants = false;
    fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    let outputs = fleet.settle();
    let id = commands(&outputs).iter().find(|c| is_acquire(c)).and_then(Command::id).expect("an attempt");
    fleet.node.handle(ms(20), Event::Reply { id, reply: GRANTED }).expect("it fits");
    fleet.node.drain_all(ms(20));
    fleet.grants = true;
    let outputs = fleet.settle();
    assert_eq!((count(&outputs, is_start), count(&outputs, is_drain)), (0, 0), "{outputs:?}");
    assert_eq!(told(&outputs, &Notice::Drained), 1);
    fleet.node.resume(ms(30));
    fleet.after(Duration::from_secs(1));
    assert_eq!(fleet.running(), ["w"]);
}

#[test]
fn a_paused_worker_whose_lease_is_lost_waits_like_any_other() {
    let mut fleet = Fleet::new();
    let worker = fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    fleet.settle();
    fleet.node.drain_all(ms(10));
    fleet.settle();
    fleet.grants = false;
    let outputs = fleet.to(ms(60_000));
    assert!(notices(&outputs).iter().any(|notice| matches!(notice, Notice::Lost { .. })), "{outputs:?}");
    assert_eq!(told(&outputs, &Notice::Drained), 0, "it has not ended");
    let outputs = fleet.work_ends(Exit::Stopped);
    assert_eq!(told(&outputs, &Notice::WorkerEnded { worker }), 0);
    fleet.grants = true;
    let outputs = fleet.to(ms(120_000));
    assert_eq!((told(&outputs, &Notice::Drained), count(&outputs, is_acquire)), (1, 0));
    fleet.node.resume(fleet.now);
    fleet.settle();
    assert_eq!(fleet.running(), ["w"]);
}

#[test]
fn a_worker_that_is_ended_while_it_waits_ends() {
    let mut node = node();
    node.drain_all(ms(0));
    let worker = node.start_worker(ms(0), name("w"), worker_options()).expect("it waits");
    drain(&mut node);
    node.drain_worker(ms(1), worker).expect("known");
    assert_eq!(drain(&mut node), [Output::Notice(Notice::WorkerEnded { worker })]);
}

#[test]
fn an_operators_drain_is_heard_with_the_next_heartbeat_and_taken_back_likewise() {
    let mut fleet = Fleet::new();
    fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    fleet.settle();
    let outputs = fleet.mark(true);
    assert_eq!((told(&outputs, &BY_OPERATOR), count(&outputs, is_drain)), (1, 1));
    assert!(fleet.own.as_ref().is_some_and(|own| !own.draining), "the store knows of the mark by itself");
    let outputs = fleet.work_ends(Exit::Stopped);
    assert_eq!(told(&outputs, &Notice::Drained), 1);
    let outputs = fleet.after(Duration::from_secs(60));
    assert_eq!((told(&outputs, &Notice::Drained), count(&outputs, is_acquire)), (0, 0));
    let outputs = fleet.mark(false);
    assert_eq!((told(&outputs, &Notice::Resumed), count(&outputs, is_start)), (1, 1));
}

#[test]
fn it_drains_for_as_long_as_the_program_or_an_operator_wants_it() {
    let mut fleet = Fleet::new();
    let mut all = fleet.mark(true);
    fleet.node.drain_all(fleet.now);
    all.extend(fleet.settle());
    fleet.node.resume(fleet.now);
    all.extend(fleet.settle());
    assert!(fleet.node.is_draining());
    fleet.node.drain_all(fleet.now);
    all.extend(fleet.settle());
    all.extend(fleet.mark(false));
    assert!(fleet.node.is_draining());
    assert_eq!((told(&all, &BY_OPERATOR), told(&all, &BY_PROGRAM), told(&all, &Notice::Drained)), (1, 0, 1));
    assert_eq!(told(&all, &Notice::Resumed), 0);
    fleet.node.resume(fleet.now);
    assert_eq!(told(&fleet.settle(), &Notice::Resumed), 1);
    // Both at once, the program first.
    fleet.node.drain_all(fleet.now);
    let mut all = fleet.mark(true);
    fleet.node.resume(fleet.now);
    all.extend(fleet.settle());
    all.extend(fleet.mark(false));
    assert_eq!((told(&all, &BY_PROGRAM), told(&all, &BY_OPERATOR), told(&all, &Notice::Resumed)), (1, 0, 1));
}

#[test]
fn an_instance_that_joins_while_it_drains_says_so_from_the_beginning() {
    let mut node = node();
    node.drain_all(ms(0));
    node.join(ms(0), Default::default()).expect("fine");
    let mut fleet = Fleet::around(node);
    fleet.settle();
    assert!(fleet.own.as_ref().is_some_and(|own| own.draining));
}

#[test]
fn a_shutdown_during_a_drain_still_tells_its_end_and_nothing_goes_on_any_more() {
    let mut fleet = Fleet::new();
    let worker = fleet.node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    fleet.settle();
    fleet.node.drain_all(ms(10));
    fleet.settle();
    fleet.node.shutdown(ms(20));
    fleet.node.resume(ms(20));
    let mut outputs = fleet.settle();
    outputs.extend(fleet.work_ends(Exit::Completed));
    outputs.extend(fleet.after(Duration::from_secs(1)));
    assert_eq!(told(&outputs, &Notice::Drained), 1);
    assert_eq!(told(&outputs, &Notice::WorkerEnded { worker }), 1);
    assert_eq!((told(&outputs, &Notice::Left), told(&outputs, &Notice::Resumed)), (1, 0));
    let drained = place(&outputs, |o| *o == Output::Notice(Notice::Drained));
    assert!(drained < place(&outputs, |o| *o == Output::Notice(Notice::Left)));
    assert!(fleet.node.is_empty());
}

#[test]
fn a_shutdown_tells_of_no_drain_that_nobody_asked_for() {
    let mut fleet = Fleet::new();
    fleet.node.shutdown(ms(0));
    let outputs = fleet.settle();
    assert_eq!(told(&outputs, &Notice::Drained), 0, "{outputs:?}");
}

#[test]
fn a_worker_that_waits_for_the_end_of_a_drain_ends_with_a_shutdown() {
    let mut node = node();
    let worker = node.start_worker(ms(0), name("w"), worker_options()).expect("fine");
    node.drain_all(ms(0));
    node.shutdown(ms(1));
    let outputs = drain(&mut node);
    assert_eq!(told(&outputs, &Notice::WorkerEnded { worker }), 1, "{outputs:?}");
    assert!(node.is_empty());
}

/// Delivers the first tick of a job.
fn job(lease: Option<LeaseName>) -> (Bench, Vec<Output>) {
    let mut options = PeriodicOptions::new(every(1_000), options());
    options.lease = lease;
    let mut bench = Bench::new(options);
    let outputs = bench.to(1_050);
    (bench, outputs)
}

fn is_claim(command: &Command) -> bool {
    matches!(command, Command::ClaimTick { .. })
}

fn skipped(outputs: &[Output], tick: u64) -> Vec<TickMiss> {
    let of = |notice: &&Notice| match notice {
        Notice::TickSkipped { tick: n, why, .. } if *n == tick => Some(*why),
        _ => None,
    };
    notices(outputs).iter().filter_map(of).collect()
}

#[test]
fn a_job_claims_nothing_while_the_instance_drains_and_tells_which_ticks_it_leaves_to_others() {
    let (mut bench, outputs) = job(None);
    assert_eq!(count(&outputs, is_claim), 1);
    bench.node.drain_all(bench.now);
    let outputs = bench.to(3_050);
    assert_eq!(count(&outputs, is_claim), 0, "{outputs:?}");
    for tick in [1, 2, 3] {
        assert_eq!(skipped(&outputs, tick), [TickMiss::Draining], "{outputs:?}");
    }
    // The claim that was under way goes back before another one is sent.
    let finish = commands(&outputs).into_iter().find(|c| matches!(c, Command::FinishTick { .. }));
    let id = finish.and_then(|command| command.id()).expect("it may have been granted");
    bench.reply(id, Reply::NotYours);
    bench.node.resume(bench.now);
    let outputs = bench.to(4_050);
    assert_eq!(count(&outputs, is_claim), 1, "{outputs:?}");
}

#[test]
fn a_tick_that_another_instance_runs_is_not_told_of_as_left_to_others() {
    let mut options = PeriodicOptions::new(every(1_000), options());
    options.attempts = 2;
    let mut bench = Bench::new(options);
    let outputs = bench.to(1_050);
    let id = commands(&outputs).into_iter().find(is_claim).and_then(|command| command.id());
    bench.reply(id.expect("a claim"), BUSY);
    bench.node.drain_all(bench.now);
    let outputs = bench.to(1_060);
    assert_eq!(skipped(&outputs, 1), [], "{outputs:?}");
}

#[test]
fn a_job_that_is_made_while_the_instance_drains_waits_for_its_end() {
    let mut node = node();
    node.drain_all(ms(0));
    drain(&mut node);
    node.start_periodic(ms(0), timer_name("late"), PeriodicOptions::new(every(1_000), options()))
        .expect("it waits");
    let outputs = drain(&mut node);
    assert!(matches!(commands(&outputs)[..], [Command::ReadTimer { .. }]), "{outputs:?}");
}

#[test]
fn under_a_lease_that_is_to_be_given_back_nothing_is_claimed() {
    let (mut bench, outputs) = job(Some(name("exclusive")));
    let id = commands(&outputs).iter().find(|c| is_acquire(c)).and_then(Command::id).expect("an attempt");
    bench.node.handle(bench.now, Event::Reply { id, reply: GRANTED }).expect("it fits");
    bench.node.drain_all(bench.now);
    let outputs = bench.to(1_060);
    assert_eq!((count(&outputs, is_claim), count(&outputs, is_start)), (0, 0), "{outputs:?}");
    assert_eq!(skipped(&outputs, 1), [TickMiss::Draining], "{outputs:?}");
    let releases = |c: &Command| matches!(c, Command::Release { token: Some(_), .. });
    assert_eq!(count(&outputs, releases), 1, "{outputs:?}");
}

#[test]
fn a_run_may_come_to_its_end_and_its_tick_is_finished() {
    let (mut bench, outputs) = job(None);
    let id = commands(&outputs).iter().find(|c| is_claim(c)).and_then(Command::id).expect("a claim");
    let outputs = bench.grant(id);
    let [Command::StartWorkload { lease, .. }] = commands(&outputs)[..] else { panic!("{outputs:?}") };
    bench.node.drain_all(bench.now);
    let outputs = bench.to(1_060);
    assert_eq!(count(&outputs, is_drain), 1);
    let outputs = bench.over(lease, Exit::Completed);
    assert_eq!(told(&outputs, &Notice::Drained), 1, "{outputs:?}");
    assert_eq!(skipped(&outputs, 1), []);
}
