//! What every runtime of Tenure has to pass.
//!
//! A property is a plain function that panics where it does not hold. Those about what the handles do are written
//! against an [`Api`], and hold with futures and on plain threads alike; those that poll, cancel or drop futures, block
//! a runtime or end it know it as a [`Host`]. [`suite!`] emits one `#[test]` per property; each runtime's crate brings
//! its hosts, and runs the suite in a build of its own.

pub mod alarms;
mod api;
pub mod coordinators;
mod counted;
pub mod dropping;
pub mod handles;
mod host;
pub mod idle;
#[cfg(unix)]
pub mod leaks;
pub mod leases;
mod on_threads;
pub mod plain;
#[cfg(unix)]
pub mod plain_signals;
#[cfg(unix)]
pub mod signals;
pub mod stuck;
pub mod timers;
mod waiting;
mod with_futures;
pub mod workers;

pub use api::{
    Api, Coordinator, Ctx, GENEROUS, JobRun, Lease, Periodic, Setup, TTL, Task, Tenure, Timer, Worker,
};
pub use counted::{Counted, CountedAlarm, Counts};
pub use host::Host;
pub use on_threads::Threads;
pub use with_futures::Futures;

/// Makes the one list of properties into what is needed of it. The first argument is a `$`, which a macro that makes a
/// macro can't write by itself.
macro_rules! properties {
    ($d:tt $($for:ident { $($module:ident { $($property:ident)* })* })*) => {
        #[doc(hidden)]
        #[macro_export]
        macro_rules! __suite_tests {
            $(($for, $d under_test:ty) => {
                $($(
                    #[test]
                    fn $property() {
                        $d crate::$module::$property::<$d under_test>();
                    }
                )*)*
            };)*
        }
    };
}

properties! { $
    any {
        leases {
            a_lease_is_renewed_and_passes_on
            one_works_at_a_time
            guards_are_dropped_from_other_threads
        }
        workers {
            a_worker_that_drains_hands_over
            a_worker_that_is_to_run_once_ends_with_its_work
        }
        timers {
            a_timer_gives_its_ticks_in_order
            each_tick_is_run_once_by_several_instances_and_recorded
            a_run_that_the_user_begins_is_recorded
        }
        coordinators {
            no_workload_runs_twice_while_instances_drain_and_come_back_in_turn
        }
    }
    files {
        leases {
            a_lease_in_a_file_is_renewed_and_passes_on
        }
    }
    threads {
        workers {
            work_that_blocks_its_thread_is_named_stuck_and_keeps_its_lease_until_it_ends
        }
        timers {
            a_run_that_blocks_its_thread_holds_up_no_other_job
        }
        coordinators {
            a_drain_names_each_workload_that_blocks_its_thread_and_hands_over_the_others
        }
    }
    runtime {
        alarms {
            the_alarm_goes_off_when_it_is_due_and_never_before
            sleeps_end_when_they_are_due_and_can_be_awaited_anywhere
        }
        handles {
            what_users_hold_can_go_anywhere
        }
        stuck {
            with_a_thread_of_its_own_a_lease_survives_a_program_that_blocks
            work_ends_by_its_own_clock_when_the_driver_is_stuck
        }
    }
    alone {
        handles {
            guards_survive_the_end_of_their_runtime
            a_worker_ends_with_the_runtime_of_its_work_and_others_take_over
        }
        stuck {
            with_a_thread_of_its_own_for_the_leases_work_runs_beside_and_may_block_there
        }
    }
    only_thread {
        stuck {
            blocking_the_only_thread_for_half_the_ttl_is_survived_and_for_twice_the_ttl_noticed
            the_loss_is_told_at_the_fence_though_the_driver_is_stuck
            work_that_blocks_the_only_thread_is_named_stuck_and_keeps_its_lease_until_it_ends
        }
    }
    plain {
        plain {
            everything_can_be_called_anywhere
            what_is_dropped_anywhere_is_given_back
            nothing_passes_on_before_the_thread_has_ended
            a_panic_is_a_failed_run
            runs_go_on_side_by_side
        }
    }
    plain_signals {
        plain_signals {
            a_signal_asks_threads_to_end_and_a_second_one_stops_them
            a_signal_drains_threads_that_wait_for_it_and_a_second_one_stops_them
        }
    }
    signals {
        signals {
            a_signal_is_told_to_all_who_wait_for_it
            a_second_signal_is_heard_though_the_thread_of_the_leases_has_ended
            a_signal_asks_the_work_to_end_and_a_second_one_drops_it
            a_signal_drains_a_worker_and_its_scope_ends_with_it
            a_signal_drains_an_instance_that_waits_for_it_and_a_second_one_stops_it
        }
    }
}

