//! What the node adds to its timers.

use super::*;
use crate::name::{TimerKey, TimerName};
use crate::periodic::PeriodicOptions;
use crate::schedule::{AnySchedule, Every, Tick};
use crate::time::{Rate, Timestamp};
use crate::timer::{TimerEnd, TimerOptions, TimerView};

/// The middle of 2023.
const NOON: i64 = 1_688_212_800_000_000_000;

pub(super) fn timer_name(text: &str) -> TimerName {
    TimerName::new(text).expect("a fine name")
}

pub(super) fn every(millis: u64) -> TimerOptions {
    let schedule: AnySchedule = Every::new(Duration::from_millis(millis)).expect("a fine period").into();
    TimerOptions::new(schedule)
}

/// The store's wall clock at an instant of ours: they go together.
pub(super) fn wall(now: Instant) -> Timestamp {
    Timestamp::from_nanos(NOON + now.as_nanos() as i64)
}

/// A record that was made at the beginning.
pub(super) fn record(schedule: &str, claimed: u64, unfinished: &[u64]) -> TimerView {
    TimerView {
        revision: 1,
        base: Tick { n: 0, at: wall(ms(0)) },
        schedule: schedule.into(),
        next: None,
        last: claimed,
        claimed,
        unfinished: unfinished.to_vec(),
    }
}

/// The id of the only request of a timer.
pub(super) fn request(outputs: &[Output]) -> CommandId {
    let of_timer = |command: &Command| match command {
        Command::ReadTimer { id, .. } | Command::ChangeTimer { id, .. } => Some(*id),
        _ => None,
    };
    let ids: Vec<_> = commands(outputs).iter().filter_map(of_timer).collect();
    let [id] = ids[..] else { panic!("one request of a timer, not {outputs:?}") };
    id
}

pub(super) fn read(node: &mut Node<SplitMix>, now: Instant, id: CommandId, view: TimerView) -> Vec<Output> {
    let at = wall(now);
    node.handle(now, Event::TimerRead { id, view, at }).expect("the answer fits");
    drain(node)
}

/// A node with a timer of a second that was read.
fn ticking() -> (Node<SplitMix>, TimerKey) {
    let mut node = node();
    let key = node.start_timer(ms(0), timer_name("pulse"), every(1_000)).expect("not shutting down");
    let id = request(&drain(&mut node));
    assert_eq!(read(&mut node, ms(0), id, record("every 1s", 0, &[])), []);
    (node, key)
}

fn ticks(outputs: &[Output]) -> Vec<u64> {
    let tick = |output: &Output| match output {
        Output::Notice(Notice::Ticked { due, .. }) => Some(due.tick.n),
        _ => None,
    };
    outputs.iter().filter_map(tick).collect()
}

fn ended(outputs: &[Output]) -> Vec<(TimerKey, TimerEnd)> {
    let end = |output: &Output| match output {
        Output::Notice(Notice::TimerEnded { timer, why }) => Some((*timer, *why)),
        _ => None,
    };
    outputs.iter().filter_map(end).collect()
}

#[test]
fn a_timer_is_known_by_its_name_and_schedule_until_its_end_was_polled() {
    let (mut node, key) = ticking();
    assert_eq!(node.timer_name(key), Some(&timer_name("pulse")));
    assert_eq!(node.timer_schedule(key).map(|schedule| schedule.text().len()), Some("every 1s".len()));
    assert_eq!((node.timer_periodic(key), node.len()), (None, 1));
    node.stop_timer(ms(10), key).expect("known");
    assert!(node.timer_name(key).is_some());
    assert_eq!(ended(&drain(&mut node)), [(key, TimerEnd::Stopped)]);
    assert_eq!((node.timer_name(key), node.timer_schedule(key)), (None, None));
    assert!(node.is_empty() && node.deadlines.is_empty() && node.ready.is_empty());
    node.stop_timer(ms(20), key).expect("ended, but known");
    assert_eq!(drain(&mut node), []);
}

#[test]
fn a_tick_that_was_due_when_the_timer_was_stopped_comes_before_its_end() {
    let (mut node, key) = ticking();
    node.stop_timer(ms(1_100), key).expect("known");
    let outputs = drain(&mut node);
    assert_eq!((ticks(&outputs), ended(&outputs)), (alloc::vec![1], alloc::vec![(key, TimerEnd::Stopped)]));
    assert!(matches!(outputs.last(), Some(Output::Notice(Notice::TimerEnded { .. }))), "{outputs:?}");
}

#[test]
fn answers_to_a_timer_that_has_ended_are_counted_and_no_misuse() {
    let mut node = node();
    let key = node.start_timer(ms(0), timer_name("pulse"), every(1_000)).expect("not shutting down");
    let id = request(&drain(&mut node));
    node.stop_timer(ms(1), key).expect("known");
    node.handle(ms(1), Event::Reply { id, reply: Reply::Failed(Failure::Unknown) }).expect("still there");
    drain(&mut node);
    assert_eq!(read(&mut node, ms(2), id, record("every 1s", 0, &[])), []);
    node.handle(ms(3), Event::Reply { id, reply: Reply::Failed(Failure::Unknown) }).expect("known");
    assert_eq!(node.counters().stale_replies, 3);
}

