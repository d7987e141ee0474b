//! Any sequence of events into a node, hostile ones included.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_verify::hostile::{run, steps};

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&steps(bytes));
});
