//! Clocks that run at a rate of their own.

use tenure_core::Instant;

/// A clock that started anywhere, and runs fast or slow. True time is nanoseconds since the simulation began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// A point in true time, and what the clock showed then.
    anchor: (u64, u64),
    /// How much it gains, in parts per million.
    rate: i64,
}

impl Clock {
    /// A clock that shows `start` when the simulation begins.
    pub(super) fn new(start: u64, rate: i64) -> Self {
        Self { anchor: (0, start), rate }
    }

    /// What it shows.
    pub(super) fn at(self, now: u64) -> Instant {
        let since = i128::from(now) - i128::from(self.anchor.0);
        let shown = i128::from(self.anchor.1) + since + since * i128::from(self.rate) / MILLION;
        Instant::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    /// The first true time at which it shows at least `local`, by its present rate.
    pub(super) fn when(self, local: Instant) -> u64 {
        let gain = i128::from(local.as_nanos()) - i128::from(self.anchor.1);
        let since = gain * MILLION / (MILLION + i128::from(self.rate));
        let mut at = u64::try_from(i128::from(self.anchor.0) + since).unwrap_or(0);
        while at > 0 && self.at(at - 1) >= local {
            at -= 1;
        }
        while self.at(at) < local {
            at += 1;
        }
        at
    }

    /// From `now` on it runs at another rate.
    pub(super) fn set_rate(&mut self, now: u64, rate: i64) {
        *self = Self { anchor: (now, self.at(now).as_nanos()), rate };
    }

    /// It is set: at `now` it shows that much more, or less.
    pub(super) fn step(&mut self, by: i64) {
        self.anchor.1 = self.anchor.1.saturating_add_signed(by);
    }
}

const MILLION: i128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::{Clock, Instant};

    #[test]
    fn when_is_the_first_moment_at_which_the_clock_shows_it() {
        for rate in [0, 10_000, -10_000, 3_333, -250_000] {
            let mut clock = Clock::new(5_000_000_000, rate);
            clock.set_rate(1_234_567, rate / 2);
            for local in [5_000_000_000, 5_001_234_567, 5_001_234_568, 6_000_000_001, 77_000_000_123] {
                let local = Instant::from_nanos(local);
                let at = clock.when(local);
                assert!(clock.at(at) >= local && (at == 0 || clock.at(at - 1) < local), "{rate} {local:?}");
            }
        }
    }

    #[test]
    fn a_new_rate_moves_no_hand_and_a_step_does() {
        let mut clock = Clock::new(100, -10_000);
        let shown = clock.at(1_000_000);
        clock.set_rate(1_000_000, 10_000);
        assert_eq!(clock.at(1_000_000), shown);
        clock.step(-7);
        assert_eq!(clock.at(1_000_000).as_nanos(), shown.as_nanos() - 7);
    }
}
