//! A store of one's own, short: leases in a table of SQL, for a program that has a database anyway.
//!
//! It has leases, and neither hints nor timers, members or records of jobs: what it leaves out is said to be unsupported,
//! and waiters go by the TTL. The conformance suite, at the end, holds it to what a store has to keep. The client here is
//! that of SQLite and blocks the thread; one for a server would be awaited, with the same SQL. Run it with
//! `cargo run --example sql_store`, and the suite with `cargo test --example sql_store`.

use std::error::Error;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use tenure::store_contract::{Acquire, Acquired, Release, Released, Renew, Renewed, check_floor};
use tenure::{
    Eviction, Holder, LeaseName, LeaseRecord, Limits, Metadata, Rate, SimpleStore, StoreClock, StoreError,
    Token,
};

/// Times are microseconds of the wall clock: all that the processes of a machine share here.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS high (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL);
    INSERT OR IGNORE INTO high VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS lease (name TEXT PRIMARY KEY, owner TEXT NOT NULL, token INTEGER NOT NULL,
        ttl INTEGER NOT NULL, since INTEGER NOT NULL, ends INTEGER NOT NULL, host TEXT, pid INTEGER, text TEXT)";

struct SqlStore(Mutex<Connection>);

impl SqlStore {
    fn open(file: &Path) -> rusqlite::Result<Self> {
        let database = Connection::open(file)?;
        database.busy_timeout(Duration::from_secs(10))?;
        database.execute_batch(TABLES)?;
        Ok(Self(Mutex::new(database)))
    }

    /// One operation: atomic, by the store's clock, and only with leases that are not over. Nobody waits longer for the
    /// others than `timeout`.
    fn change<T>(
        &self,
        timeout: Duration,
        act: impl FnOnce(&Transaction<'_>, i64) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        // Until it is committed nothing has happened.
        let failed = |error: rusqlite::Error| StoreError::transient(error.to_string());
        let mut database = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        database.busy_timeout(timeout).map_err(failed)?;
        let transaction =
            database.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros);
        transaction.execute("DELETE FROM lease WHERE ends <= ?1", [now]).map_err(failed)?;
        let answer = act(&transaction, now).map_err(failed)?;
        transaction.commit().map_err(|error| StoreError::unknown(error.to_string()))?;
        Ok(answer)
    }
}

impl SimpleStore for SqlStore {
    fn limits(&self) -> Limits {
        let mut limits = Limits::DEFAULT;
        // The wall clock is steered, not set: a step of more than this while leases are held leaves only the tokens.
        let (quantum, step) = (Duration::from_millis(1), Duration::from_millis(100));
        limits.clock = StoreClock { drift: Rate::ONE_PERCENT, quantum, step };
        limits.min_ttl = Duration::from_millis(500);
        limits
    }

    async fn acquire(&self, request: Acquire) -> Result<Acquired, StoreError> {
        self.limits().check_acquire(&request)?;
        check_floor(&request, Token::new(i64::MAX as u64 / 2))?;
        let Acquire { name, owner, ttl, floor, metadata: Metadata { host, pid, text, .. }, .. } = request;
        self.change(request.timeout, |leases, now| {
            let (owner, ttl) = (owner.to_string(), micros(ttl));
            match holder(leases, &name, now)? {
                Some(Holder { owner: other, token: Some(token), .. }) if other == owner => {
                    let extend = "UPDATE lease SET ttl = ?2, ends = ?3 WHERE name = ?1";
                    leases.execute(extend, params![name.as_str(), ttl, now + ttl])?;
                    return Ok(Acquired::Granted(token));
                }
                Some(holder) => return Ok(Acquired::Held(holder)),
                None => {}
            }
            // Above every token before, whatever became of its lease, and above all that the asker has seen.
            let next = "UPDATE high SET token = max(token, ?1, ?2 - 1) + 1 RETURNING token";
            let floor = floor.get().cast_signed();
            let token: i64 = leases.query_row(next, [floor, now], |row| row.get(0))?;
            let record = params![name.as_str(), owner, token, ttl, now, now + ttl, host, pid, text];
            leases.execute("INSERT INTO lease VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)", record)?;
            Ok(Acquired::Granted(Token::new(token.cast_unsigned())))
        })
    }

    async fn renew(&self, request: Renew) -> Result<Renewed, StoreError> {
        self.limits().check_renew(&request)?;
        let Renew { name, owner, token, ttl, timeout } = request;
        let extend = "UPDATE lease SET ttl = ?4, ends = ?5 WHERE name = ?1 AND owner = ?2 AND token = ?3";
        self.change(timeout, |leases, now| {
            let (owner, token, ttl) = (owner.to_string(), token.get().cast_signed(), micros(ttl));
            let rows = leases.execute(extend, params![name.as_str(), owner, token, ttl, now + ttl])?;
            Ok(if rows == 1 { Renewed::Renewed } else { Renewed::NotYours })
        })
    }

