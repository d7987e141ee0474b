//! Every property of the conformance suite can fail: for each there is a store with a fault that it catches.

mod broken;
mod virtual_time;

use std::any::Any;
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tenure_store::conformance::{self, Harness};
use tenure_store::core::Instant;

use broken::{Broken, Fault};
use virtual_time::Clock;

struct Laboratory {
    clock: Clock,
    fault: Fault,
}

impl Laboratory {
    fn new(fault: Fault) -> Self {
        Self { clock: Clock::default(), fault }
    }
}

impl Harness for Laboratory {
    type Store = Broken;

    fn block_on<F: Future>(&self, property: F) -> F::Output {
        futures::executor::block_on(property)
    }

    async fn fresh(&self) -> Broken {
        Broken::new(self.clock.store(), self.fault)
    }

    async fn handle(&self, store: &Broken) -> Broken {
        store.handle()
    }

    async fn reopen(&self, store: Broken) -> Broken {
        self.clock.pass(Duration::from_millis(1));
        store.reopen(self.clock.store())
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    async fn pass(&self, time: Duration) {
        self.clock.pass(time);
    }

    fn set_wall(&self, by: i64) {
        self.clock.set_wall(by);
    }
}

/// The same store without a fault passes: so it is the fault that fails the properties below.
mod without_a_fault {
    use super::*;

