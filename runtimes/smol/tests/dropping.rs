//! Dropping anything anywhere, on smol: a process of its own, since a panic anywhere in it counts.

mod hosts;

use hosts::{Global, OneThread, Threads};
use tenure_suite::dropping::anything_can_be_dropped_anywhere;

#[test]
fn on_one_thread_anything_can_be_dropped_anywhere() {
    anything_can_be_dropped_anywhere::<OneThread>(false);
}

#[test]
fn on_threads_anything_can_be_dropped_anywhere() {
    anything_can_be_dropped_anywhere::<Threads>(false);
}

#[test]
fn on_the_executor_of_the_process_anything_can_be_dropped_anywhere() {
    anything_can_be_dropped_anywhere::<Global>(false);
}

#[test]
fn with_a_driver_on_its_own_thread_anything_can_be_dropped_anywhere() {
    anything_can_be_dropped_anywhere::<OneThread>(true);
}