    async fn release(&self, request: Release) -> Result<Released, StoreError> {
        let Release { name, owner, token, timeout } = request;
        let end = "DELETE FROM lease WHERE name = ?1 AND owner = ?2 AND token = coalesce(?3, token)";
        self.change(timeout, |leases, _| {
            let token = token.map(|token| token.get().cast_signed());
            let rows = leases.execute(end, params![name.as_str(), owner.to_string(), token])?;
            let released = Released::Released { others_chosen: false };
            Ok(if rows == 1 { released } else { Released::NotYours })
        })
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        let found = self.change(PATIENCE, |leases, now| holder(leases, &name, now))?;
        Ok(found.map(|holder| LeaseRecord::new(name, holder)))
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        let (after, most) =
            (after.as_ref().map_or("", LeaseName::as_str), most.try_into().unwrap_or(i64::MAX));
        self.change(PATIENCE, |leases, now| {
            let mut page = leases.prepare("SELECT * FROM lease WHERE name > ?1 ORDER BY name LIMIT ?2")?;
            let records = page.query_map(params![after, most], |row| {
                let name = row.get_ref("name")?.as_str()?.to_owned();
                Ok(LeaseName::new(name).ok().map(|name| (name, read(row, now))))
            })?;
            let named = records.filter_map(Result::transpose);
            named
                .map(|record| record.and_then(|(name, holder)| Ok(LeaseRecord::new(name, holder?))))
                .collect()
        })
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        let evicted = self.change(PATIENCE, |leases, now| {
            let evicted = holder(leases, &name, now)?;
            leases.execute(
                match how {
                    // No process has an owner without a slash.
                    Eviction::Replace => "UPDATE lease SET owner = 'evicted' WHERE name = ?1",
                    Eviction::Delete => "DELETE FROM lease WHERE name = ?1",
                },
                [name.as_str()],
            )?;
            Ok(evicted)
        })?;
        Ok(evicted.map(|holder| LeaseRecord::new(name, holder)))
    }
}

/// How long a person waits who looks.
const PATIENCE: Duration = Duration::from_secs(10);

fn holder(leases: &Connection, name: &LeaseName, now: i64) -> rusqlite::Result<Option<Holder>> {
    let find = "SELECT * FROM lease WHERE name = ?1";
    leases.query_row(find, [name.as_str()], |row| read(row, now)).optional()
}

fn read(row: &Row<'_>, now: i64) -> rusqlite::Result<Holder> {
    let time = |micros: i64| Duration::from_micros(micros.try_into().unwrap_or(0));
    let mut holder = Holder::new(row.get::<_, String>("owner")?);
    holder.token = Some(Token::new(row.get::<_, i64>("token")?.cast_unsigned()));
    holder.ttl = Some(time(row.get("ttl")?));
    holder.since = Some(UNIX_EPOCH + time(row.get("since")?));
    holder.remaining = Some(time(row.get::<_, i64>("ends")? - now));
    let metadata = &mut holder.metadata;
    (metadata.host, metadata.pid, metadata.text) = (row.get("host")?, row.get("pid")?, row.get("text")?);
    Ok(holder)
}

