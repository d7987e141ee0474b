//! The program `tenure`, run as its users run it: real processes, signals, terminals, on the embedded store,
//! and most of it on Redis and NATS.

#![cfg(target_os = "linux")]

mod crashes;
mod demo;
mod every;
mod every_crashes;
mod fleet;
mod harness;
#[path = "../../src/history.rs"]
#[expect(dead_code, reason = "the program uses the rest")]
mod history;
mod instances;
mod listings;
mod operators;
mod outages;
mod place;
mod server_trouble;
mod signals;
mod terminal;
mod usage;
mod worker;
mod workers;
