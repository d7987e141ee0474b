//! The properties that every store must have, as tests. For the tests of an adapter, also of a user's own.
//!
//! Implement [`Harness`] for the store and let [`conformance!`](crate::conformance!) emit one `#[test]` per
//! property:
//!
//! ```
//! use std::future::Future;
//!
//! use tenure_memory::MemoryStore;
//! use tenure_store::conformance::Harness;
//!
//! struct MyHarness;
//!
//! impl Harness for MyHarness {
//!     type Store = MemoryStore;
//!
//!     fn block_on<F: Future>(&self, property: F) -> F::Output {
//!         futures::executor::block_on(property) // or what the runtime of the store has
//!     }
//!     async fn fresh(&self) -> MemoryStore {
//!         MemoryStore::new() // elsewhere with a database, a prefix, a file of its own
//!     }
//!     async fn handle(&self, store: &MemoryStore) -> MemoryStore {
//!         store.handle() // as another process would have it
//!     }
//!     async fn reopen(&self, _: MemoryStore) -> MemoryStore {
//!         MemoryStore::new()
//!     }
//! }
//!
//! tenure_store::conformance!(MyHarness, ignore: {
//!     reopening_keeps_what_is_held: "this store keeps nothing over a restart",
//!     reopening_keeps_timers: "this store keeps nothing over a restart",
//!     reopening_keeps_claims: "this store keeps nothing over a restart",
//!     reopening_keeps_the_records_of_jobs: "this store keeps nothing over a restart",
//!     reopening_keeps_members: "this store keeps nothing over a restart",
//!     a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the machine's clock can't be set",
//! });
//! ```
//!
//! The first argument is an expression that makes the harness, once per test. What stands under `ignore` is
//! emitted as an ignored test with that reason; a name that is no property does not compile. Each property is
//! also a plain function here, for whoever wants to call it in another way; it panics if the store does not
//! have it.
//!
//! Where the store needs something that is not always there, such as a server, `needs: "a server of X"` between the two
//! has every test ignored for that reason, to be run by `cargo test -- --ignored`; what stands under `ignore` is then left
//! out altogether.
//!
//! | left out if | properties |
//! |---|---|
//! | the store has no hints | all from `a_change_of_the_members_reaches_those_who_send_heartbeats` on |
//! | it keeps nothing over a restart | all that begin with `reopening_keeps` |
//! | its wall clock can't be set by a test ([`Harness::set_wall`]) | `a_timer_is_based_anew_when_the_wall_clock_was_set_back` |
//! | it has no timers | those in the blocks `timers` and `claims` of the source, and those of `bounds` and `names` that speak of timers |
//! | it keeps no records of jobs | those in the block `jobs`, and those of `bounds` and `names` that speak of jobs or runs |
//! | it keeps no members | those in the blocks `members` and `views` |
//! | its tokens are given by the server | `tokens_lie_above_the_floor` |
//!
//! Properties that wait for a TTL to run out take [`Harness::TTL`]; all others use a TTL of a minute, and
//! expect nothing of how fast the store is.

mod batches;
mod bounds;
mod candidate;
mod claimant;
mod claims;
mod eviction;
mod exclusion;
mod expiry;
mod extension;
mod harness;
mod instance;
mod jobs;
mod looking;
mod members;
mod names;
mod timers;
mod tokens;
mod views;
mod waiting;

pub use harness::Harness;

