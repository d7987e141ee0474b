//! An open database: batches of operations, each batch one transaction if possible.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::ErrorCode;
use rusqlite::config::DbConfig;
use tenure_core::{Identity, Instant, JobName, LeaseName, TimerName};
use tenure_store::{
    Acquired, Answer, DrainMark, Eviction, JobRecord, LeaseRecord, MemberEntry, Operation, Outcome, Renewed,
    RunRecord, RunReport, StoreError, StoreErrorKind, TimerAnswer, TimerEntry,
};

use crate::clock;
use crate::error::{file_error, is_broken, store_error};
use crate::file;
use crate::liveness::{HandleId, Life, Lineage, LiveFolder, Liveness};
use crate::members::FleetSight;
use crate::options::SqliteOptions;
use crate::record::Record;
use crate::schema::{self, Opened};
use crate::tx::Transaction;

/// A database that this handle has open, under the name that the handle has there.
#[derive(Debug)]
pub(crate) struct Database {
    opened: Opened,
    live: LiveFolder,
    me: Liveness,
    /// Written to when others should look; `None` if it can't be had: then others find out by themselves.
    bell: Option<File>,
    high_water: u64,
    /// Where the removal of old leases goes on.
    sweep_from: Vec<u8>,
    next_cleaning: Instant,
    /// Set when the file can't be trusted any more.
    broken: bool,
}

/// What is found of a lease by those who watch it.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) record: Option<Record>,
    pub(crate) over: bool,
    pub(crate) chosen: u64,
    pub(crate) now: Instant,
}

/// The bell's name in the folder of the liveness files.
pub(crate) const BELL: &str = "bell";
/// Old leases that are looked at beside each batch that acquires: more than it can add, so that the table
/// stays small, and little enough not to be felt.
const SWEEP: usize = 16;
/// Old leases that are looked at on opening.
const FIRST_SWEEP: usize = 1024;
/// How long reading may take.
const READ_PATIENCE: Duration = Duration::from_secs(1);
/// Files of dead handles and old waiters are looked for this often, if anything is done at all.
const CLEANING_INTERVAL: Duration = Duration::from_secs(60);
/// So many files are looked at then.
const CLEANING: usize = 1024;

impl Database {
    /// Opens the database and enters this handle under a new name.
    pub(crate) fn open(
        options: &SqliteOptions,
        lineage: Lineage,
        until: Instant,
    ) -> Result<Self, StoreError> {
        let opened = schema::open(options, until)?;
        let live = LiveFolder::of(&opened.path);
        let me = if options.early {
            // Without its file a handle is as safe as with it, only slower to be succeeded.
            Liveness::begin(&live, lineage, &opened.boot.id).or_else(|error| {
                tracing::warn!(event = "sqlite.no_liveness", %error, "the death of this process can't be noticed at once, only by TTL");
                Liveness::hidden(lineage)
            })?
        } else {
            Liveness::hidden(lineage)?
        };
        let bell = live.create().and_then(|()| open_bell(&live));
        if let Err(error) = &bell {
            tracing::debug!(event = "sqlite.no_bell", %error, "others can't be woken by a file event");
        }
        let mut database = Self {
            opened,
            live,
            me,
            bell: bell.ok(),
            high_water: 0,
            sweep_from: Vec::new(),
            next_cleaning: Instant::ZERO,
            broken: false,
        };
        // Others may be at work; then it is left to the batches to come.
        let swept = database.write("can't look for old leases", clock::now(), |transaction| {
            transaction.sweep(b"", FIRST_SWEEP)?;
            transaction.sweep_waiters()?;
            transaction.sweep_members()?;
            Ok(Ok(()))
        });
        if let Err(error) = swept
            && error.kind != StoreErrorKind::Transient
        {
            return Err(error);
        }
        // Processes with another path have other leases: so it is said which one it is.
        tracing::info!(event = "sqlite.opened", path = %database.path().display(), "the store is open");
        Ok(database)
    }

    pub(crate) const fn live(&self) -> &LiveFolder {
        &self.live
    }

    pub(crate) const fn me(&self) -> &Liveness {
        &self.me
    }

    /// Whether the process behind a handle still lives.
    pub(crate) fn life(&self, handle: HandleId) -> Life {
        self.live.life(handle, &self.me)
    }

    /// Whether this handle holds the lease.
    pub(crate) fn is_mine(&self, record: &Record) -> bool {
        matches!(record, Record::Readable(lease) if lease.handle == Some(self.me.handle()))
    }

    pub(crate) const fn path(&self) -> &PathBuf {
        &self.opened.path
    }

