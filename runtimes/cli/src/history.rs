//! What the evidence of [`witness`](crate::witness) says: whether two ever worked at once, and whether tokens rose.

use std::collections::BTreeMap;
use std::fmt;

/// A line of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) what: &'a str,
    pub(crate) lease: &'a str,
    pub(crate) token: u64,
    pub(crate) process: i32,
    pub(crate) details: Vec<&'a str>,
}

impl<'a> Line<'a> {
    /// Reads a line; `None` if it can't be understood.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        let (what, lease) = (fields.next()?, fields.next()?);
        let (token, process) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self { what, lease, token, process, details: fields.collect() })
    }

    /// The unit of work of a line that speaks of one: what is without an end ends as it begins.
    pub(crate) fn unit(&self) -> Option<Unit> {
        let (start, end) = match self.details[..] {
            [start, end] => (start, end),
            [time] => (time, time),
            _ => return None,
        };
        let (start, end) = (start.parse().ok()?, end.parse().ok()?);
        let lease = self.lease.to_owned();
        (start <= end).then_some(Unit { lease, token: self.token, process: self.process, start, end })
    }
}

/// A unit of work, by the clock of the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) lease: String,
    pub(crate) token: u64,
    pub(crate) process: i32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lease, token, process, start, end } = self;
        write!(f, "lease {lease}, token {token}, process {process}, from {start} to {end} ns")
    }
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// Two worked at the same time.
    Overlap(Unit, Unit),
    /// The first wanted to work and found somebody at work: the second, unless that left no evidence.
    Busy(Unit, Option<Unit>),
    /// The second began after the first had ended, with a lower token; or, if both are grants, with none above it.
    TokenFell(Unit, Unit),
    /// Two processes worked under one token.
    TokenShared(Unit, Unit),
}

impl Breach {
    /// What happened, in a few words.
    pub(crate) const fn what(&self) -> &'static str {
        match self {
            Self::Overlap(..) => "two worked at the same time",
            Self::Busy(..) => "one began to work while another was at it",
            Self::TokenFell(..) => "a later one had a token that was not above the earlier one's",
            Self::TokenShared(..) => "two processes had the same token",
        }
    }

    /// The entries that show it.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Unit> {
        let (one, other) = match self {
            Self::Overlap(one, other) | Self::TokenFell(one, other) | Self::TokenShared(one, other) => {
                (one, Some(other))
            }
            Self::Busy(one, other) => (one, other.as_ref()),
        };
        std::iter::once(one).chain(other)
    }
}

/// All that was seen of one lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Work that was done.
    pub(crate) units: Vec<Unit>,
    /// Work that was begun and found the lock taken.
    pub(crate) refused: Vec<Unit>,
    /// The beginnings of grants.
    pub(crate) grants: Vec<Unit>,
}

