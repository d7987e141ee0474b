//! How often the driver wakes while nothing happens, on smol.

mod hosts;

use hosts::{Global, OneThread, Threads};
use tenure_suite::idle;

#[test]
fn nothing_wakes_without_need() {
    idle::nothing_wakes_without_need::<OneThread>();
    idle::nothing_wakes_without_need::<Threads>();
    idle::nothing_wakes_without_need::<Global>();
}

#[test]
fn a_thousand_leases_wake_for_what_is_due() {
    idle::a_thousand_leases_wake_for_what_is_due::<OneThread>();
    idle::a_thousand_leases_wake_for_what_is_due::<Threads>();
    idle::a_thousand_leases_wake_for_what_is_due::<Global>();
}
