//! What plain threads over tokio leave behind, counted: a process of its own with one test, so that nothing else opens or closes
//! anything.
#![cfg(target_os = "linux")]

mod hosts;

use hosts::{OneThread, Threads};
use tenure_suite::plain;

#[test]
fn plain_threads_leave_nothing_behind() {
    plain::cycles_leave_nothing::<OneThread>();
    plain::cycles_leave_nothing::<Threads>();
}
