//! The store of the example has every property that a store without hints must have.

#[expect(dead_code, reason = "the program of the example is not used here")]
#[path = "../examples/own_store.rs"]
mod own_store;

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use tenure_store::conformance::Harness;

use own_store::FileStore;

/// The directories are removed at the end of the test.
#[derive(Default)]
struct Directories(RefCell<Vec<tempfile::TempDir>>);

impl Harness for Directories {
    type Store = FileStore;

    const TTL: Duration = Duration::from_millis(500);

    fn block_on<F: Future>(&self, property: F) -> F::Output {
        futures::executor::block_on(property)
    }

    async fn fresh(&self) -> FileStore {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let store = FileStore { directory: directory.path().to_owned() };
        self.0.borrow_mut().push(directory);
        store
    }

    async fn handle(&self, store: &FileStore) -> FileStore {
        FileStore { directory: store.directory.clone() }
    }

    async fn reopen(&self, store: FileStore) -> FileStore {
        store
    }
}

tenure_store::conformance!(Directories::default(), ignore: {
    a_thousand_members_see_each_other: "it reads and writes the whole file for each of them",
    a_change_of_the_members_reaches_those_who_send_heartbeats: "it has no hints",
    a_release_reaches_a_watching_handle: "it has no hints",
    a_grant_reaches_a_watching_handle: "it has no hints",
    a_deletion_reaches_a_watching_handle: "it has no hints",
    no_release_is_missed_once_watch_has_returned: "it has no hints",
    at_most_two_waiters_are_chosen: "it has no hints",
    a_release_does_not_choose_its_own_handle: "it has no hints",
    unwatch_ends_the_waiting: "it has no hints",
    a_timer_is_based_anew_when_the_wall_clock_was_set_back: "the machine's clock can't be set",
    any_name_is_that_of_a_job: "it keeps no records of jobs",
    a_timer_and_a_job_of_one_name_are_distinct: "it keeps no records of jobs",
    a_text_of_a_run_that_is_too_long_is_refused: "it keeps no records of jobs",
    a_run_is_recorded_from_its_first_report_to_its_outcome: "it keeps no records of jobs",
    the_first_outcome_of_a_run_counts: "it keeps no records of jobs",
    reports_that_are_repeated_make_one_run: "it keeps no records of jobs",
    a_run_without_a_sign_of_life_is_abandoned: "it keeps no records of jobs",
    the_latest_hundred_runs_of_a_job_are_kept: "it keeps no records of jobs",
    jobs_are_listed_page_by_page: "it keeps no records of jobs",
    a_forgotten_job_is_gone: "it keeps no records of jobs",
    reopening_keeps_the_records_of_jobs: "it keeps no records of jobs",
});