impl History {
    /// Holds the history against the rules, in O(n log n): units of work are disjoint, nobody found the lock taken,
    /// and tokens rise with time, from grant to grant strictly.
    pub(crate) fn check(&self) -> Vec<Breach> {
        let mut by_start: Vec<&Unit> = self.units.iter().collect();
        by_start.sort_by_key(|unit| (unit.start, unit.end));
        let mut by_end = by_start.clone();
        by_end.sort_by_key(|unit| unit.end);
        let mut by_end = by_end.into_iter().peekable();

        let mut breaches = Vec::new();
        let mut longest: Option<&Unit> = None;
        let mut highest: Option<&Unit> = None;
        let mut owners: BTreeMap<u64, &Unit> = BTreeMap::new();
        for unit in &by_start {
            while let Some(earlier) = by_end.next_if(|earlier| earlier.end < unit.start) {
                highest = Some(
                    highest.map_or(earlier, |most| if earlier.token > most.token { earlier } else { most }),
                );
            }
            if let Some(earlier) = highest.filter(|earlier| earlier.token > unit.token) {
                breaches.push(Breach::TokenFell(earlier.clone(), (*unit).clone()));
            }
            if let Some(other) = longest.filter(|other| unit.start < other.end) {
                breaches.push(Breach::Overlap(other.clone(), (*unit).clone()));
            }
            longest = Some(longest.map_or(unit, |most| if unit.end > most.end { unit } else { most }));
            let owner = *owners.entry(unit.token).or_insert(unit);
            if owner.process != unit.process {
                breaches.push(Breach::TokenShared(owner.clone(), (*unit).clone()));
            }
        }
        breaches.extend(self.refused.iter().map(|refused| {
            let covers = |unit: &&&Unit| {
                unit.process != refused.process && (unit.start..=unit.end).contains(&refused.start)
            };
            Breach::Busy(refused.clone(), by_start.iter().find(covers).map(|unit| (**unit).clone()))
        }));
        let mut grants = self.grants.clone();
        grants.sort_by_key(|grant| grant.start);
        for pair in grants.windows(2) {
            if pair[0].token >= pair[1].token {
                breaches.push(Breach::TokenFell(pair[0].clone(), pair[1].clone()));
            }
        }
        breaches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(token: u64, process: i32, start: u64, end: u64) -> Unit {
        Unit { lease: "job".to_owned(), token, process, start, end }
    }

    fn check(units: &[Unit]) -> Vec<Breach> {
        History { units: units.to_vec(), ..History::default() }.check()
    }

    #[test]
    fn work_one_after_the_other_under_rising_tokens_is_clean() {
        assert_eq!(check(&[]), []);
        // In any order, and one may begin as another ends.
        let units = [unit(9, 2, 30, 40), unit(5, 1, 0, 10), unit(5, 1, 20, 30), unit(12, 1, 41, 50)];
        assert_eq!(check(&units), []);
    }

    #[test]
    fn two_at_work_at_the_same_time_are_found() {
        let (one, other) = (unit(5, 1, 0, 20), unit(6, 2, 19, 30));
        assert_eq!(check(&[other.clone(), one.clone()]), [Breach::Overlap(one, other)]);
        // Also within a long one, behind others that lie within it.
        let (long, short, last) = (unit(5, 1, 0, 100), unit(5, 1, 10, 20), unit(6, 2, 99, 110));
        let breaches = check(&[long.clone(), short.clone(), last.clone()]);
        assert_eq!(breaches, [Breach::Overlap(long.clone(), short), Breach::Overlap(long, last)]);
    }

    #[test]
    fn a_token_that_goes_down_is_found() {
        let (one, two, three) = (unit(6, 1, 0, 10), unit(5, 2, 20, 30), unit(7, 3, 40, 50));
        let breaches = check(&[one.clone(), two.clone(), three]);
        assert_eq!(breaches, [Breach::TokenFell(one, two)]);
        // Those who went down are not compared with each other only.
        let (high, low, between) = (unit(9, 1, 0, 10), unit(3, 2, 20, 30), unit(5, 3, 40, 50));
        let breaches = check(&[high.clone(), low.clone(), between.clone()]);
        assert_eq!(breaches, [Breach::TokenFell(high.clone(), low), Breach::TokenFell(high, between)]);
    }

    #[test]
    fn a_token_that_two_processes_have_is_found() {
        let (one, other) = (unit(5, 1, 0, 10), unit(5, 2, 20, 30));
        assert_eq!(check(&[one.clone(), other.clone()]), [Breach::TokenShared(one, other)]);
    }

    #[test]
    fn whoever_found_the_lock_taken_is_found_with_the_one_who_had_it() {
        let (own, worker, refused) = (unit(4, 2, 0, 9), unit(5, 1, 10, 20), unit(4, 2, 15, 15));
        let mut history = History { units: vec![own, worker.clone()], ..History::default() };
        history.refused.push(refused.clone());
        assert_eq!(history.check(), [Breach::Busy(refused.clone(), Some(worker))]);
        history.units.pop();
        assert_eq!(history.check(), [Breach::Busy(refused, None)], "also without evidence of the other");
    }

    #[test]
    fn each_grant_needs_a_token_above_the_one_before() {
        let (one, two) = (unit(5, 1, 0, 0), unit(5, 1, 20, 20));
        let grants = vec![two.clone(), one.clone(), unit(6, 1, 30, 30)];
        let history = History { grants, ..History::default() };
        assert_eq!(history.check(), [Breach::TokenFell(one, two)]);
    }

    #[test]
    fn lines_that_are_cut_or_run_backwards_are_no_units() {
        let read = |text| Line::parse(text).and_then(|line| line.unit());
        assert_eq!(read("unit job 5 1 10 20"), Some(unit(5, 1, 10, 20)));
        assert_eq!(read("overlap job 5 1 10"), Some(unit(5, 1, 10, 10)));
        for text in [
            "",
            "unit job 5",
            "unit job 5 1",
            "unit job 5 1 20 10",
            "unit job - 1 10 20",
            "unit job 5 1 1 2 3",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