fn micros(time: Duration) -> i64 {
    time.as_micros().try_into().unwrap_or(i64::MAX)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = SqlStore::open(&directory.path().join("leases.db"))?;
    let tenure = tenure::builder().store(store).start()?;
    let lease = tenure.acquire("backup").await?;
    println!("token {}", lease.token());
    lease.release().await?;
    Ok(tenure.shutdown().await?)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::Future;

    use tenure_store::conformance::Harness;

    use super::*;

    /// The folders are removed at the end of the test.
    #[derive(Default)]
    struct Folders(RefCell<Vec<tempfile::TempDir>>);

    impl Harness for Folders {
        type Store = SqlStore;

        const TTL: Duration = Duration::from_secs(1);

        fn block_on<F: Future>(&self, property: F) -> F::Output {
            futures::executor::block_on(property)
        }

        async fn fresh(&self) -> SqlStore {
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            let store = SqlStore::open(&folder.path().join("leases.db")).expect("a database can be made");
            self.0.borrow_mut().push(folder);
            store
        }

        async fn handle(&self, store: &SqlStore) -> SqlStore {
            let database = store.0.lock().expect("no test has panicked with it");
            SqlStore::open(Path::new(database.path().expect("it is a file"))).expect("it can be opened again")
        }

        async fn reopen(&self, store: SqlStore) -> SqlStore {
            self.handle(&store).await
        }
    }

    tenure_store::conformance!(Folders::default(), ignore: {
        all_handles_find_the_timer_that_the_first_reader_made: "it has no timers",
        many_readers_at_once_make_one_timer: "it has no timers",
        reopening_keeps_timers: "it has no timers",
        reading_tells_the_stores_wall_clock: "it has no timers",
        a_change_of_a_stale_revision_changes_nothing: "it has no timers",
        a_staged_schedule_takes_effect_at_its_tick: "it has no timers",
        the_last_tick_only_rises: "it has no timers",
        a_forgotten_timer_goes_on_from_the_number_of_its_reader: "it has no timers",
        a_timer_is_based_anew_when_the_wall_clock_was_set_back: "it has no timers",
        operations_on_one_timer_keep_their_order: "it has no timers",
        timers_are_listed_page_by_page: "it has no timers",
        one_claimant_in_fifty_gets_a_tick: "it has no timers",
        a_claim_is_idempotent_per_owner: "it has no timers",
        a_lower_tick_is_never_granted: "it has no timers",
        a_claim_that_ran_out_is_granted_again_while_attempts_are_left: "it has no timers",
        asking_again_after_a_claim_ran_out_is_another_attempt: "it has no timers",
        no_claim_passes_on_before_its_ttl_is_over: "it has no timers",
        a_claim_is_renewed_and_ended_by_its_owner_alone: "it has no timers",
        a_late_end_never_ends_the_claim_of_another: "it has no timers",
        a_tick_that_was_never_begun_is_granted_again: "it has no timers",
        overlapping_ticks_are_skipped_or_wait_or_run: "it has no timers",
        tokens_of_claims_rise: "it has no timers",
        reopening_keeps_claims: "it has no timers",
        only_so_many_runs_go_on_side_by_side: "it has no timers",
        any_name_is_that_of_a_timer: "it has no timers",
        any_name_is_that_of_a_job: "it keeps no records of jobs",
        a_lease_and_a_timer_of_one_name_are_distinct: "it has no timers",
        a_timer_and_a_job_of_one_name_are_distinct: "it has no timers",
        what_a_timer_can_not_keep_is_refused: "it has no timers",
        a_text_of_a_run_that_is_too_long_is_refused: "it keeps no records of jobs",
        a_run_is_recorded_from_its_first_report_to_its_outcome: "it keeps no records of jobs",
        the_first_outcome_of_a_run_counts: "it keeps no records of jobs",
        reports_that_are_repeated_make_one_run: "it keeps no records of jobs",
        a_run_without_a_sign_of_life_is_abandoned: "it keeps no records of jobs",
        the_latest_hundred_runs_of_a_job_are_kept: "it keeps no records of jobs",
        jobs_are_listed_page_by_page: "it keeps no records of jobs",
        a_forgotten_job_is_gone: "it keeps no records of jobs",
        reopening_keeps_the_records_of_jobs: "it keeps no records of jobs",
        who_sends_heartbeats_is_a_member_for_all_handles: "it keeps no members",
        a_member_is_gone_once_its_ttl_is_over: "it keeps no members",
        no_member_is_gone_before_its_ttl_is_over: "it keeps no members",
        when_a_member_joined_is_written_once_and_adopted_if_it_was_lost: "it keeps no members",
        the_age_of_a_member_rises_and_begins_anew_after_a_gap: "it keeps no members",
        a_heartbeat_that_is_late_or_repeated_changes_nothing: "it keeps no members",
        a_heartbeat_that_is_late_or_repeated_extends_nothing: "it keeps no members",
        who_has_left_is_not_brought_back_by_a_late_heartbeat: "it keeps no members",
        who_left_unseen_is_not_brought_in_by_a_late_heartbeat: "it keeps no members",
        two_processes_of_one_name_are_two_members: "it keeps no members",
        a_member_and_what_has_the_same_name_are_distinct: "it keeps no members",
        operations_on_one_member_keep_their_order: "it keeps no members",
        reopening_keeps_members: "it keeps no members",
        a_mark_to_drain_stays_until_it_is_taken_back: "it keeps no members",
        a_mark_to_drain_concerns_one_process_or_all_of_that_name: "it keeps no members",
        the_version_rises_with_what_others_see_and_with_nothing_else: "it keeps no members",
        the_view_is_told_to_whoever_does_not_know_it: "it keeps no members",
        what_members_say_comes_back_unchanged: "it keeps no members",
        any_name_of_an_instance_is_that_of_a_member: "it keeps no members",
        what_a_member_can_not_say_is_refused: "it keeps no members",
        members_are_listed_page_by_page: "it keeps no members",
        a_thousand_members_see_each_other: "it keeps no members",
        a_change_of_the_members_reaches_those_who_send_heartbeats: "it keeps no members",
        a_release_reaches_a_watching_handle: "it has no hints",
        a_grant_reaches_a_watching_handle: "it has no hints",
        a_deletion_reaches_a_watching_handle: "it has no hints",
        no_release_is_missed_once_watch_has_returned: "it has no hints",
        at_most_two_waiters_are_chosen: "it has no hints",
        a_release_does_not_choose_its_own_handle: "it has no hints",
        unwatch_ends_the_waiting: "it has no hints",
    });
}