#[test]
fn answers_that_no_timer_can_have_are_misuse_and_change_nothing() {
    let (mut node, key) = ticking();
    let lease = node.acquire(ms(1), name("backup"), options()).expect("fine");
    let of_lease = attempt(&drain(&mut node), lease);
    let before = node.clone();
    let view = record("every 1s", 0, &[]);
    let sent = CommandId { machine: key.0, sequence: 0 };
    let unsent = CommandId { machine: key.0, sequence: 1 };
    let unmade = CommandId { machine: 99, sequence: 0 };
    for id in [unsent, unmade, of_lease] {
        let event = Event::TimerRead { id, view: view.clone(), at: wall(ms(1)) };
        assert_eq!(node.handle(ms(1), event), Err(Misuse::UnknownCommand(id)));
    }
    for reply in [GRANTED, BUSY, Reply::Renewed, Reply::NotYours, Reply::Watching, Reply::TickTaken] {
        let refused = node.handle(ms(1), Event::Reply { id: sent, reply });
        assert_eq!(refused, Err(Misuse::WrongReply { id: sent, reply }));
    }
    let unknown = TimerKey(99);
    assert_eq!(node.stop_timer(ms(1), unknown), Err(Misuse::UnknownTimer(unknown)));
    assert_eq!(node, before);
}

#[test]
fn settings_that_break_a_rule_make_no_timer() {
    let mut node = node();
    let mut bad = every(1_000);
    bad.drift = Rate::from_ppm(1_000_000);
    let refused = node.start_timer(ms(0), timer_name("pulse"), bad).expect_err("it breaks a rule");
    assert!(matches!(&refused, Misuse::Config(why) if why.field == "drift"), "{refused:?}");
    assert!(node.is_empty());
}

#[test]
fn time_that_runs_backwards_is_counted_with_answers_of_timers_too() {
    let (mut node, _) = ticking();
    node.handle(ms(970), Event::Timeout).expect("never misuse");
    let id = request(&drain(&mut node));
    assert_eq!(read(&mut node, ms(900), id, record("every 1s", 0, &[])), []);
    assert_eq!(node.counters().clock_backwards, 1);
    assert_eq!(node.now, ms(970));
}

#[test]
fn shutdown_ends_all_timers_each_once_and_takes_no_new_ones() {
    let (mut node, key) = ticking();
    let waiting = node.start_timer(ms(1), timer_name("other"), every(2_000)).expect("not shutting down");
    let id = request(&drain(&mut node));
    node.shutdown(ms(2));
    node.shutdown(ms(2));
    let mut ends = ended(&drain(&mut node));
    ends.sort_by_key(|(key, _)| *key);
    assert_eq!(ends, [(key, TimerEnd::Stopped), (waiting, TimerEnd::Stopped)]);
    assert!(node.is_empty() && node.deadlines.is_empty());
    assert_eq!(node.start_timer(ms(3), timer_name("late"), every(10)), Err(Misuse::ShuttingDown));
    assert_eq!(read(&mut node, ms(3), id, record("every 2s", 0, &[])), []);
}

#[test]
fn each_timer_of_a_node_has_its_own_ticks_in_the_order_in_which_they_are_due() {
    let mut node = node();
    let mut keys = Vec::new();
    for (text, millis) in [("a", 700), ("b", 300)] {
        keys.push(node.start_timer(ms(0), timer_name(text), every(millis)).expect("not shutting down"));
        let id = request(&drain(&mut node));
        let schedule = alloc::format!("every 0.{}s", millis / 100);
        read(&mut node, ms(0), id, record(&schedule, 0, &[]));
    }
    let mut seen = Vec::new();
    let mut now = ms(0);
    while now < ms(1_500) {
        let Output::Wait(Some(at)) = node.poll() else { panic!("something is due") };
        assert!(at > now);
        now = at;
        node.handle(now, Event::Timeout).expect("never misuse");
        let outputs = drain(&mut node);
        for output in &outputs {
            if let Output::Notice(Notice::Ticked { timer, due }) = output {
                seen.push((*timer, due.tick.n));
            }
        }
        for command in commands(&outputs) {
            let Command::ReadTimer { id, timer, .. } = command else { panic!("{command}") };
            let schedule = if timer == keys[0] { "every 0.7s" } else { "every 0.3s" };
            read(&mut node, now, id, record(schedule, 0, &[]));
        }
    }
    let (a, b) = (keys[0], keys[1]);
    assert_eq!(seen[..6], [(b, 1), (b, 2), (a, 1), (b, 3), (b, 4), (a, 2)]);
}

#[test]
fn nothing_is_said_of_the_timer_of_a_job_that_has_ended() {
    let mut node = node();
    let options = PeriodicOptions::new(every(1_000), options());
    let job = node.start_periodic(ms(0), timer_name("report"), options).expect("not shutting down");
    request(&drain(&mut node));
    // The request of its timer has just taken too long.
    node.drain_periodic(ms(2_000), job).expect("known");
    let outputs = drain(&mut node);
    let ended = Output::Notice(Notice::PeriodicEnded { periodic: job, why: TimerEnd::Stopped });
    assert_eq!(outputs, [ended]);
    assert!(node.is_empty());
}
