//! The clock on which leases are counted: it goes on while the machine sleeps.

use std::time::Duration;

use tenure::Instant;
pub(crate) use tenure::clock::now;

/// Sleeps until an instant of this clock. It looks at the clock at least once a second, since the timers of the
/// runtime stand still while the machine sleeps.
pub(crate) async fn until(at: Instant) {
    const LONGEST: Duration = Duration::from_secs(1);
    loop {
        let left = at.saturating_since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST)).await;
    }
}
