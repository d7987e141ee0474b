//! Where a store delivers the outcomes of a batch.

use std::fmt;

use crate::{Outcome, StoreError};

/// Takes the outcome of each operation of a batch as soon as it is known, in any order.
///
/// Dropping it says of every operation without an outcome that what became of it is unknown. So a store that
/// gives up half-way, or whose future is dropped, never leaves anybody waiting.
pub struct Replies {
    /// Which operations have their outcome.
    delivered: Vec<bool>,
    deliver: Box<dyn FnMut(usize, Outcome) + Send>,
}

impl Replies {
    /// For a batch of `operations` operations: `deliver` is called once for each, with its index.
    #[must_use]
    pub fn new(operations: usize, deliver: impl FnMut(usize, Outcome) + Send + 'static) -> Self {
        Self { delivered: vec![false; operations], deliver: Box::new(deliver) }
    }

    /// Delivers the outcome of operation `index`. Only the first outcome of an operation counts.
    pub fn deliver(&mut self, index: usize, outcome: Outcome) {
        debug_assert!(index < self.delivered.len(), "operation {index} is not of this batch");
        if let Some(delivered) = self.delivered.get_mut(index)
            && !std::mem::replace(delivered, true)
        {
            (self.deliver)(index, outcome);
        }
    }

    /// Whether operation `index` has its outcome.
    #[must_use]
    pub fn is_delivered(&self, index: usize) -> bool {
        self.delivered.get(index).copied().unwrap_or(false)
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        for index in 0..self.delivered.len() {
            self.deliver(index, Err(StoreError::unknown("the store ended the request without an answer")));
        }
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("delivered", &self.delivered).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{Answer, Renewed, StoreErrorKind};

    #[test]
    fn each_operation_has_one_outcome_and_the_rest_is_unknown_at_the_end() {
        let delivered = Arc::new(Mutex::new(Vec::new()));
        let sink = delivered.clone();
        let mut replies = Replies::new(3, move |index, outcome: Outcome| {
            sink.lock().expect("no panic").push((index, outcome.map_err(|error| error.kind)));
        });
        let (first, second) = (Answer::Renew(Renewed::Renewed), Answer::Renew(Renewed::NotYours));
        replies.deliver(1, Ok(first.clone()));
        replies.deliver(1, Ok(second));
        assert_eq!([0, 1, 2, 3].map(|index| replies.is_delivered(index)), [false, true, false, false]);
        drop(replies);
        let unknown = Err(StoreErrorKind::Unknown);
        let expected = [(1, Ok(first)), (0, unknown.clone()), (2, unknown)];
        assert_eq!(*delivered.lock().expect("no panic"), expected);
    }
}
