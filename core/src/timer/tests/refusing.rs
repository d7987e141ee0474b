//! Settings that are refused.

use alloc::string::{String, ToString};

use super::*;
use crate::time::Rate;

fn refusal(change: impl FnOnce(&mut TimerOptions)) -> String {
    let mut options = seconds(1);
    options.check().expect("the defaults fit");
    change(&mut options);
    options.check().expect_err("it breaks a rule").to_string()
}

#[test]
fn a_drift_with_which_no_clock_can_be_told_from_another_is_refused() {
    let said = refusal(|options| options.drift = Rate::from_ppm(2_000_000));
    assert_eq!(said, "drift is 2000000 ppm, but it must be at most 200000 ppm");
    let said = refusal(|options| options.clock.drift = Rate::from_ppm(1_000_000));
    assert_eq!(said, "store drift is 1000000 ppm, but it must be at most 200000 ppm");
}

#[test]
fn a_timeout_and_a_limit_of_lateness_that_nothing_can_meet_are_refused() {
    let said = refusal(|options| options.timeout = Duration::ZERO);
    assert!(said.starts_with("timeout is 0s, but it must be at least 1ms"), "{said}");
    let said = refusal(|options| options.late_limit = Some(Duration::ZERO));
    assert!(said.starts_with("late_limit is 0s, but it must be at least 20ms"), "{said}");
}

/// A schedule of a long text.
#[derive(Debug)]
struct Verbose(String);

impl Schedule for Verbose {
    fn text(&self) -> &str {
        &self.0
    }

    fn next(&self, _: Tick, _: Timestamp) -> Option<Tick> {
        None
    }

    fn latest(&self, base: Tick, until: Timestamp) -> Option<Tick> {
        (base.at <= until).then_some(base)
    }

    fn at(&self, base: Tick, _: u64) -> Timestamp {
        base.at
    }

    fn count(&self, _: Tick, _: u64, _: u64) -> u64 {
        0
    }

    fn tolerance(&self) -> Duration {
        Duration::ZERO
    }

    fn rebases(&self) -> bool {
        true
    }
}

#[test]
fn a_schedule_whose_text_no_store_keeps_is_refused() {
    let of = |bytes: usize| AnySchedule::new(Verbose("x".repeat(bytes)));
    let said = refusal(|options| options.schedule = of(256));
    assert!(said.ends_with("but it must be at most 255 bytes long as text"), "{said}");
    assert_eq!(TimerOptions::new(of(255)).check(), Ok(()));
}

#[test]
fn a_schedule_without_a_next_tick_waits_and_looks_for_another_now_and_then() {
    let mut world = World::with(TimerOptions::new(AnySchedule::new(Verbose("never".to_string()))));
    world.run_to(HOUR + MINUTE);
    assert_eq!(world.numbers(0), []);
    assert_eq!(world.store.asked.len(), 7);
}
