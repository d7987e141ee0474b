//! What proves Tenure's core: a model of a store, a search through all states of the machines, and a simulation of
//! fleets.

pub mod search;
pub mod store;
