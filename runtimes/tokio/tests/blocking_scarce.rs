//! Plain threads over tokio when the operating system gives no more threads: a process of its own with one test, which takes them
//! from it.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "one of them is enough")]
mod hosts;

#[test]
fn a_run_without_a_thread_is_a_failed_one() {
    tenure_suite::plain::a_run_without_a_thread_is_a_failed_one::<hosts::Threads>();
}
