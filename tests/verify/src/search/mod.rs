//! A search through all states that the real machines can reach.
//!
//! [`leases`] takes a [`Config`], puts real [`Node`](tenure_core::Node)s, the model of a store and a network together,
//! and goes breadth first through every state that they can get into. It gives exact counts, or the shortest way to a
//! broken rule as a story with times and commands.
//!
//! **Time.** The store's clock goes on tick by tick; with each tick every node's clock goes on by as many parts of a
//! tick as the search chooses within its drift, and is read in whole ticks. Between two ticks everything else happens,
//! in any order. Nothing is missed by that as long as what the core does depends only on whole ticks: delays end in
//! the first tick after them, and what happens between two ticks happens at one of them. What is missed: rates beyond
//! those that a configuration names, and the order of delays of one node that end within the same tick, which is that
//! of their shortest jitter. Where jitter can reach another tick, every tick that it reaches is a choice.
//!
//! **Nodes.** One that is not paused does at once what is due. If pauses are allowed, a due node may stay asleep for
//! any time; whatever wakes it first is a choice. A crash puts a new incarnation in its place at once. Applications want
//! the lease always; work that was stopped ends at any time, or never.
//!
//! **Network.** Messages arrive in any order. Without a bound on their delay, a lost message is one that never arrives;
//! at most `in_flight` are under way, and when there are more, any one of them is lost. So nothing is found that
//! takes more messages under way at once. Repeated messages stay under way when they arrive. The search does not model
//! failures that a store reports.
//!
//! **Canonical form.** Clocks, tokens and ids rise for ever. Before two states are compared, everything is rewritten
//! relative to what is in sight; `canonical.rs` has the table. Thereby the space is finite though time is not bounded.
//! That a world and its form have the same future is tested by walks at random, and again along each witness, which is
//! told without any rewriting. Two things are left out on purpose: an attempt whose request or answer is lost is
//! forgotten, so it neither pushes another one out of a lease's memory of four, which would be as if that one's answer
//! were lost, nor keeps a lease that has ended lingering.
//!
//! **Rules.** In every state: who takes itself for the holder is the owner with that token at the store (S2', so S1, S2
//! and, by the ghost of the highest token, S5 and S6), and so until `valid_until`, on which bounded work relies (S4).
//! After every input: work that may not start does not, it is asked and stopped in time, and a wake-up is armed (S3); a
//! lost or released grant is never valid again (S7); nothing is valid or works when its release leaves (S9). S8 is the
//! network's repetition. With workers, C1: one run at a time, and a rest between two. L3: from every state, once
//! trouble ends, somebody is valid for good within a bound; see [`Recovery`].

mod canonical;
mod choice;
mod config;
mod digest;
mod explore;
mod job;
mod leases;
mod numbers;
mod planted;
mod recovery;
mod step;
mod world;

pub use config::{Application, Clocks, Config, Job, Network, Recovery, Store, TICK};
pub use explore::{Counts, Violation, Witness};
pub use leases::leases;