/// Emits one `#[test]` per property that is to hold for what is named.
///
/// | | with | properties |
/// |---|---|---|
/// | `plain threads: H` | the handles of plain threads over any [`Host`] | those of an [`Api`], outside and inside of the host, and those of plain threads |
/// | `several threads: H` | a [`Host`] with several threads | those of an [`Api`], also with the leases on a thread of their own, and those of a [`Host`] |
/// | `one thread: H` | a [`Host`] with a single one | the same; in place of those that block one of several threads, those that block the only one |
/// | `shared: H` | a [`Host`] that all tests share, with a single thread beside | those that neither block that thread nor end the runtime |
/// | `signals: H` | any [`Host`] | those about signals, which concern the whole process: in a test binary of their own |
/// | `signals of plain threads: H` | the handles of plain threads over any [`Host`] | the same, as threads hear of them |
///
/// ```ignore
/// mod one_thread {
///     tenure_suite::suite!(one thread: crate::hosts::OneThread);
/// }
/// ```
#[macro_export]
macro_rules! suite {
    (plain threads: $host:ty) => {
        $crate::__suite_tests!(plain, $host);

        mod outside {
            $crate::__suite_tests!(any, $crate::Threads<$host>);
            #[cfg(unix)]
            $crate::__suite_tests!(files, $crate::Threads<$host>);
            $crate::__suite_tests!(threads, $crate::Threads<$host>);
        }

        mod inside {
            $crate::__suite_tests!(any, $crate::Threads<$host, true>);
            #[cfg(unix)]
            $crate::__suite_tests!(files, $crate::Threads<$host, true>);
            $crate::__suite_tests!(threads, $crate::Threads<$host, true>);
        }
    };
    (several threads: $host:ty) => {
        const _: () = assert!(!<$host as $crate::Host>::ONE_THREAD);

        $crate::__suite_tests!(any, $crate::Futures<$host>);
        #[cfg(unix)]
        $crate::__suite_tests!(files, $crate::Futures<$host>);
        $crate::__suite_tests!(threads, $crate::Futures<$host>);
        $crate::__suite_tests!(runtime, $host);
        $crate::__suite_tests!(alone, $host);

        mod on_own_thread {
            $crate::__suite_tests!(any, $crate::Futures<$host, true>);
            #[cfg(unix)]
            $crate::__suite_tests!(files, $crate::Futures<$host, true>);
            $crate::__suite_tests!(threads, $crate::Futures<$host, true>);
        }
    };
    (one thread: $host:ty) => {
        const _: () = assert!(<$host as $crate::Host>::ONE_THREAD);

        $crate::__suite_tests!(any, $crate::Futures<$host>);
        #[cfg(unix)]
        $crate::__suite_tests!(files, $crate::Futures<$host>);
        $crate::__suite_tests!(runtime, $host);
        $crate::__suite_tests!(alone, $host);
        $crate::__suite_tests!(only_thread, $host);

        mod on_own_thread {
            $crate::__suite_tests!(any, $crate::Futures<$host, true>);
            #[cfg(unix)]
            $crate::__suite_tests!(files, $crate::Futures<$host, true>);
        }
    };
    (shared: $host:ty) => {
        $crate::__suite_tests!(any, $crate::Futures<$host>);
        #[cfg(unix)]
        $crate::__suite_tests!(files, $crate::Futures<$host>);
        $crate::__suite_tests!(runtime, $host);
    };
    (signals of plain threads: $host:ty) => {
        $crate::__suite_tests!(plain_signals, $host);
    };
    (signals: $host:ty) => {
        $crate::__suite_tests!(signals, $host);
    };
}
