//! What every runtime of Tenure has to pass.
//!
//! A property is a plain function that panics where it does not hold. Those about what the handles do are written
//! against an [`Api`], and hold with futures and on plain threads alike; those that poll, cancel or drop futures, block
//! a runtime or end it know it as a [`Host`]. [`suite!`] emits one `#[test]` per property; each runtime's crate brings
//! its hosts, and runs the suite in a build of its own.

mod api;
mod counted;
pub mod dropping;
mod host;
pub mod idle;
pub mod leaks;
mod leases;
mod waiting;
mod with_futures;

pub use api::{
    Api, Coordinator, Ctx, GENEROUS, JobRun, Lease, Periodic, Setup, TTL, Task, Tenure, Timer, Worker,
};
pub use counted::{Counted, CountedAlarm, Counts};
pub use host::Host;
pub use with_futures::Futures;

/// Makes the one list of properties into what is needed of it. The first argument is a `$`, which a macro that makes a
/// macro can't write by itself.
macro_rules! properties {
    ($d:tt $($for:ident { $($module:ident { $($property:ident)* })* })*) => {
        $($(pub use $module::{$($property),*};)*)*

        #[doc(hidden)]
        #[macro_export]
        macro_rules! __suite_tests {
            $(($for, $d under_test:ty) => {
                $($(
                    #[test]
                    fn $property() {
                        $d crate::$property::<$d under_test>();
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
    }
}

/// Emits one `#[test]` per property, for what is named:
///
/// | | with | properties |
/// |---|---|---|
/// | `plain threads: A` | an [`Api`] without futures, where everything may block its thread | those of an [`Api`] |
/// | `several threads: H` | a [`Host`] with several threads | all but for those of one thread |
/// | `one thread: H` | a [`Host`] with one | all but for those that block a thread and go on on another |
///
/// What a host runs of an [`Api`], it runs twice: also with the leases on a thread of their own.
///
/// ```ignore
/// mod one_thread {
///     tenure_suite::suite!(one thread: crate::hosts::OneThread);
/// }
/// ```
#[macro_export]
macro_rules! suite {
    (plain threads: $api:ty) => {
        $crate::__suite_tests!(any, $api);
    };
    (shared: $host:ty) => {
        $crate::__suite_tests!(any, $crate::Futures<$host>);
    };
    (several threads: $host:ty) => {
        const _: () = assert!(!<$host as $crate::Host>::ONE_THREAD);
        $crate::__suite_tests!(any, $crate::Futures<$host>);

        mod on_own_thread {
            $crate::__suite_tests!(any, $crate::Futures<$host, true>);
        }
    };
    (one thread: $host:ty) => {
        const _: () = assert!(<$host as $crate::Host>::ONE_THREAD);
        $crate::__suite_tests!(any, $crate::Futures<$host>);

        mod on_own_thread {
            $crate::__suite_tests!(any, $crate::Futures<$host, true>);
        }
    };
}
