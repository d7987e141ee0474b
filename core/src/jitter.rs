//! The injected source of jitter.

use core::time::Duration;

use crate::time::nanos;

/// Where the core takes its randomness from: it spreads retries and wake-ups, and decides nothing else.
///
/// The core asks anew for every delay. A search of the state space implements this with a choice.
pub trait Jitter: Clone {
    /// A number from zero up to, but not including, `bound`; zero if `bound` is zero.
    fn below(&mut self, bound: u64) -> u64;

    /// An independent source for one machine.
    #[must_use]
    fn fork(&mut self) -> Self;
}

/// The default source: SplitMix64 (Steele, Lea, Flood 2014), the same on every platform for the same seed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// A source whose numbers all follow from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mix(self.state)
    }
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: no two numbers give the same, and each bit of the result hangs on all bits of `z`.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Jitter for SplitMix {
    fn below(&mut self, bound: u64) -> u64 {
        // The bias of a multiply-shift is below 2^-20 for every bound used here (at most some minutes).
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn fork(&mut self) -> Self {
        Self::new(self.next())
    }
}

/// A uniform duration in `[0, bound)`.
pub(crate) fn up_to(jitter: &mut impl Jitter, bound: Duration) -> Duration {
    Duration::from_nanos(jitter.below(nanos(bound)))
}

#[cfg(test)]
mod tests {
    use super::{GOLDEN_GAMMA, Jitter, SplitMix, mix};

    #[test]
    fn the_generator_gives_the_published_numbers() {
        // From the reference implementation, seed 1234567.
        let mut source = SplitMix::new(1_234_567);
        let numbers = [source.next(), source.next(), source.next()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        // Its finalizer by itself, since plans hang on it, too.
        assert_eq!(mix(1_234_567_u64.wrapping_add(GOLDEN_GAMMA)), 6_457_827_717_110_365_317);
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut source = SplitMix::new(1);
        assert_eq!(source.below(0), 0);
        assert_eq!(source.below(1), 0);
        assert!((0..10_000).all(|_| source.below(7) < 7));
        assert!((0..100).any(|_| source.below(u64::MAX) > u64::MAX / 2));
    }

    #[test]
    fn a_fork_goes_its_own_way() {
        let mut source = SplitMix::new(1);
        let mut fork = source.fork();
        assert_ne!(source.next(), fork.next());
    }
}
