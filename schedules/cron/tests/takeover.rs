//! A zoned job whose instance has died: whoever comes next computes in the zone that the store keeps.

use tenure_core::{
    AnySchedule, Command, Event, Every, Identity, Incarnation, Instant, Node, Notice, Output, SplitMix, Tick,
    TimerName, TimerOptions, TimerView, Timestamp,
};
use tenure_cron::{Cron, schedules};

fn at(text: &str) -> Timestamp {
    let instant: jiff::Timestamp = text.parse().expect("a fine instant");
    Timestamp::from_nanos(i64::try_from(instant.as_nanosecond()).expect("this century"))
}

/// The record that the one before has left: the job ran last on the 30th of June, and the store's clock says ten in the
/// evening of the 1st of July, midnight in Berlin.
fn record() -> (TimerView, Timestamp) {
    let last = at("2026-06-30T23:30:00Z");
    let n = u64::try_from(last.as_nanos() / 1_000_000_000).expect("after 1970");
    let view = TimerView {
        revision: 1,
        base: Tick { n: 0, at: at("2026-06-01T12:00:00Z") },
        schedule: "cron Europe/Berlin 30 1 * * *".into(),
        next: None,
        last: n,
        claimed: n,
        unfinished: Vec::new(),
    };
    (view, at("2026-07-01T22:00:00Z"))
}

/// What the successor says until this instant, its first request answered.
fn told(options: TimerOptions, until: Instant) -> (Vec<Notice>, Vec<Command>) {
    let identity = Identity::new("next", Incarnation::new(1)).expect("a fine name");
    let mut node = Node::new(identity, SplitMix::new(1));
    let name = TimerName::new("nightly").expect("a fine name");
    node.start_timer(Instant::ZERO, name, options).expect("not shutting down");
    let (mut notices, mut commands, mut answered) = (Vec::new(), Vec::new(), false);
    loop {
        match node.poll() {
            Output::Notice(notice) => notices.push(notice),
            Output::Command(Command::ReadTimer { id, .. }) if !answered => {
                answered = true;
                let (view, at) = record();
                node.handle(Instant::ZERO, Event::TimerRead { id, view, at }).expect("it fits");
            }
            Output::Command(command) => commands.push(command),
            Output::Wait(Some(at)) if at <= until => node.handle(at, Event::Timeout).expect("never misuse"),
            Output::Wait(_) => return (notices, commands),
        }
    }
}

fn seconds(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn the_next_instance_waits_for_half_past_one_in_berlin() {
    let options = || {
        let mut options =
            TimerOptions::new(Cron::new("30 1 * * *", "Europe/Berlin").expect("a fine schedule"));
        options.parse = schedules;
        options
    };
    let ticks = |until| {
        let (notices, commands) = told(options(), until);
        assert!(
            !commands.iter().any(|command| matches!(command, Command::ChangeTimer { .. })),
            "nothing is new"
        );
        let tick = |notice: &Notice| match notice {
            Notice::Ticked { due, .. } => Some((due.tick.at, due.missed)),
            _ => None,
        };
        notices.iter().filter_map(tick).collect::<Vec<_>>()
    };
    assert_eq!(ticks(seconds(5_000)), [], "in UTC it would be due at once");
    assert_eq!(ticks(seconds(6_000)), [(at("2026-07-01T23:30:00Z"), 0)]);
}

#[test]
fn who_registers_another_schedule_takes_over_at_the_next_tick_in_the_zone_of_the_old_one() {
    let every: AnySchedule = Every::new(core::time::Duration::from_secs(60)).expect("a fine period").into();
    let mut options = TimerOptions::new(every);
    options.parse = schedules;
    let (_, commands) = told(options, seconds(1));
    let staged = commands.iter().find_map(|command| match command {
        Command::ChangeTimer { change: tenure_core::TimerChange::Stage { at, schedule }, .. } => {
            Some((at.at, schedule.text().to_owned()))
        }
        _ => None,
    });
    assert_eq!(staged, Some((at("2026-07-01T23:30:00Z"), "every 60s".to_owned())));
}
