//! The program `tenure`, run as its users run it: real processes, signals, terminals, on the embedded store.

#![cfg(target_os = "linux")]

mod crashes;
mod harness;
mod operators;
mod outages;
mod signals;
mod terminal;
mod usage;
