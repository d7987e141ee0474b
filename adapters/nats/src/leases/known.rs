//! What a handle knows of leases without asking: the last write of each that it holds, and since when it has seen that of
//! each that it wants.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Instant, LeaseName, Token};
use tenure_store::clock;
use tenure_store::core::Rate;

use crate::record::Record;

/// As many entries are kept at least before it is looked which are of use.
const FEW: usize = 256;

/// What it knows. Nothing of it is evidence: a condition decides whether it is still so.
#[derive(Debug)]
pub(crate) struct Known {
    drift: Rate,
    quantum: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<LeaseName, Held>,
    seen: BTreeMap<LeaseName, Seen>,
    /// When to look which are of use.
    most: usize,
}

/// A lease of this process, as it was last written.
#[derive(Debug)]
struct Held {
    sequence: u64,
    record: Record,
    /// Nobody asks for it any more by then.
    of_use_until: Instant,
}

/// A lease of another.
#[derive(Debug)]
struct Seen {
    sequence: u64,
    /// If nobody has written to it, it is over by then, whatever the server says.
    outlived_at: Instant,
}

impl Known {
    /// With clocks that drift by no more than this.
    pub(crate) fn new(drift: Rate, quantum: Duration) -> Self {
        Self { drift, quantum, state: Mutex::new(State::default()) }
    }

    /// This was written, and is ours.
    pub(crate) fn holds(&self, name: &LeaseName, sequence: u64, record: Record) {
        let of_use_until = clock::now() + record.ttl.saturating_mul(2);
        let mut state = self.lock();
        state.seen.remove(name);
        state.held.insert(name.clone(), Held { sequence, record, of_use_until });
        state.tidy();
    }

    /// The last write for this grant and its number.
    pub(crate) fn record(&self, name: &LeaseName, owner: &str, token: Token) -> Option<(u64, Record)> {
        let state = self.lock();
        let held = state.held.get(name)?;
        let same = held.record.owner == owner && held.record.token == token;
        same.then(|| (held.sequence, held.record.clone()))
    }

    /// This owner has it no longer.
    pub(crate) fn forget(&self, name: &LeaseName, owner: &str) {
        let mut state = self.lock();
        if state.held.get(name).is_some_and(|held| held.record.owner == owner) {
            state.held.remove(name);
        }
    }

    /// Another's write was seen at this time, after it was made: tells when it is over, counted from when it was first seen.
    pub(crate) fn sees(&self, name: &LeaseName, sequence: u64, ttl: Duration, at: Instant) -> Instant {
        let mut state = self.lock();
        if let Some(seen) = state.seen.get(name).filter(|seen| seen.sequence == sequence) {
            return seen.outlived_at;
        }
        // Our clock may be fast.
        let drift = Duration::from_nanos(1)
            + ttl.saturating_mul(self.drift.ppm()).checked_div(1_000_000).unwrap_or_default();
        let outlived_at = at + ttl + drift + self.quantum;
        state.seen.insert(name.clone(), Seen { sequence, outlived_at });
        state.tidy();
        outlived_at
    }

    /// Whether this write was first seen so long ago that whoever made it has stopped by now.
    pub(crate) fn is_outlived(&self, name: &LeaseName, sequence: u64, ttl: Duration, at: Instant) -> bool {
        self.sees(name, sequence, ttl, at) < at
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops what nobody asks for any more, now and then.
    fn tidy(&mut self) {
        if self.held.len() + self.seen.len() <= self.most.max(FEW) {
            return;
        }
        let now = clock::now();
        self.held.retain(|_, held| held.of_use_until > now);
        // Who has not come back by long after is not waiting.
        let minute = Duration::from_secs(60);
        self.seen.retain(|_, seen| seen.outlived_at + minute > now);
        self.most = 2 * (self.held.len() + self.seen.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn known() -> Known {
        Known::new(Rate::ONE_PERCENT, Duration::from_millis(1))
    }

    #[test]
    fn a_write_is_outlived_a_ttl_and_the_drift_after_it_was_first_seen() {
        let (known, name) = (known(), LeaseName::new("a").unwrap());
        let start = Instant::from_nanos(1_000_000_000_000);
        let after = |ms| start + Duration::from_millis(ms);
        assert!(!known.is_outlived(&name, 5, SECOND, start));
        assert!(!known.is_outlived(&name, 5, SECOND, after(1011)), "1 % and a millisecond");
        assert!(known.is_outlived(&name, 5, SECOND, after(1012)));
        assert!(!known.is_outlived(&name, 6, SECOND, after(1012)), "each write begins it anew");
        assert!(!known.is_outlived(&name, 6, SECOND, after(2000)));
        assert!(known.is_outlived(&name, 6, SECOND, after(2024)));
    }

    #[test]
    fn only_what_is_of_use_is_kept() {
        let known = known();
        let long_ago = Instant::from_nanos(1);
        for number in 0..10_000 {
            known.sees(&LeaseName::new(format!("{number}")).unwrap(), 1, SECOND, long_ago);
        }
        let now = clock::now();
        if now > long_ago + Duration::from_secs(62) {
            assert!(known.lock().seen.len() <= FEW + 1);
        }
        for number in 0..1000 {
            known.sees(&LeaseName::new(format!("{number}")).unwrap(), 1, SECOND, now);
        }
        assert!(known.lock().seen.len() >= 1000, "they are wanted");
    }
}
