use std::time::Duration;

use tenure_core::{Acquisition, Identity, Incarnation, Instant, LeaseName};

use super::*;
use crate::Runtime;
use crate::testing::TestRuntime;

const SECOND: Duration = Duration::from_secs(1);

fn deadlines(fence_at: Instant) -> Deadlines {
    Deadlines { fence_at, kill_at: fence_at + SECOND, valid_until: fence_at + 2 * SECOND }
}

/// A hold for ten seconds that no driver knows of.
fn hold() -> (TestRuntime, Arc<Hold>) {
    let runtime = TestRuntime::new();
    let owner = Identity::new("test", Incarnation::new(1)).unwrap().owner(Acquisition(1));
    let end = deadlines(Runtime::now(&runtime) + 10 * SECOND);
    let subject = Subject::Lease(LeaseName::new("a").unwrap());
    let hold = Hold::new(subject, owner, Token::new(1), end, Arc::new(runtime.clone()));
    (runtime, Arc::new(hold))
}

#[test]
fn a_renewal_moves_the_end() {
    let (runtime, hold) = hold();
    runtime.advance(9 * SECOND);
    hold.renew(deadlines(Runtime::now(&runtime) + 10 * SECOND));
    runtime.advance(9 * SECOND);
    assert!(hold.is_valid());
    runtime.advance(SECOND);
    assert!(!hold.is_valid());
}

#[test]
fn a_renewal_does_not_revive_what_was_seen_as_over() {
    let (runtime, hold) = hold();
    runtime.advance(10 * SECOND);
    assert!(!hold.is_valid());
    let before = hold.deadlines();
    let later = deadlines(Runtime::now(&runtime) + 10 * SECOND);
    hold.renew(later);
    assert!(!hold.is_valid());
    assert_eq!(hold.look(), (Some(StopReason::Fence), Some(LostReason::Expired)));
    let now = hold.deadlines();
    assert_eq!(now.valid_until, later.valid_until, "it still tells how long nobody else can have the lease");
    assert_eq!((now.fence_at, now.kill_at), (before.fence_at, before.kill_at), "the stop is not put off");
}

#[test]
fn the_end_is_told_by_a_sleep_of_its_own_also_after_renewals() {
    let (runtime, hold) = hold();
    let mut ending = Ending::new(Arc::clone(&hold));
    let ended = Arc::new(Mutex::new(None));
    let (place, clock) = (Arc::clone(&ended), runtime.clone());
    runtime.spawn(Box::pin(async move {
        let why = std::future::poll_fn(|cx| ending.poll_for(cx, |_, over| over)).await;
        *place.lock().unwrap() = Some((why, Runtime::now(&clock)));
    }));
    let began = Runtime::now(&runtime);
    for _ in 0..3 {
        runtime.advance(9 * SECOND);
        hold.renew(deadlines(Runtime::now(&runtime) + 10 * SECOND));
    }
    runtime.advance(20 * SECOND);
    assert_eq!(*ended.lock().unwrap(), Some((LostReason::Expired, began + 37 * SECOND)));
    assert_eq!(runtime.sleepers(), 0);
}

#[test]
fn the_first_reason_stays() {
    let (_runtime, hold) = hold();
    hold.ask(StopReason::Drain);
    assert_eq!(hold.look(), (Some(StopReason::Drain), None));
    assert!(hold.is_valid());
    hold.lose(StopReason::Lost, LostReason::NotYours);
    hold.lose(StopReason::Drain, LostReason::Released);
    assert_eq!(hold.look(), (Some(StopReason::Drain), Some(LostReason::NotYours)));
    assert!(!hold.is_valid());
}
