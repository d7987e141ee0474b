//! Timers and their claims, as they stand in rows, and what each operation does with them.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, Row, params};
use tenure_core::{Instant, NextSchedule, Tick, TimerName, Timestamp, Token};
use tenure_store::{
    Claim, Metadata, StoreError, StoreTime, TickClaim, TimerAct, TimerAnswer, TimerEntry, TimerRecord,
    TimerRequest,
};

use crate::liveness::{HandleId, Life};
use crate::record::{self, whole};
use crate::schema::ROW_FORMAT;
use crate::tx::{Step, Transaction, duration, signed};

/// The columns of a timer, in the order in which they are read.
const TIMER: &str =
    "name, format, revision, base_n, base_at, schedule, next_n, next_at, next_schedule, last, claimed";
/// The columns of a claim, in the order in which they are read.
const CLAIM: &str =
    "tick, format, owner, token, boot, expires, ttl, begun, attempts, since, handle, early, host, pid, text";

/// A timer and its claims, loaded.
#[derive(Debug)]
struct Loaded {
    record: TimerRecord,
    /// The ticks of claims that can't be read. Their rows stay as they are.
    unreadable: Vec<u64>,
}

/// Why a record was not changed.
enum Failed {
    Refused(StoreError),
    Broken(rusqlite::Error),
}

