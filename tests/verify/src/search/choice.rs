//! What may turn out one way or another within a step.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use tenure_core::Jitter;

/// The choices of one run of a step. Run by run it goes through all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape(Rc<RefCell<Choices>>);

#[derive(Debug, Default)]
struct Choices {
    /// What was chosen so far, and among how many.
    made: Vec<(usize, usize)>,
    at: usize,
}

impl Tape {
    /// One of `0..options`.
    pub(super) fn choose(&self, options: usize) -> usize {
        let mut choices = self.0.borrow_mut();
        if options < 2 {
            return 0;
        }
        let at = choices.at;
        choices.at += 1;
        match choices.made.get(at) {
            Some((choice, _)) => *choice,
            None => {
                choices.made.push((0, options));
                0
            }
        }
    }

    /// Always the first option from here on, until it is cleared.
    pub(super) fn clear(&self) {
        let mut choices = self.0.borrow_mut();
        choices.made.clear();
        choices.at = 0;
    }

    /// Makes ready for the next run with other choices, if there is one.
    pub(super) fn advance(&self) -> bool {
        let mut choices = self.0.borrow_mut();
        choices.at = 0;
        while let Some((choice, options)) = choices.made.pop() {
            if choice + 1 < options {
                choices.made.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}

/// Jitter as a choice: in each tick in which a delay may end, it does so in one of the runs.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) tape: Tape,
    pub(super) tick: Duration,
}

/// It is no state: the choices are made by the step.
impl PartialEq for Chosen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Chosen {}

impl Hash for Chosen {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Jitter for Chosen {
    fn below(&mut self, bound: u64) -> u64 {
        // The core adds at most 5 ms to it, and begins at a whole tick: it stays below the next one anyway.
        if Duration::from_nanos(bound) + Duration::from_millis(5) < self.tick {
            return 0;
        }
        // From the lowest to the highest in steps of at most a tick: no tick in between is left out.
        let tick = self.tick.as_nanos() as u64;
        let steps = (bound - 1).div_ceil(tick);
        (self.tape.choose(steps as usize + 1) as u64 * tick).min(bound - 1)
    }

    fn fork(&mut self) -> Self {
        self.clone()
    }
}