    tenure_store::conformance!(Laboratory::new(Fault::Nothing));
}

/// Emits one test per property: it fails for a store with each of these faults.
macro_rules! caught {
    ($($property:ident: $($fault:ident),+;)*) => {
        $(
            #[test]
            fn $property() {
                for fault in [$(Fault::$fault),+] {
                    fails(fault, conformance::$property::<Laboratory>);
                }
            }
        )*

        #[test]
        fn every_property_has_a_fault() {
            let caught: BTreeSet<&str> = [$(stringify!($property)),*].into();
            assert_eq!(caught, conformance::PROPERTIES.iter().copied().collect());
        }
    };
}

caught! {
    one_candidate_in_fifty_wins: GrantsWhatIsHeld;
    acquire_is_idempotent_per_owner: ConfirmsWithANewToken;
    another_acquisition_of_the_same_process_is_a_stranger: IgnoresTheAcquisition, IgnoresTheIncarnation;
    renew_checks_owner_and_token: RenewsForAnyOwner, RenewsForAnyToken;
    release_checks_owner_and_token: ReleasesForAnyOwner, ReleasesForAnyToken;
    release_without_a_token_checks_the_owner: ReleasesUnseenForAnyOwner;
    executing_twice_equals_once: ConfirmsWithANewToken, ReleasesTwice, ReleasesByName;
    a_release_never_ends_the_grant_of_another: ReleasesByName, ReleasesForAnyOwner, ReleasesUnseenForAnyOwner;

    a_confirmation_extends_the_ttl: ConfirmsWithoutExtending;
    a_renewal_extends_the_ttl: RenewsWithoutExtending;
    an_expired_lease_is_granted_to_the_next: NeverExpires;
    no_lease_is_granted_before_its_ttl_is_over: ExpiresEarly, RenewsForHalf, RenewsWithoutExtending;
    a_late_renewal_resurrects_nothing: RenewsWhatIsGone, RenewsForAnyOwner;
    a_grant_after_a_gap_has_a_new_token: RemembersTokens;

    tokens_rise_over_release_and_expiry: ForgetsTokensOnRelease;
    tokens_rise_over_eviction: ForgetsTokensOnEviction;
    tokens_rise_over_reopening: ForgetsTokensOnReopening;
    reopening_keeps_what_is_held: ForgetsLeasesOnReopening;
    tokens_lie_above_the_floor: IgnoresTheFloor;
    a_floor_near_the_maximum_is_refused: WrapsTokens, IgnoresTheFloor;

    a_refused_operation_leaves_its_neighbours_alone: FailsTheWholeBatch;
    operations_on_one_lease_keep_their_order: ReversesBatches;
    a_large_batch_answers_every_operation: LosesTheLastOfMany;
    any_name_is_that_of_a_timer: FoldsCase, CutsNames, TrimsNames;
    any_name_is_that_of_a_job: FoldsCase, CutsNames, TrimsNames;
    a_lease_and_a_timer_of_one_name_are_distinct: ForgetsAllOfThatName;
    a_timer_and_a_job_of_one_name_are_distinct: ForgetsAllOfThatName;
    any_name_works_and_stays_distinct: FoldsCase, CutsNames, TrimsNames;
    names_come_back_unchanged: EscapesNames;
    a_ttl_out_of_bounds_is_refused: ClampsTtls;
    a_ttl_at_the_bounds_is_accepted: RefusesTheLongestTtl;
    metadata_that_is_too_long_is_refused: CutsMetadata;
    what_a_timer_can_not_keep_is_refused: CutsSchedules, ClampsTtls, CutsMetadata, ClampsTicks;
    a_text_of_a_run_that_is_too_long_is_refused: CutsMetadata, ClampsTtls;

    inspect_tells_who_holds: TellsNoTokens, LosesMetadata, TellsTooMuchRemaining;
    what_is_over_is_not_listed: ListsTheDead;
    list_goes_page_by_page: IgnoresAfter, IgnoresMost;
    a_replaced_owner_is_refused_and_the_lease_stays_closed: ReplacingDeletes;
    a_deleted_lease_is_free_at_once: DeletingReplaces;
    evicting_nobody_changes_nothing: EvictingCreates;

    all_handles_find_the_timer_that_the_first_reader_made: MakesATimerPerHandle, MakesTimersAnew;
    many_readers_at_once_make_one_timer: MakesATimerPerHandle;
    reopening_keeps_timers: ForgetsLeasesOnReopening;
    reading_tells_the_stores_wall_clock: TellsTheTimeOfTheBase;
    a_change_of_a_stale_revision_changes_nothing: ChangesWhateverTheRevision;
    a_staged_schedule_takes_effect_at_its_tick: StagesAtOnce, StagesForLater, LosesStaged;
    the_last_tick_only_rises: LowersTheLastTick, IgnoresTheLastTick;
    a_forgotten_timer_goes_on_from_the_number_of_its_reader: MakesWhatIsChanged, BeginsAtZero, ForgetsNoTimers;
    a_timer_is_based_anew_when_the_wall_clock_was_set_back: IgnoresRebases, RebasesTwice, NumbersFromTheAsker;
    operations_on_one_timer_keep_their_order: ReversesBatches;
    timers_are_listed_page_by_page: IgnoresAfter, IgnoresMost, LosesClaimsInLists;

    one_claimant_in_fifty_gets_a_tick: GrantsWhatIsTaken, HoldsWhatIsTaken;
    a_claim_is_idempotent_per_owner: ClaimsWithANewToken;
    a_lower_tick_is_never_granted: GrantsWhatIsTaken;
    a_claim_that_ran_out_is_granted_again_while_attempts_are_left: RepeatsForEver, NeverRepeats, NeverExpires;
    asking_again_after_a_claim_ran_out_is_another_attempt: GrantsAgainToTheSameOwner, FreesEarlierAttempts,
        RepeatsForEver, NeverRepeats;
    no_claim_passes_on_before_its_ttl_is_over: ExpiresEarly, RenewsWithoutExtending, RenewsForHalf;
    a_claim_is_renewed_and_ended_by_its_owner_alone: RenewsForAnyOwner, RenewsForAnyToken, ReleasesForAnyOwner,
        ReleasesForAnyToken, ReleasesTwice;
    a_late_end_never_ends_the_claim_of_another: ReleasesForAnyOwner, ReleasesUnseenForAnyOwner;
    a_tick_that_was_never_begun_is_granted_again: CountsWhatNeverBegan, CountsNothing;
    overlapping_ticks_are_skipped_or_wait_or_run: AllowsAllOverlaps, SkipsAllOverlaps, QueuesAllOverlaps,
        RunsSkippedTicksLate;
    tokens_of_claims_rise: RemembersTokens, ForgetsTokensOnReopening;
    reopening_keeps_claims: ForgetsLeasesOnReopening;
    only_so_many_runs_go_on_side_by_side: AllowsMoreRuns;

    a_run_is_recorded_from_its_first_report_to_its_outcome: TellsNoOutcomes, LosesMetadata, TellsNoEnds;
    the_first_outcome_of_a_run_counts: LastOutcomeCounts;
    reports_that_are_repeated_make_one_run: RecordsEveryReport;
    a_run_without_a_sign_of_life_is_abandoned: RunsForEver, RenewsWithoutExtending;
    the_latest_hundred_runs_of_a_job_are_kept: KeepsFewRuns, TellsTheOldestFirst;
    jobs_are_listed_page_by_page: IgnoresAfter, IgnoresMost, TellsTheOldestFirst;
    a_forgotten_job_is_gone: ForgetsNoJobs, ForgetsAllJobs;
    reopening_keeps_the_records_of_jobs: ForgetsLeasesOnReopening;

    who_sends_heartbeats_is_a_member_for_all_handles: SeesNobodyElse, MakesATimerPerHandle, JoinsAnew;
    a_member_is_gone_once_its_ttl_is_over: NeverExpires;
    no_member_is_gone_before_its_ttl_is_over: ExpiresEarly, RenewsWithoutExtending, RenewsForHalf;
    when_a_member_joined_is_written_once_and_adopted_if_it_was_lost: JoinsAnew, ForgetsWhatJoinersSay;
    the_age_of_a_member_rises_and_begins_anew_after_a_gap: TellsNoAges, CountsAgesFromTheFirstJoin;
    a_heartbeat_that_is_late_or_repeated_changes_nothing: TakesLateHeartbeats;
    a_heartbeat_that_is_late_or_repeated_extends_nothing: TakesLateHeartbeats, ExtendsByLateHeartbeats;
    who_has_left_is_not_brought_back_by_a_late_heartbeat: ForgetsWhoLeft;
    who_left_unseen_is_not_brought_in_by_a_late_heartbeat: LeavesNobodyUnseen, ForgetsWhoLeft;
    a_mark_to_drain_stays_until_it_is_taken_back: ClearsMarks, MarksNobody;
    a_mark_to_drain_concerns_one_process_or_all_of_that_name: MarksEveryProcess, MarksForeignProcesses;
    the_version_rises_with_what_others_see_and_with_nothing_else: RaisesTheVersionAlways, NeverRaisesTheVersion,
        RaisesNoVersionForMarks;
    the_view_is_told_to_whoever_does_not_know_it: TellsTheViewAlways, TellsNoViewToWhoKnewOne;
    two_processes_of_one_name_are_two_members: IgnoresTheIncarnation;
    what_members_say_comes_back_unchanged: LosesLabels, LosesMetadata, CutsDigests;
    any_name_of_an_instance_is_that_of_a_member: FoldsCase, CutsNames, TrimsNames;
    a_member_and_what_has_the_same_name_are_distinct: ForgetsAllOfThatName;
    what_a_member_can_not_say_is_refused: ClampsTtls, CutsMetadata, CutsDigests, ClampsSequences;
    operations_on_one_member_keep_their_order: ReversesBatches;
    members_are_listed_page_by_page: IgnoresAfter, IgnoresMost, ListsMembersBackwards;
    a_thousand_members_see_each_other: LosesTheLastMembers;
    reopening_keeps_members: ForgetsLeasesOnReopening;
    a_change_of_the_members_reaches_those_who_send_heartbeats: SilentMembers;

    a_release_reaches_a_watching_handle: SilentReleases;
    a_grant_reaches_a_watching_handle: SilentGrants;
    a_deletion_reaches_a_watching_handle: SilentDeletions;
    no_release_is_missed_once_watch_has_returned: WatchesNothing;
    at_most_two_waiters_are_chosen: ChoosesAll, ChoosesNobody;
    a_release_does_not_choose_its_own_handle: ChoosesItself;
    unwatch_ends_the_waiting: IgnoresUnwatch;
}

fn fails(fault: Fault, property: fn(&Laboratory)) {
    let laboratory = Laboratory::new(fault);
    let outcome = catch_unwind(AssertUnwindSafe(|| property(&laboratory)));
    let panic = outcome.expect_err(&format!("the property does not notice that the store {fault:?}"));
    println!("{fault:?}: {}", message(&*panic));
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("?")
}
