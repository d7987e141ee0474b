//! What proves Tenure's core: a model of a store, a search through all states of the machines, a simulation of fleets,
//! and hostile events.

pub mod hostile;
pub mod search;
pub mod simulation;
pub mod store;
