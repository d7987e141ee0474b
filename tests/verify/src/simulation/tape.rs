//! Where everything random comes from: a tape of choices.

use tenure_core::{Jitter, SplitMix};

use super::MOST_MEMBERS;
use super::faults::Fault;

/// Choices, drawn from a seed or read back. Zero is always the benign choice, and a lane that has run out reads as
/// zeros: so a failing course is shrunk by deleting and zeroing parts of its tape.
///
/// The tape has a lane for each class of faults and each member, and one for the rest. What is taken away from one lane
/// moves nothing in the others, and so leaves most of the course as it was.
#[derive(Clone, Debug)]
pub struct Tape(Vec<Lane>);

/// One lane of a [`Tape`].
#[derive(Clone, Debug)]
pub(super) struct Lane {
    choices: Vec<u32>,
    at: usize,
    source: Option<SplitMix>,
}

/// What concerns a class of faults and no single member stands after the members.
const PER_FAULT: usize = MOST_MEMBERS + 1;
const LANES: usize = 1 + Fault::ALL.len() * PER_FAULT;

impl Tape {
    /// A tape without an end, whose choices all follow from `seed`. What is drawn is recorded.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut source = SplitMix::new(seed);
        let lane = |_| Lane { choices: Vec::new(), at: 0, source: Some(source.fork()) };
        Self((0..LANES).map(lane).collect())
    }

    /// A tape with these choices, by lanes.
    #[must_use]
    pub fn from_choices(lanes: Vec<Vec<u32>>) -> Self {
        let mut lanes = lanes.into_iter();
        let lane = |_| Lane { choices: lanes.next().unwrap_or_default(), at: 0, source: None };
        Self((0..LANES).map(lane).collect())
    }

    /// A tape from choices in a row, as a fuzzer makes them up: dealt out to the lanes in turn.
    #[must_use]
    pub fn dealt(choices: &[u32]) -> Self {
        let nth = |lane| choices.iter().skip(lane).step_by(LANES).copied().collect();
        Self::from_choices((0..LANES).map(nth).collect())
    }

    /// What was drawn so far, by lanes.
    #[must_use]
    pub fn drawn(&self) -> Vec<Vec<u32>> {
        self.0.iter().map(|lane| lane.choices[..lane.at.min(lane.choices.len())].to_vec()).collect()
    }

    /// The lane for what is no fault.
    pub(super) fn base(&mut self) -> &mut Lane {
        &mut self.0[0]
    }

    /// The lane of a class of faults, where it concerns no single member.
    pub(super) fn of(&mut self, fault: Fault) -> &mut Lane {
        self.at(fault, MOST_MEMBERS)
    }

    /// The lane of a class of faults for a member.
    pub(super) fn at(&mut self, fault: Fault, member: usize) -> &mut Lane {
        &mut self.0[1 + fault as usize * PER_FAULT + member]
    }
}

impl Lane {
    /// A number below `bound`; zero if `bound` is zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let choice = match (self.choices.get(self.at), &mut self.source) {
            (Some(choice), _) => *choice,
            (None, None) => 0,
            (None, Some(source)) => {
                let drawn = source.below(1 << 32) as u32;
                self.choices.push(drawn);
                drawn
            }
        };
        self.at += 1;
        ((u128::from(choice) * u128::from(bound)) >> 32) as u64
    }

    /// An index below `bound`.
    pub(super) fn pick(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// True once in `n` times.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Tape};

    #[test]
    fn a_tape_that_is_read_back_gives_the_same_choices_and_then_zeros() {
        let mut first = Tape::from_seed(7);
        let drawn: Vec<u64> = (1..100).map(|bound| first.base().below(bound)).collect();
        assert!(drawn.iter().any(|choice| *choice > 50));
        let mut again = Tape::from_choices(first.drawn());
        assert_eq!((1..100).map(|bound| again.base().below(bound)).collect::<Vec<_>>(), drawn);
        assert_eq!(again.base().below(u64::MAX), 0);
        assert!(!again.base().one_in(2));
    }

    #[test]
    fn what_is_drawn_from_one_lane_moves_nothing_in_another() {
        let (mut one, mut other) = (Tape::from_seed(7), Tape::from_seed(7));
        one.at(Fault::Loss, 2).below(9);
        one.base().below(9);
        let next =
            |tape: &mut Tape| [tape.at(Fault::Loss, 1).below(1 << 30), tape.of(Fault::Loss).below(1 << 30)];
        assert_eq!(next(&mut one), next(&mut other));
        assert_ne!(next(&mut one)[0], next(&mut other)[1]);
    }
}
