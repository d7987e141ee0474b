//! What the fleets found in the machines of timers, each in its smallest form.

use std::time::Duration;

use tenure_core::{
    Command, Event, Every, Identity, Incarnation, Instant, Node, Output, SplitMix, Tick, TimerChange,
    TimerName, TimerOptions, TimerView, Timestamp,
};

/// Else no tick comes before the clock has made up for the step, however far that was.
#[test]
fn a_timer_whose_very_base_lies_ahead_of_a_clock_that_was_set_back_is_based_anew() {
    let identity = Identity::new("node", Incarnation::new(1)).expect("a fine name");
    let mut node = Node::new(identity, SplitMix::new(1));
    let every = Every::new(Duration::from_secs(1)).expect("a period that fits");
    let (now, name) = (Instant::from_nanos(1), TimerName::new("t").expect("a fine name"));
    node.start_timer(now, name, TimerOptions::new(every)).expect("it is not shutting down");
    let Output::Command(Command::ReadTimer { id, .. }) = node.poll() else { panic!("it asks at once") };
    let base = Tick { n: 7, at: Timestamp::from_nanos(100_000_000_000) };
    let schedule = "every 1s".into();
    let view = TimerView { revision: 3, base, schedule, next: None, last: 7, claimed: 7, unfinished: vec![] };
    let at = Timestamp::from_nanos(40_000_000_000);
    node.handle(now, Event::TimerRead { id, view, at }).expect("it is an answer");
    let rebases = |output: Output| {
        matches!(
            output,
            Output::Command(Command::ChangeTimer {
                revision: 3,
                change: TimerChange::Rebase { last: 7 },
                ..
            })
        )
    };
    assert!((0..5).any(|_| rebases(node.poll())));
}
