//! Makes the tape of a failing course short and benign.

/// Looks for shorter lanes, with more zeros, on which `fails` still tells what was read of them.
///
/// Whole lanes are emptied; then parts of lanes are deleted, or zeroed, from halves of a lane down to single choices
/// (delta debugging: Zeller and Hildebrandt, 2002); then single choices are lowered. It ends when nothing helps, or
/// after so many `tries`.
pub fn shrink(
    lanes: Vec<Vec<u32>>,
    tries: usize,
    fails: impl FnMut(&[Vec<u32>]) -> Option<Vec<Vec<u32>>>,
) -> Vec<Vec<u32>> {
    let mut shrinker = Shrinker { lanes, tries, fails };
    loop {
        let before = shrinker.lanes.clone();
        shrinker.empty_lanes();
        let mut part = shrinker.lanes.iter().map(Vec::len).max().unwrap_or(0).div_ceil(2);
        while part > 0 {
            shrinker.take_parts(part);
            part /= 2;
        }
        shrinker.lower();
        if shrinker.lanes == before {
            return before;
        }
    }
}

struct Shrinker<F> {
    lanes: Vec<Vec<u32>>,
    tries: usize,
    fails: F,
}

impl<F: FnMut(&[Vec<u32>]) -> Option<Vec<Vec<u32>>>> Shrinker<F> {
    fn empty_lanes(&mut self) {
        for lane in 0..self.lanes.len() {
            self.change(lane, |choices| choices.clear());
        }
    }

    /// From the end of each lane, where a choice matters to the fewest others.
    fn take_parts(&mut self, size: usize) {
        for lane in 0..self.lanes.len() {
            let mut end = self.lanes[lane].len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let part = start..end.min(self.lanes[lane].len());
                if !self.change(lane, |choices| drop(choices.drain(part.clone()))) {
                    self.change(lane, |choices| choices[part].fill(0));
                }
                end = start.min(self.lanes[lane].len());
            }
        }
    }

    fn lower(&mut self) {
        for lane in 0..self.lanes.len() {
            for at in 0..self.lanes[lane].len() {
                if at < self.lanes[lane].len() {
                    self.change(lane, |choices| choices[at] /= 2);
                }
            }
        }
    }

    /// Keeps a change to a lane if the course still fails.
    fn change(&mut self, lane: usize, change: impl FnOnce(&mut Vec<u32>)) -> bool {
        let mut lanes = self.lanes.clone();
        change(&mut lanes[lane]);
        if self.tries == 0 || lanes == self.lanes {
            return false;
        }
        self.tries -= 1;
        let Some(mut read) = (self.fails)(&lanes) else { return false };
        for choices in &mut read {
            let used = choices.iter().rposition(|choice| *choice != 0).map_or(0, |last| last + 1);
            choices.truncate(used);
        }
        self.lanes = read;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::shrink;

    #[test]
    fn what_matters_is_left_and_everything_else_is_gone() {
        let lane: Vec<u32> = (0..2_000).map(|i| i * 7 % 1_000).collect();
        // Fails if in the second lane a choice above 900 is followed, anywhere later, by one below 10 that is not zero.
        let fails = |lanes: &[Vec<u32>]| {
            let first = lanes[1].iter().position(|choice| *choice > 900)?;
            let second = lanes[1][first..].iter().position(|choice| (1..10).contains(choice))?;
            Some(vec![vec![], lanes[1][..=first + second].to_vec(), lanes[2].clone()])
        };
        let shrunk = shrink(vec![lane.clone(), lane.clone(), lane], 10_000, fails);
        assert_eq!(shrunk.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2, 0], "{shrunk:?}");
        assert!(shrunk[1][0] > 900 && shrunk[1][1] == 1, "{shrunk:?}");
    }

    #[test]
    fn it_ends_when_the_tries_are_used_up() {
        let mut runs = 0;
        let shrunk = shrink(vec![vec![1; 1_000]], 5, |lanes| {
            runs += 1;
            lanes[0].contains(&1).then(|| lanes.to_vec())
        });
        assert_eq!(runs, 5);
        assert!(shrunk[0].len() < 1_000);
    }
}