/// Makes the one list of properties into what is needed of it. The first argument is a `$`, which a macro
/// that makes a macro can't write by itself.
macro_rules! properties {
    ($d:tt $($module:ident { $($property:ident)* })*) => {
        $(pub use $module::{$($property),*};)*

        /// The names of all properties.
        pub const PROPERTIES: &[&str] = &[$($(stringify!($property)),*),*];

        #[doc(hidden)]
        #[macro_export]
        macro_rules! __conformance_tests {
            ($d harness:expr, $d ignored:tt) => {
                $($($d crate::__conformance_test!($property, $d harness, $d ignored);)*)*
            };
            ($d harness:expr, $d needs:literal, $d ignored:tt) => {
                $($($d crate::__conformance_test!($property, $d harness, $d needs, $d ignored);)*)*
            };
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! __conformance_test {
            $($(($property, $d harness:expr, { $property: $d reason:literal, $d($d rest:tt)* }) => {
                #[test]
                #[ignore = $d reason]
                fn $property() {
                    $d crate::conformance::$property(&$d harness);
                }
            };)*)*
            // Whoever runs what is ignored because it needs something must not meet what can't be run at all.
            $($(($property, $d harness:expr, $d needs:literal, { $property: $d reason:literal, $d($d rest:tt)* }) => {};)*)*
            ($d property:ident, $d harness:expr, $d needs:literal, { $d other:ident: $d reason:literal, $d($d rest:tt)* }) => {
                $d crate::__conformance_test!($d property, $d harness, $d needs, { $d($d rest)* });
            };
            ($d property:ident, $d harness:expr, $d needs:literal, {}) => {
                #[test]
                #[ignore = $d needs]
                fn $d property() {
                    $d crate::conformance::$d property(&$d harness);
                }
            };
            ($d property:ident, $d harness:expr, { $d other:ident: $d reason:literal, $d($d rest:tt)* }) => {
                $d crate::__conformance_test!($d property, $d harness, { $d($d rest)* });
            };
            ($d property:ident, $d harness:expr, {}) => {
                #[test]
                fn $d property() {
                    $d crate::conformance::$d property(&$d harness);
                }
            };
        }
    };
}

properties! { $
    exclusion {
        one_candidate_in_fifty_wins
        acquire_is_idempotent_per_owner
        another_acquisition_of_the_same_process_is_a_stranger
        renew_checks_owner_and_token
        release_checks_owner_and_token
        release_without_a_token_checks_the_owner
        executing_twice_equals_once
        a_release_never_ends_the_grant_of_another
    }
    extension {
        a_confirmation_extends_the_ttl
        a_renewal_extends_the_ttl
    }
    expiry {
        an_expired_lease_is_granted_to_the_next
        no_lease_is_granted_before_its_ttl_is_over
        a_late_renewal_resurrects_nothing
        a_grant_after_a_gap_has_a_new_token
    }
    tokens {
        tokens_rise_over_release_and_expiry
        tokens_rise_over_eviction
        tokens_rise_over_reopening
        reopening_keeps_what_is_held
        tokens_lie_above_the_floor
        a_floor_near_the_maximum_is_refused
    }
    batches {
        a_refused_operation_leaves_its_neighbours_alone
        operations_on_one_lease_keep_their_order
        a_large_batch_answers_every_operation
    }
    names {
        any_name_works_and_stays_distinct
        names_come_back_unchanged
        any_name_is_that_of_a_timer
        any_name_is_that_of_a_job
        a_lease_and_a_timer_of_one_name_are_distinct
        a_timer_and_a_job_of_one_name_are_distinct
    }
    bounds {
        a_ttl_out_of_bounds_is_refused
        a_ttl_at_the_bounds_is_accepted
        metadata_that_is_too_long_is_refused
        what_a_timer_can_not_keep_is_refused
        a_text_of_a_run_that_is_too_long_is_refused
    }
    looking {
        inspect_tells_who_holds
        what_is_over_is_not_listed
        list_goes_page_by_page
    }
    eviction {
        a_replaced_owner_is_refused_and_the_lease_stays_closed
        a_deleted_lease_is_free_at_once
        evicting_nobody_changes_nothing
    }
    timers {
        all_handles_find_the_timer_that_the_first_reader_made
        many_readers_at_once_make_one_timer
        reopening_keeps_timers
        reading_tells_the_stores_wall_clock
        a_change_of_a_stale_revision_changes_nothing
        a_staged_schedule_takes_effect_at_its_tick
        the_last_tick_only_rises
        a_forgotten_timer_goes_on_from_the_number_of_its_reader
        a_timer_is_based_anew_when_the_wall_clock_was_set_back
        operations_on_one_timer_keep_their_order
        timers_are_listed_page_by_page
    }
    claims {
        one_claimant_in_fifty_gets_a_tick
        a_claim_is_idempotent_per_owner
        a_lower_tick_is_never_granted
        a_claim_that_ran_out_is_granted_again_while_attempts_are_left
        asking_again_after_a_claim_ran_out_is_another_attempt
        no_claim_passes_on_before_its_ttl_is_over
        a_claim_is_renewed_and_ended_by_its_owner_alone
        a_late_end_never_ends_the_claim_of_another
        a_tick_that_was_never_begun_is_granted_again
        overlapping_ticks_are_skipped_or_wait_or_run
        tokens_of_claims_rise
        reopening_keeps_claims
        only_so_many_runs_go_on_side_by_side
    }
    jobs {
        a_run_is_recorded_from_its_first_report_to_its_outcome
        the_first_outcome_of_a_run_counts
        reports_that_are_repeated_make_one_run
        a_run_without_a_sign_of_life_is_abandoned
        the_latest_hundred_runs_of_a_job_are_kept
        jobs_are_listed_page_by_page
        a_forgotten_job_is_gone
        reopening_keeps_the_records_of_jobs
    }
    members {
        who_sends_heartbeats_is_a_member_for_all_handles
        a_member_is_gone_once_its_ttl_is_over
        no_member_is_gone_before_its_ttl_is_over
        when_a_member_joined_is_written_once_and_adopted_if_it_was_lost
        the_age_of_a_member_rises_and_begins_anew_after_a_gap
        a_heartbeat_that_is_late_or_repeated_changes_nothing
        a_heartbeat_that_is_late_or_repeated_extends_nothing
        who_has_left_is_not_brought_back_by_a_late_heartbeat
        who_left_unseen_is_not_brought_in_by_a_late_heartbeat
        two_processes_of_one_name_are_two_members
        a_member_and_what_has_the_same_name_are_distinct
        operations_on_one_member_keep_their_order
        reopening_keeps_members
    }
    views {
        a_mark_to_drain_stays_until_it_is_taken_back
        a_mark_to_drain_concerns_one_process_or_all_of_that_name
        the_version_rises_with_what_others_see_and_with_nothing_else
        the_view_is_told_to_whoever_does_not_know_it
        what_members_say_comes_back_unchanged
        any_name_of_an_instance_is_that_of_a_member
        what_a_member_can_not_say_is_refused
        members_are_listed_page_by_page
        a_thousand_members_see_each_other
        a_change_of_the_members_reaches_those_who_send_heartbeats
    }
    waiting {
        a_release_reaches_a_watching_handle
        a_grant_reaches_a_watching_handle
        a_deletion_reaches_a_watching_handle
        no_release_is_missed_once_watch_has_returned
        at_most_two_waiters_are_chosen
        a_release_does_not_choose_its_own_handle
        unwatch_ends_the_waiting
    }
}

/// Emits one `#[test]` per property of a store: see [the module](mod@crate::conformance).
#[macro_export]
macro_rules! conformance {
    ($harness:expr $(,)?) => {
        $crate::conformance!($harness, ignore: {});
    };
    ($harness:expr, needs: $needs:literal, ignore: { $($property:ident: $reason:literal),* $(,)? } $(,)?) => {
        $(
            #[allow(unused_imports)]
            use $crate::conformance::$property as _;
        )*
        $crate::__conformance_tests!($harness, $needs, { $($property: $reason,)* });
    };
    ($harness:expr, ignore: { $($property:ident: $reason:literal),* $(,)? } $(,)?) => {
        // A name that is no property does not compile.
        $(
            #[allow(unused_imports)]
            use $crate::conformance::$property as _;
        )*
        $crate::__conformance_tests!($harness, { $($property: $reason,)* });
    };
}
