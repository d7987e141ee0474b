//! Makes the tape of a failing run short and benign.

/// Looks for a shorter tape, with more zeros, on which `fails` still says how many choices it has read.
///
/// Parts are deleted, then zeroed, then single choices lowered, from halves of the tape down to single choices (delta
/// debugging: Zeller and Hildebrandt, 2002), until nothing helps or `tries` runs were made.
pub fn shrink(
    mut choices: Vec<u32>,
    mut tries: usize,
    mut fails: impl FnMut(&[u32]) -> Option<usize>,
) -> Vec<u32> {
    let mut better = |choices: &mut Vec<u32>, candidate: Vec<u32>| {
        if tries == 0 || candidate == *choices {
            return false;
        }
        tries -= 1;
        let Some(read) = fails(&candidate) else { return false };
        *choices = candidate;
        choices.truncate(read);
        while choices.last() == Some(&0) {
            choices.pop();
        }
        true
    };
    // The first choices decide the most: which faults there are.
    for at in 0..HEAD.min(choices.len()) {
        let mut zeroed = choices.clone();
        if let Some(choice) = zeroed.get_mut(at) {
            *choice = 0;
            better(&mut choices, zeroed);
        }
    }
    loop {
        let mut progress = false;
        let mut size = choices.len().div_ceil(2);
        while size > 0 {
            // From the end, where a choice matters to the fewest others.
            let mut end = choices.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let part = start..end.min(choices.len());
                let mut deleted = choices.clone();
                deleted.drain(part.clone());
                let mut zeroed = choices.clone();
                zeroed[part].fill(0);
                progress |= better(&mut choices, deleted) || better(&mut choices, zeroed);
                end = start.min(choices.len());
            }
            size /= 2;
        }
        for at in 0..choices.len() {
            let Some(choice) = choices.get(at).copied() else { break };
            let mut lowered = choices.clone();
            lowered[at] = choice / 2;
            progress |= better(&mut choices, lowered);
        }
        if !progress {
            return choices;
        }
    }
}

/// How many choices at the beginning are tried one by one before all others.
const HEAD: usize = 64;

#[cfg(test)]
mod tests {
    use super::shrink;

    #[test]
    fn what_matters_is_left_and_everything_else_is_gone() {
        let choices: Vec<u32> = (0..5_000).map(|i| i * 7 % 1_000).collect();
        // Fails if a choice above 900 is followed, anywhere later, by one below 10 that is not zero.
        let fails = |choices: &[u32]| {
            let first = choices.iter().position(|choice| *choice > 900)?;
            let second = choices[first..].iter().position(|choice| (1..10).contains(choice))?;
            Some(first + second + 1)
        };
        let shrunk = shrink(choices, 10_000, fails);
        assert_eq!(shrunk.len(), 2, "{shrunk:?}");
        assert!(shrunk[0] > 900 && shrunk[1] == 1, "{shrunk:?}");
    }

    #[test]
    fn it_ends_when_the_tries_are_used_up() {
        let mut runs = 0;
        let shrunk = shrink(vec![1; 1_000], 50, |choices| {
            runs += 1;
            Some(choices.len())
        });
        assert!(runs <= 50);
        assert!(shrunk.len() < 1_000);
    }
}