impl Transaction<'_> {
    /// Carries out an operation on a timer.
    pub(crate) fn timer(&mut self, request: &TimerRequest) -> Step<TimerAnswer> {
        let TimerRequest { name, act, timeout: _ } = request;
        if *act == TimerAct::Forget {
            // Also one that can't be read: it is what is left to do with it.
            return self.forget_timer(name).map(Ok);
        }
        let asker = match act {
            TimerAct::Claim(TickClaim { owner, .. })
            | TimerAct::Renew { owner, .. }
            | TimerAct::Finish { owner, .. } => Some(owner.to_string()),
            TimerAct::Read { .. } | TimerAct::Change { .. } | TimerAct::Forget => None,
        };
        // Whoever only renews or ends its own claim, or reads the timer, does not care whether others live.
        let probe = matches!(act, TimerAct::Claim(_));
        let loaded = match self.load(name, asker.as_deref(), probe)? {
            Ok(loaded) => loaded,
            Err(error) => return Ok(Err(error)),
        };
        let unreadable = loaded.as_ref().map(|loaded| loaded.unreadable.clone()).unwrap_or_default();
        let before = loaded.map(|loaded| loaded.record);
        let mut record = before.clone();
        // Above the tokens of claims that are still there, should the high water have been lost.
        let earlier = record.iter().flat_map(|record| &record.claims).map(|claim| claim.token.get()).max();
        let answer = TimerRecord::apply(&mut record, act, self.time(), |floor| {
            match self.next_token(floor.get().max(earlier.unwrap_or(0))) {
                Ok(Ok(token)) => Ok(token),
                Ok(Err(error)) => Err(Failed::Refused(error)),
                Err(error) => Err(Failed::Broken(error)),
            }
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(Failed::Refused(error)) => return Ok(Err(error)),
            Err(Failed::Broken(error)) => return Err(error),
        };
        if let Some(record) = &record {
            self.save(name, before.as_ref(), record, &unreadable)?;
        }
        Ok(Ok(answer))
    }

    /// At most `most` timers after `after`, in the order of their names' bytes.
    pub(crate) fn timers(&self, after: Option<&TimerName>, most: usize) -> Step<Vec<TimerEntry>> {
        let mut statement =
            self.connection.prepare_cached("SELECT name FROM timer WHERE name > ?1 ORDER BY name")?;
        let mut rows = statement.query([after.map_or("", TimerName::as_str).as_bytes()])?;
        let mut listed = Vec::new();
        while listed.len() < most
            && let Some(row) = rows.next()?
        {
            let Some(name) = record::name(row, |text| TimerName::new(text).ok()) else { continue };
            match self.load(&name, None, true)? {
                Ok(Some(loaded)) => listed.push(TimerEntry::new(name, loaded.record, self.time())),
                Ok(None) => {}
                // The others are to be seen all the same.
                Err(error) => listed.push(TimerEntry::unreadable(name, self.time(), error.message)),
            }
        }
        Ok(Ok(listed))
    }

    pub(crate) const fn time(&self) -> StoreTime {
        StoreTime { wall: self.wall, now: self.now }
    }

    fn forget_timer(&self, name: &TimerName) -> rusqlite::Result<TimerAnswer> {
        let name = name.as_str().as_bytes();
        let timers = self.connection.prepare_cached("DELETE FROM timer WHERE name = ?1")?.execute([name])?;
        self.connection.prepare_cached("DELETE FROM claim WHERE name = ?1")?.execute([name])?;
        Ok(if timers > 0 { TimerAnswer::Removed } else { TimerAnswer::NotYours })
    }

    /// The record of a timer, `None` if there is none; an error if it can't be read. With `probe`, claims of all but
    /// the asker end with their owner's life.
    fn load(&self, name: &TimerName, asker: Option<&str>, probe: bool) -> Step<Option<Loaded>> {
        let read = self
            .connection
            .prepare_cached(&format!("SELECT {TIMER} FROM timer WHERE name = ?1"))?
            .query_row([name.as_str().as_bytes()], |row| Ok(read_timer(row)))
            .optional()?;
        let mut record = match read {
            None => return Ok(Ok(None)),
            Some(Ok(record)) => record,
            Some(Err(problem)) => {
                let advice = "until then its ticks can't be told; an operator can forget it";
                return Ok(Err(StoreError::unsupported(format!("{problem}; {advice}"))));
            }
        };
        let mut unreadable = Vec::new();
        let mut statement = self
            .connection
            .prepare_cached(&format!("SELECT {CLAIM} FROM claim WHERE name = ?1 ORDER BY tick"))?;
        let mut rows = statement.query([name.as_str().as_bytes()])?;
        while let Some(row) = rows.next()? {
            match ClaimRow::read(row) {
                Ok(claim) => record.claims.push(self.as_claim(claim, asker, probe)),
                Err(_) => {
                    // Of a newer format, or damaged: it is held, and not touched.
                    let tick = whole(row, 0).unwrap_or(u64::MAX);
                    unreadable.push(tick);
                    record.claims.push(Claim::unreadable(tick, self.now));
                }
            }
        }
        record.claims.sort_by_key(|claim| claim.tick);
        Ok(Ok(Some(Loaded { record, unreadable })))
    }

    /// A claim, as it is now: over if its machine was started again, its owner has died, or its owner asks and has
    /// lost the file in which it was granted.
    fn as_claim(&self, row: ClaimRow, asker: Option<&str>, probe: bool) -> Claim {
        let ClaimRow { mut claim, boot, handle, early } = row;
        let own = asker == Some(&claim.owner);
        let over = boot != self.boot
            || handle.is_some_and(|handle| match own {
                true => handle.is_earlier_than(self.me.handle()),
                false => probe && early && claim.ends > self.now && self.life(handle) == Life::Dead,
            });
        if over {
            claim.ends = Instant::ZERO;
        }
        claim
    }

    /// Writes what has changed.
    fn save(
        &self,
        name: &TimerName,
        before: Option<&TimerRecord>,
        record: &TimerRecord,
        unreadable: &[u64],
    ) -> rusqlite::Result<()> {
        let schedule_changed = before.is_none_or(|before| {
            let shape = |record: &TimerRecord| {
                let TimerRecord { revision, base, last, claimed, .. } = record;
                (*revision, *base, *last, *claimed)
            };
            shape(before) != shape(record)
        });
        if schedule_changed {
            self.write_timer(name, record)?;
        }
        let claims = |record: Option<&TimerRecord>| -> Vec<Claim> {
            let claims = record.into_iter().flat_map(|record| &record.claims);
            claims.filter(|claim| !unreadable.contains(&claim.tick)).cloned().collect()
        };
        let (before, after) = (claims(before), claims(Some(record)));
        for claim in &before {
            if !after.iter().any(|other| other.tick == claim.tick) {
                self.connection
                    .prepare_cached("DELETE FROM claim WHERE name = ?1 AND tick = ?2")?
                    .execute(params![name.as_str().as_bytes(), signed(claim.tick)])?;
            }
        }
        for claim in after.iter().filter(|claim| !before.contains(claim)) {
            self.write_claim(name, claim)?;
        }
        Ok(())
    }

    fn write_timer(&self, name: &TimerName, record: &TimerRecord) -> rusqlite::Result<()> {
        let TimerRecord { revision, base, schedule, next, last, claimed, claims: _ } = record;
        self.connection
            .prepare_cached(&format!(
                "INSERT OR REPLACE INTO timer ({TIMER}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
            ))?
            .execute(params![
                name.as_str().as_bytes(),
                ROW_FORMAT,
                signed(*revision),
                signed(base.n),
                base.at.as_nanos(),
                &**schedule,
                next.as_ref().map(|next| signed(next.at.n)),
                next.as_ref().map(|next| next.at.at.as_nanos()),
                next.as_ref().map(|next| &*next.schedule),
                signed(*last),
                signed(*claimed),
            ])
            .map(drop)
    }

    /// A claim that has changed was made, extended or given back by this handle: its life counts from now on.
    fn write_claim(&self, name: &TimerName, claim: &Claim) -> rusqlite::Result<()> {
        let Claim { tick, owner, token, ttl, ends, begun, attempts, since, metadata } = claim;
        let Metadata { host, pid, text, .. } = metadata;
        self.connection
            .prepare_cached(&format!(
                "INSERT OR REPLACE INTO claim (name, {CLAIM}) VALUES \
                 (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
            ))?
            .execute(params![
                name.as_str().as_bytes(),
                signed(*tick),
                ROW_FORMAT,
                owner,
                signed(token.get()),
                self.boot,
                signed(ends.as_nanos()),
                duration(*ttl),
                begun,
                attempts,
                since.as_nanos(),
                self.me.handle().as_bytes(),
                self.me.is_visible(),
                host.as_deref(),
                pid,
                text.as_deref(),
            ])
            .map(drop)
    }
}

