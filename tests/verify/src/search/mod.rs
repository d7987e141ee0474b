//! A search through all states that the real machines can reach.

mod canonical;
mod choice;
mod config;
mod digest;
mod explore;
mod leases;
mod numbers;
mod planted;
mod recovery;
mod world;

pub use config::{Application, Clocks, Config, Network, Recovery, Store, TICK};
pub use explore::{Counts, Violation, Witness};
pub use leases::leases;
