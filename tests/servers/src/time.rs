//! Time, and waiting for a condition.

use std::thread::sleep;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Far more than anything here takes, also on a machine that is busy with other things: who waits this long has failed.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The time since some moment in the past.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Waits until there is something.
///
/// # Panics
///
/// After [`LIMIT`], naming `what` it has waited for.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(now() - start < LIMIT, "waited {LIMIT:?} for {what}");
        sleep(LOOK_AGAIN);
    }
}