/// A timer without its claims, or why it can't be read.
fn read_timer(row: &Row<'_>) -> Result<TimerRecord, String> {
    record::check_format(row, 1)?;
    let read = || -> rusqlite::Result<TimerRecord> {
        let time = |index: usize| row.get(index).map(Timestamp::from_nanos);
        let next: (Option<i64>, Option<i64>, Option<String>) = (row.get(6)?, row.get(7)?, row.get(8)?);
        let next = match next {
            (None, None, None) => None,
            _ => {
                let at = Tick { n: whole(row, 6)?, at: time(7)? };
                Some(NextSchedule { at, schedule: row.get(8)? })
            }
        };
        Ok(TimerRecord {
            revision: whole(row, 2)?,
            base: Tick { n: whole(row, 3)?, at: time(4)? },
            schedule: row.get(5)?,
            next,
            last: whole(row, 9)?,
            claimed: whole(row, 10)?,
            claims: Vec::new(),
        })
    };
    read().map_err(|error| record::damaged(&error))
}

/// A claim as it stands in a row.
#[derive(Debug)]
struct ClaimRow {
    claim: Claim,
    boot: String,
    handle: Option<HandleId>,
    early: bool,
}

impl ClaimRow {
    fn read(row: &Row<'_>) -> Result<Self, String> {
        record::check_format(row, 1)?;
        let read = || -> rusqlite::Result<Self> {
            let metadata = record::metadata(row, 12)?;
            let claim = Claim {
                tick: whole(row, 0)?,
                owner: row.get(2)?,
                token: Token::new(whole(row, 3)?),
                ttl: Duration::from_nanos(whole(row, 6)?),
                ends: Instant::from_nanos(whole(row, 5)?),
                begun: row.get(7)?,
                attempts: row.get(8)?,
                since: Timestamp::from_nanos(row.get(9)?),
                metadata,
            };
            let handle = HandleId::from_bytes(row.get_ref(10)?.as_blob()?);
            Ok(Self { claim, boot: row.get(4)?, handle, early: row.get(11)? })
        };
        read().map_err(|error| record::damaged(&error))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{
        Acquisition, Every, Identity, Incarnation, JobName, Overlap, Schedule as _, TimerChange,
    };
    use tenure_store::{RunOutcome, RunReport};

    use super::*;
    use crate::clock;
    use crate::database::Database;
    use crate::liveness::Lineage;
    use crate::options::SqliteOptions;

    #[test]
    fn a_wall_clock_before_1970_or_at_the_end_of_time_is_kept_as_it_is() {
        const TTL: Duration = Duration::from_secs(10);
        let every = Every::new(TTL).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(folder.path().join("a.db")).unwrap();
        let mut database = Database::open(&options, Lineage::draw().unwrap(), clock::now()).unwrap();
        for nanos in [i64::MIN, -315_619_200_000_000_000, -1, 0, 7_258_118_400_000_000_000, i64::MAX] {
            let wall = Timestamp::from_nanos(nanos);
            let name = TimerName::new(nanos.to_string()).unwrap();
            let job = JobName::new(nanos.to_string()).unwrap();
            let owner = Identity::new("here", Incarnation::new(1)).unwrap().owner(Acquisition(0));
            let claim = TickClaim {
                tick: 1,
                owner: owner.clone(),
                ttl: TTL,
                floor: Token::ZERO,
                attempts: 1,
                overlap: Overlap::Skip,
                metadata: Metadata::new(),
            };
            let at = Tick { n: 1, at: wall + TTL };
            let stage = TimerChange::Stage { at, schedule: Every::new(TTL * 2).unwrap().into() };
            let acts = [
                TimerAct::Read { schedule: every.text().into(), last: None },
                TimerAct::Change { revision: 1, change: stage },
                TimerAct::Claim(claim),
            ];
            let answers = database.write("", clock::now(), |transaction| {
                transaction.wall = wall;
                let mut report = RunReport::new(job.clone(), owner.to_string(), TTL, TTL);
                transaction.report(&report)?;
                report.outcome = Some(RunOutcome::Failed);
                transaction.report(&report)?;
                let request = |act| TimerRequest { name: name.clone(), act, timeout: TTL };
                let answers = acts.map(|act| transaction.timer(&request(act)));
                answers.into_iter().collect::<rusqlite::Result<Vec<_>>>().map(Ok)
            });
            let answers: Vec<TimerAnswer> = answers.unwrap().into_iter().map(Result::unwrap).collect();
            assert!(matches!(answers[2], TimerAnswer::Granted(_)), "{nanos}: {answers:?}");
            let timers = database.timers(None, 100).unwrap();
            let record = timers.into_iter().find(|timer| timer.name == name).unwrap().record;
            assert_eq!(record.claims[0].since, wall);
            if nanos == i64::MAX {
                assert_eq!((record.base.at, record.next), (wall, None), "there is no later tick");
            } else {
                assert_eq!((record.base.at, record.next.map(|next| next.at)), (wall, Some(at)));
            }
            let run = database.runs(&job).unwrap().remove(0);
            assert_eq!((run.started, run.ended), (wall, Some(wall)));
        }
    }
}
