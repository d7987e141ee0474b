//! Fleets of nodes over a store, a network, clocks and users that misbehave as the bytes say.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_verify::simulation::{Settings, Tape, replay};

fuzz_target!(|bytes: &[u8]| {
    let (choices, _) = bytes.as_chunks();
    let choices: Vec<u32> =
        choices.iter().map(|choice| u32::from(u16::from_le_bytes(*choice)) << 16).collect();
    let mut settings = Settings::default();
    // A short course: rather more of them.
    settings.trouble = 10;
    if let Err(violation) = replay(Tape::dealt(&choices), &settings) {
        panic!("{violation}");
    }
});