    /// Whether the path still leads to this database, and it can be trusted.
    pub(crate) fn is_current(&self) -> Result<bool, StoreError> {
        let there = self.opened.identity.still_there().map_err(|error| {
            file_error(self.path(), "can't tell whether it still is the same file", &error)
        })?;
        Ok(there && !self.broken)
    }

    /// Begins a transaction as a writer.
    pub(crate) fn begin(&mut self, until: Instant) -> Result<(), StoreError> {
        let connection = &self.opened.connection;
        let broken = &mut self.broken;
        schema::wait_while_busy(&self.opened.path, "can't begin a transaction", until, || {
            schema::begin(connection).inspect_err(|error| *broken |= is_broken(error))
        })
    }

    /// Carries out operations in the transaction that was begun, and ends it. One outcome for each operation;
    /// none of them is told before the transaction is committed.
    pub(crate) fn execute(&mut self, operations: &[(&Operation, Instant)]) -> Vec<Outcome> {
        let together: Vec<&Operation> = operations.iter().map(|(operation, _)| *operation).collect();
        let error = match self.execute_together(&together) {
            Ok(outcomes) => return outcomes,
            Err(error) => error,
        };
        // What may have been done is not done again.
        let again = error.kind != StoreErrorKind::Unknown && operations.len() > 1;
        operations
            .iter()
            .map(|&(operation, until)| {
                let outcome = if again {
                    // One of them breaks the transaction; its neighbours must not suffer.
                    self.begin(until)
                        .and_then(|()| self.execute_together(&[operation]))
                        .and_then(|mut outcomes| outcomes.remove(0))
                } else {
                    Err(error.clone())
                };
                outcome.map_err(|error| error.about(operation.subject()))
            })
            .collect()
    }

    fn execute_together(&mut self, operations: &[&Operation]) -> Result<Vec<Outcome>, StoreError> {
        let acquires = operations.iter().any(|operation| matches!(operation, Operation::Acquire(_)));
        let sweep_from = std::mem::take(&mut self.sweep_from);
        let (outcomes, sweep_from) = self.finish("can't change leases", |transaction| {
            let outcomes =
                operations.iter().map(|op| transaction.apply(op)).collect::<rusqlite::Result<Vec<_>>>()?;
            let sweep_from = if acquires { transaction.sweep(&sweep_from, SWEEP)? } else { sweep_from };
            Ok(Ok((outcomes, sweep_from)))
        })?;
        self.sweep_from = sweep_from;
        let current = self.is_current().map_err(|mut error| {
            // It is committed, to whichever file.
            error.kind = StoreErrorKind::Unknown;
            error
        })?;
        if current {
            return Ok(outcomes);
        }
        // It was replaced in the meantime: what was done was done to a file that nobody sees any more.
        let void = |outcome: Outcome| match outcome {
            Ok(Answer::Renew(_)) => Ok(Answer::Renew(Renewed::NotYours)),
            Ok(Answer::Timer(TimerAnswer::Renewed)) => Ok(Answer::Timer(TimerAnswer::NotYours)),
            Ok(
                Answer::Acquire(Acquired::Granted(_))
                | Answer::Timer(
                    TimerAnswer::Read { .. }
                    | TimerAnswer::Granted(_)
                    | TimerAnswer::Taken
                    | TimerAnswer::Overlaps,
                )
                | Answer::Heartbeat(_)
                | Answer::Leave,
            ) => Err(StoreError::transient(format!(
                "{}: the file was replaced; try again",
                self.path().display()
            ))),
            other => other,
        };
        Ok(outcomes.into_iter().map(void).collect())
    }

    /// Runs a transaction.
    pub(crate) fn write<T>(
        &mut self,
        doing: &str,
        until: Instant,
        run: impl FnOnce(&mut Transaction<'_>) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.begin(until)?;
        self.finish(doing, run)
    }

    /// Runs the rest of a transaction that was begun: checks, work, commit or rollback, and the bell.
    fn finish<T>(
        &mut self,
        doing: &str,
        run: impl FnOnce(&mut Transaction<'_>) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut transaction = Transaction::over(&self.opened, &self.live, &self.me, self.high_water);
        let result = check_format(&self.opened).and_then(|format| match format {
            Ok(()) => run(&mut transaction),
            Err(error) => Ok(Err(error)),
        });
        let (high_water, ring) = (transaction.high_water, transaction.ring);
        let connection = &self.opened.connection;
        let result = match result {
            Ok(Ok(value)) => {
                match connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
                    Ok(_) => Ok(value),
                    Err(error) => {
                        self.broken |= is_broken(&error);
                        Err(uncommitted(&self.opened, &error))
                    }
                }
            }
            Ok(Err(error)) => Err(error),
            Err(error) => {
                self.broken |= is_broken(&error);
                Err(store_error(&self.opened.path, doing, &error))
            }
        };
        if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
            self.broken = true;
        }
        // Even after a failure: a token that may have been seen is not given again.
        self.high_water = high_water;
        if result.is_ok() && ring {
            self.ring();
        }
        result
    }

