//! What reports make of a run.
