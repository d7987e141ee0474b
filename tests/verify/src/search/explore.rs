//! Breadth first through all states of a model.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;

use super::digest::{Digests, digest};

/// A system whose states can be told apart and followed.
pub(super) trait Model {
    /// A state with all that matters for what follows.
    type State: Clone + Eq + Hash;

    /// Where it begins.
    fn initial(&self) -> Vec<Self::State>;

    /// All steps from a state, in an order that depends on nothing but the state. The story of each is only told
    /// if it is to be.
    fn steps(&self, state: &Self::State, tell: bool, each: &mut dyn FnMut(Step<Self::State>));

    /// Rewrites a state into the form that it shares with all states which behave the same.
    fn canonical(&self, state: &mut Self::State);

    /// What must hold in each state, looked at once.
    fn check(&mut self, state: &Self::State) -> Result<(), Violation>;

    /// What must hold once all states are known.
    fn conclude(&self) -> Figures;
}

/// One step.
pub(super) struct Step<S> {
    /// What happened, in lines.
    pub(super) story: String,
    /// Where it leads, unless it breaks a rule by itself.
    pub(super) outcome: Result<S, Violation>,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name, as in ARCHITECTURE.md.
    pub rule: &'static str,
    /// How.
    pub what: String,
}

/// What a model finds out about all of its states together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// The longest that any state takes to recover, in ticks of the store's clock.
    pub(super) recovery: usize,
}

/// How large the space is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// States that can be reached and differ in behaviour.
    pub states: usize,
    /// Steps between them, those included that change nothing.
    pub transitions: usize,
    /// How many steps the farthest state is away.
    pub depth: usize,
    /// The longest that any state takes to recover, in ticks of the store's clock.
    pub recovery: usize,
}

/// A shortest way to a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// What was violated at its end.
    pub violation: Violation,
    /// The steps, each in lines.
    pub steps: Vec<String>,
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            f.write_str(step)?;
        }
        write!(f, "{} is broken: {}", self.violation.rule, self.violation.what)
    }
}

/// Visits every state once.
///
/// # Errors
/// The shortest way to a state in which a rule is broken.
///
/// # Panics
/// If there are more than `limit` states: a space that was meant to be finite is not.
pub(super) fn explore<M: Model>(model: &mut M, limit: usize) -> Result<Counts, Box<Witness>> {
    let mut known = Known::default();
    let mut frontier = VecDeque::new();
    let mut transitions = 0;
    let mut depth = 0;
    for mut state in model.initial() {
        model.canonical(&mut state);
        if let Some(place) = known.add(digest(&state), None) {
            if let Err(violation) = model.check(&state) {
                return Err(Box::new(known.witness(model, place, false, violation)));
            }
            frontier.push_back((state, place, 0));
        }
    }
    while let Some((state, from, distance)) = frontier.pop_front() {
        let mut found = Vec::new();
        depth = depth.max(distance);
        model.steps(&state, false, &mut |step| found.push(step.outcome));
        for outcome in found {
            transitions += 1;
            let mut next = match outcome {
                Ok(next) => next,
                Err(violation) => return Err(Box::new(known.witness(model, from, true, violation))),
            };
            model.canonical(&mut next);
            let Some(place) = known.add(digest(&next), Some(from)) else { continue };
            assert!(known.digests.len() <= limit, "more than {limit} states");
            if let Err(violation) = model.check(&next) {
                return Err(Box::new(known.witness(model, place, false, violation)));
            }
            frontier.push_back((next, place, distance + 1));
        }
    }
    let Figures { recovery } = model.conclude();
    Ok(Counts { states: known.digests.len(), transitions, depth, recovery })
}

/// The states seen so far: their digests, and from which other each was reached first.
#[derive(Default)]
struct Known {
    digests: Digests,
    /// In the order in which they were found.
    reached: Vec<(u64, u32)>,
}

impl Known {
    const START: u32 = u32::MAX;

    /// Adds a state, if it is new.
    fn add(&mut self, digest: u64, from: Option<u32>) -> Option<u32> {
        if !self.digests.insert(digest) {
            return None;
        }
        self.reached.push((digest, from.unwrap_or(Self::START)));
        u32::try_from(self.reached.len() - 1).ok()
    }

    /// Tells the way to a state, without renumbering anything on the way, so that times and tokens go on as in real
    /// life. Steps are recognised by the state to which they lead. If a step from there broke a rule by itself, it is
    /// the last one.
    fn witness<M: Model>(
        &self,
        model: &M,
        mut place: u32,
        broken_by_step: bool,
        violation: Violation,
    ) -> Witness {
        let mut way = Vec::new();
        while let Some((digest, from)) = self.reached.get(place as usize) {
            way.push(*digest);
            place = *from;
        }
        way.reverse();
        let canonical = |state: &M::State| {
            let mut state = state.clone();
            model.canonical(&mut state);
            digest(&state)
        };
        let start = model.initial().into_iter().find(|state| way.first() == Some(&canonical(state)));
        let mut state = start.expect("a way begins at an initial state");
        let mut steps = Vec::new();
        for target in &way[1..] {
            let mut next = None;
            model.steps(&state, true, &mut |step| {
                if let (None, Ok(to)) = (&next, step.outcome)
                    && canonical(&to) == *target
                {
                    next = Some((step.story, to));
                }
            });
            // With a bug that gives a number twice, equal forms need not behave the same.
            let Some((story, to)) = next else {
                steps.push("and so on, though not in this way\n".into());
                return Witness { violation, steps };
            };
            steps.push(story);
            state = to;
        }
        if broken_by_step {
            model.steps(&state, true, &mut |step| {
                if step.outcome.err().is_some_and(|found| found.rule == violation.rule)
                    && steps.len() < way.len()
                {
                    steps.push(step.story);
                }
            });
        }
        Witness { violation, steps }
    }
}