    /// Tells the others that something has changed that they wait for.
    fn ring(&self) {
        if let Some(bell) = &self.bell {
            // If it can't be rung they find out by looking now and then.
            let _ = bell.write_at(b"!", 0);
        }
    }

    /// Who holds a lease.
    pub(crate) fn inspect(&mut self, name: &LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        let record = self.read("can't read a lease", |transaction| transaction.find(name))?;
        let now = clock::now();
        Ok(record
            .filter(|record| !record.is_over(&self.opened.boot.id, now))
            .map(|record| LeaseRecord::new(name.clone(), record.holder(now))))
    }

    /// What is held.
    pub(crate) fn list(
        &mut self,
        after: Option<&LeaseName>,
        most: usize,
    ) -> Result<Vec<LeaseRecord>, StoreError> {
        self.read("can't list the leases", |transaction| transaction.list(after, most))
    }

    /// Takes a lease away.
    pub(crate) fn evict(
        &mut self,
        name: &LeaseName,
        how: Eviction,
        until: Instant,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        self.write("can't take a lease away", until, |transaction| transaction.evict(name, how))
    }

    /// What timers there are.
    pub(crate) fn timers(
        &mut self,
        after: Option<&TimerName>,
        most: usize,
    ) -> Result<Vec<TimerEntry>, StoreError> {
        self.read("can't list the timers", |transaction| transaction.timers(after, most))?
    }

    /// Keeps what a run reports.
    pub(crate) fn report(&mut self, report: &RunReport, until: Instant) -> Result<(), StoreError> {
        self.write("can't record a run", until, |transaction| transaction.report(report).map(Ok))
    }

    /// What jobs there are.
    pub(crate) fn jobs(
        &mut self,
        after: Option<&JobName>,
        most: usize,
    ) -> Result<Vec<JobRecord>, StoreError> {
        self.read("can't list the jobs", |transaction| transaction.jobs(after, most))
    }

    /// The runs of a job.
    pub(crate) fn runs(&mut self, job: &JobName) -> Result<Vec<RunRecord>, StoreError> {
        self.read("can't read the runs of a job", |transaction| transaction.runs(job))
    }

    /// Removes the records of a job.
    pub(crate) fn forget_job(&mut self, job: &JobName, until: Instant) -> Result<bool, StoreError> {
        self.write("can't forget a job", until, |transaction| transaction.forget_job(job).map(Ok))
    }

    /// Who is a member.
    pub(crate) fn members(
        &mut self,
        after: Option<&Identity>,
        most: usize,
    ) -> Result<Vec<MemberEntry>, StoreError> {
        self.read("can't list the members", |transaction| transaction.members(after, most))
    }

    /// Marks members to drain, or no longer.
    pub(crate) fn mark(&mut self, mark: &DrainMark, until: Instant) -> Result<Vec<Identity>, StoreError> {
        self.write("can't mark members", until, |transaction| transaction.mark(mark))
    }

    /// What those who are to hear of the members want to know.
    pub(crate) fn fleet_sight(&mut self) -> Result<FleetSight, StoreError> {
        self.read("can't look at the members", |transaction| transaction.fleet_sight())
    }

    /// Which of these handles have members and have died.
    pub(crate) fn dead_members(
        &mut self,
        suspects: impl IntoIterator<Item = HandleId>,
    ) -> Result<Vec<HandleId>, StoreError> {
        let dead: Vec<HandleId> =
            suspects.into_iter().filter(|handle| self.life(*handle) == Life::Dead).collect();
        self.read("can't look at the members", |transaction| {
            let is_of_a_member = |handle: &HandleId| transaction.is_of_a_member(*handle);
            dead.iter()
                .filter_map(|handle| is_of_a_member(handle).map(|is| is.then_some(*handle)).transpose())
                .collect()
        })
    }

    /// The handles whose lives are to be looked at, at most so many.
    pub(crate) fn member_handles(&mut self, most: usize) -> Result<Vec<HandleId>, StoreError> {
        self.read("can't look at the members", |transaction| transaction.member_handles(most))
    }

    /// What those who watch a lease want to know of it.
    pub(crate) fn look(&mut self, name: &LeaseName) -> Result<Sight, StoreError> {
        self.read("can't look at a lease", |transaction| {
            let record = transaction.find(name)?;
            let over = record.as_ref().is_none_or(|record| record.is_over(transaction.boot, transaction.now));
            let chosen = if over { transaction.chosen(name)? } else { 0 };
            Ok(Sight { record, over, chosen, now: transaction.now })
        })
    }

