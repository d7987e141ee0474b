//! What is left behind, counted: a process of its own with one test, so that nothing else opens or closes anything.
#![cfg(target_os = "linux")]

mod hosts;

use hosts::{Global, OneThread, Threads};
use tenure_suite::leaks;

#[test]
fn nothing_is_left_behind() {
    leaks::lives_leave_nothing::<OneThread>();
    leaks::lives_leave_nothing::<Threads>();
    leaks::lives_leave_nothing::<Global>();
    leaks::cycles_of_threads_leave_nothing::<OneThread>();
    leaks::memory_cycles_leave_nothing::<OneThread>();
    leaks::memory_cycles_leave_nothing::<Threads>();
    leaks::sqlite_cycles_leave_nothing::<OneThread>();
    leaks::sqlite_cycles_leave_nothing::<Threads>();
}
