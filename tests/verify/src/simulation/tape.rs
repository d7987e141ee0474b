//! Where everything random comes from: a tape of choices.

use tenure_core::{Jitter, SplitMix};

/// Choices, drawn from a seed or read back. Zero is always the benign choice, and a tape that has run out reads as
/// zeros: so a failing run is shrunk by deleting and zeroing parts of its tape.
#[derive(Clone, Debug)]
pub struct Tape {
    choices: Vec<u32>,
    at: usize,
    source: Option<SplitMix>,
}

impl Tape {
    /// A tape without an end, whose choices all follow from `seed`. What is drawn is recorded.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self { choices: Vec::new(), at: 0, source: Some(SplitMix::new(seed)) }
    }

    /// A tape with these choices.
    #[must_use]
    pub fn from_choices(choices: Vec<u32>) -> Self {
        Self { choices, at: 0, source: None }
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        let choice = match self.choices.get(self.at) {
            Some(choice) => *choice,
            None => {
                let drawn = self.source.as_mut().map_or(0, |source| source.below(1 << 32) as u32);
                if self.source.is_some() {
                    self.choices.push(drawn);
                }
                drawn
            }
        };
        self.at += 1;
        ((u128::from(choice) * u128::from(bound)) >> 32) as u64
    }

    /// An index below `bound`.
    pub fn pick(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }

    /// What was drawn so far.
    #[must_use]
    pub fn drawn(&self) -> &[u32] {
        &self.choices[..self.at.min(self.choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::Tape;

    #[test]
    fn a_tape_that_is_read_back_gives_the_same_choices_and_then_zeros() {
        let mut first = Tape::from_seed(7);
        let drawn: Vec<u64> = (1..100).map(|bound| first.below(bound)).collect();
        assert!(drawn.iter().any(|choice| *choice > 50));
        let mut again = Tape::from_choices(first.drawn().to_vec());
        assert_eq!((1..100).map(|bound| again.below(bound)).collect::<Vec<_>>(), drawn);
        assert_eq!(again.below(u64::MAX), 0);
        assert!(!again.one_in(2));
    }
}