    /// Changes whenever another process has committed something.
    pub(crate) fn data_version(&mut self) -> Result<i64, StoreError> {
        self.read("can't read the version", |transaction| {
            transaction.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
        })
    }

    /// Reads without a transaction that would keep anybody waiting.
    fn read<T>(
        &mut self,
        doing: &str,
        run: impl Fn(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let transaction = Transaction::over(&self.opened, &self.live, &self.me, self.high_water);
        // Readers wait only while another process repairs or closes the log.
        let until = transaction.now + READ_PATIENCE;
        let broken = &mut self.broken;
        schema::wait_while_busy(&self.opened.path, doing, until, || {
            check_format(&self.opened)
                .and_then(|format| match format {
                    Ok(()) => run(&transaction).map(Ok),
                    Err(error) => Ok(Err(error)),
                })
                .inspect_err(|error| *broken |= is_broken(error))
        })?
    }

    /// Removes the waiters that gave no sign for long, and the liveness files that nobody needs any more, now and
    /// then. As long as a lease or a waiter names a handle, its file is what proves that it is dead.
    pub(crate) fn clean(&mut self, now: Instant) {
        if now < self.next_cleaning {
            return;
        }
        self.next_cleaning = now + CLEANING_INTERVAL;
        let abandoned = self.live.abandoned(CLEANING);
        // Somebody else who writes just now is not waited for.
        let named = self.write("can't clean up", now, |transaction| {
            transaction.sweep_waiters()?;
            transaction.sweep_members()?;
            Ok(Ok(if abandoned.is_empty() { BTreeSet::new() } else { transaction.named()? }))
        });
        let Ok(named) = named else { return };
        for handle in abandoned.into_iter().filter(|handle| !named.contains(handle)) {
            self.live.bury(handle);
        }
    }

    /// Ends it without touching files that have taken the place of ours.
    pub(crate) fn abandon(self) {
        // If that fails SQLite itself still looks whether the file was moved.
        let _ = self.opened.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }
}

fn check_format(opened: &Opened) -> rusqlite::Result<Result<(), StoreError>> {
    let format: i32 =
        opened.connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
    Ok(schema::check_format(&opened.path, format))
}

/// An error of a commit. Most say that nothing was committed; an input or output error, or a lack of memory, may have
/// come after the data had reached the file.
fn uncommitted(opened: &Opened, error: &rusqlite::Error) -> StoreError {
    let mut failed = store_error(&opened.path, "can't commit", error);
    if matches!(
        error.sqlite_error_code(),
        None | Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::Unknown
        )
    ) {
        failed.kind = StoreErrorKind::Unknown;
    }
    failed
}

fn open_bell(live: &LiveFolder) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(file::AS_IT_IS)
        .open(live.path().join(BELL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(options: &SqliteOptions) -> Database {
        Database::open(options, Lineage::draw().unwrap(), clock::now()).unwrap()
    }

    #[test]
    fn a_link_or_a_pipe_in_the_place_of_the_bell_is_left_alone_and_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let live = LiveFolder::of(&folder.path().join("a.db"));
        live.create().unwrap();
        let target = folder.path().join("target");
        std::fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, live.path().join(BELL)).unwrap();
        assert!(open_bell(&live).is_err());
        std::fs::remove_file(live.path().join(BELL)).unwrap();
        let made = std::process::Command::new("mkfifo").arg(live.path().join(BELL)).status().unwrap();
        assert!(made.success());
        assert!(open_bell(&live).is_err());
    }

    #[test]
    fn waiters_that_died_without_a_liveness_file_are_removed_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(folder.path().join("a.db")).unwrap();
        let mut database = open(&options);
        let name = LeaseName::new("x").unwrap();
        open(&options.clone().early(false))
            .write("can't register", clock::now(), |transaction| transaction.register(&name, false).map(Ok))
            .unwrap();
        let waiters = |database: &Database| -> i64 {
            let count = "SELECT count(*) FROM waiter";
            database.opened.connection.query_row(count, [], |row| row.get(0)).unwrap()
        };
        database.clean(clock::now() + CLEANING_INTERVAL);
        assert_eq!(waiters(&database), 1, "nobody can tell yet that it is dead");
        database.opened.connection.execute("UPDATE waiter SET expires = 1", []).unwrap();
        database.clean(clock::now() + CLEANING_INTERVAL * 3);
        assert_eq!(waiters(&database), 0);
    }
}
